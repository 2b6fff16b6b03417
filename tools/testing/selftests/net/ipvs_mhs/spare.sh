#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 75
# What a second director takes for unused.  With traffic, a slot that had no
# packet for a pin time has no flow, and changes servers at once.  Without,
# after it, with no more than a probe, or in the sync backup role, the flows
# may be on the first director, so its slots are held.  A reply is a packet, too.

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

# held: slots, when it is drained on d2; it comes back
held() {
	weigh d2 -g 0
	mhs Hold "$VIP4:80" d2
	weigh d2 -g 1
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

plan 10
fresh_module table_size=509
setup_net 2
director d2 30
ip -n "$(ns cl)" addr add 10.1.0.3/24 dev eth0
ip_ns rt <<-EOF
	rule add from 10.1.0.3 lookup 100
	route add $VIP4/32 via 10.2.0.30 table 100
EOF
for n in dr d2; do
	# half a second from look to look, of which each counts when it has
	# three packets
	in_ns $n sysctl -qw net.ipv4.vs.mhs.hold_ms=3600000 \
		net.ipv4.vs.mhs.pin_ms=4000
done
services -g

traffic
nap 10
check_cmp "traffic: slots without a packet change at once" "$(held)" -le $PORTS
d2 ipvsadm --start-daemon backup --mcast-interface eth0 --syncid 9
nap 2
check_cmp "now a backup: all are held" "$(held)" -ge $LEAST
nap 10
check_cmp "backup: whatever the traffic" "$(held)" -ge $LEAST
d2 ipvsadm --stop-daemon backup
nap 10
check_cmp "a backup no more: at once again" "$(held)" -le $PORTS
quiet
nap 2
check_cmp "its traffic goes elsewhere: all are held" "$(held)" -ge $LEAST
traffic 2
nap 10
check_cmp "a probe is no traffic" "$(held)" -ge $LEAST
quiet

# Requests by the first, replies by the second, which has traffic of its own
dr ipvsadm -C
d2 ipvsadm -C
ip_ns s1 <<<"route replace default via 10.2.0.30"
ip_ns s2 <<<"route replace default via 10.2.0.30"
services -m
traffic 0 31000 # the others have entries of direct routing
flow_start c --host $VIP4 --timeout 8
flow c open 40
flow c busy 10
check_cmp "replies: by the other director" "$(mhs PktReply "$VIP4:80" d2)" -gt 40
check_cmp "replies: of both servers" "$(value s1)" -gt 5
weigh d2 -m 0
weigh dr -m 0
flow c ping
check "replies: no flow broken" "40 0" "$(value flows) $(value broken)"
quiet
check_cmp "replies: it had traffic of its own" "$(value "done")" -gt 40
