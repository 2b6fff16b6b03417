#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 200
# keepalived drives mhs: servers that fail and recover, reloads, a restart and a
# stop break no flow of a healthy server.  It is told of mhs in one of three
# ways: names=, a service made before it starts, or MHS_KEEPALIVED=, a
# keepalived that knows mhs.

. "${0%/*}/lib.sh"

. "${0%/*}/lib_front.sh"

reload() {
	configured kill -HUP "$(<"$pid")"
}

# ill SERVER, well SERVER: it answers health checks with resets, and clients as
# before
ill() {
	in_ns "s$1" nft -f - <<-EOF
		table inet ill {
			chain in {
				type filter hook input priority 0
				ip saddr 10.2.0.10 tcp dport 80 reject with tcp reset
			}
		}
	EOF
}

well() {
	in_ns "s$1" nft delete table inet ill
}

# other_file SERVER[:LINE]...: a reload with these
other_file() {
	configure "$algo" "$@"
	reload
}

# step NAME WEIGHTS COMMAND...: under short flows; keepalived makes these weights of it,
# if given
step() {
	short_flows
	"${@:3}"
	[ -z "$2" ] || wait_weights "$1: $2" "$2"
	none_broken "$1"
}

# A service with every kind of change; $algo is what the file says
live() {
	configure "$algo" 1 2 3
	start --dont-release-ipvs
	wait_weights "started: all servers are there" "1:1 2:1 3:1"
	check "the service has the scheduler that the file names" "$algo" \
		"$(scheduler)"
	wait_settled
	check "it is mhs" stable "$(mhs State)"
	begin

	step "a server fails" "2:1 3:1" ill 1
	step "it recovers" "1:1 2:1 3:1" well 1
	step "reload" "" other_file 1 2 3:inhibit_on_failure
	step "inhibit_on_failure" "1:1 2:1 3:0" ill 3
	step "inhibit_on_failure, recovered" "1:1 2:1 3:1" well 3
	step "reload, one more, one less, a weight" "1:1 2:3 4:1" \
		other_file 1 "2:weight 3" 4
	step "stop, with --dont-release-ipvs" "" stop
	step "restart, with --dont-release-ipvs" "1:1 2:3 4:1" start "${kept[@]}"

	# one that is really dead: its own flows are lost, no others
	flow c ping
	mine=$(value s1)
	ip -n "$(ns rt)" link set vs1 down
	wait_weights "a server dies: it is taken out" "2:3 4:1"
	short_flows
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
	start "${kept[@]}"
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
	flow c reset
}

# keepalived does not know the service, which was there before
made_before() {
	more="" configure wlc 1 2
	dr ipvsadm -A -t $VIP4:80 -s mhs
	start --dont-release-ipvs
	wait_weights "made before: all servers are there" "1:1 2:1"
	check "made before: keepalived keeps the scheduler" mhs "$(scheduler)"
	wait_settled
	begin
	short_flows
	configure wlc 1 2 3
	reload
	wait_weights "made before: reload" "1:1 2:1 3:1"
	none_broken "made before: reload"
	check "made before: reload keeps the scheduler" mhs "$(scheduler)"
	more=flag-1 configure wlc 1 2 3
	reload
	busywait 20 is_wlc
	check "control: a reload with other flags does not" wlc "$(scheduler)"
	stop
	dr ipvsadm -C
	flow c reset
}

# A reload edits a service whose scheduler changes: one way, and the other
from_wlc() {
	configure wlc 1 2 3
	start --dont-release-ipvs
	wait_weights "from wlc: all servers are there" "1:1 2:1 3:1"
	begin
	configure "$algo" 1 2 3
	reload
	busywait 20 is_mhs
	check "from wlc: a reload changes the scheduler" "$algo" "$(scheduler)"
	wait_settled
	busywait 20 counted 60
	result "from wlc: it is the same service, which goes on counting" $?
	flow c ping
	check "from wlc: no flow broken" 0 "$(value broken)"
	begin
	configure wlc 1 2 3
	reload
	busywait 20 is_wlc
	flow c ping
	check "control: back to wlc: flows without an entry break" 60 \
		"$(value broken)"
	stop
	dr ipvsadm -C
	flow c reset
}

# connections: of the service so far; the kernel sums them up every two seconds
connections() {
	dr ipvsadm -Ln --stats --exact |
		awk -v "s=$VIP4:80" '$2 == s { print $3 }'
}

counted() {
	[ "$(connections)" -ge "$1" ]
}

is_mhs() {
	[ -n "$(mhs State)" ]
}

is_wlc() {
	[ "$(scheduler)" = wlc ]
}

there() {
	[ -n "$(scheduler)" ]
}

need "${MHS_KEEPALIVED:-keepalived}" nft
modprobe -q ip_vs
if [ -n "${MHS_KEEPALIVED:-}" ]; then
	plan 37
	fresh_module
else
	plan 45
	fresh_module names=mhs,mh,sed
fi
setup_net 4
windows 600000 600000
defer stop
front_clients
if [ -n "${MHS_KEEPALIVED:-}" ]; then
	algo=mhs
	live
	from_wlc
else
	algo=$(front_name)
	note "mhs answers for $algo"
	live
	from_wlc
	made_before
	configure mhs 1 2
	start
	busywait 40 there
	check "control: this keepalived takes wlc for mhs" wlc "$(scheduler)"
	stop
fi
flow_end c
flow_end new
