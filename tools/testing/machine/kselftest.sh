#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
# The selftests as the patch series installs them, by kselftest's own runner,
# which sees a test that fails.  check-series of this kernel comes before.
# MHS_KSELFTESTS: which, or all.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

collection=net/ipvs_mhs
cp -r "${0%/*}/../../../build/series/$MHS_KERNEL/kselftest" "$work/" || {
	echo "Bail out! first: make check-series KERNEL=$MHS_KERNEL"
	exit 1
}
runner=$work/kselftest/run_kselftest.sh

# verdict TEST: the runner's line about it, ok, not ok or skip
verdict() {
	# in a virtme-ng machine /dev/stdout, its log without -s, is the console
	"$runner" -s -t "$collection:$1" >"$work/log" 2>&1
	sed 's/^/# /' "$work/log" "$work/kselftest/output.log"
	said=$(sed -En "/# SKIP/s,^ok,skip,
		s,^((not )?ok|skip) .*$collection: ?$1.*,\1,p" "$work/log")
}

mapfile -t tests < <(cd "$work/kselftest/$collection" &&
	grep -lE '^# weight: [0-9]' -- *)
all=${#tests[@]}
[ "${MHS_KSELFTESTS:-}" = all ] ||
	read -ra tests <<<"${MHS_KSELFTESTS:-basic.sh proc.sh}"
plan $((3 + ${#tests[@]}))
check "it knows all tests" "$all" "$("$runner" -l | grep -c "^$collection:")"
for test in "${tests[@]}"; do
	verdict "$test"
	case $test in
	# the documents with the commands that they try are not installed
	conntrack.sh | vrrp.sh) check "$test is skipped" "skip" "$said" ;;
	*) check "$test passes" "ok" "$said" ;;
	esac
done
# nothing can be executed there
ipvsadm=$(type -P ipvsadm)
mount --bind /dev/null "$ipvsadm"
verdict basic.sh
umount "$ipvsadm"
check "without ipvsadm it is skipped" "skip" "$said"
export MHS_KO=/nonexistent.ko
verdict basic.sh
check "control: without the module it does not" "not ok" "$said"
