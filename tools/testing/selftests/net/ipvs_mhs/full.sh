#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 25
# memory: 1G
# A service with all the servers that it can have: one more gets no flow until a
# server has gone, also if the log's rate limit swallowed the warning about it.

. "${0%/*}/lib.sh"

readonly FULL=$VIP4:81 MOST=8191
readonly WORD="a service can have $MOST servers"

# full: lines of a service with one server too many
full() {
	local i

	echo "-A -t $FULL -s mhs"
	for ((i = 0; i <= MOST; i++)); do
		echo "-a -t $FULL -r 10.3.$((i / 256)).$((i % 256)):81 -g -w 1"
	done
}

# noisy: lines of many services that warn until each has been heard
noisy() {
	local i

	for ((i = 1; i <= 300; i++)); do
		echo "-A -t $VIP4:$((2000 + i)) -s mhs -p 60"
		echo "-a -t $VIP4:$((2000 + i)) -r 10.2.0.11:80 -g -w 1"
	done
}

servers_are() {
	[ "$(mhs Servers $FULL)" = "$1" ]
}

gone_are() {
	[ "$(mhs Gone $FULL)" = "$1" ]
}

# place: is the place of a server that goes taken by the one too many?
place() {
	dr ipvsadm -d -t $FULL -r 10.3.0.1:81 && busywait 60 gone_are 0
	result "$1: a deleted server is forgotten" $?
	busywait 60 servers_are $MOST
	result "$1: the last one has its place" $? "$(mhs Servers $FULL) servers"
}

plan 9
fresh_module table_size=16381
setup_ns dr
ip_ns dr <<-EOF
	link set lo up
	addr add $VIP4/32 dev lo
EOF
windows 0 100

dmesg -C
full | dr ipvsadm -R
busywait 60 kernel_said "$WORD"
result "one too many is said" $?
check "the others are there" $MOST "$(mhs Servers $FULL)"
place "said"

for _ in 1 2 3 4 5; do
	dr ipvsadm -C
	dmesg -C
	noisy | dr ipvsadm -R
	busywait 60 kernel_said "persistence needs connection entries"
	filled=$?
	full | dr ipvsadm -R
	wait_settled $FULL
	kernel_said "$WORD" || break
done
result "others fill the log" "$filled"
! kernel_said "$WORD"
result "one too many is not said" $?
check "the others are there again" $MOST "$(mhs Servers $FULL)"
place "not said"
