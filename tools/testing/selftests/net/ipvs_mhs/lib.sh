# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Common parts of the ip_vs_mhs selftests.
# The network they run in: lib_network.sh.

set -u

readonly VIP4=10.9.0.1 VIP6=fd09::1
readonly KSFT_PASS=0 KSFT_FAIL=1 KSFT_SKIP=4
here=${BASH_SOURCE[0]%/*}
[[ $here = /* ]] || here=$PWD/$here
work=$(mktemp -d)
planned="" tests_total=0 tests_failed=0 defers=()
unload_at_end="" lab_pid=""
declare -A net_dirs=()
# Limits of waiting are for hangs: more patience where time is emulated
patience=${KSFT_MACHINE_SLOW:+6}
mkfifo "$work/never"
exec {never}<>"$work/never"

# shellcheck source=lib_network.sh
. "$here/lib_network.sh"

# plan N: print the head of the report
plan() {
	planned=$1
	echo "KTAP version 1"
	echo "1..$1"
}

# result NAME STATUS [TEXT]: one line of the report
result() {
	local ok="ok"

	tests_total=$((tests_total + 1))
	# what is no number is no success
	if [ "$2" != 0 ]; then
		ok="not ok"
		tests_failed=$((tests_failed + 1))
	fi
	echo "$ok $tests_total $1${3:+ # $3}"
}

# check NAME WANT GOT: compare two values
check() {
	if [ "$2" = "$3" ]; then
		result "$1" 0
	else
		result "$1" 1 "want $2, got $3"
	fi
}

# check_cmp NAME A OP B: compare two numbers, OP as of test(1)
check_cmp() {
	if test "$2" "$3" "$4"; then
		result "$1" 0 "$2 $3 $4"
	else
		result "$1" 1 "not: $2 $3 $4"
	fi
}

note() {
	echo "# $*"
}

# report COMMAND...: it prints NAME<tab>STATUS<tab>TEXT for each check
report() {
	local name status text

	while IFS=$'\t' read -r name status text; do
		if [ "$name" = "#" ]; then
			note "$text"
		else
			result "$name" "$status" "$text"
		fi
	done < <("$@" || printf 'the program ended well: %s\t1\t\n' "$*")
}

# defer COMMAND...: run it at the end, the last one first
defer() {
	defers+=("$(printf '%q ' "$@")")
}

# finish: it is over; a test with a plan has failed unless it was kept
finish() {
	local status=$? i

	trap - EXIT INT TERM
	for ((i = ${#defers[@]} - 1; i >= 0; i--)); do
		eval "${defers[i]}" >/dev/null 2>&1
	done
	lab_stop
	[ -z "$unload_at_end" ] || unload_module
	rm -rf "$work"
	[ -n "$planned" ] || exit "$status"
	[ "$tests_failed" -eq 0 ] && [ "$tests_total" -eq "$planned" ] ||
		exit $KSFT_FAIL
	exit $KSFT_PASS
}
trap finish EXIT
trap 'exit 1' INT TERM

skip_all() {
	echo "1..0 # SKIP $1"
	trap - EXIT
	rm -rf "$work"
	exit $KSFT_SKIP
}

# need COMMAND...: no test without them
need() {
	local command

	for command; do
		# the shell finds what cannot be executed, too
		[ -x "$(type -P "$command")" ] || skip_all "no $command"
	done
}

# nap SECONDS: sleep without a new process, which is dear in emulation.  A test waits
# for conditions, see busywait; a comment "why:" says why there is none.
nap() {
	read -r -t "$1" -u "$never" || true
}

# busywait SECONDS COMMAND...: until it succeeds
busywait() {
	local end=$((SECONDS + $1 * ${patience:-1}))

	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		nap 0.1 # why: the pace of looks
	done
}

loaded() {
	[ -e "/sys/module/${1:-ip_vs_mhs}" ]
}

# insert_module PARAMETERS: the one of MHS_KO, or that of the kernel.  The command may
# end before the namespaces of an older test do, which services wait for.
insert_module() {
	local needs

	if [ -n "${MHS_KO:-}" ]; then
		# insmod loads nothing else: libaes is a module on 5.10
		IFS=, read -ra needs < <(modinfo -F depends "$MHS_KO")
		[ ! "${needs[*]}" ] || modprobe -qa "${needs[@]}"
		insmod "$MHS_KO" "$@"
	else
		modprobe ip_vs_mhs "$@"
	fi && busywait 60 [ -e /proc/net/ip_vs_mhs ]
}

# load_module PARAMETERS: if it is not there; then it goes in the end
load_module() {
	[ -e /proc/net/ip_vs ] || modprobe -q ip_vs ||
		skip_all "no ip_vs in this kernel"
	if ! loaded; then
		[ -n "${MHS_KO:-}" ] || modprobe -qn ip_vs_mhs ||
			skip_all "no module ip_vs_mhs"
		insert_module "$@" || exit $KSFT_FAIL
		unload_at_end=yes
	fi
}

# fresh_module PARAMETERS: load it anew, for a test that unloads it at its end
fresh_module() {
	unload_module
	load_module "$@"
}

# unload_module [MODULE]: services of a namespace that is just going may hold it, and
# the scheduler holds the lane
unload_module() {
	! loaded "$@" || busywait 20 try_unload "$@" || return
	[ -n "${1:-}" ] || ! loaded ip_vs_mhs_lane ||
		busywait 20 try_unload ip_vs_mhs_lane
}

try_unload() {
	local module=${1:-ip_vs_mhs}

	! loaded "$module" || [ "$(<"/sys/module/$module/refcnt")" -gt 0 ] ||
		rmmod "$module" 2>/dev/null
	! loaded "$module"
}

# lab COMMAND...: of flows.py, which serves and holds the flows of all
# namespaces in one process; the answer is in $lab_reply
lab() {
	if [ -z "$lab_pid" ]; then
		coproc LAB { exec python3 -S "$here/flows.py" lab; }
		# the shell's own descriptors are not for subshells
		exec {lab_in}>&"${LAB[1]}" {lab_out}<&"${LAB[0]}"
		lab_pid=$!
	fi
	echo "$*" >&"$lab_in"
	lab_reply=""
	read -r -t 300 lab_reply <&"$lab_out"
	[[ $lab_reply != error:* ]] || note "lab $*: $lab_reply"
}

# lab_stop: with it go all servers and clients, and what keeps namespaces that
# are deleted
lab_stop() {
	[ -z "$lab_pid" ] || kill "$lab_pid"
	lab_pid=""
}

# sysctls NAME KEY=VALUE...: there; a comma in a value stands for a blank
sysctls() {
	lab set "$1-$$" "${@:2}"
}

# net_dir NAME: what is /proc/net in there is, for all to read, $net
net_dir() {
	if [ -z "${net_dirs[$1]:-}" ]; then
		lab join "$1-$$"
		net_dirs[$1]=$lab_reply
	fi
	net=${net_dirs[$1]}
}

# conns [NAMESPACE] [FILE]: connection entries, carriers not among them, nor
# those in FILE, the copy of a list.  Who reads the list while an entry expires misses
# another, so it is read three times; a table that grows is listed more than once.
conns() {
	local net

	net_dir "${1:-dr}"
	cat "$net"/ip_vs_conn{,,} |
		awk '{ flow = $1 " " $2 " " $3 " " $4 " " $5 }
			$1 == "Pro" { next }
			FILENAME != "-" { old[flow] = 1; next }
			!(flow in old) && !new[flow]++ { n++ }
			END { print n + 0 }' "${2:-/dev/null}" -
}

# conns_begin [NAMESPACE], conns_new [NAMESPACE]: entries made since then; those
# of before may expire meanwhile.  A flow whose port had an entry before is none,
# see Client.bind() of flows.py.
conns_begin() {
	net_dir "${1:-dr}"
	cat "$net"/ip_vs_conn{,,} >"$work/conns.${1:-dr}"
}

conns_new() {
	conns "${1:-dr}" "$work/conns.${1:-dr}"
}

# raw NAME ARGUMENTS: send TCP segments from there, see raw.py
raw() {
	in_ns "$1" python3 -S "$here/raw.py" "${@:2}"
}

# many_services N SERVERS: lines for ipvsadm -R
many_services() {
	local i j

	for ((i = 1; i <= $1; i++)); do
		echo "-A -t $VIP4:$((1000 + i)) -s mhs"
		for ((j = 1; j <= $2; j++)); do
			echo "-a -t $VIP4:$((1000 + i)) -r 10.2.$((1 + j / 200)).$((j % 200)):80 -g -w 1"
		done
	done
}

# real_lines SERVICE METHOD NUMBER...: servers for ipvsadm -R, of any protocol, which is
# in $proto: -t, -u or --sctp-service; add_servers NUMBER...: those of the IPv4 service
real_lines() {
	local i svc=$1 how=$2 t=${proto:--t}

	for i in "${@:3}"; do
		if [[ $svc = \[* ]]; then
			echo "-a $t $svc -r [fd02::$((10 + i))]:${svc##*:} $how -w 1"
		else
			echo "-a $t $svc -r 10.2.0.$((10 + i)):${svc##*:} $how -w 1"
		fi
	done
}

add_servers() {
	proto=-t real_lines $VIP4:80 -g "$@"
}

# weight SERVER WEIGHT [NAMESPACE] [METHOD]: of a server of the IPv4 service
weight() {
	in_ns "${3:-dr}" ipvsadm -e -t $VIP4:80 -r "10.2.0.$((10 + $1)):80" \
		"${4:--g}" -w "$2"
}

# windows HOLD PIN: in milliseconds.  A test that needs a phase to last makes
# its window long, and short when it has seen enough: no clock to race with.
windows() {
	sysctls dr net.ipv4.vs.mhs.hold_ms="$1" net.ipv4.vs.mhs.pin_ms="$2"
}

# pinning, stable [SERVICE]: are its slots in no other phase?  built: has the last
# change reached the slots?
pinning() {
	[ "$(mhs Pin "$@")" -gt 0 ] && [ "$(mhs Hold "$@")" -eq 0 ]
}

stable() {
	in_state stable "$@"
}

built() {
	! in_state rebuilding
}

# tcp_count NAMESPACE FIELD: of its counters of TCP, by number; opened NAMESPACE:
# connections, segments NAMESPACE: sent
tcp_count() {
	local net lines

	net_dir "$1"
	mapfile -t lines <"$net/snmp"
	[[ "${lines[*]}" =~ Tcp:(\ -?[0-9]+){$2}\ ([0-9]+) ]]
	echo "${BASH_REMATCH[2]}"
}

opened() {
	tcp_count "$1" 4
}

segments() {
	tcp_count "$1" 10
}

# grown N COMMAND...: is what it counts by N more than $before?
grown() {
	[ "$("${@:2}")" -ge $((before + $1)) ]
}

# until_more N COMMAND...: what it counts grows by N
until_more() {
	local before

	before=$("${@:2}")
	busywait 20 grown "$@"
}

# uptime: seconds since boot, the clock of flows.py; in_state STATE [SERVICE]
# [NAMESPACE]: for busywait
uptime() {
	local up

	read -r up _ </proc/uptime
	echo "$up"
}

in_state() {
	local states

	# one by mark may be two, of IPv4 and of IPv6
	states=$(mhs State "${2:-$VIP4:80}" "${3:-dr}")
	[ "${states//$'\n'$1/}" = "$1" ]
}

# mhs COLUMN [SERVICE] [NAMESPACE]: a value of /proc/net/ip_vs_mhs, nothing
# without the module
mhs() {
	local net i lines row column="" service=${2:-$VIP4:80}

	net_dir "${3:-dr}"
	[ -e "$net/ip_vs_mhs" ] || return 0
	mapfile -t lines <"$net/ip_vs_mhs"
	read -ra row <<<"${lines[0]:-}"
	for i in "${!row[@]}"; do
		[ "${row[i]}" != "$1" ] || column=$i
	done
	for i in "${lines[@]:1}"; do
		[[ $i == *" $service "* ]] || continue
		read -ra row <<<"$i"
		echo "${row[column]}"
	done
}

settled() {
	[[ $(mhs State "${1:-$VIP4:80}" "${2:-dr}") != *settling* ]]
}

# wait_settled [SERVICE] [NAMESPACE]
wait_settled() {
	busywait 20 settled "$@"
}

# kernel_said REGEX: the module has logged that
kernel_said() {
	dmesg | grep -q "IPVS: mhs: .*$1"
}

# learn NAMESPACE <LINES: of ipvsadm -R, whole services, until they are settled
# with all their servers.  A machine that pauses in the middle, for as long as a
# table takes to settle, gives mhs some of them, then changes: so again.  Other
# schedulers have nothing to settle.
learn() {
	local try line given lines

	mapfile -t lines
	for try in 1 2 3 4 5; do
		printf '%s\n' "${lines[@]}" | in_ns "$1" ipvsadm -R
		[[ ${lines[*]} == *" -s mhs"* ]] || return 0
		given=()
		for line in "${lines[@]}"; do
			[[ $line != "-A "* ]] || given+=("${line:3}")
		done
		learnt "$1" "${given[@]}" && return
		note "settled too early, try $try"
		[ "$try" = 5 ] ||
			printf -- '-D %s\n' "${given[@]%% -s *}" |
				in_ns "$1" ipvsadm -R
	done
}

# learnt NAMESPACE "OPTION SERVICE ..."...: settled, and no change since they were made
learnt() {
	local service early=0

	for service in "${@:2}"; do
		read -r _ service _ <<<"$service"
		wait_settled "$service" "$1"
		in_state stable "$service" "$1" || early=1
	done
	return $early
}

# mhs_sum COLUMN [NAMESPACE]: of all services
mhs_sum() {
	in_ns "${2:-dr}" awk -v c="$1" '
		NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
		{ sum += $n[c] } END { print sum }' /proc/net/ip_vs_mhs
}

# starve PERCENT: of new entries and carriers so many find no memory from now on,
# in a kernel that can do that
starve() {
	local set faults=/sys/kernel/debug/failslab

	[ -w $faults/cache-filter ] || return 0
	for set in 0:probability 0:verbose 0:ignore-gfp-wait -1:times 1:cache-filter; do
		echo "${set%:*}" >"$faults/${set#*:}"
	done
	echo 1 >/sys/kernel/slab/ip_vs_conn/failslab
	echo "$1" >$faults/probability
}

# dgram_servers PORTS [ARGUMENTS]: in all servers' namespaces, see dgrams.py
dgram_servers() {
	local ns names=()

	for ns in /run/netns/s[0-9]*-"$$"; do
		names+=("${ns##*/}")
	done
	python3 -S "$here/dgrams.py" serve --ports "$@" "${names[@]}" \
		>"$work/dgrams.ready" &
	defer kill $!
	busywait 20 test -s "$work/dgrams.ready" ||
		note "dgrams.py does not serve"
}

# flow_start NAME ARGS...: a client that holds flows, see flows.py, or that of
# $client_py, in the namespace $client_ns, or cl; each has ports of its own
client_port=34000
flow_start() {
	local name=$1 fd_in fd_out

	shift
	if [ -n "${client_py:-}" ]; then
		mkfifo "$work/$name.in" "$work/$name.out"
		MHS_FIRST_PORT=$client_port bg_ns "${client_ns:-cl}" \
			python3 -S "$here/$client_py" client \
			"$@" <"$work/$name.in" >"$work/$name.out" &
		client_port=$((client_port + 500))
		defer kill $!
	else
		lab client "${client_ns:-cl}-$$" "$work/$name" "$@"
	fi
	exec {fd_in}>"$work/$name.in" {fd_out}<"$work/$name.out"
	eval "${name}_in=$fd_in ${name}_out=$fd_out"
}

# flow NAME COMMAND...: one command to it; the answer is for value()
flow() {
	flow_send "$@"
	flow_wait "$1" "${*:2}"
}

# flow_send NAME COMMAND...; flow_wait NAME: the two halves of flow, for what
# happens while it works
flow_send() {
	local in="${1}_in"

	echo "${*:2}" >&"${!in}"
}

flow_wait() {
	local out="${1}_out"

	reply=""
	read -r -t 300 reply <&"${!out}"
	note "${2:-$1} -> $reply"
}

# flow_end NAME: the client is not needed any more
flow_end() {
	local in="${1}_in" out="${1}_out"

	echo quit >&"${!in}"
	eval "exec ${!in}>&- ${!out}<&-"
}

# value KEY: of the last reply, 0 if it has none
value() {
	local v=" ${reply:-} "

	[[ $v == *" $1="* ]] || v=" $1=0 "
	v=${v#*" $1="}
	echo "${v%% *}"
}

need ip ipvsadm python3
