#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 25
# Other namespaces that change large services all the time do not
# make a command of the host wait: it takes no longer than beside services of mh,
# the control, which also builds less.  Before Linux 7.2 the core has one lock for
# the commands of all namespaces.  So no command waits for who reads the tables of
# its namespace, either: it takes no longer than without a reader.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

# crowd OPTION...: microseconds of a command of the host, of half and of most
crowd() {
	unshare --net python3 -B "$here/crowd.py" "$@"
}

load_module
modprobe -q ip_vs_mh
plan 3
# Other machines on the same CPUs delay one or the other: what mhs delays, mhs
# delays each time.
for _ in 1 2 3 4 5; do
	read -r half most _ < <(crowd --scheduler mh)
	note "a command beside namespaces of mh: $half us, nine of ten less than $most us"
	read -r half_mhs most_mhs _ < <(crowd)
	note "a command beside namespaces of mhs: $half_mhs us, nine of ten less than" \
		"$most_mhs us"
	[ "$half_mhs" -gt $((2 * half + 200)) ] ||
		[ "$most_mhs" -gt $((2 * most + 2000)) ] || break
done
check_cmp "a command of the host, us" "$half_mhs" -le $((2 * half + 200))
check_cmp "the slowest tenth of them, us" "$most_mhs" -le $((2 * most + 2000))
for _ in 1 2 3 4 5; do
	read -r half _ < <(crowd --size 0 --services 30)
	read -r half_read most _ < <(crowd --size 0 --services 30 --readers 2)
	note "a service made and deleted: half in $half us, beside readers in" \
		"$half_read us, nine of ten in less than $most us"
	[ "$half_read" -gt $((4 * half + 2000)) ] || break
done
check_cmp "a service made and deleted beside readers, us" "$half_read" -le \
	$((4 * half + 2000))
