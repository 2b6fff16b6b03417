#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 120
# tags: core
# The lane of XDP programs: what it forwards, what goes up and is counted; a program
# that is attached holds the lane's module, and not the scheduler.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_lane.sh"
need nft ethtool

door=xdp
plan $((LANE_CHECKS + LANE_UPGRADE + 7))
lane_tests

sysctls dr net.ipv4.vs.mhs.lane=1
check "mhsstat check: no device has the program" "[lane-door]" "$(lane_findings)"
lane_open
check "control: mhsstat check: a device has the program" "" "$(lane_findings)"
lane_close
dr ip link set dev eth0 xdpgeneric obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
check "mhsstat check: the program runs in generic mode" "[lane-generic]" \
	"$(lane_findings)"
dr ip link set dev eth0 xdpgeneric off

lane_upgrade
dr ipvsadm -C
sysctls dr net.ipv4.vs.mhs.lane=0
check "mhsstat check: a program, and lane=0" "[lane-off]" "$(lane_findings)"
busywait 20 try_unload ip_vs_mhs
check "an attached program does not hold the scheduler" 0 $?
check "an attached program holds the lane" held \
	"$(rmmod ip_vs_mhs_lane 2>/dev/null || echo held)"
lane_close
check "the lane goes when it is detached" "" \
	"$(unload_module ip_vs_mhs_lane; loaded ip_vs_mhs_lane && echo loaded)"
