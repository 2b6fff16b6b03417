#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 55
# tags: races
# A client that uses 20 source ports again and again while a server is drained
# and then deleted: no connection is slow, fails or meets the server, whatever
# conn_reuse_mode and expire_nodest_conn are.  With mh some do.  Flows whose server
# has older sockets of their ports begin.

. "${0%/*}/lib.sh"
need nft nstat

# now: for "since".  A tick later: /proc/uptime counts in hundredths, and a
# connection begun just before must not pass for one begun after.
now() {
	local up

	read -r up _ </proc/uptime
	up=$((10#${up/./} + 2))
	echo "${up::-2}.${up: -2}"
}

# cell REUSE EXPIRE SCHEDULER...: slow, failed and wrong connections, with servers
# of $method; what $meanwhile does happens first
meanwhile=: method=-g
cell() {
	local t impatient=""

	sysctls dr net.ipv4.vs.conn_reuse_mode="$1" \
		net.ipv4.vs.expire_nodest_conn="$2"
	{
		echo "-A -t $VIP4:80 -s ${*:3}"
		add_servers 1 2 | sed "s/ -g / $method /"
	} | dr ipvsadm -R
	[ "$3" != mhs ] || wait_settled
	# other ports each time: entries outlive their service
	ports=$((ports + 100))
	# the control's flows hang
	[ "$3" = mhs ] || impatient=--impatient
	flow_start c --host $VIP4 --timeout 3 --pause 0.01 \
		--ports "$ports-$((ports + 19))" ${impatient:-}
	flow_send c churn 3600
	until_more 25 opened cl
	$meanwhile
	weight 1 0 dr $method
	t=$(now)
	until_more 20 opened cl
	dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
	until_more 25 opened cl
	flow c stop churn
	met=$(value s1)
	slow=$(value slow)
	failed=$(value failed)
	flow c since "$t"
	wrong=$(value s1)
	after=$(value "done")
	flow_end c
	dr ipvsadm -C
}

# take_over: by mhs from mh
take_over() {
	dr ipvsadm -E -t $VIP4:80 -s mhs
	wait_settled
}

# templates [TO]: those of persistent clients, to a server.  A table that grows
# meanwhile is listed more than once.
templates() {
	dr ipvsadm -Lnc | awk -v to="${1:-}" '$4 == "10.1.0.2:0" &&
		index($6, to) == 1 { print $5, $6 }' | sort -u | wc -l
}

# none_wrong NAME: of the last cell
none_wrong() {
	check_cmp "$1: the server was met before" "$met" -gt "$wrong"
	check "$1: no connection to it after, none slow, none failed" "0 0 0" \
		"$wrong $slow $failed"
	note "$after connections after the change"
}

plan 13
load_module
modprobe -q nft_ct
setup_net 2
windows 3600000 3600000

ports=20000
# matrix.sh has every combination, with packets made by hand
for cell in "1 0" "2 1"; do
	# shellcheck disable=SC2086
	cell $cell mhs
	none_wrong "conn_reuse_mode=${cell% *} expire_nodest_conn=${cell#* }"
done

# The old entry's conntrack entry is not the new flow's, by a firewall that drops
# what belongs to none
for s in s1 s2; do
	echo "route add 10.1.0.0/24 via 10.2.0.10" | ip_ns $s
done
sysctls dr net.ipv4.vs.conntrack=1
dr nft -f - <<-EOF
	table inet strict {
		chain in {
			type filter hook prerouting priority 0
			ct state invalid drop
		}
	}
	EOF
dr sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0
method=-m meanwhile=take_over
cell 0 0 mh -b mh-port,mh-fallback
method=-g meanwhile=:
none_wrong "vs.conntrack=1"
dr nft delete table inet strict
for s in s1 s2; do
	echo "route del 10.1.0.0/24" | ip_ns $s
done
dr sysctl -qw net.ipv4.vs.conntrack=0

# Persistence decides where a new flow goes, whatever it leaves.  Without
# conn_reuse_mode no other than those of the deleted server ask for it.
sysctls dr net.ipv4.vs.conn_reuse_mode=0 net.ipv4.vs.expire_nodest_conn=0
{ echo "-A -t $VIP4:80 -s mh -b mh-port"; add_servers 1; } | dr ipvsadm -R
flow_start c --host $VIP4 --pause 0.01 --ports 30000-30019
flow_send c churn 3600
until_more 25 opened cl
dr ipvsadm -E -t $VIP4:80 -s mhs -p 300
{ add_servers 2; } | dr ipvsadm -R
wait_settled
check "persistence: no template so far" 0 "$(templates)"
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
until_more 25 opened cl
# On a slow machine an entry expires, and there is a template to that server, too
check "persistence: new flows leave entries for a template" 1 \
	"$(templates 10.2.0.12:)"
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

# mh with its fallback flag, else it refuses the server's share at once
cell 0 0 mh -b mh-port,mh-fallback
check_cmp "control: with mh connections meet the drained server" \
	"$wrong" -gt 0
check_cmp "control: with mh connections to the deleted server hang" \
	$((slow + failed)) -gt 0
