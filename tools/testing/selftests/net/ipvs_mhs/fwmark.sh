#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 30
# tags: core races
# A service by firewall mark with several virtual addresses, TCP and UDP; and
# packets whose mark means a service of another scheduler.  ICMP
# errors with the mark of a service that are about flows of the director itself, with mh as
# reference.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
need nft

OTHER4=10.9.0.2 OTHER6=fd09::2

# fwm CONDITION: it holds for both families, in awk, h: slots in hold, p: in
# pin; for busywait
fwm() {
	dr awk '$1 == "FWM" { n++; s = $3; h = $9; p = $10; ok += ('"$1"') }
		END { exit n != 2 || ok != n }' /proc/net/ip_vs_mhs
}

# fwm_lines COMMAND SERVER [ARGUMENTS]: of both; fwm_edit: do so
fwm_lines() {
	echo "$1 -f ${mark:-1} -r 10.2.0.$((10 + $2)):0 -g ${*:3}"
	echo "$1 -f ${mark:-1} -6 -r [fd02::$((10 + $2))]:0 -g ${*:3}"
}

fwm_edit() {
	fwm_lines "$@" | dr ipvsadm -R
}

# fwm_services SCHEDULER SERVER...
fwm_services() {
	local i

	learn dr < <(
		printf '%s\n' "-A -f ${mark:-1} -s $1" "-A -f ${mark:-1} -6 -s $1"
		for i in "${@:2}"; do
			fwm_lines -a "$i"
		done
	)
}

# marks RULE...: rules that mark, in place of those before
marks() {
	printf '%s\n' "table inet mhs" "delete table inet mhs" \
		"table inet mhs { chain pre {" \
		"type filter hook prerouting priority -150" "$@" "}" "}" | dr nft -f -
}

# stay NAME: TCP flows
stay() {
	pair ping
	check "$1" "0 0" "$(sum broken) $(sum moved)"
}

plan 23
fresh_module
setup_net 4
dgram_servers 53
for n in dr s1 s2 s3 s4; do
	ip_ns $n <<-EOF
		addr add $OTHER4/32 dev lo
		addr add $OTHER6/128 dev lo nodad
	EOF
done
ip_ns rt <<-EOF
	route add $OTHER4/32 via 10.2.0.10
	route add $OTHER6/128 via fd02::10
EOF

# One service for all of it
marks "ip daddr 10.9.0.0/24 tcp dport 80 meta mark set 1" \
	"ip daddr 10.9.0.0/24 udp dport 53 meta mark set 1" \
	"ip6 daddr fd09::/64 tcp dport 80 meta mark set 1" \
	"ip6 daddr fd09::/64 udp dport 53 meta mark set 1"
windows 3600000 3600000
fwm_services mhs 1 2 3
busywait 20 fwm 's == "stable"'
flow_start c4 --host $VIP4,$OTHER4 --timeout 4
flow_start c6 --host $VIP6,$OTHER6 --timeout 4
client_py=dgrams.py flow_start u4 --host $VIP4,$OTHER4
client_py=dgrams.py flow_start u6 --host $VIP6,$OTHER6
pair open 40
pair ping
check "TCP: served" "80 0 0" "$(sum flows) $(sum broken) $(sum failed)"
pair_of u open 40
pair_of u ping
check "UDP: served" "80 0" "$(sum flows) $(sum lost)"
check "no entry" "0 0" "$(conns) $(mhs_sum NewEntries)"

# A change: one server comes, another is drained
fwm_edit -a 4
fwm_edit -e 1 -w 0
busywait 20 fwm 'h && !p'
stay "hold: TCP stays"
pair_of u ping
check "hold: UDP leaves the drained server" "0 0" "$(sum lost) $(sum s1)"
pair open 20
check "hold: new flows" "0 120" "$(sum failed) $(sum flows)"
check "hold: those of unstable slots have an entry" "$(conns)" \
	"$(mhs_sum NewEntries)"
stay "hold: TCP stays, with an entry or without"
windows 0 3600000
busywait 20 fwm 'p && !h'
stay "pin: TCP stays"
check_cmp "pin: entries" "$(mhs_sum PinnedEntries)" -gt 2
conns_begin
pair_of u ping
check "pin: UDP" "0 0 0" "$(sum lost) $(sum s1) $(conns_new)"
windows 0 100
busywait 20 fwm 's == "stable"'
stay "merged: TCP stays"
pair reset
dr ipvsadm -C

# Services by address, and one by mark of another scheduler: mhs knows only its own
windows 3600000 3600000
marks "tcp dport 80 meta mark set 2"
pair_services "1 2" mhs
mark=2 fwm_services "mh -b mh-port" 3
pair_clients --timeout 4
pair open 30
pair ping
check "beside a mark's service of mh: ours" "60 0 0" \
	"$(sum flows) $(sum broken) $(sum s3)"
for m in 5 0; do
	marks "tcp dport 80 meta mark set $m"
	stay "mark $m in mid-flow: flows stay"
done
check "beside a mark's service of mh: no entry" 0 "$(pair_total NewEntries)"
pair reset

# Errors with the mark of a service, about flows that are none of it
ip_ns rt <<-EOF
	route replace 10.1.0.2/32 dev vcl mtu lock 1300
	route replace fd01::2/128 dev vcl mtu lock 1300
EOF
lab serve "$(ns dr)" dr
for s in mh mhs; do
	dr ipvsadm -C
	mark=7 fwm_services $s 1
	marks "icmp type destination-unreachable meta mark set 7 counter" \
		"icmpv6 type packet-too-big meta mark set 7 counter"
	for host in 10.2.0.10 fd02::10; do
		flow_start d --host $host --timeout 8
		flow d open 1
		flow d bulk 0 25000
		check "$s: errors about the director's flow: $host" "1 0" \
			"$(value flows) $(value broken)"
		flow_end d
	done
	check "$s: errors had the mark, of both families" 2 \
		"$(dr nft list table inet mhs | grep -c 'packets [1-9]')"
	for n in rt dr; do
		ip -n "$(ns $n)" route flush cache
		ip -6 -n "$(ns $n)" route flush cache
	done
done
check "mhs: no error was taken" 0 "$(mhs_sum PktIcmp)"
