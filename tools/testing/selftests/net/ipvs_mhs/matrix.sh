#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 30
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
	for program in matrix strangers; do
		report in_ns cl python3 "$here/$program.py" $family \
			"/run/netns/$(ns dr)" "$table"
	done
	rows=$(grep -P '^\t' "$here/matrix.txt" | diff - "$table" 2>&1 | grep '^[^0-9-]')
	result "IPv$family: matrix.txt has these tables" "${#rows}" \
		"$(tr -s ' \n\t=' ' ' <<<"$rows")"
done
