#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 200
# weight: 75
# Draining and deleting a server keeps its flows, IPv4 by direct routing and
# IPv6 in tunnels; with mh, draining refuses new flows and deleting cuts old.

. "$(dirname "$0")/lib.sh"

SVC6="[$VIP6]:80"
HOLD=4000 PIN=5000	# milliseconds, scaled down from 60 s and 15 min

# pings: on every flow of both clients; sum KEY: of both answers
pings() {
	flow c ping
	reply4=$reply
	flow c6 ping
}

sum() {
	local n

	n=$(value "$1")
	echo "$((n + $(reply=$reply4 value "$1")))"
}

# opens N4 N6: new flows
opens() {
	flow c open "$1"
	reply4=$reply
	flow c6 open "$2"
}

# both MODE SERVER [WEIGHT]: change it in both services
both() {
	dr ipvsadm "$1" -t $VIP4:80 -r "10.2.0.$((10 + $2)):80" \
		${3:+-g -w "$3"}
	dr ipvsadm "$1" -t "$SVC6" -r "[fd02::$((10 + $2))]:80" \
		${3:+-i -w "$3"}
}

services() {
	{
		echo "-A -t $VIP4:80 -s $*"
		real_lines $VIP4:80 -g 1 2 3 4
		echo "-A -t $SVC6 -s $*"
		real_lines "$SVC6" -i 1 2 3 4
	} | dr ipvsadm -R
}

pinning() {
	[ "$(mhs Pin)" -gt 0 ] && [ "$(mhs Hold)" -eq 0 ] &&
		[ "$(mhs Pin "$SVC6")" -gt 0 ] &&
		[ "$(mhs Hold "$SVC6")" -eq 0 ]
}

quiet() {
	in_state stable && in_state stable "$SVC6"
}

forgotten() {
	[ "$(mhs Gone)" -eq 0 ] && [ "$(mhs Gone "$SVC6")" -eq 0 ]
}

plan 25
load_module
modprobe -q ipip
modprobe -q ip6_tunnel
setup_net 4
for i in 1 2 3 4; do
	count_syns s$i
done
dr sysctl -qw net.ipv4.vs.mhs.hold_ms=$HOLD net.ipv4.vs.mhs.pin_ms=$PIN \
	net.ipv4.vs.expire_nodest_conn=0
services mhs
wait_settled
wait_settled "$SVC6"
flow_start c --host $VIP4 --timeout 4
flow_start c6 --host $VIP6 --timeout 4

# Weight 0: idle flows that wake in either phase
opens 280 120
check "flows opened" 400 "$(sum flows)"
pings
check "flows answered" 0 "$(sum broken)"
check "no entries while stable" 0 "$(entries)"
mine=$(sum s1)
both -e 1 0
before=$(syns s1)
pings
check "weight 0: none broken while held" 0 "$(sum broken)"
check "weight 0: no entries for held flows" 0 "$(entries)"
opens 40 20
check "weight 0: no new flow refused" 0 "$(sum failed)"
result "weight 0: pin phase begins" "$(busywait 30 pinning; echo $?)"
pings
check "weight 0: none broken while pinned" 0 "$(sum broken)"
pinned=$(($(mhs PinnedEntries) + $(mhs PinnedEntries "$SVC6")))
check_cmp "weight 0: the server's flows are pinned" "$pinned" -ge "$mine"
result "weight 0: merged" "$(busywait 40 quiet; echo $?)"
pings
check "weight 0: none broken by the merge" 0 "$(sum broken)"
check "weight 0: none moved" 0 "$(sum moved)"
check "weight 0: no SYN reached the server" "$before" "$(syns s1)"

# then delete it: its flows have entries, which go on for hold + pin
both -d 1
pings
check "then delete: none broken" 0 "$(sum broken)"
check "then delete: none moved" 0 "$(sum moved)"
check "then delete: no SYN reached the server" "$before" "$(syns s1)"
flow c reset
flow c6 reset

# Delete alone: flows live for hold + pin, then are cut
busywait 40 forgotten
opens 60 30
pings
mine=$(sum s2)
both -d 2
pings
check "delete: none broken while held" 0 "$(sum broken)"
busywait 30 pinning
pings
check "delete: none broken towards the end" 0 "$(sum broken)"
result "delete: forgotten after hold and pin" \
	"$(busywait 60 forgotten; echo $?)"
pings
check "delete: then its flows, and no others, are cut" "$mine" \
	"$(sum broken)"
flow c reset
flow c6 reset

# With expire_nodest_conn they are cut at once, by another server's reset
dr sysctl -qw net.ipv4.vs.expire_nodest_conn=1
opens 60 30
pings
mine=$(sum s3)
both -d 3
pings
check "expire_nodest_conn: the server's flows are cut at once" "$mine" \
	"$(sum broken)"
check "expire_nodest_conn: by a reset" "$mine" "$(sum rst)"
flow c reset
flow c6 reset
dr ipvsadm -C

# The same with mh
dr sysctl -qw net.ipv4.vs.expire_nodest_conn=0
services mh -b mh-port
flow c open 100
flow c ping
check_cmp "control: mh makes an entry for each flow" "$(entries)" -ge 100
both -e 1 0
flow c open 20
check_cmp "control: mh refuses new flows of a drained server" \
	"$(value failed)" -gt 0
both -d 2
flow c ping
check_cmp "control: mh cuts the flows of a deleted server at once" \
	"$(value broken)" -gt 0
flow c reset
dr ipvsadm -C
