#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The stateless scheduler mhs, with mh as control.
#
#	 client      director     second      s1        s2        s3
#	10.0.0.1     10.0.0.2    10.0.0.3  10.0.0.11 10.0.0.12 10.0.0.13
#	    |           |           |         |         |         |
#	====+===========+===========+=========+=========+=========+== bridge
#
# The servers have the virtual address on lo and answer the client directly.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317
# shellcheck disable=SC1091
source lib.sh

VIP4=192.0.2.80
VIP6=2001:db8:8::80
NUM='+([0-9])'
ret=0

checktool "ipvsadm -v" "run test without ipvsadm"
checktool "python3 -V" "run test without python3"
for module in ip_vs_mh ip_vs_mhs; do
	modprobe -q $module || {
		echo "SKIP: no module $module"
		exit "$ksft_skip"
	}
done
trap cleanup_all_ns EXIT

# is WANTED COMMAND...: its output matches
is() {
	local wanted=$1 got

	shift
	got=$("$@")
	# shellcheck disable=SC2053
	[[ $got == $wanted ]] || { echo "# wanted $wanted, got $got"; return 1; }
}

# result NAME COMMAND...: one result, good if the command succeeds
result() {
	local name=$1

	shift
	if "$@"; then
		echo "PASS: $name"
	else
		echo "FAIL: $name"
		ret=1
	fi
}

# link NS N: 10.0.0.N and 2001:db8:1::N
link() {
	ip link add eth0 netns "$1" type veth peer name "v$2" netns "$bridge"
	ip -n "$bridge" link set "v$2" master br0 up
	ip -n "$1" link set eth0 up
	ip -n "$1" addr add "10.0.0.$2/24" dev eth0
	ip -n "$1" addr add "2001:db8:1::$2/64" dev eth0 nodad
}

# address NS: the virtual addresses are its own
address() {
	ip -n "$1" addr add $VIP4/32 dev lo
	ip -n "$1" addr add $VIP6/128 dev lo nodad
}

topology() {
	local i server

	setup_ns bridge client director second s1 s2 s3 || exit 1
	ip -n "$bridge" link add br0 type bridge mcast_snooping 0
	ip -n "$bridge" link set br0 up
	link "$client" 1
	link "$director" 2
	link "$second" 3
	for i in 1 2 3; do
		server=s$i
		link "${!server}" 1$i
		ip netns exec "${!server}" sysctl -wq \
			net.ipv4.conf.all.arp_ignore=1 \
			net.ipv4.conf.all.arp_announce=2
		address "${!server}"
		exec {ready}< <(exec ip netns exec "${!server}" \
			python3 ipvs_mhs.py serve s$i)
		read -r -t 20 -u "$ready" || exit 1
	done
	for i in "$director" "$second"; do
		address "$i"
		ip netns exec "$i" sysctl -wq net.ipv4.ip_forward=1
	done
	by 2
	coproc CLIENT { exec ip netns exec "$client" python3 ipvs_mhs.py client; }
}

# by N: the client's packets go by this director
by() {
	ip -n "$client" route replace $VIP4 via "10.0.0.$1"
	ip -n "$client" route replace $VIP6 via "2001:db8:1::$1"
}

# ask WORD...: a line to the client, and its answer
ask() {
	local answer

	echo "$@" >&"${CLIENT[1]}"
	read -r -t 120 -u "${CLIENT[0]}" answer
	echo "$answer"
}

ipvs() { ip netns exec "$director" ipvsadm "$@"; }
conns() { ipvs -Lcn | grep -c '^TCP' || true; }
some() { [ "$("$@")" -gt 0 ]; }
none_of() { [[ $("${@:2}") != *$1=* ]]; }
drained() { [ "$(conns)" -eq 0 ]; }
server() { [ "$family" = 4 ] && echo "10.0.0.1$1" || echo "[2001:db8:1::1$1]"; }

# on NS SCHEDULER: a service with servers s1 and s2
on() {
	local i

	ip netns exec "$1" ipvsadm -C
	ip netns exec "$1" ipvsadm -A -t "$service" -s "$2" -b flag-1,flag-2
	for i in 1 2; do
		ip netns exec "$1" ipvsadm -a -t "$service" \
			-r "$(server $i):80" -g
	done
}

# fresh SCHEDULER: it has 100 flows, and no connection of an earlier test is left
fresh() {
	ask close >/dev/null
	ip netns exec "$director" sysctl -wq net.ipv4.vs.expire_nodest_conn=1
	ipvs -C
	slowwait 20 drained
	ip netns exec "$director" sysctl -wq net.ipv4.vs.expire_nodest_conn=0
	ipvs --set 900 120 300
	by 2
	on "$director" "$1"
	is "s1=$NUM s2=$NUM" ask open "$vip" 100
}

# errors: ICMP errors that the servers have got
errors() {
	local i sum=0 n

	for i in "$s1" "$s2" "$s3"; do
		n=$(ip netns exec "$i" cat /proc/net/snmp /proc/net/snmp6 |
			awk '/^Icmp: [0-9]/ { n += $5 }
				$1 == "Icmp6InDestUnreachs" { n += $2 }
				END { print n }')
		sum=$((sum + n))
	done
	echo $sum
}

add() { ipvs -a -t "$service" -r "$(server 3):80" -g; }

# flows SCHEDULER: what is so with both
flows() {
	result "$1, IPv$family: flows begin" fresh "$1"
	add
	result "$1, IPv$family: added: flows live" is "$all" ask check
	result "$1, IPv$family: added: new flows come to all" \
		is 's1=* s2=* s3=*' ask open "$vip" 50
	fresh "$1" >/dev/null
	add
	ask forge 4660 >/dev/null
	result "$1, IPv$family: added: after forged SYNs flows live" \
		is "$all" ask check
	fresh "$1" >/dev/null
	add
	ask forge 4660 18 >/dev/null
	result "$1, IPv$family: added: after forged SYNs with ACK, too" \
		is "$all" ask check
	fresh "$1" >/dev/null
	ipvs -a -t "$service" -r "$(server 3):80" -g -x 1000
	ask forge 4660 >/dev/null
	result "$1, IPv$family: added with a limit: after forged SYNs, too" \
		is "$all" ask check
	fresh "$1" >/dev/null
	ipvs -e -t "$service" -r "$(server 2):80" -g -w 0
	result "$1, IPv$family: weight 0: no new flow" \
		none_of s2 ask open "$vip" 50
	ask forge 4660 >/dev/null
	result "$1, IPv$family: weight 0: after forged SYNs flows live" \
		is 'alive=150 dead=0' ask check
	fresh "$1" >/dev/null
	ipvs -d -t "$service" -r "$(server 2):80"
	result "$1, IPv$family: deleted: its flows end" \
		is 'alive=[1-9]* dead=[1-9]*' ask check
	fresh "$1" >/dev/null
	on "$second" "$1"
	by 3
}

topology
all='alive=100 dead=0'
for family in 4 6; do
	vip=VIP$family
	vip=${!vip}
	service=$vip:80
	[ $family = 4 ] || service="[$vip]:80"
	flows mh
	result "control: mh, IPv$family: by another director flows end" \
		is 'alive=0 dead=100' ask check
	fresh mh >/dev/null
	result "control: mh, IPv$family: flows have connections" is 100 conns
	flows mhs
	result "mhs, IPv$family: by another director flows live" \
		is "$all" ask check
	fresh mhs >/dev/null
	result "mhs, IPv$family: flows have no connection" is 0 conns
	before=$(errors)
	ask icmp >/dev/null
	result "mhs, IPv$family: their servers get ICMP errors" \
		slowwait 20 is $((before + 100)) errors
	add
	ask forge 4660 >/dev/null
	result "mhs, IPv$family: forged SYNs make connections" some conns
	result "mhs, IPv$family: packets of older flows take them" \
		is "$all" ask check
	result "mhs, IPv$family: and are safe from more SYNs" \
		is 'forged=100' ask forge own
	result "mhs, IPv$family: flows live" is "$all" ask check
	fresh mhs >/dev/null
	add
	ask forge own >/dev/null
	result "control: mhs, IPv$family: SYNs with their numbers end flows" \
		is 'alive=[1-9]* dead=[1-9]*' ask check
	fresh mhs >/dev/null
	# the longest that a flow may be idle: a transition is short
	ipvs --set 3 3 300
	add
	result "mhs, IPv$family: in a transition flows live" is "$all" ask check
	stable() { ! is '[1-9]*' new_conns >/dev/null; }
	# new_conns: how many connections new flows make
	new_conns() {
		local before

		before=$(conns)
		ask open "$vip" 50 >/dev/null
		ask check >/dev/null
		echo $(($(conns) - before))
	}
	result "mhs, IPv$family: in the end new flows need no connection" \
		slowwait 60 stable
done
exit $ret
