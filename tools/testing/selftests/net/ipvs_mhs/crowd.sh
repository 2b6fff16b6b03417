#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 25
# Namespaces of unprivileged users that all change their services at once do not
# make a command of the host wait.  The control: with as many of the host's own it
# waits for them.
#
# Not where the core has one lock for the commands of all namespaces: there
# each waits, whatever the scheduler.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

# crowd OPTION...: failed commands, microseconds of one of the host
crowd() {
	unshare --net python3 -B "$here/crowd.py" "$@"
}

load_module
# a lock for each namespace came with this file
own_locks=0
[ ! -e /proc/net/ip_vs_status ] || own_locks=1
plan $((2 + own_locks))
read -r failed users_us < <(crowd --users)
check "namespaces of users: no command fails" 0 "$failed"
read -r failed host_us < <(crowd)
check "namespaces of the host: no command fails" 0 "$failed"
note "a command took $users_us us beside those of users, $host_us us beside those of the host"
if [ "$own_locks" = 1 ]; then
	check_cmp "a command waits for those of the host, but not for users" \
		"$host_us" -gt $((users_us * 3))
fi
