#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Flows without connections, by each method and protocol; with mh, and where mhs
# needs them, each has one.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3 nft

# flows "PROTOCOL ..." SCHEDULER METHOD ADDRESS CONNECTIONS SERVICE...
flows() {
	local what=$1 sched=$2 method=$3 address=$4 wanted=$5
	local protocol=${1%% *} port=80 begins=hi

	shift 5
	if [ "$protocol" = QUIC ]; then
		protocol=udp port=443 begins=initial
	fi
	service "$sched" "$method" "$@"
	result "$what $sched: both servers answer" is 's1=* s2=*' \
		ask "${protocol,,}" "$address" $port 60 $begins
	result "$what $sched: flows live" is 'alive=60 dead=0 moved=0' \
		ask check
	ask close >/dev/null
	result "$what $sched: connections" is "$wanted" conns
	[[ $what == UDP* ]] ||
		result "$what $sched: the statistics count all" \
			at_last 60 counted
}

ktap_print_header
ktap_set_plan 58
topology
flows "TCP by direct routing" mhs -g $VIP 0 -t $VIP:80
flows "TCP over IPv6" mhs -g $VIP6 0 -t "[$VIP6]:80"
flows "TCP by tunnel" mhs -i $VIP 0 -t $VIP:80
flows "UDP by direct routing" mhs -g $VIP 0 -u $VIP:80
flows "QUIC by direct routing" mhs -g $VIP 0 -u $VIP:443
flows "SCTP by direct routing" mhs -g $VIP 0 --sctp-service $VIP:80
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
director sysctl -wq net.ipv4.vs.mhs.stateless=0
ipvs -a -f 7 -r 10.0.0.2:0 -g
result "TCP by mark: a server on the director answers" is 'dr=* s1=* s2=*' \
	ask tcp $VIP 80 60
ask close >/dev/null
kill $local_server
forget
director sysctl -wq net.ipv4.vs.mhs.stateless=1
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
forget
flows "SCTP by direct routing" mh -g $VIP 60 --sctp-service $VIP:80
forget
masquerading on
flows "TCP by masquerading" mhs -m $VIP 60 -t $VIP:80
masquerading off
forget

# -x 10: flows of s2 have connections, and above ten they go to s1
service mhs -g -t $VIP:80
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -g -x 10
result "upper threshold: ten flows come to the server" is 's1=90 s2=10' \
	ask tcp $VIP 80 100
result "upper threshold: they have connections" is 10 conns 2
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -g -x 0
result "control: without it more come" is 's1=* s2=[2-9]?' \
	ask tcp $VIP 80 100
result "control: without connections" is 10 conns 2
ask close >/dev/null
forget

# with stateless=0 a new flow gets a connection, unless drop_packet drops it
director sysctl -wq net.ipv4.vs.am_droprate=1 net.ipv4.vs.drop_packet=3 \
	net.ipv4.vs.mhs.stateless=0
service mhs -g -t $VIP:80
result "drop_packet: instead of a new connection" \
	at_last failed=1 ask tcp $VIP 80 1
director sysctl -wq net.ipv4.vs.mhs.stateless=1
result "drop_packet: not without a connection" is 's1=* s2=*' \
	ask tcp $VIP 80 20
director sysctl -wq net.ipv4.vs.drop_packet=0 net.ipv4.vs.mhs.stateless=0
result "control: without it new connections come" \
	at_last 's?=1' ask tcp $VIP 80 1
director sysctl -wq net.ipv4.vs.mhs.stateless=1
ask close >/dev/null

service mhs -g -t $VIP:80
ask tcp $VIP 80 40 >/dev/null
ipvs -E -t $VIP:80 -s mhs -b flag-1,flag-2 -p 60
result "persistence: older flows live" is 'alive=40 dead=0 moved=0' ask check
ask close >/dev/null
ktap_finished
