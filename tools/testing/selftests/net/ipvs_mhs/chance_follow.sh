#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 30
# Servers follow two directors: they have each change within two seconds, from either of
# them, and what both have while the directors disagree.  A director without the key is
# refused, and one that dies changes nothing.  No flow breaks; with followers that are
# stopped the same changes break flows.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"
# shellcheck source=lib_chance.sh
. "${0%/*}/lib_chance.sh"

d2() {
	in_ns d2 "$@"
}

# begin NAME NAMESPACE ARGUMENTS: of real_server chance, in the background; its words are
# in log.NAME, its number is $begun
begin() {
	bg_ns "$2" "$top/scripts/real_server" chance "${@:3}" \
		>"$work/log.$1" 2>&1 &
	begun=$!
	defer kill -KILL $begun
}

# answers DIRECTOR KEY: it tells servers its list
answers() {
	begin "$1" "$1" tell --key-file "$work/$2"
}

# follows SERVER
follows() {
	begin "$1" "$1" follow --key-file "$work/key" \
		--directors "$work/directors" --table-size $SLOTS \
		--table-program "$built/mhs_table" \
		--program "$work/now/chance.bpf.o"
}

# has FILE: is that list, or one of several, set on all servers?
has() {
	local s

	for s in $servers; do
		on "$s" check --servers "$1" || return 1
	done
}

# told NAME [DIRECTOR]: all servers have its list of now
told() {
	in_ns "${2:-dr}" ipvsadm -S -n >"$work/services"
	busywait 30 has "$work/services"
	check "all servers are told: $1" 0 $?
}

# since: milliseconds from $began to the last word of the last follower
since() {
	local s newest=0 t

	for s in $servers; do
		t=$(stat -c %.3Y "$work/log.$s")
		[ "${t/./}" -le "$newest" ] || newest=${t/./}
	done
	echo $((newest - began))
}

# said NAME REGEX: has it?
said() {
	grep -q "$2" "$work/log.$1"
}

# said_last NAME DIRECTOR REGEX: the last word of that director
said_last() {
	grep "^$2 " "$work/log.$1" | tail -n 1 | grep -q "$3"
}

plan 26
btf=""
[ -e /sys/kernel/btf/vmlinux ] || btf=-without-btf
program now $btf
chance_net
director d2 20
sysctls d2 net.ipv4.vs.mhs.second_chance="$SVC4,$SVC6"
learn d2 < <(dr ipvsadm -S -n)
(
	umask 077
	echo "the key of all of them" >"$work/key"
	echo "the key of an attacker" >"$work/forged"
)
printf '10.2.0.10 10.2.0.20\n' >"$work/directors"
asked="--directors $work/directors --key-file $work/key"

# One director is there, then the other one, which has another list and another key
answers dr key
first=$begun
for s in $servers; do
	follows "$s"
	followers+=("$begun")
done
told "the services"
d2 ipvsadm -e -t "$SVC4" -r 10.2.0.12:80 -g -w 5
d2 ipvsadm -S -n >"$work/other"
answers d2 forged
busywait 30 said s1 "^10.2.0.20 port 6173: .* another key"
check "a director without the key is refused, as the server says" 0 $?
busywait 30 said d2 "refused, by another key"
check "and the director" 0 $?
has "$work/services"
check "its list is not set" 0 $?
has "$work/other"
check "control: check would tell" 1 $?

# Drain, delete, add
pair open 60
both -e 1 0 # what has to be told has come
told "a drain"
began=$(date +%s%3N)
dr ipvsadm -e -t "$SVC4" -r 10.2.0.12:80 -g -w 2
told "another weight"
took=$(since)
check_cmp "within two seconds, or five if three servers share a busy machine" \
	"$took" -le $((5000 * ${patience:-1}))
check_cmp "control: it took some time" "$took" -gt 0
unbroken "two changes"
pair open 30
both -d 1
told "a server is deleted"
pair open 30
both -a 1 1
told "and is back"
dr ipvsadm -e -t "$SVC4" -r 10.2.0.12:80 -g -w 1
told "with the first weight"
unbroken "all changes"

# The other director has the key now
kill $begun
answers d2 key
busywait 30 has "$work/other"
check "a director that disagrees is heard" 0 $?
has "$work/services"
check "as is the first one" 0 $?
pair open 30
route_vip 20
unbroken "by the other director"
pair open 60
route_vip 10
unbroken "and by the first one again"
# shellcheck disable=SC2086 # several words
on s1 check $asked
check "check asks the directors, and is quiet" "0 " "$? $(<"$work/said.s1")"

# The first one dies
check "until now there was one connection for all lists" "1 1 1" \
	"$(for s in $servers; do
		grep -c "^10.2.0.10 port 6173: has told its list" "$work/log.$s"
	done | paste -sd ' ')"
kill "$first"
busywait 30 said_last s1 10.2.0.10 "its last list stays"
check "a director's death is told" 0 $?
has "$work/services"
check "its last list stays" 0 $?
route_vip 20
d2 ipvsadm -e -t "$SVC4" -r 10.2.0.13:80 -g -w 3
told "a change of the director that is left" d2
unbroken "one director is dead"

# Followers that are stopped
pair reset
kill -STOP "${followers[@]}"
d2 ipvsadm -e -t "$SVC4" -r 10.2.0.11:80 -g -w 7
rebuilt d2
pair open 60
d2 ipvsadm -e -t "$SVC4" -r 10.2.0.11:80 -g -w 1
d2 ipvsadm -e -t "$SVC4" -r 10.2.0.12:80 -g -w 1
pair ping
check_cmp "control: with followers that are stopped changes break flows" \
	"$(sum broken)" -gt 0
# shellcheck disable=SC2086
on s1 check $asked
check "and check says so" 1 "$(grep -c "^error: $SVC4: what is set is old" \
	"$work/said.s1")"
for s in dr d2 $servers; do
	sed "s/^/# $s: /" "$work/log.$s"
done
