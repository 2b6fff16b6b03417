#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 80
# A VRRP pair with keepalived as its runbook has it, mhs behind the name of another
# scheduler: the address moves to the other director and back, and no flow breaks.
# Then the way back: every flow gets an entry (net.ipv4.vs.mhs.stateless=0), the
# sync daemon carries these to the backup, lb_algo becomes wlc in the file, and a
# reload breaks no flow.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_front.sh"

# Flows that are busy send several times in that, in emulation, too
readonly pin=$((3 * ${patience:-1}))

# reload SCHEDULER: on both, by the file
reload() {
	vrrp_configure "$1" 3
	kill -HUP "$(<"$work/dr.pid")" "$(<"$work/d2.pid")"
}

# schedulers_are NAME: of both directors
schedulers_are() {
	[ "$(for n in dr d2; do
		in_ns $n ipvsadm -Ln | awk -v s="$VIP4:80" '$2 == s { print $3 }'
	done | paste -sd " ")" = "$1 $1" ]
}

# moves FROM TO ROLE ROLE: keepalived stops there, starts there again, and is the
# backup
moves() {
	down "$1"
	busywait 40 has_vip "$2"
	result "keepalived stops on $1: $2 takes the address" $?
	flow c ping
	alive "$1 to $2: no flow broken by that"
	up "$1"
	busywait 40 roles_are "${@:3}"
	result "keepalived starts on $1: it is the backup" $?
	flow c ping
	alive "$1 is back: no flow broken by that either"
}

# flows_of DIRECTOR; carried: the backup has every flow of the master by its entry
flows_of() {
	net_dir "$1"
	awk 'FNR > 1 { print $2, $3, $6, $7 }' "$net/ip_vs_conn" | sort -u
}

carried() {
	flows_of dr >"$work/master"
	flows_of d2 >"$work/backup"
	[ -s "$work/master" ] &&
		[ -z "$(comm -23 "$work/master" "$work/backup")" ]
}

# alive NAME: none is broken, none has moved
alive() {
	check "$1" "60 0 0" "$(value flows) $(value broken) $(value moved)"
}

need keepalived
plan 17
modprobe -q ip_vs
modprobe -q ip_vs_wlc
fresh_module names=mhs,mh,sed
setup_net 3
director d2 30
algo=$(front_name)
note "mhs answers for $algo"
vrrp_configure "$algo" 3
for n in dr d2; do
	ip -n "$(ns $n)" addr del $VIP4/32 dev lo
	# an entry goes to the backup with its first packet
	sysctls $n net.ipv4.vs.sync_threshold=0,1
	defer down $n
done
ip -n "$(ns rt)" route replace $VIP4/32 dev br0

up dr
busywait 40 has_vip dr
up d2
result "each sync daemon has its role" \
	"$(busywait 40 roles_are master backup; echo $?)"
wait_settled
wait_settled $VIP4:80 d2
flow_start c --host $VIP4 --timeout 8
flow c open 60
flow c ping
alive "flows are served"
check "and have no entries" "0 0" "$(conns) $(conns d2)"
moves dr d2 backup master
moves d2 dr master backup

# The way back
flow_send c busy 3600
# the operator's wait takes one pin time
for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.stateless=0
	in_ns $n ipvsadm --set $pin $pin $pin
done
for n in dr d2; do
	in_ns $n "$top/scripts/mhsstat" wait --stateful -t $VIP4:80 >"$work/said" 2>&1
	check "stateful: the wait ends well, $n" 0 $?
	in_ns $n ipvsadm --set 900 120 300
done
result "stateful: the backup has them" "$(busywait 40 carried; echo $?)"
reload wlc
result "a reload changes the scheduler" \
	"$(busywait 40 schedulers_are wlc; echo $?)"
flow c stop
flow c ping
alive "reload: no flow broken"
flow c reset

# The same without entries
reload "$algo"
busywait 40 schedulers_are "$algo"
for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.stateless=1
	wait_settled $VIP4:80 $n
done
flow c open 60
reload wlc
busywait 40 schedulers_are wlc
flow c ping
check "control: a reload without stateless=0 breaks every flow" 60 \
	"$(value broken)"
