#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Flows without connections, by each method; with mh each has one.
# timeout: 120

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3 nft

# flows WHAT SCHEDULER METHOD ADDRESS CONNECTIONS SERVICE...
flows() {
	local what=$1 sched=$2 method=$3 address=$4 wanted=$5

	shift 5
	service "$sched" "$method" "$@"
	if [[ $what == UDP* ]]; then
		result "$what $sched: both servers answer" is 's1=* s2=*' \
			ask udp "$address" 80 60
	else
		result "$what $sched: both servers answer" is 's1=* s2=*' \
			ask open "$address" 80 60
		result "$what $sched: flows live" is 'alive=60 dead=0 moved=0' \
			ask check
		ask close >/dev/null
	fi
	result "$what $sched: connections" is "$wanted" conns
	[[ $what == UDP* ]] ||
		result "$what $sched: the statistics count all" \
			at_last 60 counted
}

ktap_print_header
ktap_set_plan 37
topology
flows "TCP by direct routing" mhs -g $VIP 0 -t $VIP:80
flows "TCP over IPv6" mhs -g $VIP6 0 -t "[$VIP6]:80"
flows "TCP by tunnel" mhs -i $VIP 0 -t $VIP:80
flows "UDP by direct routing" mhs -g $VIP 0 -u $VIP:80
director nft -f - <<-EOF
	table ip marking {
		chain in {
			type filter hook prerouting priority mangle;
			ip daddr $VIP meta mark set 7
		}
	}
EOF
flows "TCP by mark" mhs -g $VIP 0 -f 7
director nft -f - <<-EOF
	table ip marking {
		chain out {
			type route hook output priority mangle;
			ip saddr $VIP meta mark set 7
		}
	}
EOF
serve dr "$director"
local_server=$!
director sysctl -wq net.ipv4.vs.mhs.stateless=0 \
	net.ipv4.vs.expire_nodest_conn=1
ipvs -a -f 7 -r 10.0.0.2:0 -g
result "TCP by mark: a server on the director answers" is 'dr=* s1=* s2=*' \
	ask open $VIP 80 60
ask close >/dev/null
kill $local_server
ipvs -C
at_last 0 conns
director sysctl -wq net.ipv4.vs.mhs.stateless=1 \
	net.ipv4.vs.expire_nodest_conn=0
director nft delete table ip marking
director nft -f - <<-EOF
	table ip tracking {
		chain in {
			type filter hook input priority filter;
			ct state new accept
		}
	}
EOF
tracked() { director cat /proc/sys/net/netfilter/nf_conntrack_count; }
flows "TCP without conntrack" mhs -g $VIP 0 -t $VIP:80
result "TCP without conntrack: netfilter tracks none" is 0 tracked
director sysctl -wq net.ipv4.vs.conntrack=1
flows "TCP with conntrack" mhs -g $VIP 0 -t $VIP:80
result "TCP with conntrack: netfilter tracks them" is 60 tracked
director sysctl -wq net.ipv4.vs.conntrack=0
director nft delete table ip tracking
flows "TCP by direct routing" mh -g $VIP 60 -t $VIP:80
# with stateless=0 a new flow gets a connection, unless drop_packet drops it
director sysctl -wq net.ipv4.vs.am_droprate=1 net.ipv4.vs.drop_packet=3 \
	net.ipv4.vs.mhs.stateless=0
service mhs -g -t $VIP:80
result "drop_packet: instead of a new connection" \
	at_last failed=1 ask open $VIP 80 1
director sysctl -wq net.ipv4.vs.mhs.stateless=1
result "drop_packet: not without a connection" is 's1=* s2=*' \
	ask open $VIP 80 20
director sysctl -wq net.ipv4.vs.drop_packet=0 net.ipv4.vs.mhs.stateless=0
result "control: without it new connections come" \
	at_last 's?=1' ask open $VIP 80 1
director sysctl -wq net.ipv4.vs.mhs.stateless=1
ask close >/dev/null

service mhs -g -t $VIP:80
ask open $VIP 80 40 >/dev/null
ipvs -E -t $VIP:80 -s mhs -b flag-1,flag-2 -p 60
result "persistence: older flows live" is 'alive=40 dead=0 moved=0' ask check
ask close >/dev/null
ktap_finished
