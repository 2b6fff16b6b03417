#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 240
# weight: 40
# Slots in which a director saw no packet may have flows of another director.  A change
# of servers holds them, whatever the traffic in other slots, so flows that come over in
# the transition go on.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

readonly LEAST=200 # of about 254 slots of a server

# both COMMAND...
both() {
	in_ns dr "$@"
	in_ns d2 "$@"
}

# windows HOLD PIN
windows() {
	both sysctl -qw net.ipv4.vs.mhs.hold_ms="$1" net.ipv4.vs.mhs.pin_ms="$2"
}

# merged: on the second director
merged() {
	[ "$(mhs State $VIP4:80 d2)" = stable ]
}

plan 6
fresh_module table_size=509
setup_net 2
director d2 30
ip -n "$(ns cl)" addr add 10.1.0.3/24 dev eth0
ip_ns rt <<-EOT
	rule add from 10.1.0.3 lookup 100
	route add $VIP4/32 via 10.2.0.30 table 100
EOT
windows 3600000 1000
for n in dr d2; do
	learn $n < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2)
done
flow_start c --host $VIP4 --timeout 8
flow c open 200
flow c ping
mine=$(value s1)
check "flows by the first director" "200 0" "$(value flows) $(value broken)"

# Short flows by the second director from few ports, for many pin times
flow_start b --host $VIP4 --bind 10.1.0.3 --ports 30000-30039
flow_send b churn 3600
nap 12 # why: traffic in other slots for many pin times is the matter
both ipvsadm -e -t $VIP4:80 -r 10.2.0.11:80 -g -w 0
check_cmp "the second one holds the slots, too" "$(mhs Hold $VIP4:80 d2)" \
	-ge $LEAST
flow b stop churn
route_vip 30
flow c ping
check "they come over: none broken, none moved" "0 0" \
	"$(value broken) $(value moved)"
check_cmp "control: flows of the server that left" "$mine" -gt 50
flow_end b

windows 0 0
both ipvsadm --set 1 1 0
result "merged" "$(busywait 30 merged; echo $?)"
flow c ping
check "control: after the transition they break" "$mine" "$(value broken)"
flow c reset
