#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 240
# weight: 15
# tags: core
# ESP, AH and ICMP errors about ESP go to the server of the client's IKE flow (UDP
# 500), in every phase of a slot, as with other schedulers, but without an entry;
# with one service by mark NAT-T (UDP 4500) goes there, too.

. "${0%/*}/lib.sh"

# each scheduler has clients of its own, because entries outlive their service
CLIENTS=20 FIRST=20

# count: at each server, from which clients something comes
count() {
	local s

	for s in s1 s2 s3; do
		in_ns $s nft -f - <<-EOF
			table inet mhs_esp
			delete table inet mhs_esp
			table inet mhs_esp {
				$(sets ike esp ah err natt)
				chain in {
					type filter hook prerouting priority -500
					$(adds ike "udp dport 500")
					$(adds esp "meta l4proto esp")
					$(adds ah "meta l4proto ah")
					$(adds err "icmp type destination-unreachable" \
						"icmpv6 type destination-unreachable")
					$(adds natt "udp dport 4500")
				}
			}
		EOF
	done
}

# sets KIND...: for the clients of each, IPv4 and IPv6
sets() {
	local kind

	for kind; do
		echo "set ${kind}4 { type ipv4_addr; size 64; flags dynamic; }"
		echo "set ${kind}6 { type ipv6_addr; size 64; flags dynamic; }"
	done
}

# adds KIND MATCH [MATCH6]
adds() {
	echo "meta nfproto ipv4 $2 add @${1}4 { ip saddr }"
	echo "meta nfproto ipv6 ${3:-$2} add @${1}6 { ip6 saddr }"
}

# send: from each client, IPv4 and IPv6; the error is about ESP to that client
send() {
	in_ns cl python3 -SB - "$here" $FIRST "$VIP4" 10.1.0. "$VIP6" fd01:: <<-'EOF'
		import sys
		sys.path.insert(0, sys.argv[1])
		import netlab
		esp, ah = bytes(40), bytes([50, 4]) + bytes(46)
		send = netlab.Sender()
		for vip, net in (sys.argv[3:5], sys.argv[5:7]):
		    for i in range(20):
		        client = f"{net}{int(sys.argv[2]) + i}"
		        error = (1, 4) if ":" in vip else (3, 2)
		        send(vip, netlab.udp(client, 500, vip, 500, esp))
		        send(vip, netlab.ip(client, vip, 50, esp))
		        send(vip, netlab.ip(client, vip, 51, ah))
		        send(vip, netlab.icmp(client, vip, *error, 0,
		                              netlab.ip(vip, client, 50, esp)))
		        send(vip, netlab.udp(client, 4500, vip, 4500, esp))
	EOF
}

# look: how many clients of each kind came, and how many of them to a server that
# has not their IKE flow; the latter for seen
look() {
	local s

	for s in s1 s2 s3; do
		in_ns $s nft -j list table inet mhs_esp
	done | python3 -ISc '
import json, sys
at = {}
for line in sys.stdin:
    at[len(at)] = {s["set"]["name"]: set(s["set"].get("elem", ()))
                   for s in json.loads(line)["nftables"] if "set" in s}
for kind in "ike", "esp", "ah", "err", "natt":
    came = astray = 0
    for sets in at.values():
        for family in "46":
            came += len(sets[kind + family])
            astray += len(sets[kind + family] - sets["ike" + family])
    print(kind, came, astray)' >"$work/seen"
}

# seen KIND...: of each, how many came, how many of them to another server
seen() {
	local kind

	for kind; do
		sed -n "s/^$kind //p" "$work/seen"
	done | paste -sd " "
}

came() {
	look
	[[ " $(seen "$@") " =~ ^(\ $((2 * CLIENTS))\ [0-9]+)+\ $ ]]
}

# follow NAME KIND...: what of these comes, and where
follow() {
	count
	send
	busywait 20 came "${@:2}"
	note "$1: $(paste -sd ";" "$work/seen")"
}

# alike NAME: all of a client go to one server
alike() {
	local all=$((2 * CLIENTS))

	follow "$1" ike esp ah err
	check "$1: with their IKE flow" "$all 0 $all 0 $all 0 $all 0" \
		"$(seen ike esp ah err)"
}

# made PORT SCHEDULER...: services of both families, IPv4 by direct routing and
# IPv6 by tunnels
made() {
	FIRST=$((FIRST + CLIENTS))
	dr ipvsadm -C
	learn dr < <(
		echo "-A -u $VIP4:$1 -s ${*:2}"
		proto=-u real_lines "$VIP4:$1" -g 1 2
		echo "-A -u [$VIP6]:$1 -s ${*:2}"
		proto=-u real_lines "[$VIP6]:$1" -i 1 2
	)
}

# marked SCHEDULER...: one service for UDP 500 and 4500, the methods the other way
marked() {
	local s

	FIRST=$((FIRST + CLIENTS))
	dr ipvsadm -C
	learn dr < <(
		echo "-A -f 7 -s $*"
		echo "-A -f 7 -6 -s $*"
		for s in 1 2 3; do
			echo "-a -f 7 -r 10.2.0.1$s -i"
			echo "-a -f 7 -6 -r [fd02::1$s]:0 -g"
		done
	)
}

# server MODE NUMBER [MORE]: of both
server() {
	dr ipvsadm -R <<-EOF
		$1 -u $VIP4:500 -r 10.2.0.1$2:500 -g ${3:-}
		$1 -u [$VIP6]:500 -r [fd02::1$2]:500 -i ${3:-}
	EOF
}

both_pinning() {
	pinning $VIP4:500 && pinning "[$VIP6]:500"
}

plan 16
need nft
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 3
for i in {40..159}; do
	echo "addr add 10.1.0.$i/24 dev eth0"
	echo "addr add fd01::$i/64 dev eth0 nodad"
done | ip_ns cl
windows 3600000 3600000

made 500 rr
alike "rr"
made 4500 mhs
follow "control: no service of UDP 500" natt
check "control: no service of UDP 500: none comes" "40 40 0 0 0 0 0 0" \
	"$(seen natt esp ah err)"
conns_begin
made 500 mhs
alike "stable"
check "stable: no entry" 0 "$(conns_new)"
server -a 3
check_cmp "hold: a server added" "$(mhs Hold $VIP4:500)" -gt 0
alike "hold"
server -e 1 "-w 0"
alike "hold, the old server drained"
windows 0 3600000
result "pin phase" "$(busywait 20 both_pinning; echo $?)"
alike "pin"
check "hold, pin: no entry" 0 "$(conns_new)"
sysctls dr net.ipv4.vs.mhs.stateless=0
alike "stateless=0"
check "stateless=0: an entry for each IKE flow" $((2 * CLIENTS)) "$(conns_new)"
sysctls dr net.ipv4.vs.mhs.stateless=1

dr nft -f - <<-EOF
	table inet mhs {
		chain pre {
			type filter hook prerouting priority -150
			meta l4proto { esp, ah } meta mark set 7
			udp dport { 500, 4500 } meta mark set 7
		}
	}
EOF
for scheduler in mh "mhs -b flag-3"; do
	marked "$scheduler"
	follow "by mark, $scheduler" ike esp ah natt
	check "by mark, $scheduler: NAT-T, too" "40 0 40 0 40 0 40 0" \
		"$(seen ike esp ah natt)"
done
marked mhs
follow "by mark, mhs" ike esp ah natt
check "by mark, mhs: with their IKE flow" "40 0 40 0 40 0" "$(seen ike esp ah)"
read -r _ astray < <(seen natt)
check_cmp "control: without flag-3 NAT-T is another flow" "$astray" -gt 0
