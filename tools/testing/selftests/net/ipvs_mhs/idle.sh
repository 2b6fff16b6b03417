#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 45
# Flows that idle longer than the TCP timeout go on without an entry, and with
# pin_ms=0 the window of a change follows that timeout: a flow that sends
# within it stays, one that sleeps through it moves.  UDP follows its own.  mh
# breaks idle flows.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

LONG=600 SHORT=2	# seconds, the TCP timeout

timeouts() {
	dr ipvsadm --set "$1" "$1" 0
}

# udp COMMAND...: of lib_pair.sh, for services of UDP
udp() {
	PORT=53 proto=-u SVC4=$VIP4:53 SVC6="[$VIP6]:53" "$@"
}

plan 20
load_module
setup_net 4
sysctls dr net.ipv4.vs.mhs.pin_ms=0
check "hold_ms by default" 60000 "$(dr sysctl -n net.ipv4.vs.mhs.hold_ms)"
sysctls dr net.ipv4.vs.mhs.hold_ms=3600000
timeouts $SHORT
pair_services "1 2 3 4" mhs
pair_clients --timeout 4

# Twice the timeout, on stable slots
pair open 40
pair ping
nap $((2 * SHORT + 1)) # why: to idle so long is the matter
timeouts $LONG
pair ping
check "stable: none broken by idling" "80 0" "$(sum flows) $(sum broken)"
check "stable: none moved" 0 "$(sum moved)"
check "stable: no entries" 0 "$(conns)"

# A change: hold and pin are as long as the timeout each
mine=$(sum s1)
pair_edit -e 1 -g -w 0
left=$(mhs NextMergeMs)
check_cmp "the window follows the timeout" "$left" -le $((2 * LONG * 1000))
check_cmp "and is no shorter" "$left" -gt $((LONG * 1000))
# asleep until now
sysctls dr net.ipv4.vs.mhs.hold_ms=0
result "pin phase" "$(busywait 30 pair_pinning; echo $?)"
pair ping
check "within the window: none broken" 0 "$(sum broken)"
check "within the window: none moved" 0 "$(sum moved)"
check_cmp "they are pinned" "$(pair_total PinnedEntries)" -ge "$mine"
timeouts $SHORT
result "merged" "$(busywait 30 pair_state stable; echo $?)"
timeouts $LONG
pair reset

# Asleep for all of it
pair open 40
pair ping
mine=$(sum s2)
pair_edit -e 2 -g -w 0
timeouts $SHORT
result "merged without a packet" "$(busywait 60 pair_state stable; echo $?)"
pair ping
check_cmp "some flows slept through it" "$mine" -gt 10
check "past the window: its flows, and no others, are cut" "$mine" \
	"$(sum broken)"
pair reset
dr ipvsadm -C

# UDP: its timeout, not TCP's
sysctls dr net.ipv4.vs.mhs.hold_ms=3600000
dr ipvsadm --set 0 0 $((LONG / 2))
udp pair_services "1 2 3 4" mhs
udp pair_edit -e 1 -g -w 0
left=$(mhs NextMergeMs $VIP4:53)
check_cmp "UDP: the window follows its timeout" "$left" -le $((LONG * 1000))
check_cmp "UDP: and is no shorter" "$left" -gt $((LONG * 500))
timeouts $SHORT
nap $((2 * SHORT + 1)) # why: it may not merge in that time
check "UDP: whatever TCP's is" yes "$(udp pair_holding && echo yes)"
dr ipvsadm --set 0 0 $SHORT
result "UDP: merged" "$(busywait 30 udp pair_state stable; echo $?)"
dr ipvsadm -C

pair_services "1 2 3 4" mh -b mh-port
pair open 20
check "control: mh, flows opened" 40 "$(sum flows)"
expired() {
	[ "$(conns)" -eq 0 ]
}
busywait 40 expired
pair ping
check "control: mh breaks flows that idle past the timeout" 40 \
	"$(sum broken)"
pair reset
dr ipvsadm -C
