#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Fuzz each target for a while, and its variant with a bug until that is found.
#
#	run.sh DIR CORPUS SECONDS TARGET...

dir=$1 corpus=$2 seconds=$3
shift 3
echo "KTAP version 1"
echo "1..$(($# * 2))"
n=0
bad=0
# what is new does not go to the tree
new=$(mktemp -d) || exit 1
trap 'rm -rf "$new"' EXIT

# fuzz PROGRAM CORPUS: its log is $new/log
fuzz()
{
	mkdir -p "$new/found"
	"$dir/$1" -max_total_time="$seconds" -max_len=512 -seed=1 \
		-artifact_prefix="$dir/$1-" "$new/found" "$corpus/$2" \
		>"$new/log" 2>&1
	status=$?
	rm -rf "$new/found"
	return $status
}

result()
{
	n=$((n + 1))
	[ "$1" -eq 0 ] || { printf 'not '; bad=1; }
	echo "ok $n $2"
}

for target; do
	fuzz "$target" "$target"
	status=$?
	if [ $status -eq 0 ]; then
		sed -n 's/^Done /# /p' "$new/log"
	else
		sed 's/^/# /' "$new/log" | tail -n 40
	fi
	result $status "$target"
	! fuzz "${target}_bug" "$target" && grep -qE 'Sanitizer|runtime error|does not hold' \
		"$new/log"
	status=$?
	sed -n 's/^SUMMARY: /# caught: /p; s/^does not/# caught: does not/p' \
		"$new/log" | head -n 1
	rm -f "$dir/${target}_bug-"*
	result $status "${target}_catches_bug"
done
exit $bad
