#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1500
# weight: 300
# The patch series' selftest of XDP programs, in the newest stock kernel with the
# modules that build-ipvs made: User-Mode Linux has no compiler for programs that
# call modules.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

modules=$(cd "${0%/*}/../../../build/kernel/$MHS_KERNEL/ipvs-series" && pwd)

# run_test: $said is its result
run_test() {
	"$modules/tools/testing/selftests/net/ipvs_mhs/xdp.sh" >"$work/log" 2>&1
	said=$?
	sed 's/^/# /' "$work/log"
}

plan 3
modprobe -a libcrc32c nf_conntrack nf_defrag_ipv6 2>/dev/null
for name in ip_vs ip_vs_wlc ip_vs_mhs; do
	insmod "$modules/$name.ko" || exit
done
run_test
check "xdp.sh" 0 "$said"
check "none of its results is missing" "$(sed -n 's/^1\.\.//p' "$work/log")" \
	"$(grep -c '^ok ' "$work/log")"
mount --bind /dev/null \
	"$modules/tools/testing/selftests/net/ipvs_mhs/lane.bpf.o"
run_test
check "control: without the program it is skipped" $KSFT_SKIP "$said"
umount "$modules/tools/testing/selftests/net/ipvs_mhs/lane.bpf.o"
rmmod ip_vs_mhs ip_vs_wlc
