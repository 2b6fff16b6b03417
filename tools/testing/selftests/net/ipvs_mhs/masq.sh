#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 30
# tags: core few races
# Masquerading, which has an entry for each flow, so the core forwards all that follows:
# UDP and SCTP in both families, a port that differs (TCP, drains: tunnels.sh), ICMP
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

# some NAME HOST PORT SERVER [NAMESPACE]: ten flows, all by that server; adds their
# entries to $conns_all while the flows live
some() {
	conns_begin
	client_ns=${5:-cl} flow_start x --host "$2" --port "$3" --timeout 5
	flow x open 10
	flow x ping
	check "$1: served" "10 0 10" "$(value flows) $(value broken) $(value "$4")"
	conns_all=$((conns_all + $(conns_new)))
	flow x reset
	flow_end x
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
	pair open 6
	pair ping
	check "taken over from mh: its flows go on, new ones have an entry each" \
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

tests=25
[[ $(uname -r) != 5.10.* ]] || tests=12
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

# UDP, in fragments, and errors
conns_begin
service -u 5001 5000 mhs 1 2 3
wrong=""
for host in $VIP4 $VIP6; do
	client_py=dgrams.py flow_start u${#host} --host "$host" --port 5001 --echo --size 3000
	flow u${#host} open 20
	flow u${#host} ping
	wrong+=" $(value lost) $(value refused) $(value wrong)"
	flow_end u${#host}
done
check "UDP: served" " 0 0 0 0 0 0" "$wrong"
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
if [ -e /proc/net/sctp ]; then
	for i in 1 2 3; do
		lab serve_sctp "$(ns s$i)" s$i 80 10.2.0.1$i fd02::1$i
	done
	service --sctp-service 80 80 mhs 1 2 3
	pair_clients --sctp --timeout 5
	pair open 10
	pair ping
	check "SCTP: served, with an entry each" "20 0 0, 20" "$(tally), $(made 80)"
	pair reset
	flow_end c4
	flow_end c6
	dr ipvsadm -C
else
	result "SCTP: served, with an entry each" 0 "SKIP no SCTP in this kernel"
fi

# A server on the director and another one: by services that share the latter, and
# straight, whatever the limit of entries is
shared() {
	sysctls dr net.ipv4.vs.mhs.max_entries=0
	conns_all=0
	service -t 81 8080 mhs 0
	service -t 82 8080 mhs 1
	service -t 83 8080 mhs 1
	some "a server on the director, by its service" $VIP4 81 dr
	some "a server on the director, IPv6" $VIP6 81 dr
	some "straight, the director's own client" 10.2.0.10 8080 dr dr
	some "straight, a client" 10.2.0.10 8080 dr
	some "another server, by its service" $VIP4 82 s1
	some "another server, IPv6" $VIP6 82 s1
	some "by the other service of the server" $VIP4 83 s1
	some "straight, a health check" 10.2.0.11 8080 s1 dr
	some "another server, straight, a client" 10.2.0.11 8080 s1
	check "an entry for each flow of the services" "20 20 10 50" \
		"$(made 81) $(made 82) $(made 83) $conns_all"
	# the director's own clients of a service
	ip_ns dr <<-EOF
		addr del $VIP4/32 dev lo
		addr del $VIP6/128 dev lo
	EOF
	some "the director's own client" $VIP4 82 s1 dr
	some "the director's own client, IPv6" $VIP6 82 s1 dr
	check_cmp "by entries" "$(made 82)" -ge 40
	ip_ns dr <<-EOF
		addr add $VIP4/32 dev lo
		addr add $VIP6/128 dev lo nodad
	EOF
	sysctls dr net.ipv4.vs.mhs.max_entries=262144
	dr ipvsadm -C
}

# On 5.10 the namespace of such a director keeps a reference to its lo, by services of mh, too
[ $tests -eq 12 ] || shared

# Replies past the director while a service settles: somebody else's
while_settling -m
while_settling -g

source_nat
