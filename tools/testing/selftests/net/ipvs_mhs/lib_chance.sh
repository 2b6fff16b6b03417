# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of lib.sh
# For tests of the second chance: the servers s1 to s3 of both services, with the
# program.  Sourced after lib_pair.sh.

SLOTS=251	# a table is made of each set of servers, on each server
servers="s1 s2 s3"
top=$here/../../../../..
built=${MHS_KO%/*}/chance	# see build-module

# program NAME [-without-btf]: a file of the program
program() {
	mkdir "$work/$1"
	cp "$built${2:-}/chance.bpf.o" "$work/$1"
}

# program_here NAME: the one that this kernel takes
program_here() {
	if [ -e /sys/kernel/btf/vmlinux ]; then
		program "$1"
	else
		program "$1" -without-btf
	fi
}

# on SERVER ARGUMENTS: real_server chance there; its words are in said.SERVER
on() {
	in_ns "$1" "$top/scripts/real_server" chance "${@:2}" \
		>"$work/said.$1" 2>&1
}

# tell PROGRAM [ARGUMENTS]: all servers, of the services as they are now
tell() {
	local s pids=() failed=0

	dr ipvsadm -S -n >"$work/services"
	for s in $servers; do
		on "$s" set --servers "$work/services" --table-size $SLOTS \
			--table-program "$built/mhs_table" \
			--program "$work/$1/chance.bpf.o" "${@:2}" &
		pids+=($!)
	done
	for s in "${pids[@]}"; do
		wait "$s" || failed=1
	done
	[ "$failed" -eq 0 ] || sed 's/^/# /' "$work"/said.*
	return $failed
}

# count: packets on all servers, $kept, $sent and $refused
count() {
	local s

	for s in $servers; do
		on "$s" show
	done
	# shellcheck disable=SC2034 # for tests
	read -r kept sent refused < <(for s in $servers; do
		sed -En 's/^packets: //p' "$work/said.$s"
	done | awk '{ k += $2; s += $5; r += $7 } END { print k, s, r }')
}

# six SERVER: its address in the IPv6 service.  Before Linux 5.14 servers send nothing on
# to IPv6 addresses.
six() {
	if [ "$(printf '5.14\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 5.14 ]
	then
		echo "[fd02::$((10 + $1))]:80"
	else
		echo "10.2.0.$((10 + $1)):80"
	fi
}

# change MODE SERVER [WEIGHT]: in both services
change() {
	dr ipvsadm -R <<-END
		$1 -t $SVC4 -r 10.2.0.$((10 + $2)):80 ${3:+-g -w $3}
		$1 -t $SVC6 -r $(six "$2") ${3:+-i -w $3}
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
		"$(sum broken) $(sum moved) $(entries)"
}

# packets PROGRAM NUMBER [without-btf]: each kind of packet, and so many hostile ones
packets() {
	local maps=/sys/fs/bpf/mhs-packets

	setup_ns lone
	bpftool prog loadall "$work/$1/chance.bpf.o" $maps type classifier \
		pinmaps $maps
	defer rm -r $maps
	in_ns lone python3 -IS "$here/chance_packets.py" $maps "${@:2}" \
		>"$work/packets"
	check "each kind of packet goes where it should, hostile ones, too" "0 0" \
		"$? $(awk -F '\t' '$2 { n++ } END { print n + 0 }' "$work/packets")"
	grep -P '\t1\t|^#' "$work/packets" | sed 's/^/# /'
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

# chance_net: the network, IPv4 by direct routing and IPv6 in IPIP.  The tunnel between
# servers fragments IPv4; where it is IPv6, clients must send smaller segments.
chance_net() {
	local s

	fresh_module table_size=$SLOTS
	chance_kernel
	setup_net 3
	for s in $servers; do
		ip_ns "$s" <<<"route replace default via fd02::1 advmss 1380"
	done
	sysctls dr net.ipv4.vs.mhs.second_chance="$SVC4,$SVC6" \
		net.ipv4.vs.expire_nodest_conn=0
	learn dr < <(
		echo "-A -t $SVC4 -s mhs"
		echo "-A -t $SVC6 -s mhs"
		real_lines "$SVC4" -g 1 2 3
		for s in 1 2 3; do
			echo "-a -t $SVC6 -r $(six $s) -i -w 1"
		done
	)
	pair_clients --timeout 4
}

need tc bpftool
[ -e "$built/mhs_table" ] || skip_all "no program of servers beside the module"
