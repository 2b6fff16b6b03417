#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Servers, services, schedulers, namespaces and the module go while packets
# pass; the kernel's own checks say whether that was safe.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3

# each waits for grace periods beside a flood
ROUNDS=30
[ "${KSFT_MACHINE_SLOW:-}" != yes ] || ROUNDS=5

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

# A SYN with ACK begins no flow for mhs, but may for the core, which expires the
# connection of a server of weight 0 then: not one that mhs has just asked for,
# whose timer does not run yet.
made_by_synack() {
	director sysctl -wq net.ipv4.vs.expire_nodest_conn=1 \
		net.ipv4.vs.mhs.hold_ms=100000 net.ipv4.vs.mhs.pin_ms=100000 \
		net.ipv4.vs.mhs.stateless=0
	service mhs -g -t $VIP:80
	at_last 0 conns || return
	ipvs -e -t $VIP:80 -r 10.0.0.12:80 -g -w 0
	at_last transition mhs State || return
	ask synack $VIP 80 40
	at_last '[1-9]*' mhs PinnedEntries || return
	at_last 40 conns
}

expired() {
	# deleted servers lose their connections at once
	ipvs -C
	at_last 0 conns
}

# Numbers that IPVS has no transmitter for, as any user of a namespace can set
unknown_methods() {
	local method

	service mhs -g -u $VIP:80
	for method in 5 6 7 4 3; do
		director python3 "$here/flows.py" method $method $VIP 80 \
			10.0.0.12 || return
		ask blast $VIP 80 200
		add -g 3 -u $VIP:80 && at_last stable mhs State &&
			ask blast $VIP 80 200 &&
			ipvs -d -u $VIP:80 -r 10.0.0.13:80 || return
	done
	service mhs -g -t $VIP:80
	is 's1=* s2=*' ask tcp $VIP 80 60 && ask close
}

# TAINT_WARN
warned() { echo $(($(</proc/sys/kernel/tainted) & 512)); }

unload() {
	ipvs -C
	rmmod ip_vs_mhs && modprobe ip_vs_mhs
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
ktap_set_plan 10
topology
tainted=$(warned)
in_ns "$client" python3 "$here/flows.py" blast $VIP 80 &
result "servers come and go" servers
result "schedulers change" schedulers
result "services come and go" services
result "packets pass afterwards" at_last '[1-9]*' mhs PktStateless
result "unknown forwarding methods do no harm" unknown_methods
result "a SYN with ACK makes connections" made_by_synack
result "they end with their servers" expired
director sysctl -wq net.ipv4.vs.expire_nodest_conn=0 \
	net.ipv4.vs.mhs.hold_ms=500 net.ipv4.vs.mhs.pin_ms=1000 \
	net.ipv4.vs.mhs.stateless=1
result "the kernel has warned of nothing" is "$tainted" warned
# of_module NAME COMMAND...: a test for the module, not for a built-in scheduler
of_module() {
	if [ -n "$unload" ]; then
		result "$@"
	else
		ktap_test_skip "$1"
	fi
}
of_module "the module goes" unload
of_module "the namespace goes" namespace
ktap_finished
