#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 12
# tags: core few
# Thresholds: the flows of a limited server have entries and are counted, others
# have none; with flag-1 others help out, the same on each director.  flag-3
# hashes the address only.  Flags of a live service: edit.sh.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_lone.sh
. "$(dirname "$0")/lib_lone.sh"
need nft

plan 56
fresh_module table_size=4093
setup_ns cl
lone_director dr 10 60
lone_director d2 10 4
# short, for a service that settles before its last server comes
for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.hold_ms=0 net.ipv4.vs.mhs.pin_ms=100
done
# what a transparent proxy has
dr nft -f - <<-EOF
	table ip behind {
		chain in {
			type filter hook prerouting priority mangle
			ip daddr 10.3.0.0/24 meta mark set 9
		}
	}
	EOF
ip_ns dr <<-EOF
	rule add fwmark 9 lookup 100
	route add local default dev lo table 100
	EOF
for family in 4 6; do
	report in_ns cl python3 "$here/limits.py" $family /run/netns/{dr,d2}-$$
done
