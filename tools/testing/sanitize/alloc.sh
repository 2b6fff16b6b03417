#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 200
# Every allocation of the control path fails once (alloc.py), and every
# allocation of entries for as long as a change lasts.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"
sanitize=$(cd "${0%/*}" && pwd)

[ -w /sys/kernel/debug/failslab/cache-filter ] || skip_all "no fault injection in this kernel"
modprobe -q ip_vs

plan 9
setup_ns al
ip_ns al <<-EOF
	link set lo up
	addr add $VIP4/32 dev lo
EOF
# the smallest tables come from slabs in one piece
in_ns al python3 "$sanitize/alloc.py" "$MHS_KO" table_size=251 >"$work/alloc"
status=$?
sed 's/^/# /' "$work/alloc"
result "every allocation of the control path may fail" $status
fresh_module

setup_net 3
windows 0 3600000
sysctls dr net.ipv4.vs.expire_nodest_conn=0
{ echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3; } | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4
flow c open 60
check "no entry before" 0 "$(conns)"
starve 100
weight 1 0
flow c ping
check "no memory for entries: older flows go on" 0 "$(value broken)"
check "no entry was made" 0 "$(conns)"
check_cmp "counted" "$(mhs NoMemory)" -gt 0
starve 0
flow c ping
check "memory is back: older flows go on" 0 "$(value broken)"
check_cmp "with entries" "$(conns)" -gt 0
flow c reset

# a server whose carrier finds no memory gets it later
server s4 14
starve 100
dr ipvsadm -a -t $VIP4:80 -r 10.2.0.14:80 -g -w 1
nap 0.5
starve 0
windows 0 100
to_rest() {
	in_state stable && [ "$(mhs Servers)" -eq 4 ]
}
busywait 30 to_rest
flow c open 60
flow c ping
check_cmp "a server without a carrier at first gets flows" "$(value s4)" -gt 0
check "no flow failed" 0 "$(value failed)"
flow_end c
