#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1800
# weight: 400
# The selftests of the patch series in a kernel that has it, by the command that
# its developers use: kselftest's own runner.  That the kernel's log has no
# warning, and that nothing leaked, is part of the verdict of machine/run.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

tree=$(cd "${0%/*}/../../../build/kernel/$MHS_KERNEL/source" && pwd)
selftests=$tree/tools/testing/selftests
collection=net/ipvs_mhs
# as there: the module is where modprobe finds it
unset MHS_KO

# run_tests TEST...: $said is the runner's verdict on each: ok, not ok or skip
run_tests() {
	# the runner opens /dev/stdout anew: a file must be appended to
	: >"$work/log"
	make -s -C "$selftests" TARGETS=$collection TEST_PROGS="$*" \
		run_tests >>"$work/log" 2>&1
	sed 's/^/# /' "$work/log"
	said=$(sed -En "s,^ok .* # SKIP$,skip,; s,^((not )?ok|skip).*,\1,p" \
		"$work/log" | paste -sd ,)
}

cd "$selftests/$collection" || exit
# a kernel that checks is slow: the factor of machine/run for the runner, too
[ -z "${MHS_SLOW:-}" ] || export kselftest_override_timeout=$((
	MHS_SLOW * $(sed -n 's/^timeout=//p' settings)))
mapfile -t tests < <(printf '%s\n' *.sh | grep -v '^lib')
plan $((3 + ${#tests[@]}))
check "the Makefile of the selftests has them all" "${tests[*]}" \
	"$(sed -n 's/^TEST_PROGS := //p' Makefile)"
for test in "${tests[@]}"; do
	run_tests "$test"
	check "$test" ok "$said"
done
mount --bind /dev/null flows.py
run_tests "${tests[@]}"
umount "$PWD/flows.py"
check "control: without clients and servers they fail" \
	"$(printf 'not ok,%.0s' "${tests[@]}")" "$said,"
module=$(modinfo -n ip_vs_mhs)
mount --bind /dev/null "$module"
run_tests "${tests[@]}"
umount "$module"
check "without the module they are skipped" \
	"$(printf 'skip,%.0s' "${tests[@]}")" "$said,"
