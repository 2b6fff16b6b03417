#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 30
# What users of other schedulers report to go wrong: no server takes new flows, which are
# refused at once while older ones go on; a sorry server that is not needed any more,
# directors that are servers of each other; a TTL that is nearly over.  TCP fast open:
# strangers.py; IP options: the fuzzer of the packet path.

. "${0%/*}/lib.sh"

# sorry SCHEDULER: the only server fails, a sorry server takes its place, and the
# server comes back, as keepalived does it
sorry() {
	local patient="--timeout 5"

	[ "$1" = mhs ] || patient="--timeout 0.5 --impatient"
	dr ipvsadm -C
	learn dr < <(echo "-A -t $VIP4:80 -s $1"; add_servers 1)
	dr ipvsadm -a -t $VIP4:80 -r 127.0.0.1:80 -g
	dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
	# shellcheck disable=SC2086 # several words
	flow_start c --host $VIP4 $patient
	flow c open 4
	flow c ping
	check "${1% -b*}: the sorry server serves" "4 0" "$(value sorry) $(value broken)"
	dr ipvsadm -a -t $VIP4:80 -r 10.2.0.11:80 -g
	dr ipvsadm -d -t $VIP4:80 -r 127.0.0.1:80
	flow c ping
}

# nodes SCHEDULER: a service on two directors that are both its servers
nodes() {
	for n in dr d2; do
		in_ns $n ipvsadm -C
		learn $n < <(echo "-A -t $VIP4:80 -s $1"; add_servers 0 10)
	done
}

# refused NAME: a new flow fails by an answer, not by a time-out
refused() {
	local before

	reply=$last
	before=$(value refused)
	flow r open 1
	last=$reply
	check "$1" 1 $(($(value refused) - before))
}

plan 16
load_module
setup_net 2
windows 600000 600000

# No server takes new flows
flow_start r --host $VIP4 --timeout 8
last=""

dr ipvsadm -A -t $VIP4:80 -s mhs
refused "a service that never had a server refuses"
add_servers 1 2 | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4 --timeout 8
flow c open 40
flow c ping

add_servers 1 2 | sed 's/^-a\(.*\)1$/-e\10/' | dr ipvsadm -R
refused "all of weight 0: new flows are refused"
flow c ping
check "all of weight 0: older flows go on" 0 "$(value broken)"
weight 1 1
busywait 20 in_state transition
flow c open 20
flow c ping
check "one back: it serves every new flow" "60 0" \
	"$(value flows) $(value broken)"

printf -- "-d -t $VIP4:80 -r 10.2.0.1%d:80\n" 1 2 | dr ipvsadm -R
refused "all deleted: new flows are refused"
flow c ping
check "all deleted: older flows are held" 0 "$(value broken)"

# what mh does then: strangers.py

for c in r c; do
	flow $c reset
	flow_end $c
done

# A sorry server
lab serve "$(ns dr)" sorry
sorry mhs
check "mhs: its flows go on when it is not needed any more" "0 4" \
	"$(value broken) $(value sorry)"
flow c open 4
flow c ping
check "mhs: new ones are the server's" "4 4 0" \
	"$(value s1) $(value sorry) $(value broken)"
flow c reset
flow_end c
sorry "mh -b mh-port"
check "control: mh: its flows hang" 4 "$(value broken)"
flow c reset
flow_end c

# Directors that are servers of each other
director d2 20
lab serve "$(ns d2)" other
nodes mhs
conns_begin
flow_start n --host $VIP4 --timeout 5
flow n open 40
flow n ping
check "two nodes: all are served" "40 0 0" \
	"$(value flows) $(value broken) $(value failed)"
check "two nodes: by both" yes "$([ "$(value sorry)" -gt 5 ] &&
	[ "$(value other)" -gt 5 ] && echo yes)"
check "two nodes: no entry on either" "0 0" "$(conns_new) $(conns d2)"
flow n reset
flow_end n
nodes rr
flow_start n --host $VIP4 --timeout 0.5 --impatient
flow n open 6
check_cmp "control: rr: nodes send packets back and forth" "$(value failed)" -gt 0
flow n reset
flow_end n

# The router takes one, the director another
dr ipvsadm -C
learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1)
flow_start t --host $VIP4 --timeout 3
for ttl in 3 2; do
	sysctls cl net.ipv4.ip_default_ttl=$ttl
	flow t open 1
done
check "a TTL that is just enough; control: one that is over" "1 1" \
	"$(value flows) $(value failed)"

dr ipvsadm -C
in_ns d2 ipvsadm -C
