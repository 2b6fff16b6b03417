#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 70
# mhsstat wait --drained and mhsstat drain: a server of two services is drained when
# no flow of either lives, by the kernel's own counts.  What they refuse, how they go
# on, what they edit: mhsstat_tests.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

top=$here/../../../../..
OTHER=10.9.0.2:80
FIRST=10.2.0.11:80
THIRD=10.2.0.13:80
FLOWS=24

# status ARGUMENTS...: of mhsstat on the director; its exit status alone
status() {
	in_ns dr "$top/scripts/mhsstat" "$@" >"$work/out" 2>"$work/err"
	echo $?
}

# says TEXT: in how many lines the last status() said that
says() {
	cat "$work/out" "$work/err" | grep -cF -- "$1"
}

# flows COMMAND...: of the clients of both services, for sum()
flows() {
	flow_send c4 "$@"
	flow_send o4 "$@"
	flow_wait c4 "$*"
	reply4=$reply
	flow_wait o4 "$*"
}

# progress TEXT: did drain say that?
progress() {
	grep -qF -- "$1" "$work/progress"
}

both_in_state() {
	in_state "$1" "$SVC4" && in_state "$1" "$OTHER"
}

both_pinning() {
	pinning "$SVC4" && pinning "$OTHER"
}

plan 14
modprobe -q ipip
fresh_module table_size=4093
setup_net 3
for n in dr s1 s2 s3; do
	ip_ns $n <<<"addr add ${OTHER%:*}/32 dev lo"
done
ip_ns rt <<<"route add ${OTHER%:*}/32 via 10.2.0.10"
windows 3600000 3600000
flow_start c4 --host "$VIP4" --bind 10.1.0.2 --timeout 4
flow_start o4 --host "${OTHER%:*}" --bind 10.1.0.2 --timeout 4
learn dr < <(for svc in "$SVC4" "$OTHER"; do
	echo "-A -t $svc -s mhs"
	real_lines "$svc" -g 1 2
done
echo "-a -t $SVC4 -r $THIRD -i -w 2 -x 60 -y 40"
echo "-a -t $OTHER -r $THIRD -i -w 2")
flows open $FLOWS
check "flows of two services that share their servers" "$((2 * FLOWS)) 0" \
	"$(sum flows) $(sum failed)"

printf -- "-e -t %s -r $FIRST -g -w 0\n" "$SVC4" "$OTHER" | dr ipvsadm -R
check "drained: not in the hold phase, without an entry" "124 0" \
	"$(status wait --drained $FIRST --timeout 1s) $(says "connection(s) left")"
# interrupted by a terminal's signal, and given again
for again in "" yes; do
	: >"$work/progress"
	bg_ns dr env --default-signal=INT "$top/scripts/mhsstat" drain $THIRD \
		--timeout 5min >"$work/drained" 2>"$work/progress" &
	drain=$!
	defer kill $drain
	busywait 20 progress "transition, at most"
	result "drain: progress${again:+, given again}" $?
	[ -z "$again" ] || break
	kill -INT $drain
	wait "$drain"
	check "drain: interrupted, nothing is deleted" "130 2" \
		"$? $(dr ipvsadm -S -n | grep -c -e "-r $THIRD .*-w 0")"
done
windows 0 3600000
busywait 20 both_pinning
flows ping
check "no flow has moved" "$((2 * FLOWS)) 0 0" \
	"$(sum flows) $(sum broken) $(sum moved)"
first=$(sum s1) third=$(sum s3)
# shorter timeouts of IPVS shorten the pin time; entries keep theirs
windows 0 0
dr ipvsadm --set 10 10 10
busywait 60 both_in_state stable
check "drained: not while flows live" "124 1" "$(status wait --drained $FIRST \
	--timeout 1s) $(says "$FIRST: $first connection(s) left in 2 services")"
busywait 40 progress "$THIRD: $third connection(s) left in 2 services"
result "drain: it waits for the flows of both services" $?

# one service has ended its flows
flow c4 reset
check "control: in one service alone it is drained" 0 \
	"$(status wait -t "$SVC4" --drained $FIRST --timeout 1min)"
flow o4 ping
left=$(value s1)
check "drained: not while flows of the other service live" "124 1" \
	"$(status wait --drained $FIRST --timeout 1s
	) $(says "$FIRST: $left connection(s) left in 2 services")"
check_cmp "control: some live" "$left" -gt 0
flow o4 ping
check "no flow of the other service is broken" "$FLOWS 0 0" \
	"$(value flows) $(value broken) $(value moved)"
flow o4 reset
check "drained: when all have ended" "0 1" "$(status wait --drained $FIRST \
	--timeout 1min) $(says "$FIRST is drained: ")"
wait "$drain"
check "drain: it ends, the server is deleted in both services" "0 2 0" \
	"$? $(grep -c ": $THIRD was drained and is deleted" "$work/drained"
	) $(dr ipvsadm -S -n | grep -c -e "-r $THIRD ")"

dr ipvsadm -C
