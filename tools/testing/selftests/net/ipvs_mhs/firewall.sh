#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 40
# Conntrack, firewalls and NAT of the director's own.  vs.conntrack=1 makes state that mhs
# saves otherwise; with the rules that the documentation gives there is none.  Rules that
# drop what conntrack does not know, a DNAT rule in front of the virtual address and a
# server that is its own client by source NAT, beside masquerading servers, want
# vs.conntrack=1; other source NAT: masq.sh.  And direct routing under a strict rp_filter;
# raw sockets of the director.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
need nft conntrack

# leaves FROM TO: 2 x 40 flows that talk and end leave so many conntrack entries
leaves() {
	local n

	dr conntrack -F >/dev/null 2>&1
	pair open 40
	pair ping
	well="$(sum flows) $(sum broken)"
	n=$(dr cat /proc/sys/net/netfilter/nf_conntrack_count)
	pair reset
	[ "$n" -ge "$1" ] && [ "$n" -le "$2" ]
}

# flows NAME FROM TO: they work, and leave so many
flows() {
	leaves "$2" "$3"
	check "$1: flows work, and conntrack entries are $2 to $3" "80 0, 0" "$well, $?"
}

# service METHOD: with both servers
service() {
	dr ipvsadm -C
	learn dr < <(echo "-A -t $VIP4:80 -s mhs"; real_lines $VIP4:80 "$1" 1 2)
}

# rules LINE...: a table of the director's in place of the one before
rules() {
	printf '%s\n' "flush ruleset" "table ip own {" "$@" "}" | dr nft -f -
	dr conntrack -F >"$work/flush" 2>&1
}

# works NAME ALIVE [ADDRESS] [NAMESPACE]: of two new flows so many are served; who waits
# for none is not patient
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

# tracked NAME [ADDRESS] [NAMESPACE]: the same with and without vs.conntrack
tracked() {
	service -m
	sysctls dr net.ipv4.vs.conntrack=1
	works "$1" 2 "${@:2}"
	sysctls dr net.ipv4.vs.conntrack=0
	works "control: $1, conntrack=0" 0 "${@:2}"
}

plan 19
load_module
modprobe -q nft_ct
setup_net 2

# vs.conntrack=1 has its effect, and the rules of the documentation
pair_services "1 2" mhs
pair_clients --timeout 5
# a rule that wants to know the state turns conntrack on in the namespace
dr nft "table inet mhs_state { chain in {
	type filter hook input priority 0
	ct state established counter
}; }"
flows "vs.conntrack=0" 0 0
sysctls dr net.ipv4.vs.conntrack=1
busywait 20 leaves 80 1000
result "vs.conntrack=1, set later: it has an effect" $?
# the rules that the page gives
sed -n '/^\ttable inet ipvs_notrack {/,/^\t}/p' \
	"$here/../../../../../Documentation/networking/ipvs-mhs.rst" |
	sed "s/192\.0\.2\.1/$VIP4/; s/2001:db8::1/$VIP6/" | dr nft -f -
flows "NOTRACK" 0 0
check "NOTRACK: no connection entry" 0 "$(conns)"
dr nft delete table inet ipvs_notrack
flows "control: rules gone" 80 1000

# A claim is no flow: its end ends no conntrack of the flow with its addresses
dr nft "table inet strict { chain in {
	type filter hook input priority 0
	tcp flags & syn == 0 ct state new drop
}; }"
windows 3600000 3600000
pair open 40
pair ping
check "a firewall that wants a SYN: flows work" "80 0" \
	"$(sum flows) $(sum broken)"
pair_edit -d 2
flow c4 where
for flow in $reply; do
	echo "10.1.0.2 ${flow%=*}"
done | raw cl --dst $VIP4 --good --pairs >/dev/null
check_cmp "a stranger's SYNs make claims" "$(conns)" -gt 0
busywait 30 eval '! dr ipvsadm -Lnc | grep SYN_RECV >/dev/null'
pair ping
check "they end no conntrack of a flow" 0 "$(sum broken)"
pair reset
sysctls dr net.ipv4.vs.conntrack=0
dr nft flush ruleset

# Masquerading: answers go back by the director
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
rules

# Direct routing, when packets must come from where answers would go
ip -n "$(ns s1)" route del $VIP4
for i in 1 2; do
	ip -n "$(ns s$i)" route del 10.1.0.0/24
	ip -n "$(ns s$i)" addr add $VIP4/32 dev lo
done
sysctls dr net.ipv4.vs.conntrack=0 net.ipv4.conf.{all,eth0}.rp_filter=1
service -g
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
	service -g
	learn dr <<<"-E -t $VIP4:80 -s $scheduler"
	raw dr --dst $VIP4 --src 10.2.0.10 --ports 1-5 --nodefrag
	raw dr --dst $VIP4 --src 10.2.0.10 --ports 6-8
	busywait 20 eval '[ "$(sent_on)" -ge 3 ]'
	check "only the raw socket without IP_NODEFRAG is forwarded, ${scheduler% -b*}" \
		3 "$(sent_on)"
done
