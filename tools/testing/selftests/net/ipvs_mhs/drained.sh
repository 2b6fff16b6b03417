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

# left: flows of both services, as it said
left() {
	sed -En 's/^[^ ]*: ([0-9]+) flow.*/\1/p' "$work/said" |
		awk '{ n += $1 } END { print n + 0 }'
}

# in_state_of STATE: sockets of the service on s1, as ss has them
in_state_of() {
	in_ns s1 ss -Htn state "$1" "( sport = :80 )" | wc -l
}

# ended: the clients of churn have got TIME_WAIT on s1
ended() {
	[ "$(in_state_of time-wait)" -gt 0 ]
}

plan 12
how4=-g how6=-i
chance_net 3
chance_services 1 2 3
check "without the second chance services are named" 125 "$(drained)"
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
check "they are counted" "124 $mine" "$(drained) $(left)"
check "another server has the rest" "124 $(($(sum flows) - mine))" "$(
	for s in s2 s3; do
		in_ns $s "$top/scripts/real_server" drained
	done >"$work/said" 2>&1
	echo $? "$(left)")"

# Until the last one is closed
drained --timeout 1h >"$work/status" &
waiter=$!
busywait 20 grep -q "flow(s) left" "$work/said"
pair close
wait $waiter
check "it waits until none is left" "0 2" \
	"$(<"$work/status") $(grep -c ":80: drained$" "$work/said")"

# TIME_WAIT, half-open, half-closed
both -e 1 1
flow_send c4 churn 3600
busywait 60 ended
flow c4 stop churn
busywait 20 eval '[ "$(in_state_of established)" -eq 0 ]'
check "TIME_WAIT is no flow" 0 "$(drained)"
check_cmp "control: there are sockets in TIME_WAIT" "$(in_state_of time-wait)" -gt 0
# no ICMP error ends them
ip_ns rt <<<"route add blackhole 10.1.0.9/32"
raw cl --dst $VIP4 --good --src 10.1.0.9 --ports 1000-1029 >/dev/null
half=$(in_state_of syn-recv)
check_cmp "half-open ones" "$half" -gt 0
check "they count" "124 $half" "$(drained) $(left)"
in_ns s1 python3 -IS - "$VIP4" <<-'END' &
	import socket, sys
	server = socket.create_server((sys.argv[1], 81))
	client = socket.create_connection((sys.argv[1], 81))
	sock, _ = server.accept()
	server.close()
	client.shutdown(socket.SHUT_WR)
	sys.stdin = None
	import time
	time.sleep(3600)	# why: it holds a half-closed flow until it is ended
END
holder=$!
defer kill $holder
busywait 20 eval '[ -n "$(in_ns s1 ss -Htn state close-wait)" ]'
check "a half-closed one counts, though its service has ended" "124 1" \
	"$(drained -t $VIP4:81) $(grep -c "1 flow(s) left, 1 half-closed" "$work/said")"
check "where nothing listens nothing is known" "125 1" \
	"$(drained -t $VIP4:82) $(grep -c "are not seen from here" "$work/said")"
