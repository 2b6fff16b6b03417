#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 40
# What mhsstat calls safe is done to live flows, and none breaks; what it calls
# unsafe breaks some, or it says why none does yet: random states of two directors
# (compare), and of one (wait --drained, plan).
# MHS_SEED: the same states again; MHS_ROUNDS: how many of each.

. "${0%/*}/lib.sh"

top=$here/../../../../..
rounds=${MHS_ROUNDS:-2} state=0
seed=${MHS_SEED:-$RANDOM}
FLOWS=24

# ms NAMESPACE ARGUMENTS...: mhsstat there; its words are in said; its status
ms() {
	in_ns "$1" "$top/scripts/mhsstat" "${@:2}" >"$work/said" 2>&1
	echo $?
}

# one WORD...: one of them
one() {
	echo "${@:1 + RANDOM % $#:1}"
}

# servers NAMESPACE SERVERS
servers() {
	# shellcheck disable=SC2086
	learn "$1" < <(echo "-A -t $SVC -s mhs"; real_lines "$SVC" -g $2)
}

# What may be another way on the second director: commands, then what of the words
# of compare is the reason if no flow breaks at once; "alike": it must say so
SVC=$VIP4:80
ways=(
	":|alike"
	"sysctls d2 net.ipv4.vs.mhs.lane=1|alike"
	"sysctls d2 net.ipv4.vs.sync_ports=2|alike"
	"in_ns d2 ipvsadm -e -t $SVC -r 10.2.0.11:80 -i -w 1|not prepared for both ways"
	"in_ns d2 ipvsadm -e -t $SVC -r 10.2.0.11:80 -i --tun-type gue --tun-port 6080 -w 1|none"
	"in_ns d2 ipvsadm -e -t $SVC -r 10.2.0.12:80 -g -w 0|none"
	"in_ns d2 ipvsadm -d -t $SVC -r 10.2.0.13:80|none"
	"in_ns d2 ipvsadm -E -t $SVC -s wlc|none"
	"in_ns d2 ipvsadm -C|none"
	"in_ns d2 ipvsadm -e -t $SVC -r 10.2.0.11:80 -g -w 1 -x 90 -y 80|above the threshold"
	"in_ns d2 ipvsadm -E -t $SVC -s mhs -p 300|by persistence"
	"in_ns d2 ipvsadm -A -t $VIP4:81 -s wlc|does not serve it"
	"in_ns d2 ipvsadm --set 800 120 300|in a change of servers"
	"sysctls d2 net.ipv4.vs.mhs.hold_ms=9|in a change of servers"
	"sysctls d2 net.ipv4.vs.expire_nodest_conn=1|of a deleted server"
	"sysctls d2 net.ipv4.vs.mhs.max_entries=9|refuse entries"
	"sysctls d2 net.ipv4.vs.drop_entry=1|when memory is short"
)

# pair WAY: what compare says of it, and what becomes of flows that move
pair() {
	local way=${ways[$1]} status broken truth=lie n

	for n in dr d2; do
		in_ns $n ipvsadm -C
		in_ns $n ipvsadm --set 900 120 300
		sysctls $n net.ipv4.vs.mhs.{hold_ms=0,max_entries=9999,lane=0,pin_ms=100} \
			net.ipv4.vs.{expire_nodest_conn=0,drop_entry=0,sync_ports=1}
		servers $n "1 2 3"
	done
	eval "${way%|*}"
	wait_way
	in_ns d2 "$top/scripts/mhsstat" show --json >"$work/d2"
	status=$(ms dr compare "$work/d2")
	flow c open $FLOWS
	route_vip 30
	flow c ping
	broken=$(value broken)
	route_vip 10
	flow c reset
	case ${way#*|} in
	alike) [ "$status $broken" != "0 0" ] || truth=told ;;
	none) [ "$status" != 1 ] || [ "$broken" -eq 0 ] || truth=told ;;
	*) [ "$status" != 1 ] || ! grep -qF "${way#*|}" "$work/said" || truth=told ;;
	esac
	note "compare $status, $broken broken: ${way%|*}: $(head -1 "$work/said")"
	check "$((++state)): compare $1, seed $seed" told $truth
}

# the second director, with whatever it has, has no unstable slot
wait_way() {
	busywait 20 eval '[ -z "$(mhs State $SVC d2)" ] || in_state stable $SVC d2'
}

# begins LIMIT SERVERS: flows, no slot unstable, room for LIMIT entries
begins() {
	dr ipvsadm -C
	dr ipvsadm --set 900 120 300
	windows 0 0
	sysctls dr net.ipv4.vs.mhs.max_entries="$1"
	servers dr "$2"
	flow c open $FLOWS
	flow c ping
}

# merges PIN LIVE: the pin phase; its time is whole, or short and then set back;
# flows send in it (live) or not
merges() {
	if [ "$1" = short ]; then
		windows 0 100
	else
		busywait 20 pinning $SVC
		[ "$2" != live ] || flow c ping
		dr ipvsadm --set 3 3 3
	fi
	busywait 20 in_state stable $SVC
	windows 0 0
}

# drained PIN FLOWS LIMIT: a server gets the weight 0, with room for LIMIT entries
drained() {
	local status broken truth=lie

	begins "$3" "1 2 3"
	dr ipvsadm -e -t $SVC -r 10.2.0.11:80 -g -w 0
	if [ "$2" = ended ]; then
		flow c reset
		flow c open $FLOWS
	fi
	merges "$1" "$2"
	status=$(ms dr wait -t $SVC --drained 10.2.0.11:80 --timeout \
		"$([ "$2" = live ] && echo 1s || echo 30s)")
	dr ipvsadm --set 900 120 300
	dr ipvsadm -d -t $SVC -r 10.2.0.11:80
	sysctls dr net.ipv4.vs.expire_nodest_conn=1
	busywait 20 eval '[ "$(mhs Gone $SVC)" -eq 0 ]'
	flow c ping
	broken=$(value broken)
	sysctls dr net.ipv4.vs.expire_nodest_conn=0
	flow c reset
	note "drained $*: $status, $broken broken: $(tail -1 "$work/said")"
	if [ "$status" -eq 0 ]; then
		[ "$broken" -gt 0 ] || truth=told
	elif [ "$broken" -gt 0 ]; then
		truth=told
	elif [ "$2" = ended ] && grep -q "not seen" "$work/said"; then
		truth=told
	fi
	check "$((++state)): drained $*, seed $seed" told $truth
}

# planned FLOWS LIMIT: a server is added
planned() {
	local room broken truth=lie

	begins "$2" "1 2"
	ms dr plan -t $SVC --add 10.2.0.13:80 --table-program "$work/mhs_table" \
		>"$work/status"
	room=$(sed -n 's/.*living connections do not break, unless they send nothing in the pin time, 15 min 0 s.* room for \(only \)\?\([0-9]*\) .*/\2/p' "$work/said")
	dr ipvsadm -a -t $SVC -r 10.2.0.13:80 -g
	merges whole "$1"
	flow c ping
	broken=$(value broken)
	flow c reset
	note "planned $*: room for ${room:=-1} entries, $broken broken"
	if [ "$1" = live ] && [ "$room" -ge $FLOWS ]; then
		[ "$broken" -gt 0 ] || truth=told
	elif [ "$room" -ge 0 ] && [ "$broken" -gt 0 ]; then
		truth=told
	fi
	check "$((++state)): planned $*, seed $seed" told $truth
}

plan $((3 * rounds + 4))
make -s -C "$top/tools/net/ipvs_mhs" O="$work"
fresh_module table_size=509
modprobe -q -a ip_vs_wlc
setup_net 3
director d2 30
flow_start c --host $VIP4 --timeout 3
RANDOM=$seed
# each kind of state once, then any
pair 0
drained whole ended 9999
drained short live 9999
planned live 9999
for ((n = 0; n < rounds; n++)); do
	pair $((RANDOM % ${#ways[@]}))
	drained "$(one whole short)" "$(one live ended)" "$(one 9999 9999 0)"
	planned "$(one live silent)" "$(one 9999 9999 0)"
done
