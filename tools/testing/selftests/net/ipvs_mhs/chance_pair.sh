#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
# The second chance with keepalived, by examples/second_chance/: a VRRP pair without a
# sync daemon, whose notify scripts tell the servers.  A server fails its checks and
# recovers, the master dies in mid-change: no flow breaks, no director has an entry.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_chance.sh
. "${0%/*}/lib_chance.sh"
# shellcheck source=lib_front.sh
. "${0%/*}/lib_front.sh"

files=$top/examples/second_chance
servers="s1 s2"

# parses FILE
parses() {
	in_ns dr keepalived --config-test --use-file "$1" >"$work/parsed" 2>&1
}

# example: its file, with the addresses of this network, and less of a delay
example() {
	sed "s,192\.0\.2\.1/24,$VIP4/32,; s,192\.0\.2\.1 ,$VIP4 ,; s,10\.0\.0\.,10.2.0.,g
		s/_delay 10/_delay 1/; s/delay_loop 2/delay_loop 1/
		s/connect_timeout 3/connect_timeout 10/; s/retry 1/retry 0/
		s/lb_algo mh/lb_algo $1/; /enable_script_security/d
		s,/usr/local/sbin/,$work/,g" "$files/keepalived.conf" >"$conf"
}

# remote: ssh to a server
remote() {
	mkdir "$work/bin"
	cat >"$work/bin/ssh" <<-EOF
		#!/bin/bash
		while [[ \$1 != root@* ]]; do shift; done
		sed "s/-s $1\\>/-s mh/" |
			nsenter --net="/run/netns/s\${1##*.1}-$$" "$top/scripts/\$2" "\${@:3}" \\
			--table-program "$built/mhs_table" --table-size $SLOTS \\
			--program "$work/now/chance.bpf.o" >>"$work/told.log" 2>&1
	EOF
	cat >"$work/tell-servers" <<-EOF
		#!/bin/sh
		PATH=$work/bin:\$PATH exec "$files/tell-servers" "\$@"
	EOF
	chmod +x "$work/bin/ssh" "$work/tell-servers"
}

# ill SERVER, well SERVER: it answers the health checks of both with resets
ill() {
	in_ns "s$1" nft -f - <<-EOF
		table inet ill {
			chain in {
				type filter hook input priority 0
				ip saddr {10.2.0.10, 10.2.0.30} tcp dport 80 reject with tcp reset
			}
		}
	EOF
}

well() {
	in_ns "s$1" nft delete table inet ill
}

# have NUMBER: both directors have so many servers
have() {
	[ "$(mhs Servers) $(mhs Servers $VIP4:80 d2)" = "$1 $1" ]
}

# told: both servers have the table of the directors
told() {
	local s

	for s in $servers; do
		on "$s" show
		grep -q "CandidatePrint $(mhs CandidatePrint)," "$work/said.$s" || return
	done
}

# mute: the notify scripts tell no server from now on
mute() {
	printf '#!/bin/sh\nexit 1\n' >"$work/bin/ssh.new"
	chmod +x "$work/bin/ssh.new"
	mv "$work/bin/ssh.new" "$work/bin/ssh"
	busywait 60 eval '! pgrep -f "$files/tell-servers"'
}

# alive NAME
alive() {
	flow c ping
	check "$1: none broken, none moved, no entry" "$(value flows) 0 0 0 0" \
		"60 $(value broken) $(value moved) $(entries) $(entries d2)"
}

need keepalived nft
plan 17
modprobe -q ip_vs
fresh_module names=mhs,mh,sed table_size=$SLOTS
chance_kernel
program_here now
setup_net 2
director d2 30
for f in keepalived keepalived-ecmp; do
	parses "$files/$f.conf"
	check "keepalived takes $f.conf" 0 $?
	sed 's/^virtual_server/virtual_servant/' "$files/$f.conf" >"$work/wrong.conf"
	parses "$work/wrong.conf"
	check_cmp "control: not $f.conf with a wrong word" $? -ne 0
done
name=$(front_name)
example "$name"
remote "$name"
for n in dr d2; do
	sysctls $n net.ipv4.vs.mhs.second_chance=$VIP4:80
	ip -n "$(ns $n)" addr del $VIP4/32 dev lo
	defer down $n
done
ip -n "$(ns rt)" route replace $VIP4/32 dev br0

up dr
result "the first director takes the address" "$(busywait 40 has_vip dr; echo $?)"
up d2
busywait 40 have 2
in_ns dr "$work/tell-servers" 10.2.0.11 10.2.0.12
told=$?
sed "s/^/# /" "$work/told.log"
check "tell-servers by hand" 0 $told
result "the servers are told" "$(busywait 60 told; echo $?)"
wait_settled
wait_settled $VIP4:80 d2
flow_start c --host $VIP4 --timeout 8
flow c open 60
alive "all is well"
mine=$(value s1)
check_cmp "the first server has flows" "$mine" -gt 0

ill 1
result "it fails, and is deleted" "$(busywait 60 have 1; echo $?)"
alive "a server fails"
result "the servers are told of that" "$(busywait 60 told; echo $?)"
sed 's/^/# /' "$work/told.log"
in_ns dr "$work/tell-servers" 10.2.0.11 10.2.0.19 2>"$work/said"
check "a server that is not told is named" "1 1" \
	"$? $(grep -c "not told: 10.2.0.19" "$work/said")"
well 1
result "it recovers" "$(busywait 60 have 2; echo $?)"
down dr
result "the master dies: the other takes the address" \
	"$(busywait 40 has_vip d2; echo $?)"
alive "the master dies in mid-change"

mute
for s in $servers; do
	on "$s" clear
done
ill 1
busywait 60 eval '[ "$(mhs Servers $VIP4:80 d2)" = 1 ]'
flow c ping
check "control: without the program the flows of a server that fails break" "$mine" \
	"$(value broken)"
