#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 10
# tags: core few
# ICMP errors about flows without an entry reach the server of the flow and no
# other, in every phase of a slot, TCP and UDP, whichever director they come to;
# those about flows with an entry still do, by the core.  With mh, errors need the
# entry.  Malformed ones: attack.sh.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

# all_right NAME [KIND]: errors about every flow reach its server
all_right() {
	flow c errors "${2:-port}"
	check "$1" "$(value flows) 0 0 0" \
		"$(value right) $(value wrong) $(value local) $(value missing)"
}

# served NAME: every flow is answered; its server is now known
served() {
	flow c ask
	check "$1" 0 "$(value lost)"
}

# services SCHEDULER...: TCP and UDP, both families, in place of what there is
services() {
	dr ipvsadm -C
	udp pair_services "1 2 3" "$@"
	pair_services "1 2 3" "$@"
}

# edit: as pair_edit, of all four
edit() {
	pair_edit "$@"
	udp pair_edit "$@"
}

# both_in PHASE: busywait for TCP and UDP
both_in() {
	busywait 20 "$@" && udp busywait 20 "$@"
}

# by_d2 COMMAND...: errors that are sent meanwhile come to the other director
by_d2() {
	route_vip 30
	"$@"
	route_vip 10
}

plan 39
load_module
setup_net 4
director d2 30
dgram_servers 53
windows 3600000 3600000
sysctls d2 net.ipv4.vs.mhs.hold_ms=3600000 net.ipv4.vs.mhs.pin_ms=3600000
client_py=icmp.py flow_start c 2 {dr,d2,s1,s2,s3,s4}-$$

services mhs
flow c open tcp 20
flow c open udp 20
check "flows opened" "80 0" "$(value flows) $(value lost)"

# Stable slots
base=$(mhs PktIcmp)
for icmp in 0 1; do
	dr sysctl -qw net.ipv4.vs.schedule_icmp=$icmp
	for kind in frag port ttl; do
		all_right "stable, schedule_icmp=$icmp: $kind" $kind
	done
done
check "stable: counted" $((base + 120)) "$(mhs PktIcmp)"
flow c unknown
check "no service: the director's own" 80 "$(value local)"
check "no entry" 0 "$(conns)"
dr sysctl -qw net.ipv4.vs.schedule_icmp=0
served "flows go on"

# By another director, which saw no other packet of the flows
dr ipvsadm -Sn | sed 's/10\.2\.0\.13/10.2.0.14/; s/fd02::13/fd02::14/' | learn d2
by_d2 flow c errors frag
check_cmp "control: another director with another table is wrong" \
	"$(value wrong)" -gt 10
in_ns d2 ipvsadm -C
dr ipvsadm -Sn | learn d2
by_d2 all_right "another director, stable: frag" frag
by_d2 all_right "another director, stable: port" port
check "another director, stable: it took them" 160 "$(mhs_sum PktIcmp d2)"
in_ns d2 ipvsadm --start-daemon backup --mcast-interface eth0
in_ns d2 sysctl -qw net.ipv4.vs.backup_only=1
by_d2 flow c errors port
check "another director, backup_only=1: its own" 80 "$(value local)"
in_ns d2 ipvsadm --stop-daemon backup

# The other director is the backup of a VRRP pair: the address is not its own.  It
# sends errors itself, and forwards some.
ip_ns d2 <<-EOF
	addr del $VIP4/32 dev lo
	addr del $VIP6/128 dev lo
	route add $VIP4/32 via 10.2.0.10
	route add $VIP6/128 via fd02::10
EOF
base="$(mhs_sum PktIcmp) $(mhs_sum PktIcmp d2)"
flow c sender "$(ns d2)"
all_right "a backup's own errors" ttl
flow c sender "$(ns cl)"
by_d2 all_right "errors that pass a backup" port
check "errors at a backup: the other director took them" \
	"$((${base% *} + 160)) ${base#* }" \
	"$(mhs_sum PktIcmp) $(mhs_sum PktIcmp d2)"
ip_ns d2 <<-EOF
	route del $VIP4/32
	route del $VIP6/128
	addr add $VIP4/32 dev lo
	addr add $VIP6/128 dev lo nodad
EOF

# Unstable slots: older flows are the old server's
edit -a 4 -g
edit -e 1 -g -w 0
at=d2 edit -a 4 -g
at=d2 edit -e 1 -g -w 0
result "hold phase" "$(both_in pair_holding; echo $?)"
flow c errors frag	# before any other packet of the flows
check_cmp "hold: TCP's reach the old server" "$(value right)" -ge 40
served "hold: flows go on"
all_right "hold: by the server that answers now"
check "hold: no entry" 0 "$(conns)"
by_d2 all_right "another director, hold: frag" frag
by_d2 all_right "another director, hold: port" port
check "another director, hold: it took them" 320 "$(mhs_sum PktIcmp d2)"
flow c open tcp 15
check_cmp "hold: newer flows have entries" "$(conns)" -gt 5
by_d2 flow c errors frag
check "control: another director is wrong about flows with an entry" \
	"$(conns)" "$(value wrong)"
in_ns d2 ipvsadm -C
all_right "hold: newer flows with an entry, and older ones"
to_pin
result "pin phase" "$(both_in pair_pinning; echo $?)"
served "pin: flows go on"
check_cmp "pin: older flows have entries" "$(pair_total PinnedEntries)" -gt 5
all_right "pin: by the server that answers now"
dr sysctl -qw net.ipv4.vs.schedule_icmp=1
all_right "pin, schedule_icmp=1"
to_stable
result "merged" "$(both_in pair_state stable; echo $?)"
served "merged: flows go on"
all_right "merged: by the server that answers now"
flow c close
dr ipvsadm -C

# The control: such services of mh have no entries either
dr sysctl -qw net.ipv4.vs.schedule_icmp=0
udp pair_services "1 2 3" mh -b mh-port -o
flow c open udp 20
flow c errors port
check "control: mh loses errors about a flow without an entry" "40 0 0" \
	"$(value flows) $(value lost) $(value right)"
