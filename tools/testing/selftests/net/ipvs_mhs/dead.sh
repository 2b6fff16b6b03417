#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 90
# A director that begins while a server is dead: the server that keepalived, or an
# operator, deletes there was never one of the first set, so flows that another
# director has forwarded go on.  A standby that has run for long keeps the flows of a
# server that is deleted on both.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_front.sh"

# checkers ALPHA: keepalived on the second director, with all servers
checkers() {
	more=$1 connect_s=1 configure "$algo" 1 2 3 4
	bg_ns d2 keepalived --dont-fork --check --log-console --no-syslog \
		--dont-release-ipvs --use-file "$conf" --pid "$work/d2.pid" \
		--checkers_pid "$work/d2.checkers" >"$work/d2.log" 2>&1 &
}

no_checkers() {
	[ ! -s "$work/d2.pid" ] || kill "$(<"$work/d2.pid")"
	busywait 20 test ! -e "$work/d2.pid"
}

# checked ALPHA: the same, until the dead server has been found
checked() {
	checkers "$1"
	[ "$1" ] || busywait 20 servers_are 4
	busywait 40 servers_are 3
}

# servers_are NUMBER: of the second director
servers_are() {
	[ "$(mhs Servers $VIP4:80 d2)" = "$1" ] && settled $VIP4:80 d2
}

# by_hand: all servers
by_hand() {
	learn d2 < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3 4)
}

delete() {
	in_ns d2 ipvsadm -d -t $VIP4:80 -r 10.2.0.13:80
}

# back: the flows are the first director's again
back() {
	route_vip 10
	no_checkers
	in_ns d2 ipvsadm -D -t $VIP4:80
}

# over: they come to the second one
over() {
	route_vip 30
	flow c ping 30
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

long() {
	printf '%s\n' "-A -t $VIP4:85 -s mhs"
	real_lines $VIP4:85 -g 1 2 3
}

need keepalived nft
plan 9
modprobe -q ip_vs
fresh_module names=mhs,mh,sed
setup_net 4
director d2 30
for i in 1 2 3; do
	lab serve "$(ns s$i)" s$i 85
done
algo=$(front_name)
defer no_checkers
flow_start c --host $VIP4 --timeout 30

# the standby of later
learn d2 < <(long)
standby_since=$(uptime)
ip -n "$(ns rt)" link set vs3 down
begin
checkers ""
in_ns d2 "$top/scripts/mhsstat" wait -q -t $VIP4:80 --settled --servers 3 --timeout 2min
over
alive "keepalived without alpha, at once"
back
for alpha in "" alpha; do
	checked "$alpha"
	over
	alive "keepalived ${alpha:-without alpha}, later"
	back
done
by_hand
route_vip 30
flow_send c ping 30
delete
flow_wait c
alive "by hand, at once"

# A flow has begun there: the server may be one that is drained, but a dead host
# shows that it is dead
flow_start n --host $VIP4 --timeout 4
back
by_hand
route_vip 30
flow n open 8
checkers ""
busywait 40 servers_are 3
flow c ping 30
check "a dead host keeps no flow of others" "120 0" \
	"$(value flows) $(value broken)"
back
flow n reset
ip -n "$(ns rt)" link set vs3 up
in_ns s3 nft -f - <<-EOF
	table inet dead {
		chain in {
			type filter hook input priority 0
			tcp dport 80 reject with tcp reset
		}
	}
EOF
begin
by_hand
route_vip 30
flow n open 8
delete
flow c ping 10
check_cmp "control: a program that is dead resets them" "$(value broken)" -gt 10
back
begin
checked ""
over
alive "a program that is dead, keepalived, later"
back

# A standby that runs for long, and one that does not
early_over() {
	local now

	now=$(uptime)
	[ "${now%.*}" -gt $((${standby_since%.*} + 121)) ]
}

flow_start h --host $VIP4 --port 85 --timeout 8
learn dr < <(long)
flow h open 60
flow h ping
mine=$(value s3)
busywait 150 early_over
for n in dr d2; do
	in_ns $n ipvsadm -d -t $VIP4:85 -r 10.2.0.13:85
done
route_vip 30
flow h ping
check "a standby of two minutes: flows of a deleted server live" "60 0" \
	"$(value flows) $(value broken)"
in_ns d2 ipvsadm -D -t $VIP4:85
learn d2 < <(long)
in_ns d2 ipvsadm -d -t $VIP4:85 -r 10.2.0.13:85
flow h ping
check "control: one that has just begun takes it for dead" "$mine" \
	"$(value broken)"
