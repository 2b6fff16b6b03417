#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The stateless scheduler mhs, with mh as control.
#
#	 client      director     second      s1        s2        s3
#	10.0.0.1     10.0.0.2    10.0.0.3  10.0.0.11 10.0.0.12 10.0.0.13
#	    |           |           |         |         |         |
#	====+===========+===========+=========+=========+=========+== bridge
#
# The servers have the virtual address on lo and answer the client directly.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317
# shellcheck disable=SC1091
source lib.sh

VIP4=192.0.2.80
VIP6=2001:db8:8::80
NUM='+([0-9])'
ret=0

checktool "ipvsadm -v" "run test without ipvsadm"
checktool "python3 -V" "run test without python3"
for module in ip_vs_mh ip_vs_mhs; do
	modprobe -q $module || {
		echo "SKIP: no module $module"
		exit "$ksft_skip"
	}
done
trap cleanup_all_ns EXIT

# is WANTED COMMAND...: its output matches
is() {
	local wanted=$1 got

	shift
	got=$("$@")
	# shellcheck disable=SC2053
	[[ $got == $wanted ]] || { echo "# wanted $wanted, got $got"; return 1; }
}

# result NAME COMMAND...: one result, good if the command succeeds
result() {
	local verdict=PASS

	"${@:2}" || verdict=FAIL ret=1
	echo "$verdict: $scheduler, IPv$family: $1"
}

# link NS N: 10.0.0.N and 2001:db8:1::N
link() {
	ip link add eth0 netns "$1" type veth peer name "v$2" netns "$bridge"
	ip -n "$bridge" link set "v$2" master br0 up
	ip -n "$1" link set eth0 up
	ip -n "$1" addr add "10.0.0.$2/24" dev eth0
	ip -n "$1" addr add "2001:db8:1::$2/64" dev eth0 nodad
}

# address NS: the virtual addresses are its own
address() {
	ip -n "$1" addr add $VIP4/32 dev lo
	ip -n "$1" addr add $VIP6/128 dev lo nodad
}

topology() {
	local i server

	setup_ns bridge client director second s1 s2 s3 || exit 1
	ip -n "$bridge" link add br0 type bridge mcast_snooping 0
	ip -n "$bridge" link set br0 up
	link "$client" 1
	link "$director" 2
	link "$second" 3
	for i in 1 2 3; do
		server=s$i
		link "${!server}" 1$i
		ip netns exec "${!server}" sysctl -wq \
			net.ipv4.conf.all.arp_ignore=1 \
			net.ipv4.conf.all.arp_announce=2
		address "${!server}"
		exec {ready}< <(exec ip netns exec "${!server}" \
			python3 ipvs_mhs.py serve s$i)
		read -r -t 20 -u "$ready" || exit 1
	done
	for i in "$director" "$second"; do
		address "$i"
		ip netns exec "$i" sysctl -wq net.ipv4.ip_forward=1
	done
	by 2
	coproc CLIENT { exec ip netns exec "$client" python3 ipvs_mhs.py client; }
}

# by N: the client's packets go by this director
by() {
	ip -n "$client" route replace $VIP4 via "10.0.0.$1"
	ip -n "$client" route replace $VIP6 via "2001:db8:1::$1"
}

# ask WORD...: a line to the client, and its answer
ask() {
	local answer

	echo "$@" >&"${CLIENT[1]}"
	read -r -t 120 -u "${CLIENT[0]}" answer
	echo "$answer"
}

in_director() { ip netns exec "$director" "$@"; }
ipvs() { in_director ipvsadm "$@"; }
conns() { ipvs -Lcn | grep -c '^TCP' || true; }
at_s3() { ipvs -Lcn | grep -cF "$(server 3):80" || true; }
some() { [ "$("$@")" -gt 0 ]; }
none_of() { [[ $("${@:2}") != *$1=* ]]; }
drained() { [ "$(conns)" -eq 0 ]; }
server() { [ "$family" = 4 ] && echo "10.0.0.1$1" || echo "[2001:db8:1::1$1]"; }

# add NS N [OPTION...]: server N to the service
add() {
	ip netns exec "$1" ipvsadm -a -t "$service" -r "$(server "$2"):80" -g \
		"${@:3}"
}

# on NS [COMMAND]: a service with servers s1 and s2, COMMAND between them
on() {
	ip netns exec "$1" ipvsadm -C
	ip netns exec "$1" ipvsadm -A -t "$service" -s "$scheduler" \
		-b flag-1,flag-2
	add "$1" 1
	"${@:2}"
	add "$1" 2
}

# settled NS: its mhs sends a packet that begins no flow
settled() {
	ask send "$vip" 1 1 1:16 >/dev/null
	ip netns exec "$1" ipvsadm -Ln --stats |
		awk '$1 == "TCP" { n = $4 } END { exit !n }'
}

# fresh: there are 100 flows, and no connection of an earlier test is left
fresh() {
	ask close >/dev/null
	in_director sysctl -wq net.ipv4.vs.expire_nodest_conn=1
	ipvs -C
	slowwait 20 drained
	in_director sysctl -wq net.ipv4.vs.expire_nodest_conn=0
	ipvs --set 900 120 300
	by 2
	on "$director"
	[ "$scheduler" = mh ] || slowwait 20 settled "$director"
	is "s1=$NUM s2=$NUM" ask open "$vip" 100
}

# added [OPTION...]: fresh, and then a third server
added() {
	fresh >/dev/null
	add "$director" 3 "$@"
}

# errors: ICMP errors that the servers have got
errors() {
	local i

	for i in "$s1" "$s2" "$s3"; do
		ip netns exec "$i" nstat -asz "Icmp*InDestUnreachs"
	done | awk '{ n += $2 } END { print n }'
}

# flows: what is so with both schedulers
flows() {
	result "flows begin" fresh
	add "$director" 3
	result "added: flows live" is "$all" ask check
	result "added: new flows come to all" \
		is 's1=* s2=* s3=*' ask open "$vip" 50
	added
	ask forge 4660 >/dev/null
	result "added: after forged SYNs flows live" is "$all" ask check
	added -x 1000
	ask forge 4660 >/dev/null
	result "added with a limit: after forged SYNs, too" is "$all" ask check
	fresh >/dev/null
	ipvs -e -t "$service" -r "$(server 2):80" -g -w 0
	result "weight 0: no new flow" none_of s2 ask open "$vip" 50
	ask forge 4660 >/dev/null
	result "weight 0: after forged SYNs flows live" \
		is 'alive=150 dead=0' ask check
	fresh >/dev/null
	ipvs -d -t "$service" -r "$(server 2):80"
	result "deleted: its flows end" is "$some_dead" ask check
	fresh >/dev/null
	on "$second"
	by 3
}

# answers VERB: of the servers, to the client, are lost (add) or not any more (del)
answers() {
	local i client_address=10.0.0.1

	[ $family = 4 ] || client_address=2001:db8:1::1
	for i in "$s1" "$s2" "$s3"; do
		ip -n "$i" route "$1" blackhole $client_address
	done
}

# begin: the second director begins while packets of flows come; 1 if it was slow
begin() {
	local start quick

	fresh >/dev/null
	by 3
	on "$second" first
	quick=$(($(date +%s%3N) - start < 900))
	read -r -t 120 -u "${CLIENT[0]}" answer
	[ $quick = 1 ]
}

first() {
	start=$(date +%s%3N)
	echo check >&"${CLIENT[1]}"
}

few() { is "$all" ask check && is 10 conns; }

# new_conns: how many connections new flows make
new_conns() {
	local before

	before=$(conns)
	ask open "$vip" 50 >/dev/null
	ask check >/dev/null
	echo $(($(conns) - before))
}

stable() { ! is '[1-9]*' new_conns >/dev/null; }

stateless() {
	fresh >/dev/null
	result "flows have no connection" is 0 conns
	before=$(errors)
	ask icmp >/dev/null
	result "their servers get ICMP errors" \
		slowwait 20 is $((before + 100)) errors
	add "$director" 3
	ask forge 4660 >/dev/null
	result "forged SYNs make connections" some conns
	result "packets of older flows take them" is "$all" ask check
	ask forge 4660 >/dev/null
	result "and are safe from more SYNs" is "$all" ask check
	added
	answers add
	ask forge 4660 >/dev/null
	ask forge 4661 16 >/dev/null
	answers del
	result "limit: forged SYNs and what continues them end flows" \
		is "$some_dead" ask check
	added
	answers add
	ask send "$vip" 20000 100 1000:2 5000:2 1001:16 >/dev/null
	answers del
	result "a second SYN does not replace a first" some at_s3
	fresh >/dev/null
	on "$second"
	by 3
	slowwait 20 settled "$second"
	add "$director" 3
	add "$second" 3
	result "by a standby, after a change, flows live" is "$all" ask check
	until begin; do :; done
	result "by a director that begins flows live" is "$all" echo "$answer"
	added
	limit=$(in_director sysctl -n net.ipv4.vs.conn_max)
	in_director sysctl -wq net.ipv4.vs.conn_max=20
	result "older flows take half of conn_max" few
	in_director sysctl -wq "net.ipv4.vs.conn_max=$limit"
	fresh >/dev/null
	# the longest that a flow may be idle: a transition is short
	ipvs --set 3 3 300
	add "$director" 3
	result "in a transition flows live" is "$all" ask check
	result "in the end new flows need no connection" slowwait 60 stable
}

topology
all='alive=100 dead=0'
some_dead='alive=[1-9]* dead=[1-9]*'
for family in 4 6; do
	vip=VIP$family
	vip=${!vip}
	service=$vip:80
	[ $family = 4 ] || service="[$vip]:80"
	scheduler=mh
	flows
	result "control: by another director flows end" \
		is 'alive=0 dead=100' ask check
	fresh >/dev/null
	result "control: flows have connections" is 100 conns
	scheduler=mhs
	flows
	result "by another director flows live" is "$all" ask check
	stateless
done
exit $ret
