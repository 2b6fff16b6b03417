#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
# real_server: one command prepares a real server for direct routing and for each
# tunnel, check names each thing that is broken and its remedy mends it, and clear
# leaves everything as it was.
#
# The servers s1 and s2 begin bare: they have no virtual address, answer ARP as any
# host does, and have strict rp_filter.  The host lan is a neighbour of theirs.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
. "${0%/*}/lib_real.sh"

# method NAME "FORWARDING" "SETUP" [OTHER]: of the servers, of real_server
method() {
	local s got="" arguments

	read -ra arguments <<<"--vip $vips $3"
	services "$2" "${4:-}"
	pair reset
	pair open 1
	check "$1: control: without setup no request passes" 0 "$(sum flows)"
	both setup "${arguments[@]}"
	check "$1: setup" "0" "$rc"
	pair reset
	pair open 20
	pair ping
	check "$1: requests pass" "40 0" "$(sum flows) $(sum broken)"
	for s in s1 s2; do
		[ "$(reply=$reply4 value $s)" -eq 0 ] ||
			[ "$(value $s)" -eq 0 ] || got+=" $s"
	done
	check "$1: by both servers, of both families" " s1 s2" "$got"
	check "$1: the director alone answers ARP" dr "$(answers)"
	quiet "$1: check is quiet"
	looks s1 >"$work/once"
	on s1 setup "${arguments[@]}"
	looks s1 | cmp -s "$work/once" -
	check "$1: a second setup changes nothing" "0 0" "$rc $?"
	both clear
	check "$1: clear" "0" "$rc"
	as_before "$1: s1 is as before"
	as_before "$1: s2 is as before" s2
}

plan 76
load_module
modprobe -q -a ipip ip6_tunnel sit ip_gre ip6_gre fou
real_net
pair_clients --timeout 1

# ARP
services -g
for s in s1 s2; do
	ip_ns $s <<<"addr add $VIP4/32 dev lo"
done
check "control: without setup the servers answer ARP, too" "dr s1 s2" "$(answers)"
sysctls dr net.ipv4.conf.all.arp_ignore=8
neighbour
[[ $met =~ ^(s1 s1|s2 s2)$ ]]
result "control: a neighbour has a server's hardware address" $? "$met"
sysctls dr net.ipv4.conf.all.arp_ignore=0
for s in s1 s2; do
	ip_ns $s <<<"addr del $VIP4/32 dev lo"
done
both setup --vip $VIP4
neighbour
[[ $met =~ ^s[12]\ dr$ ]]
result "with setup it has the director's" $? "$met"
both clear

method "direct routing" -g ""
method IPIP -i "--tunnel ipip --mss 1380"
method GRE "-i --tun-type gre" "--tunnel gre --mss 1380"
method GUE "-i --tun-type gue --tun-port 6080" "--tunnel gue --mss 1380"
method "IPIP, other family" -i \
	"--tunnel ipip --outer ipv4,ipv6 --mss 1380" other
method "GRE, other family" "-i --tun-type gre" \
	"--tunnel gre --outer ipv4,ipv6 --mss 1380" other
method "GUE, other family" "-i --tun-type gue --tun-port 7000" \
	"--tunnel gue --gue-port 7000 --outer ipv4,ipv6 --mss 1380" other

# The MSS
services -i
pair reset
both setup --vip $vips --tunnel ipip
check "a tunnel without a clamp: clients send full segments" "1448 1428" \
	"$(mss $VIP4) $(mss $VIP6)"
both setup --vip $vips --tunnel ipip --mss 1300
check "with a clamp they do not" "1288 1288" "$(mss $VIP4) $(mss $VIP6)"
both clear
as_before "MSS: s1 is as before"
dr ipvsadm -C
