#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# tags: races
# UDP never has an entry.  After a change the old server goes on for the hold
# time while it is in service, then the candidate takes over; a drained or
# deleted server gets nothing more at once.  -o: always the candidate.

PORT=443 proto=-u
# shellcheck disable=SC2034 # for lib.sh
client_py=dgrams.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

# quiet NAME: no flow of the last ping went wrong, none has an entry
quiet() {
	check "$1: every datagram answered" "0 0" "$(sum lost) $(sum refused)"
	check "$1: no entry" "0 0 0" "$(conns) $(pair_total NewEntries
		) $(pair_total PinnedEntries)"
}

# moved NAME N: the N flows have moved, and few others (Maglev's price)
moved() {
	local n

	n=$(sum moved)
	check_cmp "$1" "$n" -ge "$2"
	check_cmp "$1, and few others" $((n - $2)) -le 15
}

plan 55
# an empty list: what comes to 443 is plain UDP, too
fresh_module quic_ports=0
setup_net 4
dgram_servers $PORT
windows 3600000 3600000
pair_services "1 2 3" mhs
pair_clients
pair open 100
pair ping
check "flows opened" "200 0 0" "$(sum flows) $(sum lost) $(sum refused)"
check_cmp "s1 has some" "$(sum s1)" -gt 20
pair ping
check "stable: none moved" 0 "$(sum moved)"
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
dr ipvsadm -C

# One-packet services
pair close
pair_services "1 2 3" mhs -o
pair open 100
pair ping
check "-o: served" "0 0 200" "$(sum lost) $(sum s4) $(sum flows)"
pair ping
check "-o: none moved" 0 "$(sum moved)"
pair_edit -a 4 -g
result "-o, added: held" "$(busywait 20 pair_holding; echo $?)"
pair ping
mine=$(sum s4)
check_cmp "-o: the new server has its share at once" "$mine" -gt 20
moved "-o: its flows have moved" "$mine"
quiet "-o"
counted() {	# in kernels that gather statistics every two seconds, not at once
	[ "$(dr ipvsadm -Ln --stats --exact |
		awk '/^UDP/ { n += $3 } END { print n }')" -eq 600 ]
}
result "-o: each counts as a connection" "$(busywait 10 counted; echo $?)"
dr ipvsadm -C

# The same with mh
pair close
conns_begin
pair_services "1 2 3" mh -b mh-port
pair open 50
pair ping
check "control: mh makes an entry for each client port" 100 \
	"$(conns_new)"
pair spray 200
check "control: and for a port that asked once" 500 "$(conns_new)"
pair_edit -d 2
pair ping plain 4
check_cmp "control: mh loses the flows of a deleted server" \
	"$(sum lost)" -gt 10
dr ipvsadm -R <<-EOF
	-E -u $SVC4 -s mhs
	-E -u $SVC6 -s mhs
EOF
wait_settled "$SVC4"
wait_settled "$SVC6"
pair ping
check "mhs after mh: they leave the entries of that server" "0 0" \
	"$(sum lost) $(sum s2)"
dr ipvsadm -C

# Servers at a threshold: flows have entries, and leave a server all the same.
for sched in mhs "mh -b mh-port"; do
	pair close
	# shellcheck disable=SC2086
	pair_services "1 2" $sched
	pair_edit -e 1 -g -w 1 -x 1000
	pair_edit -e 2 -g -w 1 -x 1000
	conns_begin
	pair open 50
	pair ping
	mine=$(sum s1)
	made=$(conns_new)
	pair_edit -e 1 -g -w 0 -x 1000
	pair ping
	if [ "$sched" = mhs ]; then
		check_cmp "threshold: s1 has some" "$mine" -gt 20
		check "threshold: each flow has an entry" 100 "$made"
		check "threshold, weight 0: none stays" 0 "$(sum s1)"
		check "threshold, weight 0: all are served" "0 0 100" \
			"$(sum lost) $(sum refused) $(sum s2)"
	else
		check "control: with mh they stay" "$mine" "$(sum s1)"
	fi
	dr ipvsadm -C
done
