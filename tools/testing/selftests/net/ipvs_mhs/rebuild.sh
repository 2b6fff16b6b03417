#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 28
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
	in_ns bk sed -n '$=' /proc/net/ip_vs_mhs
}

# crowd MODE WEIGHT: lines of ipvsadm for a server of each of many services
crowd() {
	local i

	for ((i = 1; i <= MHS_MADE; i++)); do
		[ "$1" != -a ] || echo "-A -t $VIP4:$((2000 + i)) -s mhs"
		echo "$1 -t $VIP4:$((2000 + i)) -r 10.2.0.11:80 -g -w $2"
	done
}

# behind <LINES: of the director, whose table is rebuilt after those of the crowd.  Not
# by in_ns, whose reader has tables rebuilt.
crowd_weight=1
behind() {
	crowd_weight=$((3 - crowd_weight))
	crowd -e $crowd_weight >"$work/edits"
	nsenter "--net=/run/netns/$(ns bk)" ipvsadm -R <"$work/edits"
	nsenter "--net=/run/netns/$(ns dr)" ipvsadm -R
}

# lines SCHEDULER: a service with 48 servers, twelve addresses of each namespace
lines() {
	local n

	echo "-A -t $VIP4:80 -s $1"
	for n in {0..220..20}; do
		add_servers $((n + 1)) $((n + 2)) $((n + 3)) $((n + 4))
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
	learn dr < <(lines "$1")
	flow c open 80
	flow c ping
}

# restarts: flows that send nothing while the module is loaded anew, flows that are busy
# while they reach a director that has some of its servers; the same with mh
restarts() {
	local i

	director d2 30
	for i in 1 2 3 4; do
		seq -f "addr add 10.2.0.%g/24 dev eth0" $((30 + i)) 20 $((230 + i)) |
			ip_ns s$i
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
	sysctls d2 net.ipv4.vs.sloppy_tcp=1
	fill "mh -b mh-port"
	check_cmp "control: a slow fill of mh breaks flows" "$(value broken)" -gt 0
	flow c reset
	dr ipvsadm -C
	in_ns d2 ipvsadm -C
	route_vip 10
}

plan 22
load_module
setup_net 4
flow_start c --host $VIP4 --timeout 20
restarts

# large tables, whose rebuilds take long
fresh_module table_size=65521
windows 3600000 3600000
# routes for what is only a name here: nothing is ever sent to it
ip -n "$(ns dr)" route add 10.3.0.0/16 via 10.2.0.1
learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1)
flow c open 60
flow_send c busy 3600
many $VIP4:80 0 1000 | dr ipvsadm -R
busywait 60 in_state transition
check "1,000 servers one by one: all in the table" "1001 0" \
	"$(mhs Servers) $(mhs NoSlot)"
for i in {1..20}; do
	dr ipvsadm -d -t $VIP4:80 -r "10.3.0.$i:80"
done
flow c stop
check "and 20 removals, a command each: none broken, none moved" "60 0 0" \
	"$(value flows) $(value broken) $(value moved)"
check "no packet was dropped for want of a table" 0 "$(mhs PktUnsettled)"
flow c reset
dr ipvsadm -C

# many services, in a namespace of their own
setup_ns bk
ip_ns bk <<<"link set lo up"
crowd -a 1 | in_ns bk ipvsadm -R
check "many services" $((MHS_MADE + 1)) "$(services)"

# Entries that have ended are counted while rebuilds of others wait: a service at its
# limit gives new flows entries again.  Who reads the file waits for the rebuild, which
# takes long beside busy loops.
for i in 1 2 3; do	# without older entries, which count
	ip -n "$(ns s$i)" addr add 10.2.0.$((250 + i))/24 dev eth0
done
learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 241 242)
weight 241 0
sysctls dr net.ipv4.vs.mhs.max_entries=5
dr ipvsadm --set 2 2 2
behind < <(add_servers 243)
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

# A server is drained, another comes, and flows begin before the table is rebuilt:
# the rebuilds of many services come first.  No flow gets the drained server; those
# of its slots have entries, by which they keep their server when the slots are held.
learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3)
flow c open 60
flow c ping
older=$(value s1)
behind <<-EOF
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
behind <<-EOF
	$(add_servers 21 22 23)
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
