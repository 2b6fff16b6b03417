#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 80
# tags: core few
# IPIP, GUE and GRE servers side by side, servers of the other address family
# in the same tunnels, several servers on one address, all forwarding methods
# in one service, the local node and clients on the director itself: no entries, and
# draining one of them breaks nothing.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

FLOWS=40
GUE4="--tun-type gue --tun-port 6080" GRE="--tun-type gre"
GUE6="$GUE4 --tun-csum"		# IPv6 wants a checksum

# serves NAME "SERVERS" LINES [ENTRIES]: make both services, with these servers;
# those of masquerading servers have entries, "all" if every server masquerades
serves() {
	local s got=""

	pair reset
	dr ipvsadm -C
	learn dr <<-EOF
		-A -t $SVC4 -s mhs
		-A -t $SVC6 -s mhs
		$3
	EOF
	pair open $FLOWS
	pair ping
	check "$1: served" "$((2 * FLOWS)) 0 0" \
		"$(sum flows) $(sum broken) $(sum failed)"
	for s in $2; do
		[ "$(reply=$reply4 value "$s")" -eq 0 ] ||
			[ "$(value "$s")" -eq 0 ] || got+="${got:+ }$s"
	done
	check "$1: by each of them" "$2" "$got"
	case ${4:-none} in
	none) check "$1: no entry" 0 "$(pair_made)" ;;
	all) check "$1: an entry for each" $((2 * FLOWS)) "$(pair_made)" ;;
	*) check "$1: entries of $4 alone" "$(sum "$4")" "$(pair_made)" ;;
	esac
}

# drains NAME LINES [MADE]: the older flows of a server whose weight becomes 0 stay;
# at least MADE entries are made for them, 2 if not given
drains() {
	local before

	windows 3600000 3600000
	before=$(pair_made)
	dr ipvsadm -R <<<"$2"
	result "$1, drained: hold phase" "$(busywait 20 pair_holding; echo $?)"
	pair ping
	check "$1, hold: none broken, none moved" "0 0" \
		"$(sum broken) $(sum moved)"
	check "$1, hold: no entry" "$before" "$(pair_made)"
	result "$1, drained: pin phase" "$(to_pin; echo $?)"
	pair ping
	check_cmp "$1, pin: entries" $(($(pair_made) - before)) -ge "${3:-2}"
	result "$1, drained: merged" "$(to_stable; echo $?)"
	pair ping
	check "$1, merged: none broken, none moved" "0 0" \
		"$(sum broken) $(sum moved)"
}

# passed_over NAME SERVER: new flows go to others, without entries
passed_over() {
	local before mine

	before=$(pair_made)
	mine=$(sum "$2")
	pair open 10
	pair ping
	check "$1, merged: new flows go to others" "0 0 0 $mine" \
		"$(sum failed) $(sum broken) $(sum moved) $(sum "$2")"
	check "$1, merged: no entry for them" "$before" "$(pair_made)"
}

plan 58
load_module
for m in ipip ip6_tunnel sit ip_gre ip6_gre fou fou6; do
	modprobe -q $m
done
setup_net 4
for i in 1 2 3; do
	ip_ns s$i <<-EOF
		link set tunl0 up
		link set sit0 up
		link set ip6tnl0 up
		link set gre0 up
		link set ip6gre0 up
		fou add port 6080 gue
		fou add port 6080 gue -6
	EOF
	ip -6 -n "$(ns s$i)" tunnel change ip6tnl0 mode any
done
pair_clients --timeout 4

serves "own family" "s1 s2 s3 s4" "
	-a -t $SVC4 -r 10.2.0.11:80 -i -w 1
	-a -t $SVC4 -r 10.2.0.12:80 -i -w 1 $GUE4
	-a -t $SVC4 -r 10.2.0.13:80 -i -w 1 $GRE
	-a -t $SVC4 -r 10.2.0.14:80 -g -w 1
	-a -t $SVC6 -r [fd02::11]:80 -i -w 1
	-a -t $SVC6 -r [fd02::12]:80 -i -w 1 $GUE6
	-a -t $SVC6 -r [fd02::13]:80 -i -w 1 $GRE
	-a -t $SVC6 -r [fd02::14]:80 -g -w 1"
drains "GUE" "
	-e -t $SVC4 -r 10.2.0.12:80 -i -w 0 $GUE4
	-e -t $SVC6 -r [fd02::12]:80 -i -w 0 $GUE6"

serves "other family" "s1 s2 s3" "
	-a -t $SVC4 -r [fd02::11]:80 -i -w 1
	-a -t $SVC4 -r [fd02::12]:80 -i -w 1 $GUE6
	-a -t $SVC4 -r [fd02::13]:80 -i -w 1 $GRE
	-a -t $SVC6 -r 10.2.0.11:80 -i -w 1
	-a -t $SVC6 -r 10.2.0.12:80 -i -w 1 $GUE4
	-a -t $SVC6 -r 10.2.0.13:80 -i -w 1 $GRE"
drains "other family, GRE" "
	-e -t $SVC4 -r [fd02::13]:80 -i -w 0 $GRE
	-e -t $SVC6 -r 10.2.0.13:80 -i -w 0 $GRE"

# One address, three ports: that needs masquerading
for i in 1 2 3; do
	lab serve "$(ns s4)" p$i 8$i
done
ip_ns s4 <<-EOF
	route replace default via 10.2.0.10
	route replace default via fd02::10
EOF
serves "ports" "p1 p2 p3" "
	-a -t $SVC4 -r 10.2.0.14:81 -m -w 1
	-a -t $SVC4 -r 10.2.0.14:82 -m -w 1
	-a -t $SVC4 -r 10.2.0.14:83 -m -w 1
	-a -t $SVC6 -r [fd02::14]:81 -m -w 1
	-a -t $SVC6 -r [fd02::14]:82 -m -w 1
	-a -t $SVC6 -r [fd02::14]:83 -m -w 1" all
drains "ports" "
	-e -t $SVC4 -r 10.2.0.14:82 -m -w 0
	-e -t $SVC6 -r [fd02::14]:82 -m -w 0" 0

# All methods in one service
serves "methods" "s1 s2 p2" "
	-a -t $SVC4 -r 10.2.0.11:80 -g -w 1
	-a -t $SVC4 -r 10.2.0.12:80 -i -w 1
	-a -t $SVC4 -r 10.2.0.14:82 -m -w 1
	-a -t $SVC6 -r [fd02::11]:80 -g -w 1
	-a -t $SVC6 -r [fd02::12]:80 -i -w 1
	-a -t $SVC6 -r [fd02::14]:82 -m -w 1" p2
drains "methods, -m" "
	-e -t $SVC4 -r 10.2.0.14:82 -m -w 0
	-e -t $SVC6 -r [fd02::14]:82 -m -w 0" 0
passed_over "methods, -m" p2
drains "methods, -g" "
	-e -t $SVC4 -r 10.2.0.11:80 -g -w 0
	-e -t $SVC6 -r [fd02::11]:80 -g -w 0"
passed_over "methods, -g" s1

lab serve "$(ns dr)" local
serves "local node" "local s2" "
	-a -t $SVC4 -r 127.0.0.1:80 -g -w 1
	-a -t $SVC4 -r 10.2.0.12:80 -g -w 1
	-a -t $SVC6 -r [::1]:80 -g -w 1
	-a -t $SVC6 -r [fd02::12]:80 -g -w 1"
pair reset

# Packets of the director's own client pass LOCAL_OUT.  The address must not be local
# then, or servers would answer themselves.
ip_ns dr <<-EOF
	addr del $VIP4/32 dev lo
	addr del $VIP6/128 dev lo
EOF
client_ns=dr flow_start c4 --host $VIP4 --bind 10.2.0.10 --timeout 4
client_ns=dr flow_start c6 --host $VIP6 --bind fd02::10 --timeout 4
serves "client on the director" "s1 s2" "
	-a -t $SVC4 -r 10.2.0.11:80 -g -w 1
	-a -t $SVC4 -r 10.2.0.12:80 -g -w 1
	-a -t $SVC6 -r [fd02::11]:80 -g -w 1
	-a -t $SVC6 -r [fd02::12]:80 -g -w 1"
pair reset
dr ipvsadm -C
ip -n "$(ns dr)" addr add $VIP4/32 dev lo
flow_start c4 --host $VIP4 --timeout 4

# The same with mh
dr ipvsadm -R <<-EOF
	-A -t $SVC4 -s mh -b mh-port
	-a -t $SVC4 -r 10.2.0.11:80 -i -w 1
	-a -t $SVC4 -r 10.2.0.12:80 -i -w 1 $GUE4
	-a -t $SVC4 -r 10.2.0.13:80 -i -w 1 $GRE
EOF
conns_begin
flow c4 open 20
check "control: mh makes an entry for each flow" 20 "$(conns_new)"
flow c4 reset
dr ipvsadm -C
