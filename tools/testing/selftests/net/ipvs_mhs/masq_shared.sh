#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 70
# tags: races
# Masquerading where the way back is not plain: a server on the director, clients
# that talk to a server straight, a server that speaks from its service's port,
# services that share servers, another scheduler's service, the director's own
# clients and health checks.  Real servers are nginx.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_nginx.sh
. "${0%/*}/lib_nginx.sh"
need nginx curl

readonly R1=10.2.0.11 R2=10.2.0.12 LOCAL=10.2.0.10
readonly OTHER=10.9.0.2 # another virtual address, the director's alone
readonly R1V6=fd02::11 R2V6=fd02::12 LOCALV6=fd02::10

# get NAMESPACE ADDRESS:PORT COUNT [SECONDS]: answers "COUNT" by server, as
# "s1=3 s2=7".  From ports that none had before: IPVS itself, by any scheduler,
# confuses the flows of two services from one port to one server.
get() {
	local i urls=()

	fresh_ports "$1"
	for ((i = 0; i < $3; i++)); do
		urls+=("http://$2/")
	done
	reply=$(in_ns "$1" curl -s -m "${4:-$((5 * ${patience:-1}))}" -H "Connection: close" \
		--no-keepalive "${urls[@]}" | sort | uniq -c |
		awk '{ printf "%s=%s ", $2, $1 }')
	note "get $* -> $reply"
}

total() {
	local n=0 w

	for w in $reply; do
		n=$((n + ${w#*=}))
	done
	echo $n
}

# service ADDRESS:PORT SCHEDULER SERVER:PORT...: -m all
service() {
	local s

	learn dr < <(
		echo "-A -t $1 -s $2"
		for s in "${@:3}"; do
			echo "-a -t $1 -r $s -m"
		done
	)
}

# service_udp ADDRESS:PORT SCHEDULER SERVER:PORT: -m
service_udp() {
	printf '%s\n' "-A -u $1 -s $2" "-a -u $1 -r $3 -m" | dr ipvsadm -R
	[ "$2" != mhs ] || wait_settled "$1"
}

# udp_mirror NAMESPACE: on port 5060, tells who asks
udp_mirror() {
	bg_ns "$1" python3 "$here/nat.py" mirror --port 5060 &
	defer kill $!
	busywait 20 udp_listening "$1" 5060
}

udp_listening() {
	[ -n "$(in_ns "$1" ss -Hlun "sport = :$2")" ]
}

# udp_ask NAMESPACE ADDRESS PEER [PORT]: from that one, port 5060 if not given; who
# answers, and whom has the mirror seen?
udp_ask() {
	in_ns "$1" python3 "$here/nat.py" query --bind "$2" --host "$3" \
		--port 5060 --from "${4:-5060}" --timeout 3
}

# made SERVICE: entries since it is there
made() {
	echo $(($(mhs NewEntries "$1") + $(mhs PinnedEntries "$1")))
}

# all_ways VIP LOCAL REMOTE: by two services, of a server on the director and of
# another one, and straight to these two
all_ways() {
	local got=""

	conns_begin
	service "$1:80" mhs "$2:8080"
	service "$1:81" mhs "$3:8080"
	get cl "$1:80" 10
	got+=$reply
	get dr "$2:8080" 10
	got+=$reply
	get cl "$2:8080" 10
	got+=$reply
	get cl "$1:81" 10
	got+=$reply
	get dr "$3:8080" 10
	got+=$reply
	get cl "$3:8080" 10
	check "$limit, $1: all are answered by the server itself" \
		"dr=10 dr=10 dr=10 s1=10 s1=10 s1=10 " "$got$reply"
	check "$limit, $1: an entry for each flow of the services" "10 10 20" \
		"$(made "$1:80") $(made "$1:81") $(conns_new)"
	dr ipvsadm -C
}

# own_client NAME ADDRESS SERVER: the director's, and its health check
own_client() {
	get dr "$3:8080" 5
	check "health check, $1: answered" "s1=5 " "$reply"
	get dr "$2" 5
	check "client on the director, $1: served" 5 "$(total)"
	check_cmp "client on the director, $1: by entries" \
		"$(made "$2:80")" -ge 5
}

# own_addresses add, or del
own_addresses() {
	ip_ns dr <<-EOF
		addr $1 $VIP4/32 dev lo
		addr $1 $VIP6/128 dev lo
	EOF
}

# segments NAMESPACE: TCP segments sent from there
segments() {
	local net lines

	net_dir "$1"
	mapfile -t lines <"$net/snmp"
	[[ "${lines[*]}" =~ Tcp:(\ -?[0-9]+){10}\ ([0-9]+) ]]
	echo "${BASH_REMATCH[2]}"
}

# while_settling ARGUMENTS: a server speaks to clients past the director while a
# service of it settles, added by these arguments
while_settling() {
	flow d open 5
	flow_send d hear 40 0.1
	until_more 20 segments s1
	printf '%s\n' "-A -t $VIP4:80 -s mhs" "-a -t $VIP4:80 -r $R1:80 $*" |
		dr ipvsadm -R
	wait_settled
	flow_wait d "hear, while a service of $* settles"
}

plan 28
load_module
setup_net 2
for i in 1 2; do
	ip_ns s$i <<-EOF
		route add 10.1.0.0/24 via $LOCAL
		route add fd01::/64 via $LOCALV6
	EOF
	nginx_start s$i 8080
done
nginx_start dr 8080
# what the client says to a server straight passes the director too
ip_ns rt <<-EOF
	route add $R1/32 via $LOCAL
	route add $R2/32 via $LOCAL
	route add $LOCAL/32 via $LOCAL
	route add $R1V6/128 via $LOCALV6
	route add $R2V6/128 via $LOCALV6
EOF

# Whatever the limit of entries for UDP is
udp_mirror s2
for limit in 65536 0; do
	sysctls dr net.ipv4.vs.mhs.max_quic_entries=$limit
	port=$((5061 + !limit)) # for a flow that had no entry before
	limit="max_quic_entries=$limit"
	all_ways $VIP4 $LOCAL $R1
	all_ways "[$VIP6]" "[$LOCALV6]" "[$R1V6]"
	service_udp $VIP4:5060 mhs $R2:5060
	service_udp "[$VIP6]:5060" mhs "[$R2V6]:5060"
	check "$limit, UDP: served" \
		"$VIP4:5060 10.1.0.2:$port [$VIP6]:5060 [fd01::2]:$port" \
		"$(udp_ask cl 10.1.0.2 $VIP4 $port) $(udp_ask cl fd01::2 $VIP6 $port)"
	check "$limit, UDP: an entry for each" "1 1" \
		"$(made $VIP4:5060) $(made "[$VIP6]:5060")"
	dr ipvsadm -C
done
sysctls dr net.ipv4.vs.mhs.max_quic_entries=65536

# Replies past the director while a service settles: somebody else's
flow_start d --host $R1
while_settling -m
check "settling, masquerading: replies of others go on" "5 0 0" \
	"$(value flows) $(value broken) $(mhs PktUnsettled)"
flow d reset
dr ipvsadm -C

# A server that speaks to a peer from its service's port, as SIP and DNS do
udp_mirror cl
service_udp $VIP4:5060 mhs $R1:5060
service_udp "[$VIP6]:5060" mhs "[$R1V6]:5060"
check "a server's own words, IPv4: from itself" "10.1.0.2:5060 $R1:5060" \
	"$(udp_ask s1 $R1 10.1.0.2)"
check "a server's own words, IPv6: from itself" \
	"[fd01::2]:5060 [$R1V6]:5060" "$(udp_ask s1 $R1V6 fd01::2)"
check "a server's own words: no entries" "0 0" \
	"$(made $VIP4:5060) $(made "[$VIP6]:5060")"
dr ipvsadm -C

# A server of one service is a client of another scheduler's, from the very port;
# and so is one on the director itself, of ours
ip -n "$(ns dr)" addr add $OTHER/32 dev lo
ip -n "$(ns s1)" route add $OTHER/32 via $LOCAL
ip -n "$(ns s2)" route add $R1/32 via $LOCAL
service_udp $VIP4:5060 mhs $R1:5060
service_udp $OTHER:5060 rr $R2:5060
check "a server is another scheduler's client" "$OTHER:5060 $R1:5060" \
	"$(udp_ask s1 $R1 $OTHER)"
dr ipvsadm -C
service_udp $VIP4:5060 mhs $LOCAL:5060
service_udp $OTHER:5060 mhs $R2:5060
check "a server on the director is our client" "$OTHER:5060 $LOCAL:5060" \
	"$(udp_ask dr $LOCAL $OTHER)"
dr ipvsadm -C

# Settling again, by direct routing
while_settling -g
check "settling, direct routing: replies of others go on" "5 0 0" \
	"$(value flows) $(value broken) $(mhs PktUnsettled)"
flow d reset
flow_end d
dr ipvsadm -C

# The director's health check, and its own client of the service
service $VIP4:80 mhs $R1:8080 $R2:8080
service "[$VIP6]:80" mhs "[$R1V6]:8080" "[$R2V6]:8080"
own_addresses del
own_client IPv4 $VIP4 $R1
own_client IPv6 "[$VIP6]" "[$R1V6]"
own_addresses add
dr ipvsadm -D -t "[$VIP6]:80"

# A second service with the same servers
service $VIP4:81 mhs $R1:8080 $R2:8080
get cl $VIP4:81 20
check "shared server, second service: served" 20 "$(total)"
check "shared server, second service: an entry for each" 20 "$(made $VIP4:81)"
dr ipvsadm -C

# the control
conns_begin
service $VIP4:80 "mh -b mh-port" $R1:8080 $R2:8080
get cl $VIP4 10
check "control: mh makes as many entries" 10 "$(conns_new)"
dr ipvsadm -C
