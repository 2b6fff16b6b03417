#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 400
# weight: 100
# cpus: 2
# memory: 1G
# Servers, services, namespaces and the module come and go at any moment, under
# traffic of every kind; afterwards nothing is left.

. "${0%/*}/lib.sh"

: "${TORTURE_S:=30}"	# seconds
stop=$((SECONDS + TORTURE_S))

# loop NAME COMMAND...: until the time is over; counts its rounds
loop() {
	local name=$1 n=0

	shift
	while [ "$SECONDS" -lt "$stop" ]; do
		"$@" >/dev/null 2>&1
		n=$((n + 1))
		echo $n >"$work/$name.rounds"
	done
}

rounds() {
	cat "$work/$1.rounds" 2>/dev/null || echo 0
}

# one change of the IPv4 service in dr
change() {
	local s=10.2.0.$((11 + RANDOM % 3)):80

	case $((RANDOM % 12)) in
	0 | 1 | 2) dr ipvsadm -e -t $VIP4:80 -r $s -g -w $((RANDOM % 3)) ;;
	3 | 4) dr ipvsadm -d -t $VIP4:80 -r $s ;;
	5 | 6 | 7) dr ipvsadm -a -t $VIP4:80 -r $s -g -w 1 ;;
	8) dr ipvsadm -e -t $VIP4:80 -r $s -i -w 1 ;;
	9) dr ipvsadm -e -t $VIP4:80 -r $s -g -w 1 -x $((RANDOM % 2 * 100)) ;;
	10)
		dr ipvsadm -E -t $VIP4:80 -s wlc
		dr ipvsadm -E -t $VIP4:80 -s mhs -b flag-$((1 + RANDOM % 3))
		;;
	11)
		dr ipvsadm -C
		base | dr ipvsadm -R
		;;
	esac
}

base() {
	echo "-A -t $VIP4:80 -s mhs"
	add_servers 1 2 3
	echo "-A -t [$VIP6]:80 -s mhs"
	echo "-a -t [$VIP6]:80 -r [fd02::11]:80 -g -w 1"
	echo "-A -u $VIP4:80 -s mhs"
	echo "-a -u $VIP4:80 -r 10.2.0.11:80 -g -w 1"
	echo "-A -f 7 -s mhs"
	echo "-a -f 7 -r 10.2.0.12:80 -g -w 1"
}

knobs() {
	local d=/proc/sys/net/ipv4/vs

	dr sh -c "echo $((RANDOM % 3 * 500)) >$d/mhs/hold_ms
		echo $((RANDOM % 3 * 700)) >$d/mhs/pin_ms
		echo $((RANDOM % 2 * 1000)) >$d/mhs/max_entries
		echo $((RANDOM % 2)) >$d/expire_nodest_conn
		echo $((RANDOM % 3)) >$d/conn_reuse_mode
		echo $((RANDOM % 2)) >$d/conntrack
		cat /proc/net/ip_vs_mhs; ipvsadm -Ln --stats"
}

# a namespace that dies in mid-transition, with entries and carriers
namespace() {
	local n

	n=$(ns "x$RANDOM")
	ip netns add "$n"
	ip -n "$n" link set lo up
	ip -n "$n" addr add $VIP4/32 dev lo
	ip -n "$n" link add d0 type dummy
	ip -n "$n" addr add 10.2.0.9/24 dev d0
	ip -n "$n" link set d0 up
	base | nsenter "--net=/run/netns/$n" ipvsadm -R
	nsenter "--net=/run/netns/$n" hping3 -q -S -c 20 -i u1000 -p 80 $VIP4
	nsenter "--net=/run/netns/$n" ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
	nsenter "--net=/run/netns/$n" hping3 -q -S -c 20 -i u1000 -p 80 $VIP4
	ip netns del "$n"
}

flood() {
	in_ns rt hping3 -q "$@" -c 300 -i u500 -p 80 --rand-source $VIP4
}

plan 9
load_module
setup_net 3
base | dr ipvsadm -R
stop=$((SECONDS + TORTURE_S))
pids=()
for job in "change change" "knobs knobs" "namespace namespace" \
	"syn flood -S" "ack flood -A" "rst flood -R"; do
	# shellcheck disable=SC2086
	loop $job &
	pids+=($!)
done
flow_start c --host $VIP4 --timeout 2
flow c churn "$TORTURE_S"
served=$(value "done")
wait "${pids[@]}"

for name in change knobs namespace syn ack rst; do
	check_cmp "$name went on, rounds" "$(rounds $name)" -gt 0
done
check_cmp "connections were made meanwhile" "$served" -gt 5

dr ipvsadm -C
no_services() {
	! grep -q ' mhs ' /proc/net/ip_vs && rmmod ip_vs_mhs
}
busywait 30 no_services
result "the module goes" $?
flow_end c
lab_stop	# it keeps the namespaces
for n in cl rt dr s1 s2 s3; do
	in_ns $n ipvsadm -C 2>/dev/null
	ip netns del "$(ns $n)"
done

# A dying namespace waits until its last entry and carrier is gone, and the
# next one waits for it: when a namespace made now dies, all others have.
last=$(ns last)
ip netns add "$last"
ip link add mhs-last type veth peer name eth0 netns "$last"
ip netns del "$last"
nothing_left() {
	[ ! -e /sys/class/net/mhs-last ]
}
busywait 90 nothing_left
result "entries and carriers are gone, namespaces too" $?
