#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# Flows that end in the pin phase: the client's last ACK makes an entry that lives
# for ten seconds.  So do those of a client that reads on after its FIN, and the
# merge does not break that.  What only looks like the end of a flow does not
# shorten the life of its entry, and nothing does while every flow gets one.

# shellcheck disable=SC2034 # for lib.sh
client_py=lastack.py

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

readonly N=20		# flows of each family

# listed: entries of both services, as "EXPIRES STATE", seconds for the first
listed() {
	dr ipvsadm -Lnc | awk -v a="$SVC4" -v b="$SVC6" '
		$5 == a || $5 == b { split($2, t, ":"); print t[1] * 60 + t[2], $3 }'
}

# by_state: the number of those in a list, by state
by_state() {
	awk '{ n[$2]++ } END { for (s in n) print s, n[s] }' | sort |
		paste -sd " "
}

states() {
	listed | by_state
}

# states_are WORDS: of a list that longest and shortest read
states_are() {
	listed >"$work/entries"
	[ "$(by_state <"$work/entries")" = "$*" ]
}

# wait_states NAME WORDS: a check, too
wait_states() {
	result "$1" "$(busywait 20 states_are "$2"; echo $?)" \
		"$(by_state <"$work/entries")"
}

# longest, shortest: life of an entry when wait_states saw it
longest() {
	sort -n "$work/entries" | sed -n '$s/ .*//p'
}

shortest() {
	sort -n "$work/entries" | sed -n '1s/ .*//p'
}

# none_left: for busywait
none_left() {
	[ -z "$(listed)" ]
}

# begin: services on a port that no entry has, and flows
begin() {
	PORT=$((PORT + 1))
	SVC4=$VIP4:$PORT SVC6="[$VIP6]:$PORT"
	windows 3600000 3600000
	learn dr < <(
		echo "-A -t $SVC4 -s mhs"
		echo "-A -t $SVC6 -s mhs"
		real_lines "$SVC4" "$method" 1
		real_lines "$SVC6" "$method" 1
	)
	rm -f "$work"/c[46].{in,out}
	pair_clients --servers "$(ns s1),$(ns s2)"
	pair open $N
}

# pin_all: all flows are of another server than the new ones, and slots pin
pin_all() {
	pair_edit -a 2 "$method"
	pair_edit -e 1 "$method" -w 0
	to_pin
}

end() {
	pair forget
	flow_end c4
	flow_end c6
	dr ipvsadm -C
}

# endings NAME: in the pin phase
endings() {
	# the client first
	begin
	pin_all
	check "$1, pin phase: no entry" "" "$(states)"
	pair close
	wait_states "$1, the client ends first: entries of the last ACKs" \
		"CLOSE $((2 * N))"
	check_cmp "$1, the client ends first: for seconds" "$(longest)" -le 10
	result "$1, the client ends first: they go" \
		"$(busywait 20 none_left; echo $?)"
	end

	# the server first: its FIN is confirmed, and that flow lives
	begin
	pin_all
	pair end
	wait_states "$1, the server ends first: its flows live" \
		"ESTABLISHED $((2 * N))"
	pair close
	wait_states "$1, the server ends first: then the client" "$2 $((2 * N))"
	check_cmp "$1, the server ends first: for the time of that state" \
		"$(longest)" -le 120
	end

	# half of a flow ends
	begin
	pin_all
	pair half
	check "$1, half-closed: no entry" "" "$(states)"
	pair speak 3
	check "$1, half-closed: heard" "0 $((6 * N)) 0" \
		"$(sum broken) $(sum heard) $(sum waiting)"
	# a FIN that another one has overwritten in the module's table is forgotten
	check_cmp "$1, half-closed: entries" \
		"$(listed | grep -c " CLOSE$")" -ge $((2 * N - 6))
	# it reads on all the time
	flow_send c4 chat
	flow_send c6 chat
	to_stable
	pair "done"
	before=$(sum heard)
	check "$1, half-closed, merged: none broken" "0 0" \
		"$(sum broken) $(sum waiting)"
	pair speak 3
	check "$1, half-closed, merged: heard" "0 $((before + 6 * N)) 0" \
		"$(sum broken) $(sum heard) $(sum waiting)"
	pair close
	end
}

PORT=80
plan 23
load_module
setup_net 2
method=-g
endings "direct routing" FIN_WAIT

# Live flows confirm what they hear
begin
pin_all
pair speak 1
wait_states "control: live flows" "ESTABLISHED $((2 * N))"
check_cmp "control: for the time of an idle flow" "$(shortest)" -gt 600
end

# The same after a FIN of another's making
begin
pin_all
flow c4 pairs "$work/pairs4"
flow c6 pairs "$work/pairs6"
sent=$(for flags in F FA; do
	raw cl --dst $VIP4 --dports $PORT --flags $flags --pairs <"$work/pairs4"
	raw cl --dst $VIP6 --dports $PORT --flags $flags --pairs <"$work/pairs6"
done)
check "forged FINs: sent" "sent=$N sent=$N sent=$N sent=$N" "${sent//$'\n'/ }"
check "forged FINs: no entry" "" "$(states)"
pair speak 1
wait_states "forged FINs: live flows" "ESTABLISHED $((2 * N))"
check_cmp "forged FINs: for the time of an idle flow" "$(shortest)" -gt 600
to_stable
pair ask
check "forged FINs, merged: none broken" "0 $((4 * N))" \
	"$(sum broken) $(sum heard)"
end

# When every flow gets an entry, for another scheduler, half of a flow is a flow:
# nothing tells how long it is silent
begin
sysctls dr net.ipv4.vs.mhs.stateless=0
pair half
check "stateless=0, half-closed: no entry" "" "$(states)"
pair speak 1
wait_states "stateless=0, half-closed: entries" "ESTABLISHED $((2 * N))"
check_cmp "stateless=0, half-closed: for the time of an idle flow" \
	"$(shortest)" -gt 600
dr ipvsadm -R <<-END
	-E -t $SVC4 -s wlc
	-E -t $SVC6 -s wlc
END
pair speak 1
check "stateless=0, half-closed, then wlc: heard" "0 $((4 * N)) 0" \
	"$(sum broken) $(sum heard) $(sum waiting)"
sysctls dr net.ipv4.vs.mhs.stateless=1
end
