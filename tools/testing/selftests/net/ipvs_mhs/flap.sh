#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 60
# tags: races
# A tenth of the servers comes and goes: flows of the others never notice, an
# older flow of a server that is back within the hold time costs no entry, and
# a later change does not stretch the window of an earlier one.

. "${0%/*}/lib.sh"

FLOWS=80
LAST=12000	# milliseconds, of the one window whose end is waited for

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

# flap "HOW..." N COMMAND...: out, until what the command counts has grown by N,
# and in; a slow machine takes its time to compute tables
flap() {
	local how

	for how in $1; do
		gone "$how"
		busywait 20 built
		until_more "${@:2}"
		back "$how"
		busywait 20 built
		[ -z "$most" ] || sample
	done
}

# begin: flows that stay busy
begin() {
	flow old open $FLOWS
	flow old ping
	flow_send old busy 3600
}

# each: every older flow sends once more
each() {
	flow old stop
	flow old ping
	flow_send old busy 3600
}

plan 14
load_module
setup_net 4
ten_servers
flow_start old --host $VIP4 --timeout 8
flow_start new --host $VIP4 --timeout 3 --pause 0.01

windows 3600000 3600000
learn dr < <(lines mhs)
most=0
begin
flap "weight delete weight delete" 5 mhs PktOld
check "flaps: no entries for older flows" 0 "$most"
result "flaps: all slots are stable while it is in" \
	"$(busywait 5 all_stable; echo $?)"

# A change of another server.  When its flows are pinned, a window begins that
# is as long for the flaps, which go on: they do not prolong it.  Were it
# started again by every change, it would never end.
weight 3 0
busywait 20 built
unstable=$(mhs Hold)
check_cmp "another change: slots became unstable" "$unstable" -gt 0
windows 0 3600000
busywait 20 pinning
each
windows $LAST $LAST
start=$SECONDS
until most_stable || [ $((SECONDS - start)) -ge $((LAST / 200)) ]; do
	flap weight 5 mhs PktOld
done
result "another change: merged although the flaps went on" \
	"$(most_stable; echo $?)"
note "after $((SECONDS - start)) s, window $((LAST / 1000)) s"
most=0
sample
check_cmp "another change: entries for its flows at most" \
	"$most" -le $((FLOWS / 2))

# New flows, too
windows 3600000 3600000
flow_send new churn 3600
flap "weight delete weight delete weight delete" 10 opened cl
gone weight
until_more 15 opened cl
windows 0 3600000
busywait 20 pinning
each
windows 0 100
result "the last change: all slots stable in the end" \
	"$(busywait 20 all_stable; echo $?)"
sample
flow old stop
check "no flow broken" 0 "$(value broken)"
check "no flow moved" 0 "$(value moved)"
flow new stop churn
check "no new flow failed" 0 "$(value failed)"
check "no new flow was slow" 0 "$(value slow)"
made=$((FLOWS + $(value "done")))
check_cmp "entries at one time, three times, are less than flows" \
	$((3 * most)) -lt $made
flow old ping
check "no flow broken afterwards" 0 "$(value broken)"
flow old reset
dr ipvsadm -C

# The same with mh
lines mh -b mh-port | dr ipvsadm -R
most=""
begin
flow_end new
# ports of their own: one that is met again makes no second entry
flow_start new --host $VIP4 --timeout 3 --ports 20000-29999
flow_send new churn 3600
flap "weight delete weight" 50 opened cl
flow new stop churn
check_cmp "control: mh refuses new flows" "$(value failed)" -gt 0
made=$((FLOWS + $(value "done") - $(value failed)))
flow old stop
check_cmp "control: mh has an entry for every flow" \
	"$(entries)" -ge $made
flow old reset
dr ipvsadm -C
