#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# tags: core
# 100,000 packets of 10,000 flows on stable slots, by direct routing and in
# tunnels, IPv4 and IPv6: no connection entry is made and nothing is allocated,
# by the count of ip_vs_conn_new() and of the allocations that the code of ip_vs
# and of the schedulers makes.  The statistics see them.  mh makes an entry for
# each flow.

. "${0%/*}/lib.sh"
need nft

T=/sys/kernel/tracing
I=$T/instances/mhs$$

# Addresses of the modules' code: allocations from there
filter() {
	local name size addr f=""

	while read -r name size _ _ _ addr _; do
		[[ $name == ip_vs* ]] || continue
		f+=${f:+ || }$(printf 'call_site >= %s && call_site < %#x' \
			"$addr" $((addr + size)))
	done </proc/modules
	echo "$f"
}

trace_begin() {
	local e

	mkdir "$I" || return 1
	defer trace_end
	echo "p:mhs/conn_new$$ ip_vs_conn_new" >>$T/kprobe_events || return 1
	echo 1 >"$I/events/mhs/conn_new$$/enable"
	for e in kmalloc kmem_cache_alloc kmalloc_node kmem_cache_alloc_node; do
		[ -e "$I/events/kmem/$e" ] || continue
		filter >"$I/events/kmem/$e/filter" || return 1
		echo 1 >"$I/events/kmem/$e/enable"
	done
}

trace_end() {
	echo 0 >"$I/events/enable"
	rmdir "$I"
	echo "-:mhs/conn_new$$" >>$T/kprobe_events
}

made() {
	awk -v p="conn_new$$" '$1 == p { print $2 }' $T/kprobe_profile
}

# allocated: allocations since the last call, in n_alloc
allocated() {
	n_alloc=$(grep -c 'call_site=' "$I/trace")
	[ "$n_alloc" -eq 0 ] || note "first: $(grep -m 1 'call_site=' "$I/trace")"
	: >"$I/trace"
}

# blast VIP PORT ARGS...: packets straight to the director's device
blast() {
	local src=10.1.0.2

	[[ $1 != *:* ]] || src=fd01::2
	note "$1 port $2: $(in_ns rt python3 "$here/blast.py" --dev vdr \
		--mac "$mac" --src $src --dst "$1" --dport "$2" "${@:3}")"
}

# stat_of SERVICE COLUMN [rate]: of ipvsadm
stat_of() {
	dr ipvsadm -Ln --exact "--${3:-stats}" |
		awk -v s="$1" -v c="$2" '$2 == s { print $c }'
}

stat_is() {
	[ "$(stat_of "$1" "$2")" = "$3" ]
}

# rate_above SERVICE COLUMN: while packets come; it fades when they have ended
rate_above() {
	blast "${1%:*}" "${1##*:}" --keys 96 >/dev/null
	[ "$(stat_of "$1" "$2" rate)" -gt 0 ]
}

# arrived: packets on all servers
arrived() {
	local n sum=0

	for n in s1 s2; do
		sum=$((sum + $(in_ns $n nft list table inet sink |
			sed -n 's/.*counter packets \([0-9]*\).*/\1/p')))
	done
	echo $sum
}

arrived_all() {
	[ "$(arrived)" -eq "$1" ]
}

[ ! -d $T ] || [ -d $T/events ] || mount -t tracefs nodev $T
[ -d $T/instances ] || skip_all "no tracing in this kernel"
[ -e $T/kprobe_events ] || skip_all "no kprobes in this kernel"
plan 14
load_module
modprobe -q -a ipip ip6_tunnel ip_vs_mh
setup_net 2
mac=$(in_ns dr ip -br link show eth0 | awk '{ print $3 }')
for n in s1 s2; do
	in_ns $n nft -f - <<-EOF
		table inet sink {
			chain in {
				type filter hook input priority 0
				tcp dport { 80, 81 } counter drop
			}
		}
	EOF
done
for s in $VIP4 "[$VIP6]"; do
	printf -- "-A -t %s -s mhs\n" "$s:80" "$s:81"
	real_lines "$s:80" -g 1 2
	real_lines "$s:81" -i 1 2
done | dr ipvsadm -R
for s in $VIP4:80 $VIP4:81 "[$VIP6]:80" "[$VIP6]:81"; do
	wait_settled "$s"
done
# neighbours are found before the counting begins
for s in $VIP4 $VIP6; do
	blast "$s" 80 --keys 96
	blast "$s" 81 --keys 96
done
busywait 5 arrived_all 384
before=$(arrived)

trace_begin
result "probes are set" $?
blast $VIP4 80 --keys 10000 --rounds 4
blast $VIP4 81 --keys 10000 --rounds 2
blast $VIP6 80 --keys 10000 --rounds 2
blast $VIP6 81 --keys 10000 --rounds 2
blast $VIP4 80 --keys 2000 --syn --sport 30000
result "all packets reach a server" \
	"$(busywait 10 arrived_all $((before + 102000)); echo $?)"
check "ip_vs_conn_new() was not called" 0 "$(made)"
allocated
check "nothing was allocated by ip_vs or mhs" 0 "$n_alloc"
check "no entries, by our count either" "0 0" "$(entries) $(mhs Entries)"
for s in "$VIP4:80 4" "$VIP4:81 2" "[$VIP6]:80 2" "[$VIP6]:81 2"; do
	# 96 are for the neighbours, 2,000 SYNs
	n=$((96 + 10000 * ${s#* } + (${s#* } == 4 ? 2000 : 0)))
	result "ipvsadm --stats: packets of ${s% *}" \
		"$(busywait 10 stat_is "${s% *}" 4 $n; echo $?)"
done
check "ipvsadm --stats: SYNs as connections" 2000 "$(stat_of $VIP4:80 3)"
result "ipvsadm --rate sees packets" \
	"$(busywait 10 rate_above $VIP4:80 4; echo $?)"
dr ipvsadm -C

{
	echo "-A -t $VIP4:80 -s mh -b mh-port"
	real_lines $VIP4:80 -g 1 2
} | dr ipvsadm -R
allocated
blast $VIP4 80 --keys 2000 --syn
check_cmp "control: mh makes an entry for each flow" "$(made)" -ge 2000
allocated
check_cmp "control: the allocations are seen" "$n_alloc" -ge 2000
check_cmp "control: the entries are listed" "$(entries)" -ge 2000
dr ipvsadm -C
