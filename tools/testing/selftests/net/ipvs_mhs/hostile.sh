#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
# Malformed, truncated and hostile packets of every kind, always the same ones:
# no entry, no flow in order disturbed, no skb leaked, no word from the kernel; and
# no more entries than the limits, of a service and of all, beside those of mh.
# MHS_PACKETS: how many, 40,000 (make check-release ONLY=long: a million); MHS_SEED: others.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
# shellcheck source=lib_lone.sh
. "$(dirname "$0")/lib_lone.sh"

: "${MHS_PACKETS:=40000}" "${MHS_SEED:=1}"

# services: of TCP with each method, of UDP and of SCTP
services() {
	local vip real

	for vip in $VIP4 "[$VIP6]"; do
		real=10.2.0.1
		[ "$vip" = $VIP4 ] || real=fd02::1
		cat <<-EOT
			-A -t $vip:80 -s mhs
			-A -u $vip:80 -s mhs
			-A --sctp-service $vip:80 -s mhs
			-A -t $vip:81 -s mhs
			-A -t $vip:82 -s mhs
			-A -t $vip:83 -s mhs
		EOT
		for i in 1 2; do
			servers "$vip" "$real" $i
		done
	done
}

# servers VIP START NUMBER: this server of each service
servers() {
	local r=$2$3

	[ "$1" = $VIP4 ] || r="[$r]"
	cat <<-EOT
		-a -t $1:80 -r $r:80 -g
		-a -u $1:80 -r $r:80 -g
		-a --sctp-service $1:80 -r $r:80 -g
		-a -t $1:81 -r $r:81 -i
		-a -t $1:82 -r $r:82 -i --tun-type gue --tun-port 6080
		-a -t $1:83 -r $r:83 -i --tun-type gre
	EOT
}

all_stable() {
	! dr grep -qE "settling|rebuilding|transition" /proc/net/ip_vs_mhs
}

# hostile PHASE COUNT
hostile() {
	in_ns cl python3 "$here/hostile.py" --phase "$1" --count "$2" \
		--seed "$MHS_SEED" \
		--director "/run/netns/$(ns dr)"
}

# others NUMBER: connections to a service of mh, with an entry each
others() {
	dr ipvsadm -R <<-EOF
		-A -t $VIP4:84 -s mh
		-a -t $VIP4:84 -r 10.2.0.11:84 -g
	EOF
	in_ns cl python3 -SB - "$here" "$1" "$VIP4" <<-'EOF'
		import sys
		sys.path.insert(0, sys.argv[1])
		import craft
		client, vip = craft.addr("10.1.0.2"), craft.addr(sys.argv[3])
		wire = craft.Wire("dr", craft.DIRECTOR, client, vip)
		for flags in craft.SYN, craft.ACK:
		    wire.ask([(84, port, craft.tcp(client, vip, port, 84, flags))
		              for port in range(20000, 20000 + int(sys.argv[2]))])
	EOF
}

# some_entries: for busywait, are more made?
some_entries() {
	local before

	before=$(mhs_sum PinnedEntries)
	hostile pin 1000 >/dev/null
	[ "$(mhs_sum PinnedEntries)" -gt "$before" ]
}

# skbs: socket buffers in use, heads of all kinds
skbs() {
	local cache n sum=0

	for cache in skbuff_head_cache skbuff_fclone_cache; do
		read -r n _ <"/sys/kernel/slab/$cache/objects" &&
			sum=$((sum + n))
	done 2>/dev/null
	echo $sum
}

skbs_back() {
	[ "$(skbs)" -le $((base + 150)) ]
}

# settled_down: fragments that wait for others have been given up
settled_down() {
	dr grep -q "^FRAG: inuse 0 " /proc/net/sockstat &&
		dr grep -q "^FRAG6: inuse 0 " /proc/net/sockstat6
}

plan 17
fresh_module table_size=4093
setup_ns cl
lone_director dr 10 3
dr sysctl -qw net.ipv4.ipfrag_time=1 net.ipv6.ip6frag_time=1 \
	net.ipv4.vs.mhs.max_entries=50
# of IPv6 in netfilter, where the kernel has the knob
dr sysctl -qw net.netfilter.nf_conntrack_frag6_timeout=1 2>/dev/null
windows 0 100	# for a service that settles before its last server comes
batch=$(services)
dr ipvsadm -R <<<"$batch"	# all at once: a table settles soon
busywait 20 all_stable
windows 3600000 3600000
# what the kernel keeps at hand is no leak
hostile stable 10000 >"$work/warm"
busywait 30 settled_down
base=$(skbs)

report hostile stable $((MHS_PACKETS * 6 / 10))
check "stable: no entry at all" 0 "$(conns)"

batch=$(servers $VIP4 10.2.0.1 3; servers "[$VIP6]" fd02::1 3)
dr ipvsadm -R <<<"$batch"
check_cmp "unstable slots" "$(mhs_sum Hold)" -gt 20
report hostile hold $((MHS_PACKETS * 2 / 10))
windows 0 3600000
pinning() {
	[ "$(mhs_sum Hold)" -eq 0 ]
}
busywait 20 pinning
others 300
check_cmp "entries of mh, and some of mhs" "$(conns)" -ge 300
sysctls dr net.ipv4.vs.mhs.max_total_entries=20
result "beside those of mh there is room" "$(busywait 30 some_entries; echo $?)"
report hostile pin $((MHS_PACKETS * 2 / 10))
check_cmp "pin: entries of all services" "$(mhs_sum Entries)" -le 20
check_cmp "pin: others were not made" "$(mhs_sum Capped)" -gt 0
sysctls dr net.ipv4.vs.mhs.max_total_entries=2147483647
hostile pin $((MHS_PACKETS * 2 / 10)) >/dev/null
most=0
for n in $(dr awk 'NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
	{ print $n["Entries"] }' /proc/net/ip_vs_mhs); do
	[ "$n" -le "$most" ] || most=$n
done
check_cmp "pin: entries of a service" "$most" -le 50
check_cmp "control: without a limit for all there are more" \
	"$(mhs_sum Entries)" -gt 20

busywait 30 settled_down
result "no socket buffer leaked" "$(busywait 30 skbs_back; echo $?)" \
	"$(skbs) of $base at the start"
dr ipvsadm -C
