# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of lib.sh
# For tests of the second chance: servers of both services, with the program.  Sourced
# after lib_pair.sh.

servers="s1 s2 s3"
top=$here/../../../../..
built=${MHS_KO%/*}/chance	# see build-module
[ -e /sys/kernel/btf/vmlinux ] || built+=-without-btf
export MHS_CHANCE=$built/chance.bpf.o

# on SERVER ARGUMENTS: real_server there; its words are in said.SERVER
on() {
	in_ns "$1" "$top/scripts/real_server" "${@:2}" >"$work/said.$1" 2>&1
}

# equip SERVER...: with the program.  One with the name of a test's fault has none.
equip() {
	local s pids=() failed=0

	for s in "$@"; do
		on "$s" setup --vip "$VIP4" --vip "$VIP6" --port 80 \
			--tunnel ipip --outer ipv4,ipv6 \
			--director 10.2.0.10 --director fd02::10 \
			--director 10.2.0.20 --director fd02::20 &
		pids+=($!)
	done
	for s in "${pids[@]}"; do
		wait "$s" || failed=1
	done
	[ "$failed" -eq 0 ] || sed 's/^/# /' "$work"/said.*
	return $failed
}

# chances COLUMN [SERVICE] [NAMESPACE]: what became of packets that came back
chances() {
	in_ns "${3:-dr}" awk -v c="$1" -v s="${2:-}" '
		NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
		s == "" || $1 == s { v[$1] = $n[c] }
		END { for (i in v) sum += v[i]; print sum + 0 }
	' /proc/net/ip_vs_mhs_chance
}

# answering N [NAMESPACE]: do so many servers of both services answer?
answering() {
	[ "$(in_ns "${2:-dr}" grep -c " answers " /proc/net/ip_vs_mhs_chance)" -eq "$1" ]
}

# outer: lines for ipvsadm.  By IPIP the servers of the IPv6 service have IPv4 addresses:
# IPv4 fragments
outer() {
	if [ "$how6" = -i ]; then
		sed 's/\[fd02::\(..\)\]/10.2.0.\1/'
	else
		cat
	fi
}

# change MODE SERVER [WEIGHT]: in both services, on the director $at, or dr
change() {
	outer <<-END | in_ns "${at:-dr}" ipvsadm -R
		$1 -t $SVC4 -r 10.2.0.$((10 + $2)):80 ${3:+$how4 -w $3}
		$1 -t $SVC6 -r [fd02::$((10 + $2))]:80 ${3:+$how6 -w $3}
	END
}

# both ARGUMENTS: change it, until the director's slots have it
both() {
	change "$@"
	busywait 20 pair_state stable
}

# unbroken NAME: all flows answer, and the director keeps no state
unbroken() {
	pair ping
	check "$1: none broken, none moved, no entry" "0 0 0" \
		"$(sum broken) $(sum moved) $(conns)"
}

# unpin: programs stay pinned when their namespaces end
unpin() {
	rm -rf /sys/fs/bpf/real_server-*
}

# chance_kernel: what the program and its tunnels need
chance_kernel() {
	local m

	defer unpin
	[ "$(stat -f -c %T /sys/fs/bpf)" = bpf_fs ] ||
		mount -t bpf bpf /sys/fs/bpf
	for m in ipip sit ip6_tunnel ip_gre ip6_gre; do
		modprobe -q $m
	done
}

# chance_services NUMBER...: both, of these servers
chance_services() {
	learn "${at:-dr}" < <(pair_lines "$*" mhs | outer)
}

# chance_net SERVERS: the network.  Where the way back is IPv6, clients must send
# smaller segments.
chance_net() {
	local s

	fresh_module table_size=251
	chance_kernel
	setup_net "$1"
	servers=""
	for ((s = 1; s <= $1; s++)); do
		servers+=" s$s"
		ip_ns "s$s" <<<"route replace default via fd02::1 advmss 1380"
	done
	sysctls dr net.ipv4.vs.mhs.second_chance="$SVC4,$SVC6"
	pair_clients --timeout 4
}

need tc bpftool
[ -e "$MHS_CHANCE" ] || skip_all "no program of servers beside the module"
