#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 150
# weight: 45
# A rolling update, each server in turn out (weight 0) and back, under new
# connections: none fails with mhs; mh refuses the share of the one that is out.

. "${0%/*}/lib.sh"

SVC6="[$VIP6]:80"

complaints() {
	dmesg | grep -c "IPVS: $1: TCP .* - no destination available"
}

services() {
	{
		echo "-A -t $VIP4:80 -s $*"
		real_lines $VIP4:80 -g 1 2 3 4
		echo "-A -t $SVC6 -s $*"
		real_lines "$SVC6" -i 1 2 3 4
	} | dr ipvsadm -R
}

# move SERVER WEIGHT: in both services, at once
move() {
	dr ipvsadm -R <<-EOF
		-e -t $VIP4:80 -r 10.2.0.$((10 + $1)):80 -g -w $2
		-e -t $SVC6 -r [fd02::$((10 + $1))]:80 -i -w $2
	EOF
}

# roll SECONDS: each server is out for so long, then back for so long
roll() {
	local i before

	before=$(complaints "$sched")
	flow_start a --host $VIP4 --timeout 3
	flow_start b --host $VIP6 --timeout 3
	flow_send a churn 100
	flow_send b churn 100
	for i in 1 2 3 4; do
		move $i 0
		sleep "$1"
		move $i 1
		sleep "$1"
	done
	flow a stop churn
	served=$(echo "$reply" | grep -o ' s[1-4]=' | wc -l)
	made=$(value "done")
	failed=$(value failed)
	slow=$(value slow)
	flow b stop churn
	made=$((made + $(value "done")))
	failed=$((failed + $(value failed)))
	slow=$((slow + $(value slow)))
	complained=$(($(complaints "$sched") - before))
	flow_end a
	flow_end b
}

plan 7
load_module
modprobe -q ipip
modprobe -q ip6_tunnel
setup_net 4
dr sysctl -qw net.ipv4.vs.mhs.hold_ms=3000 net.ipv4.vs.mhs.pin_ms=4000

sched=mhs
services mhs
wait_settled
wait_settled "$SVC6"
roll 1
check_cmp "new connections went on all the time" "$made" -ge 100
check "every server took its share" 4 "$served"
check "mhs: no connection failed" 0 "$failed"
check "mhs: none was slow" 0 "$slow"
check "mhs: no server was missed" 0 "$complained"
dr ipvsadm -C

sched=mh
services mh -b mh-port
roll 0.5
check_cmp "control: with mh connections fail" "$failed" -gt 0
check_cmp "control: mh finds no destination" "$complained" -gt 0
dr ipvsadm -C
