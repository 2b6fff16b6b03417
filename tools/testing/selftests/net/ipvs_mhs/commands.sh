#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 120
# weight: 6
# What ipvsadm answers to odd commands, and what is there then: with mhs the same as with
# mh.  And who lists carriers.

. "${0%/*}/lib.sh"

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
		-Ln -t $VIP4:80 --thresholds
	EOF
}

# persistent: the most that the list of persistent connections counts of a server
persistent() {
	dr ipvsadm -Ln -t $VIP4:80 --persistent-conn |
		awk '$1 == "->" && $2 ~ /:80$/ { print $4 }' | sort -n | tail -n 1
}

# answers SCHEDULER: status and words of each, and what is there in the end, as if it
# were called mh
answers() {
	local line

	dr ipvsadm -C
	dr ipvsadm -R <<-EOF
		-A -t $VIP4:80 -s $1
		-a -t $VIP4:80 -r 10.2.0.11:80 -g -w 1
		-a -t $VIP4:80 -r 10.2.0.12:80 -g -w 1
	EOF
	while read -r line; do
		echo "ipvsadm $line"
		# shellcheck disable=SC2086 # a command
		dr ipvsadm $line 2>&1
		echo "status $?"
	done < <(odd "$1") >"$work/answers"
	dr ipvsadm -S -n | sort >>"$work/answers"
	sed -E "s/(-s|80) $1\\b/\\1 mh/" "$work/answers"
}

plan 4
load_module
setup_ns dr
# servers must be in reach
ip_ns dr <<-EOF
	link set lo up
	link add eth0 type dummy
	addr add 10.2.0.10/24 dev eth0
	addr add fd02::10/64 dev eth0 nodad
	link set eth0 up
EOF

answers mh >"$work/of.mh"
check "control: mh: no server has a persistent connection" 0 "$(persistent)"
answers mhs >"$work/of.mhs"
check "the list of persistent connections counts carriers" 1 "$(persistent)"
check "odd commands: as with mh" "" "$(diff "$work/of.mh" "$work/of.mhs")"
check_cmp "odd commands: some are refused" \
	"$(grep -c "^status [^0]" "$work/of.mhs")" -ge 7
dr ipvsadm -C
