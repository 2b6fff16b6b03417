#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 45
# UDP on the ports of the parameter stay_ports: flows that send in the hold phase stay
# at their server while that is listed, by an entry that is made in a transition only.
# Sockets that send 100 datagrams a second, with the lane and without.  On another port
# the same flows move.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=5060 proto=-u client_py=dgrams.py

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

# streams: all flows send, until stays or stopped
streams() {
	flow_send c4 stream
	flow_send c6 stream
}

stopped() {
	pair stop
}

# stays NAME: each datagram was answered, by the server of its flow
stays() {
	stopped
	check "$1" "0 0 0" "$(sum lost) $(sum refused) $(sum moved)"
}

holding() {
	[ "$(mhs Hold "$1")" -gt 0 ]
}

# changed: the change has reached the slots
changed() {
	holding "$SVC4" && holding "$SVC6"
}

# aged [-v]: IPv4 entries for s1, or others, that are not renewed
aged() {
	dr grep "^UDP " /proc/net/ip_vs_conn | grep ${1:+"$1"} " 0A02000B " |
		awk '$9 < 290 { n = 1 } END { exit !n }'
}

# limited: flows that have no entry, because of a limit, stay in the hold phase only
limited() {
	windows 3600000 3600000
	pair_services "1 2 3" mhs
	pair open 30
	pair ping
	dr sysctl -qw net.ipv4.vs.mhs.max_quic_entries=1
	streams
	pair_edit -a 4 -g
	result "limit: a server is added" "$(busywait 20 changed; echo $?)"
	stays "limit: hold: none moved"
	check_cmp "limit: entries are refused" "$(pair_total Capped)" -gt 4
	check_cmp "limit: entries" "$(pair_made)" -le 2
	streams
	result "limit: pin" "$(to_pin; echo $?)"
	stopped
	check_cmp "limit: they move when the hold phase ends" "$(sum moved)" -gt 4
	dr sysctl -qw net.ipv4.vs.mhs.max_quic_entries=65536
	pair close
	dr ipvsadm -C
}

# thresholds: servers whose flows have entries anyhow: these stay, and new flows go
# elsewhere, in the hold phase, too
thresholds() {
	local i mine

	windows 0 1	# time for older flows, of which there are none
	learn dr < <(
		echo "-A -u $SVC4 -s mhs"
		echo "-A -u $SVC6 -s mhs"
		for i in 1 2; do
			echo "-a -u $SVC4 -r 10.2.0.1$i:$PORT -g -w 1 -x 1000"
			echo "-a -u $SVC6 -r [fd02::1$i]:$PORT -g -w 1 -x 1000"
		done
	)
	windows 3600000 3600000
	pair open 30
	pair ping
	mine=$(sum s1)
	pair_edit -e 1 -g -w 0 -x 1000
	result "threshold: drain" "$(busywait 20 changed; echo $?)"
	pair ping
	check "threshold: drained: none moved" "0 $mine" "$(sum moved) $(sum s1)"
	pair open 30
	pair new
	check "threshold: drained: no new flow comes" "0 $mine" \
		"$(sum lost) $(sum s1)"
	pair close
	dr ipvsadm -C
}

# events DOOR eq|gt: add, another weight, drain, delete; a flood
events() {
	local mine before

	windows 3600000 3600000
	pair_services "1 2 3" mhs
	pair open 30
	pair ping
	streams
	stays "$1: no change"
	check "$1: no change, no entry" 0 "$(pair_made)"

	streams
	pair_edit -a 4 -g
	result "$1: a server is added" "$(busywait 20 changed; echo $?)"
	stays "$1: added, hold: none moved"
	check_cmp "$1: added, hold: they have entries" "$(pair_made)" -gt 0
	streams
	result "$1: added, pin" "$(to_pin; echo $?)"
	stays "$1: added, pin: none moved"
	pair open 30
	pair new
	check_cmp "$1: added, pin: new flows, some by the new server" "$(sum s4)" -gt 0

	# in the pin phase of the last one; new flows have entries, too
	before=$(pair_made)
	streams
	windows 3600000 3600000
	pair_edit -e 2 -g -w 3
	result "$1: another weight" "$(busywait 20 changed; echo $?)"
	stays "$1: another weight, hold: none moved"
	check_cmp "$1: another weight: more have entries" "$(pair_made)" -gt "$before"
	streams
	result "$1: another weight, merged" "$(to_pin && to_stable; echo $?)"
	stays "$1: another weight, merged: none moved"

	windows 3600000 3600000
	streams
	stopped
	mine=$(sum s1)
	check_cmp "$1: s1 has flows" "$mine" -gt 0
	streams
	pair_edit -e 1 -g -w 0
	result "$1: drain" "$(busywait 20 changed; echo $?)"
	stays "$1: drain, hold: none moved"
	streams
	result "$1: drain, merged" "$(to_pin && to_stable; echo $?)"
	if [ "$1" = stack ]; then
		result "merged: entries that no flow needs age" \
			"$(busywait 40 aged -v; echo $?)"
		check "merged: those of the drained server do not" 1 \
			"$(aged; echo $?)"
	fi
	stays "$1: drain, merged: none moved"
	check "$1: the drained server has its flows" "$mine" "$(sum s1)"
	windows 3600000 3600000
	dr "$here/../../../../../scripts/mhsstat" drain -u "$SVC4" "10.2.0.11:$PORT" \
		--timeout 1s >"$work/said" 2>&1
	check "$1: mhsstat drain refuses: the pin time was short" "125 1" \
		"$? $(dr ipvsadm -Ln -u "$SVC4" | grep -c "10.2.0.11:$PORT")"

	check_cmp "$1: what the lane forwarded" "$(pair_total PktLane)" \
		"-$2" 0

	pair_edit -d 1
	pair ping
	check "$1: deleted: its flows move, and no others" "0 $mine" \
		"$(sum lost) $(sum moved)"
	pair close
	dr ipvsadm -C
}

plan 63
fresh_module stay_ports=7,$PORT
setup_net 4
dgram_servers $PORT
pair_clients
events stack eq
sysctls dr net.ipv4.vs.mhs.{lane=1,ingress=eth0}
events lane gt
limited
thresholds

# The control, on ports that are not listed
fresh_module
sysctls dr net.ipv4.vs.mhs.{lane=1,ingress=eth0}
windows 3600000 3600000
pair_services "1 2 3" mhs
pair open 30
pair ping
streams
pair_edit -a 4 -g
result "control: a server is added" "$(busywait 20 changed && to_pin; echo $?)"
stopped
check_cmp "control: added, pin: flows move" "$(sum moved)" -gt 4
result "control: merged" "$(to_stable; echo $?)"
windows 3600000 3600000
pair ping
mine=$(sum s1)
check_cmp "control: s1 has flows" "$mine" -gt 0
streams
pair_edit -e 1 -g -w 0
result "control: drain" "$(busywait 20 changed; echo $?)"
stopped
check_cmp "control: drain: they move" "$(sum moved)" -ge "$mine"
check "control: without an entry" 0 "$(pair_made)"
check_cmp "control: the lane forwarded" "$(pair_total PktLane)" -gt 0
dr ipvsadm -C
