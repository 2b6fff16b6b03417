#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 25
# tags: core
# QUIC, UDP on the ports of the parameter quic_ports, by crafted packets: see dgrams.py.
# An Initial begins a flow, as a SYN does, other packets belong to an older one, which
# is held and then pinned.  By connection ID: a packet whose ID
# names a server goes to that server, from whatever address and port, drained or just
# deleted, without entries; without the IDs the same flows move.  The sysctl quic_ids:
# what the kernel takes and refuses, keys where the kernel has AES, services that come
# later, servers that share an ID.  Real clients and servers: quic_real.sh.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=8443 proto=-u client_py=dgrams.py

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

N=40
OLDER="short greased handshake 0rtt handshake2 0rtt2 retry2 runt"
KEY=8f95f09245765f80256934e50c66207f
top=$here/../../../../..

# served NAME: the last ping was answered, each flow by its server
served() {
	check "$1" "0 0 0" "$(sum lost) $(sum refused) $(sum moved)"
}

# pings KIND...: until one goes wrong
pings() {
	local kind

	for kind; do
		pair ping "$kind"
		[ "$(sum lost) $(sum moved)" = "0 0" ] || break
	done
}

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
		"$(sum lost) $(sum refused) $(sum moved), entries $(conns_new)"
}

# strays NAME: the control, some flows are served by another server
strays() {
	pair ping short@
	check_cmp "control: $1" "$(sum moved)" -gt 5
	check "control: $1: all are served" "0 0" "$(sum lost) $(sum refused)"
}

# begin [ARGUMENTS]: clients with ports that had no entry, and services with three
# servers, by each a part of the flows
begin() {
	flow_end c4
	flow_end c6
	rm -f "$work"/c[46].{in,out}
	pair_clients "$@"
	windows 3600000 3600000
	pair_services "1 2 3" mhs
	conns_begin
	pair open $N
	pair ping initial
}

# by_no_id NAME: packets with the ID of s1, which is no server any more
by_no_id() {
	local before

	before=$(pair_total PktNoId)
	pair ping short@s1
	check "$1" "$((2 * N)) 0 0" \
		"$(($(pair_total PktNoId) - before)) $(sum s1) $(sum lost)"
}

# let_go: no deleted server is held
let_go() {
	[ "$(pair_total Gone)" -eq 0 ]
}

# shapes: by what the packets are, without IDs
shapes() {
	local first before kind

	pair_services "1 2 3" mhs
	pair open 50
	pings initial
	served "stable: an Initial is answered"
	# shellcheck disable=SC2086
	pings initial2 $OLDER
	served "stable: all others, by the same server"
	check "stable: no entry" "0 0" "$(conns) $(pair_total NewEntries)"

	# A server is added
	pair_edit -a 4 -g
	result "hold phase" "$(busywait 20 pair_holding; echo $?)"
	before=$(pair_total PktOld)
	# shellcheck disable=SC2086
	pings $OLDER
	served "hold: older flows stay"
	check_cmp "hold: they go to the old server" \
		$(($(pair_total PktOld) - before)) -gt 40
	first=0
	for kind in initial initial2; do
		pair open 40
		pair new $kind
		check "hold: new flows of $kind" "0 0" "$(sum lost) $(sum refused)"
		check_cmp "hold: $kind, some by the new server" \
			$(($(sum s4) - first)) -gt 4
		first=$(sum s4)
	done
	check_cmp "hold: with an entry each" "$(conns)" -ge "$first"
	pings short
	served "hold: all of them stay"

	# Older flows get an entry; the limit of these: attack.sh
	result "pin phase" "$(to_pin; echo $?)"
	pings short
	check_cmp "pin: they are pinned" "$(pair_total PinnedEntries)" -gt 4
	result "merged" "$(to_stable; echo $?)"
	pings short
	served "merged: all stay"

	# Entries that forged packets have made lead to a server of weight 0: a real
	# Initial goes elsewhere, with what follows, but one that is forged moves no flow
	pair open 20
	pair new initial
	pair_edit -e 1 -g -w 0
	to_pin
	pair ping short
	pair ping initial
	check_cmp "weight 0: Initials leave entries that short headers made" \
		"$(sum moved)" -gt 4
	before=$(sum moved)
	pair ping short
	check "weight 0: one Initial moves no flow" "0 $before" \
		"$(sum lost) $(sum moved)"
	pair ping initial
	pair ping handshake
	check "weight 0: none meets the server, after a handshake" "0 0" \
		"$(sum lost) $(sum s1)"
	result "weight 0: merged" "$(to_stable; echo $?)"

	dr ipvsadm -C
}

# tunnel_error: a router tells the director that the way to s1 has a small MTU
tunnel_error() {
	in_ns rt python3 -S - "$here" $VIP4 $PORT <<-'EOF'
		import sys
		sys.path.insert(0, sys.argv[1])
		from netlab import Sender, icmp, ip, udp
		inner = udp("10.1.0.2", 40000, sys.argv[2], int(sys.argv[3]), bytes(64))
		outer = ip("10.2.0.10", "10.2.0.11", 4, inner)
		Sender()("10.2.0.10", icmp("10.2.0.1", "10.2.0.10", 3, 4, 1400, outer))
	EOF
}

# by_id: IPIP and, with IPv6, direct routing
by_id() {
	local how4=-i how6=-g

	begin
	check "flows" "$((2 * N)) 0" "$(sum flows) $(sum lost)"
	moves
	strays "no IDs, other ports"
	ids
	moves 10.1.0.3 fd01::3
	stays "other ports and addresses"

	# drained and merged: only the ID knows the server
	pair_weight -e 1 0
	result "drained, merged" "$(to_stable; echo $?)"
	moves
	stays "drained"
	check_cmp "drained: it has flows" "$(sum s1)" -gt 5

	# no slot names that server any more; without IDs the error is about no flow
	ids_off
	tunnel_error
	check "control: without IDs the error is about no flow" 0 \
		"$(mhs PktIcmp "$SVC4")"
	ids
	tunnel_error
	before=0
	busywait 20 grown 1 mhs PktIcmp "$SVC4"
	check "errors about its tunnel" "1 mtu 1400" "$(mhs PktIcmp "$SVC4") $(
		dr ip route get 10.2.0.11 | grep -o "mtu [0-9]*")"

	# deleted: as long as it is held
	windows 3600000 3600000
	pair_edit -d 1
	moves
	stays "deleted, held"
	to_stable
	result "deleted, let go" "$(busywait 20 let_go; echo $?)"
	by_no_id "deleted, let go: by no ID"
	dr ipvsadm -C
	ids_off
}

# forged: what a forged ID can do is choose among the servers, and nothing else
forged() {
	local before loop

	begin
	ids
	pair ping short@s2
	check "forged: by the server named" "$((2 * N)) 0" "$(sum s2) $(conns_new)"
	before=$(pair_total PktNoId)
	pair ping short
	pair ping short@s9
	served "an ID of no server: as without one"
	check "an ID of no server, or none: counted" $((4 * N)) \
		"$(($(pair_total PktNoId) - before))"

	sysctls dr net.ipv4.vs.expire_nodest_conn=1
	pair_edit -d 1
	result "expire_nodest_conn: deleted, not held" "$(busywait 20 let_go; echo $?)"
	by_no_id "expire_nodest_conn: by no ID"
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

	# stateless=0: the IDs go on, also beside entries of other servers
	sysctls dr net.ipv4.vs.mhs.stateless=0
	ids_off
	conns_begin
	pair ping short
	check "stateless=0, no IDs: an entry each" $((2 * N)) "$(conns_new)"
	ids
	before=$(pair_total PktTracked)
	pair ping short@s2
	check "entries of other servers: by the server named" "$((2 * N)) 0" \
		"$(sum s2) $(($(pair_total PktTracked) - before))"
	sysctls dr net.ipv4.vs.mhs.stateless=1
	dr ipvsadm -C
}

# says HEX...: what /proc/net/ip_vs_mhs_lookup says of these IDs
says() {
	dr python3 -IS - "UDP $VIP4 $PORT 10.1.0.2 40000" "$@" <<-'EOF'
		import sys
		for word in sys.argv[2:]:
		    with open("/proc/net/ip_vs_mhs_lookup", "r+b", buffering=0) as f:
		        try:
		            f.write(f"{sys.argv[1]} {word}".encode())
		            print(f.read(4096).decode().split("ById ")[1].strip(), end=" ")
		        except OSError:
		            print("refused", end=" ")
	EOF
}

# keyed: with a key, which the servers have, too; the controls, another key and a
# drained server.  Then what the kernel says of an ID.
keyed() {
	local kind

	ids "=$KEY"
	begin --key $KEY
	moves
	for kind in short handshake; do
		stays "keyed: other ports, $kind" $kind
	done
	check "keyed: packets by ID" $((4 * N)) "$(pair_total PktById)"
	pair_edit -e 1 -g -w 0
	to_stable
	moves
	stays "keyed: drained"
	ids "=${KEY/8/9}"
	moves
	strays "keyed: another key"
	ids "=0:$KEY"
	check "an ID that Envoy 1.40 has issued" "10.2.0.11:$PORT " \
		"$(says 1034c5de0bbea53cfb0b29f6a1691637f300)"
	ids "=2:$(openssl kdf -keylen 16 -kdfopt digest:SHA256 \
		-kdfopt hexkey:$KEY$KEY -kdfopt hexsalt:${KEY/8/9}$KEY \
		-kdfopt "info:connection id encryption key" HKDF | tr -d :)"
	check "an ID as nghttpx makes it, of its server, process and thread" \
		"10.2.0.12:$PORT " "$(says 5f08f1ea7f9cf9a037e2ea41fe9f87bec4)"
	ids "=0:" "=1:$KEY"
	moves
	strays "keyed: another key to come"
	dr ipvsadm -C
	begin --key $KEY --bits 1
	moves
	stays "two configurations: keyed"
	flow c4 ping short@070a02000cdeadbeef
	check "two configurations: plain" "$N" "$(value s2)"
	check "two configurations: others" "- - - " \
		"$(says 470a02000cdeadbeef 270a02000cdeadbeef e70a02000cdeadbeef)"
	dr ipvsadm -C
}

# chance WORDS: write them to the other list, of TCP; the status
chance() {
	dr sysctl -qw net.ipv4.vs.mhs.second_chance="$1" 2>/dev/null
	echo $?
}

# takes WORDS...: those that quic_ids takes, or that change it, each by one call
takes() {
	dr python3 -IS - "$@" <<-'EOF'
		import os, sys
		def read():
		    with open(path) as f:
		        return f.read()
		path = "/proc/sys/net/ipv4/vs/mhs/quic_ids"
		before = read()
		for words in sys.argv[1:]:
		    try:
		        os.write(os.open(path, os.O_WRONLY), words.encode())
		    except OSError:
		        if read() == before:
		            continue
		    print(repr(words), end=" ")
	EOF
}

# list: the services that IDs are for, and what the kernel says of an ID
list() {
	local i many words

	ids
	begin
	check "services that come later" 2 "$(pair_total QuicIds)"
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

	check "lookup: of a server, of none, too short, of no configuration, no IDs" \
		"10.2.0.12:$PORT - - - refused refused refused " \
		"$(says 07{0a02000cdeadbeef,0a020099deadbeef,0a02000cdeadbe} \
			e70a02000cdeadbeef 0 0x07 "$(printf '00%.0s' {1..21})")"

	words=("$(printf '%0100d' 0)")
	for i in "" ":444" ":$PORT x" ":$PORT $VIP4:$PORT" ":$PORT=00" ":$PORT=7:" \
		":$PORT=0: $VIP4:$PORT=1: $VIP4:$PORT=0:" ":$PORT=0: $VIP4:$PORT" \
		":$PORT"$'\n'x; do
		words+=("$VIP4$i")
	done
	[ "$aes" -gt 0 ] || words+=("$VIP4:$PORT=$KEY")
	check "quic_ids: what is refused changes nothing" "" "$(takes "${words[@]}")"
	check "blank lines: the list is the same" "'$VIP4:$PORT \n \n' $VIP4:$PORT" \
		"$(takes "$VIP4:$PORT "$'\n \n')$(
			dr sysctl -n net.ipv4.vs.mhs.quic_ids | xargs)"
	many=$(printf "10.9.1.%d:80 " {0..255})
	check "second_chance: a key, a service too many, one twice: refused" "1 1 1" \
		"$(chance "$VIP4:80=$KEY") $(chance "$many $VIP4:80") $(
			chance "$VIP4:80 $VIP4:80")"
	check "control: as many as there can be" 0 "$(chance "$many")"
	check "another port, and apart from quic_ids" "0 $VIP4:80 yes" \
		"$(chance "$VIP4:80") $(dr sysctl -n net.ipv4.vs.mhs.second_chance) $(
			dr sysctl -n net.ipv4.vs.mhs.quic_ids | grep -q ":$PORT" &&
				echo yes)"
	ids_off
	check "none" "0, " \
		"$(pair_total QuicIds), $(dr sysctl -n net.ipv4.vs.mhs.quic_ids)"
	check "who may read it" 600 \
		"$(dr stat -c %a /proc/sys/net/ipv4/vs/mhs/quic_ids)"
	dr ipvsadm -C
}

fresh_module quic_ports=443,$PORT
modprobe -q -a ipip ip6_tunnel libaes
aes=$(grep -cE ' aes_decrypt(\s|$)' /proc/kallsyms)
plan $((aes ? 66 : 53))
setup_net 4
ip_ns cl <<-EOF
	addr add 10.1.0.3/24 dev eth0
	addr add fd01::3/64 dev eth0 nodad
EOF
dgram_servers $PORT
windows 3600000 3600000
pair_clients
shapes
by_id
forged
list
[ "$aes" -eq 0 ] || keyed
ids
lab_stop
netns_del dr
check "the module goes after a namespace with IDs" "" \
	"$(unload_module; loaded && echo loaded)"
