#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 40
# tags: races
# UDP has no entry.  After a change the old server goes on for the hold time while it is
# in service, then the candidate takes over; a drained or deleted server gets nothing
# more at once.  -o: always the candidate.  On the ports of the parameter stay_ports
# flows that send in the hold phase stay at their server while that is listed, by an
# entry that is made in a transition only: sockets that send 100 datagrams a second, with
# the lane and without.

PORT=443 proto=-u
# shellcheck disable=SC2034 # for lib.sh
client_py=dgrams.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

# quiet NAME: no flow of the last ping went wrong, none has an entry
quiet() {
	check "$1: every datagram answered, no entry" "0 0, 0 0" \
		"$(sum lost) $(sum refused), $(conns_new) $(pair_made)"
}

# moved NAME N: the N flows have moved, and few others (Maglev's price)
moved() {
	local n

	n=$(sum moved)
	check_cmp "$1" "$n" -ge "$2"
	check_cmp "$1, and few others" $((n - $2)) -le 15
}

# begin N <LINES: of ipvsadm -R, in place of what was; N flows of each family
begin() {
	pair close
	dr ipvsadm -C
	conns_begin
	learn dr
	pair open "$1"
	pair ping
}

# plain: no port stays
plain() {
	local mine

	windows 3600000 3600000
	begin 100 < <(pair_lines "1 2 3" mhs)
	check_cmp "s1 has some" "$(sum s1)" -gt 20
	pair ping
	check "stable: none moved" "200 0" "$(sum flows) $(sum moved)"
	pair spray 300
	quiet "stable"
	check "stable: packets without entry" 1000 "$(pair_total PktStateless)"

	# A server is added
	pair_edit -a 4 -g
	result "added: held" "$(busywait 20 pair_holding; echo $?)"
	pair ping
	check "hold: none moved" "0 0" "$(sum moved) $(sum s4)"
	check_cmp "hold: by the old server" "$(pair_total PktOld)" -gt 10
	pair spray 300
	quiet "hold"
	result "pin phase" "$(to_pin; echo $?)"
	pair ping
	mine=$(sum s4)
	check_cmp "pin: the new server has its share" "$mine" -gt 20
	moved "pin: its flows have moved" "$mine"
	pair spray 300
	quiet "pin"
	result "merged" "$(to_stable; echo $?)"
	pair ping
	check "merged: none moved" "0 $mine" "$(sum moved) $(sum s4)"
	quiet "merged"

	# weight 0, taken back, then deleted
	windows 3600000 3600000
	mine=$(sum s1)
	pair_edit -e 1 -g -w 0
	pair ping
	check "weight 0: the server gets nothing more" 0 "$(sum s1)"
	moved "weight 0: its flows move at once" "$mine"
	quiet "weight 0"
	pair_edit -e 1 -g -w 1
	busywait 20 pair_state stable
	pair ping
	check "weight 0, taken back: its flows are back" "$mine" "$(sum s1)"
	mine=$(sum s2)
	pair_edit -d 2
	pair ping
	check "deleted: the server gets nothing more" 0 "$(sum s2)"
	moved "deleted: its flows move at once" "$mine"
	quiet "deleted"
	pair_edit -d 1
	pair_edit -e 3 -g -w 0
	pair ping
	check "the last server takes all" 200 "$(sum s4)"
	pair_edit -e 4 -g -w 0
	pair close
	pair open 5
	pair ping
	check "no server left: the clients are told" "0 10" \
		"$(sum lost) $(sum refused)"
	pair_edit -e 4 -g -w 1
	pair ping
	check "one is back" "10" "$(sum s4)"
	quiet "back"
}

# counted: in kernels that gather statistics every two seconds, not at once
counted() {
	[ "$(dr ipvsadm -Ln --stats --exact |
		awk '/^UDP/ { n += $3 } END { print n }')" -eq 600 ]
}

one_packet() {
	local mine

	begin 100 < <(pair_lines "1 2 3" mhs -o)
	pair ping
	check "-o: served, none moved" "0 0 200" \
		"$(sum lost) $(sum moved) $(sum flows)"
	pair_edit -a 4 -g
	result "-o, added: held" "$(busywait 20 pair_holding; echo $?)"
	pair ping
	mine=$(sum s4)
	check_cmp "-o: the new server has its share at once" "$mine" -gt 20
	moved "-o: its flows have moved" "$mine"
	quiet "-o"
	result "-o: each counts as a connection" "$(busywait 10 counted; echo $?)"
}

# by_mh: the control, and mhs after it
by_mh() {
	begin 50 < <(pair_lines "1 2 3" mh -b mh-port)
	pair spray 200
	check "control: mh makes an entry for each client port" 500 "$(conns_new)"
	pair_edit -d 2
	pair ping plain 4
	check_cmp "control: mh loses the flows of a deleted server" \
		"$(sum lost)" -gt 10
	printf -- "-E -u %s -s mhs\n" "$SVC4" "$SVC6" | dr ipvsadm -R
	wait_settled "$SVC4"
	wait_settled "$SVC6"
	pair ping
	check "mhs after mh: they leave the entries of that server" "0 0" \
		"$(sum lost) $(sum s2)"
}

# streams: all flows send, until stays
streams() {
	flow_send c4 stream
	flow_send c6 stream
}

# stays NAME: each datagram was answered, by the server of its flow
stays() {
	pair stop
	check "$1: none moved" "0 0 0" "$(sum lost) $(sum refused) $(sum moved)"
}

# changed: the change has reached the slots
changed() {
	[ "$(mhs Hold "$SVC4")" -gt 0 ] && [ "$(mhs Hold "$SVC6")" -gt 0 ]
}

# change NAME MODE SERVER [ARGUMENTS]: while all flows send
change() {
	windows 3600000 3600000
	streams
	pair_edit "${@:2}"
	result "$1" "$(busywait 20 changed; echo $?)"
}

# aged [-v]: IPv4 entries for s1, or others, that are not renewed
aged() {
	dr grep "^UDP " /proc/net/ip_vs_conn | grep ${1:+"$1"} " 0A02000B " |
		awk '$9 < 290 { n = 1 } END { exit !n }'
}

# events DOOR eq|gt: add, another weight, drain, delete
events() {
	local mine before

	windows 3600000 3600000
	begin 30 < <(pair_lines "1 2 3" mhs)
	streams
	stays "$1: no change"
	check "$1: no change, no entry" 0 "$(pair_made)"

	change "$1: a server is added" -a 4 -g
	stays "$1: added, hold"
	check_cmp "$1: added, hold: they have entries" "$(pair_made)" -gt 0
	streams
	result "$1: added, pin" "$(to_pin; echo $?)"
	stays "$1: added, pin"
	pair open 30
	pair new
	check_cmp "$1: added, pin: new flows, some by the new server" \
		"$(sum s4)" -gt 0

	# in the pin phase of the last one; new flows have entries, too
	before=$(pair_made)
	change "$1: another weight" -e 2 -g -w 3
	stays "$1: another weight, hold"
	check_cmp "$1: another weight: more have entries" "$(pair_made)" -gt "$before"
	streams
	result "$1: another weight, merged" "$(to_pin && to_stable; echo $?)"
	stays "$1: another weight, merged"

	mine=$(sum s1)
	check_cmp "$1: s1 has flows" "$mine" -gt 0
	change "$1: drain" -e 1 -g -w 0
	stays "$1: drain, hold"
	streams
	result "$1: drain, merged" "$(to_pin && to_stable; echo $?)"
	if [ "$1" = stack ]; then
		result "merged: entries that no flow needs age" \
			"$(busywait 40 aged -v; echo $?)"
		check "merged: those of the drained server do not" 1 \
			"$(aged; echo $?)"
	fi
	stays "$1: drain, merged"
	check "$1: the drained server has its flows" "$mine" "$(sum s1)"
	windows 3600000 3600000
	check_cmp "$1: what the lane forwarded" "$(pair_total PktLane)" "-$2" 0
	pair_edit -d 1
	pair ping
	check "$1: deleted: its flows move, and no others" "0 $mine" \
		"$(sum lost) $(sum moved)"
}

plan 83
fresh_module quic_ports=0 stay_ports=7,$PORT
setup_net 4
dgram_servers $PORT
pair_clients
events stack eq
sysctls dr net.ipv4.vs.mhs.{lane=1,ingress=eth0}
events lane gt

# an empty list: what comes to 443 is plain UDP, too
dr ipvsadm -C
fresh_module quic_ports=0
lane dr
plain
one_packet
by_mh
