#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 45
# tags: races
# The lane under load: doors that open and close, limits and neighbours that change, servers
# that flap.  MHS_DOOR=xdp: by XDP programs.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_lane.sh"
need ethtool

readonly door=${MHS_DOOR:-ingress}

stateless() {
	mhs PktStateless
}

turn() {
	sysctls dr net.ipv4.vs.mhs.lane="$1"
}

# to_and_fro NAME CLOSE OPEN: a door shuts and opens under load
to_and_fro() {
	local i rc=0

	load
	for i in 1 2 3 4 5 6; do
		$2
		until_more $FLOWS by_stack || rc=1
		$3
		until_more $FLOWS lane_sent || rc=1
	done
	result "$1: packets took both ways" $rc
	load_ends "$1"
}

# flap: the tenth server goes, and comes back
flap() {
	dr ipvsadm -e -t $VIP4:80 -r 10.2.0.14:80 -g -w 0
	busywait 20 built
	until_more $FLOWS stateless
	dr ipvsadm -e -t $VIP4:80 -r 10.2.0.14:80 -g -w 1
	busywait 20 built
	until_more $FLOWS stateless
}

plan 12
load_module
setup_net 4
ten_servers
learn dr < <(lane_lines $VIP4 -g "${FOUR[@]}")
windows 3600000 3600000
lane_open
turn 1
flow_start c --timeout 60 --host $VIP4
lane_warm

to_and_fro "lane=0 and lane=1" "turn 0" "turn 1"
to_and_fro "the door closed and opened" lane_close lane_open

# the path gets narrow, and wide again
load
lane_begin
for _ in 1 2 3; do
	dr ip link set dev eth0 mtu 1400
	until_more $FLOWS stateless
	dr ip link set dev eth0 mtu 1500
	until_more $FLOWS stateless
done
load_ends "another MTU of the device"
check_cmp "another MTU: in the lane" "$(lane_new Forwarded)" -gt 0

# neighbours are forgotten and found; a server's wire is cut, and mended before its flows
# give up
load
rc=0
for wire in up down up down up; do
	in_ns rt ip link set dev vs1 $wire
	dr ip neigh flush dev eth0
	if [ $wire = up ]; then
		until_more $FLOWS lane_sent || rc=1
	else
		until_more 4 lane_saw Neighbour || rc=1
	fi
done
result "neighbours lost, a wire cut: Neighbour, then in the lane" $rc
load_ends "neighbours lost, a wire cut and mended"

# a tenth of the servers flaps, while flows live and others begin
dr ipvsadm -R < <(real_lines $VIP4:80 -g 21 22 23 41 42 43)
busywait 20 built
windows 0 100
busywait 20 stable
windows 3600000 3600000
flow_start new --host $VIP4 --timeout 8 --pause 0.05
load
flow_send new churn 3600
lane_begin
for _ in 1 2 3; do
	flap
done
share=$(lane_share)
flow new stop churn
check_cmp "a tenth of the servers flaps: new flows" "$(value "done")" -gt 10
check "a tenth of the servers flaps: none failed" 0 "$(value failed)"
load_ends "a tenth of the servers flaps"
check_cmp "a tenth of the servers flaps: percent in the lane" "$share" -ge 85
lane_close
