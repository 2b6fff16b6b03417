#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 40
# A service that no packet has come to takes its servers without a transition,
# however slowly they are added, and loses them; the first packet, or a server that
# is drained, ends that (two minutes: dead.sh; under traffic: restart.sh).

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

readonly SVC6="[$VIP6]:83"

# paced SECONDS: pass lines on, so long after each but the first
paced() {
	local line

	while read -r line; do
		echo "$line"
		[[ $line = "-A "* ]] || nap "$1" # why: slowly
	done
}

# slowly SECONDS NAMESPACE SERVICE METHOD SERVER...: one server after the other
slowly() {
	{
		echo "-A -t $3 -s mhs"
		real_lines "$3" "$4" "${@:5}"
	} | paced "$1" | in_ns "$2" ipvsadm -R
}

# unstable SERVICE [NAMESPACE]: its slots in a transition
unstable() {
	echo $(($(mhs Hold "$@") + $(mhs Pin "$@")))
}

# by_hand SECONDS SERVICE: servers came so slowly; then 400 flows
by_hand() {
	local host=${2%:*} port=${2##*:}

	wait_settled "$2"
	check "$1 s apart: no slot is unstable" "stable 0" \
		"$(mhs State "$2") $(unstable "$2")"
	flow_start h --host "${host//[\[\]]/}" --port "$port" --timeout 8
	conns_begin
	flow h open 400
	check "$1 s apart: 400 flows, no entry" "400 0 0" \
		"$(value flows) $(value failed) $(conns_new)"
	flow h reset
	flow_end h
}

plan 11
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
for i in 1 2 3 4; do
	for port in 81 83 90; do
		lab serve "$(ns s$i)" s$i $port
	done
done

# By hand, without a packet: direct routing, tunnels
slowly 1 dr $VIP4:81 -g 1 2 3 4 &
slowly 3 dr "$SVC6" -i 1 2 3 4 &
slowly 10 dr $VIP4:90 -g 1 2 &
wait %2 %3 %4
by_hand 1 $VIP4:81
by_hand 3 "$SVC6"
by_hand 10 $VIP4:90
real_lines $VIP4:81 -g 4 | sed 's/-w 1/-w 2/; s/-a/-e/' | dr ipvsadm -R
check_cmp "control: after packets a change opens a transition" \
	"$(unstable $VIP4:81)" -gt 0
flow_start h --host $VIP4 --port 81 --timeout 8
conns_begin
flow h open 100
check_cmp "control: and new flows have entries" "$(conns_new)" -gt 0
flow h reset
flow_end h
dr ipvsadm -D -t $VIP4:81
dr ipvsadm -D -t $VIP4:90

# A server that is deleted, and one that is drained
learn dr < <(echo "-A -t $VIP4:81 -s mhs"; real_lines $VIP4:81 -g 1 2 3)
dr ipvsadm -a -t $VIP4:81 -r 10.2.0.14:81 -g -w 1
check "young: a server is added" 0 "$(unstable $VIP4:81)"
wait_settled $VIP4:81
dr ipvsadm -d -t $VIP4:81 -r 10.2.0.14:81
check "young: a server is deleted: no slot is unstable" 0 \
	"$(unstable $VIP4:81)"
dr ipvsadm -D -t $VIP4:81
learn dr < <(echo "-A -t $VIP4:81 -s mhs"; real_lines $VIP4:81 -g 1 2 3)
dr ipvsadm -e -t $VIP4:81 -r 10.2.0.13:81 -g -w 0
check_cmp "young: a server is drained: its slots are held" \
	"$(unstable $VIP4:81)" -gt 0
