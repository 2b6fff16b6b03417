#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# memory: 1G
# Parameters, sysctls and memory: what is allowed works, what is not is refused
# with a word of what would be.  Flows go where the documentation says: that these
# slots are spread evenly is the subject of spread_tests.py.  MHS_SERVICES: how many are
# made to see what memory one takes (make check-release ONLY=long: 5000).

. "${0%/*}/lib.sh"

: "${MHS_SERVICES:=200}"

# refuse TEXT PARAMETER: loading fails and the log says TEXT
refuse() {
	dmesg -C
	! insert_module "$2" 2>/dev/null && kernel_said "$1"
	result "$2 is refused" $?
}

# reload ARGS...: the module with other parameters
reload() {
	rmmod ip_vs_mhs 2>/dev/null
	insert_module "$@"
}

# refuse_sysctl NAME VALUE: EINVAL, and the old value stays
refuse_sysctl() {
	local file=/proc/sys/net/ipv4/vs/mhs/$1 was

	was=$(dr cat "$file")
	! dr sh -c "echo $2 >$file" 2>/dev/null &&
		[ "$(dr cat "$file")" = "$was" ]
	result "$1 = $2 is refused" $?
}

available_kb() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^MemAvailable/ { print $2 }' /proc/meminfo
}

# counted: connections of each server; the core adds them up every two seconds
counted() {
	dr ipvsadm -Ln --stats --exact |
		awk '$1 == "->" && $2 ~ /:80$/ { n += $3; print $3 } END { exit n < 2000 }'
}

# shares SERVICE CLIENT SERVER SERVER: of 2,000 flows for each of the servers
shares() {
	learn dr < <(echo "-A -t $1 -s mhs"; real_lines "$1" -g "${@:3}")
	in_ns rt python3 "$here/blast.py" --dev vdr --mac "$mac" --src "$2" \
		--dst "$(tr -d '[]' <<<"${1%:*}")" --keys 2000 --sport 20000 --syn \
		>/dev/null
	busywait 20 counted >"$work/counted"
	counted | xargs
	dr ipvsadm -C
}

# foretold ROUNDS CLIENT SERVER...: the same, by the rules
foretold() {
	python3 "$here/reference.py" "$(</sys/module/ip_vs_mhs/parameters/table_size)" \
		"$1" "$2" 20000 2000 "${@:3}"
}

# restore SCHEDULER: KiB for each of MHS_SERVICES services of 20 servers, and the
# hundredths of seconds until they are there with their tables
restore() {
	local before start

	many_services "$MHS_SERVICES" 20 | sed "s/-s mhs/-s $1/" >"$work/rules"
	before=$(available_kb)
	start=$(uptime)
	dr ipvsadm -R <"$work/rules"
	took=$(($(uptime | tr -d .) - ${start/./}))
	busywait 60 settled "$VIP4:$((1000 + MHS_SERVICES))" || note "not settled"
	kb=$(((before - $(available_kb)) / MHS_SERVICES))
	note "$1: $kb KiB for each of $MHS_SERVICES services, $took hundredths of seconds"
	dr ipvsadm -C
}

oom_kills() {
	awk '$1 == "oom_kill" { print $2 }' /proc/vmstat
}

# KASAN keeps what is freed for a while, so the kernel's memory tells nothing
sanitized=
[ ! -e /sys/kernel/debug/kmemleak ] || sanitized=1
plan $((28 - 2 * ${sanitized:-0}))
modprobe -q ip_vs
dmesg -n 1
for size in 0 100 65537 131072; do
	refuse "65521, 131071" table_size=$size
done
for key in 0123456789abcdef0123456789abcde 0123456789abcdefx123456789abcdef; do
	refuse "32 hexadecimal" hash_key=$key
done

load_module
setup_net 0
mac=$(dr ip -br link show eth0 | awk '{ print $3 }')
seen=$(shares "$VIP4:80" 10.1.0.2 31 32)
real=(10.2.0.41/80 10.2.0.42/80)
check "IPv4: flows are where the documentation says" \
	"$(foretold 1-3 10.1.0.2 "${real[@]}")" "$seen"
check "control: another hash would be noticed" different \
	"$([ "$(foretold 2-4 10.1.0.2 "${real[@]}")" = "$seen" ] || echo different)"
check "IPv6: flows are where the documentation says" \
	"$(foretold 1-3 fd01::2 fd02::43/80 fd02::44/80)" \
	"$(shares "[$VIP6]:80" fd01::2 33 34)"
for size in 251 524287; do
	reload table_size=$size
	learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3)
	check "table_size=$size" "$size $size" "$(mhs Size) $(mhs Stable)"
	dr ipvsadm -C
done

# more servers than slots: said once, counted
reload table_size=251
dmesg -C
{
	echo "-A -t $VIP4:80 -s mhs"
	printf -- "-a -t $VIP4:80 -r 10.2.%s:80 -g -w 1\n" {1,2}.{1..200}
} | dr ipvsadm -R
wait_settled
check "400 servers in 251 slots: NoSlot, said once" "149 1" \
	"$(mhs NoSlot) $(dmesg | grep -c 'IPVS: mhs: .*larger table_size')"
dr ipvsadm -C
reload

for bad in hold_ms={-1,86400001,x,4294967296} pin_ms=99999999 \
	max_entries=2147483648 stateless=2; do
	refuse_sysctl "${bad%=*}" "${bad#*=}"
done
check "defaults" "60000 0 262144 65536 1" "$(dr cat \
	/proc/sys/net/ipv4/vs/mhs/{hold_ms,pin_ms,max_entries,max_quic_entries,stateless} |
	xargs)"

# What a service takes beside the core's own part, which both have: a table of 4,093
# slots of 4 bytes, 2 KiB, and 576 bytes a server; mh has 4,093 slots of 8 bytes.
modprobe -q ip_vs_mh
least_mh=999999 least=999999
for _ in 1 2 3; do
	restore mh
	kb_mh=$kb least_mh=$((took < least_mh ? took : least_mh))
	restore mhs
	least=$((took < least ? took : least))
done
[ "$sanitized" ] ||
	check_cmp "20 servers: no more memory than with mh, KiB" "$kb" -le "$kb_mh"
check_cmp "they are restored in no more than 1.5 times of mh" \
	$((2 * least)) -le $((3 * least_mh))

reload table_size=8191
restore mhs
[ "$sanitized" ] ||
	check_cmp "control: with a table that is larger it is more" "$kb" -gt "$kb_mh"

# More services than there is memory for: the last ones are refused
reload table_size=524287
many_services $((MHS_SERVICES + 800)) 1 >"$work/rules"
before=$(oom_kills)
dmesg -C
dr ipvsadm -R <"$work/rules" 2>"$work/said"
status=$?
note "$(sort "$work/said" | uniq -c | xargs)"
check "without memory a service is refused" "255 yes" \
	"$status $(kernel_said "no memory for one more service" && echo yes)"
check "and nobody is killed" "$before" "$(oom_kills)"
made=$(dr ipvsadm -Sn | grep -c -- -A)
check_cmp "those of before are there" "$made" -gt "$MHS_SERVICES"
for i in {1..9}; do
	dr ipvsadm -D -t "$VIP4:$((1000 + i))"
done
busywait 20 dr ipvsadm -A -t $VIP4:80 -s mhs
result "and there is room for one when others have gone" $?
dr ipvsadm -C
rmmod ip_vs_mhs
result "the module goes" $?
