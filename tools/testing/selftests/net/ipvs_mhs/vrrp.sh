#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 360
# weight: 75
# A VRRP pair with keepalived as the page on keepalived has it: the address moves
# to the other director and back, and no flow breaks.  After a change of servers
# the sync daemon carries the flows that have an entry.

. "${0%/*}/lib.sh"
# shellcheck source=lib_front.sh
. "${0%/*}/lib_front.sh"

# alive NAME: its flows are
alive() {
	flow c ping
	check "$1" "60 0" "$(value flows) $(value broken)"
}

# has_entries NUMBER: the first director
has_entries() {
	[ "$(conns)" -ge "$1" ]
}

need keepalived
plan 16
modprobe -q ip_vs
fresh_module names=mhs,mh,sed
setup_net 2
director d2 30
vrrp_configure "$(front_name)" 2
for n in dr d2; do
	ip -n "$(ns $n)" addr del $VIP4/32 dev lo
	defer down $n
done
ip -n "$(ns rt)" route replace $VIP4/32 dev br0

up dr
result "the first director takes the address" \
	"$(busywait 40 has_vip dr; echo $?)"
up d2
result "each sync daemon has its role" \
	"$(busywait 40 roles_are master backup; echo $?)"
wait_settled
wait_settled $VIP4:80 d2
check "the tables are equal" "$(mhs OldPrint)" "$(mhs OldPrint $VIP4:80 d2)"
flow_start c --host $VIP4 --timeout 8
flow c open 60
alive "flows are served"
check "and have no entries" 0 "$(entries)"

down dr
result "keepalived stops: the other takes the address" \
	"$(busywait 40 has_vip d2; echo $?)"
alive "no flow broken"
up dr
result "it starts: it is the backup" \
	"$(busywait 40 roles_are backup master; echo $?)"
alive "no flow broken by that"

# Flows with an entry; the sync daemon rests while the first of them begin
for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.hold_ms=3600000 \
		net.ipv4.vs.mhs.pin_ms=3600000 net.ipv4.vs.sync_threshold=0,1
	weight 1 0 $n
done
syncid=$(in_ns d2 ipvsadm -l --daemon | sed 's/.*syncid=\([0-9]*\).*/\1/')
in_ns d2 ipvsadm --stop-daemon master
flow_start left --host $VIP4 --timeout 8
flow left open 60
flow left ping
alone=$(conns d2)
in_ns d2 ipvsadm --start-daemon master --mcast-interface eth0 --syncid "$syncid"
flow_start taken --host $VIP4 --timeout 8
flow taken open 60
flow taken ping
made=$(($(conns d2) - alone))
check_cmp "a server is drained: new flows have an entry" "$made" -gt 10
result "the backup has these entries" \
	"$(busywait 20 has_entries "$made"; echo $?)"
down d2
result "keepalived stops: the first director takes the address" \
	"$(busywait 40 has_vip dr; echo $?)"
flow taken ping
check "flows with an entry: none broken" "60 0" \
	"$(value flows) $(value broken)"
alive "those of before: none broken"
flow left ping
check "control: without the sync daemon each with an entry breaks" "$alone" \
	"$(value broken)"

dr ipvsadm -C
flow c ping
check "control: the services go first: every flow is reset" 60 "$(value rst)"
