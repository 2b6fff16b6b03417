#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 20
# tags: core few races
# mhs forwards TCP without entries and keeps flows through changes.

. "${0%/*}/lib.sh"

plan 8
load_module
setup_net 4
windows 3600000 3600000
learn dr < <(echo "-A -t $VIP4:80 -s mhs"; add_servers 1 2 3 4)
flow_start c --host $VIP4
flow c open 60
flow c ping
check "flows opened" 60 "$(value flows)"
check "flows answered" 0 "$(value broken)"
check "no entries while stable" 0 "$(entries)"
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
check "none broken after the merge" 0 "$(value broken)"
check "none moved" 0 "$(value moved)"
windows 3600000 3600000
flow c ping
dr ipvsadm -d -t $VIP4:80 -r 10.2.0.12:80
flow c ping
check "none broken by delete" 0 "$(value broken)"
flow c reset
dr ipvsadm -C
check "cleared" "" "$(mhs State)"
