#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 25
# Namespaces of unprivileged users that change large services all the time do not
# make a command of the host wait: it takes no longer than beside services of mh,
# the control, which also builds less.  Before Linux 7.2 the core has one lock for
# the commands of all namespaces.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

# crowd OPTION...: microseconds of a command of the host, of half and of most
crowd() {
	unshare --net python3 -B "$here/crowd.py" "$@"
}

load_module
modprobe -q ip_vs_mh
plan 2
read -r half most < <(crowd --scheduler mh)
note "a command beside users of mh: $half us, nine of ten less than $most us"
read -r half_mhs most_mhs < <(crowd)
note "a command beside users of mhs: $half_mhs us, nine of ten less than $most_mhs us"
check_cmp "a command of the host, us" "$half_mhs" -le $((2 * half + 200))
check_cmp "the slowest tenth of them, us" "$most_mhs" -le $((2 * most + 2000))
