#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 240
# weight: 15
# tags: core
# ESP, AH and ICMP errors about ESP go to the server of the client's IKE flow (UDP
# 500), in every phase of a slot, as with other schedulers, but without an entry;
# with one service by mark NAT-T (UDP 4500) goes there, too.

# shellcheck disable=SC2034 # for lib_pair.sh
PORT=500 proto=-u how6=-i

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

# each scheduler has clients of its own, because entries outlive their service
CLIENTS=20 FIRST=20

# follow NAME KIND...: from each client, IPv4 and IPv6, a packet of every kind, an error
# is about ESP to that client; when those of the named kinds are there: how many came
# of each kind, and how many of them to a server that has not the client's IKE flow
follow() {
	python3 -SB - "$here" "$$" $FIRST $CLIENTS "${@:2}" >"$work/seen" <<-'END'
		import select, socket, sys
		sys.path.insert(0, sys.argv[1])
		import netlab
		run, first, clients, *wanted = sys.argv[2:]
		numbers = range(int(first), int(first) + int(clients))
		KINDS = "ike", "esp", "ah", "err", "natt"
		VIPS = {4: ("10.9.0.1", "10.1.0."), 6: ("fd09::1", "fd01::")}

		def kind_of(packet):
		    """Of a packet to the virtual address, and its source."""
		    v6 = packet[0] >> 4 == 6
		    src, dst = (packet[8:24], packet[24:40]) if v6 else (
		        packet[12:16], packet[16:20])
		    proto, l4 = packet[6 if v6 else 9], packet[40 if v6 else 20:]
		    if dst != netlab.pack(VIPS[6 if v6 else 4][0]):
		        return None, src
		    return {50: "esp", 51: "ah", 1: "err", 58: "err", 17: {
		        500: "ike", 4500: "natt"}.get(int.from_bytes(l4[2:4], "big"))
		    }.get(proto), src

		ears = {}
		for server in "s1", "s2", "s3":
		    with netlab.netns(f"{server}-{run}"):
		        ear = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM,
		                            socket.htons(3))
		    ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
		    ears[ear] = {kind: set() for kind in KINDS}
		send, esp = netlab.Sender(f"cl-{run}"), bytes(40)
		for vip, net in VIPS.values():
		    error = (1, 4) if ":" in vip else (3, 2)
		    for client in (f"{net}{number}" for number in numbers):
		        send(vip, netlab.udp(client, 500, vip, 500, esp))
		        send(vip, netlab.ip(client, vip, 50, esp))
		        send(vip, netlab.ip(client, vip, 51, b"\x32\4" + esp))
		        send(vip, netlab.icmp(client, vip, *error, 0,
		                              netlab.ip(vip, client, 50, esp)))
		        send(vip, netlab.udp(client, 4500, vip, 4500, esp))
		came = lambda kind: sum(len(sets[kind]) for sets in ears.values())
		# what should not come has come, too, when nothing does any more
		while ready := select.select(list(ears), [], [], 20 * netlab.PATIENCE if any(
		        came(kind) < 2 * int(clients) for kind in wanted) else 0.3)[0]:
		    for ear in ready:
		        kind, client = kind_of(ear.recv(2000))
		        if kind:
		            ears[ear][kind].add(client)
		for kind in KINDS:
		    print(kind, came(kind), sum(len(sets[kind] - sets["ike"])
		                                for sets in ears.values()))
	END
	note "$1: $(paste -sd ";" "$work/seen")"
}

# seen KIND...: of each, how many came, how many of them to another server
seen() {
	local kind

	for kind; do
		sed -n "s/^$kind //p" "$work/seen"
	done | paste -sd " "
}

# alike NAME: all of a client go to one server
alike() {
	local all=$((2 * CLIENTS))

	follow "$1" ike esp ah err
	check "$1: with their IKE flow" "$all 0 $all 0 $all 0 $all 0" \
		"$(seen ike esp ah err)"
}

# made SCHEDULER...: services of both families, IPv4 by direct routing and IPv6 by
# tunnels, with clients of their own
made() {
	FIRST=$((FIRST + CLIENTS))
	dr ipvsadm -C
	pair_services "1 2" "$@"
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

made rr
alike "rr"
PORT=4500 SVC4=$VIP4:4500 SVC6="[$VIP6]:4500" made mhs
follow "control: no service of UDP 500" natt
check "control: no service of UDP 500: none comes" "40 40 0 0 0 0 0 0" \
	"$(seen natt esp ah err)"
conns_begin
made mhs
alike "stable"
check "stable: no entry" 0 "$(conns_new)"
pair_weight -a 3 1
result "hold: a server added" "$(busywait 20 pair_holding; echo $?)"
alike "hold"
pair_weight -e 1 0
alike "hold, the old server drained"
result "pin phase" "$(to_pin; echo $?)"
alike "pin"
check "hold, pin: no entry" 0 "$(conns_new)"
sysctls dr net.ipv4.vs.mhs.stateless=0
alike "stateless=0"
check "stateless=0: an entry for each IKE flow" $((2 * CLIENTS)) "$(conns_new)"
sysctls dr net.ipv4.vs.mhs.stateless=1

dr nft "table inet mhs { chain pre {
	type filter hook prerouting priority -150
	meta l4proto { esp, ah } meta mark set 7
	udp dport { 500, 4500 } meta mark set 7
}; }"
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
