#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 240
# weight: 15
# tags: core
# ESP and AH go to the server of the client's IKE flow (UDP 500), without an entry,
# in a stable table and in a transition.

. "${0%/*}/lib.sh"

# counters: at each server, of what the twenty clients send
counters() {
	local s

	for s in s1 s2 s3; do
		in_ns $s nft -f - <<-EOF
			table inet mhs_esp
			delete table inet mhs_esp
			table inet mhs_esp {
				chain in {
					type filter hook prerouting priority -500
					udp dport 500 counter
					meta l4proto esp counter
					meta l4proto ah counter
				}
			}
		EOF
	done
}

# got: UDP, ESP and AH of each server, a server a line
got() {
	local s

	for s in s1 s2 s3; do
		in_ns $s nft list table inet mhs_esp |
			sed -n 's/.*counter packets \([0-9]*\).*/\1/p' | xargs
	done
}

all_came() {
	[ "$(got | awk '{ n += $1 + $2 + $3 } END { print n + 0 }')" -ge 60 ]
}

# send VIP FIRST: a packet of each protocol from twenty addresses
send() {
	in_ns cl python3 -IS - "$1" "$2" <<-'EOF'
		import socket, sys
		vip, first = sys.argv[1:]
		af = socket.AF_INET6 if ":" in vip else socket.AF_INET
		for i in range(100, 120):
		    for kind, protocol in ((socket.SOCK_DGRAM, 17),
		                           (socket.SOCK_RAW, 50),
		                           (socket.SOCK_RAW, 51)):
		        with socket.socket(af, kind, protocol) as s:
		            udp = kind == socket.SOCK_DGRAM
		            s.bind((f"{first}{i}", 500 if udp else 0))
		            s.sendto(bytes([50, 4, 0, 0, 0, 0, 16, 1]) + bytes(40),
		                     (vip, 500 if udp else 0))
	EOF
}

# alike NAME: ESP and AH of each client are where its IKE is
alike() {
	local vip first

	for vip in $VIP4 $VIP6; do
		first=10.1.0.
		[ "$vip" = "$VIP4" ] || first=fd01::
		counters
		send "$vip" "$first"
		busywait 20 all_came
		note "$1, $vip: $(got | tr '\n' ';')"
		check "$1, $vip: ESP and AH with their IKE flows" "20 0" "$(got |
			awk '{ n += $1; bad += $1 != $2 || $1 != $3 }
				END { print n, bad + 0 }')"
	done
}

plan 10
need nft
load_module
setup_net 3
for i in {100..119}; do
	echo "addr add 10.1.0.$i/24 dev eth0"
	echo "addr add fd01::$i/64 dev eth0 nodad"
done | ip_ns cl
windows 3600000 3600000
# made NAME SCHEDULER PORT: services of both families
made() {
	dr ipvsadm -C
	{
		echo "-A -u $VIP4:$2 -s $1"
		proto=-u real_lines "$VIP4:$2" -g 1 2
		echo "-A -u [$VIP6]:$2 -s $1"
		proto=-u real_lines "[$VIP6]:$2" -g 1 2
	} | dr ipvsadm -R
	[ "$1" != mhs ] || { wait_settled "$VIP4:$2"; wait_settled "[$VIP6]:$2"; }
}

made mhs 501
counters
send $VIP4 10.1.0.
check "control: without a service of UDP 500 none comes" 0 "$(got |
	awk '{ n += $2 + $3 } END { print n + 0 }')"
made mhs 500
alike "stable"
check "no entries" 0 "$(conns)"
dr ipvsadm -a -u $VIP4:500 -r 10.2.0.13:500 -g
dr ipvsadm -a -u "[$VIP6]:500" -r "[fd02::13]:500" -g
alike "a server added, hold"
dr ipvsadm -e -u $VIP4:500 -r 10.2.0.11:500 -g -w 0
dr ipvsadm -e -u "[$VIP6]:500" -r "[fd02::11]:500" -g -w 0
alike "a server drained"
sysctls dr net.ipv4.vs.mhs.stateless=0
alike "stateless=0"
