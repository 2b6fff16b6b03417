#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 60
# tags: races
# Flows outlive a restore of the configuration, a restart of the director and
# a director that is filled slowly while they send; with mh they do not.

. "${0%/*}/lib.sh"

# lines SCHEDULER: a service with 48 servers, twelve addresses of each namespace
lines() {
	local i n

	echo "-A -t $VIP4:80 -s $1"
	for n in {0..220..20}; do
		for i in 1 2 3 4; do
			echo "-a -t $VIP4:80 -r 10.2.0.$((n + 10 + i)):80 -g -w 1"
		done
	done
}

# restore: what stands on the director is saved, cleared and restored
restore() {
	dr ipvsadm -Sn >"$work/saved"
	dr ipvsadm -C
	"$@"
	learn dr <"$work/saved"
}

reload() {
	unload_module
	load_module
}

# fill SCHEDULER: the second director learns its servers one by one while the
# flows, which are sent to it, are busy.  They begin with the first server:
# where there is no service at all, the local stack resets them.  For a pause in
# its middle see learn().
fill() {
	local try

	for try in 1 2 3 4 5; do
		[ "$try" = 1 ] || fresh "$1"
		route_vip 30
		lines "$1" >"$work/lines"
		slowly <"$work/lines" | in_ns d2 ipvsadm -R
		flow_wait c "busy meanwhile"
		[ "$1" = mhs ] || break
		learnt d2 "-t $VIP4:80" && break
		note "settled too early, try $try"
	done
	flow c ping
}

# slowly: pass the lines on, and set the flows going with the first server
slowly() {
	local line n=0

	while read -r line; do
		echo "$line"
		n=$((n + 1))
		[ $((n % 4)) -ne 0 ] || nap 0.02 # why: slowly
		[ $n != 2 ] || { busywait 20 has_server; flow_send c busy 3; }
	done
}

has_server() {
	local net lines

	net_dir d2
	mapfile -t lines <"$net/ip_vs"
	[[ "${lines[*]:3}" = *-\>* ]]
}

# fresh SCHEDULER: new flows through the first director
fresh() {
	route_vip 10
	flow c reset
	dr ipvsadm -C
	in_ns d2 ipvsadm -C
	lines "$1" >"$work/lines"
	if [ "$1" = mhs ]; then
		learn dr <"$work/lines"
	else
		dr ipvsadm -R <"$work/lines"
	fi
	flow c open 80
	flow c ping
}

plan 10
load_module
setup_net 4
director d2 30
for i in 1 2 3 4; do
	for n in {20..220..20}; do
		echo "addr add 10.2.0.$((n + 10 + i))/24 dev eth0"
	done | ip_ns s$i
done
flow_start c --host $VIP4 --timeout 20

# Restored under flows that send nothing meanwhile
fresh mhs
check "flows opened" 80 "$(value flows)"
restore true
flow c ping
check "restore: no flow broken" 0 "$(value broken)"
check "restore: none moved" 0 "$(value moved)"
restore reload
flow c ping
check "restart: no flow broken" 0 "$(value broken)"
check "restart: none moved" 0 "$(value moved)"
restore reload
# the first server goes to weight 0, all its addresses
printf -- "-e -t $VIP4:80 -r 10.2.0.%d:80 -g -w 0\n" {11..231..20} | dr ipvsadm -R
flow c ping
check "restart, then a change: no flow broken" 0 "$(value broken)"

# Busy flows reach a director that has some of its servers
fresh mhs
fill mhs
check "slow fill: no flow broken" 0 "$(value broken)"
check_cmp "slow fill: packets were dropped meanwhile" \
	"$(mhs PktUnsettled $VIP4:80 d2)" -gt 0

# The same with mh: a restore finds the old entries, a new director has none
fresh "mh -b mh-port"
lines "mh -b mh-port" | in_ns d2 ipvsadm -R
route_vip 30
flow c ping
check "control: a new director of mh breaks all flows" 80 "$(value broken)"
fresh "mh -b mh-port"
sysctls d2 net.ipv4.vs.sloppy_tcp=1
fill "mh -b mh-port"
check_cmp "control: a slow fill of mh breaks flows" "$(value broken)" -gt 0
flow c reset
dr ipvsadm -C
in_ns d2 ipvsadm -C
