#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 85
# memory: 2G
# tags: races
# Large changes under traffic: the module is loaded anew, a director is filled slowly
# while flows send, with mh they break; a thousand servers one by one, flows that begin
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

# lines SCHEDULER: a service with 48 servers, twelve addresses of each namespace
lines() {
	local i n

	echo "-A -t $VIP4:80 -s $1"
	for n in {0..220..20}; do
		for i in 1 2 3 4; do
			echo "-a -t $VIP4:80 -r 10.2.0.$((n + 10 + i)):80 -g -w 1"
		done
	done
}

# fill SCHEDULER: the second director learns its servers one by one while the
# flows, which are sent to it, are busy.  They begin with the first server:
# where there is no service at all, the local stack resets them.  For a pause in
# its middle see learn().
fill() {
	local try

	for try in 1 2 3 4 5; do
		[ "$try" = 1 ] || fresh "$1"
		route_vip 30
		lines "$1" >"$work/lines"
		slowly <"$work/lines" | in_ns d2 ipvsadm -R
		flow_wait c "busy meanwhile"
		[ "$1" = mhs ] || break
		learnt d2 "-t $VIP4:80" && break
		note "settled too early, try $try"
	done
	flow c ping
}

# slowly: pass the lines on, and set the flows going with the first server
slowly() {
	local line n=0

	while read -r line; do
		echo "$line"
		n=$((n + 1))
		[ $((n % 4)) -ne 0 ] || nap 0.02 # why: slowly
		[ $n != 2 ] || { busywait 20 has_server; flow_send c busy 3; }
	done
}

has_server() {
	local net lines

	net_dir d2
	mapfile -t lines <"$net/ip_vs"
	[[ "${lines[*]:3}" = *-\>* ]]
}

# fresh SCHEDULER: new flows through the first director
fresh() {
	route_vip 10
	flow c reset
	dr ipvsadm -C
	in_ns d2 ipvsadm -C
	lines "$1" >"$work/lines"
	if [ "$1" = mhs ]; then
		learn dr <"$work/lines"
	else
		dr ipvsadm -R <"$work/lines"
	fi
	flow c open 80
	flow c ping
}

# restarts: flows that send nothing while the module is loaded anew, flows that are busy
# while they reach a director that has some of its servers; the same with mh
restarts() {
	local i n

	director d2 30
	for i in 1 2 3 4; do
		for n in {20..220..20}; do
			echo "addr add 10.2.0.$((n + 10 + i))/24 dev eth0"
		done | ip_ns s$i
	done
	fresh mhs
	dr ipvsadm -Sn >"$work/saved"
	dr ipvsadm -C
	fresh_module
	learn dr <"$work/saved"
	flow c ping
	check "restart: no flow broken, none moved" "80 0 0" \
		"$(value flows) $(value broken) $(value moved)"
	# the first server goes to weight 0, all its addresses
	printf -- "-e -t $VIP4:80 -r 10.2.0.%d:80 -g -w 0\n" {11..231..20} |
		dr ipvsadm -R
	flow c ping
	check "restart, then a change: no flow broken" 0 "$(value broken)"

	fresh mhs
	fill mhs
	check "slow fill: no flow broken" 0 "$(value broken)"
	check_cmp "slow fill: packets were dropped meanwhile" \
		"$(mhs PktUnsettled $VIP4:80 d2)" -gt 0

	fresh "mh -b mh-port"
	lines "mh -b mh-port" | in_ns d2 ipvsadm -R
	route_vip 30
	flow c ping
	check "control: a new director of mh breaks all flows" 80 "$(value broken)"
	fresh "mh -b mh-port"
	sysctls d2 net.ipv4.vs.sloppy_tcp=1
	fill "mh -b mh-port"
	check_cmp "control: a slow fill of mh breaks flows" "$(value broken)" -gt 0
	flow c reset
	dr ipvsadm -C
	in_ns d2 ipvsadm -C
	route_vip 10
}

plan 27
load_module
setup_net 4
flow_start c --host $VIP4 --timeout 20
restarts

# large tables, whose rebuilds take long
fresh_module table_size=65521
windows 3600000 3600000
# routes for what is only a name here: nothing is ever sent to it
ip -n "$(ns dr)" route add 10.3.0.0/16 via 10.2.0.1
{ echo "-A -t $VIP4:80 -s mhs"; add_servers 1; } | dr ipvsadm -R
wait_settled
flow c open 60
flow c ping
check "flows on the first server" "60 0" "$(value flows) $(value broken)"

flow_send c busy 3600
many $VIP4:80 0 1000 | dr ipvsadm -R
busywait 60 in_state transition
flow c stop
check "1,000 servers one by one: none broken, none moved" "0 0" \
	"$(value broken) $(value moved)"
check "1,000 servers: all in the table" "1001 0" "$(mhs Servers) $(mhs NoSlot)"
check "no packet was dropped for want of a table" 0 "$(mhs PktUnsettled)"

flow_send c busy 3600
for ((i = 0; i < 20; i++)); do
	dr ipvsadm -d -t $VIP4:80 -r "10.3.$((i / 250)).$((1 + i % 250)):80"
done
flow c stop
check "20 removals, a command each: none broken" "0 0" \
	"$(value broken) $(value moved)"
flow c reset
dr ipvsadm -C

# many services, in a namespace of their own
setup_ns bk
ip_ns bk <<<"link set lo up"
crowd -a "-w 1" | in_ns bk ipvsadm -R
check "many services" $((MHS_MADE + 1)) "$(services)"

# Entries that have ended are counted while rebuilds of others wait: a service at its
# limit gives new flows entries again.  Who reads the file waits for the rebuild, which
# takes long beside busy loops.
for i in 1 2 3; do	# without older entries, which count
	ip -n "$(ns s$i)" addr add 10.2.0.$((250 + i))/24 dev eth0
done
dr ipvsadm -C
learn dr < <(
	echo "-A -t $VIP4:80 -s mhs"
	add_servers 241 242
)
weight 241 0
sysctls dr net.ipv4.vs.mhs.max_entries=5
dr ipvsadm --set 2 2 2
edits=$(crowd -e "-w 2")
nsenter "--net=/run/netns/$(ns bk)" ipvsadm -R <<<"$edits"
nsenter "--net=/run/netns/$(ns dr)" ipvsadm -a -t $VIP4:80 -r 10.2.0.253:80 -g
bg_ns dr cat /proc/net/ip_vs_mhs >"$work/rebuilt" &
reader=$!
conns_begin
flow c open 30
flow c ping
check "rebuilds wait: at the limit" 5 "$(conns_new)"
hogs=()
for ((i = 0; i < 24; i++)); do
	while :; do :; done &
	hogs+=($!)
done
busywait 20 eval '[ "$(conns_new)" -eq 0 ]'
busywait 60 eval 'flow c open 4; [ "$(conns_new)" -gt 0 ]'
kill -0 $reader
result "rebuilds wait: entries have ended, and new flows have some again" $?
kill "${hogs[@]}"
wait $reader
flow c reset
sysctls dr net.ipv4.vs.mhs.max_entries=262144
dr ipvsadm --set 900 120 300
dr ipvsadm -C
crowd -e "-w 1" | in_ns bk ipvsadm -R

# the control: mh rewrites its table under the packets and forgets nothing only
# because every flow has an entry
conns_begin
{ echo "-A -t $VIP4:80 -s mh -b mh-port"; add_servers 1; } | dr ipvsadm -R
flow_start d --host $VIP4 --timeout 20
flow d open 50
flow d ping
many $VIP4:80 0 200 | dr ipvsadm -R
flow d ping
check "control: mh keeps flows, too" 0 "$(value broken)"
check "control: by an entry for each" 50 "$(conns_new)"
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
in_ns bk ipvsadm -C
check "many services removed" 1 "$(services)"
