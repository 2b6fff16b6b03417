#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 35
# Flows spread over servers whatever clients' addresses have in common, and go
# where the documentation says.  Weights and flag-3: random.sh, limits.sh.

. "${0%/*}/lib.sh"

# service SCHED LINES-OF-SERVERS on standard input.  The servers are others each
# time: those that come back may bring a part of their count.
service() {
	dr ipvsadm -C
	{ echo "-A -t $VIP4:80 -s $*"; cat; } | dr ipvsadm -R
	[ "$1" != mhs ] || wait_settled
}

# counted: connections of each server; the core adds them up every two seconds
counted() {
	dr ipvsadm -Ln --stats --exact | awk '$1 == "->" && $2 ~ /:80$/ {
		print $3 }'
}

total() {
	[ "$(counted | awk '{ n += $1 } END { print n + 0 }')" -ge "$1" ]
}

# used: servers with at least one
used() {
	counted | awk '$1 > 0' | wc -l
}

# same_sum: flows whose address and port have the same sum
same_sum() {
	local i

	for ((i = 1; i <= 30; i++)); do
		echo "10.1.0.$((100 + i)) $((20000 - i))"
	done | raw cl --dst $VIP4 --pairs >/dev/null
	busywait 20 total 25
	used
}

# shares VIP CLIENT: of 2,000 flows for each of two servers
shares() {
	in_ns rt python3 "$here/blast.py" --dev vdr --mac "$mac" --src "$2" \
		--dst "$1" --keys 2000 --sport 20000 --syn >/dev/null
	busywait 20 total 2000
	counted | xargs
}

# foretold ROUNDS CLIENT SERVER...: the same, by the rules
foretold() {
	python3 "$here/reference.py" "$(</sys/module/ip_vs_mhs/parameters/table_size)" \
		"$1" "$2" 20000 2000 "${@:3}"
}

plan 6
load_module
setup_net 0
mac=$(in_ns dr ip -br link show eth0 | awk '{ print $3 }')

add_servers 9 10 11 12 | service mhs
check_cmp "same sum of address and port: servers" "$(same_sum)" -ge 3
check "statistics: what the table says is counted" 0 "$(entries)"

add_servers 31 32 | service mhs
real=(10.2.0.41/80 10.2.0.42/80)
seen=$(shares $VIP4 10.1.0.2)
check "IPv4: flows are where the documentation says" \
	"$(foretold 1-3 10.1.0.2 "${real[@]}")" "$seen"
check "control: another hash would be noticed" different \
	"$([ "$(foretold 2-4 10.1.0.2 "${real[@]}")" = "$seen" ] ||
		echo different)"
dr ipvsadm -C
{
	echo "-A -t [$VIP6]:80 -s mhs"
	real_lines "[$VIP6]:80" -g 33 34
} | dr ipvsadm -R
wait_settled "[$VIP6]:80"
check "IPv6: flows are where the documentation says" \
	"$(foretold 1-3 fd01::2 fd02::43/80 fd02::44/80)" \
	"$(shares $VIP6 fd01::2)"

add_servers 13 14 15 16 | service mh -b mh-port
check "control: mh sends them all to one server" 1 "$(same_sum)"
