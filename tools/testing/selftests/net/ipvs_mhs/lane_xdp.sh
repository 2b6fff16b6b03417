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
plan $((LANE_CHECKS + 2))
lane_tests

lane_open
dr ipvsadm -C
check "an attached program holds the module" held \
	"$(rmmod ip_vs_mhs 2>/dev/null || echo held)"
lane_close
check "the module goes when it is detached" "" \
	"$(unload_module; loaded && echo loaded)"
