#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 240
# weight: 75
# A tenth of the servers comes and goes: flows of the others never notice, an
# older flow of a server that is back within the hold time costs no entry, and
# a later change does not stretch the window of an earlier one.  Scaled down:
# one of ten servers every second or so, with a window of some 10 s where a test
# waits for its end, instead of every 5 s for 10 minutes with 60 s.

. "${0%/*}/lib.sh"

HOLD=4000 PIN=4000	# milliseconds, for the parts that wait for the end
# in seconds, the longest a slot can be unstable
WINDOW=$(((HOLD * 4 / 3 + PIN * 11 / 10) / 1000 + 1))

lines() {
	echo "-A -t $VIP4:80 -s $*"
	real_lines $VIP4:80 -g 1 2 3 4 21 22 23 41 42 43
}

all_stable() {
	[ "$(mhs Hold)" -eq 0 ] && [ "$(mhs Pin)" -eq 0 ]
}

# A slot that merges while the flapping server is out is stable then and
# unstable while it is in: its share of the change may stay
most_stable() {
	[ $((2 * ($(mhs Hold) + $(mhs Pin)))) -lt "$unstable" ]
}

# sample: the most entries at one time
sample() {
	local n

	n=$(mhs Entries)
	[ "$n" -le "$most" ] || most=$n
}

# gone HOW; back HOW: the tenth server, by weight or by delete
gone() {
	if [ "$1" = weight ]; then
		weight 4 0
	else
		dr ipvsadm -d -t $VIP4:80 -r 10.2.0.14:80
	fi
}

back() {
	if [ "$1" = weight ]; then
		weight 4 1
	else
		real_lines $VIP4:80 -g 4 | dr ipvsadm -R
	fi
}

# flap TIMES: out and in
flap() {
	local i how

	for ((i = 0; i < $1; i++)); do
		how=$([ $((i % 2)) = 0 ] && echo weight || echo delete)
		gone "$how"
		sleep 0.3
		back "$how"
		[ -z "$most" ] || sample
	done
}

# begin: 200 flows that stay busy
begin() {
	flow_start old --host $VIP4 --timeout 8
	flow_start new --host $VIP4 --timeout 3 --pause 0.03
	flow old open 200
	flow old ping
	flow_send old busy 100
}

# A slot without a packet changes servers at once: with new flows in it later,
# the return of the server is another change.  Hence none at first.
plan 14
load_module
setup_net 4
for i in 1 2 3; do
	ip_ns s$i <<-EOF
		addr add 10.2.0.$((30 + i))/24 dev eth0
		addr add 10.2.0.$((50 + i))/24 dev eth0
	EOF
done

# The default hold time, a minute, which no flap exceeds however slow the
# machine is
lines mhs | dr ipvsadm -R
wait_settled
most=0
begin
flap 4
check "flaps: no entries for older flows" 0 "$most"
result "flaps: all slots are stable while it is in" \
	"$(busywait 5 all_stable; echo $?)"

# A change of another server, while the flaps go on: its slots keep their
# clock.  Were it started again by every change, it would never end.
dr sysctl -qw net.ipv4.vs.mhs.hold_ms=$HOLD net.ipv4.vs.mhs.pin_ms=$PIN
weight 3 0
unstable=$(mhs Hold)
start=$SECONDS
while [ $((SECONDS - start)) -lt $((6 * WINDOW)) ]; do
	flap 1
	busywait 2 most_stable && break
done
check_cmp "another change: slots became unstable" "$unstable" -gt 0
result "another change: merged although the flaps went on" \
	"$(busywait 2 most_stable; echo $?)"
note "after $((SECONDS - start)) s, window $WINDOW s"
most=0
sample
check_cmp "another change: entries for its flows at most" "$most" -le 100

# New flows, too
flow new churn 0.5
flow_send new churn 100
flap 6
gone weight
start=$SECONDS
result "the last change: all slots stable in the end" \
	"$(busywait $((2 * WINDOW)) all_stable; echo $?)"
note "after $((SECONDS - start)) s, window $WINDOW s"
sample
flow old stop
check "no flow broken" 0 "$(value broken)"
check "no flow moved" 0 "$(value moved)"
flow new stop churn
check "no new flow failed" 0 "$(value failed)"
check "no new flow was slow" 0 "$(value slow)"
made=$((200 + $(value "done")))
check_cmp "entries at one time, three times, are less than flows" \
	$((3 * most)) -lt $made
flow old ping
check "no flow broken afterwards" 0 "$(value broken)"
flow old reset
flow_end old
flow_end new
dr ipvsadm -C

# The same with mh
lines mh -b mh-port | dr ipvsadm -R
most=""
begin
flow_send new churn 100
flap 4
flow new stop churn
check_cmp "control: mh refuses new flows" "$(value failed)" -gt 0
made=$((200 + $(value "done") - $(value failed)))
flow old stop
check_cmp "control: mh has an entry for every flow" "$(entries)" -ge $made
flow old reset
dr ipvsadm -C
