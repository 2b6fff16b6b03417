#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 40
# tags: core
# Datagrams in fragments go as a whole to one server, by direct routing and in
# tunnels, also when the last fragment comes first.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=53 proto=-u client_py=dgrams.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

# whole NAME: the last ping was answered, each time with all that was sent
whole() {
	check "$1: whole" "0 0 0" "$(sum lost) $(sum refused) $(sum wrong)"
}

# in_pieces: datagrams that the client has sent in fragments, both families
in_pieces() {
	in_ns cl awk '/^Ip:/ { if (n) print $n
			       else for (i = 1; i <= NF; i++)
				       if ($i == "FragOKs") n = i }
		      /^Ip6FragOKs/ { print $2 }' \
		/proc/net/snmp /proc/net/snmp6 | paste -sd ' '
}

plan 23
load_module
modprobe -q ipip
modprobe -q ip6_tunnel
setup_net 4
ip_ns s3 <<-EOF
	link set tunl0 up
	link set ip6tnl0 up
EOF
ip -6 -n "$(ns s3)" tunnel change ip6tnl0 mode any
dgram_servers $PORT --echo
windows 3600000 3600000
learn dr <<-EOF
	-A -u $SVC4 -s mhs
	-A -u $SVC6 -s mhs
	$(real_lines "$SVC4" -g 1 2)
	$(real_lines "$SVC4" -i 3)
	$(real_lines "$SVC6" -g 1 2)
	$(real_lines "$SVC6" -i 3)
EOF
pair_clients --size 3000 --echo
pair open 25
pair ping	# now the client knows the path MTU of the tunnels
pair ping
whole "stable"
check_cmp "stable: by direct routing" "$(sum s1)" -gt 2
check_cmp "stable: in a tunnel" "$(sum s3)" -gt 2
check "stable: none moved" 0 "$(sum moved)"
check_cmp "they were fragments, IPv4" "$(in_pieces | cut -d ' ' -f 1)" -ge 50
check_cmp "they were fragments, IPv6" "$(in_pieces | cut -d ' ' -f 2)" -ge 50
pair ping reversed
whole "last fragment first"
check "last fragment first: none moved" 0 "$(sum moved)"
pair spray 200 headless
pair ping
whole "after fragments of nothing"
check "stable: no entry" "0 0" "$(conns) $(pair_total NewEntries)"

# A change
pair_edit -a 4 -g
result "hold phase" "$(busywait 20 pair_holding; echo $?)"
pair ping
whole "hold"
check "hold: none moved" 0 "$(sum moved)"
pair ping reversed
whole "hold, last fragment first"
check "hold, last fragment first: none moved" 0 "$(sum moved)"
result "pin phase" "$(to_pin; echo $?)"
pair ping
whole "pin"
check_cmp "pin: the new server has its share" "$(sum s4)" -gt 2
pair ping reversed
whole "pin, last fragment first"
check "pin, last fragment first: none moved" 0 "$(sum moved)"
check "no entry" "0 0" "$(conns) $(pair_total NewEntries)"
dr ipvsadm -C

# The same with mh
conns_begin
pair close
pair_services "1 2" mh -b mh-port
pair open 10
pair ping
whole "control: mh"
check "control: mh makes an entry for each client port" 20 "$(conns_new)"
dr ipvsadm -C
