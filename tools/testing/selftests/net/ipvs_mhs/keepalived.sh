#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 130
# keepalived drives mhs: servers that fail and recover, reloads, a restart and a
# stop break no flow of a healthy server.  It is told of mhs in one of three
# ways: names=, a service made before it starts, or MHS_KEEPALIVED=, a
# keepalived that knows mhs.  Meanwhile a standby has run for so long that it keeps
# the flows of a server that is deleted.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_front.sh"

# ill SERVER: it answers health checks with resets, and clients as before
ill() {
	in_ns "$1" nft "table inet ill { chain in {
		type filter hook input priority 0
		ip saddr 10.2.0.10 tcp dport 80 reject with tcp reset
	}; }"
}

# reload SERVER[:LINE]...: with these
reload() {
	configure "$algo" "$@"
	configured kill -HUP "$(<"$pid")"
}

# A service with every kind of change; $algo is what the file says
live() {
	configure "$algo" 1 2 3
	start --dont-release-ipvs
	wait_weights "started: all servers are there" "1:1 2:1 3:1"
	wait_settled
	check "the service is mhs, by the name that the file has" "$algo stable" \
		"$(scheduler) $(mhs State)"
	begin
	step "a server fails" "2:1 3:1" ill s1
	step "it recovers" "1:1 2:1 3:1" in_ns s1 nft flush ruleset
	step "reload" "" reload 1 2 3:inhibit_on_failure
	step "inhibit_on_failure" "1:1 2:1 3:0" ill s3
	step "inhibit_on_failure, recovered" "1:1 2:1 3:1" \
		in_ns s3 nft flush ruleset
	step "reload, one more, one less, a weight" "1:1 2:3 4:1" \
		reload 1 "2:weight 3" 4
	step "stop, with --dont-release-ipvs" "" stop
	step "restart, with --dont-release-ipvs" "1:1 2:3 4:1" \
		start --dont-release-ipvs

	# one that is really dead: its own flows are lost, no others
	flow c ping
	mine=$(value s1)
	ip -n "$(ns rt)" link set vs1 down
	wait_weights "a server dies: it is taken out" "2:3 4:1"
	flow_send new churn 3600
	flow c ping 6
	check "a server dies: its flows break, no others" "$mine" \
		"$(value broken)"
	flow new stop churn
	check "a server dies: no new flow failed afterwards" 0 \
		"$(value failed)"
	ip -n "$(ns rt)" link set vs1 up
	wait_weights "a dead server comes back" "1:1 2:3 4:1"

	stop
	configure "$algo" 1 2
	start --dont-release-ipvs
	check "control: what was edited between stop and start stays" \
		"1:1 2:3 4:1 " "$(weights)"

	# without the option, stop takes the service away
	stop
	dr ipvsadm -C
	start
	busywait 40 weights_are "1:1 2:1"
	wait_settled
	begin
	stop
	check "stop: the service is gone" "" "$(scheduler)"
	flow c ping
	check_cmp "control: without --dont-release-ipvs flows break" \
		"$(value broken)" -gt 0
}

# keepalived does not know the service, which was there before
made_before() {
	algo=wlc
	configure wlc 1 2
	dr ipvsadm -A -t $VIP4:80 -s mhs
	start --dont-release-ipvs
	wait_weights "made before: all servers are there" "1:1 2:1"
	wait_settled
	begin
	step "made before: reload" "1:1 2:1 3:1" reload 1 2 3
	check "made before: keepalived keeps the scheduler" mhs "$(scheduler)"
	more=flag-1 reload 1 2 3
	busywait 20 scheduler_is wlc
	result "control: a reload with other flags does not" $?
	stop
	dr ipvsadm -C
}

scheduler_is() {
	[ "$(scheduler)" = "$1" ]
}

# standby DIRECTOR: a service on it; long: that of the second director is two minutes old
standby() {
	learn "$1" < <(echo "-A -t $VIP4:85 -s mhs"; real_lines $VIP4:85 -g 1 2 3)
}

long() {
	[ $((SECONDS - standby_since)) -gt 121 ]
}

# early a server that is deleted counts as dead
deleted_on_standby() {
	flow_start h --host $VIP4 --port 85 --timeout 8
	standby dr
	flow h open 60
	flow h ping
	mine=$(value s3)
	busywait 150 long
	for n in dr d2; do
		in_ns $n ipvsadm -d -t $VIP4:85 -r 10.2.0.13:85
	done
	route_vip 30
	flow h ping
	check "a standby of two minutes: flows of a deleted server live" "60 0" \
		"$(value flows) $(value broken)"
	in_ns d2 ipvsadm -C
	standby d2
	in_ns d2 ipvsadm -d -t $VIP4:85 -r 10.2.0.13:85
	flow h ping
	check "control: one that has just begun takes it for dead" "$mine" \
		"$(value broken)"
}

need "${MHS_KEEPALIVED:-keepalived}" nft
modprobe -q ip_vs
count=33 option=""
[ -n "${MHS_KEEPALIVED:-}" ] || count=40 option=names=mhs,mh,sed
plan $count
# shellcheck disable=SC2086 # none, or one
fresh_module $option
setup_net 4
director d2 30
for i in 1 2 3; do
	lab serve "$(ns s$i)" s$i 85
done
standby d2
standby_since=$SECONDS
windows 600000 600000
defer stop
front_clients
algo=mhs
[ ! "$option" ] || algo=$(front_name)
note "mhs answers for $algo"
live
if [ "$option" ]; then
	made_before
	configure mhs 1 2
	start
	busywait 40 scheduler_is wlc
	result "control: this keepalived takes wlc for mhs" $?
	stop
fi
deleted_on_standby
