#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 20
# A short walk over what the bugs in bugs/ spoil: a lane without a way, entries made by
# packets, a server forgotten, servers counted anew, the work of the namespace, a
# service deleted with its work waiting, the module gone.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

forgotten() {
	[ "$(mhs Gone)" -eq 0 ]
}

carriers_lack() {
	[ "$(mhs NoMemory)" -gt 0 ]
}

# lane_saw WORD: ACKs of no flow to port 81, many for a slot, which is in
# use after the first; did the lane count them so?
lane_saw() {
	in_ns cl python3 -S "$here/raw.py" --src 10.1.0.2 --ports 3000-3003 \
		--flags A A A A A A A A A A A A A A A A \
		--dst $VIP4 --dports 81 >/dev/null
	dr awk -v w="$1" '$1 == w { exit $2 < 100 }' /proc/net/ip_vs_mhs_lane
}

plan 7
fresh_module
setup_net 3
# no memory for the carrier of a server: the lane has no way to it.  Entries would
# have the lane look for them first.
sysctls dr net.ipv4.vs.mhs.{lane=1,ingress=eth0}
starve 100
dr ipvsadm -R <<-EOF
	-A -t $VIP4:81 -s mhs
	-a -t $VIP4:81 -r 10.2.0.12:81 -g
EOF
wait_settled $VIP4:81
busywait 30 lane_saw Decision
result "without a carrier the lane leaves packets to the stack" $?
starve 0
busywait 30 lane_saw Forwarded
result "with a carrier it forwards them" $?
sysctls dr net.ipv4.vs.mhs.lane=0
dr ipvsadm -C

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
check_cmp "packets made entries" "$(conns)" -gt 0
flow c reset
windows 0 100
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
busywait 30 forgotten
result "the server is forgotten" $?
nap 0.5

# at the limit the entries of all servers are counted anew
windows 0 3600000
flow c open 30
flow c ping
sysctls dr net.ipv4.vs.mhs.max_entries=4
weight 2 0
flow c ping
check_cmp "packets made entries again" "$(conns)" -gt 0
flow_end c

# it replaces the carriers, for which there is no memory
starve 100
sysctls dr net.ipv4.vs.conntrack=1
busywait 30 carriers_lack
result "the work of the namespace looks at the services" $?
starve 0
dr ipvsadm -C
lab_stop
netns_del
busywait 60 try_unload
result "the module goes" $?
