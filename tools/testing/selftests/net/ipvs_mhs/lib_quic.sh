# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2154 # SVC4, SVC6 are of lib_pair.sh
# QUIC by connection ID, by crafted packets: see dgrams.py.  Sourced after
# lib_pair.sh.

N=40

# ids [SUFFIX...]: both services have IDs, of several configurations; ids_off
ids() {
	local suffix list=""

	for suffix in "${@:-}"; do
		list+="$SVC4$suffix $SVC6$suffix "
	done
	dr sysctl -qw net.ipv4.vs.mhs.quic_ids="$list"
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

# quic_net: three servers, and a second address of the client
quic_net() {
	setup_net 3
	ip_ns cl <<-EOF
		addr add 10.1.0.3/24 dev eth0
		addr add fd01::3/64 dev eth0 nodad
	EOF
	dgram_servers "$PORT"
	pair_clients "$@"
}
