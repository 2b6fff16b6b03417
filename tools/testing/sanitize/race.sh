#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 400
# weight: 60
# cpus: 2
# Packets without a pause on one CPU, to all slots of a small table, while the
# table changes again and again on the other.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

LENGTH=60	# seconds
watch=/sys/module/kcsan/parameters/udelay_task
n=0

plan 3
fresh_module table_size=251
setup_net 2
windows 0 1
{ echo "-A -u $VIP4:53 -s mhs"; proto=-u real_lines $VIP4:53 -g 1 2; } |
	dr ipvsadm -R
wait_settled $VIP4:53
# a watch long enough for a packet to meet it
[ ! -e $watch ] || echo 2000 >$watch
bg_ns rt hping3 -q --udp --flood -p 53 $VIP4 >/dev/null 2>&1 &
flood=$!
defer kill $flood
until_more 100 mhs PktStateless $VIP4:53
result "packets come" $?
changes=$(for i in {0..99}; do
	echo "-e -u $VIP4:53 -r 10.2.0.11:53 -g -w $((i % 2))"
done)
before=$(mhs PktStateless $VIP4:53)
stop=$((SECONDS + LENGTH))
while [ $SECONDS -lt $stop ]; do
	dr ipvsadm -R <<<"$changes"
	n=$((n + 100))
done
note "$n changes, $(($(mhs PktStateless $VIP4:53) - before)) packets"
check_cmp "packets went on" "$(mhs PktStateless $VIP4:53)" -gt "$before"
kill $flood
dr ipvsadm -C
lab_stop
netns_del cl rt dr s1 s2
busywait 60 try_unload
result "the module goes" $?
