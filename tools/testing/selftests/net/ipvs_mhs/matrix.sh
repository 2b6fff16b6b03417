#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 60
# A server is drained or deleted, in every combination of expire_nodest_conn,
# conn_reuse_mode, sloppy_tcp and schedule_icmp: what becomes of older flows,
# new ones, SYN from a port used before, and ICMP errors.  The outcomes are the
# table in the documentation.  Services of mh in the same namespace are as ever.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

doc=$here/../../../../../Documentation/networking/ipvs-mhs-matrix.rst

# lone_director: a director and its link; the other end is the test's
lone_director() {
	setup_ns cl dr
	ip -n "$(ns cl)" link add eth0 type veth peer name eth0 \
		address 02:00:00:00:00:10 netns "$(ns dr)"
	in_ns cl sysctl -qw net.ipv6.conf.all.disable_ipv6=1
	ip -n "$(ns cl)" link set eth0 up
	dr sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
		net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0
	ip_ns dr <<-EOT
		link set lo up
		addr add 10.2.0.10/24 dev eth0
		addr add fd02::10/64 dev eth0 nodad
		link set eth0 up
		addr add $VIP4/32 dev lo
		addr add $VIP6/128 dev lo nodad
		neigh add 10.2.0.1 lladdr 02:00:00:00:00:01 dev eth0
		neigh add 10.2.0.11 lladdr 02:00:00:00:00:11 dev eth0
		neigh add 10.2.0.12 lladdr 02:00:00:00:00:12 dev eth0
		neigh add fd02::1 lladdr 02:00:00:00:00:01 dev eth0
		neigh add fd02::11 lladdr 02:00:00:00:00:11 dev eth0
		neigh add fd02::12 lladdr 02:00:00:00:00:12 dev eth0
		route add default via 10.2.0.1
		route add default via fd02::1
	EOT
}

# cells FAMILY ARGUMENTS
cells() {
	in_ns cl python3 "$here/matrix.py" --mac 02:00:00:00:00:10 \
		--director "/run/netns/$(ns dr)" --family "$@" >"$work/lines" ||
		result "IPv$1: the run ended" 1
	while IFS=$'\t' read -r name status text; do
		result "$name" "$status" "$text"
	done <"$work/lines"
}

plan 102
fresh_module table_size=1021
lone_director
for family in 4 6; do
	table=${MHS_LOGS:-$work}/ipvs-mhs-matrix.$family.rst
	cells $family --table "$table"
	diff -u "$doc" "$table" | sed 's/^/# /'
	check "IPv$family: the documentation has this table" 0 \
		"${PIPESTATUS[0]}"
done
