#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run test programs and nest their KTAP reports into one.
#
#	run.sh DIR SUITE...
#
# A suite passes if it exits with 0 and reports each planned test once and
# as passed: a program that dies, hangs or stops half way has failed.  The
# suite "runner" checks just that on programs made for it.

here=$(dirname "$0")
limit=${UNIT_TIMEOUT:-900}

# Print the report of program $1, indented; succeed if it is complete
nested()
{
	{ timeout "$limit" "$1" 2>&1; echo "exit $?"; } | awk '
	/^exit [0-9]+$/	{ status = $2; next }
			{ print "    " $0 }
	/^1\.\.[0-9]+$/	{ plan = substr($0, 4) }
	/^ok /		{ passed += $2 == passed + 1 }
	/^not ok /	{ failed++ }
	END		{ exit !(status == 0 && plan && passed == plan &&
				 !failed) }'
}

# Feed run.sh one good program and some that must not pass
runner()
{
	dir=$(mktemp -d) || exit 1
	trap 'rm -rf "$dir"' EXIT
	n=0
	echo "KTAP version 1"
	echo "1..7"
	while IFS=: read -r name want body; do
		n=$((n + 1))
		printf '#!/bin/sh\n%s\n' "$body" >"$dir/$name"
		chmod +x "$dir/$name"
		got=fail
		UNIT_TIMEOUT=1 sh "$here/run.sh" "$dir" "$name" \
			>/dev/null && got=pass
		test $got = "$want" || printf 'not '
		echo "ok $n $name"
	done <<-'END'
	good:pass:echo 1..2; echo ok 1 a; echo ok 2 b
	failed_test:fail:echo 1..2; echo ok 1 a; echo not ok 2 b
	no_report:fail:true
	short_report:fail:echo 1..2; echo ok 1 a
	crash_at_end:fail:echo 1..1; echo ok 1 a; kill -SEGV $$
	bad_exit:fail:echo 1..1; echo ok 1 a; exit 3
	hang:fail:echo 1..1; echo ok 1 a; sleep 5
	END
}

if [ "$1" = --runner ]; then
	runner
	exit
fi

out=$1
shift
echo "KTAP version 1"
echo "1..$#"
bad=0
n=0
for suite; do
	n=$((n + 1))
	program=$out/$suite
	if [ "$suite" = runner ]; then
		program=$(mktemp) || exit 1
		printf '#!/bin/sh\nexec sh "%s/run.sh" --runner\n' \
			"$(cd "$here" && pwd)" >"$program"
		chmod +x "$program"
	fi
	if nested "$program"; then
		echo "ok $n $suite"
	else
		echo "not ok $n $suite"
		bad=1
	fi
	[ "$suite" = runner ] && rm -f "$program"
done
exit $bad
