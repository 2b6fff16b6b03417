#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 30
# In a kernel tree that has the series, for check-tree: the command by which
# its developers run selftests.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

tree=$(cd "${0%/*}/../../../build/kernel/$MHS_KERNEL/source" && pwd)

# run_tests: $said is what the command says of basic.sh, ok or not ok
run_tests() {
	make -s -C "$tree/tools/testing/selftests" TARGETS=net/ipvs_mhs \
		TEST_PROGS=basic.sh run_tests >"$work/log" 2>&1
	sed 's/^/# /' "$work/log"
	said=$(sed -En 's,^((not )?ok) .*net/ipvs_mhs: ?basic.sh.*,\1,p' \
		"$work/log")
}

plan 2
run_tests
check "make TARGETS=net/ipvs_mhs run_tests" "ok" "$said"
export MHS_KO=/nonexistent.ko
run_tests
check "control: without the module" "not ok" "$said"
