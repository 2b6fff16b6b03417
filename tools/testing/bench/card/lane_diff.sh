#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 3600
# weight: 60
# memory: 2G
# Random and hostile frames through the stack and through the lane: what leaves is
# the same.  MHS_DOOR is xdp or ingress; MHS_FRAMES how many frames are to leave.
# MHS_FORM: the network that the director has, see below; without it one card.
# With MHS_CONTROL the module has that bug, which must be seen; make check-release ONLY=lane builds
# what this needs and runs all.

# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../../selftests/net/ipvs_mhs/lib.sh"
door=${MHS_DOOR:-ingress}
card=${MHS_KO%/*/*}/module-card/card.ko

# from: the device that the clients' packets come by; to: that to the servers; they
# are one, or above these ports, which have the program
from=card0 ports=(card0) diff=()
case ${MHS_FORM:-} in
bond) from=bond0 ports=(bond0) diff=(--cards) ;;
# VLANs: one, another one at the same card, in only, out only, on a bond
vlan) from=card0.7 ;;
vlans) from=card0.7 to=card0.8 ;;
vlan-in) from=card0.7 to=card1 ports+=(card1) ;;
vlan-out) to=card1.8 ports+=(card1) ;;
bond-vlans) from=bond0.7 to=bond0.8 ports=(bond0) ;;
esac
to=${to:-$from}
[[ $from != *.* ]] || diff+=(--tag "${from#*.}")

# servers OPTION ADDRESS METHOD: lines for ipvsadm
servers() {
	local i

	echo "-A $1 $2 -s mhs"
	for i in 11 12 13 14; do
		if [ "$4" = 6 ]; then
			echo "-a $1 $2 -r [fd01::$i]:${2##*:} $3"
		else
			echo "-a $1 $2 -r 10.1.0.$i:${2##*:} $3"
		fi
	done
}

case ${MHS_CONTROL:-} in
generation)
	[ "$door" = ingress ] || plan 19
	[ "$door" != ingress ] || plan 15
	;;
stale) plan 2 ;;
?*) plan 8 ;;
*) plan $((${MHS_FORM:+-19} + 27)) ;;
esac
load_module
setup_ns dr
insmod "$card" || exit $KSFT_FAIL
defer rmmod card
for i in 0 1; do
	ip link set card$i address 02:00:00:00:01:0$i netns "$(ns dr)"
	dr ethtool -K card$i gro off
done
{
	echo "link set lo up"
	if [[ $from = bond0* ]]; then
		echo "link add bond0 type bond mode balance-xor miimon 10" \
			"xmit_hash_policy layer3+4"
		echo "link set card0 master bond0"
		echo "link set card1 master bond0"
		echo "link set bond0 up mtu 1500"
	else
		echo "link set card0 up mtu 1500"
		echo "link set card1 up"
	fi
	for dev in $(printf '%s\n' "$from" "$to" | grep -F . | sort -u); do
		echo "link add link ${dev%.*} name $dev type vlan id ${dev#*.}"
		echo "link set $dev up"
	done
	echo "addr add 10.1.0.2/24 dev $from"
	echo "addr add fd01::2/64 dev $from nodad"
	echo "addr add $VIP4/32 dev lo"
	echo "addr add $VIP6/128 dev lo nodad"
	echo "neigh add 10.1.0.1 lladdr 02:00:00:00:00:01 dev $from"
	echo "neigh add fd01::1 lladdr 02:00:00:00:00:01 dev $from"
	echo "route add default via 10.1.0.1"
	echo "route add default via fd01::1"
	for i in 11 12 13 14; do
		echo "neigh add 10.1.0.$i lladdr 02:00:00:00:00:$i dev $to"
		echo "neigh add fd01::$i lladdr 02:00:00:00:00:$i dev $to"
		[ "$to" = "$from" ] || printf '%s\n' "route add 10.1.0.$i dev $to" \
			"route add fd01::$i dev $to"
	done
	[ "$from $to" != "card0 card0" ] ||
		echo "neigh add 10.1.0.14 lladdr 02:00:00:00:00:34 dev card1"
} | ip_ns dr
forwarding dr
# fragments wait for others that never come: room for all of them
sysctls dr net.ipv4.ipfrag_high_thresh=268435456 \
	net.ipv6.ip6frag_high_thresh=268435456 net.ipv4.vs.mhs.lane=1
learn dr < <(
	for vip in $VIP4 "[$VIP6]"; do
		own=4 other=6
		[ "$vip" = $VIP4 ] || { own=6 other=4; }
		servers -t "$vip:80" "-g" $own
		servers -t "$vip:81" "-i" $own
		servers -t "$vip:82" "-i" $other
		servers -u "$vip:53" "-g" $own
		servers -u "$vip:443" "-i" $own
	done
)
dr sysctl -qw net.ipv4.vs.mhs.quic_ids="$VIP4:443 [$VIP6]:443"
case $door in
ingress) dr sysctl -qw net.ipv4.vs.mhs.ingress=$from ;;
xdp)
	for port in "${ports[@]}"; do
		dr ip link set dev "$port" xdpdrv \
			obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
	done
	;;
esac
result "the door $door is open" $?
# the stack caches the routes, and the module sees that no service is by mark
dr python3 -IS "${0%/*}/lane_diff.py" 3000 "${diff[@]}" --seed 1 \
	>/dev/null
nap 3 # why: two looks of a namespace for services by mark, a second apart
# tell ARGUMENT...: what lane_diff.py tells
tell() {
	report dr python3 -IS "${0%/*}/lane_diff.py" "$@" \
		${MHS_CONTROL:+--control}
}

[[ ${MHS_CONTROL:-} == @(generation|stale) ]] ||
	tell "${MHS_FRAMES:-20000}" "${diff[@]}"
[ -n "${MHS_FORM:-}" ] || [ "${MHS_CONTROL:-generation}" != generation ] ||
	tell 0 --changes --door "$door"
[ -n "${MHS_FORM:-}" ] || [ "${MHS_CONTROL:-stale}" != stale ] || tell 0 --stale
