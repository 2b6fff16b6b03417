#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 40
# Flows that change director, by the router's choice among equal paths and in
# the middle of a transition, with the sync daemon for the entries there are.
# Without it flows begun in the window break: counted, and only those.  A
# director that starts in the window must be told the old servers first.  A backup's
# entries hold no port that is used again on a server that is drained there.  With
# backup_only: icmp.sh.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

both() {
	in_ns dr "$@" && in_ns d2 "$@"
}

# paths HOST...: the router sends to these directors
paths() {
	ip_ns rt <<-EOT
		route replace $VIP4/32 $(printf 'nexthop via 10.2.0.%s ' "$@")
		route replace $VIP6/128 $(printf 'nexthop via fd02::%s ' "$@")
	EOT
}

# clients NAME N: two more, with N flows each
clients() {
	flow_start "$1"4 --host $VIP4 --timeout 5
	flow_start "$1"6 --host $VIP6 --timeout 5
	pair_of "$1" open "$2"
	pair_of "$1" ping
}

# live NAME CLIENTS: all their flows are as they were
live() {
	pair_of "$2" ping
	check "$1" "0 0" "$(sum broken) $(sum moved)"
}

# phase NAME HOLD PIN COLUMN: with such windows no slot of either director is in that
# phase any more
phase() {
	times "$2" "$3"
	busywait 20 eval "[ \"\$(mhs_sum $4) \$(mhs_sum $4 d2)\" = '0 0' ]"
	result "$1" $?
}

times() {
	both sysctl -qw net.ipv4.vs.mhs.hold_ms="$1" net.ipv4.vs.mhs.pin_ms="$2"
}

# synced NUMBER: has the backup this many entries?
synced() {
	[ "$(conns d2)" -ge "$1" ]
}

# sync start | stop: the sync daemons
sync() {
	local more=(--mcast-interface eth0 --syncid 1)

	[ "$1" = start ] || more=()
	dr ipvsadm "--$1-daemon" master "${more[@]}"
	in_ns d2 ipvsadm "--$1-daemon" backup "${more[@]}"
}

# weigh NAMESPACE WEIGHT SERVER...: in both services
weigh() {
	local i

	for i in "${@:3}"; do
		at=$1 pair_edit -e "$i" -g -w "$2"
	done
}

# again: 45 flows, one after another, from 40 ports
again() {
	flow_start r --host $VIP4 --bind 10.1.0.2 --ports 20000-20039 \
		--pause 0.01
	flow_send r churn 3600
	until_more 45 opened cl
	flow r stop churn
	flow_end r
}

# ended NAMESPACE: ports of these whose flow has ended and has an entry that leads to
# s4, with its state; carried: for busywait, the backup has these.  A message that comes
# later would lead a newer flow of its port there.
ended() {
	in_ns "$1" awk '$3 ~ /^4E/ && $6 == "0A02000E" && $8 != "ESTABLISHED" {
		print $3, $8 }' /proc/net/ip_vs_conn | sort -u
}

carried() {
	[ "$(ended d2)" = "$(ended dr)" ]
}

plan 21
fresh_module table_size=4093
setup_net 4
director d2 30
in_ns rt sysctl -qw net.ipv4.fib_multipath_hash_policy=1 \
	net.ipv6.fib_multipath_hash_policy=1
times 3600000 3600000
pair_services "1 2 3" mhs
at=d2 pair_services "3 1 2" mhs

# The router chooses
paths 10 30
clients a 60
check_cmp "equal paths: flows by one director" "$(mhs PktStateless)" -gt 20
check_cmp "equal paths: and by the other" \
	"$(mhs PktStateless "$SVC4" d2)" -gt 20
paths 30
live "a director goes: its flows live" a
paths 10 30
live "it comes back: flows live" a
check "no entries for that" "0 0" "$(conns dr) $(conns d2)"

# In a transition
paths 10
for n in dr d2; do
	at=$n pair_edit -a 4 -g -w 1
done
clients b 60
made=$(conns dr)
check_cmp "transition: new flows with an entry" "$made" -gt 5
paths 30
pair_of b ping
check "transition, no sync: flows with an entry break, no others" "$made" \
	"$(sum broken)"
pair_of b reset

# The same with the sync daemon
paths 10
dr sysctl -qw net.ipv4.vs.sync_threshold="0 1"
sync start
before=$(conns dr)
clients c 60
made=$(($(conns dr) - before))
result "sync: the backup has the entries" "$(busywait 20 synced $made; echo $?)"
paths 30
live "sync: flows begun in the window too" c
check_cmp "sync: entries for no others" "$(conns d2)" -le $((before + made))
paths 10
phase "pin phase" 0 3600000 Hold
live "pin: older flows" a
live "pin: younger flows" c
busywait 20 synced $((made + $(pair_total PinnedEntries)))
phase "merged" 0 100 Pin
paths 30
live "merged: older flows change director" a
live "merged: flows begun in the window too" c
sync stop
pair_of a reset

# window SERVERS: a director that starts in the window of a drain with these
window() {
	pair_of c reset
	both ipvsadm -C
	pair_services "1 2 3 4" mhs
	paths 10
	pair_of c open 60
	pair_of c ping
	mine=$(sum s1)
	weigh dr 0 1
	at=d2 pair_services "$1" mhs
}

times 3600000 3600000
window "2 3 4"
at=d2 pair_edit -a 1 -g -w 0
paths 30
pair_of c ping
check_cmp "control: a new director breaks the flows of a drained server" \
	"$(sum broken)" -ge "$mine"
window "1 2 3 4"
weigh d2 0 1
paths 30
live "seeded with the old servers: flows change director" c
pair_of c reset
both ipvsadm -C

# A backup, and ports that are used again: their entries lead to a server that
# is drained there
pair_services "1 2 3 4" mhs
at=d2 pair_services "1 2 3 4" mhs
sync start
paths 10
weigh dr 0 1 2 3
again
check_cmp "used ports: flows with an entry" "$(ended dr | wc -l)" -gt 20
result "used ports: the backup has the entries" "$(busywait 20 carried; echo $?)"
dr ipvsadm --stop-daemon master
paths 30
weigh d2 0 4
in_ns d2 sysctl -qw net.ipv4.vs.conn_reuse_mode=0
again
check "used ports: none meets the drained server, none fails" "0 0" \
	"$(value s4) $(value failed)"
