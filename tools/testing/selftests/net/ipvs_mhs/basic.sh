#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 20
# tags: core few races
# mhs forwards TCP without entries and keeps flows through changes, whatever SYNs a
# stranger sends with their addresses and ports: see strangers.py.

. "${0%/*}/lib.sh"

# forge PHASE: such a SYN for each flow
forge() {
	local flow

	flow c where
	for flow in $reply; do
		echo "10.1.0.2 ${flow%=*}"
	done | raw cl --dst $VIP4 --good --pairs >/dev/null
	flow c ping
	check "none broken by a stranger, $1" "0 0" \
		"$(value broken) $(value moved)"
}

plan 7
load_module
setup_net 4
windows 3600000 3600000
learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3 4)
flow_start c --host $VIP4
flow c open 60
flow c ping
check "flows answered, no entries while stable" "60 0 0" \
	"$(value flows) $(value broken) $(conns)"
weight 1 0
flow c ping
check "none broken by drain" 0 "$(value broken)"
flow c open 30
windows 0 3600000
busywait 20 pinning
flow c ping
windows 0 100
busywait 20 stable
flow c ping
check "none broken after the merge, none moved" "0 0" \
	"$(value broken) $(value moved)"
windows 3600000 3600000
flow c ping
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.12:80
flow c ping
check "none broken by delete" 0 "$(value broken)"
forge held
windows 0 3600000
busywait 20 pinning
forge pinned
dr ipvsadm -C
check "cleared" "" "$(mhs State)"
