#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 20
# memory: 1G
# What ipvsadm answers to odd commands, and what is there then: with mhs the same as with
# mh.  And who lists carriers.  A service with all the servers that it can have: one more
# gets no flow until a server has gone.

. "${0%/*}/lib.sh"

readonly FULL=$VIP4:1001 MOST=8191	# that of many_services

# odd SCHEDULER: commands of which the scheduler hears, one a line, with a service and two
# servers there; all others are the core's alone
odd() {
	cat <<-EOF
		-A -t $VIP4:80 -s $1
		-A -t $VIP4:82 -s $1 -p 0
		-A -t $VIP4:83 -s $1 -o
		-A -t $VIP4:84 -s $1 --pe sip
		-A -t $VIP4:85 -s $1 -b no-such-flag
		-E -t $VIP4:99 -s $1
		-E -t $VIP4:80 -s $1 -p 60 -M 255.255.0.0
		-E -t $VIP4:80 -s $1
		-a -t $VIP4:80 -r 10.2.0.11:80 -g
		-a -t $VIP4:80 -r 10.2.0.13:80 -g -w -1
		-a -t $VIP4:80 -r 10.2.0.13:80 -g -w 2147483647
		-a -t $VIP4:80 -r 10.2.0.15 -m -x 9 -y 5
		-a -t $VIP4:80 -r [fd02::11]:80 -g
		-a -t $VIP4:80 -r [fd02::11]:80 -i
		-a -t $VIP4:80 -r 127.0.0.1:80 -g
		-e -t $VIP4:80 -r 10.2.0.99:80 -g -w 2
		-e -t $VIP4:80 -r 10.2.0.12:80 -i -w 2
		-e -t $VIP4:80 -r 10.2.0.12:80 -g -w 0
		-d -t $VIP4:80 -r 10.2.0.99:80
		-d -t $VIP4:80 -r 10.2.0.12:80
		-d -t $VIP4:80 -r 10.2.0.12:80
		-Z -t $VIP4:80
	EOF
}

# answers SCHEDULER: status and words of each, and what is there in the end, as if it
# were called mh; then the most that the list of persistent connections counts of a server
answers() {
	local line

	dr ipvsadm -C
	dr ipvsadm -R < <(echo "-A -t $VIP4:80 -s $1"; add_servers 1 2)
	while read -r line; do
		# shellcheck disable=SC2086 # a command
		dr ipvsadm $line 2>&1
		echo "$line: status $?"
	done < <(odd "$1") >"$work/answers"
	dr ipvsadm -S -n | sort >>"$work/answers"
	sed -E "s/(-s|80) $1\\b/\\1 mh/" "$work/answers" >"$work/of.$1"
	carriers=$(dr ipvsadm -Ln -t $VIP4:80 --persistent-conn |
		awk '$1 == "->" && $2 ~ /:80$/ { print $4 }' | sort -n | tail -n 1)
}

# counts_are SERVERS GONE: listed, and deleted but not forgotten
counts_are() {
	[ "$(mhs Servers $FULL) $(mhs Gone $FULL)" = "$*" ]
}

plan 7
fresh_module table_size=16381
setup_ns dr
# servers must be in reach
ip_ns dr <<-EOF
	link set lo up
	link add eth0 type dummy
	addr add 10.2.0.10/24 dev eth0
	addr add fd02::10/64 dev eth0 nodad
	link set eth0 up
EOF
answers mh
check "control: mh: no server has a persistent connection" 0 "$carriers"
answers mhs
check "the list of persistent connections counts carriers" 1 "$carriers"
check "odd commands: as with mh" "" "$(diff "$work/of.mh" "$work/of.mhs")"
check_cmp "odd commands: some are refused" \
	"$(grep -c "status [^0]" "$work/of.mhs")" -ge 7

dr ipvsadm -C
windows 0 100
dmesg -C
many_services 1 $((MOST + 1)) | dr ipvsadm -R
busywait 60 kernel_said "a service can have $MOST servers"
result "one too many is said" $?
check "the others are there" $MOST "$(mhs Servers $FULL)"
dr ipvsadm -d -t $FULL -r 10.2.1.1:80
busywait 60 counts_are $MOST 0
result "a deleted server is forgotten, and the last one has its place" $?
