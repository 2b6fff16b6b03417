#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What each kind of service costs in entries and packets by kind, mh beside
# mhs.  Prints a table, asserts nothing.  Runs in the machine: make bench BENCH=cases.

case ${1:-} in
-h | --help)
	echo "usage: cases.sh (in the machine, see make bench BENCH=cases)"
	exit 0
	;;
esac

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "$(dirname "$0")/../selftests/net/ipvs_mhs/lib.sh"

readonly FLOWS=60 MARK=9 PORT=80
wanted=(PktStateless PktOld PktCandidate PktTracked
	NewEntries PinnedEntries)
layout="%-26s %-5s %8s %8s %8s %8s %8s %8s %8s\n"

# servers SERVICE METHOD WEIGHT1: of a service, three of them
servers() {
	local i w=$3

	for i in 1 2 3; do
		if [[ $1 = *\[* ]]; then
			echo "-a $1 -r [fd02::1$i]:$PORT $2 -w $w"
		else
			echo "-a $1 -r 10.2.0.1$i:$PORT $2 -w $w"
		fi
		w=1
	done
}

# line NAME SCHEDULER: what has happened so far
line() {
	local c values=()

	for c in "${wanted[@]}"; do
		if [ "$2" = mhs ]; then
			values+=("$(mhs "$c" "$key")")
		else
			values+=("-")
		fi
	done
	# shellcheck disable=SC2059
	printf "$layout" "$1" "$2" "$(conns)" "${values[@]}"
}

# one NAME HOST SERVICE METHOD: flows, then the first server is drained
one() {
	local what=$1 host=$2 service=$3 method=$4 sched

	for sched in mh mhs; do
		dr ipvsadm -C
		# entries of the case before end with their flows
		dr sysctl -qw net.ipv4.vs.expire_nodest_conn=1
		{
			if [ $sched = mh ]; then
				echo "-A $service -s mh -b mh-port"
			else
				echo "-A $service -s mhs"
			fi
			servers "$service" "$method" 1
		} | dr ipvsadm -R
		key=${service#* }
		[ $sched = mh ] || wait_settled "$key"
		dr sysctl -qw net.ipv4.vs.mhs.hold_ms=3600000 \
			net.ipv4.vs.mhs.pin_ms=3600000
		flow_start "c$sched" --host "$host" --timeout 5
		flow "c$sched" open $FLOWS >/dev/null
		flow "c$sched" ping >/dev/null
		line "$what" $sched
		servers "$service" "$method" 0 | head -n 1 | sed 's/^-a/-e/' |
			dr ipvsadm -R
		flow "c$sched" ping >/dev/null
		[ $sched = mh ] || line "  drained, held" $sched
		dr sysctl -qw net.ipv4.vs.mhs.hold_ms=0
		[ $sched = mh ] || busywait 20 pinning
		flow "c$sched" ping >/dev/null
		line "  drained, pinned" $sched
		flow "c$sched" reset >/dev/null
		flow_end "c$sched"
		dr ipvsadm -C
		busywait 30 no_conns || note "entries of an earlier case remain"
	done
}

pinning() {
	[ "$(mhs Pin "$key")" -gt 0 ]
}

no_conns() {
	[ "$(conns)" -eq 0 ]
}

load_module
for m in ipip ip6_tunnel sit; do
	modprobe -q $m
done
setup_net 3
for i in 1 2 3; do
	ip_ns s$i <<-EOF
		rule add from 10.2.0.1$i lookup 100
		route add default via 10.2.0.10 table 100
	EOF
done
echo "# $FLOWS TCP flows each, one question a flow and step"
# shellcheck disable=SC2059
printf "$layout" case by entries stateless old candidate tracked new pinned
one "direct routing, IPv4" $VIP4 "-t $VIP4:80" -g
one "direct routing, IPv6" $VIP6 "-t [$VIP6]:80" -g
one "IPIP tunnel" $VIP4 "-t $VIP4:80" -i
in_ns dr nft -f - <<-EOF
	table ip mhs {
		chain pre {
			type filter hook prerouting priority -150
			ip daddr $VIP4 tcp dport 80 meta mark set $MARK
		}
	}
EOF
one "firewall mark" $VIP4 "-f $MARK" -g
