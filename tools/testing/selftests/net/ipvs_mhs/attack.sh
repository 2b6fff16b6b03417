#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 9
# Floods of SYN, ACK, RST, FIN, ACK and FIN, UDP, QUIC from random sources, and
# malformed, truncated and hostile packets of every kind, IPv4 and IPv6,
# on stable, held and pinned slots: never more entries than the limits, of a service
# and of all, beside those of mh; none where none is due, nothing dropped; clients
# keep connecting, older flows live, and when it is over the memory is free again, no
# skb leaked, no word from the kernel.  MHS_SYNS: how many SYNs to each address in
# each phase; MHS_PACKETS: of hostile ones (make check-release ONLY=long: together a
# million each); MHS_SEED: others.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
need nft

: "${MHS_SYNS:=600}" "${MHS_PACKETS:=20000}"
SERVICES=$(for vip in $VIP4 "[$VIP6]"; do
	printf -- "%s $vip:%s\n" -t 80 -t 81 -t 82 -t 83 -u 53 -u 80 -u 443 \
		--sctp-service 80
done)
declare -A method=([81]=-i [82]="-i --tun-type gue --tun-port 6080"
	[83]="-i --tun-type gre")

# real NUMBER: lines of ipvsadm -R for this server of each service
real() {
	local proto svc

	while read -r proto svc; do
		real_lines "$svc" "${method[${svc##*:}]:--g}" "$1"
	done <<<"$SERVICES"
}

# make_services SCHEDULER: all at once, a table settles soon
make_services() {
	{
		sed "s/^/-A /; s/$/ -s $*/" <<<"$SERVICES"
		real 1
		real 2
		real 3
	} | dr ipvsadm -R
}

all_stable() {
	! dr grep -qE "settling|rebuilding|transition" /proc/net/ip_vs_mhs
}

all_pinning() {
	[ "$(mhs_sum Hold)" -eq 0 ] && [ "$(mhs_sum Pin)" -gt 0 ]
}

# attack PHASE ARGUMENTS: see attack.py
attack() {
	in_ns rt python3 "$here/attack.py" --dev vdr --mac "$mac" \
		--director "/run/netns/$(ns dr)" --vip $VIP4 $VIP6 \
		--cap "$cap" --seed "${MHS_SEED:-}" --phase "$@"
}

# flood PHASE ARGUMENTS: all kinds, while clients connect
flood() {
	flow_start n4 --host $VIP4 --timeout 10 --pause 0.2
	flow_start n6 --host $VIP6 --timeout 10 --pause 0.2
	flow_send n4 churn 3600
	flow_send n6 churn 3600
	report attack "$@"
	pair_of n stop churn
	check "$1: clients kept connecting" "0 0" "$(sum failed) $(sum slow)"
	[ "$1" = mh ] || check_cmp "$1: often" "$(sum "done")" -ge 4
	flow_end n4
	flow_end n6
}

# objects: in use of the slab cache of entries, which others may share: SLACK.
# Freed ones that a CPU keeps for its next entries would count, too.
SLACK=500
objects() {
	local n

	echo 1 >/sys/kernel/slab/ip_vs_conn/shrink
	read -r n _ </sys/kernel/slab/ip_vs_conn/objects
	echo "$n"
}

no_entries() {
	[ "$(conns)" -eq 0 ]
}

memory_back() {
	[ "$(objects)" -le $((base + SLACK)) ]
}

# skbs: socket buffers in use, heads of all kinds
skbs() {
	local cache n sum=0

	for cache in skbuff_head_cache skbuff_fclone_cache; do
		echo 1 >"/sys/kernel/slab/$cache/shrink"
		read -r n _ <"/sys/kernel/slab/$cache/objects" &&
			sum=$((sum + n))
	done 2>/dev/null
	echo $sum
}

skbs_back() {
	[ "$(skbs)" -le $((skbs_before + 100)) ]
}

plan 76
fresh_module table_size=4093
setup_net 4
mac=$(dr ip -br link show eth0 | awk '{ print $3 }')
# fragments that wait for others are given up soon, where the kernel has the knob
for n in dr s1 s2 s3 s4; do
	in_ns $n sysctl -qw net.ipv4.ipfrag_time=1 net.ipv6.ip6frag_time=1 \
		net.netfilter.nf_conntrack_frag6_timeout=1 2>/dev/null
done
cap=100		# entries of a service, half of them of QUIC
sysctls dr net.ipv4.vs.mhs.max_{entries=100,quic_entries=50}
windows 0 100	# for a service that settles before its last server comes
make_services mhs
busywait 20 all_stable
windows 3600000 3600000
pair_clients --timeout 10
pair open 30
pair ping

# what the kernel keeps at hand is no leak
attack stable --kinds hostile --packets 1000 >"$work/warm"
skbs_before=$(skbs)
flood stable --syns "$MHS_SYNS" --packets $((MHS_PACKETS * 6 / 10))
check "stable: no entries at all" 0 "$(conns)"
check "stable: nothing dropped" 0 "$(pair_total PktUnsettled)"
pair ping
check "stable: older flows go on" "0 0" "$(sum broken) $(sum moved)"
base=$(objects)

real 4 | dr ipvsadm -R
flood hold --syns "$MHS_SYNS" --packets $((MHS_PACKETS * 2 / 10))
check_cmp "hold: flows above the limit, counted" "$(pair_total Capped)" -gt 0
pair ping
check "hold: older flows go on" "0 0" "$(sum broken) $(sum moved)"

# The flood has used up the limit of new flows; older ones have half as much more
windows 0 3600000
busywait 20 all_pinning
pair ping
# some expire before the flood ends
while objects; do
	nap 0.1 # why: the pace of looks
done >"$work/objects" &
sampler=$!
defer kill $sampler
flood pin --syns "$MHS_SYNS" --packets $((MHS_PACKETS * 2 / 10))
kill $sampler
most=$(sort -n "$work/objects" | tail -n 1)
pair ping
check "pin: older flows go on" "0 0" "$(sum broken) $(sum moved)"
check_cmp "pin: entries in the slab, at most" $((most - base)) -ge 250
windows 0 100
busywait 20 all_stable
pair ping
check "merged: older flows go on" "0 0" "$(sum broken) $(sum moved)"

# Entries of deleted servers expire at once with this
dr sysctl -qw net.ipv4.vs.expire_nodest_conn=1
for i in 1 2 3 4; do
	real $i
done | sed 's/^-a/-d/; s/ -[gi] .*//' | dr ipvsadm -R
result "entries are gone" "$(busywait 30 no_entries; echo $?)" "$(conns)"
result "memory is back" "$(busywait 30 memory_back; echo $?)" \
	"$(($(objects) - base)) objects more than before the floods"
pair reset
dr ipvsadm -C
result "no socket buffer leaked" "$(busywait 30 skbs_back; echo $?)" \
	"$(skbs), $skbs_before before the floods"

# The limit of all services: those of mh do not count
sysctls dr net.ipv4.vs.mhs.max_total_entries=20
make_services mhs
dr ipvsadm -R <<-EOF
	-A -t $VIP4:84 -s mh
	-a -t $VIP4:84 -r 10.2.0.11:84 -g
EOF
raw cl --dst $VIP4 --dports 84 --src 10.1.0.2 --ports 3000-3299 >/dev/null
check_cmp "entries of mh" "$(conns)" -ge 300
busywait 20 all_stable
windows 3600000 3600000
# a flow begins, so that the change is none of the first set of servers
attack stable --kinds SYN --syns 20 >"$work/out"
real 4 | dr ipvsadm -R
# entries of SYNs end soon, and the room that they leave is counted each second
some_entries() {
	attack hold --kinds SYN --syns 20 >"$work/out"
	[ "$(mhs_sum Entries)" -gt 0 ]
}
result "max_total_entries: beside those of mh there is room" \
	"$(busywait 30 some_entries; echo $?)"
attack hold --kinds SYN >"$work/out"
check_cmp "max_total_entries: entries" "$(mhs_sum Entries)" -le 20
check_cmp "max_total_entries: others were not made" "$(mhs_sum Capped)" -gt 0
sysctls dr net.ipv4.vs.mhs.max_total_entries=2147483647
attack hold --kinds SYN >"$work/out"
check_cmp "control: without a limit for all there are more" \
	"$(mhs_sum Entries)" -gt 20
dr ipvsadm -C

make_services mh -b mh-port
flood mh --kinds SYN
check_cmp "control: mh makes an entry for each SYN" "$(conns)" -ge 1200
dr ipvsadm -C
