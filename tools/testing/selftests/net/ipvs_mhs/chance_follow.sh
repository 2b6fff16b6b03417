#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1500
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
need setpriv

d2() {
	in_ns d2 "$@"
}

# answers DIRECTOR KEY [COMMAND...]: it tells servers its list
answers() {
	bg_ns "$1" "${@:3}" "$top/scripts/real_server" chance tell \
		--key-file "$work/$2" >"$work/log.$1" 2>&1 &
	begun=$!
	defer kill -KILL $begun
}

# follow: all servers
follow() {
	local s

	followers=()
	for s in $servers; do
		bg_ns "$s" "$top/scripts/real_server" chance follow \
			--key-file "$work/key" --directors "$work/directors" \
			--table-size $SLOTS --table-program "$built/mhs_table" \
			--program "$work/now/chance.bpf.o" \
			>"$work/log.$s" 2>&1 &
		followers+=($!)
		defer kill -KILL $!
	done
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

# old_is_found: by check on the first server
old_is_found() {
	# shellcheck disable=SC2086 # several words
	on s1 check $asked
	grep -q "^error: $SVC4: what is set is old" "$work/said.s1"
}

# said NAME REGEX: has it?
said() {
	grep -q "$2" "$work/log.$1"
}

# said_last NAME DIRECTOR REGEX: the last word of that director
said_last() {
	grep "^$2 " "$work/log.$1" | tail -n 1 | grep -q "$3"
}

plan 32
program_here now
chance_net
director d2 20
sysctls d2 net.ipv4.vs.mhs.second_chance="$SVC4,$SVC6"
learn d2 < <(dr ipvsadm -S -n)
(
	umask 077
	echo "the key of all of them" >"$work/key"
	echo "the key of an attacker" >"$work/forged"
)
# what the unit allows
as_unit="setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs
	--inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin
	--bounding-set=-all,+net_admin"
printf '10.2.0.10 10.2.0.20\n' >"$work/directors"
asked="--directors $work/directors --key-file $work/key"

# One director is there, then the other one, which has another list and another key
answers dr key
first=$begun
follow
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
chmod 711 "$work"
chown 65534 "$work/key"
# shellcheck disable=SC2086 # several words
answers d2 key $as_unit
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
check "it has closed no connection of a server that was slow to set a list" "0 0 0" \
	"$(for s in $servers; do
		grep -c "^10.2.0.10 .*has closed" "$work/log.$s"
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

# The director that is left is started anew, and servers are told so before it has its
# services again; then the followers are killed
d2 ipvsadm -C
busywait 30 said_last s1 10.2.0.20 "its list now has no service"
check "an empty director is told" 0 $?
has "$work/services"
check "the list that it had stays" 0 $?
learn d2 <"$work/services"
unbroken "it is back"
kill -KILL "${followers[@]}"
follow
told "by followers that were killed" d2
unbroken "followers were killed"
on s1 set --servers "$work/other" --table-size $SLOTS \
	--table-program "$built/mhs_table" --program "$work/now/chance.bpf.o"
busywait 30 has "$work/services"
check "who sets an old list by hand is put right" 0 $?

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
# a director looks at its services twice a second
busywait 20 old_is_found
result "and check says so" $?
for s in dr d2 $servers; do
	sed "s/^/# $s: /" "$work/log.$s"
done
