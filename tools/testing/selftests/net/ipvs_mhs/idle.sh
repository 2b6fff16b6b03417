#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 30
# Flows that idle longer than the TCP timeout go on without an entry, and with
# pin_ms=0 the window of a change follows that timeout: flows that sleep through it
# move.  UDP follows its own.  mh breaks idle flows.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

LONG=600 SHORT=2	# seconds, the TCP timeout

timeouts() {
	dr ipvsadm --set "$1" "$1" 0
}

# window NAME SERVICE SECONDS: hold and pin are as long as the timeout each
window() {
	local left

	left=$(mhs NextMergeMs "$2")
	check_cmp "$1: the window follows the timeout" "$left" -le $((2000 * $3))
	check_cmp "$1: and is no shorter" "$left" -gt $((1000 * $3))
}

plan 12
load_module
setup_net 4
check "hold_ms by default" 60000 "$(dr sysctl -n net.ipv4.vs.mhs.hold_ms)"
sysctls dr net.ipv4.vs.mhs.{pin_ms=0,hold_ms=3600000}
timeouts $SHORT
pair_services "1 2 3 4" mhs
pair_clients --timeout 4

# Twice the timeout, on stable slots
pair open 40
pair ping
nap $((2 * SHORT + 1)) # why: to idle so long is the matter
timeouts $LONG
pair ping
check "stable: none broken by idling, no entries" "80 0 0 0" \
	"$(sum flows) $(sum broken) $(sum moved) $(conns)"

mine=$(sum s1)
pair_edit -e 1 -g -w 0
window TCP $VIP4:80 $LONG
timeouts $SHORT
result "TCP: merged without a packet" "$(busywait 60 pair_state stable; echo $?)"
timeouts $LONG
pair ping
check_cmp "some flows slept through it" "$mine" -gt 10
check "past the window: its flows, and no others, are cut" "$mine" \
	"$(sum broken)"
pair reset
dr ipvsadm -C

dr ipvsadm --set 0 0 $((LONG / 2))
udp pair_services "1 2 3 4" mhs
udp pair_edit -e 1 -g -w 0
window UDP $VIP4:53 $((LONG / 2))
timeouts $SHORT
nap $((2 * SHORT + 1)) # why: it may not merge in that time
check "UDP: whatever TCP's is" yes "$(udp pair_holding && echo yes)"
dr ipvsadm --set 0 0 $SHORT
result "UDP: merged" "$(busywait 30 udp pair_state stable; echo $?)"
dr ipvsadm -C

pair_services "1 2 3 4" mh -b mh-port
pair open 20
busywait 40 eval '[ "$(conns)" -eq 0 ]'
pair ping
check "control: mh breaks flows that idle past the timeout" "40 40" \
	"$(sum flows) $(sum broken)"
