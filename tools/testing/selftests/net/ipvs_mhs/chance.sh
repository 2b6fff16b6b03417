#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1800
# weight: 60
# The second chance: with the program on the servers no flow breaks when servers are
# drained, deleted, added and replaced, twice in a row, while others fail, with
# directors that disagree, die or know nothing, though no director makes an entry;
# clients of a dead server are reset at once.  Servers without the program have their
# flows kept by entries.  IPv4 goes by direct routing and IPv6 by IPIP; with MHS_LONG, as
# "make check-release ONLY=long" has it, the other way round, too, and more servers are replaced.
# chance_forged.sh has what strangers send.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
. "${0%/*}/lib_chance.sh"

# cable SERVER up | down
cable() {
	ip -n "$(ns rt)" link set "v$1" "$2"
}

# restart: from three servers, without a flow
restart() {
	pair reset
	busywait 60 eval '[ "$(conns)" -eq 0 ]'
	dr ipvsadm -C
	chance_services 1 2 3
	busywait 20 answering 6
}

# goes NAME CHANGE...: flows begin before each, and none breaks
goes() {
	local change

	for change in "${@:2}"; do
		pair open 20
		# shellcheck disable=SC2086
		both $change
	done
	unbroken "$1"
}

planned() {
	goes "$1: drain" "-e 1 0"
	pair bulk 20000 1
	unbroken "$1: uploads in full frames"
	goes "$1: delete" "-d 1"
	goes "$1: added again" "-a 1 1"
	goes "$1: two changes" "-e 1 0" "-e 2 0"
	goes "$1: two more" "-e 1 1" "-e 3 0"
	check_cmp "$1: packets went to the right server" "$(chances Asked)" -gt 0
	check "$1: none was reset" 0 "$(chances Reset)"
}

# s2_dies: while s1 is drained; it has $mine flows
s2_dies() {
	restart
	pair open 40
	both -e 1 0
	pair ping
	mine=$(sum s2)
	cable s2 down
}

# One is drained and lives; another one dies, and is deleted.  Then it is back, between
# two boots, and takes slots of the first one again.
deaths() {
	sysctls dr net.ipv4.vs.expire_nodest_conn=1
	s2_dies
	pair ping 1
	check_cmp "$1: control: flows of a dead server hang" "$(sum broken)" -ge "$mine"
	cable s2 up
	s2_dies
	change -d 2
	busywait 20 pair_state stable
	pair ping 2
	check "$1: deleted: its flows are reset, all others live" "$mine $mine 0 0" \
		"$(sum broken) $(sum rst) $(sum moved) $(conns)"
	cable s2 up
	pair reset
	s2_dies
	change -d 2
	cable s2 up
	both -a 2 1
	pair ping 2
	check_cmp "$1: rebooted: no more broken than it had" "$(sum broken)" -le "$mine"
	check "$1: rebooted: none moved" 0 "$(sum moved)"
	sysctls dr net.ipv4.vs.expire_nodest_conn=0
}

# As keepalived's inhibit_on_failure has it, once ARP and neighbour discovery have no
# answer for seconds
inhibited() {
	local ip

	for ip in net.ipv4.neigh.eth0 net.ipv6.neigh.eth0; do
		sysctls dr $ip.base_reachable_time_ms=1000 \
			$ip.delay_first_probe_time=1 $ip.retrans_time_ms=200
	done
	dr ip neigh flush dev eth0
	s2_dies
	change -e 2 0
	pair ping 30
	check "$1: dead, weight 0: its flows are reset, all others live" \
		"$mine $mine 0" "$(sum broken) $(sum rst) $(sum moved)"
	cable s2 up
}

# A server on which no program listens, as while it is started again
deaf() {
	restart
	pair open 40
	both -a 4 1
	unbroken "$1: nobody listens on the new server"
	both -e 1 0
	unbroken "$1: nor while another is drained"
	both -d 4
	unbroken "$1: nor when it goes"
}

# The table waits for a new server's first answer, though "change" reads it
late() {
	restart
	pair open 20
	in_ns s4 tc qdisc add dev eth0 root netem delay 50ms
	change -a 4 1
	busywait 20 eval '[ "$(mhs State "$SVC4")" != rebuilding ]'
	check "$1: a server whose first answer is late: slots in hold" 0 \
		"$(mhs Hold "$SVC4")"
	in_ns s4 tc qdisc del dev eth0 root
}

# The second director has another weight; knows no former change; takes over in the
# middle of one
directors() {
	restart
	begin_d2
	at=d2 both -e 3 0
	pair open 40
	route_vip 20
	unbroken "$1: directors that disagree"
	pair open 20
	route_vip 10
	unbroken "$1: and back"
	both -e 1 0
	at=d2 both -e 3 1
	at=d2 both -e 1 0
	both -e 2 0
	pair open 20
	at=d2 both -e 2 0
	cable dr down
	route_vip 20
	unbroken "$1: one dies in mid-change"
	cable dr up
	begin_d2
	at=d2 both -e 1 0
	unbroken "$1: one that knows no former change"
	in_ns d2 ipvsadm -C
	route_vip 10
}

# begin_d2: it has three servers, and has seen no change
begin_d2() {
	in_ns d2 ipvsadm -C
	at=d2 chance_services 1 2 3
	busywait 20 answering 6 d2
}

# asked: questions that came to s3, as nft counts them
asked() {
	in_ns s3 nft list counters | awk '/packets/ { print $2 }'
}

# While a table waits for a server that never answers, the director does not ask it much
# more often than each second.  Not by in_ns, whose reader has the table rebuilt.
seldom() {
	local from

	flow c4 open 1	# from now on no set of servers is a first one
	in_ns s3 nft -f - <<-EOF
		table ip q {
			counter c { }
			chain in {
				type filter hook prerouting priority -300
				tcp sport 0 counter name c
			}
		}
	EOF
	from=$(uptime)
	nsenter "--net=/run/netns/$(ns dr)" ipvsadm -R <<-EOF
		-d -t $SVC4 -r 10.2.0.13:80
		-a -t $SVC4 -r 10.2.0.13:80 $how4 -w 1
	EOF
	until_more 12 asked
	check_cmp "$1: a server that never answers: seconds that 12 questions took" \
		$(($(cut -d . -f 1 /proc/uptime) - ${from%.*})) -ge 3
	in_ns s3 nft delete table ip q
}

# Without the program, or the way back
without() {
	windows 0 3600000
	restart
	on s3 clear
	busywait 20 answering 4
	pair open 40
	change -e 1 0
	pair ping
	check "$how4: a server without the program: none broken, none moved" "0 0" \
		"$(sum broken) $(sum moved)"
	check_cmp "$how4: without the program flows have entries" "$(conns)" -gt 0
	seldom "$how4"
	equip s3
	restart
	pair open 40
	dr nft add table inet no
	dr nft add chain inet no in "{ type filter hook input priority 0 ; }"
	dr nft add rule inet no in meta l4proto gre drop
	busywait 20 answering 0
	change -e 1 0
	pair ping
	check "$how4: GRE is dropped: none broken, none moved" "0 0" \
		"$(sum broken) $(sum moved)"
	check_cmp "$how4: without GRE flows have entries" "$(conns)" -gt 0
	dr nft delete table inet no
	windows 60000 0
}

# One after the other is replaced, while flows of all live
replaced() {
	local i last=6 new=()

	[ -z "${MHS_LONG:-}" ] || last=23
	for ((i = 5; i <= last; i++)); do
		server s$i $((10 + i))
		ip_ns "s$i" <<<"route replace default via fd02::1 advmss 1380"
		new+=("s$i")
	done
	equip "${new[@]}"
	restart
	pair open 20
	for ((i = 4; i <= last; i++)); do
		both -a $i 1
		both -e $((i - 3)) 0
		pair open 5
	done
	unbroken "$((last - 3)) servers replaced one by one"
	for ((i = 1; i <= last - 3; i++)); do
		change -e $i 1
	done
	busywait 20 pair_state stable
	unbroken "and all of them back"
}

# The program goes after a change: the last row, as sockets without a client stay
gone() {
	restart
	pair open 40
	both -e 1 0
	for s in s1 s2 s3; do
		in_ns $s tc filter del dev eth0 ingress
	done
	pair ping 2
	check_cmp "control: when the program goes flows break" \
		"$(sum broken)" -gt 0
}

rows() {
	restart
	check "$1: all servers answer" 0 $?
	planned "$1"
	deaths "$1"
	[ -z "${MHS_LONG:-}" ] || inhibited "$1"
	deaf "$1"
	late "$1"
	directors "$1"
}

tests=30
[ -z "${MHS_LONG:-}" ] || tests=57
plan $tests
chance_net 4
director d2 20
sysctls d2 net.ipv4.vs.mhs.second_chance="$SVC4,$SVC6"
# shellcheck disable=SC2086
equip $servers
check "set up" 0 $?
how4=-i how6=-g
if [ -n "${MHS_LONG:-}" ]; then
	rows "IPIP and DR"
	without
fi
how4=-g how6=-i
rows "DR and IPIP"
replaced
without
gone
