#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 40
# tags: core few
# The lane at the ingress hook: what it forwards, what goes up and is counted, bad
# input, devices and namespaces that go.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_lane.sh"
need nft

door=ingress
# devices: those that the sysctl names
devices() {
	dr sysctl -n net.ipv4.vs.mhs.ingress
}

# refused VALUE WORDS: an error, which changes nothing
refused() {
	local text

	text=$(dr sysctl -w "net.ipv4.vs.mhs.ingress=$1" 2>&1)
	check "ingress=$1: refused, as before" "$2 eth0" "${text##*: } $(devices)"
}

# other_build: load a lane whose structs are not those of the scheduler
other_build() {
	local ko=${MHS_KO%.ko}_lane.ko

	python3 -IS - "$ko" "$(modinfo -F structs "$ko")" "$work/other.ko" <<-'EOT'
		import sys
		with open(sys.argv[1], "rb") as file:
		    module = file.read()
		structs = int(sys.argv[2].rstrip("U")).to_bytes(4, sys.byteorder)
		with open(sys.argv[3], "wb") as file:
		    file.write(module.replace(structs, bytes(4)))
	EOT
	insmod "$work/other.ko"
}

# lane_on: what sysctl says
lane_on() {
	dr sysctl -w net.ipv4.vs.mhs.lane=1 2>&1 | grep -o "Exec.*\|= 1"
}

plan $((LANE_CHECKS + LANE_REASONS + LANE_UPGRADE + 14))
lane_tests lane_reasons

lane_open
check "the sysctl names the device" eth0 "$(devices)"
refused "eth0 eth9" "No such device"
refused "lo" "Invalid argument"
refused "$(echo eth0{,}{,}{,}{,} eth0)" "Argument list too long"
dr ip link add d1 type dummy
dr sysctl -qw net.ipv4.vs.mhs.ingress="d1,eth0 d1"
check "two devices" "eth0 d1" "$(devices)"
dr ip link set d1 name d2
check "a new name" "eth0 d2" "$(devices)"
dr sysctl -qw net.ipv4.vs.mhs.ingress=d2
dr sysctl -qw net.ipv4.vs.mhs.ingress="d2 eth0"
check "one that goes from the list, and comes again" "eth0 d2" "$(devices)"
dr ip link del d2
check "a device that goes" "eth0" "$(devices)"
lane_close
check "none" "" "$(devices)"
lane_upgrade
dr ipvsadm -C
unload_module
check "the lane goes after the scheduler" "" \
	"$(loaded ip_vs_mhs_lane && echo loaded)"
other_build
load_module
check "a lane of another build: refused" "Exec format error" "$(lane_on)"
check "a lane of another build: lane=0" 0 "$(dr sysctl -n net.ipv4.vs.mhs.lane)"
rmmod ip_vs_mhs_lane
check "control, of the same build" "= 1" "$(lane_on)"
lane_open
lab_stop
netns_del dr
check "the module goes after a namespace that had a lane" "" \
	"$(unload_module; loaded && echo loaded)"
