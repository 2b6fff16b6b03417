#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 240
# weight: 20
# Firewalls and NAT of the director's own beside masquerading servers: rules that
# drop what conntrack does not know, a DNAT rule in front of the virtual address, a
# server that is its own client by source NAT.  All want vs.conntrack=1, with mhs as
# with mh.  Source NAT that asks for an address needs no entry.  And direct routing
# under a strict rp_filter; raw sockets of the director.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
need nft

# service SCHEDULER METHOD: with both servers
service() {
	dr ipvsadm -C
	learn dr <<-EOF
		-A -t $VIP4:80 -s $1
		$(real_lines $VIP4:80 "$2" 1 2)
	EOF
}

# rules LINE...: a table of the director's in place of the one before
rules() {
	{
		printf '%s\n' "table ip own" "delete table ip own"
		[ $# -eq 0 ] || printf '%s\n' "table ip own {" "$@" "}"
	} | dr nft -f -
	dr conntrack -F >"$work/flush" 2>&1
}

# works NAME ALIVE [ADDRESS] [NAMESPACE]: of two new flows so many are served, and
# so again a moment later; who waits for none is not patient
works() {
	local patient="--timeout 5" n=2

	[ "$2" -gt 0 ] || n=1 patient="--timeout 0.5 --impatient"
	# shellcheck disable=SC2086 # several words
	client_ns=${4:-cl} flow_start c --host "${3:-$VIP4}" $patient
	flow c open $n
	flow c ping
	check "$1" "$2" "$(($(value flows) - $(value broken)))"
	flow c reset
	flow_end c
}

# tracked NAME [ADDRESS] [NAMESPACE]: the same with and without vs.conntrack, by
# both schedulers
tracked() {
	local scheduler

	for scheduler in mhs "mh -b mh-port"; do
		service "$scheduler" -m
		sysctls dr net.ipv4.vs.conntrack=1
		works "$1, ${scheduler% -b*}" 2 "${@:2}"
		sysctls dr net.ipv4.vs.conntrack=0
		works "control: $1, ${scheduler% -b*}, conntrack=0" 0 "${@:2}"
	done
}

plan 21
load_module
setup_net 2
# answers go back by the director
for i in 1 2; do
	ip -n "$(ns s$i)" route add 10.1.0.0/24 via 10.2.0.10
	ip -n "$(ns s$i)" addr del $VIP4/32 dev lo
done

# Kubernetes' and others' way to be safe
rules "chain forward {" "type filter hook forward priority 0; policy drop" \
	"ct state invalid drop" "ct state established accept" "}" \
	"chain input {" "type filter hook input priority 0; policy drop" \
	"ct state established accept" \
	"ct state new tcp flags & (fin|syn|rst|ack) == syn accept" "}"
tracked "a firewall that takes what is established"

# Another address and port that lead to the service
ip -n "$(ns rt)" route add 10.9.0.77 via 10.2.0.10
rules "chain pre {" "type nat hook prerouting priority -100" \
	"ip daddr 10.9.0.77 tcp dport 80 dnat to $VIP4:80" "}"
tracked "DNAT in front of the service" 10.9.0.77

# A server that asks the service that it is in itself
ip -n "$(ns s1)" route add $VIP4 via 10.2.0.10
rules "chain post {" "type nat hook postrouting priority 100" \
	"ip saddr 10.2.0.0/24 ip daddr 10.2.0.0/24 masquerade" "}"
tracked "a server is its own client, by source NAT" $VIP4 s1
sysctls dr net.ipv4.vs.conntrack=1
rules
service mhs -m
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.12:80
works "control: without source NAT it gets no answer" 0 $VIP4 s1
sysctls dr net.ipv4.vs.conntrack=0

# Source NAT for servers that do not route by the director
for i in 1 2; do
	ip -n "$(ns s$i)" route del 10.1.0.0/24
done
ip -n "$(ns s1)" route del $VIP4
sysctls dr net.ipv4.vs.conntrack=1
rules
service mhs -m
works "control: without source NAT the answers are lost" 0
rules "chain pre {" "type filter hook prerouting priority -150" \
	"ip daddr $VIP4 tcp dport 80 meta mark set 7" "}" \
	"chain post {" "type nat hook postrouting priority 100" \
	"meta mark 7 masquerade" "}"
works "source NAT by a mark" 2
rules "chain post {" "type nat hook postrouting priority 100" \
	"ip daddr { 10.2.0.11, 10.2.0.12 } tcp dport 80 masquerade" "}"
works "source NAT by the servers' addresses" 2
sysctls dr net.ipv4.vs.conntrack=0
rules

# Direct routing, when packets must come from where answers would go
for i in 1 2; do
	ip -n "$(ns s$i)" addr add $VIP4/32 dev lo
done
sysctls dr net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1
service mhs -g
works "direct routing, strict rp_filter" 2
check "no entry for it" 0 "$(mhs NewEntries)"
ip -n "$(ns dr)" route add 10.1.0.0/24 dev lo
works "control: with no way back to the client" 0

# What a raw socket with IP_NODEFRAG sends is not for IPVS, whose statistics come late.
# A local address would bring it in again.
ip_ns dr <<-EOF
	addr del $VIP4/32 dev lo
	route add $VIP4/32 via 10.2.0.12
EOF
sent_on() {
	dr ipvsadm -Ln --stats | awk '$1 == "TCP" { print $4 }'
}
for scheduler in mhs "mh -b mh-port"; do
	service "$scheduler" -g
	raw dr --dst $VIP4 --src 10.2.0.10 --ports 1-5 --nodefrag
	raw dr --dst $VIP4 --src 10.2.0.10 --ports 6-8
	busywait 20 eval '[ "$(sent_on)" -ge 3 ]'
	check "only the raw socket without IP_NODEFRAG is forwarded, ${scheduler% -b*}" \
		3 "$(sent_on)"
done
