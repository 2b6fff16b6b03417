#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# The lane on the networks that directors have: bonds and VLANs.  MHS_DOOR=xdp: by XDP
# programs.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_lane.sh"
need ethtool

readonly door=${MHS_DOOR:-ingress}
readonly OBJ=${MHS_KO%/*}/lane.bpf.o

# programs NAME DEVICE...: XDP programs there, by which veth delivers at once
programs() {
	local dev

	for dev in "${@:2}"; do
		in_ns "$1" ip link set dev "$dev" xdpdrv obj "$OBJ" sec xdp
	done
}

# rewire CARDS: the director's devices go, and what the router has for them; new are
# so many cards of the director, m0 and m1, on wires to those of the router
rewire() {
	local i

	lane_close
	printf 'link del %s\n' eth0 bond0 | ip -force -n "$(ns dr)" -batch - \
		2>/dev/null
	printf 'link del %s\n' vdr bond0 m0 m1 | ip -force -n "$(ns rt)" -batch - \
		2>/dev/null
	for ((i = 0; i < $1; i++)); do
		echo "link add m$i type veth peer name m$i netns dr-$$"
	done | ip_ns rt
	for ((i = 0; i < $1; i++)); do
		in_ns rt ethtool -K m$i tx off txvlan off >/dev/null
		dr ethtool -K m$i rxvlan off rx-vlan-stag-hw-parse off
	done
}

# vlan NAME CARD ID: lines for ip
vlan() {
	echo "link add link $2 name $1 type vlan id $3"
	echo "link set $1 up"
}

# bond NAME MODE...: lines for ip, of the cards
bond() {
	echo "link add $1 type bond mode ${*:2} miimon 10"
	echo "link set m0 master $1"
	echo "link set m1 master $1"
}

# addresses: the director's, of its new device
addresses() {
	host 10 | grep -v "dev lo\|set lo" | ip_ns dr
	# a new device has another MAC address
	in_ns rt ip neigh flush dev br0
	# no neighbour becomes stale on a slow machine: that takes a packet up
	sysctls dr net.ipv4.neigh.eth0.base_reachable_time_ms=3600000
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

# wired PORT DEVICE...: the lane at the director's PORT; by XDP a veth wants programs at
# the router's devices, too
wired() {
	addresses
	[ "$door" = ingress ] || programs rt "${@:2}"
	port=$1
	lane_open
}

# reached: the new wires carry packets, so no flow waits for a neighbour
reached() {
	in_ns rt ping -c 1 -W 1 -n 10.2.0.10 >/dev/null
}

# aggregated: both ends of both members collect and distribute
aggregated() {
	dr cat "/proc/net/bonding/$port" >"$work/bond"
	[ "$(grep -c "MII Status: up" "$work/bond")" -eq 3 ] &&
		[ "$(grep -c "port state: 63" "$work/bond")" -eq 4 ]
}

# used CARD: it has sent frames of many packets
used() {
	local sent

	sent=$(dr cat /proc/net/dev | awk -v dev="$1:" '$1 == dev { print $11 }')
	[ "$sent" -lt 20 ] || echo yes
}

active() {
	dr sed -n 's/^Currently Active Slave: //p' /proc/net/bonding/eth0
}

active_is_not() {
	[ "$(active)" != "$1" ]
}

# frame PORT: an ACK of a client to the service comes by that wire of the bond
frame() {
	in_ns rt python3 -IS - "$1" "$(dr ip -o link show eth0 |
		sed 's/.*ether //; s/ .*//')" <<-'EOT'
		import socket
		import sys
		s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
		s.bind((sys.argv[1], 0))
		ip = bytes.fromhex("4500002800004000400620be0a0100630a090001")
		total = sum(int.from_bytes(ip[i:i + 2], "big")
		            for i in range(0, 20, 2) if i != 10)
		total = (total & 0xffff) + (total >> 16)
		ip = ip[:10] + (0xffff - total).to_bytes(2, "big") + ip[12:]
		tcp = bytes.fromhex("9c4000500000000100000001501020000000" "0000")
		s.send(bytes.fromhex(sys.argv[2].replace(":", "")) +
		       bytes.fromhex("0200000000010800") + ip + tcp.ljust(26, b"\0"))
	EOT
}

# idle_member: what comes by the member that is not active is nobody's
idle_member() {
	flow c reset
	lane_begin
	frame m0
	frame m0
	busywait 20 lane_forwarded 2
	result "control, frames by the active member: in the lane" $?
	lane_begin
	frame m1
	frame m1
	frame m0
	busywait 20 lane_forwarded 1
	check "frames by the other member: none in the lane" 1 \
		"$(lane_new Forwarded)"
}

lane_forwarded() {
	[ "$(lane_new Forwarded)" -ge "$1" ]
}

# backup: a bond with one active member, at a switch
backup() {
	local card rc=0

	rewire 2
	bond eth0 active-backup | ip_ns dr
	for card in m0 m1; do
		echo "link set $card master br0 up"
	done | ip_ns rt
	wired eth0 m0 m1
	busywait 60 reached
	lane_service $VIP4 "${direct[@]}"
	lane_warm
	lane_flows "active-backup"
	check "active-backup: m0 is active" m0 "$(active)"
	idle_member

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
	lane_close
	programs dr m0 m1
	lane_flows "programs of the members, not of the bond: Device" Device
	check "programs of the members: none in the lane" 0 \
		"$(lane_new Forwarded)"
	for card in m0 m1; do
		dr ip link set dev $card xdpdrv off
	done
}

# vlans: clients and servers by one VLAN, then servers by another one
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
	busywait 60 reached
	lane_service $VIP4 "${direct[@]}"
	lane_warm
	lane_flows "VLAN"
	lane_service $VIP4 "${tunnel[@]}"
	lane_warm
	lane_flows "VLAN, IPIP"
	for i in 11 12 13 14; do
		echo "route add 10.2.0.$i dev eth1"
	done | ip_ns dr
	lane_service $VIP4 "${direct[@]}"
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
	busywait 60 reached
	lane_service $VIP4 "${direct[@]}"
	lane_flows "a VLAN of a bridge, the program on its port: Frame" Frame
	check "a VLAN of a bridge: none in the lane" 0 "$(lane_new Forwarded)"
}

# bond_vlan: a VLAN on a bond of both ends
bond_vlan() {
	rewire 2
	{
		bond bond0 802.3ad lacp_rate fast xmit_hash_policy layer3+4
		echo "link set bond0 up"
		vlan eth0 bond0 7
	} | ip_ns dr
	{
		bond bond0 802.3ad lacp_rate fast xmit_hash_policy layer3+4
		echo "link set bond0 up"
		vlan vdr bond0 7
		echo "link set vdr master br0"
	} | ip_ns rt
	wired bond0 bond0
	busywait 60 aggregated
	result "802.3ad: both members" $?
	busywait 60 reached
	lane_service $VIP4 "${direct[@]}"
	lane_warm
	lane_flows "a VLAN on 802.3ad"
	check "802.3ad: by both members" "yes yes" "$(used m0) $(used m1)"
	lane_service $VIP4 "${tunnel[@]}"
	lane_warm
	lane_flows "a VLAN on 802.3ad, IPIP"
}

if [ "$door" = ingress ]; then
	plan 19
else
	plan 31
fi
load_module
modprobe -q -a bonding ipip
setup_net 4
windows 3600000 3600000
sysctls dr net.ipv4.vs.mhs.lane=1
mapfile -t direct < <(lane_v4 -g)
mapfile -t tunnel < <(lane_v4 -i)
port=eth0
backup
[ "$door" = ingress ] || by_hand
vlans
[ "$door" = ingress ] || no_vlans
[ "$door" = ingress ] || bridge_vlan
bond_vlan
