#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 120
# weight: 40
# mhs forwards TCP without entries and keeps flows through changes.

. "$(dirname "$0")/lib.sh"

plan 8
load_module
modprobe -q ipip
setup_net 4
dr sysctl -qw net.ipv4.vs.mhs.hold_ms=3000 net.ipv4.vs.mhs.pin_ms=8000
{ echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3 4; } | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4
flow c open 100
flow c ping
check "flows opened" 100 "$(value flows)"
check "flows answered" 0 "$(value broken)"
check "no entries while stable" 0 "$(entries)"
dr ipvsadm -e -t $VIP4:80 -r 10.2.0.11:80 -g -w 0
flow c ping
check "none broken by drain" 0 "$(value broken)"
flow c open 50
until [ "$(mhs State)" = stable ]; do
	flow c ping
	sleep 0.7
done
check "none broken after the merge" 0 "$(value broken)"
check "none moved" 0 "$(value moved)"
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.12:80
flow c ping
check "none broken by delete" 0 "$(value broken)"
flow c reset
dr ipvsadm -C
check "cleared" "" "$(mhs State)"
rmmod ip_vs_mhs
