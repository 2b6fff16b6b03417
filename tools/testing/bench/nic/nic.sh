#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 40
# make bench BENCH=nic: all runs without a card, nothing is left behind, and a row whose
# packets went another way is no figure.

# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../../selftests/net/ipvs_mhs/lib.sh"
need ethtool ip ipvsadm
plan 8
load_module

readonly out=$MHS_LOGS/nic.txt said=$MHS_LOGS/said

# nic WORD...: what it says ends in $said
nic() {
	"${0%/*}/run" "$@" --lane "${MHS_KO%/*}/lane.bpf.o" --out "$out" >"$said" 2>&1
}

# left: namespaces and devices of the benchmark
left() {
	ip netns
	ip -br link show | grep -o '^nic-[ab]'
}

check "here: it runs" 0 "$(nic here --rows route,lane --seconds 0.5; echo $?)"
check "a line for each row, and functions" \
	"route lane functions: route functions: lane" \
	"$(grep -oE '^(route|lane|functions: [a-z]*)' "$out" | xargs)"
check "the file says that the figures mean nothing" yes \
	"$(grep -q 'mean nothing' "$out" && echo yes)"
check "nothing is left" "" "$(left)"

ip link add pa type veth peer name pb
ip addr add 192.0.2.1/24 dev pb
check "a port in use is refused" "bench-nic: pb is in use (192.0.2.1): name a port \
without addresses, which no bridge or bond has" "$(nic pair pa pb; cat "$said")"
ip addr flush dev pb

"${0%/*}/run" pair pa pb --rows mhs --rate 1000 --seconds 600 >"$said" 2>&1 &
pid=$!
busywait 60 grep -q "mhs, 1200 s" "$said"
kill "$pid"
wait "$pid"
check "a signal ends it: the ports are back" "pa pb" \
	"$(ip -br link show type veth | grep -oE '^p[ab]' | sort | xargs)"
check "and nothing else is left" "" "$(left)"

while sleep 0.1; do
	ip netns exec nic-director sysctl -qw net.ipv4.vs.mhs.lane=0
done 2>/dev/null &
pid=$!
nic here --rows lane --seconds 0.5
kill "$pid"
check "control: the lane is off: no figure" yes \
	"$(grep -q 'lane: of .* packets .* went by the lane' "$said" && echo yes)"
