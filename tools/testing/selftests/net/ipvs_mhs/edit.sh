#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 35
# tags: core races
# Editing a live service: edits that change nothing, flags, persistence, a
# threshold, the forwarding method, the scheduler.  What is new holds for new
# flows; older ones go on.  From mhs to another scheduler: wayback.sh, vrrp.sh.

. "${0%/*}/lib.sh"
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

# undisturbed NAME: flows answer, and by the same servers
undisturbed() {
	pair ping
	check "$1: older flows go on" "0 0" "$(sum broken) $(sum moved)"
}

# more NAME N: 2 N new flows, of other clients, work; $new entries came with them, $takers
# is how many servers each client has, summed up
more() {
	pair_of n reset
	conns_begin
	pair_of n open "$2"
	pair_of n ping
	new=$(conns_new)
	takers=$(grep -o ' s[1-4]=' <<<"$reply4 $reply" | wc -l)
	check "$1: new flows" "0 0 0" \
		"$(sum failed) $(sum broken) $(sum moved)"
}

# persistent NAME: a service that is, until it is not any more
persistent() {
	more "$1" 10
	check_cmp "$1: entries for new flows" "$new" -ge 20
	check "$1: each client has one server" 2 "$takers"
	edit mhs
	undisturbed "$1, off"
	more "$1, off" 20
	check_cmp "control: $1, off: it has more" "$takers" -gt 2
}

# other "SCHEDULER ARGUMENTS" "mhs ARGUMENTS" ADDR_ONLY: from that scheduler to mhs
other() {
	pair reset
	dr ipvsadm -C
	pair_services "1 2 3 4" "$1"
	pair open 20
	pair ping
	edit "$2"
	undisturbed "$1 to mhs"
	wait_settled "$SVC4"
	wait_settled "$SVC6"
	more "$1 to mhs" 20
	# entries of flows that are closed expire meanwhile
	check_cmp "$1 to mhs: no entries for new flows" "$new" -le 0
	check "$1 to mhs: the address only is hashed" "$3 $3" \
		"$(mhs AddrOnly "$SVC4") $(mhs AddrOnly "$SVC6")"
	pair_edit -e 1 -g -w 2
	undisturbed "$1 to mhs, a change"
}

plan 51
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
windows 3600000 3600000
pair_services "1 2 3 4" mhs
pair_clients --timeout 4
flow_start n4 --host $VIP4 --bind 10.1.0.2 --timeout 4
flow_start n6 --host $VIP6 --bind fd01::2 --timeout 4
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
pair_edit -a 9 -g -w 0
# another rebuild may take as many microseconds
result "control: an addition rebuilds" "$(busywait 30 rebuilds; echo $?)"
check "control: and moves no slot for weight 0" "$(tail -n 4 <<<"$before")" \
	"$(table | tail -n 4)"
pair_edit -d 9

# flag-3 would move most flows: not while the service lives
edit mhs -b flag-3
undisturbed "flag-3"
check "flag-3: user space sees its flags" 2 "$(dr ipvsadm -Sn | grep -c flag-3)"
edit mhs
undisturbed "flag-3 and back"

# Forwarding methods: tunnel; masquerading, whose replies pass the director
pair_edit -e 1 -i -w 1
undisturbed "tunnel"
more "tunnel" 20
check_cmp "tunnel: it gets some" "$(sum s1)" -gt 0
check "tunnel: no entries" 0 "$(conns)"
ip_ns s2 <<-EOF
	rule add from 10.2.0.12 lookup 100
	route add default via 10.2.0.10 table 100
	route add default via fd02::10 table 100
EOF
in_ns s2 ip -6 rule add from fd02::12 lookup 100
pair_edit -e 1 -g -w 1
pair_edit -e 2 -m -w 1
undisturbed "masquerading"
more "masquerading" 20
check "masquerading: entries for new flows of the server" "$(sum s2)" "$new"
pair_edit -e 2 -g -w 1
conns_begin
undisturbed "direct routing again"

edit mhs -p 60
undisturbed "persistence"
check "persistence: no entries for older flows" 0 "$(conns_new)"
persistent "persistence"
check "persistence off: no entries for new flows" 0 "$new"

# A threshold
conns_begin
pair ping
check "control: without a threshold older flows get no entry" 0 "$(conns_new)"
pair_edit -e 1 -g -w 1 -x 10000
undisturbed "threshold"
check_cmp "threshold: older flows of the server are counted" "$(conns_new)" -gt 0
more "threshold" 20
check "threshold: entries for new flows of the server" "$(sum s1)" "$new"
pair_edit -e 1 -g -w 1 -x 0
undisturbed "threshold off"

other wlc mhs 0
other "mh -b mh-port" mhs 0
other mh "mhs -b flag-3" 1
pair reset
dr ipvsadm -C
pair_services "1 2 3 4" mhs -p 60
persistent "made with persistence"
