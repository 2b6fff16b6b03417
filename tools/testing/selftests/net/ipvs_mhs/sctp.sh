#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 50
# tags: core
# SCTP: an INIT begins a flow, other packets belong to an older one.  That ABORT and
# SHUTDOWN make no entry: the fuzzer of the packet path.

# shellcheck disable=SC2034 # for lib_pair.sh
PORT=80 proto=--sctp-service

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

stay() {
	check "$1: associations stay" "0 0" "$(sum broken) $(sum moved)"
}

# associations: on all servers; ends: none is left
associations() {
	local i

	for i in 1 2 3 4; do
		in_ns s$i tail -n +2 /proc/net/sctp/assocs
	done | wc -l
}

ends() {
	[ "$(associations)" -eq 0 ]
}

plan 22
modprobe -q sctp
[ -e /proc/net/sctp ] || skip_all "no SCTP in this kernel"
load_module
setup_net 4
# Idle associations would send HEARTBEATs, which make entries in the pin phase
sysctls cl net.sctp.hb_interval=3600000
for i in 1 2 3 4; do
	sysctls s$i net.sctp.hb_interval=3600000
	lab serve_sctp "$(ns s$i)" s$i $PORT $VIP4 $VIP6
done
windows 3600000 3600000
pair_services "1 2 3" mhs
pair_clients --sctp --timeout 6
pair open 30
pair ping
check "associations opened" "60 0 0" \
	"$(sum flows) $(sum broken) $(sum failed)"
check_cmp "s1 has some" "$(sum s1)" -gt 5
check "stable: no entry" "0 0" "$(conns) $(pair_made)"
check_cmp "stable: packets without entry" "$(pair_total PktStateless)" -ge 180

# One server comes, another is drained
pair_edit -a 4 -g
pair_edit -e 1 -g -w 0
busywait 20 pair_holding
result "hold phase" $?
pair ping
stay "hold"
check "hold: no entry" 0 "$(pair_made)"
pair open 20
check "hold: new associations" "100 0" "$(sum flows) $(sum failed)"
pair ping
stay "hold, with new ones"
check_cmp "hold: those of unstable slots have an entry" "$(pair_made)" -gt 4
check "hold: made for INIT" "$(pair_total NewEntries)" "$(pair_made)"
mine=$(sum s4)
check_cmp "hold: the new server has some" "$mine" -gt 2
to_pin
result "pin phase" $?
pair ping
stay "pin"
check_cmp "pin: entries" "$(pair_total PinnedEntries)" -gt 5
to_stable
result "merged" $?
pair ping
stay "merged"
check "merged: the new server has its own" "$mine" "$(sum s4)"
check "associations, at the servers" 100 "$(associations)"
pair reset
result "ABORT ends them" "$(busywait 10 ends; echo $?)"

# orderly, on stable slots
pair open 5
pair close
result "SHUTDOWN ends them" "$(busywait 10 ends; echo $?)"
dr ipvsadm -C

# The same with mh
conns_begin
pair_services "1 2 3" mh -b mh-port
pair open 10
check "control: mh makes an entry for each" 20 "$(conns_new)"
pair reset
dr ipvsadm -C
