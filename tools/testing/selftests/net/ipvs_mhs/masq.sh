#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 35
# tags: core few races
# Masquerading, which has an entry for each flow, so the core forwards all that follows:
# TCP, UDP and SCTP in both families, a port that differs, a change of servers, ICMP
# errors; and where the way back is not plain: a server on the director, clients that
# talk to a server straight, services that share servers, the director's own clients.
# Source NAT on a director with one arm, the usual way for servers that do not route by
# it: vs.conntrack=1 and a rule of iptables with -m ipvs, which asks the connection
# table.  Direct routing does without entries: a lone --ipvs is all that sees its packets.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$here/lib_pair.sh"
need iptables ip6tables

# service PROTO PORT SERVERPORT SCHEDULER SERVER...: both families
service() {
	local i svc

	for svc in "$VIP4:$2" "[$VIP6]:$2"; do
		echo "-A $1 $svc -s $4"
		for i in "${@:5}"; do
			real_lines "$svc" -m "$i" |
				sed "s/-a -t/-a $1/; s/:$2 -m/:$3 -m/"
		done
	done >"$work/service"
	learn dr <"$work/service"
}

# made PORT: entries of both services on it, since they are there
made() {
	local s n=0

	for s in "$VIP4:$1" "[$VIP6]:$1"; do
		n=$((n + $(mhs NewEntries "$s") + $(mhs PinnedEntries "$s")))
	done
	echo $n
}

# tally: of the last command to both clients
tally() {
	echo "$(sum flows) $(sum broken) $(sum failed)"
}

# some N NAME HOST PORT SERVER [NAMESPACE]: so many flows, all by that server
some() {
	client_ns=${6:-cl} flow_start x --host "$3" --port "$4" --timeout 5
	flow x open "$1"
	flow x ping
	check "$2: served" "$1 0 $1" \
		"$(value flows) $(value broken) $(value "$5")"
	flow x reset
	flow_end x
}

# asks NAME PORT LOST REFUSED: twenty datagrams of each family, with their echoes
asks() {
	local host lost=0 refused=0 wrong=0

	for host in $VIP4 $VIP6; do
		client_py=dgrams.py flow_start u --host "$host" --port "$2" --echo \
			--size 3000
		flow u open 20
		flow u ping
		lost=$((lost + $(value lost)))
		refused=$((refused + $(value refused)))
		wrong=$((wrong + $(value wrong)))
		flow_end u
		rm -f "$work"/u.{in,out}
	done
	check "$1" "$3 $4 0" "$lost $refused $wrong"
}

# while_settling METHOD: a server speaks to clients past the director while a service of
# it settles
while_settling() {
	flow_start d --host 10.2.0.11
	flow d open 5
	flow_send d hear 40 0.1
	until_more 20 segments s1
	printf '%s\n' "-A -t $VIP4:80 -s mhs" "-a -t $VIP4:80 -r 10.2.0.11:80 $1" |
		dr ipvsadm -R
	wait_settled
	flow_wait d "hear, while a service of $1 settles"
	check "settling, $1: replies of others go on" "5 0 0" \
		"$(value flows) $(value broken) $(mhs PktUnsettled)"
	flow d reset
	flow_end d
	dr ipvsadm -C
}

# rule TABLE "MATCH4" "MATCH6": of iptables and of ip6tables
rule() {
	local match tables=iptables

	for match in "$2" "$3"; do
		# shellcheck disable=SC2086 # several words
		dr $tables -t "$1" -A POSTROUTING -m ipvs $match
		tables=ip6tables
	done
}

# packets TABLE: that each rule has seen, those of IPv4 first
packets() {
	local tables

	for tables in iptables ip6tables; do
		dr $tables -t "$1" -nvxL POSTROUTING | awk 'NR > 2 { print $1 }'
	done | xargs
}

# masquerading SCHEDULER...: services of two servers
masquerading() {
	how4=-m how6=-m pair_services "1 2" "$@"
}

# source_nat: mh, from which mhs takes the live services over; mhs from the beginning;
# direct routing
source_nat() {
	local i sched

	for i in 1 2 3; do
		ip -n "$(ns s$i)" route del 10.1.0.0/24
		ip -n "$(ns s$i)" route del fd01::/64
	done
	sysctls dr net.ipv4.vs.conntrack=1
	masquerading mh -b mh-port
	flow_start n --host $VIP4 --timeout 2 --impatient
	flow n open 3
	check "control: without source NAT nothing works" "0 3" \
		"$(value flows) $(value failed)"
	flow_end n
	rule nat "--vaddr $VIP4 -j MASQUERADE" "--vaddr $VIP6 -j MASQUERADE"
	pair_clients --timeout 5
	conns_begin
	pair open 6
	pair ping
	check "control: mh: served, with an entry each, which the rules see" \
		"12 0 0, 12, 6 6" "$(tally), $(conns_new), $(packets nat)"
	printf -- "-E -t %s -s mhs\n" "$SVC4" "$SVC6" | dr ipvsadm -R
	wait_settled "$SVC4"
	wait_settled "$SVC6"
	pair ping
	check "taken over from mh: its flows go on" "12 0 0" "$(tally)"
	pair open 6
	pair ping
	check "taken over from mh: new ones are served, with an entry each" \
		"24 0 0, 12, 12 12" "$(tally), $(made 80), $(packets nat)"
	pair reset
	dr ipvsadm -C
	masquerading mhs
	pair open 20
	pair ping
	check "mhs: served, with an entry each, which the rules see" \
		"40 0 0, 40, 32 32" "$(tally), $(made 80), $(packets nat)"
	pair reset
	dr ipvsadm -C
	dr iptables -t nat -F
	dr ip6tables -t nat -F
	rule mangle --ipvs --ipvs
	rule mangle "--vaddr $VIP4" "--vaddr $VIP6"
	for sched in mhs "mh -b mh-port"; do
		# shellcheck disable=SC2086 # several words
		pair_services "1 2" $sched
		dr iptables -t mangle -Z
		dr ip6tables -t mangle -Z
		pair open 6
		pair ping
		check "direct routing, $sched: which rules have seen packets" \
			"12 0 0, $([ "$sched" = mhs ] && echo 1 0 1 0 || echo 1 1 1 1)" \
			"$(tally), $(packets mangle | sed 's/[1-9][0-9]*/1/g')"
		pair reset
		dr ipvsadm -C
	done
}

tests=35
[[ $(uname -r) != 5.10.* ]] || tests=22
plan $tests
load_module
setup_net 3
for i in 1 2 3; do
	# answers go back by the director, and what is said to a server comes by it
	ip_ns s$i <<-EOF
		route add 10.1.0.0/24 via 10.2.0.10
		route add fd01::/64 via fd02::10
	EOF
	ip_ns rt <<-EOF
		route add 10.2.0.1$i/32 via 10.2.0.10
		route add fd02::1$i/128 via fd02::10
	EOF
	lab serve "$(ns s$i)" s$i 8080
done
lab serve "$(ns dr)" dr 8080
dgram_servers 5000 --echo

# TCP, a change of servers
service -t 80 80 mhs 1 2 3
pair_clients --timeout 5
pair open 40
pair ping
check "TCP: served" "80 0 0" "$(tally)"
check "TCP: by all servers" yes "$(
	[ "$(sum s1)" -gt 0 ] && [ "$(sum s2)" -gt 0 ] && [ "$(sum s3)" -gt 0 ] &&
	echo yes)"
check "TCP: an entry for each" 80 "$(made 80)"
windows 3600000 3600000
mine=$(sum s1)
pair_edit -e 1 -m -w 0
result "drain: held" "$(busywait 20 pair_holding; echo $?)"
pair open 20
pair ping
check "drain, held: all go on" "120 0 0" "$(tally)"
check "drain, held: an entry for each" 120 "$(made 80)"
to_pin
to_stable
pair ping
check "drain, merged: none broken" "120 0 0" "$(tally)"
check "drain: the server keeps its flows, and gets no others" \
	"$mine" "$(sum s1)"
pair reset
windows 60000 0
dr ipvsadm -C

# UDP, in fragments, and errors
conns_begin
service -u 5001 5000 mhs 1 2 3
asks "UDP: served" 5001 0 0
check "UDP: an entry for each" "40 40" "$(made 5001) $(conns_new)"
dr ipvsadm -C
# IPv4 alone: some kernels lose errors from IPv6 servers with another port
service -u 5003 5999 mhs 1 2 3
client_py=dgrams.py flow_start e --host $VIP4 --port 5003
flow e open 10
flow e ping
check "port unreachable reaches the client" "0 10" "$(value lost) $(value refused)"
flow_end e
dr ipvsadm -C

# SCTP
modprobe -q sctp
flow_end c4
flow_end c6
if [ -e /proc/net/sctp ]; then
	for i in 1 2 3; do
		lab serve_sctp "$(ns s$i)" s$i 80 10.2.0.1$i fd02::1$i
	done
	service --sctp-service 80 80 mhs 1 2 3
	pair_clients --sctp --timeout 5
	pair open 10
	pair ping
	check "SCTP: served" "20 0 0" "$(tally)"
	check "SCTP: an entry for each" 20 "$(made 80)"
	pair reset
	flow_end c4
	flow_end c6
	dr ipvsadm -C
else
	result "SCTP: served" 0 "SKIP no SCTP in this kernel"
	result "SCTP: an entry for each" 0 "SKIP no SCTP in this kernel"
fi

# A server on the director and another one: by services that share the latter, and
# straight, whatever the limit of entries is
shared() {
	sysctls dr net.ipv4.vs.mhs.max_entries=0
	conns_begin
	service -t 81 8080 mhs 0
	service -t 82 8080 mhs 1
	service -t 83 8080 mhs 1
	some 10 "a server on the director, by its service" $VIP4 81 dr
	some 10 "a server on the director, IPv6" $VIP6 81 dr
	some 10 "straight, the director's own client" 10.2.0.10 8080 dr dr
	some 10 "straight, a client" 10.2.0.10 8080 dr
	some 10 "another server, by its service" $VIP4 82 s1
	some 10 "another server, IPv6" $VIP6 82 s1
	some 10 "by the other service of the server" $VIP4 83 s1
	some 10 "straight, a health check" 10.2.0.11 8080 s1 dr
	some 10 "another server, straight, a client" 10.2.0.11 8080 s1
	check "an entry for each flow of the services" "20 20 10 50" \
		"$(made 81) $(made 82) $(made 83) $(conns_new)"
	# the director's own clients of a service
	ip_ns dr <<-EOF
		addr del $VIP4/32 dev lo
		addr del $VIP6/128 dev lo
	EOF
	some 10 "the director's own client" $VIP4 82 s1 dr
	some 10 "the director's own client, IPv6" $VIP6 82 s1 dr
	check_cmp "by entries" "$(made 82)" -ge 40
	ip_ns dr <<-EOF
		addr add $VIP4/32 dev lo
		addr add $VIP6/128 dev lo nodad
	EOF
	sysctls dr net.ipv4.vs.mhs.max_entries=262144
	dr ipvsadm -C
}

# On 5.10 the namespace of such a director keeps a reference to its lo, by services of mh, too
if [ $tests -eq 35 ]; then
	shared
fi

# Replies past the director while a service settles: somebody else's
while_settling -m
while_settling -g

source_nat
