#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 25
# tags: races
# Flows of a drained or deleted server: a client's reset reaches it in every phase, and
# flows go on after the end of the client's side; IPv4 by direct routing and IPv6 in
# tunnels.  That all others go on, by entries or without: matrix.sh, tunnels.sh.  That
# RST and FIN make no entry: attack.sh.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

# no_sockets: none of the service is left on any server
no_sockets() {
	local s

	for s in s1 s2 s3 s4; do
		[ -z "$(in_ns $s ss -Htn state established "( sport = :80 )")" ] ||
			return 1
	done
}

# change PHASE: of flows, for which a server is drained, deleted or neither
change() {
	windows 3600000 3600000
	pair open 40
	case $1 in
	deleted) pair_weight -d 2 ;;
	hold | pin) pair_weight -e 2 0 ;;
	esac
	[ "$1" != pin ] || to_pin
	conns_begin
}

# undo: of what change has done
undo() {
	[ "$(mhs Servers)" = 4 ] || pair_weight -a 2 1
	pair_weight -e 2 1
	to_stable
}

how6=-i
plan 18
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
pair_services "1 2 3 4" mhs
pair_clients --timeout 4
for phase in stable hold pin deleted; do
	change $phase
	no_sockets
	check "$phase: control: servers have flows" 1 $?
	pair reset
	busywait 15 no_sockets
	result "$phase: a reset ends each" $?
	check "$phase: none makes an entry" 0 "$(conns_new)"
	undo
done

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
undo
half
to_stable
say
say
check_cmp "control: without a word in the pin phase they are" "$(sum broken)" -gt 0
pair reset
undo

# With expire_nodest_conn: matrix.sh.  Set after the deletion it cuts them a moment later
change deleted
pair ping
check "expire_nodest_conn=0: none broken while held" 0 "$(sum broken)"
mine=$(sum s2)
sysctls dr net.ipv4.vs.expire_nodest_conn=1
busywait 20 eval '[ "$(pair_total Gone)" -eq 0 ]'
pair ping
check "expire_nodest_conn, set after the deletion: its flows are cut" "$mine" \
	"$(sum broken)"
