#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 30
# tags: core
# The sysctl quic_ids: what the kernel takes and refuses, keys where the kernel has AES,
# services that come later, servers that share an ID; what an ID names.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=443 proto=-u client_py=dgrams.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
# shellcheck source=lib_quic.sh
. "$(dirname "$0")/lib_quic.sh"

top=$here/../../../../..
KEY=8f95f09245765f80256934e50c66207f

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
	flow_end c4
	flow_end c6
	pair_clients --key $KEY
	dr ipvsadm -C
	ids "=$KEY"
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
	ids "=${KEY/8/9}"
	moves
	strays "keyed: another key"
	ids "=0:$KEY"
	check "an ID that Envoy 1.40 has issued" "10.2.0.11:$PORT" \
		"$(by_id 1034c5de0bbea53cfb0b29f6a1691637f300)"
	ids "=2:$(openssl kdf -keylen 16 -kdfopt digest:SHA256 \
		-kdfopt hexkey:$KEY$KEY -kdfopt hexsalt:${KEY/8/9}$KEY \
		-kdfopt "info:connection id encryption key" HKDF | tr -d :)"
	check "an ID as nghttpx makes it, of its server, process and thread" \
		"10.2.0.12:$PORT" "$(by_id 5f08f1ea7f9cf9a037e2ea41fe9f87bec4)"
	ids "=0:" "=1:$KEY"
	moves
	strays "keyed: another key to come"
	flow_end c4
	flow_end c6
	pair_clients --key $KEY --bits 1
	pair_edit -e 1 -g -w 1
	busywait 20 pair_state stable
	pair open $N
	pair ping initial
	moves
	stays "two configurations: keyed"
	flow c4 ping short@070a02000cdeadbeef
	check "two configurations: plain" "$N" "$(value s2)"
	check "two configurations: others" "- - -" "$(by_id 470a02000cdeadbeef) $(
		by_id 270a02000cdeadbeef) $(by_id e70a02000cdeadbeef)"
	dr ipvsadm -C
}

# chance WORDS: write them to the other list, of TCP; the status
chance() {
	dr sysctl -qw net.ipv4.vs.mhs.second_chance="$1" 2>/dev/null
	echo $?
}

# refused WORDS: they are an error, which changes nothing
refused() {
	local before name=${1//$'\n'/, a line: }

	before=$(dr sysctl -n net.ipv4.vs.mhs.quic_ids)
	check "quic_ids='$name': refused" "" \
		"$(by_one_call "$1" 2>/dev/null && echo taken)"
	check "quic_ids='$name': as before" "$before" \
		"$(dr sysctl -n net.ipv4.vs.mhs.quic_ids)"
}

by_one_call() {
	dr python3 -c 'import os, sys
os.write(os.open("/proc/sys/net/ipv4/vs/mhs/quic_ids", os.O_WRONLY),
         sys.argv[1].encode())' "$1"
}

# written TEXT: is taken and leaves the list as it was
written() {
	by_one_call "$1"
	check "${#1} bytes written: the list is the same" "0 $VIP4:$PORT" \
		"$? $(dr sysctl -n net.ipv4.vs.mhs.quic_ids | xargs)"
}

fresh_module
modprobe -q libaes
aes=$(grep -cE ' aes_decrypt(\s|$)' /proc/kallsyms)
plan $((aes ? 56 : 44))
quic_net
ids

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
check "lookup: too short" - "$(by_id 070a02000cdeadbe)"
check "lookup: of no configuration" - "$(by_id e70a02000cdeadbeef)"
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
refused "$VIP4:$PORT=7:"
refused "$VIP4:$PORT=0: $VIP4:$PORT=1: $VIP4:$PORT=0:"
refused "$VIP4:$PORT=0: $VIP4:$PORT"
refused "$VIP4:$PORT"$'\n'x
refused "$(printf '%0100d' 0)"
dr sysctl -qw net.ipv4.vs.mhs.quic_ids="$VIP4:$PORT"
written ""
written "$VIP4:$PORT "$'\n \n'
if [ "$aes" -gt 0 ]; then
	keyed
else
	refused "$VIP4:$PORT=$KEY"
fi
many=$(printf "10.9.1.%d:80 " {0..255})
check "second_chance: a key, a service too many, one twice: refused" "1 1 1" \
	"$(chance "$VIP4:80=$KEY") $(chance "$many $VIP4:80") $(
		chance "$VIP4:80 $VIP4:80")"
check "control: as many as there can be" 0 "$(chance "$many")"
check "another port, and apart from quic_ids" "0 $VIP4:80 yes" \
	"$(chance "$VIP4:80") $(dr sysctl -n net.ipv4.vs.mhs.second_chance) $(
		dr sysctl -n net.ipv4.vs.mhs.quic_ids | grep -q ":$PORT" &&
			echo yes)"
check "none: second_chance" "0 " \
	"$(chance "") $(dr sysctl -n net.ipv4.vs.mhs.second_chance)"
ids_off
check "none" "0, " "$(pair_total QuicIds), $(dr sysctl -n net.ipv4.vs.mhs.quic_ids)"
check "who may read it" 600 "$(dr stat -c %a /proc/sys/net/ipv4/vs/mhs/quic_ids)"
ids
lab_stop
netns_del dr
check "the module goes after a namespace with IDs" "" \
	"$(unload_module; loaded && echo loaded)"
