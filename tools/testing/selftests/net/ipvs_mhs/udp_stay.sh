#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 45
# UDP on the ports of the parameter stay_ports: flows that send in the hold phase stay
# at their server while that is listed, by an entry that is made in a transition only.
# Sockets that send 100 datagrams a second, with the lane and without, and DTLS.  On
# another port the same flows move.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=5060 proto=-u client_py=dgrams.py DTLS=4433

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"
need openssl

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

# pinned: entries that were made for both services
pinned() {
	echo $(($(pair_total NewEntries) + $(pair_total PinnedEntries)))
}

# changed: the change has reached the slots
changed() {
	[ "$(mhs Hold "$SVC4")" -gt 0 ] && [ "$(mhs Hold "$SVC6")" -gt 0 ]
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
	check "$1: no change, no entry" 0 "$(pinned)"

	streams
	pair_edit -a 4 -g
	result "$1: a server is added" "$(busywait 20 changed; echo $?)"
	stays "$1: added, hold: none moved"
	check_cmp "$1: added, hold: they have entries" "$(pinned)" -gt 0
	streams
	result "$1: added, pin" "$(to_pin; echo $?)"
	stays "$1: added, pin: none moved"
	pair open 30
	pair new
	check_cmp "$1: added, pin: new flows, some by the new server" "$(sum s4)" -gt 0

	# in the pin phase of the last one; new flows have entries, too
	streams
	windows 3600000 3600000
	pair_edit -e 2 -g -w 3
	result "$1: another weight" "$(busywait 20 changed; echo $?)"
	stays "$1: another weight, hold: none moved"
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
	before=$(pinned)
	dr sysctl -qw net.ipv4.vs.mhs.max_quic_entries=1
	pair spray 400
	pair ping
	check "$1: a flood moves none" "0 0" "$(sum lost) $(sum moved)"
	check_cmp "$1: it is past the limit" "$(pair_total Capped)" -gt 20
	check "$1: and makes no entry" "$before" "$(pinned)"
	dr sysctl -qw net.ipv4.vs.mhs.max_quic_entries=65536
	streams
	result "$1: drain, merged" "$(to_pin && to_stable; echo $?)"
	stays "$1: drain, merged: none moved"
	check "$1: the drained server has its flows" "$mine" "$(sum s1)"

	check_cmp "$1: what the lane forwarded" "$(pair_total PktLane)" \
		"-$2" 0

	pair_edit -d 1
	pair ping
	check "$1: deleted: its flows move, and no others" "0 $mine" \
		"$(sum lost) $(sum moved)"
	pair close
	dr ipvsadm -C
}

# says TEXT SECONDS: by DTLS, until a server has understood it
says() {
	echo "$1" >&"$dtls_in"
	busywait "$2" grep -q "^$1$" "$work/s1.dtls" "$work/s2.dtls"
}

# dtls NAME SECONDS: one connection through a drain; does its server hear it then?
dtls() {
	local s mine pids=()

	windows 3600000 3600000
	learn dr < <(
		echo "-A -u $VIP4:$DTLS -s mhs"
		real_lines "$VIP4:$DTLS" -g 1 2
	)
	for s in s1 s2; do
		bg_ns $s openssl s_server -quiet -dtls -accept "$VIP4:$DTLS" \
			-key "$work/key" -cert "$work/cert" <&"$never" \
			>"$work/$s.dtls" 2>&1 &
		pids+=($!)
		defer kill $!
		busywait 20 eval '[ -n "$(in_ns $s ss -Hlun sport = :$DTLS)" ]'
	done
	mkfifo "$work/$1"
	bg_ns cl openssl s_client -quiet -dtls -connect "$VIP4:$DTLS" \
		<"$work/$1" >"$work/client.dtls" 2>&1 &
	pids+=($!)
	defer kill $!
	exec {dtls_in}>"$work/$1"
	says "hello $1" 30
	result "DTLS, $1: a connection" $?
	mine=1
	grep -q "^hello" "$work/s1.dtls" || mine=2
	dr ipvsadm -e -u "$VIP4:$DTLS" -r "10.2.0.1$mine:$DTLS" -g -w 0
	says "drained $1" "$2"
	heard=$?
	exec {dtls_in}>&-
	kill "${pids[@]}"
	wait "${pids[@]}"
	dr ipvsadm -C
}

plan 53
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
	-subj /CN=mhs -keyout "$work/key" -out "$work/cert" 2>/dev/null
fresh_module stay_ports=7,$PORT,$DTLS
setup_net 4
dgram_servers $PORT
pair_clients
events stack eq
sysctls dr net.ipv4.vs.mhs.{lane=1,ingress=eth0}
events lane gt
dtls stay 30
check "DTLS: the connection outlives a drain" 0 $heard

# The control, on ports that are not listed
fresh_module
windows 3600000 3600000
pair_services "1 2 3" mhs
pair open 30
pair ping
mine=$(sum s1)
check_cmp "control: s1 has flows" "$mine" -gt 0
streams
pair_edit -e 1 -g -w 0
busywait 20 changed
stopped
check_cmp "control: on another port they move" "$(sum moved)" -ge "$mine"
check "control: without an entry" 0 "$(pinned)"
dr ipvsadm -C
dtls move 2
check "control: another server does not understand it" 1 $heard
