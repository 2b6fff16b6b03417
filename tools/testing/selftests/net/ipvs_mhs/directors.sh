#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 60
# Directors with the same servers have the same tables, whatever the order of
# commands, and take over each other's flows; with mh these are reset.  Another
# scheduler in the same namespace is left as it is.

. "${0%/*}/lib.sh"

SVC6="[$VIP6]:80"

# orders DIRECTORY: 20 histories, each in two parts, that end in one set of 50
# weighted servers: others come and go, some are deleted and added again, some
# get their weight later
orders() {
	python3 - "$1" $VIP4:80 <<-'EOF'
		import random, sys

		rng = random.Random(1)
		real = [f"10.3.{i // 7}.{i * 5 % 251 + 1}:{80 + i % 3}"
		        for i in range(60)]
		weights = {r: rng.choice((1, 2, 3, 10, 100)) for r in real[:50]}
		weights[real[7]] = 0

		def line(op, server, weight=None):
		    method = f" -m -w {weight}" if op != "-d" else ""
		    return f"{op} -t {sys.argv[2]} -r {server}{method}"

		for n in range(20):
		    others = rng.sample(real[50:], n % 10)
		    edited, again = (s := rng.sample(real[:50], 12))[:6], s[6:]
		    begin = [line("-a", r, rng.randrange(1, 50) if r in edited + others
		                  else weights[r]) for r in real[:50] + others]
		    rng.shuffle(begin)
		    begin.insert(0, f"-A -t {sys.argv[2]} -s mhs")
		    end = [line("-d", r) for r in others]
		    end += [line("-e", r, weights[r]) for r in edited]
		    end += [line("-d", r) + "\n" + line("-a", r, weights[r])
		            for r in again]
		    rng.shuffle(end)
		    for part, lines in (("a", begin), ("b", end)):
		        with open(f"{sys.argv[1]}/order.{n}.{part}", "w") as f:
		            print(*lines, sep="\n", file=f)
	EOF
}

# prints NAMESPACE: state, fingerprints and servers of its only service, in $line
prints() {
	local net lines head row i word

	net_dir "$1"
	mapfile -t lines <"$net/ip_vs_mhs"
	read -ra head <<<"${lines[0]}"
	read -ra row <<<"${lines[1]:-}"
	line=""
	[ -n "${row[*]}" ] || return 0
	for word in State OldPrint CandidatePrint Servers; do
		for i in "${!head[@]}"; do
			[ "${head[i]}" != $word ] || line+=${line:+ }${row[i]}
		done
	done
}

# settled_prints NAMESPACE [WANT]: a rebuild may come a moment after a change
settled_prints() {
	prints "$1"
	[ "${line%% *}" = stable ] && [ "$line" = "${2:-$line}" ]
}

# settled_with NAMESPACE SERVERS
settled_with() {
	settled_prints "$1" && [ "${line##* }" = "$2" ]
}

# print_of NAMESPACE ORDER: the fingerprints it leads to; between the parts of
# odd ones the service settles
print_of() {
	local a="$work/order.$2.a" b="$work/order.$2.b" lines

	{
		prints "$1"
		[ -z "$line" ] || echo "-D -t $VIP4:80"
		mapfile -t lines <"$a"
		printf '%s\n' "${lines[@]}"
		[ $(($2 % 2)) -eq 0 ] ||
			busywait 20 settled_with "$1" $((${#lines[@]} - 1))
		echo "$(<"$b")"
	} | in_ns "$1" ipvsadm -R
	busywait 10 settled_prints "$1" "$want"
	echo "$line"
}

# both COMMAND...: on either director
both() {
	in_ns dr "$@" && in_ns d2 "$@"
}

# services SCHEDULER...: its service in both families, and one of wlc
services() {
	local n

	for n in dr d2; do
		in_ns $n ipvsadm -R <<-EOF
			-A -t $VIP4:80 -s $*
			$(real_lines $VIP4:80 -g 1 2 3 4)
			-A -t $SVC6 -s $*
			$(real_lines "$SVC6" -i 1 2 3 4)
			-A -t $VIP4:81 -s wlc
			-a -t $VIP4:81 -r 10.2.0.11:81 -g -w 1
		EOF
	done
}

# take_over SLOPPY: flows move from the first director to the second
take_over() {
	sysctls dr net.ipv4.vs.sloppy_tcp="$1"
	sysctls d2 net.ipv4.vs.sloppy_tcp="$1"
	flow a open 60
	flow b open 40
	flow c open 20
	flow a ping
	flow b ping
	flow c ping
	route_vip 30
	flow a ping
	broken=$(value broken) moved=$(($(value moved) - moved_a))
	moved_a=$(value moved)
	flow b ping
	broken=$((broken + $(value broken))) moved=$((moved + $(value moved) - moved_b))
	moved_b=$(value moved)
	taken=$(entries d2)
	flow c ping
	other_rst=$(value rst)
	route_vip 10
	flow a reset
	flow b reset
	flow c reset
}

plan 19
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
director d2 30
lab serve "s1-$$" s1 81
flow_start a --host $VIP4 --timeout 8
flow_start b --host $VIP6 --timeout 8
flow_start c --host $VIP4 --port 81 --timeout 8
flow_start d --host $VIP4 --timeout 8
moved_a=0 moved_b=0

# short transitions, so that the old tables agree, too
for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.hold_ms=0 net.ipv4.vs.mhs.pin_ms=100
done
orders "$work"
want=""
want=$(print_of dr 0)
for ((n = 0; n < 20; n += 4)); do	# both namespaces meet both kinds
	{ print_of dr $n; print_of dr $((n + 1)); } >"$work/prints.$n" &
	{ print_of d2 $((n + 2)); print_of d2 $((n + 3)); } \
		>"$work/prints.$((n + 2))"
	wait $!
done
both ipvsadm -C
cat "$work"/prints.* >"$work/prints"
sort "$work/prints" | uniq -c | sed 's/^/# /'
check "20 histories made a table" 20 "$(grep -c ' 50$' "$work/prints")"
check "they have one fingerprint" 1 "$(sort -u "$work/prints" | wc -l)"
check "of both tables" 0 "$(awk '$2 != $3' "$work/prints" | wc -l)"

for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.hold_ms=60000 net.ipv4.vs.mhs.pin_ms=0
done
services mhs
for n in dr d2; do
	wait_settled $VIP4:80 $n
	wait_settled "$SVC6" $n
done
check "the directors agree" "$(mhs OldPrint)" "$(mhs OldPrint $VIP4:80 d2)"
check "the directors agree, IPv6" "$(mhs OldPrint "$SVC6")" \
	"$(mhs OldPrint "$SVC6" d2)"
for sloppy in 0 1; do
	take_over $sloppy
	check "sloppy_tcp=$sloppy: no flow broken" 0 "$broken"
	check "sloppy_tcp=$sloppy: no flow moved" 0 "$moved"
	check "sloppy_tcp=$sloppy: no entries for them" 0 "$taken"
	# the only server of that service: with an entry they would reach it
	check "sloppy_tcp=$sloppy: flows of wlc as without mhs" \
		$((20 - sloppy * 20)) "$other_rst"
done
both ipvsadm -C

services mh -b mh-port
take_over 0
check "control: mh breaks every flow" 100 "$broken"
check "control: flows of wlc are reset without mhs" 20 "$other_rst"
both ipvsadm -C

# A pair from wlc to mhs, one after the other
services wlc
flow a open 60
flow a ping
dr ipvsadm -E -t $VIP4:80 -s mhs
wait_settled
flow a ping
check "from wlc: no flow broken" 0 "$(value broken)"
flow d open 60
flow d ping
route_vip 30
flow d ping
check "control: one has mhs, the other wlc: flows do not change over" 60 \
	"$(value broken)"
route_vip 10
flow d reset
in_ns d2 ipvsadm -E -t $VIP4:80 -s mhs
wait_settled $VIP4:80 d2
flow d open 60
flow d ping
route_vip 30
flow d ping
check "both have mhs: flows begun since do" 0 "$(value broken)"
flow a ping
check_cmp "flows begun under wlc do not, without the sync daemon" \
	"$(value broken)" -gt 20
flow a reset
flow d reset
both ipvsadm -C
