#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 40
# mhsstat check: findings of each source are there when their cause is, and not
# otherwise, and remedies are good commands.  All kinds, and what is a note:
# check_tests.py.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

top=$here/../../../../..

# kinds: the findings of mhsstat check, by kind; with $listens for packets, half a second
listens=""
kinds() {
	# shellcheck disable=SC2086 # its words
	dr "$top/scripts/mhsstat" check --json ${listens:---ignore lost} >"$work/json"
	grep -o '"kind": "[^"]*' "$work/json" | cut -d '"' -f 4 | sort | paste -sd,
}

# mend [SED]: the commands of the remedies, SED on their placeholders
mend() {
	in_ns dr "$top/scripts/mhsstat" check 2>"$work/err" | sed -E "${1:-}
		s/.*((ipvsadm -|sysctl -w |ip route )[^,;([]*[^ ,;([]).*/\1/" \
		>"$work/remedy"
	note "$(paste -sd ';' "$work/remedy")"
	dr sh -e "$work/remedy" >"$work/mended" || note "the remedy: $?"
	rebuilt dr
}

# says KINDS: does it?  What packets tell takes as long as they take.
says() {
	kinds >"$work/kinds"
	[ "$(<"$work/kinds")" = "$1" ]
}

# both_ways KINDS MAKE UNDO: commands on the director; what it says after each, at last: the
# core counts a SYN up to two seconds before the packets behind it.
# Without the cause is the control.  A young service settles again when it gets
# a server.
both_ways() {
	eval "$2"
	wait_settled
	busywait 60 says "$1"
	check "$1" "$1" "$(<"$work/kinds")"
	cp "$work/json" "$work/named"
	eval "$3"
	wait_settled
	busywait 60 says ""
	check "control: $1, without the cause" "" "$(<"$work/kinds")"
}

# again: the services anew, their counts 0
again() {
	dr ipvsadm -C
	pair_services "1 2" mhs
}

sysctl_of() {
	sysctls dr "net.ipv4.vs.$1"
}

plan 51
fresh_module table_size=251
setup_net 2
windows 3600000 3600000
sysctl_of mhs.pin_ms=0
again
check "nothing to say" "" "$(kinds)"
both_ways persistence 'dr ipvsadm -E -t "$SVC4" -s mhs -p 300' \
	'dr ipvsadm -E -t "$SVC4" -s mhs'
both_ways thresholds 'dr ipvsadm -e -t "$SVC4" -r 10.2.0.11:80 -g -x 5' mend
both_ways conntrack 'sysctl_of conntrack=1' mend

# what looks like a set-up that works
both_ways no-address "dr ip addr del $VIP4/32 dev lo" "dr ip addr add $VIP4/32 dev lo"
both_ways mtu,mtu 'dr ip link set eth0 mtu 1400' 'dr ip link set eth0 mtu 1500'
both_ways timeouts 'dr ipvsadm --set 5 5 5' mend
both_ways ip-forward,masquerading 'dr sysctl -qw net.ipv4.ip_forward=0
	dr ipvsadm -a -t "$SVC4" -r 10.2.0.13:80 -m' \
	'dr ipvsadm -d -t "$SVC4" -r 10.2.0.13:80; dr sysctl -qw net.ipv4.ip_forward=1'
both_ways sync-backup 'dr ipvsadm --start-daemon backup --mcast-interface eth0' mend

# what is before the services, and who else has their address
listens="-t $SVC4"
both_ways firewall 'dr nft -f - <<<"table inet t { chain c {
	type filter hook input priority 0; policy drop; }; }"' 'dr nft flush ruleset'
bg_ns cl python3 -IS - <<-EOF &
	import socket, time
	while True:
	    with socket.socket() as client:
	        client.setblocking(False)
	        client.connect_ex(("$VIP4", 80))
	        time.sleep(0.02) # why: the pace of connections
EOF
both_ways lost 'dr nft -f - <<<"table inet t { chain c {
	type filter hook input priority 0; tcp dport 80 drop; }; }"' 'dr nft flush ruleset'
kill $!
dr ip addr add $VIP4/24 dev eth0
both_ways two-owners 'sysctls s1 net.ipv4.conf.all.arp_ignore=0' \
	'sysctls s1 net.ipv4.conf.all.arp_ignore=1'
dr ip addr del $VIP4/24 dev eth0
listens=""

# limits: entries of a transition, then none above the limit
flow_start c4 --host "$VIP4" --bind 10.1.0.2
again
# twenty connections at once, half of them to a server without the address
both_ways no-answer 'ip_ns s2 <<<"addr del $VIP4/32 dev lo"
	in_ns cl bash -c "for i in {1..20}; do : <>/dev/tcp/$VIP4/80 & done; wait" \
		2>"$work/refused" &
	busywait 20 eval '"'[ \"\$(kinds)\" = no-answer ]'"'' \
	'kill %%; ip_ns s2 <<<"addr add $VIP4/32 dev lo"; dr ipvsadm -Z
	busywait 20 eval '"'[ -z \"\$(kinds)\" ]'"''
check "the silent one is named" 1 \
	"$(grep -c '"server 10.2.0.12:80 answers no' "$work/named")"
again
flow c4 open 10
# until then a change has no transition; the slower the servers came, the later
wait_settled
weight 1 5
busywait 20 in_state transition
flow c4 open 20
both_ways few-entries,max-entries "sysctl_of mhs.max_entries=$(mhs Entries)" \
	'mend "s/= a higher number/=262144/"'
sysctl_of mhs.max_entries=0
flow c4 open 20
sysctl_of mhs.max_entries=262144
check_cmp "capped: there are some" "$(mhs Capped)" -gt 0
both_ways capped 'true' 'again'

# the second chance
both_ways chance-silent 'dr sysctl -qw "net.ipv4.vs.mhs.second_chance=$SVC4"' \
	'dr sysctl -qw net.ipv4.vs.mhs.second_chance='

# the lane
no_door="lane-btf"
[ ! -e /sys/kernel/btf/ip_vs_mhs ] || no_door="lane-door"
both_ways lane-off 'dr sysctl -qw net.ipv4.vs.mhs.ingress=eth0' mend
sysctl_of mhs.lane=0
dr sysctl -qw net.ipv4.vs.mhs.ingress=
both_ways $no_door 'sysctl_of mhs.lane=1' 'mend s/DEVICE/eth0/'
sysctl_of mhs.lane=0
dr sysctl -qw net.ipv4.vs.mhs.ingress=

# the way to a server
both_ways route 'dr ip route add unreachable 10.77.0.1
	dr ipvsadm -a -t "$SVC4" -r 10.77.0.1:80 -i
	dr ip link set eth0 mtu 1520' \
	'mend "s/GATEWAY dev DEVICE/10.2.0.1 dev eth0/"'
dr ipvsadm -d -t "$SVC4" -r 10.77.0.1:80
dr ip route del 10.77.0.1
both_ways gateway 'dr ip route add 10.77.0.1 via 10.2.0.1
	dr ipvsadm -a -t "$SVC4" -r 10.77.0.1:80 -g -w 3' mend
dr ipvsadm -d -t "$SVC4" -r 10.77.0.1:80
both_ways neighbour 'dr ipvsadm -a -t "$SVC4" -r 10.2.0.99:80 -g
	dr ping -q -c 1 -W 5 10.2.0.99 >"$work/ping"
	busywait 20 eval "[[ \$(dr ip -o neigh show 10.2.0.99) == *FAILED* ]]"' \
	'dr ipvsadm -d -t "$SVC4" -r 10.2.0.99:80'
# names: in effect; taken by the kernel's own scheduler, module or built in
for names in one mh ""; do
	dr ipvsadm -C
	unload_module
	[ "$names" != mh ] || modprobe -q ip_vs_mh
	load_module ${names:+"names=$names"}
	again
	kinds >"$work/kinds.$names"
done
check "names: they are in effect" names "$(<"$work/kinds.one")"
check "names-taken: by the kernel's own scheduler" names-taken "$(<"$work/kinds.mh")"
check "control: without names=" "" "$(<"$work/kinds.")"
both_ways kernel-mh 'dr ipvsadm -A -t $VIP4:81 -s mh
	dr ipvsadm -a -t $VIP4:81 -r 10.2.0.11:80 -g' 'mend; wait_settled $VIP4:81'
dr ipvsadm -C
both_ways no-service 'dr ipvsadm -A -t $SVC4 -s wlc' 'again'
check "another user cannot" 125 "$(in_ns dr setpriv --reuid=65534 \
	--regid=65534 --clear-groups "$top/scripts/mhsstat" check \
	>"$work/out" 2>"$work/err"; echo $?)"
