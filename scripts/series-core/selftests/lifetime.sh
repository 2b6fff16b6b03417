#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Servers, services, schedulers, namespaces and the module go while packets
# pass; the kernel's own checks say whether that was safe.
# timeout: 240

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3

ROUNDS=${ROUNDS:-30}

servers() {
	local i

	service mhs -g -u $VIP:80
	for ((i = 0; i < ROUNDS; i++)); do
		add -g 3 -u $VIP:80 && ipvs -e -u $VIP:80 -r 10.0.0.12:80 -i &&
			ipvs -d -u $VIP:80 -r 10.0.0.13:80 &&
			ipvs -e -u $VIP:80 -r 10.0.0.12:80 -g || return
	done
}

schedulers() {
	local i

	for ((i = 0; i < ROUNDS; i++)); do
		ipvs -E -u $VIP:80 -s wlc && ipvs -E -u $VIP:80 -s mhs || return
	done
}

services() {
	local i

	for ((i = 0; i < ROUNDS; i++)); do
		ipvs -C && ipvs -A -u $VIP:80 -s mhs && add -g 1 -u $VIP:80 &&
			add -g 2 -u $VIP:80 || return
	done
}

unload() {
	local module

	ipvs -C
	module=$(modinfo -n ip_vs_mhs 2>/dev/null)
	rmmod ip_vs_mhs && insmod "${MHS_KO:-$module}"
}

namespace() {
	service mhs -g -u $VIP:80
	# the services, and a deleted server, go with it
	ipvs -d -u $VIP:80 -r 10.0.0.12:80
	cleanup_ns "$director"
	unused() { [ "$(awk '$1 == "ip_vs_mhs" { print $3 }' /proc/modules)" = 0 ]; }
	slowwait 20 unused
}

ktap_print_header
ktap_set_plan 6
topology
in_ns "$client" python3 "$here/flows.py" blast $VIP 80 &
traffic=$!
result "servers come and go" servers
result "schedulers change" schedulers
result "services come and go" services
result "packets pass afterwards" at_last '[1-9]*' mhs PktStateless
result "the module goes" unload
result "the namespace goes" namespace
kill $traffic
finish
