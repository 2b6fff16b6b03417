#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 25
# No server takes new flows: older flows go on, new ones are refused at once,
# and the first server that comes back serves every key.

. "${0%/*}/lib.sh"

# refused: a new flow fails by an answer, not by a time-out
refused() {
	local before

	reply=$last
	before=$(value refused)
	flow r open 1
	last=$reply
	[ $(($(value refused) - before)) -eq 1 ]
}

refused_test() {
	refused
	result "$1" $?
}

# deletions NUMBER...: lines for ipvsadm -R
deletions() {
	printf -- "-d -t $VIP4:80 -r 10.2.0.1%d:80\n" "$@"
}

plan 13
load_module
setup_net 3
windows 3600000 3600000
flow_start r --host $VIP4 --timeout 8
last=""

dr ipvsadm -A -t $VIP4:80 -s mhs
refused_test "a service that never had a server refuses"
add_servers 1 2 | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4 --timeout 8
flow c open 40
flow c ping
check "flows opened" "40 0" "$(value flows) $(value broken)"

add_servers 1 2 | sed 's/^-a\(.*\)1$/-e\10/' | dr ipvsadm -R
refused_test "all of weight 0: new flows are refused"
flow c ping
check "all of weight 0: older flows go on" 0 "$(value broken)"
weight 1 1
busywait 20 in_state transition
flow c open 20
flow c ping
check "one back: it serves every new flow" "60 0" \
	"$(value flows) $(value broken)"
check "one back: none moved" 0 "$(value moved)"

deletions 1 2 | dr ipvsadm -R
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
deletions 1 2 | dr ipvsadm -R
flow e ping 4
check "control: mh cuts flows of deleted servers" 20 "$(value broken)"
