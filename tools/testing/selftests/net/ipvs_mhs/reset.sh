#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 35
# A client's reset reaches its server in every phase of a slot, without an
# entry; stray RST and FIN never make one.  With mh a reset without an entry
# is lost and the server keeps the socket.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

# stray FLAGS...: such segments from 300 ports to each service
stray() {
	raw cl --dst $VIP4 $VIP6 --src 10.1.0.2 fd01::2 --ports 2000-2299 \
		--flags "$@" >/dev/null
}

made() {
	echo $(($(pair_total NewEntries) + $(pair_total PinnedEntries)))
}

# resets PHASE: close all flows; sockets and entries left
resets() {
	pair reset
	result "$1: no socket is left" "$(busywait 15 sockets_gone; echo $?)" \
		"$(sockets) left"
	check "$1: no entry was made" "${2:-0}" "$(made)"
}

plan 17
load_module
setup_net 4
windows 3600000 3600000
pair_services "1 2 3 4" mhs
pair_clients --timeout 4

pair open 60
pair ping
check "flows opened" "120 0" "$(sum flows) $(sum broken)"
check "their sockets" 120 "$(sockets)"
resets "stable"

# Flows and strays of the server that is drained are in unstable slots
pair open 60
pair ping
stray A
mine=$(sum s1)
pair_edit -e 1 -g -w 0
check_cmp "flows of the drained server" "$mine" -gt 3
result "hold phase" "$(busywait 20 pair_holding; echo $?)"
before=$(pair_total PktOld)
stray R F
check "hold: stray RST and FIN make no entry" 0 "$(made)"
check_cmp "hold: stray RST and FIN go to the old server" \
	"$(($(pair_total PktOld) - before))" -ge 240
resets "hold"

# Opened while the slots are stable again, closed as they pin
windows 3600000 3600000
pair_edit -e 1 -g -w 1
busywait 10 pair_state stable
pair open 60
pair ping
stray A
pair_edit -e 1 -g -w 0
result "pin phase" "$(to_pin; echo $?)"
base=$(made)
stray R F FA
check "pin: stray RST and FIN make no entry" "$base" "$(made)"
resets "pin" "$base"
raw cl --dst $VIP4 --src 10.1.0.2 --ports 2000-2299 --flags A >/dev/null
check_cmp "control: other segments do make one" "$(made)" -gt $((base + 40))
dr ipvsadm -C

# With mh, once the entries have expired
conns_begin
pair_services "1 2 3 4" mh -b mh-port
pair open 20
check "control: mh makes entries" 40 "$(conns_new)"
dr ipvsadm --set 3 3 0
pair ping
expired() {
	[ "$(conns_new)" -eq 0 ]
}
busywait 30 expired
pair reset
for ((i = 0; i < 30; i++)); do
	! sockets_gone || break
	nap 0.1 # why: none may go in three seconds
done
check "control: mh loses the reset of a flow without entry" 40 "$(sockets)"
dr ipvsadm -C
