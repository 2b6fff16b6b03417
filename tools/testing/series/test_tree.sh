#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 400
# The selftest of mhs in the tree of a kernel that has the postings.  That the
# kernel's log has no warning, and that nothing leaked, is part of the verdict of
# machine/run.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

tree=$(cd "${0%/*}/../../../build/kernel/$MHS_KERNEL/source" && pwd)
cd "$tree/tools/testing/selftests/net/netfilter" || exit
# as there: the module is where modprobe finds it
unset MHS_KO

# run_test: $status and $good, the number of its good results
run_test() {
	./ipvs_mhs.py 2>&1 | tee "$work/log" | sed -u 's/^/# /'
	status=${PIPESTATUS[0]}
	good=$(grep -c ^ok "$work/log")
}

plan 3
run_test
check "ipvs_mhs.py" 0 "$status"
check "it has all its results" 74 "$good"
mount --bind /bin/false "$(command -v ipvsadm)"
run_test
umount "$(command -v ipvsadm)"
check "control: without ipvsadm it fails" 1 "$status"
