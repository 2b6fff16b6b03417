#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 15
# tags: core
# Datagrams in fragments go as a whole to one server, by direct routing and in
# tunnels, also when the last fragment comes first.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=53 proto=-u client_py=dgrams.py

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
need nstat

# whole NAME: the last ping was answered, each time with all that was sent, without an
# entry
whole() {
	check "$1: whole, no entry" "0 0 0, 0 0" "$(sum lost) $(sum refused) $(sum wrong
		), $(conns) $(pair_total NewEntries)"
}

# reversed NAME: none moves that was just answered
reversed() {
	pair ping reversed
	whole "$1, last fragment first"
	check "$1, last fragment first: none moved" 0 "$(sum moved)"
}

# in_pieces COUNTER: datagrams that the client has sent in fragments
in_pieces() {
	in_ns cl nstat -asz "$1" | awk 'NR > 1 { print $2 }'
}

plan 18
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
dgram_servers $PORT --echo
windows 3600000 3600000
learn dr < <(
	pair_lines "1 2" mhs
	real_lines "$SVC4" -i 3
	real_lines "$SVC6" -i 3
)
pair_clients --size 3000 --echo
pair open 25
pair ping	# now the client knows the path MTU of the tunnels
pair ping
whole "stable"
check_cmp "stable: by direct routing" "$(sum s1)" -gt 2
check_cmp "stable: in a tunnel" "$(sum s3)" -gt 2
check_cmp "they were fragments, IPv4" "$(in_pieces IpFragOKs)" -ge 50
check_cmp "they were fragments, IPv6" "$(in_pieces Ip6FragOKs)" -ge 50
reversed "stable"
pair spray 200 headless
pair ping
whole "after fragments of nothing"

# A change
pair_edit -a 4 -g
result "hold phase" "$(busywait 20 pair_holding; echo $?)"
reversed "hold"
result "pin phase" "$(to_pin; echo $?)"
pair ping
whole "pin"
check_cmp "pin: the new server has its share" "$(sum s4)" -gt 2
reversed "pin"
dr ipvsadm -C

# The same with mh
conns_begin
pair close
pair_services "1 2" mh -b mh-port
pair open 10
pair ping
check "control: mh: whole" "0 0" "$(sum lost) $(sum wrong)"
check "control: mh makes an entry for each client port" 20 "$(conns_new)"
