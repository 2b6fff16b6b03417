#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 55
# What was there before a service: connections of the host itself to the address,
# while the service has no server; entries of another service, and of the sync daemon,
# that the service's slots know nothing of.  Flows of another director: ecmp.sh.

. "${0%/*}/lib.sh"

# broken_by SERVICE...: flows of the host itself that a service breaks
broken_by() {
	flow h open 10
	flow h ping
	dr ipvsadm -R < <(printf '%s\n' "$@")
	flow h ping
	broken=$(value broken)
	flow h reset
	dr ipvsadm -D -t $VIP4:82
}

# synced: the second director has an entry for each flow
synced() {
	[ "$(in_ns d2 sed -n '$=' /proc/net/ip_vs_conn)" -gt 40 ]
}

plan 10
fresh_module table_size=509
setup_net 2
director d2 30
lab serve "$(ns dr)" dr 82
flow_start h --host $VIP4 --port 82 --timeout 4
flow_start c --host $VIP4 --timeout 8

# No server yet
broken_by "-A -t $VIP4:82 -s rr"
check "a service of rr without servers: connections of the host live" 0 \
	"$broken"
broken_by "-A -t $VIP4:82 -s mhs"
check "a service of mhs without servers: they live" 0 "$broken"
broken_by "-A -t $VIP4:82 -s mhs" \
	"-a -t $VIP4:82 -r 10.2.0.11:82 -g -w 1"
check "control: with a server they do not" 10 "$broken"

# Entries of a service for all ports
dr ipvsadm -R <<-EOT
	-A -t $VIP4:0 -s rr -p 300
	-a -t $VIP4:0 -r 10.2.0.11:0 -g -w 1
	-a -t $VIP4:0 -r 10.2.0.12:0 -g -w 1
EOT
ip_ns cl < <(printf 'addr add 10.1.0.%d/24 dev eth0\n' {11..26})
for i in {11..26}; do
	flow_start "p$i" --host $VIP4 --bind "10.1.0.$i" --timeout 8
	flow "p$i" open 1 >/dev/null
	flow "p$i" ping >/dev/null
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
