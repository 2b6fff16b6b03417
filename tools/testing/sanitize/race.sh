#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 400
# weight: 60
# cpus: 2
# Packets without a pause on one CPU, to all slots of a small table, while the
# table changes again and again on the other.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

CHANGES=400

plan 3
fresh_module table_size=251
setup_net 2
windows 0 1
{ echo "-A -u $VIP4:53 -s mhs"; proto=-u real_lines $VIP4:53 -g 1 2; } |
	dr ipvsadm -R
wait_settled $VIP4:53
bg_ns rt hping3 -q --udp --flood -p 53 $VIP4 >/dev/null 2>&1 &
flood=$!
defer kill $flood
before=$(mhs PktStateless $VIP4:53)
for ((i = 0; i < CHANGES; i++)); do
	echo "-e -u $VIP4:53 -r 10.2.0.11:53 -g -w $((i % 2))"
done | dr ipvsadm -R
result "the servers changed $CHANGES times" $?
check_cmp "packets went on" "$(mhs PktStateless $VIP4:53)" -gt "$before"
kill $flood
dr ipvsadm -C
lab_stop
netns_del cl rt dr s1 s2
busywait 60 try_unload
result "the module goes" $?
