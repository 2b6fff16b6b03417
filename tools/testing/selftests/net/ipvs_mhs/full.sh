#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 15
# memory: 1G
# A service with all the servers that it can have: one more gets no flow until a
# server has gone.

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

servers_are() {
	[ "$(mhs Servers $FULL)" = "$1" ]
}

gone_are() {
	[ "$(mhs Gone $FULL)" = "$1" ]
}

plan 4
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
dr ipvsadm -d -t $FULL -r 10.3.0.1:81 && busywait 60 gone_are 0
result "a deleted server is forgotten" $?
busywait 60 servers_are $MOST
result "the last one has its place" $? "$(mhs Servers $FULL) servers"
