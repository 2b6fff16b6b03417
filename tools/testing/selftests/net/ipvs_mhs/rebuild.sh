#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# memory: 2G
# tags: races
# Large changes under traffic: a thousand servers one by one, flows that begin
# before a table is rebuilt, many services (MHS_MADE: how many).

. "${0%/*}/lib.sh"

: "${MHS_MADE:=1000}"

# many SERVICE FIRST LAST: restore lines for servers that do not exist
many() {
	local i

	for ((i = $2; i < $3; i++)); do
		echo "-a -t $1 -r 10.3.$((i / 250)).$((1 + i % 250)):80 -g -w 1"
	done
}

now_ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# services: lines of /proc/net/ip_vs_mhs
services() {
	local net lines

	net_dir dr
	mapfile -t lines <"$net/ip_vs_mhs"
	echo "${#lines[@]}"
}

# candidate: of a client whose slot had the first server, by a file whose readers
# have no table rebuilt
candidate() {
	local net word

	net_dir dr
	exec {asked}<>"$net/ip_vs_mhs_lookup"
	echo "TCP $VIP4 80 198.51.100.7 $client" >&"$asked"
	word=$(sed -n 's/^Candidate //p' <&"$asked")
	exec {asked}>&-
	echo "$word"
}

# in_between: the first server is drained by the command that goes on to edit
# another, so that no table is rebuilt for a second, and 40 flows begin.  Was there
# no rebuild?
in_between() {
	nsenter "--net=/run/netns/$(ns dr)" ipvsadm -R < <(
		echo "-e -t $VIP4:80 -r 10.2.0.11:80 -g -w 0"
		for ((i = 0; i < 400; i++)); do
			echo "-e -t $VIP4:81 -r 10.2.0.12:80 -g -w $((1 + i % 2))"
			# why: the pace of the command, which leaves flows the CPU
			sleep 0.005
		done) &
	busywait 10 drained
	flow c open 40
	[ "$(candidate)" = 10.2.0.11:80 ]
	local open=$?
	kill $! && wait $! 2>/dev/null
	return $open
}

drained() {
	# not by dr, which has tables rebuilt
	[ "$(nsenter "--net=/run/netns/$(ns dr)" ipvsadm -Ln -t $VIP4:80 |
		awk '/10.2.0.11/ { print $4 }')" = 0 ]
}

plan 13
load_module
setup_net 3
windows 3600000 3600000
# routes for what is only a name here: nothing is ever sent to it
ip -n "$(ns dr)" route add 10.3.0.0/16 via 10.2.0.1
{ echo "-A -t $VIP4:80 -s mhs"; add_servers 1; } | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4 --timeout 20
flow c open 60
flow c ping
check "flows on the first server" "60 0" "$(value flows) $(value broken)"

flow_send c busy 3600
start=$(now_ms)
many $VIP4:80 0 1000 | dr ipvsadm -R
took=$(($(now_ms) - start))
busywait 60 in_state transition
flow c stop
check "1,000 servers one by one: none broken, none moved" "0 0" \
	"$(value broken) $(value moved)"
note "1,000 servers in $took ms, the last table in $(mhs BuildUs) us"
check "1,000 servers: all in the table" "1001 0" "$(mhs Servers) $(mhs NoSlot)"
check "no packet was dropped for want of a table" 0 "$(mhs PktUnsettled)"

flow_send c busy 3600
start=$(now_ms)
for ((i = 0; i < 20; i++)); do
	dr ipvsadm -d -t $VIP4:80 -r "10.3.$((i / 250)).$((1 + i % 250)):80"
done
took=$(($(now_ms) - start))
flow c stop
check "20 removals, a command each: none broken" "0 0" \
	"$(value broken) $(value moved)"
note "20 removals in $took ms"
flow c reset
dr ipvsadm -C

# many services, made and removed
start=$(now_ms)
for ((i = 1; i <= MHS_MADE; i++)); do
	echo "-A -t $VIP4:$((2000 + i)) -s mhs"
	echo "-a -t $VIP4:$((2000 + i)) -r 10.2.0.11:80 -g -w 1"
done | dr ipvsadm -R
took=$(($(now_ms) - start))
check "many services" $((MHS_MADE + 1)) "$(services)"
start=$(now_ms)
dr ipvsadm -C
note "$MHS_MADE services made in $took ms, removed in $(($(now_ms) - start)) ms"
check "many services removed" 1 "$(services)"

# the control: mh rewrites its table under the packets and forgets nothing only
# because every flow has an entry
{ echo "-A -t $VIP4:80 -s mh -b mh-port"; add_servers 1; } | dr ipvsadm -R
flow_start d --host $VIP4 --timeout 20
flow d open 50
flow d ping
many $VIP4:80 0 200 | dr ipvsadm -R
flow d ping
check "control: mh keeps flows, too" 0 "$(value broken)"
check "control: by an entry for each" 50 "$(entries)"
flow d reset

# a server is drained, and flows begin before the table is rebuilt: another server
# has them, by an entry, and keeps them when their slots are held for the first
for try in 1 2 3 4 5; do
	dr ipvsadm -C
	learn dr < <(for port in 80 81; do
		echo "-A -t $VIP4:$port -s mhs"
		add_servers 1 2 3 | sed "s/:80 -r/:$port -r/"
	done)
	for ((client = 1024; client < 1124; client++)); do
		[ "$(candidate)" != 10.2.0.11:80 ] || break
	done
	flow c open 60
	flow c ping
	older=$(value s1)
	in_between && break
	# on a busy host the command may pause, and what follows must hold, too
	note "rebuilt before the flows began, try $try"
	[ "$try" = 5 ] || flow c reset
done
flow c ping
check "then: none at the server that was drained" "$older 100 0 0" \
	"$(value s1) $(value flows) $(value broken) $(value moved)"
busywait 20 in_state transition
check_cmp "then: its slots are held" "$(mhs Hold)" -gt 0
flow c ping
check "rebuilt: none moved, older or new" "$older 0 0" \
	"$(value s1) $(value broken) $(value moved)"
# the control: without their entries the new ones are the first server's
check_cmp "control: new ones of its slots have entries" "$(mhs NewEntries)" -gt 0
flow c reset
