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

N=40
# ids [SUFFIX]: both services have IDs; ids_off
ids() {
	dr sysctl -qw net.ipv4.vs.mhs.quic_ids="$SVC4${1:-} $SVC6${1:-}"
}

ids_off() {
	dr sysctl -qw net.ipv4.vs.mhs.quic_ids=
}

# moves [ADDRESS4 ADDRESS6]: the clients get other ports, and these addresses
moves() {
	flow c4 move ${1:+"$1"}
	flow c6 move ${2:+"$2"}
}

# stays NAME [KIND]: each flow is served by its server, without entries
stays() {
	pair ping "${2:-short}@"
	check "$1" "0 0 0, entries 0" \
		"$(sum lost) $(sum refused) $(sum moved), entries $(conns)"
}

# strays NAME [KIND]: the control, some flows are served by another server
strays() {
	pair ping "${2:-short@}"
	check_cmp "control: $1" "$(sum moved)" -gt 5
	check "control: $1: all are served" "0 0" "$(sum lost) $(sum refused)"
}

# begin METHOD: services with three servers, by each a part of the flows
begin() {
	local svc

	for svc in "$SVC4" "$SVC6"; do
		echo "-A -u $svc -s mhs"
		real_lines "$svc" "$1" 1 2 3
	done >"$work/services"
	learn dr <"$work/services"
	pair open $N
	pair ping initial
}

# refused WORDS: they are an error, which changes nothing
refused() {
	local before

	before=$(dr sysctl -n net.ipv4.vs.mhs.quic_ids)
	check "quic_ids='$1': refused" "" \
		"$(dr sysctl -qw net.ipv4.vs.mhs.quic_ids="$1" 2>/dev/null &&
			echo taken)"
	check "quic_ids='$1': as before" "$before" \
		"$(dr sysctl -n net.ipv4.vs.mhs.quic_ids)"
}

plan 56
fresh_module
modprobe -q -a ipip ip6_tunnel
setup_net 3
ip_ns cl <<-EOF
	addr add 10.1.0.3/24 dev eth0
	addr add fd01::3/64 dev eth0 nodad
EOF
dgram_servers $PORT
pair_clients
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

	# deleted: as long as it is held
	windows 3600000 3600000
	pair_edit -d 1
	moves
	stays "$method: deleted, held"
	dr ipvsadm -C
	pair close
	ids_off
done
