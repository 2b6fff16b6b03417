#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 45
# Source NAT on a director with one arm, the usual way to have masquerading servers
# that do not route by it: vs.conntrack=1 and a rule of iptables with -m ipvs, which
# asks the connection table.  Each flow of such a server has an entry, so the rule
# works, as with mh, from whom a live service is taken over.  Direct routing does
# without entries: a lone --ipvs is all that sees its packets.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
need iptables ip6tables

services() {
	dr ipvsadm -C
	how4=-m how6=-m pair_services "1 2" "$@"
}

# take_over: mhs becomes the scheduler of both as they are
take_over() {
	dr ipvsadm -R <<-EOF
		-E -t $SVC4 -s mhs
		-E -t $SVC6 -s mhs
	EOF
	wait_settled "$SVC4"
	wait_settled "$SVC6"
}

# rules "MATCH4" "MATCH6": in place of those before
rules() {
	local tables=iptables match

	for match; do
		dr $tables -t nat -F POSTROUTING
		# shellcheck disable=SC2086 # several words
		dr $tables -t nat -A POSTROUTING -m ipvs $match -j MASQUERADE
		tables=ip6tables
	done
}

# matched: flows that the rules have seen, IPv4 and IPv6
matched() {
	local tables n=()

	for tables in iptables ip6tables; do
		n+=("$(dr $tables -t nat -nvxL POSTROUTING |
			awk 'NR == 3 { print $1 }')")
	done
	echo "${n[*]}"
}

# made: entries of both services for new flows
made() {
	pair_total NewEntries
}

# work NAME FLOWS: all of them, those of before and the last ones
work() {
	pair ping
	check "$1" "$2 0 0" "$(sum flows) $(sum broken) $(sum failed)"
}

# look: rules of both families that only count, by a lone --ipvs and by another
# match
look() {
	local vip tables=iptables

	for vip in $VIP4 $VIP6; do
		dr $tables -t mangle -F POSTROUTING
		dr $tables -t mangle -A POSTROUTING -m ipvs --ipvs
		dr $tables -t mangle -A POSTROUTING -m ipvs --vaddr "$vip"
		tables=ip6tables
	done
}

# looked: which of them have seen a packet, 1 for yes
looked() {
	local tables n=()

	for tables in iptables ip6tables; do
		n+=("$(dr $tables -t mangle -nvxL POSTROUTING |
			awk 'NR > 2 { printf "%d", ($1 > 0) }')")
	done
	echo "${n[*]}"
}

plan 13
load_module
setup_net 2
sysctls dr net.ipv4.vs.conntrack=1
windows 3600000 3600000
pair_clients --timeout 5

# without the rules the servers' answers come from their own addresses
services mh -b mh-port
flow_start n --host $VIP4 --timeout 2 --impatient
flow n open 3
check "control: without source NAT nothing works" "0 3" \
	"$(value flows) $(value failed)"
flow_end n

rules "--vaddr $VIP4 --vport 80" "--vaddr $VIP6 --vport 80"
services mh -b mh-port
pair open 6
work "control: mh: new connections work" 12
check "control: mh: the rules see each" "6 6" "$(matched)"

# A live service of mh
take_over
work "taken over from mh: its flows go on" 12
pair open 6
work "taken over from mh: new connections work" 24
check "taken over from mh: an entry for each" 12 "$(made)"
check "taken over from mh: the rules see each" "12 12" "$(matched)"
pair reset

# From the beginning
services mhs
pair open 20
work "mhs: new connections work" 40
check "mhs: an entry for each" 40 "$(made)"
check "mhs: the rules see each" "32 32" "$(matched)"
pair reset
dr ipvsadm -C

# What sees direct routing
dr iptables -t nat -F
dr ip6tables -t nat -F
for sched in mhs "mh -b mh-port"; do
	# shellcheck disable=SC2086 # several words
	pair_services "1 2" $sched
	look
	pair open 6
	if [ "$sched" = mhs ]; then
		work "direct routing: connections work" 12
		check "direct routing: a lone --ipvs alone sees them" "10 10" \
			"$(looked)"
	else
		check "control: mh, direct routing: other matches do, too" \
			"11 11" "$(looked)"
	fi
	pair reset
	dr ipvsadm -C
done
