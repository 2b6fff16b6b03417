#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
# tags: core
# The second chance: forged SYNs, one for each flow, after a drain break no flow.  The
# program reads the half-open sockets that they make, for which the kernel needs BTF.
# The control is the program that takes a half-open socket for the flow's.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"
# shellcheck source=lib_chance.sh
. "${0%/*}/lib_chance.sh"

# forge: a SYN for each flow of the clients
forge() {
	local version

	for version in 4 6; do
		set -- "$VIP4" "$VIP4"
		[ $version = 4 ] || set -- "$VIP6" "[$VIP6]"
		in_ns cl ss -Htn state established dst "$2" |
			sed -E 's/^ *[0-9]+ +[0-9]+ +\[?([^] ]*[^]: ])\]?:([0-9]+) .*/\1 \2/' |
			raw cl --dst "$1" --good --pairs
	done
}

# half_open: sockets on s2 and s3
half_open() {
	local s

	for s in s2 s3; do
		in_ns $s ss -Htn state syn-recv
	done | wc -l
}

# attack PROGRAM: with that on the servers
attack() {
	both -e 1 1
	pair reset
	tell "$1"
	pair open 20
	pair ping
	both -e 1 0
	forge >/dev/null
}

plan 4
[ -e /sys/kernel/btf/vmlinux ] || skip_all "no BTF in this kernel"
program real
program bug -without-btf
chance_net

attack real
check_cmp "forged SYNs make half-open sockets on other servers" \
	"$(half_open)" -gt 0
pair ping
check "none broken, none moved" "0 0" "$(sum broken) $(sum moved)"
attack bug
pair ping 2
check_cmp "control: the program that believes them breaks flows" \
	"$(sum broken)" -gt 0
packets real 2000
