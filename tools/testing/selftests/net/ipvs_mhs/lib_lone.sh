# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# For tests whose clients and servers are a program at the other end of the
# director's only link, see craft.py.  Sourced after lib.sh.

# lone_director NAME HOST [SERVERS]: a director, whose link is NAME in cl; the
# servers are 10.2.0.11 and so on, with the MAC addresses 02:00:00:00:00:11..
lone_director() {
	local i

	setup_ns "$1"
	ip -n "$(ns cl)" link add "$1" type veth peer name eth0 \
		address 02:00:00:00:01:00 netns "$(ns "$1")"
	in_ns cl sysctl -qw "net.ipv6.conf.$1.disable_ipv6=1"
	ip -n "$(ns cl)" link set "$1" up
	forwarding "$1"
	{
		host "$2"
		cat <<-EOF
			neigh add 10.2.0.1 lladdr 02:00:00:00:00:01 dev eth0
			neigh add fd02::1 lladdr 02:00:00:00:00:01 dev eth0
		EOF
		for ((i = 11; i < 11 + ${3:-2}; i++)); do
			cat <<-EOF
				neigh add 10.2.0.$i lladdr 02:00:00:00:00:$i dev eth0
				neigh add fd02::$i lladdr 02:00:00:00:00:$i dev eth0
			EOF
		done
	} | ip_ns "$1"
}
