#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 25
# tags: core
# The second chance and what strangers send after a drain: SYN, ACK, RST and FIN for
# each flow, floods of no flow, packets as if a server had sent them back.  No flow
# breaks, nothing goes round, and what one forged packet makes is counted.  Where the
# kernel has BTF the program reads half-open sockets, which a forged SYN makes: there
# SYNs alone are sent, and the control is the program that takes a half-open socket for
# the flow's.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
. "${0%/*}/lib_chance.sh"

# forge ARGUMENTS: of raw.py, for each flow of the clients
forge() {
	local version to name

	for version in 4 6; do
		to=$VIP4 name=$VIP4
		[ $version = 4 ] || to=$VIP6 name="[$VIP6]"
		in_ns cl ss -Htn state established dst "$name" |
			sed -E 's/^ *[0-9]+ +[0-9]+ +\[?([^] ]*[^]: ])\]?:([0-9]+) .*/\1 \2/' |
			raw cl --dst "$to" --good --pairs "$@"
	done | awk -F= '{ n += $2 } END { print n }'
}

# made NAME SENT RETURNED: of so many forged packets no more came back than each of the
# three servers can send
made() {
	check_cmp "$1: packets that servers sent back, of $2 forged" \
		"$(($(chances Returned) - $3))" -le "$(($2 * 3))"
}

drained() {
	both -e 1 1
	pair reset
	pair open 20
	both -e 1 0
}

# packets: each kind of packet
packets() {
	local maps=/sys/fs/bpf/mhs-packets btf=""

	[ -e /sys/kernel/btf/vmlinux ] || btf=without-btf
	setup_ns lone
	bpftool prog loadall "$MHS_CHANCE" $maps type classifier pinmaps $maps
	defer rm -r $maps
	# shellcheck disable=SC2086
	in_ns lone python3 -IS "$here/chance_packets.py" $maps $btf >"$work/packets"
	check "each kind of packet goes where it should" "0 0" \
		"$? $(awk -F '\t' '$2 { n++ } END { print n + 0 }' "$work/packets")"
	grep -P '\t1\t' "$work/packets" | sed 's/^/# /'
}

# begin SERVERS: the first one is drained, of 20 flows in each family
begin() {
	how4=-g how6=-i
	chance_net "$1"
	# shellcheck disable=SC2086
	equip $servers
	# shellcheck disable=SC2046
	chance_services $(seq "$1")
	busywait 20 answering $((2 * $1))
	drained
}

# A program that reads half-open sockets, and the one that believes them
half_open() {
	forge --flags S >/dev/null
	unbroken "a SYN for each flow"
	MHS_CHANCE=$built-without-btf/chance.bpf.o equip s2
	drained
	forge --flags S >/dev/null
	pair ping 2
	check_cmp "control: the program that believes them breaks flows" \
		"$(sum broken)" -gt 0
}

# Without BTF, as in User-Mode Linux
floods() {
	local before reset sent

	before=$(chances Returned)
	sent=$(forge --flags A R F FA)
	check_cmp "control: ACK, RST and FIN with wrong numbers" "$sent" -ge 160
	made "wrong numbers" "$sent" "$before"
	unbroken "wrong numbers"

	# the resets meet no router that tells of its want of a route
	ip_ns rt <<<"route add blackhole 10.64.0.0/10"
	before=$(chances Returned) reset=$(chances Reset)
	raw cl --dst $VIP4 --count 2000 --flags A R --good >/dev/null
	made "a flood of no flow" 4000 "$before"
	check_cmp "the same: control: packets came back" "$(chances Returned)" -gt "$before"
	check_cmp "the same: a packet makes one reset at most" \
		"$(($(chances Reset) - reset))" -le 4000
	unbroken "a flood of no flow"

	before=$(chances Returned)
	sent=$(forge --flags A --gre 10.1.0.9 10.2.0.10)
	check "what a stranger sends back is dropped" 0 \
		"$(($(chances Returned) - before))"
	before=$(chances Returned)
	sent=$(forge --flags A S R --gre 10.2.0.12 10.2.0.10)
	check_cmp "packets as if a server had sent them back: control: taken" \
		"$(($(chances Returned) - before))" -gt 0
	made "as if sent back" "$sent" "$before"
	unbroken "as if sent back"
}

# Machines whose kernel has BTF are emulated, and slow: floods are sent in the others
if [ -e /sys/kernel/btf/vmlinux ]; then
	plan 3
	begin 2
	half_open
	packets
else
	plan 12
	begin 3
	floods
	packets
fi
