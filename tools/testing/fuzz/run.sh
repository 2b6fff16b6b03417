#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Fuzz each program for a while.  TARGET_bug... is TARGET with a bug, which has
# to be found; a busy host may take 20 times as long.  New inputs of interest are left
# in DIR/found.
#
#	run.sh DIR CORPUS SECONDS PROGRAM...
#
# FUZZ_SEED: of its random numbers, 1; with 0 they are others each time.

dir=$1 corpus=$2 seconds=$3
shift 3
echo "KTAP version 1"
echo "1..$#"
n=0
bad=0
rm -rf "$dir/found"

# fuzz PROGRAM: its log is $dir/PROGRAM.log
fuzz()
{
	log=$dir/$1.log longest=$seconds
	case $1 in
	*_bug*) longest=$((20 * seconds)) ;;
	esac
	mkdir -p "$dir/found/$1"
	"$dir/$1" -max_total_time="$longest" -max_len=512 -seed="${FUZZ_SEED:-1}" \
		-artifact_prefix="$dir/$1-" "$dir/found/$1" \
		"$corpus/${1%%_bug*}" >"$log" 2>&1
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
			"$log"
		status=$?
		sed -n 's/^SUMMARY: /# caught: /p; s/^does not/# caught: does not/p' \
			"$log" | head -n 1
		rm -rf "$dir/found/$program" "$dir/$program-"*
		;;
	*)
		if [ $status -eq 0 ]; then
			sed -n 's/^Done /# /p' "$log"
		else
			sed 's/^/# /' "$log" | tail -n 40
		fi
		;;
	esac
	result $status "$program"
done
exit $bad
