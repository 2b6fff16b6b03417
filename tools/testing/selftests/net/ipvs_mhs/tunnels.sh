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
# servers have addresses of the family of the service, or of the other one
family=own

# real MODE WEIGHT NUMBER[:PORT] METHOD: lines of ipvsadm for one of both services;
# METHOD: -g, -i, -m, gue or gre; local: the director itself
real() {
	local n=${3%:*} port=80 how4=$4 how6=$4 real4 real6

	[[ $3 != *:* ]] || port=${3#*:}
	real4="10.2.0.1$n:$port" real6="[fd02::1$n]:$port"
	case $4 in
	gue) # IPv6 wants a checksum
		how4="-i --tun-type gue --tun-port 6080" how6="$how4 --tun-csum" ;;
	gre) how4="-i --tun-type gre" how6=$how4 ;;
	local) real4=127.0.0.1:80 real6='[::1]:80' how4=-g how6=-g ;;
	esac
	real4+=" $how4 -w $2" real6+=" $how6 -w $2"
	if [ $family = own ]; then
		printf -- "$1 -t %s -r %s\n" "$SVC4" "$real4" "$SVC6" "$real6"
	else
		printf -- "$1 -t %s -r %s\n" "$SVC4" "$real6" "$SVC6" "$real4"
	fi
}

# serves NAME "SERVERS" ENTRIES "NUMBER METHOD"...: make both services, with these
# servers, of which those answer; ENTRIES: none, all, or of that server alone
serves() {
	local s got=""

	pair reset
	dr ipvsadm -C
	learn dr < <(
		printf -- "-A -t %s -s mhs\n" "$SVC4" "$SVC6"
		for s in "${@:4}"; do
			# shellcheck disable=SC2086
			real -a 1 $s
		done
	)
	pair open $FLOWS
	pair ping
	for s in $2; do
		[ "$(reply=$reply4 value "$s")" -eq 0 ] ||
			[ "$(value "$s")" -eq 0 ] || got+=" $s"
	done
	check "$1: served, by each of them" "$((2 * FLOWS)) 0 0 $2" \
		"$(sum flows) $(sum broken) $(sum failed)$got"
	case $3 in
	none) check "$1: no entry" 0 "$(pair_made)" ;;
	all) check "$1: an entry for each" $((2 * FLOWS)) "$(pair_made)" ;;
	*) check "$1: entries of $3 alone" "$(sum "$3")" "$(pair_made)" ;;
	esac
}

# drains NAME MADE NUMBER METHOD: the older flows of a server whose weight becomes 0
# stay; at least MADE entries are made for them
drains() {
	local before

	windows 3600000 3600000
	before=$(pair_made)
	real -e 0 "${@:3}" | dr ipvsadm -R
	busywait 20 pair_holding
	result "$1, drained: hold phase" $?
	pair ping
	check "$1, hold: none broken, none moved, no entry" "0 0 0" \
		"$(sum broken) $(sum moved) $(($(pair_made) - before))"
	to_pin
	result "$1, drained: pin phase" $?
	pair ping
	check_cmp "$1, pin: entries" $(($(pair_made) - before)) -ge "$2"
	to_stable
	result "$1, drained: merged" $?
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
	check "$1, merged: new flows go to others, without entries" \
		"0 0 0 $mine $before" "$(sum failed) $(sum broken) $(sum moved) $(
		sum "$2") $(pair_made)"
}

plan 44
load_module
modprobe -q -a ipip ip6_tunnel sit ip_gre ip6_gre fou fou6
setup_net 4
for i in 1 2 3; do
	printf '%s\n' "link set "{gre0,ip6gre0}" up" "fou add port 6080 gue"{," -6"} |
		ip_ns s$i
done
pair_clients --timeout 4

serves "own family" "s1 s2 s3 s4" none "1 -i" "2 gue" "3 gre" "4 -g"
drains "GUE" 2 2 gue
family=other
serves "other family" "s1 s2 s3" none "1 -i" "2 gue" "3 gre"
drains "other family, GRE" 2 3 gre
family=own

# One address, three ports: that needs masquerading
for i in 1 2 3; do
	lab serve "$(ns s4)" p$i 8$i
done
ip_ns s4 <<-EOF
	route replace default via 10.2.0.10
	route replace default via fd02::10
EOF
serves "ports" "p1 p2 p3" all "4:81 -m" "4:82 -m" "4:83 -m"
drains "ports" 0 4:82 -m

# All methods in one service
serves "methods" "s1 s2 p2" p2 "1 -g" "2 -i" "4:82 -m"
drains "methods, -m" 0 4:82 -m
passed_over "methods, -m" p2
drains "methods, -g" 2 1 -g
passed_over "methods, -g" s1

lab serve "$(ns dr)" local
serves "local node" "local s2" none "0 local" "2 -g"
pair reset

# Packets of the director's own client pass LOCAL_OUT.  The address must not be local
# then, or servers would answer themselves.
ip_ns dr <<-EOF
	addr del $VIP4/32 dev lo
	addr del $VIP6/128 dev lo
EOF
client_ns=dr flow_start c4 --host $VIP4 --bind 10.2.0.10 --timeout 4
client_ns=dr flow_start c6 --host $VIP6 --bind fd02::10 --timeout 4
serves "client on the director" "s1 s2" none "1 -g" "2 -g"
pair reset
dr ipvsadm -C
