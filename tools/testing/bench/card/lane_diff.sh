#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 3600
# weight: 60
# memory: 2G
# Random and hostile frames through the stack and through the lane: what leaves is
# the same.  MHS_DOOR is xdp or ingress; MHS_FRAMES how many frames are to leave.
# With MHS_CONTROL the module has that bug, which must be seen; make check-lane builds
# what this needs and runs all.

# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../../selftests/net/ipvs_mhs/lib.sh"
door=${MHS_DOOR:-ingress}
card=${MHS_KO%/*/*}/module-card/card.ko

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
?*) plan 7 ;;
*) plan 25 ;;
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
	echo "link set card0 up mtu 1500"
	echo "link set card1 up"
	echo "addr add 10.1.0.2/24 dev card0"
	echo "addr add fd01::2/64 dev card0 nodad"
	echo "addr add $VIP4/32 dev lo"
	echo "addr add $VIP6/128 dev lo nodad"
	echo "neigh add 10.1.0.1 lladdr 02:00:00:00:00:01 dev card0"
	echo "neigh add fd01::1 lladdr 02:00:00:00:00:01 dev card0"
	echo "route add default via 10.1.0.1"
	echo "route add default via fd01::1"
	for i in 11 12 13 14; do
		echo "neigh add 10.1.0.$i lladdr 02:00:00:00:00:$i dev card0"
		echo "neigh add fd01::$i lladdr 02:00:00:00:00:$i dev card0"
	done
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
case $door in
ingress) dr sysctl -qw net.ipv4.vs.mhs.ingress=card0 ;;
xdp)
	dr ip link set dev card0 xdpdrv obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
	;;
esac
result "the door $door is open" $?
# the stack caches the routes, and the module sees that no service is by mark
dr python3 -IS "${0%/*}/lane_diff.py" 3000 --seed 1 >/dev/null
nap 3 # why: two looks of a namespace for services by mark, a second apart
[ "${MHS_CONTROL:-}" = generation ] ||
	report dr python3 -IS "${0%/*}/lane_diff.py" "${MHS_FRAMES:-20000}" \
		${MHS_CONTROL:+--control}
[ "${MHS_CONTROL:-generation}" != generation ] ||
	report dr python3 -IS "${0%/*}/lane_diff.py" 0 --changes \
		--door "$door" ${MHS_CONTROL:+--control}
