#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# Path-MTU discovery with a hop of 1400 bytes: on the client's side, where the
# error is about a server's packet to a client (in each phase: icmp.sh); behind the director by direct
# routing; and inside IPIP, GUE and GRE tunnels, where it is about a packet of
# the director's own.  Without those errors the transfers stall.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
need nft

# forget NAME...: what these know of path MTUs
forget() {
	local n

	for n in "$@"; do
		ip -n "$(ns "$n")" route flush cache
		ip -6 -n "$(ns "$n")" route flush cache
	done
}

# rules PRIORITY RULE...: for what comes to the director
rules() {
	{
		echo "table inet mhs { chain pre {"
		echo "type filter hook prerouting priority $1"
		printf '%s\n' "${@:2}" "}" "}"
	} | dr nft -f -
}

# through NAME UP DOWN: on every flow
through() {
	pair open 10
	pair bulk "$2" "$3"
	check "$1: every transfer ends, no entry was made" "20 0 0" \
		"$(sum flows) $(sum broken) $(pair_total NewEntries)"
}

# One tunnel server with its own network behind the router; by address, or by $mark
tunnel() {	# TYPE SERVER OVERHEAD [ARGUMENTS]
	local name=${mark:-$SVC4} by="-t $SVC4" port=80

	[ -z "${mark:-}" ] || by="-f $mark" port=0
	dr ipvsadm -R <<-EOF
		-A $by -s mhs
		-a $by -r 10.3.0.$((10 + $2)):$port -i -w 1 ${*:4}
	EOF
	wait_settled "$name"
	forget cl
	flow c4 open 4
	flow c4 ping
	flow c4 bulk 20000 1
	check "$1: every transfer ends" "4 0 4" \
		"$(value flows) $(value broken) $(value "s$2")"
	check "$1: no entry was made" 0 "$(mhs NewEntries "$name")"
	check_cmp "$1: errors were taken" "$(mhs PktIcmp "$name")" -ge 1
	check "$1: the client knows" $((1400 - $3)) \
		"$(ip -n "$(ns cl)" route get $VIP4 | grep -o "mtu [0-9]*" |
		   cut -d ' ' -f 2)"
	[ -z "${mark:-}" ] || among_forged
	flow c4 reset
	dr ipvsadm -C
}

# Of errors in a row one of 52 is about a tunnel from the director to the server.  A
# newer service by mark has a server whose IPv6 address ends in the same octets.
among_forged() {
	local before

	dr ipvsadm -R <<-EOF
		-A -f 8 -6 -s mhs
		-a -f 8 -6 -r [fd02::10.3.0.11]:0 -g -w 1
	EOF
	before=$(mhs PktIcmp 7)
	in_ns rt python3 -B -S - <<-EOF
		import sys
		sys.path.insert(0, "$here")
		import netlab
		inner = netlab.tcp("10.1.0.2", 9, "$VIP4", 80)
		errors = [netlab.icmp("10.2.0.1", "10.2.0.10", 3, 4, 1400,
		                      netlab.ip(src, dst, 4, inner)) for src, dst in
		          [("10.2.0.10", "10.3.0.99")] * 50 +
		          [("10.2.0.10", "10.3.0.11"), ("10.2.0.99", "10.3.0.11")]]
		send = netlab.Sender()
		for error in errors * 10:
		    send("10.2.0.10", error)
	EOF
	check "by mark: errors among forged ones were taken" 10 \
		$(($(mhs PktIcmp 7) - before))
}

plan 22
load_module
modprobe -q -a ipip ip_gre fou
setup_net 3

# The client's side: replies of 18 kB
ip_ns rt <<-EOF
	route replace 10.1.0.2/32 dev vcl mtu lock 1400
	route replace fd01::2/128 dev vcl mtu lock 1400
EOF
pair_services "1 2 3" mhs
pair_clients --timeout 8
through "client's side" 0 6000
check_cmp "client's side: errors were taken" "$(pair_total PktIcmp)" -ge 2
pair reset
dr ipvsadm -C
pair_services "2" mhs
rules -300 "icmp type destination-unreachable drop" "icmpv6 type packet-too-big drop"
forget s2
pair open 1
for family in 4 6; do
	flow c$family bulk 0 6000 4
	check "control: without the error it stalls, IPv$family" 1 "$(value broken)"
done
pair reset
dr nft flush ruleset
dr ipvsadm -C
ip_ns rt <<-EOF
	route del 10.1.0.2/32 dev vcl
	route del fd01::2/128 dev vcl
EOF

# Behind the director, by direct routing: requests of 20 kB
ip_ns dr <<-EOF
	$(printf 'route add 10.2.0.%s/32 dev eth0 mtu lock 1400\n' 11 12 13)
	$(printf 'route add fd02::%s/128 dev eth0 mtu lock 1400\n' 11 12 13)
EOF
forget cl
pair_services "1 2 3" mhs
through "server's side" 20000 1
pair reset
dr ipvsadm -C

# Inside tunnels
for i in 1 2 3; do
	ip_ns s$i <<<"addr add 10.3.0.$((10 + i))/32 dev lo"
	ip_ns rt <<<"route add 10.3.0.$((10 + i))/32 via 10.2.0.$((10 + i)) mtu lock 1400"
done
in_ns s2 ip fou add port 6080 gue
ip -n "$(ns s3)" link set gre0 up
tunnel IPIP 1 20
tunnel GUE 2 32 --tun-type gue --tun-port 6080
tunnel GRE 3 24 --tun-type gre
rules -150 "ip daddr $VIP4 tcp dport 80 meta mark set 7"
ip -n "$(ns dr)" route flush cache
mark=7 tunnel "IPIP by mark" 1 20
