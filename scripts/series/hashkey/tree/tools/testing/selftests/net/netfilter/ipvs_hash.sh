#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Connections of one IPv6 client spread over the connection table, whatever
# ports and addresses it chooses.
#
#	client ---- director ---- (no server answers)

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317
# shellcheck disable=SC1091
source lib.sh

ret=0

checktool "ipvsadm -v" "run test without ipvsadm"
checktool "nft --version" "run test without nft"
checktool "python3 -V" "run test without python3"
trap cleanup_all_ns EXIT

# send COUNT CPORT VIP VPORT: rounds of SYNs, from CPORT(i) to [VIP(i)]:VPORT(i)
send() {
	ip netns exec "$client" python3 - "$@" <<-'EOT'
		import socket, struct, sys, time

		count = int(sys.argv[1])
		cport, vip, vport = (eval("lambda i: " + word)
		                     for word in sys.argv[2:])
		raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW,
		                    socket.IPPROTO_TCP)
		raw.setsockopt(socket.IPPROTO_IPV6, 7, 16)  # IPV6_CHECKSUM
		packets = [(struct.pack("!HHIIBBHHH", cport(i), vport(i), 1, 0,
		                        0x50, 2, 1024, 0, 0), (vip(i), 0))
		           for i in range(count)]
		used = []
		for _ in range(5):
		    begin = time.monotonic()
		    for packet in packets:
		        raw.sendto(*packet)
		    used.append(time.monotonic() - begin)
		# the first round makes the connections
		print(f"# {min(used[1:]) / count * 1e6:.0f} us a packet, with "
		      f"{count} connections")
	EOT
}

status() { ip netns exec "$director" cat /proc/net/ip_vs_status; }
conns() { status | sed -n 's/^Conns:\t//p'; }
spread() {
	status | awk '/^Conn buckets:/ { n = $3 }
		/^Conn buckets empty:/ { n -= $4 }
		END { exit n < 1000 }'
}

topology() {
	setup_ns client director || exit 1
	ip link add eth0 netns "$client" type veth peer name eth0 \
		netns "$director"
	ip -n "$client" link set eth0 up
	ip -n "$client" addr add 2001:db8:1::1/64 dev eth0 nodad
	ip -n "$client" route add 2001:db8::/32 via 2001:db8:1::2
	ip -n "$director" link set eth0 up
	ip -n "$director" addr add 2001:db8:1::2/64 dev eth0 nodad
	ip -n "$director" addr add 2001:db8:8::80/128 dev lo nodad
	# all but the service by address
	ip netns exec "$director" nft -f - <<-'EOT'
		table ip6 marks {
			chain prerouting {
				type filter hook prerouting priority mangle
				tcp dport != 65535 meta mark set 1
			}
		}
	EOT
}

# chosen NAME COUNT CPORT VIP VPORT: its connections have 1000 buckets and more
chosen() {
	local name=$1

	topology
	ip netns exec "$director" ipvsadm -A -t '[2001:db8:8::80]:65535' -s rr
	ip netns exec "$director" ipvsadm -a -t '[2001:db8:8::80]:65535' \
		-r '[2001:db8:1::3]:65535' -g
	ip netns exec "$director" ipvsadm -A -f 1 -6 -s rr
	ip netns exec "$director" ipvsadm -a -f 1 -6 \
		-r '[2001:db8:1::3]:65535' -g
	shift
	send "$@"
	# The table grows in steps.  Connections of SYNs live for a minute:
	# where the rounds take longer there are fewer than were sent.
	if slowwait 30 spread && [ "$(conns)" -ge 2000 ]; then
		echo "PASS: $name"
	else
		status | sed -n 's/^Conn/# &/p'
		echo "FAIL: $name"
		ret=1
	fi
}

chosen "one client, port 65535" 20000 "i + 1024" '"2001:db8:8::80"' 65535
chosen "both ports chosen" 2000 "i + 1024" '"2001:db8:8::80"' "i ^ 0x5555"
exit $ret
