#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 40
# A director that begins while a server is dead: the server that keepalived, or an
# operator, deletes there was never one of the first set, so flows that another
# director has forwarded go on.  One that has run for long: keepalived.sh.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_front.sh"

# checkers [ALPHA]: keepalived on the second director, with all servers, until the dead
# server has been found
checkers() {
	more=${1:-} connect_s=1 configure "$algo" 1 2 3 4
	run_keepalived d2 --check --dont-release-ipvs
	[ "${1:-}" ] || busywait 20 servers_are 4
	busywait 40 servers_are 3
}

# servers_are NUMBER: of the second director
servers_are() {
	[ "$(mhs Servers $VIP4:80 d2)" = "$1" ] && settled $VIP4:80 d2
}

# by_hand: all servers, and the flows
by_hand() {
	learn d2 < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3 4)
	route_vip 30
}

delete() {
	in_ns d2 ipvsadm -d -t $VIP4:80 -r 10.2.0.13:80
}

# back: the flows are the first director's again
back() {
	route_vip 10
	down d2
	in_ns d2 ipvsadm -C
}

alive() {
	check "$1: no flow broken" "120 0" "$(value flows) $(value broken)"
}

# begin: flows by the first director, which knows that the third server is dead
begin() {
	flow c reset
	dr ipvsadm -C
	learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 4)
	flow c open 120
	flow c ping
}

need keepalived nft
plan 5
modprobe -q ip_vs
fresh_module names=mhs,mh,sed
setup_net 4
director d2 30
algo=$(front_name)
defer down d2
flow_start c --host $VIP4 --timeout 30
flow_start n --host $VIP4 --timeout 4
ip -n "$(ns rt)" link set vs3 down
begin
for alpha in "" alpha; do
	checkers "$alpha"
	route_vip 30
	flow c ping 30
	alive "keepalived ${alpha:-without alpha}"
	back
done
by_hand
flow_send c ping 30
delete
flow_wait c
alive "by hand, at once"

# A flow has begun there: the server may be one that is drained, but a dead host
# shows that it is dead
back
by_hand
flow n open 8
checkers
flow c ping 30
alive "a dead host keeps no flow of others"
back
flow n reset
ip -n "$(ns rt)" link set vs3 up
in_ns s3 nft "table inet dead { chain in {
	type filter hook input priority 0
	tcp dport 80 reject with tcp reset
}; }"
begin
by_hand
flow n open 8
delete
flow c ping 10
check_cmp "control: a program that is dead resets them" "$(value broken)" -gt 10
