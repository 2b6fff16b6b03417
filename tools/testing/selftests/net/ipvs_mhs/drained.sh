#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 20
# 'real_server drained': a server's own sockets tell whether it has flows left, where no
# director knows: established, half-open and half-closed ones count, TIME_WAIT does not.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
. "${0%/*}/lib_chance.sh"

# drained ARGUMENTS: the status on s1; its words are in said
drained() {
	in_ns s1 "$top/scripts/real_server" drained "$@" >"$work/said" 2>&1
	echo $?
}

# left KIND: so many of both services, as it said
left() {
	sed -En "s/.* ([0-9]+) $1.*/\1/p" "$work/said" |
		awk '{ n += $1 } END { print n + 0 }'
}

# sockets STATE: of the service on s1, as ss has them
sockets() {
	in_ns s1 ss -Htn state "$1" "( sport = :80 )" | wc -l
}

plan 10
how4=-g how6=-i
chance_net 3
chance_services 1 2 3
# shellcheck disable=SC2086
equip $servers
busywait 20 answering 6

# The director refuses, and names the command
pair open 40
both -e 1 0
dr "$top/scripts/mhsstat" drain 10.2.0.11:80 >"$work/said" 2>&1
check "mhsstat drain refuses, and names the command" "125 1" \
	"$? $(grep -c "'real_server drained -t $SVC4 --timeout 1h' there" \
		"$work/said")"
pair ping
mine=$(sum s1)
check_cmp "the drained server has flows" "$mine" -gt 0
check "they are counted" "124 $mine" "$(drained) $(left flow)"

# Until the last one is closed
drained --timeout 1h >"$work/status" &
waiter=$!
busywait 20 grep -q "flow(s) left" "$work/said"
pair close
wait $waiter
check "it waits until none is left" "0 2" \
	"$(<"$work/status") $(grep -c ":80: drained$" "$work/said")"

# TIME_WAIT, half-closed, half-open
both -e 1 1
flow_send c4 churn 3600
busywait 60 eval '[ "$(sockets time-wait)" -gt 0 ]'
flow c4 stop churn
busywait 20 eval '[ "$(sockets established)" -eq 0 ]'
check "TIME_WAIT is no flow" 0 "$(drained)"
check_cmp "control: there are sockets in TIME_WAIT" "$(sockets time-wait)" -gt 0
pair open 20
pair half
pair fin
busywait 20 eval '[ "$(sockets established)" -eq 0 ]'
half=$(sockets close-wait)
check_cmp "control: half-closed ones" "$half" -gt 0
check "half-closed ones count" "124 $half" "$(drained) $(left half-closed)"
# no ICMP error ends them
ip_ns rt <<<"route add blackhole 10.1.0.9/32"
raw cl --dst $VIP4 --good --src 10.1.0.9 --ports 1000-1029 >/dev/null
half=$(sockets syn-recv)
check_cmp "control: half-open ones" "$half" -gt 0
check "half-open ones count" "124 $half" "$(drained) $(left half-open)"
