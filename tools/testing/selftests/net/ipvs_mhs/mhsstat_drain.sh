#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 70
# mhsstat wait --drained and mhsstat drain: a server of two services is drained when
# no flow of either lives, in whatever order the kernel lists them; drain refuses
# what is unsafe, and goes on where it was.

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

# lists: all that ipvsadm tells of services and servers, without counts
lists() {
	dr ipvsadm -S -n
	dr ipvsadm -Ln --thresholds | sed 's/ *[0-9]* *[0-9]*$//'
}

# flows COMMAND...: of the clients of both services, for sum()
flows() {
	flow_send c4 "$@"
	flow_send o4 "$@"
	flow_wait c4 "$*"
	reply4=$reply
	flow_wait o4 "$*"
}

# weights FIRST SECOND: of the first server, in the two services
weights() {
	dr ipvsadm -R <<-END
		-e -t $SVC4 -r $FIRST -g -w $1
		-e -t $OTHER -r $FIRST -g -w $2
	END
}

# drains: the command in the background, with the signals of a terminal; its words
# are in the file progress, its end is for wait $drain
drains() {
	: >"$work/progress"
	bg_ns dr env --default-signal=INT "$top/scripts/mhsstat" drain $THIRD \
		--timeout 5min >"$work/drained" 2>"$work/progress" &
	drain=$!
	defer kill $drain
}

# progress TEXT: did it say that?
progress() {
	grep -qF -- "$1" "$work/progress"
}

both_in_state() {
	in_state "$1" "$SVC4" && in_state "$1" "$OTHER"
}

both_pinning() {
	pinning "$SVC4" && pinning "$OTHER"
}

plan 25
for m in ipip fou; do
	modprobe -q $m
done
fresh_module table_size=4093
setup_net 3
for n in dr s1 s2 s3; do
	ip_ns $n <<<"addr add ${OTHER%:*}/32 dev lo"
done
ip_ns rt <<<"route add ${OTHER%:*}/32 via 10.2.0.10"
ip_ns s3 <<<"fou add port 6080 gue"
windows 3600000 3600000
flow_start c4 --host "$VIP4" --bind 10.1.0.2 --timeout 4
flow_start o4 --host "${OTHER%:*}" --bind 10.1.0.2 --timeout 4
learn dr < <(for svc in "$SVC4" "$OTHER"; do
	echo "-A -t $svc -s mhs"
	real_lines "$svc" -g 1 2
done
echo "-a -t $SVC4 -r $THIRD -i -w 2 -x 60 -y 40"
echo "-a -t $OTHER -r $THIRD -i -w 2 --tun-type gue --tun-port 6080")
flows open $FLOWS
check "flows of two services that share their servers" "$((2 * FLOWS)) 0" \
	"$(sum flows) $(sum failed)"

# wait --drained: the weight in each service
for both in "0 1 $OTHER $SVC4" "1 0 $SVC4 $OTHER"; do
	read -r first second there not_there <<<"$both"
	weights "$first" "$second"
	check "drained: not while it has a weight in $there" "125 1 0" \
		"$(status wait --drained $FIRST --timeout 1min
		) $(says "TCP $there: server $FIRST has weight 1"
		) $(says "TCP $not_there: server")"
done
weights 0 0
check "drained: not in the hold phase, without an entry" "124 0" \
	"$(status wait --drained $FIRST --timeout 1s) $(says "connection(s) left")"

# drain: weights go, methods and thresholds stay; it is interrupted, and goes on
lists | sed "/-r $THIRD /s/ -w 2/ -w 0/" >"$work/want"
drains
busywait 20 progress "transition, at most"
result "drain: progress" $?
lists | diff "$work/want" - >"$work/diff"
result "drain: tunnels and thresholds stay" $? "$(tr '\n' ' ' <"$work/diff")"
check "control: there are some" "1 1" "$(grep -c "60  *40" "$work/want"
	) $(grep -c "tun-type gue --tun-port 6080" "$work/want")"
kill -INT $drain
wait $drain
check "drain: interrupted" 130 $?
progress "$THIRD keeps the weight 0 and is not deleted: give the same command again"
result "drain: it says how to go on" $?
check "drain: nothing is deleted" "" \
	"$(dr ipvsadm -S -n | grep -e "-r $THIRD " | grep -v -e "-w 0")"
drains
busywait 20 progress "transition, at most"
result "drain: it goes on" $?
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
left=$(value s1) third=$(value s3)
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
sed -n 's/.* is drained: //p' "$work/out" >"$work/remedy"
in_ns dr sh -e "$work/remedy"
check "what it says deletes the server, in both services" "0 0" \
	"$? $(dr ipvsadm -S -n | grep -c -e "-r $FIRST ")"
wait $drain
check "drain: it ends" 0 $?
check "drain: the server is deleted in both services" "2 0" \
	"$(grep -c ": $THIRD was drained and is deleted" "$work/drained"
	) $(dr ipvsadm -S -n | grep -c -e "-r $THIRD ")"
check "the other server has stayed" 2 \
	"$(dr ipvsadm -S -n | grep -c -e "-r 10.2.0.12:80 -g -w 1")"

# a deleted server is held for its flows
windows 3600000 3600000
flow c4 open 8
dr ipvsadm -d -t "$SVC4" -r 10.2.0.12:80
check "gone: not while it is held" 124 \
	"$(status wait -t "$SVC4" --gone --timeout 1s)"
windows 0 100
check "gone: forgotten in the end" "0 0" \
	"$(status wait -t "$SVC4" --gone --timeout 1min) $(mhs Gone)"
dr ipvsadm -C
