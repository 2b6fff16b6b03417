#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 90
# mhsstat: what it shows is what the kernel says, it waits for what it says it waits for, and
# it takes no longer than ipvsadm with many services.  Its tables are the kernel's:
# random.sh; what it says of two directors is true: truth.sh.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

top=$here/../../../../..
KEY=00112233445566778899aabbccddeeff

# ms COMMAND...: mhsstat, on the director
ms() {
	in_ns dr "$top/scripts/mhsstat" "$@"
}

# plan_of ARGUMENTS...: a plan, to be read by got(); its status is in $rc
plan_of() {
	ms plan --table-program "$work/mhs_table" --json "$@" \
		>"$work/plan" 2>"$work/plan.err"
	rc=$?
}

# got EXPRESSION [FILE]: of the JSON object d there
got() {
	python3 -IS -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "${2:-$work/plan}" "$1"
}

# status COMMAND...: its exit status alone
status() {
	"$@" >"$work/out" 2>"$work/err"
	echo $?
}

# metrics: what the unit does, to $work/prom; its status
metrics() {
	local command

	command=$(sed -n 's,^ExecStart=/usr/sbin/mhsstat ,,p' \
		"$top/examples/mhsstat/mhsstat-prometheus.service")
	# shellcheck disable=SC2086 # its options
	ms ${command% *} "$work/textfiles/mhs.prom" 2>"$work/err"
	echo $?
	cp "$work/textfiles/mhs.prom" "$work/prom"
}

plan 29
make -s -C "$top/tools/net/ipvs_mhs" O="$work"
mkdir "$work/textfiles"

# at boot nothing is there, not even the module; the unit's own command
unload_module
setup_net 3
check "no module: metrics all the same, and a status" 1 "$(metrics)"
check "no module: they say so" "ipvs_mhs_up 0" "$(grep -v '^#' "$work/prom")"
ms wait --settled --timeout 10min -t "$SVC4" 2>"$work/boot" &
boot=$!
busywait 20 test -s "$work/boot"
fresh_module table_size=4093
dr ipvsadm -A -t "$SVC4" -s mhs
check "settled: not in time without a server" 124 \
	"$(status ms wait --settled --timeout 1s)"
result "settled: one begun before the module still waits" "$(kill -0 $boot; echo $?)"
dr ipvsadm -a -t "$SVC4" -r 10.2.0.11:80 -g
wait $boot
check "settled: it ends with the first table" "0 stable" "$? $(mhs State)"
windows 3600000 3600000
dr ipvsadm -a -t "$SVC4" -r 10.2.0.12:80 -g -w 1
wait_settled "$SVC4"
weight 2 0	# a server that leaves is held, also without a packet
check "settled: a change does not matter" "0 124" \
	"$(status ms wait --settled --timeout 60s) $(status ms wait --timeout 1s)"
dr ipvsadm -C
windows 3600000 3600000
pair_services "1 2 3" mhs
learn dr < <(echo "-A -f 7 -s mhs"
	echo "-a -f 7 -r 10.2.0.11:0 -g -w 3")
check "wait: all are stable" 0 "$(status ms wait)"

# show
pair_clients --timeout 4
pair open 20
pair ping
ms show --json >"$work/json"
check "json: fields" "$(mhs Size) $(mhs Stable) $(mhs CandidatePrint) 3" \
	"$(got "'{table_size} {stable_slots} {candidate_print} {servers}'.format(**[
		s for s in d['services'] if s['address'] == '$SVC4'][0])" "$work/json")"

# prometheus
check "prometheus: a value" "0 $(mhs PktStateless)" "$(metrics) $(grep -F \
	"ipvs_mhs_packets_total{" "$work/prom" |
	sed -n "s/.*service=\"$SVC4\",kind=\"stateless\".* //p")"

# wait
weight 3 3
busywait 10 in_state transition
check "wait: not in time" 124 "$(status ms wait -t "$SVC4" --timeout 1s)"
ms wait 2>"$work/progress" &
pid=$!
busywait 20 test -s "$work/progress"
windows 0 3600000
busywait 20 pinning
result "wait: still waits in the pin phase" "$(kill -0 $pid; echo $?)"
windows 0 100
wait $pid
check "wait: ends when it is stable" "0 stable" "$? $(mhs State)"
pair reset

ms show --json >"$work/a"

# another key and another size
dr ipvsadm -C
fresh_module hash_key=$KEY table_size=8191
pair_services "1 2 3" mhs
plan_of -t "$SVC4"
check "secret key: the plan finds it, and the size" \
	"0 $(mhs CandidatePrint) 8191" \
	"$rc $(got "d['print_before'], d['table_size']" | tr -d "(),'")"
ms show --json >"$work/b"
check "secret key: the directors differ" 1 \
	"$(status ms compare "$work/a" "$work/b")"
check "secret key: nobody is told" 0 "$(cat "$work"/{a,b,plan,prom} | grep -c $KEY)"

# many services, and one with many servers: beside ipvsadm -Ln, which lists them
# took COMMAND...: hundredths of seconds, the least of three
took() {
	local least=999999 start n

	for n in 1 2 3; do
		start=${EPOCHREALTIME/./}
		dr "$@" >"$work/out" 2>"$work/err"
		n=$(((${EPOCHREALTIME/./} - start) / 10000))
		least=$((n < least ? n : least))
	done
	echo "$least"
}

# paces SERVICES SERVERS
paces() {
	local limit listed start one=$VIP4:1001 words

	dr ipvsadm -C
	many_services "$1" "$2" | dr ipvsadm -R
	busywait 60 settled "$VIP4:$((1000 + $1))"
	listed=$(took ipvsadm -Ln)
	start=$(took "$top/scripts/mhsstat" --help)
	note "seconds/100, services, servers: ipvsadm -Ln $listed, start $start, $1 $2"
	# twice that where nothing else runs; six times by ipvsadm's text
	while read -r words; do
		words=${words//ONE/-t $one}
		limit=$((4 * listed + 15 * start))
		# it listens for half a second
		[ "$words" != check ] || limit=$((limit + 100))
		# shellcheck disable=SC2086 # its words
		check_cmp "$1 services of $2 servers: $words" \
			"$(took "$top/scripts/mhsstat" $words)" -le $limit
	done <<-EOF
		show
		show ONE
		check
		lookup ONE 10.1.0.2:40000
		plan ONE --add 10.3.0.1:80 --table-program $work/mhs_table
		show --json
		show --prometheus --output $work/textfiles/mhs.prom
	EOF
}
dr ipvsadm -C
fresh_module
paces "${MHS_SERVICES:-1000}" 4
paces 1 1000

dr ipvsadm -C
