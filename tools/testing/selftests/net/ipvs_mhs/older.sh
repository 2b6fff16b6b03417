#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 55
# What was there before a service: entries of another service, and of the sync daemon,
# that the service's slots know nothing of.  Flows of another director: ecmp.sh; packets
# to a service without a server: the fuzzer of the packet path.

. "${0%/*}/lib.sh"

# synced: the second director has an entry for each flow
synced() {
	[ "$(in_ns d2 sed -n '$=' /proc/net/ip_vs_conn)" -gt 40 ]
}

plan 7
fresh_module table_size=509
setup_net 2
director d2 30
flow_start c --host $VIP4 --timeout 8

# Entries of a service for all ports
printf '%s\n' "-A -t $VIP4:0 -s rr -p 300" \
	"-a -t $VIP4:0 -r 10.2.0."{11,12}":0 -g -w 1" | dr ipvsadm -R
ip_ns cl < <(printf 'addr add 10.1.0.%d/24 dev eth0\n' {11..26})
for i in {11..26}; do
	flow_start "p$i" --host $VIP4 --bind "10.1.0.$i" --timeout 8
	flow "p$i" open 1 >/dev/null
done
# all_ping: their broken flows
all_ping() {
	broken=0
	for i in {11..26}; do
		flow "p$i" ping >/dev/null
		broken=$((broken + $(value broken)))
	done
}
all_ping
check "flows of a service for all ports" 0 "$broken"
batch=$(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2)
dr ipvsadm -R <<<"$batch"
wait_settled
check "then a service of mhs: every slot is looked up" "$(mhs Size)" \
	"$(mhs Tracked)"
all_ping
check "then a service of mhs: no flow broken" 0 "$broken"
flow c open 20
flow c ping
flow c reset
learn d2 <<<"$batch"
route_vip 30
all_ping
check_cmp "control: a director without the entries breaks some" "$broken" -gt 0
in_ns d2 ipvsadm -C
route_vip 10
dr ipvsadm -C

# Entries of a sync daemon that ended before there was a service
sysctls dr net.ipv4.vs.sync_threshold=0,1 net.ipv4.vs.sync_refresh_period=0
in_ns d2 ipvsadm --start-daemon backup --mcast-interface eth0
dr ipvsadm --start-daemon master --mcast-interface eth0
dr ipvsadm -R <<<"${batch/mhs/rr}"
flow c open 40
flow c ping
result "the sync daemon has told of the flows" "$(busywait 30 synced; echo $?)"
in_ns d2 ipvsadm --stop-daemon backup
dr ipvsadm --stop-daemon master
learn d2 <<<"$batch"
check "a service after the daemon: every slot is looked up" \
	"$(mhs Size $VIP4:80 d2)" "$(mhs Tracked $VIP4:80 d2)"
route_vip 30
flow c ping
check "a service after the daemon: no flow broken" "0 0" \
	"$(value broken) $(value moved)"
flow c reset
in_ns d2 ipvsadm -C
dr ipvsadm -C
