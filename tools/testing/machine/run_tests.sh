#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 30
# In a kernel tree that has the series, for check-tree: the command by which
# its developers run selftests.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

tree=$(cd "${0%/*}/../../../build/kernel/$MHS_KERNEL/source" && pwd)

# run_tests: $said is what the command says of each of $tests, ok or not ok
run_tests() {
	local test

	# with a summary the output of each is a file
	make -s -C "$tree/tools/testing/selftests" TARGETS=net/ipvs_mhs \
		TEST_PROGS="$tests" summary=1 run_tests >"$work/log" 2>&1
	for test in $tests; do
		echo "$test:"
		cat "/tmp/$test"
	done | sed 's/^/# /' - "$work/log"
	said=$(sed -En 's,^((not )?ok) .*net/ipvs_mhs: ?\w+\.sh.*,\1,p' \
		"$work/log" | paste -sd ,)
}

# as there: the module is where modprobe finds it
unset MHS_KO
tests="basic.sh edit.sh names.sh proc.sh"
plan 2
run_tests
check "make TARGETS=net/ipvs_mhs run_tests" "ok,ok,ok,ok" "$said"
export MHS_KO=/nonexistent.ko
run_tests
check "control: without the module" "not ok,not ok,not ok,not ok" "$said"
