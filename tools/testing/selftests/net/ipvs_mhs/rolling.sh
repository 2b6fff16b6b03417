#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 45
# A rolling update, each server in turn out (weight 0) and back, under new
# connections: none fails with mhs; mh refuses the share of the one that is out.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

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

# turn N WEIGHT CONNECTIONS: one change, under so many new connections; with mhs
# through all phases
turn() {
	[ "$sched" != mhs ] || windows 3600000 3600000
	move "$1" "$2"
	until_more "$3" opened cl
	if [ "$sched" = mhs ]; then
		to_pin
		until_more 4 opened cl
		to_stable
	fi
}

# roll CONNECTIONS: each server is out for so many, then back
roll() {
	local i more=()

	# the control's flows fail
	[ "$sched" = mhs ] || more=(--impatient)
	dmesg -C
	flow_start a --host $VIP4 --timeout 3 --pause 0.03 "${more[@]}"
	flow_start b --host $VIP6 --timeout 3 --pause 0.03 "${more[@]}"
	flow_send a churn 3600
	flow_send b churn 3600
	for i in 1 2 3 4; do
		turn $i 0 "$1"
		turn $i 1 4
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
	complained=$(complaints "$sched")
	flow_end a
	flow_end b
}

plan 7
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4

sched=mhs
services mhs
wait_settled "$SVC4"
wait_settled "$SVC6"
roll 30
check_cmp "new connections went on all the time" "$made" -ge 100
check "every server took its share" 4 "$served"
check "mhs: no connection failed" 0 "$failed"
check "mhs: none was slow" 0 "$slow"
check "mhs: no server was missed" 0 "$complained"
dr ipvsadm -C

sched=mh
services mh -b mh-port
roll 15
check_cmp "control: with mh connections fail" "$failed" -gt 0
check_cmp "control: mh finds no destination" "$complained" -gt 0
dr ipvsadm -C
