#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 60
# A flood of spoofed SYN makes no entry on stable slots and no more than
# max_entries on unstable ones; nothing is dropped and clients keep connecting.
# With mh each makes an entry.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=pair.sh
. "${0%/*}/pair.sh"

CAP=400

# flood COUNT: so many to the IPv6 service from the router, meanwhile as many as
# can be to the other; how many were $sent.  In the meantime clients connect,
# some of them at least.  Random sources are not all valid ones, so
# count what has $arrived at the director, the clients' own SYN included.
flood() {
	local before

	flow_start n4 --host $VIP4 --timeout 10 --pause 0.1
	flow_start n6 --host $VIP6 --timeout 10 --pause 0.1
	flow_send n4 churn 3600
	flow_send n6 churn 3600
	arrived=$(syns dr)
	bg_ns rt hping3 --rand-source -S -p 80 --flood -q $VIP4 \
		>"$work/hping" 2>&1 &
	before=$(opened cl)
	raw rt --dst $VIP6 --net fd99::/64 --count "$1" >"$work/sent"
	busywait 60 grown 6 opened cl
	kill -INT $!
	wait $!
	sent=$(($(sed -n 's/^sent=//p' "$work/sent") +
		$(sed -n 's/^\([0-9]*\) packets transmitted.*/\1/p' \
		  "$work/hping")))
	arrived=$(($(syns dr) - arrived))
	flow n4 stop churn
	reply4=$reply
	flow n6 stop churn
	flow_end n4
	flow_end n6
	note "$sent spoofed SYN, $arrived arrived"
}

# forwarded: packets that mhs has sent itself or passed on with an entry
forwarded() {
	local n=0 c

	for c in PktStateless PktOld PktCandidate PktTracked; do
		n=$((n + $(pair_total $c)))
	done
	echo $n
}

# at_most FILE: while it exists, the largest number of entries of a service
at_most() {
	local n max=0

	while [ -e "$1" ]; do
		for n in $(mhs Entries "$SVC4") $(mhs Entries "$SVC6"); do
			[ "$n" -le "$max" ] || max=$n
		done
		echo "$max" >"$1.max"
		nap 0.5
	done
}

plan 16
load_module
setup_net 4
count_syns dr
sysctls dr net.ipv4.vs.mhs.max_entries=$CAP
windows 3600000 3600000
pair_services "1 2 3" mhs
pair_clients --timeout 10
pair open 40
pair ping

flood 2000
check_cmp "stable: a flood" "$sent" -gt 4000
check "stable: no entries" 0 "$(conns)"
check "stable: none made" 0 \
	"$(($(pair_total NewEntries) + $(pair_total PinnedEntries)))"
check_cmp "stable: each SYN was forwarded" "$(forwarded)" -ge "$arrived"
check "stable: none dropped" 0 "$(pair_total PktUnsettled)"
check "stable: clients kept connecting" "0" "$(sum failed)"
check_cmp "stable: often" "$(sum "done")" -ge 4
pair ping
check "stable: older flows go on" 0 "$(sum broken)"

# A fourth server: the slots that move to it are unstable
pair_edit -a 4 -g
check_cmp "unstable slots" "$(pair_total Hold)" -gt 500
before=$(forwarded)
: >"$work/watch"
at_most "$work/watch" &
flood 2500
rm "$work/watch"
wait $!
check_cmp "unstable: entries of a service" "$(cat "$work/watch.max")" -le $CAP
check_cmp "unstable: capped" "$(pair_total Capped)" -gt 0
check_cmp "unstable: each SYN was forwarded" \
	$(($(forwarded) - before)) -ge "$arrived"
check "unstable: clients kept connecting" 0 "$(sum failed)"
pair ping
check "unstable: older flows go on" "0 0" "$(sum broken) $(sum moved)"
to_stable
pair ping
note "merged: $(conns) entries"
check_cmp "merged: no more entries" "$(conns)" -le $((2 * CAP))
pair reset
dr ipvsadm -C

base=$(conns)
pair_services "1 2 3 4" mh -b mh-port
flood 500
check_cmp "control: mh makes an entry for each SYN" \
	$(($(conns) - base)) -ge $((arrived * 9 / 10))
dr ipvsadm -C
