#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 20
# A short walk over what the bugs in bugs/ spoil: entries made by packets, a
# server forgotten, servers counted anew, the work of the namespace, a service
# deleted with its work waiting, the module gone.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

forgotten() {
	[ "$(mhs Gone)" -eq 0 ]
}

plan 5
fresh_module
setup_net 3
windows 0 3600000
{
	echo "-A -t $VIP4:80 -s mhs"
	add_servers 1 2 3
} | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4
flow c open 30
weight 1 0
flow c ping
check_cmp "packets made entries" "$(entries)" -gt 0
flow c reset
windows 0 100
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
busywait 30 forgotten
result "the server is forgotten" $?
nap 0.5

# other limit: the entries of all servers are counted anew
windows 0 3600000
flow c open 30
flow c ping
sysctls dr net.ipv4.vs.mhs.max_entries=1000
weight 2 0
flow c ping
check_cmp "packets made entries again" "$(entries)" -gt 0
flow_end c
sysctls dr net.ipv4.vs.conntrack=1
busywait 30 kernel_said "net.ipv4.vs.conntrack=1 makes"
result "the work of the namespace looks at the services" $?
dr ipvsadm -C
lab_stop
netns_del
busywait 60 try_unload
result "the module goes" $?
