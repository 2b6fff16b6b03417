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

# replies COUNT: that a masquerading server sends by itself, to as many ports
replies() {
	in_ns s1 env PYTHONPATH="$here" python3 -B -c "
import netlab
send = netlab.Sender()
for port in range(30000, 30000 + $1):
    send('10.1.0.2', netlab.tcp('10.2.0.11', 80, '10.1.0.2', port))"
}

# seen SOURCE: packets from there that the client got, of these ports: the servers
# of flows that have ended may repeat their last packets
seen() {
	in_ns cl nft list chain ip seen in |
		sed -n "s/.*saddr $1 .*counter packets \([0-9]*\).*/\1/p"
}

translated() {
	replies 50
	[ "$(seen $VIP4)" -ge 50 ]
}

plan 13
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
sysctls dr net.ipv4.vs.mhs.masq_stateless=1
windows 0 3600000
sysctls dr net.ipv4.vs.expire_nodest_conn=0
{ echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3; } | dr ipvsadm -R
wait_settled
flow_start c --host $VIP4
flow c open 60
check "no entry before" 0 "$(entries)"
starve 100
weight 1 0
flow c ping
check "no memory for entries: older flows go on" 0 "$(value broken)"
check "no entry was made" 0 "$(entries)"
check_cmp "counted" "$(mhs NoMemory)" -gt 0
starve 0
flow c ping
check "memory is back: older flows go on" 0 "$(value broken)"
check_cmp "with entries" "$(entries)" -gt 0
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

# no carrier for a masquerading server: what it sends by itself, without the
# virtual address, would make a client reset its flow
dr ipvsadm -C
ip -n "$(ns s1)" route add 10.1.0.0/24 via 10.2.0.10
in_ns cl nft -f - <<-EOF
	table ip seen {
		chain in {
			type filter hook prerouting priority 0
			ip saddr 10.2.0.11 tcp dport 30000-30999 counter
			ip saddr $VIP4 tcp dport 30000-30999 counter
		}
	}
	EOF
starve 100
{
	echo "-A -t $VIP4:80 -s mhs"
	echo "-a -t $VIP4:80 -r 10.2.0.11:80 -m"
} | dr ipvsadm -R
wait_settled
replies 50
check "a masquerading server without a carrier: no reply goes on" "0 0" \
	"$(seen 10.2.0.11) $(seen $VIP4)"
check_cmp "the replies are counted" "$(mhs NoMemory)" -ge 50
starve 0
result "memory is back: replies are translated" \
	"$(busywait 30 translated; echo $?)"
check "all of them" 0 "$(seen 10.2.0.11)"
