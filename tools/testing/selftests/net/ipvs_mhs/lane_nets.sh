#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 40
# The lane on the networks that directors have: a bond, whose active member changes;
# VLANs.  MHS_DOOR=xdp: by XDP programs.  Frame by frame, with VLANs on bonds, too:
# bench/card/lane_diff.sh.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_lane.sh"
need ethtool

readonly door=${MHS_DOOR:-ingress}

# programs NAME DEVICE...: XDP programs there, by which veth delivers at once
programs() {
	local dev

	for dev in "${@:2}"; do
		in_ns "$1" ip link set dev "$dev" xdpdrv \
			obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
	done
}

# rewire CARDS: the director's device goes, and what the router has for it; new are
# so many cards of the director, m0 and m1, on wires to those of the router
rewire() {
	local i

	lane_close
	for i in vdr m0 m1; do
		echo "link del $i"
	done | ip -force -n "$(ns rt)" -batch - 2>/dev/null
	dr ip link del eth0 2>/dev/null
	for ((i = 0; i < $1; i++)); do
		ip -n "$(ns rt)" link add m$i type veth peer name m$i netns "dr-$$"
		in_ns rt ethtool -K m$i tx off txvlan off >/dev/null
		dr ethtool -K m$i rxvlan off rx-vlan-stag-hw-parse off
	done
}

# vlan NAME CARD ID: lines for ip
vlan() {
	echo "link add link $2 name $1 type vlan id $3"
	echo "link set $1 up"
}

# lane_open, lane_close: on the device above the cards
lane_open() {
	if [ "$door" = ingress ]; then
		dr sysctl -qw net.ipv4.vs.mhs.ingress=eth0
	else
		programs dr "$port"
	fi
}

lane_close() {
	if [ "$door" = ingress ]; then
		dr sysctl -qw net.ipv4.vs.mhs.ingress=
	else
		dr ip link set dev "$port" xdpdrv off
	fi
}

# wired PORT DEVICE...: the director's addresses on its new device, the lane at its
# PORT; by XDP a veth wants programs at the router's devices, too.  No flow waits for a
# neighbour.
wired() {
	host 10 | grep -v "dev lo\|set lo" | ip_ns dr
	# a new device has another MAC address
	in_ns rt ip neigh flush dev br0
	# no neighbour becomes stale on a slow machine: that takes a packet up
	sysctls dr net.ipv4.neigh.eth0.base_reachable_time_ms=3600000
	[ "$door" = ingress ] || programs rt "${@:2}"
	port=$1
	lane_open
	busywait 60 in_ns rt ping -q -c 1 -W 1 -n 10.2.0.10 >"$work/ping"
	lane_service $VIP4 -g "${FOUR[@]}"
}

active() {
	dr sed -n 's/^Currently Active Slave: //p' /proc/net/bonding/eth0
}

active_is_not() {
	[ "$(active)" != "$1" ]
}

# frames PORT...: ACKs of a client to the service, each by a wire of the bond
frames() {
	in_ns rt python3 -B -S - "$(dr ip -o link show eth0 |
		sed 's/.*ether //; s/ .*//')" "$@" <<-EOT
		import socket, sys
		sys.path.insert(0, "$here")
		import netlab
		packet = netlab.tcp("10.1.0.99", 40000, "$VIP4", 80)
		for port in sys.argv[2:]:
		    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
		        sock.bind((port, 0))
		        sock.send(bytes.fromhex(sys.argv[1].replace(":", "")) +
		                  bytes.fromhex("0200000000010800") + packet)
	EOT
}

forwarded() {
	[ "$(lane_new Forwarded)" -ge "$1" ]
}

# backup: a bond with one active member, at a switch
backup() {
	local card rc=0

	rewire 2
	ip_ns dr <<-EOF
		link add eth0 type bond mode active-backup miimon 10
		link set m0 master eth0
		link set m1 master eth0
	EOF
	for card in m0 m1; do
		echo "link set $card master br0 up"
	done | ip_ns rt
	wired eth0 m0 m1
	lane_warm
	lane_flows "active-backup"
	check "active-backup: m0 is active" m0 "$(active)"
	lane_begin
	frames m0 m0
	busywait 20 forwarded 2
	result "control, frames by the active member: in the lane" $?
	lane_begin
	frames m1 m1 m0
	busywait 20 forwarded 1
	check "frames by the other member are nobody's" 1 "$(lane_new Forwarded)"

	load
	for card in m0 m1 m0; do
		in_ns rt ip link set $card down
		busywait 20 active_is_not $card || rc=1
		until_more $FLOWS lane_sent || rc=1
		in_ns rt ip link set $card up
	done
	result "a member's wire is cut under load: the lane goes on" $rc
	load_ends "a member's wire is cut"
}

# by_hand: programs of the members only: the lane cannot tell by which to send
by_hand() {
	local card

	lane_close
	programs dr m0 m1
	lane_flows "programs of the members, not of the bond: Device" Device
	check "programs of the members: none in the lane" 0 \
		"$(lane_new Forwarded)"
	for card in m0 m1; do
		dr ip link set dev $card xdpdrv off
	done
}

# vlans: clients come by one VLAN, servers are behind another one
vlans() {
	local i

	rewire 1
	# the director's address is in the first VLAN only
	sysctls dr net.ipv4.conf.all.arp_ignore=1
	{
		echo "link set m0 up"
		vlan eth0 m0 7
		vlan eth1 m0 8
		echo "link set eth1 address 02:00:00:00:00:08"
		echo "addr add 10.2.8.1/24 dev eth1"
	} | ip_ns dr
	{
		echo "link set m0 up"
		vlan vdr m0 7
		vlan vdr8 m0 8
		echo "link set vdr master br0"
		echo "link set vdr8 master br0"
	} | ip_ns rt
	wired m0 m0
	for i in 11 12 13 14; do
		echo "route add 10.2.0.$i dev eth1"
	done | ip_ns dr
	lane_warm
	lane_flows "in by a VLAN, out by another"
}

# no_vlans: tags that depend on the packet, or that a program cannot see
no_vlans() {
	dr ip link set eth1 type vlan egress 0:1
	lane_flows "a VLAN that maps priorities: Device" Device
	dr ip link set eth1 type vlan egress 0:0
	dr ethtool -K m0 rxvlan on
	lane_flows "a card that hides tags: Device" Device
	dr ethtool -K m0 rxvlan off
	lane_warm
	lane_flows "with a plain VLAN again"
}

# bridge_vlan: the port of a bridge may be blocked
bridge_vlan() {
	rewire 1
	{
		echo "link add br7 type bridge forward_delay 0"
		echo "link set m0 master br7 up"
		echo "link set br7 up"
		vlan eth0 br7 7
	} | ip_ns dr
	{
		echo "link set m0 up"
		vlan vdr m0 7
		echo "link set vdr master br0"
	} | ip_ns rt
	wired m0 m0
	lane_flows "a VLAN of a bridge, the program on its port: Frame" Frame
	check "a VLAN of a bridge: none in the lane" 0 "$(lane_new Forwarded)"
}

tests=9
[ "$door" = ingress ] || tests=21
plan $tests
load_module
modprobe -q -a bonding
setup_net 4
windows 3600000 3600000
sysctls dr net.ipv4.vs.mhs.lane=1
port=eth0
backup
[ "$door" = ingress ] || by_hand
vlans
if [ "$door" = xdp ]; then
	no_vlans
	bridge_vlan
fi
