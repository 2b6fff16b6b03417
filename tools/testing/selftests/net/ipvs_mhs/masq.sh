#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 65
# tags: core few races
# Masquerading, which has an entry for each flow: TCP, UDP and SCTP in both
# families, a port that differs, a change of servers, ICMP errors in both
# directions, path MTU, fragments, checksums with and without offload.  Services
# that share servers: masq_shared.sh.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$here/lib_pair.sh"
need ethtool

# gateway NAMESPACE: answers to the client go back by the director
gateway() {
	ip_ns "$1" <<-EOF
		route add 10.1.0.0/24 via 10.2.0.10
		route add fd01::/64 via fd02::10
	EOF
}

# service PROTO PORT SERVERPORT SCHEDULER: both families, servers 1 to 3
service() {
	local i

	learn dr < <(
		echo "-A $1 $VIP4:$2 -s $4"
		echo "-A $1 [$VIP6]:$2 -s $4"
		for i in 1 2 3; do
			echo "-a $1 $VIP4:$2 -r 10.2.0.1$i:$3 -m"
			echo "-a $1 [$VIP6]:$2 -r [fd02::1$i]:$3 -m"
		done
	)
}

# ask HOST PORT COUNT [SIZE]: the result is in $reply
ask() {
	reply=$(in_ns cl python3 "$here/nat.py" ask --host "$1" --port "$2" \
		--count "$3" --size "${4:-32}" --no-checksum "${5:-0}")
	note "ask $* -> $reply"
}

# take HOST COUNT: big downloads
take() {
	reply=$(in_ns cl python3 "$here/nat.py" take --host "$1" --port 81 \
		--count "$2" --size 300000 --timeout 10)
	note "take $* -> $reply"
}

# made PORT: entries of both services on it, since they are there
made() {
	local s n=0

	for s in "$VIP4:$1" "[$VIP6]:$1"; do
		n=$((n + $(mhs NewEntries "$s") + $(mhs PinnedEntries "$s")))
	done
	echo $n
}

# counted OPTION SERVICE: entries of its servers, as ipvsadm tells
counted() {
	dr ipvsadm -Ln "$1" "$2" |
		awk '$1 == "->" && $2 ~ /^[0-9\[]/ { n += $5 + $6 }
			END { print n + 0 }'
}

# the core sums up every 2 s, and first when it likes
counts_replies() {
	local n

	n=$(dr ipvsadm -Ln --stats --exact -t "$SVC4" |
		awk '$1 == "TCP" { print $5 }')
	[ "${n:-0}" -ge 80 ]
}

csum_errors() {
	local n

	for n in cl s1 s2 s3; do
		in_ns "$n" awk '/^(Tcp|Udp):/ { k[++i] = $0 } END {
			for (j = 1; j < i; j += 2) {
				n = split(k[j], h); split(k[j + 1], v)
				for (c = 2; c <= n; c++)
					if (h[c] == "InCsumErrors") print v[c] }
			}' /proc/net/snmp
	done | paste -sd + | bc
}

# tally: of the last command to both clients
tally() {
	echo "$(sum flows) $(sum broken) $(sum failed)"
}

plan 29
load_module
setup_net 3
for i in 1 2 3; do
	gateway s$i
	bg_ns s$i python3 "$here/nat.py" serve --name s$i --port 5000 &
	defer kill $!
	bg_ns s$i python3 "$here/nat.py" serve --name s$i --port 5003 \
		--no-checksum 1 &
	defer kill $!
	bg_ns s$i python3 "$here/nat.py" serve --name s$i --port 5004 \
		--repeat 40 &
	defer kill $!
	bg_ns s$i python3 "$here/nat.py" give --port 8081 --size 300000 &
	defer kill $!
done
busywait 20 listening s3 8081

# TCP
service -t 80 80 mhs
pair_clients --timeout 5
pair open 40
pair ping
check "TCP: served" "80 0 0" "$(tally)"
check "TCP: by all servers" yes "$(
	[ "$(sum s1)" -gt 0 ] && [ "$(sum s2)" -gt 0 ] && [ "$(sum s3)" -gt 0 ] &&
	echo yes)"
check "TCP: an entry for each" 80 "$(made 80)"
result "ipvsadm counts them" "$(busywait 10 counts_replies; echo $?)"

# A change of servers
windows 3600000 3600000
mine=$(sum s1)
pair_edit -e 1 -m -w 0
result "drain: held" "$(busywait 20 pair_holding; echo $?)"
pair open 20
pair ping
check "drain, held: all go on" "120 0 0" "$(tally)"
check "drain, held: an entry for each" 120 "$(made 80)"
to_pin
to_stable
pair ping
check "drain, merged: none broken" "120 0 0" "$(tally)"
check "drain: the server keeps its flows, and gets no others" \
	"$mine" "$(sum s1)"
pair close
windows 60000 0
dr ipvsadm -C

# A port that differs, large replies, a narrow hop towards the client
service -t 81 8081 mhs
busywait 10 in_state stable "$VIP4:81"
ip -n "$(ns rt)" link set vcl mtu 1400
for vip in $VIP4 $VIP6; do
	take "$vip" 3
	check "path MTU, $vip" "3 0" "$(value good) $(value bad)"
done
ip -n "$(ns rt)" link set vcl mtu 1500

for n in cl dr s1 s2 s3; do
	in_ns "$n" ethtool -K eth0 tx off gso off tso off gro off >/dev/null 2>&1
done
for vip in $VIP4 $VIP6; do
	take "$vip" 2
	check "no checksum offload, $vip" "2 0" "$(value good) $(value bad)"
done
for n in cl dr s1 s2 s3; do
	in_ns "$n" ethtool -K eth0 tx on gso on tso on gro on >/dev/null 2>&1
done
dr ipvsadm -C

# UDP
service -u 5001 5000 mhs
for vip in $VIP4 $VIP6; do
	ask "$vip" 5001 40
	check "UDP, $vip: served" "40 0 0 0" \
		"$(value served) $(value refused) $(value lost) $(value wrong)"
	ask "$vip" 5001 10 8000
	check "UDP, $vip: fragments" "10 0 0 0" \
		"$(value served) $(value refused) $(value lost) $(value wrong)"
done
service -u 5003 5003 mhs
ask $VIP4 5003 10 32 1
check "UDP without checksum: served" "10 0" "$(value served) $(value lost)"
# some kernels lose errors from IPv6 servers with another port (6.12, 5.10)
service -u 5002 5999 wlc
ask $VIP6 5002 10
of_wlc="$(value served) $(value refused)"
dr ipvsadm -C
service -u 5002 5999 mhs
want="0 10"
for vip in $VIP4 $VIP6; do
	ask "$vip" 5002 10
	check "port unreachable reaches the client as with wlc, $vip" \
		"$want" "$(value served) $(value refused)"
	want=$of_wlc
done
check "no checksum was wrong" 0 "$(csum_errors)"

# SCTP
modprobe -q sctp
dr ipvsadm -C
if [ -e /proc/net/sctp ]; then
	for i in 1 2 3; do
		lab serve_sctp "$(ns s$i)" s$i 80 10.2.0.1$i fd02::1$i
	done
	service --sctp-service 80 80 mhs
	flow_end c4
	flow_end c6
	pair_clients --sctp --timeout 5
	pair open 10
	pair ping
	check "SCTP: served" "20 0 0" "$(tally)"
	check "SCTP: an entry for each" 20 "$(made 80)"
	pair reset
	flow_end c4
	flow_end c6
	pair_clients --timeout 5
else
	result "SCTP: served" 0 "SKIP no SCTP in this kernel"
	result "SCTP: an entry for each" 0 "SKIP no SCTP in this kernel"
fi

# entries of another scheduler that replies alone keep alive, while the clocks of
# mhs tick: an idle one lives for four seconds
dr ipvsadm -C
dr ipvsadm --set 0 0 4
service -u 5004 5004 wlc
bg_ns cl python3 "$here/nat.py" again --host $VIP4 --port 5004 --count 30 \
	--pause 24 >"$work/again" &
asking=$!
result "UDP of wlc: served" \
	"$(busywait 20 grep -q "served=30" "$work/again"; echo $?)"
dr ipvsadm -E -u $VIP4:5004 -s mhs
check_cmp "UDP of wlc: entries" "$(counted -u $VIP4:5004)" -eq 30
wait $asking
check "UDP of wlc, then mhs: a silent client's flows stay" "moved=0" \
	"$(tail -n 1 "$work/again")"
dr ipvsadm --set 0 0 300

# the control: mh
dr ipvsadm -C
service -u 5001 5000 mh
ask $VIP4 5001 20
check_cmp "control: mh makes entries" "$(counted -u $VIP4:5001)" -ge 1
dr ipvsadm -C
conns_begin
service -t 80 80 "mh -b mh-port"
pair open 20
check "control: mh makes entries for TCP" 40 "$(conns_new)"
dr ipvsadm -C
service -t 80 80 mhs
pair ping
check "flows of mh go on by their entries" 0 "$(sum broken)"
pair close
dr ipvsadm -C
