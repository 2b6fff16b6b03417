#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 150
# weight: 45
# No server takes new flows: older flows go on, new ones are refused at once,
# and the first server that comes back serves every key.

. "${0%/*}/lib.sh"

# refused: a new flow fails quickly, not by a time-out
refused() {
	local start=$SECONDS

	in_ns cl python3 - $VIP4 <<-'EOF'
		import socket, sys
		try:
		    socket.create_connection((sys.argv[1], 80), timeout=8)
		except ConnectionRefusedError:
		    sys.exit(0)
		sys.exit(1)
	EOF
	# shellcheck disable=SC2181
	[ $? -eq 0 ] && [ $((SECONDS - start)) -lt 8 ]
}

refused_test() {
	refused
	result "$1" $?
}

plan 13
load_module
setup_net 3
dr sysctl -qw net.ipv4.vs.mhs.hold_ms=20000 net.ipv4.vs.mhs.pin_ms=30000

dr ipvsadm -A -t $VIP4:80 -s mhs
refused_test "a service that never had a server refuses"
add_servers 1 2 | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4 --timeout 8
flow c open 60
flow c ping
check "flows opened" "60 0" "$(value flows) $(value broken)"

weight 1 0
weight 2 0
refused_test "all of weight 0: new flows are refused"
flow c ping
check "all of weight 0: older flows go on" 0 "$(value broken)"
weight 1 1
busywait 20 in_state transition
flow c open 20
flow c ping
check "one back: it serves every new flow" "80 0" \
	"$(value flows) $(value broken)"
check "one back: none moved" 0 "$(value moved)"

dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.12:80
refused_test "all deleted: new flows are refused"
flow c ping
check "all deleted: older flows are held" 0 "$(value broken)"

# the sorry server comes, and goes when a real one is back
add_servers 3 | dr ipvsadm -R
flow_start d --host $VIP4 --timeout 8
flow d open 20
flow d ping
check "sorry server serves new flows" 20 "$(value s3)"
add_servers 1 | dr ipvsadm -R
dr ipvsadm -e -t $VIP4:80 -r 10.2.0.13:80 -g -w 0
flow d open 20
flow d ping
check "sorry server out: flows stay, new ones elsewhere" "20 20 0" \
	"$(value s3) $(value s1) $(value broken)"
flow c ping
check "swaps: the oldest flows go on" "0 0" "$(value broken) $(value moved)"

# the control: mh with every server deleted cuts what is under way
dr ipvsadm -C
{ echo "-A -t $VIP4:80 -s mh -b mh-port"; add_servers 1 2; } | dr ipvsadm -R
flow_start e --host $VIP4 --timeout 8
flow e open 20
flow e ping
check "control: mh serves" "20 0" "$(value flows) $(value broken)"
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.12:80
flow e ping
check "control: mh cuts flows of deleted servers" 20 "$(value broken)"
