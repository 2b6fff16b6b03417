#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 15
# tags: races
# Random control operations on several services: after each, what the kernel
# shows is what a reference computes and what mhsstat plan had said, and flows go
# on while the rules say so.
# MHS_SEED: the same operations again; MHS_OPERATIONS: how many.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

plan 10
make -s -C "$here/../../../../net/ipvs_mhs" O="$work"
fresh_module table_size=509
modprobe -q -a ipip ip6_tunnel
setup_net 4
# Half of the servers are no hosts.  A neighbour that nobody finds is an ICMP error
# after three seconds, which is the first packet of a service that is made again
# meanwhile.
for i in {15..18}; do
	printf 'neigh replace %s lladdr 02:00:00:00:00:%s dev eth0 nud permanent\n' \
		"10.2.0.$i" "$i" "fd02::$i" "$i"
done | ip_ns dr
flow_start c --host $VIP4 --timeout 3
# shellcheck disable=SC2154 # set by flow_start
report in_ns dr python3 -S "$here/random_ops.py" "${MHS_SEED:-$RANDOM$RANDOM}" \
	"${MHS_OPERATIONS:-70}" 509 "$work/mhs_table" "$c_in" "$c_out"
flow c reset
dr ipvsadm -C
