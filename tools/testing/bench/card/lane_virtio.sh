#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 120
# The lane of XDP programs on a driver that people have, virtio-net: the machine's two
# cards are one wire, from the router to the director.  And generic XDP, which the
# lane refuses.  make check-release ONLY=lane-xdp runs this.

# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../../selftests/net/ipvs_mhs/lib.sh"
# shellcheck source=../../selftests/net/ipvs_mhs/lib_lane.sh
. "${0%/*}/../../selftests/net/ipvs_mhs/lib_lane.sh"
need nft ethtool

door=virtio

# cards: the names of the machine's cards
cards() {
	local driver

	for driver in /sys/class/net/*/device/driver; do
		[[ $(readlink "$driver") != */virtio_net ]] ||
			basename "${driver%/device/driver}"
	done
}

two_cards() {
	[ "$(cards | wc -l)" -eq 2 ]
}

# lane_net: that of setup_net, but the cards take the place of the director's veth
lane_net() {
	local card

	setup_net 4
	modprobe virtio_net
	busywait 20 two_cards || exit "$KSFT_FAIL"
	mapfile -t card < <(cards)
	ip -n "$(ns rt)" link del vdr
	ip link set "${card[0]}" name vdr netns "$(ns rt)"
	ip link set "${card[1]}" name eth0 netns "$(ns dr)"
	ip_ns rt <<-EOF
		link set vdr master br0 up
	EOF
	host 10 | grep -v "dev lo\|set lo" | ip_ns dr
}

# Generic XDP: no fault, and nothing in the lane
generic() {
	lane_close
	lane_attach xdpgeneric
	lane_flows "generic XDP" Device
	check "generic XDP: none in the lane" 0 "$(lane_new Forwarded)"
	dr ip link set dev eth0 xdpgeneric off
	lane_open
	lane_warm
}

plan $((LANE_CHECKS + 3))
lane_tests generic
