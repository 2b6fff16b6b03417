#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# Flows that end in the pin phase: a FIN makes no entry, what follows it makes one as
# any packet does, so a client that reads on after its FIN is not cut by the merge.

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

# states_are WORDS: of a list that wait_states shows
states_are() {
	listed >"$work/entries"
	[ "$(by_state <"$work/entries")" = "$*" ]
}

# wait_states NAME WORDS: a check, too
wait_states() {
	result "$1" "$(busywait 20 states_are "$2"; echo $?)" \
		"$(by_state <"$work/entries")"
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
	# the client first, then the server
	begin
	pin_all
	check "$1, pin phase: no entry" "" "$(states)"
	pair close
	wait_states "$1, the client ends first: entries of the last ACKs" \
		"ESTABLISHED $((2 * N))"
	end
	begin
	pin_all
	pair end
	wait_states "$1, the server ends first: its flows live" \
		"ESTABLISHED $((2 * N))"
	pair close
	wait_states "$1, the server ends first: then the client" "$2 $((2 * N))"
	end

	# half of a flow ends
	begin
	pin_all
	pair half
	check "$1, half-closed: no entry" "" "$(states)"
	pair speak 3
	check "$1, half-closed: heard" "0 $((6 * N)) 0" \
		"$(sum broken) $(sum heard) $(sum waiting)"
	wait_states "$1, half-closed: entries" "ESTABLISHED $((2 * N))"
	to_stable
	pair speak 3
	check "$1, half-closed, merged: heard" "0 $((12 * N)) 0" \
		"$(sum broken) $(sum heard) $(sum waiting)"
	pair close
	end
}

PORT=80
plan 9
load_module
setup_net 2
method=-g
endings "direct routing" FIN_WAIT

# The control: flows that say nothing in the pin phase are the new server's
begin
pin_all
to_stable
pair speak 3
check_cmp "control: silent flows are broken" "$(sum broken)" -gt 0
end
