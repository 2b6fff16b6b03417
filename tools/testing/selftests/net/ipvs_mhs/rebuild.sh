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

# services: lines of /proc/net/ip_vs_mhs where many are
services() {
	local net lines

	net_dir bk
	mapfile -t lines <"$net/ip_vs_mhs"
	echo "${#lines[@]}"
}

# crowd MODE MORE: lines of ipvsadm for a server of each of many services
crowd() {
	local i

	for ((i = 1; i <= MHS_MADE; i++)); do
		[ "$1" != -a ] || echo "-A -t $VIP4:$((2000 + i)) -s mhs"
		echo "$1 -t $VIP4:$((2000 + i)) -r 10.2.0.11:80 -g $2"
	done
}

plan 19
# large tables, whose rebuilds take long
fresh_module table_size=65521
setup_net 4
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

# many services, in a namespace of their own
setup_ns bk
ip_ns bk <<<"link set lo up"
start=$(now_ms)
crowd -a "-w 1" | in_ns bk ipvsadm -R
took=$(($(now_ms) - start))
check "many services" $((MHS_MADE + 1)) "$(services)"

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

# A server is drained, another comes, and flows begin before the table is rebuilt:
# the rebuilds of many services come first.  No flow gets the drained server; those
# of its slots have entries, by which they keep their server when the slots are held.
dr ipvsadm -C
learn dr < <(
	echo "-A -t $VIP4:80 -s mhs"
	add_servers 1 2 3
)
flow c open 60
flow c ping
older=$(value s1)
edits=$(crowd -e "-w 2")
# not by in_ns, whose reader has tables rebuilt
nsenter "--net=/run/netns/$(ns bk)" ipvsadm -R <<<"$edits"
nsenter "--net=/run/netns/$(ns dr)" ipvsadm -R <<-EOF
	-e -t $VIP4:80 -r 10.2.0.11:80 -g -w 0
	-a -t $VIP4:80 -r 10.2.0.14:80 -g -w 1
EOF
flow c open 40
flow c ping
check "not rebuilt yet: no flow at the server that came" 0 "$(value s4)"
check "not rebuilt yet: none at the server that was drained" "$older 100 0 0" \
	"$(value s1) $(value flows) $(value broken) $(value moved)"
busywait 20 in_state transition
check_cmp "rebuilt: its slots are held" "$(mhs Hold)" -gt 0
check_cmp "rebuilt: flows that began in them have entries" "$(mhs NewEntries)" -gt 0
flow c ping
check "rebuilt: none moved, older or new" "$older 0 0" \
	"$(value s1) $(value broken) $(value moved)"
flow c open 40
flow c ping
check_cmp "control: once rebuilt, flows begin at the server that came" \
	"$(value s4)" -gt 0
flow c reset

# The whole set is replaced, and flows begin before the table is rebuilt: the servers
# that came have no slot yet, and share the flows
ten_servers
edits=$(crowd -e "-w 1")
nsenter "--net=/run/netns/$(ns bk)" ipvsadm -R <<<"$edits"
nsenter "--net=/run/netns/$(ns dr)" ipvsadm -R <<-EOF
	-a -t $VIP4:80 -r 10.2.0.31:80 -g -w 1
	-a -t $VIP4:80 -r 10.2.0.32:80 -g -w 1
	-a -t $VIP4:80 -r 10.2.0.33:80 -g -w 1
	-d -t $VIP4:80 -r 10.2.0.12:80
	-d -t $VIP4:80 -r 10.2.0.13:80
	-d -t $VIP4:80 -r 10.2.0.14:80
EOF
flow c open 120
flow c ping
check "all replaced, not rebuilt yet: none refused" "120 0 0" \
	"$(value flows) $(value refused) $(value failed)"
for i in 1 2 3; do
	check_cmp "all replaced: server $i gets its share" "$(value s$i)" -gt 20
done
flow c reset
start=$(now_ms)
in_ns bk ipvsadm -C
note "$MHS_MADE services made in $took ms, removed in $(($(now_ms) - start)) ms"
check "many services removed" 1 "$(services)"
