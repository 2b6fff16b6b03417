#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Fuzz each program for a while.  TARGET_bug... is TARGET with a bug, which has
# to be found in that time.
#
#	run.sh DIR CORPUS SECONDS PROGRAM...

dir=$1 corpus=$2 seconds=$3
shift 3
echo "KTAP version 1"
echo "1..$#"
n=0
bad=0
# what is new does not go to the tree
new=$(mktemp -d) || exit 1
trap 'rm -rf "$new"' EXIT

# fuzz PROGRAM: its log is $new/log
fuzz()
{
	mkdir -p "$new/found"
	"$dir/$1" -max_total_time="$seconds" -max_len=512 -seed=1 \
		-artifact_prefix="$dir/$1-" "$new/found" "$corpus/${1%%_bug*}" \
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

for program; do
	fuzz "$program"
	status=$?
	case $program in
	*_bug*)
		[ $status -ne 0 ] && grep -qE 'Sanitizer|runtime error|does not hold' \
			"$new/log"
		status=$?
		sed -n 's/^SUMMARY: /# caught: /p; s/^does not/# caught: does not/p' \
			"$new/log" | head -n 1
		rm -f "$dir/$program-"*
		;;
	*)
		if [ $status -eq 0 ]; then
			sed -n 's/^Done /# /p' "$new/log"
		else
			sed 's/^/# /' "$new/log" | tail -n 40
		fi
		;;
	esac
	result $status "$program"
done
exit $bad
