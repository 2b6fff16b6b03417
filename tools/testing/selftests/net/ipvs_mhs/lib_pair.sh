# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2154 # reply is set by lib.sh
# For tests of an IPv4 and an IPv6 service of the same servers at once, with a
# client of each.  Sourced after lib.sh.  A test sets PORT and proto before, if
# it is not about TCP and port 80.

SVC4=$VIP4:${PORT:-80} SVC6="[$VIP6]:${PORT:-80}"
proto=${proto:--t}

# pair_lines "SERVERS" SCHEDULER...: lines of ipvsadm -R for both, by direct routing or
# the methods $how4 and $how6
pair_lines() {
	echo "-A $proto $SVC4 -s ${*:2}"
	echo "-A $proto $SVC6 -s ${*:2}"
	# shellcheck disable=SC2086
	{
		real_lines "$SVC4" "${how4:--g}" $1
		real_lines "$SVC6" "${how6:--g}" $1
	}
}

# pair_services "SERVERS" SCHEDULER...: make both, on the director $at, or dr
pair_services() {
	learn "${at:-dr}" < <(pair_lines "$@")
}

# pair_edit MODE SERVER [ARGUMENTS]: -a, -e or -d a server of both, on the director
# $at, or dr; pair_weight MODE SERVER [WEIGHT]: by the methods of pair_lines()
pair_edit() {
	in_ns "${at:-dr}" ipvsadm -R <<-EOF
		$1 $proto $SVC4 -r 10.2.0.$((10 + $2)):${PORT:-80} ${more4:-} ${*:3}
		$1 $proto $SVC6 -r [fd02::$((10 + $2))]:${PORT:-80} ${more6:-} ${*:3}
	EOF
}

pair_weight() {
	more4=${3:+${how4:--g}} more6=${3:+${how6:--g}} pair_edit "$1" "$2" ${3:+-w $3}
}

# udp COMMAND...: one of these, for services of UDP, port 53
udp() {
	PORT=53 proto=-u SVC4=$VIP4:53 SVC6="[$VIP6]:53" "$@"
}

# pair_total COLUMN: of /proc/net/ip_vs_mhs, the sum of both
pair_total() {
	local n total=0

	for n in $(mhs "$1" "$SVC4") $(mhs "$1" "$SVC6"); do
		total=$((total + n))
	done
	echo $total
}

# pair_made: entries that were made for both
pair_made() {
	echo $(($(pair_total NewEntries) + $(pair_total PinnedEntries)))
}

# pair_state STATE: are both in it?  For busywait, like the next ones
pair_state() {
	in_state "$1" "$SVC4" && in_state "$1" "$SVC6"
}

# pair_holding, pair_pinning: slots of both, and none of the other phase
pair_holding() {
	[ "$(mhs "${1:-Hold}" "$SVC4")" -gt 0 ] &&
		[ "$(mhs "${1:-Hold}" "$SVC6")" -gt 0 ] &&
		[ "$(pair_total "${2:-Pin}")" -eq 0 ]
}

pair_pinning() {
	pair_holding Pin Hold
}

# to_pin, to_stable: end the hold phase, end the transition
to_pin() {
	windows 0 3600000
	busywait 20 pair_pinning
}

to_stable() {
	windows 0 100
	busywait 20 pair_state stable
}

# pair_clients ARGUMENTS: start both, see flows.py
pair_clients() {
	flow_start c4 --host "$VIP4" --bind 10.1.0.2 --port "${PORT:-80}" "$@"
	flow_start c6 --host "$VIP6" --bind fd01::2 --port "${PORT:-80}" "$@"
}

# pair COMMAND...: to both clients; pair_of NAME COMMAND...: to two of that name; sum
# KEY: of their answers
pair() {
	pair_of c "$@"
}

pair_of() {
	flow_send "${1}4" "${@:2}"
	flow_send "${1}6" "${@:2}"
	flow_wait "${1}4" "${*:2}"
	reply4=$reply
	flow_wait "${1}6" "${*:2}"
}

sum() {
	local word n=0

	for word in $reply4 $reply; do
		[[ $word != "$1="* ]] || n=$((n + ${word#*=}))
	done
	echo $n
}
