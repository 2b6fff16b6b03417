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

top=$here/../../../../..
N=40
KEY=8f95f09245765f80256934e50c66207f
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
	ids
	tunnel_error
	before=0
	busywait 20 grown 1 mhs PktIcmp "$SVC4"
	check "$method: errors about its tunnel" "1 mtu 1400" \
		"$(mhs PktIcmp "$SVC4") $(dr ip route get 10.2.0.11 |
			grep -o "mtu [0-9]*")"
}

# by_id HEX: what /proc/net/ip_vs_mhs_lookup says of it
by_id() {
	dr python3 -IS - "UDP $VIP4 $PORT 10.1.0.2 40000 $1" <<-'EOF'
		import sys
		with open("/proc/net/ip_vs_mhs_lookup", "r+b", buffering=0) as f:
		    f.write(sys.argv[1].encode())
		    print(f.read(4096).decode().split("ById ")[1].strip())
	EOF
}

# keyed: the same with a key, which the servers have, too; the controls, another key
# and a drained server.  Then what the kernel says of an ID.
keyed() {
	pair_clients --key $KEY
	dr ipvsadm -C
	ids =$KEY
	begin -g
	check "keyed: QuicIds" 4 "$(pair_total QuicIds)"
	moves
	for kind in short handshake; do
		stays "keyed: other ports, $kind" $kind
	done
	check "keyed: packets by ID" $((4 * N)) "$(pair_total PktById)"
	windows 0 100
	pair_edit -e 1 -g -w 0
	busywait 20 pair_state stable
	moves
	stays "keyed: drained"
	ids =${KEY/8/9}
	moves
	strays "keyed: another key"
	dr ipvsadm -C
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

fresh_module
modprobe -q -a ipip ip6_tunnel libaes
aes=$(grep -c ' aes_decrypt$' /proc/kallsyms)
plan $((aes ? 94 : 89))
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

	[ $method = -g ] || tunnel_errors

	# deleted: as long as it is held
	windows 3600000 3600000
	pair_edit -d 1
	moves
	stays "$method: deleted, held"
	ids_off
	moves
	strays "$method: no IDs, drained and deleted"
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
by_table "an ID too short" handshake@000a0200

# Servers whose flows need entries
pair_edit -e 2 -g -x 1000
by_table "a server with a threshold" short@s2
pair_edit -e 2 -g -x 0
pair ping short@s2
check "control: without it" $((2 * N)) "$(sum s2)"
pair_edit -e 2 -m
by_table "a server by masquerading" short@s2
pair_edit -e 2 -g

# stateless=0: entries, by which mh goes on
sysctls dr net.ipv4.vs.mhs.stateless=0
moves
conns_begin
pair ping short@s2
check "stateless=0: by the server named" $((2 * N)) "$(sum s2)"
check "stateless=0: an entry each" $((2 * N)) "$(conns_new)"
pair ping short@s2
check "stateless=0: no more" $((2 * N)) "$(conns_new)"
dr ipvsadm -E -u "$SVC4" -s mh
dr ipvsadm -E -u "$SVC6" -s mh
pair ping short@s2
check "mh goes on" "0 0" "$(sum lost) $(sum moved)"
sysctls dr net.ipv4.vs.mhs.stateless=1
dr ipvsadm -C
pair close

# A service that comes has what the sysctl says; a server that shares its ID
windows 3600000 3600000
begin -g
check "services that come later" 2 "$(pair_total QuicIds)"
pair ping short@s2
check "they go by ID" $((2 * N)) "$(sum s2)"
dr ipvsadm -a -u "$SVC6" -r "[fd03::12]:$PORT" -g -w 0
kernel_said "\[$VIP6\]:$PORT: the addresses of two servers end in the same"
result "two servers with one ID: the log says so" $?
check "two servers with one ID: mhsstat check" "[quic-unnamed]" \
	"$(dr "$top/scripts/mhsstat" check | grep -o '\[quic-[a-z]*\]$')"
flow c6 ping short
flow c6 ping short@s2
check "two servers with one ID: neither is named" "0 0" \
	"$(value lost) $(value moved)"
dr ipvsadm -d -u "$SVC6" -r "[fd03::12]:$PORT"


# The kernel says the same of an ID
check "lookup: an ID" "10.2.0.12:$PORT" "$(by_id 070a02000cdeadbeef)"
check "lookup: mhsstat" "070a02000cdeadbeef -> 10.2.0.12:$PORT" "$(dr \
	"$top/scripts/mhsstat" lookup -u "$SVC4" --cid 070a02000cdeadbeef |
	head -n 1)"
check "lookup: an ID of no server" - "$(by_id 070a020099deadbeef)"
check "lookup: too short" - "$(by_id 070a0200)"
for id in 0 0x07 "$(printf '00%.0s' {1..21})"; do
	by_id "$id" >/dev/null 2>&1
	check "lookup: $id: refused" 1 $?
done

# The list
refused "$VIP4"
refused "$VIP4:444"
refused "$VIP4:$PORT x"
refused "$VIP4:$PORT $VIP4:$PORT"
refused "$VIP4:$PORT=00"
flow_end c4
flow_end c6
if [ "$aes" -gt 0 ]; then
	keyed
else
	refused "$VIP4:$PORT=$KEY"
fi
ids_off
check "none" "0, " "$(pair_total QuicIds), $(dr sysctl -n net.ipv4.vs.mhs.quic_ids)"
check "who may read it" 600 "$(dr stat -c %a /proc/sys/net/ipv4/vs/mhs/quic_ids)"
ids
lab_stop
netns_del dr
check "the module goes after a namespace with IDs" "" \
	"$(unload_module; loaded && echo loaded)"
