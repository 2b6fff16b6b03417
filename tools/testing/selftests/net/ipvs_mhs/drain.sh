#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 45
# tags: races
# Draining and deleting a server keeps its flows, IPv4 by direct routing and IPv6 in
# tunnels, also after the end of the client's side, and a client's reset reaches its
# server in every phase.  Of mh, and when a deleted server is forgotten: matrix.sh.  That
# RST and FIN make no entry: attack.sh.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

forgotten() {
	[ "$(pair_total Gone)" -eq 0 ]
}

# no_sockets: none of the service is left on any server
no_sockets() {
	local s

	for s in s1 s2 s3 s4; do
		[ -z "$(in_ns $s ss -Htn state established "( sport = :80 )")" ] ||
			return 1
	done
}

# resets PHASE: of all flows
resets() {
	no_sockets
	check "$1: control: servers have flows" 1 $?
	pair reset
	busywait 15 no_sockets
	result "$1: a reset ends each" $?
}

how6=-i
plan 25
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
windows 3600000 3600000
sysctls dr net.ipv4.vs.expire_nodest_conn=0
pair_services "1 2 3 4" mhs
pair_clients --timeout 4

# Weight 0: idle flows that wake in either phase
pair open 60
check "flows opened" 120 "$(sum flows)"
pair ping
mine=$(sum s1)
pair_weight -e 1 0
before=$(accepted s1)
pair ping
pair open 20
check "weight 0: no new flow refused" 0 "$(sum failed)"
result "weight 0: pin phase begins" "$(to_pin; echo $?)"
pair ping
check_cmp "weight 0: the server's flows are pinned" \
	"$(pair_total PinnedEntries)" -ge "$mine"
result "weight 0: merged" "$(to_stable; echo $?)"
pair ping
check "weight 0: none broken, none moved" "0 0" "$(sum broken) $(sum moved)"
check "weight 0: the server accepts no flow" "$before" "$(accepted s1)"

# then delete it: its flows have entries, which go on for hold + pin
windows 3600000 3600000
pair_weight -d 1
pair ping
check "then delete: none broken, none moved" "0 0" "$(sum broken) $(sum moved)"
check "then delete: the server accepts no flow" "$before" "$(accepted s1)"
resets "deleted"
to_stable
windows 3600000 3600000
pair open 40
resets "stable"
pair open 40
pair_weight -e 2 0
resets "hold"
pair_weight -e 2 1
pair open 40
pair_weight -e 2 0
to_pin
conns_begin
resets "pin"
check "pin: none makes an entry" 0 "$(conns_new)"
pair_weight -e 2 1

# half: flows whose clients end in the pin phase, and listen on
half() {
	windows 3600000 3600000
	pair open 40
	pair half
	pair_weight -e 2 0
	to_pin
	conns_begin
	pair fin
}

# say: servers do
say() {
	lab say
	pair read
}

half
check "half-closed: the end of a client makes no entry" 0 "$(conns_new)"
say
check_cmp "half-closed: what follows does" "$(conns_new)" -gt 0
to_stable
say
check "half-closed, merged: none is cut" "80 0" "$(sum flows) $(sum broken)"
pair reset
pair_weight -e 2 1
to_stable
half
to_stable
say
say
check_cmp "control: without a word in the pin phase they are" "$(sum broken)" -gt 0
pair reset
pair_weight -e 2 1
to_stable

# With expire_nodest_conn: matrix.sh.  Set after the deletion it cuts them a moment later
windows 3600000 3600000
pair open 40
pair ping
mine=$(sum s3)
pair_weight -d 3
pair ping
check "expire_nodest_conn=0: none broken while held" 0 "$(sum broken)"
sysctls dr net.ipv4.vs.expire_nodest_conn=1
result "expire_nodest_conn, set after the deletion: forgotten" \
	"$(busywait 20 forgotten; echo $?)"
pair ping
check "expire_nodest_conn, set after the deletion: its flows are cut" "$mine" \
	"$(sum broken)"
pair reset
dr ipvsadm -C

