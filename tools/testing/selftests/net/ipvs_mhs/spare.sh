#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 75
# What a second director takes for unused.  With traffic, a slot that had no
# packet for a pin time has no flow, and changes servers at once.  Without,
# after it, with no more than a probe, or in the sync backup role, the flows
# may be on the first director, so its slots are held.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

readonly LEAST=200 # of about 254 slots of a server
readonly PORTS=40

# d2 COMMAND...
d2() {
	in_ns d2 "$@"
}

# services METHOD: on both
services() {
	local n

	for n in dr d2; do
		learn $n <<-EOF
			-A -t $VIP4:80 -s mhs
			-a -t $VIP4:80 -r 10.2.0.11:80 $1 -w 1
			-a -t $VIP4:80 -r 10.2.0.12:80 $1 -w 1
		EOF
	done
}

# weigh NAMESPACE METHOD WEIGHT: the first server
weigh() {
	in_ns "$1" ipvsadm -e -t $VIP4:80 -r 10.2.0.11:80 "$2" -w "$3"
}

# held [METHOD]: slots, when it is drained on d2; it comes back.  When marks come
# between the two changes the way back is held, and later drains are none: who waits
# for marks may not look again and again.
held() {
	weigh d2 "${1:--g}" 0
	mhs Hold "$VIP4:80" d2
	weigh d2 "${1:--g}" 1
}

# at_once [METHOD]: does its drain change most slots at once, when marks have had
# the time to go?  A drain that holds renews them, and so does a pause.
at_once() {
	local try

	for try in 1 2 3 4; do
		nap 10 # why: see held
		[ "$(held "$@")" -gt $((2 * PORTS)) ] || return 0
	done
	return 1
}

# pin_ms MILLISECONDS: an eighth is the time from look to look
pin_ms() {
	d2 sysctl -qw net.ipv4.vs.mhs.pin_ms="$1"
}

# traffic [PAUSE [PORT]]: short flows by d2, from here to quiet
traffic() {
	local port=${2:-30000}

	flow_start b --host $VIP4 --bind 10.1.0.3 --pause "${1:-0}" \
		--ports "$port-$((port + PORTS - 1))"
	flow_send b churn 3600
}

quiet() {
	flow b stop churn
	flow_end b
}

plan 8
fresh_module table_size=509
setup_net 2
director d2 30
ip -n "$(ns cl)" addr add 10.1.0.3/24 dev eth0
ip_ns rt <<-EOF
	rule add from 10.1.0.3 lookup 100
	route add $VIP4/32 via 10.2.0.30 table 100
EOF
for n in dr d2; do
	in_ns $n sysctl -qw net.ipv4.vs.mhs.hold_ms=3600000
done
pin_ms 4000
services -g

traffic
result "traffic: slots without a packet change at once" \
	"$(at_once; echo $?)"
d2 ipvsadm --start-daemon backup --mcast-interface eth0 --syncid 9
nap 2 # why: see held, mhs looks twice a second
check_cmp "now a backup: all are held" "$(held)" -ge $LEAST
nap 10 # why: other marks would have gone
check_cmp "backup: whatever the traffic" "$(held)" -ge $LEAST
d2 ipvsadm --stop-daemon backup
result "a backup no more: at once again" "$(at_once; echo $?)"
pin_ms 40000
nap 7 # why: see held, mhs looks once more in five seconds
check_cmp "a longer pin time: all are held" "$(held)" -ge $LEAST
pin_ms 4000
result "a short one again: at once" "$(at_once; echo $?)"
quiet
nap 2 # why: see held, mhs looks twice a second
check_cmp "its traffic goes elsewhere: all are held" "$(held)" -ge $LEAST
traffic 1
nap 10 # why: other marks would have gone
check_cmp "a probe is no traffic" "$(held)" -ge $LEAST
quiet

