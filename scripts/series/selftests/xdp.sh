#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# An XDP program that asks mhs forwards packets of flows without connections; the
# input hook of netfilter counts those that the stack gets.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
program=$here/lane.bpf.o
need ipvsadm python3 nft ethtool

# xdp NS DEVICE on|off
xdp() {
	case $3 in
	on) ip -n "$1" link set "$2" xdpdrv obj "$program" sec xdp ;;
	off) ip -n "$1" link set "$2" xdpdrv off ;;
	esac
}

# stacked: packets to the service that the stack gets while all flows are used
stacked() {
	director nft reset counters >/dev/null
	ask check >/dev/null
	director nft list counter inet seen requests |
		awk '$1 == "packets" { print $2 }'
}

# went_up REASON: frames that went up to the stack for it
went_up() {
	director awk -v why="$1" '$1 == why { print $2 }' \
		/proc/net/ip_vs_mhs_lane
}

# forwarded WHAT METHOD ADDRESS SERVICE...
forwarded() {
	local what=$1 method=$2 address=$3

	shift 3
	service mhs "$method" "$@"
	result "$what: both servers answer" is 's1=* s2=*' \
		ask tcp "$address" 80 60
	# when the stack has looked up routes and neighbours
	result "$what: the stack gets none" at_last 0 stacked
	result "$what: flows live" is 'alive=60 dead=0 moved=0' ask check
	result "$what: connections" is 0 conns
	result "$what: the statistics count all" at_last 60 counted
}

[ -e "$program" ] || skip "$program"
topology
if ! said=$(xdp "$bridge" v2 on 2>&1); then
	ktap_print_msg "$said"
	skip "the kfunc, in this kernel,"
fi
ktap_print_header
ktap_set_plan 23
# what a sender leaves to the device XDP programs do not see
for ns in "$client" "$s1" "$s2" "$s3" "$director"; do
	in_ns "$ns" ethtool -K eth0 tx off rxvlan off \
		rx-vlan-stag-hw-parse off >/dev/null
done
director nft -f - <<-EOF
	table inet seen {
		counter requests { }
		chain in {
			type filter hook input priority filter;
			ip daddr $VIP counter name requests
			ip6 daddr $VIP6 counter name requests
		}
	}
EOF
result "the program can be attached" xdp "$director" eth0 on
ask tcp $VIP 80 1 >/dev/null
result "without a service frames go up" at_last '[1-9]*' went_up Off
ask close >/dev/null
forwarded "direct routing" -g $VIP -t $VIP:80
result "forwarded frames are counted" at_last '[1-9]*' went_up Forwarded
ipvs -A -f 7 -s wlc
result "control: a service by mark" at_last '[1-9]*' stacked
result "its frames are counted" at_last '[1-9]*' went_up Mark
ipvs -D -f 7
result "control: without it" at_last 0 stacked
ask close >/dev/null
forwarded "IPv6" -g $VIP6 -t "[$VIP6]:80"
ask close >/dev/null
forwarded "tunnel" -i $VIP -t $VIP:80
add -i 3 -t $VIP:80
result "a server comes: flows live" is 'alive=60 dead=0 moved=0' ask check
xdp "$director" eth0 off
result "control: detached" at_last '[1-9]*' stacked
ktap_finished
