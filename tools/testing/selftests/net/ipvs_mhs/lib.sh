# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Common parts of the ip_vs_mhs selftests.
#
#   cl ---- rt ==== dr            10.1.0.0/24, fd01::/64: client
#           |  br0                10.2.0.0/24, fd02::/64: director, servers
#           +==== s1 .. sN        10.9.0.1, fd09::1: the virtual address
#           +==== d2              a second director, in tests that ask for it
#
# The client reaches the virtual address by the router, which sends it to the
# director.  Servers have the address on lo and on a tunnel device and answer
# through the router.  Every namespace has a name of its own for this run.

set -u

readonly VIP4=10.9.0.1 VIP6=fd09::1
readonly KSFT_PASS=0 KSFT_FAIL=1 KSFT_SKIP=4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
tests_total=0 tests_failed=0 defers=()

# plan N: print the head of the report
plan() {
	echo "KTAP version 1"
	echo "1..$1"
}

# result NAME STATUS [TEXT]: one line of the report
result() {
	local ok="ok"

	tests_total=$((tests_total + 1))
	if [ "$2" -ne 0 ]; then
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

# defer COMMAND...: run it at the end, the last one first
defer() {
	defers+=("$(printf '%q ' "$@")")
}

finish() {
	local i

	trap - EXIT INT TERM
	for ((i = ${#defers[@]} - 1; i >= 0; i--)); do
		eval "${defers[i]}" >/dev/null 2>&1
	done
	rm -rf "$work"
	[ "$tests_failed" -eq 0 ] || exit $KSFT_FAIL
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

# busywait SECONDS COMMAND...: until it succeeds
busywait() {
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

load_module() {
	[ -e /proc/net/ip_vs ] || modprobe -q ip_vs ||
		skip_all "no ip_vs in this kernel"
	if ! grep -q '^ip_vs_mhs ' /proc/modules; then
		insmod "${MHS_KO:?path of ip_vs_mhs.ko}" "$@" || exit $KSFT_FAIL
	fi
}

# fresh_module PARAMETERS: load it anew, for a test that unloads it at its end
fresh_module() {
	unload_module
	load_module "$@"
	defer unload_module
}

# unload_module: services of a namespace that is just going may hold it
unload_module() {
	! grep -q '^ip_vs_mhs ' /proc/modules ||
		busywait 20 rmmod ip_vs_mhs 2>/dev/null
}

# conns [NAMESPACE]: like entries, quick when there are very many
conns() {
	in_ns "${1:-dr}" awk 'END { print NR - 1 }' /proc/net/ip_vs_conn
}

# raw NAME ARGUMENTS: send TCP segments from there, see raw.py
raw() {
	local n=$1

	shift
	in_ns "$n" python3 "$here/raw.py" "$@"
}

# ns NAME: the namespace's real name; in NAME COMMAND...: run there
ns() {
	echo "$1-$$"
}

in_ns() {
	local n=$1

	shift
	nsenter "--net=/run/netns/$n-$$" "$@"
}

# bg_ns NAME COMMAND...: in the background, the process itself, for kill $!
bg_ns() {
	local n=$1

	shift
	exec nsenter "--net=/run/netns/$n-$$" "$@"
}

# In emulation a process costs a tenth of a second: ip works in batches
ip_ns() {
	ip -n "$(ns "$1")" -batch -
}

setup_ns() {
	local n

	for n in "$@"; do
		ip netns add "$(ns "$n")"
		defer ip netns del "$(ns "$n")"
		in_ns "$n" sysctl -qw net.ipv4.conf.all.rp_filter=0 \
			net.ipv4.conf.default.rp_filter=0 \
			net.ipv6.conf.all.accept_dad=0 \
			net.ipv6.conf.default.accept_dad=0 \
			net.ipv4.conf.all.send_redirects=0 \
			net.ipv4.conf.default.send_redirects=0 \
			net.ipv4.ip_local_port_range="10000 65000"
	done
}

# attach NAME HOST: a port of the router's bridge, addresses by host number,
# and the virtual addresses on lo
attach() {
	ip_ns rt <<-EOF
		link add v$1 type veth peer name eth0 netns $(ns "$1")
		link set v$1 master br0 up
	EOF
	ip_ns "$1" <<-EOF
		link set lo up
		addr add 10.2.0.$2/24 dev eth0
		addr add fd02::$2/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.2.0.1
		route add default via fd02::1
		addr add $VIP4/32 dev lo
		addr add $VIP6/128 dev lo nodad
	EOF
}

# director NAME HOST
director() {
	setup_ns "$1"
	attach "$1" "$2"
	in_ns "$1" sysctl -qw net.ipv4.ip_forward=1 \
		net.ipv6.conf.all.forwarding=1
}

# route_vip HOST: where the router sends the virtual addresses
route_vip() {
	ip_ns rt <<-EOF
		route replace $VIP4/32 via 10.2.0.$1
		route replace $VIP6/128 via fd02::$1
	EOF
}

# setup_net SERVERS: the network above
setup_net() {
	local i

	setup_ns cl rt
	ip_ns rt <<-EOF
		link set lo up
		link add br0 type bridge
		addr add 10.2.0.1/24 dev br0
		addr add fd02::1/64 dev br0 nodad
		link set br0 up
		link add vcl type veth peer name eth0 netns $(ns cl)
		addr add 10.1.0.1/24 dev vcl
		addr add fd01::1/64 dev vcl nodad
		link set vcl up
	EOF
	in_ns rt sysctl -qw net.ipv4.ip_forward=1 \
		net.ipv6.conf.all.forwarding=1
	ip_ns cl <<-EOF
		link set lo up
		addr add 10.1.0.2/24 dev eth0
		addr add fd01::2/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.1.0.1
		route add default via fd01::1
	EOF
	director dr 10
	route_vip 10
	for ((i = 1; i <= $1; i++)); do
		server_start "s$i" $((10 + i))
	done
	for ((i = 1; i <= $1; i++)); do
		server_wait "s$i"
	done
}

# server NAME HOST: a real server that takes direct routing and IPIP
server() {
	server_start "$@"
	server_wait "$1"
}

server_start() {
	setup_ns "$1"
	in_ns "$1" sysctl -qw net.ipv4.conf.all.arp_ignore=1 \
		net.ipv4.conf.all.arp_announce=2
	attach "$1" "$2"
	# the tunnel devices that come with the modules, where they are loaded
	ip -n "$(ns "$1")" link set tunl0 up 2>/dev/null
	ip -n "$(ns "$1")" link set sit0 up 2>/dev/null
	if ip -n "$(ns "$1")" link set ip6tnl0 up 2>/dev/null; then
		ip -n "$(ns "$1")" -6 tunnel change ip6tnl0 mode any
	fi
	bg_ns "$1" python3 "$here/flows.py" serve --name "$1" &
	defer kill $!
}

server_wait() {
	busywait 20 listening "$1" 80 || note "server $1 does not listen"
}

# listening NAME PORT
listening() {
	[ -n "$(in_ns "$1" ss -Hltn "sport = :$2")" ]
}

# dr COMMAND...: on the director
dr() {
	in_ns dr "$@"
}

# add_servers NUMBER...: lines for ipvsadm -R, servers by direct routing
add_servers() {
	local i

	for i in "$@"; do
		echo "-a -t $VIP4:80 -r 10.2.0.$((10 + i)):80 -g -w 1"
	done
}

# real_lines SERVICE METHOD NUMBER...: the same for any service, -g or -i, and
# any protocol, which is in $proto: -t, -u or --sctp-service
real_lines() {
	local i svc=$1 how=$2 t=${proto:--t}

	shift 2
	for i in "$@"; do
		if [[ $svc = \[* ]]; then
			echo "-a $t $svc -r [fd02::$((10 + i))]:${svc##*:} $how -w 1"
		else
			echo "-a $t $svc -r 10.2.0.$((10 + i)):${svc##*:} $how -w 1"
		fi
	done
}

# weight SERVER WEIGHT [NAMESPACE] [METHOD]: of a server of the IPv4 service
weight() {
	in_ns "${3:-dr}" ipvsadm -e -t $VIP4:80 -r "10.2.0.$((10 + $1)):80" \
		"${4:--g}" -w "$2"
}

# uptime: seconds since boot, the clock of flows.py; in_state STATE [SERVICE]
# [NAMESPACE]: for busywait
uptime() {
	cut -d ' ' -f 1 /proc/uptime
}

in_state() {
	[ "$(mhs State "${2:-$VIP4:80}" "${3:-dr}")" = "$1" ]
}

# mhs COLUMN [SERVICE] [NAMESPACE]: a value of /proc/net/ip_vs_mhs
mhs() {
	in_ns "${3:-dr}" awk -v c="$1" -v s="${2:-$VIP4:80}" '
		NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
		$2 == s { print $n[c] }' /proc/net/ip_vs_mhs
}

settled() {
	[ "$(mhs State "${1:-$VIP4:80}" "${2:-dr}")" != settling ]
}

# wait_settled [SERVICE] [NAMESPACE]
wait_settled() {
	busywait 20 settled "$@"
}

# entries [NAMESPACE]: connection entries, carriers not among them
entries() {
	in_ns "${1:-dr}" ipvsadm -Lnc | tail -n +3 | wc -l
}

# dgram_servers PORTS [ARGUMENTS]: in all servers' namespaces, see dgrams.py
dgram_servers() {
	local ns names=()

	for ns in /run/netns/s[0-9]*-"$$"; do
		names+=("${ns##*/}")
	done
	python3 "$here/dgrams.py" serve --ports "$@" "${names[@]}" \
		>"$work/dgrams.ready" &
	defer kill $!
	busywait 20 test -s "$work/dgrams.ready" ||
		note "dgrams.py does not serve"
}

# flow_start NAME ARGS...: a client that holds flows, see flows.py, or that of
# $client_py, in the namespace $client_ns, or cl
flow_start() {
	local name=$1 fd_in fd_out

	shift
	mkfifo "$work/$name.in" "$work/$name.out"
	bg_ns "${client_ns:-cl}" python3 "$here/${client_py:-flows.py}" \
		client "$@" \
		<"$work/$name.in" >"$work/$name.out" &
	defer kill $!
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

	shift
	echo "$*" >&"${!in}"
}

flow_wait() {
	local out="${1}_out"

	reply=""
	read -r -t 110 reply <&"${!out}"
	note "${2:-$1} -> $reply"
}

# flow_end NAME: the client is not needed any more
flow_end() {
	local in="${1}_in" out="${1}_out"

	echo quit >&"${!in}"
	eval "exec ${!in}>&- ${!out}<&-"
	rm -f "$work/$1.in" "$work/$1.out"
}

# count_syns SERVER: begin to count; syns SERVER: how many came since
count_syns() {
	in_ns "$1" nft -f - <<-EOF
		table inet mhs_syns {
			chain in {
				type filter hook input priority 0
				tcp flags & (syn | ack) == syn counter
			}
		}
	EOF
}

syns() {
	in_ns "$1" nft list table inet mhs_syns |
		sed -n 's/.*counter packets \([0-9]*\).*/\1/p'
}

# value KEY: of the last reply, 0 if it has none
value() {
	local word

	for word in ${reply:-}; do
		if [[ $word = "$1="* ]]; then
			echo "${word#*=}"
			return
		fi
	done
	echo 0
}
