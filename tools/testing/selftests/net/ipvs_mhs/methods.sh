#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 35
# tags: core
# Every forwarding method without entries: direct routing, tunnels, servers of
# the other family, the local node, and clients on the director itself.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

# service VIP SERVERS...: -r and its method, one service on port 80
service() {
	local s sched=${sched:-mhs}

	dr ipvsadm -C
	learn dr < <(
		echo "-A -t $1:80 -s $sched"
		for s in "${@:2}"; do
			echo "-a -t $1:80 -r $s"
		done
	)
}

# forwarded NAME VIP WANT: 40 flows reach the servers WANT, without entries
forwarded() {
	local got word

	flow c close
	flow_end c
	start_client "${2//[\[\]]/}"
	flow c open 40
	flow c ping
	got=""
	for word in $reply; do
		[[ ! $word =~ ^(s[0-9]|local)= ]] || got+="${word%=*} "
	done
	check "$1: served" "40 0 $3" "$(value flows) $(value broken) ${got% }"
	check "$1: entries" "${4:-0}" "$(entries)"
}

start_client() {
	client_ns=${client_ns:-cl} flow_start c --timeout 8 --host "$1"
}

plan 19
load_module
modprobe -q -a ipip ip6_tunnel sit
setup_net 2
start_client $VIP4

service $VIP4 "10.2.0.11:80 -g" "10.2.0.12:80 -g"
forwarded "direct routing, IPv4" $VIP4 "s1 s2"
service "[$VIP6]" "[fd02::11]:80 -g" "[fd02::12]:80 -g"
forwarded "direct routing, IPv6" "[$VIP6]" "s1 s2"

service $VIP4 "10.2.0.11:80 -i" "10.2.0.12:80 -i"
forwarded "tunnel, IPv4" $VIP4 "s1 s2"
service "[$VIP6]" "[fd02::11]:80 -i" "[fd02::12]:80 -i"
forwarded "tunnel, IPv6" "[$VIP6]" "s1 s2"

# an IPv4 service on servers with IPv6 addresses, and the reverse
service $VIP4 "[fd02::11]:80 -i" "10.2.0.12:80 -i"
forwarded "IPv4 service, mixed servers" $VIP4 "s1 s2"
service "[$VIP6]" "10.2.0.11:80 -i" "[fd02::12]:80 -i"
forwarded "IPv6 service, mixed servers" "[$VIP6]" "s1 s2"

lab serve "dr-$$" local
service $VIP4 "127.0.0.1:80 -g" "10.2.0.12:80 -g"
forwarded "local node" $VIP4 "local s2"

# The director's own client: its packets pass LOCAL_OUT.  The address must not
# be local then, or servers would answer themselves.
ip_ns dr <<-EOF
	addr del $VIP4/32 dev lo
	addr del $VIP6/128 dev lo
EOF
client_ns=dr
service $VIP4 "10.2.0.11:80 -g" "10.2.0.12:80 -g"
forwarded "client on the director, IPv4" $VIP4 "s1 s2"
service "[$VIP6]" "[fd02::11]:80 -g" "[fd02::12]:80 -g"
forwarded "client on the director, IPv6" "[$VIP6]" "s1 s2"

# the control: the same by mh has an entry for each flow
client_ns=cl
ip -n "$(ns dr)" addr add $VIP4/32 dev lo
sched="mh -b mh-port" service $VIP4 "10.2.0.11:80 -g" "10.2.0.12:80 -g"
flow c close
flow_end c
start_client $VIP4
flow c open 40
check "control: mh makes entries" 40 "$(entries)"
flow c close
