#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The slots of a server follow its weight: with 1000 and 1 the second one gets
# about one of a thousand flows.  By turns of at most 63 it would get one of 64.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3

N=8000

# share SCHEDULER: connections of the second server
share() {
	ipvs -C
	at_last 0 conns
	ipvs -A -u $VIP:80 -s "$1" -b flag-1,flag-2
	ipvs -a -u $VIP:80 -r 10.0.0.11:80 -g -w 1000
	ipvs -a -u $VIP:80 -r 10.0.0.12:80 -g -w "${2:-1}"
	[ "$1" != mhs ] || at_last stable mhs State
	ask blast $VIP 80 $N >/dev/null
	arrived() { [ "$(packets)" -ge "$N" ]; }
	slowwait 20 arrived >/dev/null
	packets 10.0.0.12
}

# packets [SERVER]: that IPVS has counted
packets() {
	ipvs -Ln --stats --exact | awk -v at="${1:-UDP}" \
		'index($0, at) { print $(NF - 3); exit }'
}

below() { local n; n=$("${@:2}"); echo "got $n"; [ "$n" -lt "$1" ]; }
above() { local n; n=$("${@:2}"); echo "got $n"; [ "$n" -gt "$1" ]; }

ktap_print_header
ktap_set_plan 3
topology
ip -n "$s1" route add blackhole 10.0.0.1 2>/dev/null
ip -n "$s2" route add blackhole 10.0.0.1 2>/dev/null
# seconds: connections of one test must not decide in the next
ipvs --set 0 0 1
result "mh: 1000 to 1" below $((N / 250)) share mh
result "mhs: 1000 to 1" below $((N / 250)) share mhs
result "mh: 1000 to 1000" above $((N * 4 / 10)) share mh 1000
ktap_finished
