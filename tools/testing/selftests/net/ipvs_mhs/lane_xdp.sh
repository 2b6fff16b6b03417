#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 120
# tags: core
# The lane of XDP programs: what it forwards, what goes up and is counted; a program
# that is attached holds the module.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_lane.sh
. "${0%/*}/lib_lane.sh"
need nft ethtool

door=xdp
plan $((LANE_CHECKS + LANE_IDS + 5))
lane_tests

sysctls dr net.ipv4.vs.mhs.lane=1
check "mhsstat check: no device has the program" "[lane-door]" "$(lane_findings)"
lane_open
check "control: mhsstat check: a device has the program" "" "$(lane_findings)"
lane_ids
lane_close
dr ip link set dev eth0 xdpgeneric obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
check "mhsstat check: the program runs in generic mode" "[lane-generic]" \
	"$(lane_findings)"
dr ip link set dev eth0 xdpgeneric off

lane_open
dr ipvsadm -C
check "an attached program holds the module" held \
	"$(rmmod ip_vs_mhs 2>/dev/null || echo held)"
lane_close
check "the module goes when it is detached" "" \
	"$(unload_module; loaded && echo loaded)"
