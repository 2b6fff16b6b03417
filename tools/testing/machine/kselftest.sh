#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
# The selftests as the patch series installs them, by kselftest's own runner,
# which sees a test that fails.  check-series 6.1 comes before.

set -u
top=$(cd "${0%/*}/../../.." && pwd)
collection=net/ipvs_mhs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$top/build/series/6.1/kselftest" "$work/"
runner=$work/kselftest/run_kselftest.sh

n=0 failed=0
result() {
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1 # want $2, got $3"
		failed=1
	fi
}

# verdict TEST: the runner's line about it
verdict() {
	# in a virtme-ng machine /dev/stdout, its log without -s, is the console
	"$runner" -s -t "$collection:$1" >"$work/log" 2>&1
	sed 's/^/# /' "$work/log" "$work/kselftest/output.log"
	said=$(sed -En "s,^((not )?ok) .*$collection: ?$1.*,\1,p" "$work/log")
}

echo "KTAP version 1"
echo "1..4"
result "it knows all tests" \
	"$(grep -lE '^# weight: [0-9]' "$work/kselftest/$collection"/* | wc -l)" \
	"$("$runner" -l | grep -c "^$collection:")"
for test in basic.sh proc.sh; do
	verdict $test
	result "$test passes" "ok" "$said"
done
export MHS_KO=/nonexistent.ko
verdict basic.sh
result "control: without the module it does not" "not ok" "$said"
exit $failed
