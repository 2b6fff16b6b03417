#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 45
# tags: core races
# Editing a live service: edits that change nothing, flags, persistence, a
# threshold, the forwarding method, the scheduler.  What is new holds for new
# flows; older ones go on.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

# table: all that a rebuild or a transition would change
table() {
	local c

	for c in BuildUs Hold Pin OldPrint CandidatePrint; do
		echo "$(mhs $c "$SVC4") $(mhs $c "$SVC6")"
	done
}

# rebuilds: a rebuild shows in its time, if it is made once more
rebuilds() {
	pair_edit -d 9
	pair_edit -a 9 -g -w 0
	[ "$before" != "$(table)" ]
}

# edit ARGUMENTS: -E both services
edit() {
	dr ipvsadm -R <<-EOF
		-E -t $SVC4 -s $*
		-E -t $SVC6 -s $*
	EOF
}

# said TEXT NUMBER: has the kernel, since "dmesg -C"?
said() {
	[ "$(dmesg | grep -c "IPVS: mhs: .*$1")" -ge "$2" ]
}

# look: let mhs look at its services, which it does without a change once a minute
look() {
	pair_edit -a 9 -g -w 0
	pair_edit -d 9
	busywait 20 pair_state stable
}

# undisturbed NAME: flows answer, and by the same servers
undisturbed() {
	pair ping
	check "$1: older flows go on" "0 0" "$(sum broken) $(sum moved)"
}

# more NAME N [SERVER]: 2 N new flows work; $new entries came with them, $mine of
# the flows went to that server; $takers is by how many servers each client has
# some, summed up
more() {
	local old4=$reply4 old6=$reply

	mine=$(sum "${3:-s1}")
	conns_begin
	pair open "$2"
	pair ping
	new=$(conns_new)
	mine=$(($(sum "${3:-s1}") - mine))
	takers=$(($(count_takers "$old4" "$reply4") +
		$(count_takers "$old6" "$reply")))
	check "$1: new flows" "0 0 0" \
		"$(sum failed) $(sum broken) $(sum moved)"
}

# count_takers BEFORE AFTER: servers that have other flows than before
count_takers() {
	local s n=0

	for s in s1 s2 s3 s4; do
		[ "$(reply=$1 value $s)" -eq "$(reply=$2 value $s)" ] ||
			n=$((n + 1))
	done
	echo $n
}

plan 59
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
windows 3600000 3600000
pair_services "1 2 3 4" mhs
pair_clients --timeout 4
pair open 30
pair ping

# 100 times the same
before=$(table)
flow_send c4 busy 3600
flow_send c6 busy 3600
for ((i = 0; i < 100; i++)); do
	echo "-E -t $SVC4 -s mhs"
	echo "-E -t $SVC6 -s mhs"
	echo "-e -t $SVC4 -r 10.2.0.$((11 + i % 4)):80 -g -w 1"
	echo "-e -t $SVC6 -r [fd02::$((11 + i % 4))]:80 -g -w 1"
done | dr ipvsadm -R
pair stop
check "same again: no flow broken" "60 0" "$(sum flows) $(sum broken)"
check "same again: table untouched" "$before" "$(table)"
check "same again: stable" "stable stable" "$(mhs State) $(mhs State "$SVC6")"
pair_edit -a 9 -g -w 0
# another rebuild may take as many microseconds
result "control: an addition rebuilds" "$(busywait 30 rebuilds; echo $?)"
check "control: and moves no slot for weight 0" "$(tail -n 4 <<<"$before")" \
	"$(table | tail -n 4)"
pair_edit -d 9

# flag-3 would move most flows: not while the service lives
dmesg -C
edit mhs -b flag-3
undisturbed "flag-3"
look
result "flag-3: the log says that it waits" \
	"$(busywait 70 said flag-3 2; echo $?)"
edit mhs
edit mhs -b flag-3
pair ping
look
check "flag-3: once for a service" 1 "$(said flag-3 3; echo $?)"
check "flag-3: user space sees its flags" 2 "$(dr ipvsadm -Sn | grep -c flag-3)"
edit mhs
undisturbed "flag-3 and back"
check "flag-3 and back: no entries" 0 "$(conns)"

# Forwarding methods: tunnel; masquerading, whose replies pass the director
pair_edit -e 1 -i -w 1
undisturbed "tunnel"
more "tunnel" 10
check "tunnel: no entries" 0 "$new"
ip_ns s2 <<-EOF
	rule add from 10.2.0.12 lookup 100
	route add default via 10.2.0.10 table 100
	route add default via fd02::10 table 100
EOF
in_ns s2 ip -6 rule add from fd02::12 lookup 100
pair_edit -e 1 -g -w 1
pair_edit -e 2 -m -w 1
undisturbed "masquerading"
more "masquerading" 20 s2
check "masquerading: entries for new flows of the server" "$mine" "$new"
pair_edit -e 2 -g -w 1
conns_begin
undisturbed "direct routing again"

# Persistence
edit mhs -p 60
undisturbed "persistence"
check "persistence: no entries for them" 0 "$(conns_new)"
more "persistence" 10
check_cmp "persistence: entries for new flows" "$new" -ge 20
check "persistence: each client has one server" 2 "$takers"
edit mhs
undisturbed "persistence off"
more "persistence off" 20
check "persistence off: no entries for new flows" 0 "$new"
check_cmp "control: without it they have more" "$takers" -gt 2

# A threshold
conns_begin
pair ping
check "control: without a threshold older flows get no entry" 0 "$(conns_new)"
pair_edit -e 1 -g -w 1 -x 10000
undisturbed "threshold"
check_cmp "threshold: older flows of the server are counted" "$(conns_new)" -gt 0
more "threshold" 20 s1
check "threshold: entries for new flows of the server" "$mine" "$new"
pair_edit -e 1 -g -w 1 -x 0
undisturbed "threshold off"
pair reset
dr ipvsadm -C

# other NAME "SCHEDULER ARGUMENTS" "mhs ARGUMENTS" ADDR_ONLY: from that scheduler
# to mhs, and back
other() {
	pair_services "1 2 3 4" "$2"
	conns_begin
	pair open 20
	pair ping
	check_cmp "$1: entries" "$(conns_new)" -ge 36
	edit "$3"
	pair ping
	check "$1 to mhs: no flow broken" "0 0" "$(sum broken) $(sum moved)"
	wait_settled "$SVC4"
	wait_settled "$SVC6"
	more "$1 to mhs" 20
	# entries of flows that are closed expire meanwhile
	check_cmp "$1 to mhs: no entries for new flows" "$new" -le 0
	check "$1 to mhs: the address only is hashed" "$4 $4" \
		"$(mhs AddrOnly "$SVC4") $(mhs AddrOnly "$SVC6")"
	pair_edit -e 1 -g -w 2
	pair ping
	check "$1 to mhs: a change breaks none of them" "80 0 0" \
		"$(sum flows) $(sum broken) $(sum moved)"
	edit "$2"
	pair ping
	# one may have the port of an earlier flow, whose entry has not expired
	check_cmp "control: mhs to $1 cuts the flows without entry" \
		"$(sum broken)" -ge 36
	pair reset
	dr ipvsadm -C
}

# Another scheduler
other "wlc" "wlc" mhs 0
other "mh with mh-port" "mh -b mh-port" mhs 0
other "mh alone" "mh" "mhs -b flag-3" 1

# Persistence from the beginning
pair_services "1 2 3 4" mhs -p 60
more "made with persistence" 20
check "made with persistence: each client has one server" 2 "$takers"
edit mhs
undisturbed "made with persistence, off"
more "made with persistence, off" 20
check_cmp "control: then they have more" "$takers" -gt 2
pair reset
dr ipvsadm -C
