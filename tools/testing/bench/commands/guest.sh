#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# How long commands take that change many services, and how long until the tables
# have followed; runs in the machine, see commands.py.  guest.sh SERVICES SERVERS ROUNDS
#
# Prints CSV.  The tables have followed when the file that shows them is read: mhs
# builds what is due for who reads, mh builds in the command.

services=$1
servers=$2
rounds=$3

# restore SCHEDULER: lines that make all services
restore() {
	local i j

	for ((i = 1; i <= services; i++)); do
		echo "-A -t 192.0.2.1:$i -s $1"
		for ((j = 1; j <= servers; j++)); do
			echo "-a -t 192.0.2.1:$i -r 10.2.0.$j:80 -g -w 1"
		done
	done
}

# weight WEIGHT: lines that give it to the first server everywhere
weight() {
	local i

	for ((i = 1; i <= services; i++)); do
		echo "-e -t 192.0.2.1:$i -r 10.2.0.1:80 -g -w $1"
	done
}

# timed COMMAND <LINES: a row of CSV
timed() {
	local start=${EPOCHREALTIME/./} took

	in_ns ipvsadm -R
	took=$((${EPOCHREALTIME/./} - start))
	in_ns cat /proc/net/ip_vs_mhs >/dev/null
	echo "$scheduler,$1,$round,$took,$((${EPOCHREALTIME/./} - start))"
}

in_ns() {
	ip netns exec dr "$@"
}

modprobe -q -a ip_vs ip_vs_mh
insmod "$MHS_KO" table_size=65521
mkdir -p "/tmp/commands.$$"
restore mh >"/tmp/commands.$$/mh"
restore mhs >"/tmp/commands.$$/mhs"
weight 0 >"/tmp/commands.$$/drain"
echo "scheduler,command,round,us,built_us"
for ((round = 1; round <= rounds; round++)); do
	for scheduler in mh mhs; do
		ip netns add dr
		in_ns ip link set lo up
		timed restore <"/tmp/commands.$$/$scheduler"
		# why: a service of mhs settles for a second before edits are edits
		sleep 3
		timed drain <"/tmp/commands.$$/drain"
		in_ns ipvsadm -C
		ip netns delete dr
	done
done
rm -r "/tmp/commands.$$"
