#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# A server is drained or deleted, in every combination of expire_nodest_conn,
# conn_reuse_mode, sloppy_tcp and schedule_icmp: what becomes of older flows,
# new ones, SYN from a port used before, and ICMP errors.  The outcomes are in
# matrix.txt.  Services of mh in the same namespace are as ever.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_lone.sh
. "$(dirname "$0")/lib_lone.sh"

plan 118
fresh_module table_size=1021
setup_ns cl
lone_director dr 10
for family in 4 6; do
	table=${MHS_LOGS:-$work}/matrix.$family.txt
	report in_ns cl python3 "$here/matrix.py" --family $family \
		--director "/run/netns/$(ns dr)" --table "$table"
	report in_ns cl python3 "$here/strangers.py" --family $family \
		--director "/run/netns/$(ns dr)" --table "$table"
	rows=$(diff "$here/matrix.txt" "$table" 2>&1 | grep '^[^0-9-]')
	result "IPv$family: matrix.txt has this table" "${#rows}" "$(tr -s ' \n\t=' ' ' <<<"$rows")"
done
