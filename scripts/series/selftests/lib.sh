#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A client, a director and three servers on one Ethernet.  Servers answer the
# client directly: direct routing and tunnels.
#
#	 client        director       s1        s2        s3
#	10.0.0.1       10.0.0.2    10.0.0.11 10.0.0.12 10.0.0.13
#	   |              |            |         |         |
#	===+==============+============+=========+=========+=== bridge
#
# The virtual address, VIP, is on the loopback device of the director and of
# the servers, which do not answer ARP for it.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317
here=$(dirname "$(readlink -e "${BASH_SOURCE[0]}")")
# shellcheck disable=SC1091
source "$here/../lib.sh"
# shellcheck disable=SC1091
source "$here/../../kselftest/ktap_helpers.sh"

VIP=192.0.2.80
VIP6=2001:db8:8::80
WAIT=20000	# ms
# shellcheck disable=SC2034
NUM='+([0-9])'	# matches a number
unload=

skip() {
	ktap_print_header
	ktap_skip_all "$1 is not there"
	exit "$KSFT_SKIP"
}

clean() {
	cleanup_all_ns
	[ -z "$unload" ] || slowwait 20 rmmod ip_vs_mhs 2>/dev/null
}

# need TOOL...: and the module, which goes in the end if this test loads it
need() {
	local tool

	trap clean EXIT
	for tool; do
		command -v "$tool" >/dev/null || skip "$tool"
	done
	[ -e /sys/module/ip_vs_mhs ] && return
	modprobe -q ip_vs_mhs || skip ip_vs_mhs
	unload=yes	# nobody else's, and not built in
}

# result NAME COMMAND...: one test, which passes if the command succeeds
result() {
	local name=$1 out

	shift
	if out=$("$@" 2>&1); then
		ktap_test_pass "$name"
	else
		ktap_print_msg "$* failed: $out"
		ktap_test_fail "$name"
	fi
}

# is WANTED COMMAND...: its output matches
is() {
	local wanted=$1 got

	shift
	got=$("$@")
	# shellcheck disable=SC2053
	[[ $got == $wanted ]] || { echo "wanted $wanted, got $got"; return 1; }
}

# at_last WANTED COMMAND...: in the end it does
at_last() { slowwait $((WAIT / 1000)) is "$@" >/dev/null || is "$@"; }

in_ns() { ip netns exec "$@"; }
director() { in_ns "$director" "$@"; }

# link NS ADDRESS-BYTE
link() {
	ip link add eth0 netns "$1" type veth peer name "v$2" netns "$bridge"
	ip -n "$bridge" link set "v$2" master br0 up
	ip -n "$1" link set eth0 up
	ip -n "$1" addr add "10.0.0.$2/24" dev eth0
	ip -n "$1" addr add "2001:db8:1::$2/64" dev eth0 nodad
}

# serve NAME NS: a server of that name
serve() {
	exec {ready}< <(exec ip netns exec "$2" \
		python3 "$here/flows.py" serve "$1" $VIP 80 443 2>&1)
	read -r -t 20 -u "$ready" || exit
}

topology() {
	local i

	setup_ns bridge client director s1 s2 s3 || exit
	ip -n "$bridge" link add br0 type bridge mcast_snooping 0
	ip -n "$bridge" link set br0 up
	link "$client" 1
	link "$director" 2
	ip -n "$client" route add "$VIP" via 10.0.0.2
	ip -n "$client" route add "$VIP6" via 2001:db8:1::2
	ip -n "$director" addr add "$VIP/32" dev lo
	ip -n "$director" addr add "$VIP6/128" dev lo nodad
	director sysctl -wq net.ipv4.ip_forward=1
	modprobe -q ipip
	modprobe -q sctp
	for i in 1 2 3; do
		link "$(server s$i)" "1$i"
		in_ns "$(server s$i)" sysctl -wq net.ipv4.conf.all.arp_ignore=1 \
			net.ipv4.conf.all.arp_announce=2
		ip -n "$(server s$i)" addr add "$VIP/32" dev lo
		ip -n "$(server s$i)" addr add "$VIP6/128" dev lo nodad
		ip -n "$(server s$i)" link set tunl0 up
		in_ns "$(server s$i)" sysctl -wq net.ipv4.conf.tunl0.rp_filter=0
		serve "s$i" "$(server s$i)"
	done
	short
	coproc CLIENT { exec ip netns exec "$client" \
		python3 "$here/flows.py" client; }
}

server() { echo "${!1}"; }

# ask WORD...: a line to the client, and its answer
ask() {
	local answer

	echo "$@" >&"${CLIENT[1]}"
	read -r -t 120 -u "${CLIENT[0]}" answer
	echo "$answer"
}

ipvs() { director ipvsadm "$@"; }

# times of the phases, hold and pin
phases() {
	director sysctl -wq net.ipv4.vs.mhs.hold_ms="$1" \
		net.ipv4.vs.mhs.pin_ms="$2"
}
short() { phases 500 1000; }
long() { phases 100000 100000; }

# forget: no connection of an earlier test is left
forget() {
	director sysctl -wq net.ipv4.vs.expire_nodest_conn=1
	ipvs -C
	at_last 0 conns
	director sysctl -wq net.ipv4.vs.expire_nodest_conn=0
}

# service SCHEDULER METHOD SERVICE...: with servers s1 and s2, or $SERVERS
service() {
	local sched=$1 method=$2 i

	shift 2
	ipvs -C
	ipvs -A "$@" -s "$sched" -b flag-1,flag-2
	for i in ${SERVERS:-1 2}; do
		add "$method" "$i" "$@"
	done
	[ "$sched" != mhs ] || at_last stable mhs State
}

# add METHOD N SERVICE...
add() {
	local method=$1 n=$2 port=${*: -1}

	shift 2
	case $* in
	*-f*) port=:0 ;;
	*) port=:${port##*:} ;;
	esac
	case $* in
	*[*) ipvs -a "$@" -r "[2001:db8:1::1$n]$port" "$method" ;;
	*) ipvs -a "$@" -r "10.0.0.1$n$port" "$method" ;;
	esac
}

# mhs COLUMN: of the first service
mhs() {
	director awk -v want="$1" 'NR == 1 { for (i = 1; i <= NF; i++)
			if ($i == want) at = i }
		NR == 2 { print $at }' /proc/net/ip_vs_mhs
}

# conns [N]: number of connections, to server N
conns() {
	director awk -v to="${1:+$(printf 0A0000%02X "1$1")}" \
		'$6 ~ to "$" && NR > 1 { n++ } END { print n + 0 }' \
		/proc/net/ip_vs_conn
}

# counted: connections by the statistics
counted() {
	ipvs -Ln --stats | awk '$1 ~ /^(TCP|UDP|SCTP|FWM)$/ { print $3; exit }'
}

# masquerading on|off: replies pass the director, which sends no redirects
masquerading() {
	local n act=replace

	[ "$1" = on ] || act=del
	for n in 1 2 3; do
		ip -n "$(server s$n)" route $act 10.0.0.1 via 10.0.0.2
	done
	director sysctl -wq net.ipv4.conf.all.send_redirects=0 \
		net.ipv4.conf.eth0.send_redirects=0
}

unstable() { echo $(($(mhs Hold) + $(mhs Pin))); }
