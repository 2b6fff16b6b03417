#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# ICMP errors reach the server of a flow without a connection: a long answer
# needs path MTU discovery.  The client is behind a router with a small MTU.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3 nft

ktap_print_header
ktap_set_plan 5
topology

# client -- 10.1.0.0/24, 1280 -- router 10.0.0.3 -- the others
setup_ns router far
link "$router" 3
ip link add near netns "$router" mtu 1280 type veth peer name eth0 netns "$far"
ip -n "$router" addr add 10.1.0.1/24 dev near
ip -n "$router" link set near up
ip -n "$far" addr add 10.1.0.2/24 dev eth0
ip -n "$far" link set eth0 up
ip -n "$far" route add default via 10.1.0.1
ip -n "$router" route add $VIP via 10.0.0.2
in_ns "$router" sysctl -wq net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0
for ns in "$director" "$s1" "$s2"; do
	ip -n "$ns" route add 10.1.0.0/24 via 10.0.0.3
done
kill "$CLIENT_PID"
wait "$CLIENT_PID" 2>/dev/null
coproc CLIENT { exec ip netns exec "$far" python3 "$here/flows.py" client; }

service mhs -g -t $VIP:80
result "flows open" is 's1=* s2=*' ask tcp $VIP 80 20
result "every answer is whole" is 'short=0 whole=20' ask long
result "without connections" is 0 conns
result "errors were forwarded" is '[1-9]*' mhs PktIcmp
ask close >/dev/null

# control: the director drops them
for ns in "$s1" "$s2"; do
	ip -n "$ns" route flush cache
done
director nft -f - <<-EOF
	table ip errors {
		chain in {
			type filter hook prerouting priority raw;
			ip protocol icmp drop
		}
	}
EOF
ask tcp $VIP 80 2 >/dev/null
result "control: without errors it is not" is 'short=2 whole=0' ask long
ktap_finished
