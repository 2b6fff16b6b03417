#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# tags: core
# 120,000 packets of 40,000 flows on stable slots, by direct routing and in
# tunnels, IPv4 and IPv6: the code of ip_vs and of the schedulers allocates nothing,
# so it makes no connection entry.  The statistics see them.  mh makes an entry for
# each flow.

. "${0%/*}/lib.sh"
need nft

T=/sys/kernel/tracing
I=$T/instances/mhs$$

# trace: allocations by the modules' code, by its addresses
trace() {
	local name size addr f="" e

	while read -r name size _ _ _ addr _; do
		[[ $name != ip_vs* ]] ||
			f+=${f:+ || }$(printf 'call_site >= %s && call_site < %#x' \
				"$addr" $((addr + size)))
	done </proc/modules
	mkdir "$I" && defer rmdir "$I" || return
	for e in kmalloc kmem_cache_alloc kmalloc_node kmem_cache_alloc_node; do
		[ -e "$I/events/kmem/$e" ] || continue
		echo "$f" >"$I/events/kmem/$e/filter" &&
			echo 1 >"$I/events/kmem/$e/enable" || return
	done
}

# allocated: allocations since the last call, in n_alloc
allocated() {
	n_alloc=$(grep -c 'call_site=' "$I/trace")
	[ "$n_alloc" -eq 0 ] || note "first: $(grep -m 1 'call_site=' "$I/trace")"
	: >"$I/trace"
}

# blast SERVICE ARGS...: packets straight to the director's device
blast() {
	local src=10.1.0.2 vip=${1%:*}

	[[ $1 != \[* ]] || src=fd01::2
	in_ns rt python3 "$here/blast.py" --dev vdr --mac "$mac" --src $src \
		--dst "${vip//[][]/}" --dport "${1##*:}" "${@:2}" >"$work/blast"
}

# counted OPTION COLUMN...: of ipvsadm, of each service
counted() {
	dr ipvsadm -Ln --exact "$1" | awk -v a="$2" -v b="${3:-$2}" \
		'$1 == "TCP" { print $a, $b }' | sort | xargs
}

# rates: while packets come; they fade when these have ended
rates() {
	blast $VIP4:80 --keys 96
	[[ $(counted --rate 4) = *[1-9]* ]]
}

# arrived: packets on all servers
arrived() {
	for n in s1 s2; do
		in_ns $n nft list table inet sink
	done | grep -o "packets [0-9]*" | awk '{ n += $2 } END { print n }'
}

arrived_all() {
	[ "$(arrived)" -eq "$1" ]
}

[ ! -d $T ] || [ -d $T/events ] || mount -t tracefs nodev $T
[ -d $T/instances ] || skip_all "no tracing in this kernel"
plan 8
load_module
modprobe -q -a ipip ip6_tunnel ip_vs_mh
setup_net 2
mac=$(in_ns dr ip -br link show eth0 | awk '{ print $3 }')
for n in s1 s2; do
	in_ns $n nft -f - <<-EOT
		table inet sink {
			chain in {
				type filter hook input priority 0
				tcp dport { 80, 81 } counter drop
			}
		}
	EOT
done
learn dr < <(
	for s in $VIP4 "[$VIP6]"; do
		printf -- "-A -t %s -s mhs\n" "$s:80" "$s:81"
		real_lines "$s:80" -g 1 2
		real_lines "$s:81" -i 1 2
	done
)
# neighbours are found before the counting begins
for s in {$VIP4,"[$VIP6]"}:{80,81}; do
	blast "$s" --keys 96
done
busywait 5 arrived_all 384
before=$(arrived)

trace
result "allocations are traced" $?
for s in {$VIP4,"[$VIP6]"}:{80,81}; do
	blast "$s" --keys 10000 --rounds 3
done
blast $VIP4:80 --keys 2000 --syn --sport 30000
busywait 10 arrived_all $((before + 122000))
result "all packets reach a server" $?
allocated
check "nothing was allocated by ip_vs or mhs" 0 "$n_alloc"
check "no entries, by our count either" "0 0" "$(conns) $(mhs Entries)"
# of each 96 are for the neighbours
want="0 30096 0 30096 0 30096 2000 32096"
busywait 10 eval '[ "$(counted --stats 3 4)" = "$want" ]'
check "ipvsadm --stats: packets, SYNs as connections" "$want" \
	"$(counted --stats 3 4)"
busywait 10 rates
result "ipvsadm --rate sees packets" $?
dr ipvsadm -C

{
	echo "-A -t $VIP4:80 -s mh -b mh-port"
	real_lines $VIP4:80 -g 1 2
} | dr ipvsadm -R
allocated
blast $VIP4:80 --keys 2000 --syn
allocated
check_cmp "control: mh: an allocation for each flow is seen" "$n_alloc" -ge 2000
check_cmp "control: the entries are listed" "$(conns)" -ge 2000
dr ipvsadm -C
