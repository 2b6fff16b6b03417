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

none_settles() {
	! dr grep -q " settling " /proc/net/ip_vs_mhs
}

# noisy: many services whose flags are edited.  Each holds slots, so it looks at
# its flags once a second, and warns until it has been heard.
noisy() {
	local i

	for ((i = 2001; i <= 2300; i++)); do
		echo "-A -t $VIP4:$i -s mhs"
		echo "-a -t $VIP4:$i -r 10.2.0.11 -g -w 1"
		echo "-a -t $VIP4:$i -r 10.2.0.12 -g -w 1"
	done | dr ipvsadm -R
	busywait 60 none_settles
	for ((i = 2001; i <= 2300; i++)); do
		echo "-E -t $VIP4:$i -s mhs -b flag-3"
		echo "-e -t $VIP4:$i -r 10.2.0.12:$i -g -w 0"
	done | dr ipvsadm -R
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
	windows 3600000 3600000
	noisy
	busywait 60 kernel_said "flag-3"
	filled=$?
	full | dr ipvsadm -R
	wait_settled $FULL
	kernel_said "$WORD" || break
done
windows 0 100
result "others fill the log" "$filled"
! kernel_said "$WORD"
result "one too many is not said" $?
check "the others are there again" $MOST "$(mhs Servers $FULL)"
place "not said"
