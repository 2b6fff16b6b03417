#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 40
# tags: races
# A client that uses 20 source ports again and again while mhs takes its service over
# from mh and a server is drained and then deleted, behind a firewall that drops what
# belongs to no connection: none is slow, fails or meets the server.  With mh some do.
# Every sysctl, with packets made by hand: matrix.sh.  Persistence decides for ports that
# had an entry; flows whose server has older sockets of their ports begin.

. "${0%/*}/lib.sh"
need nft nstat

# cell METHOD [COMMAND]: slow, failed and wrong connections of a service of mh, with its
# fallback flag, else it refuses the server's share at once; the command comes first
cell() {
	local t impatient=""

	[ "${2:-}" ] || impatient=--impatient
	{
		echo "-A -t $VIP4:80 -s mh -b mh-port,mh-fallback"
		add_servers 1 2 | sed "s/ -g / $1 /"
	} | dr ipvsadm -R
	# other ports each time: entries outlive their service; mh's flows hang
	ports=$((ports + 100))
	flow_start c --host $VIP4 --timeout 3 --pause 0.01 \
		--ports "$ports-$((ports + 19))" ${impatient:-}
	flow_send c churn 3600
	until_more 25 opened cl
	${2:-:}
	weight 1 0 dr "$1"
	# a tick later: /proc/uptime counts in hundredths, and a connection begun just
	# before must not pass for one begun after
	t=$(awk '{ printf "%.2f", $1 + 0.02 }' /proc/uptime)
	until_more 20 opened cl
	dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
	until_more 25 opened cl
	flow c stop churn
	met=$(value s1) slow=$(value slow) failed=$(value failed)
	flow c since "$t"
	wrong=$(value s1)
	note "$(value "done") connections after the change"
	flow_end c
	dr ipvsadm -C
}

# take_over: by mhs from mh
take_over() {
	dr ipvsadm -E -t $VIP4:80 -s mhs
	wait_settled
}

# templates: those of persistent clients, with their servers.  A table that grows
# meanwhile is listed more than once.
templates() {
	dr ipvsadm -Lnc | awk '$4 == "10.1.0.2:0" { print $5, $6 }' | sort -u
}

plan 9
load_module
modprobe -q nft_ct
setup_net 2
windows 3600000 3600000
sysctls dr net.ipv4.vs.conn_reuse_mode=0 net.ipv4.vs.expire_nodest_conn=0

ports=20000
# The old entry's conntrack entry is not the new flow's
for s in s1 s2; do
	echo "route add 10.1.0.0/24 via 10.2.0.10" | ip_ns $s
done
sysctls dr net.ipv4.vs.conntrack=1
dr nft "table inet strict { chain in { type filter hook prerouting priority 0;
	ct state invalid drop; }; }"
dr sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0
cell -m take_over
check_cmp "the server was met before" "$met" -gt "$wrong"
check "no connection to it after, none slow, none failed" "0 0 0" \
	"$wrong $slow $failed"
dr nft delete table inet strict
for s in s1 s2; do
	echo "route del 10.1.0.0/24" | ip_ns $s
done
dr sysctl -qw net.ipv4.vs.conntrack=0

# Persistence decides where a new flow goes, whatever it leaves.  Without
# conn_reuse_mode no other than those of the deleted server ask for it.
{ echo "-A -t $VIP4:80 -s mh -b mh-port"; add_servers 1; } | dr ipvsadm -R
flow_start c --host $VIP4 --pause 0.01 --ports 30000-30019
flow_send c churn 3600
until_more 25 opened cl
dr ipvsadm -E -t $VIP4:80 -s mhs -p 300
add_servers 2 | dr ipvsadm -R
wait_settled
check "persistence: no template so far" "" "$(templates)"
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
until_more 25 opened cl
# On a slow machine an entry expires, and there is a template to that server, too
check "persistence: new flows leave entries for a template" 1 \
	"$(templates | grep -c " 10\.2\.0\.12:")"
flow c stop churn
flow_end c
dr ipvsadm -C

# A server may still have sockets of these ports, whose client went without a word.
# It answers a SYN by asking, and the client's RST must reach it.  The ports have
# claims of another server, which a SYN leaves.
{ echo "-A -t $VIP4:80 -s mhs"; add_servers 2; } | learn dr
flow_start old --host $VIP4
flow old open 10
flow old ping
flow old where
read -r first _ <<<"$reply"
first=${first%=*}
in_ns cl nft "add table inet mute; add chain inet mute lost { type filter hook \
	output priority 0; }; add rule inet mute lost tcp flags rst drop"
flow old reset
flow_end old
in_ns cl nft delete table inet mute
add_servers 1 | dr ipvsadm -R
weight 2 0
busywait 20 built
made=$(mhs NewEntries)
raw cl --dst $VIP4 --dports 80 --src 10.1.0.2 --ports "$first-$((first + 9))" \
	>/dev/null
made=$(($(mhs NewEntries) - made))
weight 2 1
weight 1 0
flow_start c --host $VIP4 --timeout 3 --pause 0.01 \
	--ports "$first-$((first + 9))"
flow_send c churn 3600
until_more 10 opened cl
flow c stop churn
check "older sockets: flows of their ports begin" "0 0" \
	"$(value failed) $(value s1)"
flow_end c
check "control: the ports had claims of another server" 10 "$made"
check_cmp "control: the older sockets were met" \
	"$(in_ns s2 nstat -asz TcpExtTCPSYNChallenge | awk 'END { print $2 }')" \
	-ge 10
dr ipvsadm -C

cell -g
check_cmp "control: with mh connections meet the drained server" \
	"$wrong" -gt 0
check_cmp "control: with mh connections to the deleted server hang" \
	$((slow + failed)) -gt 0
