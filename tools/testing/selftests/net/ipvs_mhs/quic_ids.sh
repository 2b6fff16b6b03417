#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# tags: core
# QUIC by connection ID: a packet whose ID names a server goes to that server, from
# whatever address and port, drained or just deleted, without entries.  Each with a
# control: without the IDs the same flows move.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=443 proto=-u client_py=dgrams.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
# shellcheck source=lib_quic.sh
. "$(dirname "$0")/lib_quic.sh"

# by_table NAME KIND: the control of what names a server: packets with the ID of s2
# go where those without an ID go, to others, too
by_table() {
	pair ping short
	pair ping "$2"
	check "$1" "0 0 0" "$(sum lost) $(sum refused) $(sum moved)"
	check_cmp "$1: not all to one server" "$(sum s2)" -lt $((2 * N))
}

# tunnel_error: a router tells the director that the way to s1 has a small MTU
tunnel_error() {
	in_ns rt python3 -S - "$here" $VIP4 $PORT <<-'EOF'
		import sys
		sys.path.insert(0, sys.argv[1])
		import craft
		import netlab
		vip, port = sys.argv[2:]
		inner = craft.udp(craft.addr("10.1.0.2"), craft.addr(vip), 40000,
		                  int(port), bytes(64))
		outer = netlab.ip(craft.addr("10.2.0.10"),
		                  craft.addr("10.2.0.11"), 4, inner)
		netlab.Sender()("10.2.0.10", craft.too_big(
		    craft.addr("10.2.0.1"), craft.addr("10.2.0.10"), outer))
	EOF
}

# tunnel_errors: about the server that no slot names any more; without IDs the error
# is about no flow
tunnel_errors() {
	ids_off
	tunnel_error
	before=$(mhs PktIcmp "$SVC4")
	check "control: $method: without IDs the error is about no flow" 0 "$before"
	ids
	tunnel_error
	busywait 20 grown 1 mhs PktIcmp "$SVC4"
	check "$method: errors about its tunnel" "1 mtu 1400" \
		"$(mhs PktIcmp "$SVC4") $(dr ip route get 10.2.0.11 |
			grep -o "mtu [0-9]*")"
}

# let_go: no deleted server is held
let_go() {
	[ "$(pair_total Gone)" -eq 0 ]
}

plan 75
fresh_module
modprobe -q -a ipip ip6_tunnel
quic_net
for method in -g -i; do
	windows 3600000 3600000
	begin $method
	check "$method: flows" "$((2 * N)) 0" "$(sum flows) $(sum lost)"
	moves
	strays "$method: no IDs, other ports"
	check "control: $method: by no ID" 0 "$(pair_total PktById)"

	ids
	check "$method: QuicIds" 2 "$(pair_total QuicIds)"
	moves
	for kind in short handshake handshake2; do
		stays "$method: other ports, $kind" $kind
	done
	check "$method: packets by ID" $((6 * N)) "$(pair_total PktById)"
	moves 10.1.0.3 fd01::3
	stays "$method: other addresses"

	# drained and merged: only the ID knows the server
	windows 0 100
	pair_edit -e 1 $method -w 0
	result "$method: drained, merged" "$(busywait 20 pair_state stable; echo $?)"
	moves
	stays "$method: drained"
	check_cmp "$method: drained: it has flows" "$(sum s1)" -gt 5
	check_cmp "$method: drained: all by ID" "$(pair_total PktById)" \
		-eq $((10 * N))

	[ $method = -g ] || tunnel_errors

	# deleted: as long as it is held
	windows 3600000 3600000
	pair_edit -d 1
	moves
	stays "$method: deleted, held"
	ids_off
	moves
	strays "$method: no IDs, drained and deleted"

	# let go: its ID names no server
	ids
	to_stable
	result "$method: deleted, let go" "$(busywait 20 let_go; echo $?)"
	before=$(pair_total PktNoId)
	pair ping short@s1
	check "$method: deleted, let go: by no ID" "$((2 * N)) 0 0" \
		"$(($(pair_total PktNoId) - before)) $(sum s1) $(sum lost)"
	dr ipvsadm -C
	pair close
	ids_off
done

# What a forged ID can do: choose among the servers, and nothing else
windows 3600000 3600000
begin -g
ids
pair ping short@s2
check "forged: by the server named" "$((2 * N)) 0" "$(sum s2) $(conns)"
before=$(pair_total PktNoId)
by_table "an ID of no server" short@s9
check "an ID of no server: counted" $((4 * N)) \
	"$(($(pair_total PktNoId) - before))"
for kind in initial initial2 0rtt 0rtt2 retry2 unknown; do
	by_table "$kind: not by its ID" $kind@s2
done
by_table "an ID too short" handshake@000a02000cdeadbe
by_table "an ID of no configuration" short@e00a02000cdeadbeef

# expire_nodest_conn: a deleted server is not held
sysctls dr net.ipv4.vs.expire_nodest_conn=1
pair_edit -d 1
result "expire_nodest_conn: deleted, not held" "$(busywait 20 let_go; echo $?)"
before=$(pair_total PktNoId)
pair ping short@s1
check "expire_nodest_conn: by no ID" "$((2 * N)) 0 0" \
	"$(($(pair_total PktNoId) - before)) $(sum s1) $(sum lost)"
sysctls dr net.ipv4.vs.expire_nodest_conn=0
pair_edit -a 1 -g

# The list changes under packets
(
	# The end waits for the write that runs
	trap exit TERM
	while :; do
		ids
		ids_off
	done
) &
loop=$!
defer kill $loop
for _ in 1 2 3 4 5; do
	pair ping short@s2
	[ "$(sum lost) $(sum refused)" = "0 0" ] || break
done
check "changes of the list: all served" "0 0" "$(sum lost) $(sum refused)"
kill $loop
wait $loop 2>/dev/null
ids

# Servers whose flows need entries
pair_edit -e 2 -g -x 1000
by_table "a server with a threshold" short@s2
pair_edit -e 2 -g -x 0
pair ping short@s2
check "control: without it" $((2 * N)) "$(sum s2)"
pair_edit -e 2 -m
by_table "a server by masquerading" short@s2
pair_edit -e 2 -g

# stateless=0: the IDs go on, also beside entries of other servers; without IDs each
# flow gets its entry, by which mh goes on
sysctls dr net.ipv4.vs.mhs.stateless=0
moves
conns_begin
pair ping short@s2
check "stateless=0: by the server named" "$((2 * N)), entries 0" \
	"$(sum s2), entries $(conns_new)"
ids_off
pair ping short
check "stateless=0, no IDs: an entry each" $((2 * N)) "$(conns_new)"
ids
before=$(pair_total PktTracked)
pair ping short@s2
check "entries of other servers: by the server named" "$((2 * N)) 0" \
	"$(sum s2) $(($(pair_total PktTracked) - before))"
by_table "entries: control: no ID" short
check "entries: control: by them" $((4 * N)) \
	"$(($(pair_total PktTracked) - before))"
dr ipvsadm -E -u "$SVC4" -s mh
dr ipvsadm -E -u "$SVC6" -s mh
pair ping short
check "mh goes on" "0 0" "$(sum lost) $(sum moved)"
sysctls dr net.ipv4.vs.mhs.stateless=1
dr ipvsadm -C
