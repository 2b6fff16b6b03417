# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, and for the tests
# For tests of real_server: bare real servers s1 and s2, a host lan beside them, and
# what they look like.  Sourced after lib_pair.sh.

top=$here/../../../../..
vips=$VIP4,$VIP6
tool=$top/scripts/real_server

# on SERVER COMMAND...: real_server; its words are in the file said, its status in $rc
on() {
	in_ns "$1" env PATH="$work/bin:$PATH" "$tool" "${@:2}" >"$work/said" 2>&1
	rc=$?
}

# both COMMAND...: on both servers; the first status that is none of success
both() {
	on s1 "$@"
	[ "$rc" -ne 0 ] || on s2 "$@"
	[ "$rc" -eq 0 ] || note "$(said)"
}

said() {
	sed '/^real_server: no fault; not known here: firewalls/d' "$work/said" | tr '\n' ' '
}

# quiet NAME: check has nothing to say of s1
quiet() {
	on s1 check
	check "$1" "0 " "$rc $(said)"
}

# looks SERVER: all that setup may touch.  A device keeps the queue and the settings of
# IPv6 that it got when it was up for the first time.
looks() {
	ip -n "$(ns "$1")" -d address show | sed 's/ qdisc no[a-z]*//'
	ip -n "$(ns "$1")" route show table all
	ip -n "$(ns "$1")" -6 route show table all
	ip -n "$(ns "$1")" fou show
	in_ns "$1" sh -c 'cd /proc/sys/net && grep . \
		ipv4/conf/*/arp_ignore ipv4/conf/*/arp_announce \
		ipv4/conf/*/rp_filter ipv6/conf/lo/disable_ipv6 \
		ipv6/conf/sit0/disable_ipv6 ipv6/conf/ip6*0/disable_ipv6'
	in_ns "$1" nft list ruleset
}

# as_before NAME [SERVER]: it looks as it did
as_before() {
	looks "${2:-s1}" | diff "$work/before.${2:-s1}" - >"$work/diff"
	result "$1" $? "$(tr '\n' ' ' <"$work/diff")"
}

# bare NAME HOST: a host of the LAN
bare() {
	setup_ns "$1"
	sysctls "$1" net.ipv4.conf.{all,default}.rp_filter=1
	port "$1" | ip_ns rt
	host "$2" | grep -v "dev lo" | ip_ns "$1"
}

# real_net: the network of lib_network.sh, with bare servers
real_net() {
	local s

	mkdir "$work/bin"
	defer rm -rf /run/real_server
	setup_net 0
	bare s1 11
	bare s2 12
	bare lan 20
	ip_ns lan <<<"route add $VIP4/32 dev eth0"
	for s in s1 s2; do
		lab serve "$(ns $s)" $s
		looks $s >"$work/before.$s"
	done
}

# mac NAME: its hardware address
mac() {
	ip -n "$(ns "$1")" -br link show eth0 | awk '{ print $3 }'
}

# whose: names of those whose hardware addresses are on standard input
whose() {
	local n macs

	macs=$(cat)
	for n in dr s1 s2; do
		[[ $macs != *"$(mac $n)"* ]] || echo $n
	done | paste -sd ' '
}

# answers: who answers ARP for the virtual address
answers() {
	in_ns lan python3 -IS "$here/arp.py" eth0 "$VIP4" 10.2.0.10 10.2.0.11 \
		10.2.0.12 | whose
}

# neighbour: which server answers the host lan, and whom that takes for the virtual
# address; into $met
neighbour() {
	ip -n "$(ns lan)" neigh flush dev eth0
	met=$(in_ns lan python3 -IS -c "import socket
sock = socket.create_connection(('$VIP4', 80), 60)
sock.send(b'who\n')
print(sock.recv(9).decode().strip())")
	met+=" $(ip -n "$(ns lan)" neigh show "$VIP4" | whose)"
}

# services FORWARDING [OTHER]: both, with s1 and s2; with OTHER by their addresses of
# the other family
services() {
	local i a b csum=""

	# GUE over IPv6 needs a checksum
	[[ $1 != *gue* ]] || csum="--tun-csum"
	dr ipvsadm -C
	learn dr < <({
		printf -- '-A -t %s -s mhs\n' "$SVC4" "$SVC6"
		for i in 1 2; do
			a=10.2.0.1$i:80 b="[fd02::1$i]:80"
			[ ! "${2:-}" ] || read -r a b <<<"$b $a"
			echo "-a -t $SVC4 -r $a -w 1 $1"
			echo "-a -t $SVC6 -r $b -w 1 $1"
		done
	} | sed "/ -r \[/s/\$/ $csum/")
}

# mend: do on s1 what check says
mend() {
	sed 's/.*; remedy: //' "$work/said" >"$work/remedy"
	in_ns s1 env PATH="$work/bin:$top/scripts:$PATH" sh -e "$work/remedy" \
		>"$work/mended" 2>&1 || note "$(<"$work/mended")"
}

# stand_in NAME: a program in front of that name, on standard input
stand_in() {
	{ echo "#!/bin/bash"; cat; } >"$work/bin/$1"
	chmod +x "$work/bin/$1"
}

# mss ADDRESS: of segments that the client may send
mss() {
	in_ns cl python3 -IS -c "import socket
sock = socket.create_connection(('$1', 80), 60)
print(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))"
}

need nft ss nstat
