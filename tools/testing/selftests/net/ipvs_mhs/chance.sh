#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1800
# weight: 30
# The second chance: with the program on the servers no flow breaks when servers are
# drained, deleted and added, twice in a row, and with SYN cookies, though the
# director makes no entry; clients of a dead server are reset at once.  Without the
# program the same changes break flows.  Kernels without BTF get the program without
# what needs that; chance_forged.sh is about the rest.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"
# shellcheck source=lib_chance.sh
. "${0%/*}/lib_chance.sh"

# of_s1: flows of s1, into $mine
of_s1() {
	pair ping
	mine=$(sum s1)
}

# cable up | down: of s1
cable() {
	ip -n "$(ns rt)" link set vs1 "$1"
}

# found ARGUMENTS: the status of check on s2, and how often it says $pattern
found() {
	on s2 check "$@"
	echo "$? $(grep -c "$pattern" "$work/said.s2")"
}

# listed [SERVICE...]: the services with the second chance
listed() {
	dr sh -c "echo '$*' >/proc/sys/net/ipv4/vs/mhs/second_chance" 2>/dev/null
}

plan 38
btf=""
[ -e /sys/kernel/btf/vmlinux ] || btf=-without-btf
program now $btf
cp -r "$work/now" "$work/next"
echo >>"$work/next/chance.bpf.o" # another file of the same program
chance_net

# Without it
pair open 60
pair ping
both -e 1 0
pair ping
check_cmp "control: without the program a drain breaks flows" \
	"$(sum broken)" -gt 0
pair reset
both -e 1 1

# Set while all is well
tell now
check "the servers are told" 0 $?
on s1 check
check "check is quiet" "0 " "$? $(<"$work/said.s1")"
on s1 show
check "the tables are the director's" \
	"$(mhs CandidatePrint "$SVC4") $(mhs CandidatePrint "$SVC6")" \
	"$(sed -n 's/.*CandidatePrint \([0-9a-f]*\).*/\1/p' "$work/said.s1" |
		paste -sd ' ')"
pair open 60
unbroken "stable"
count
check_cmp "packets of flows are kept" "$kept" -gt 0
check "none is sent on" "0 0" "$sent $refused"

# Drain, delete, add again.  The servers are told before a slot changes again, not of
# the last change.
both -e 1 0
unbroken "drain"
count
check_cmp "drain: packets are sent on" "$sent" -gt 0
pair bulk 20000 1
unbroken "uploads in full frames"
pair open 30
both -d 1
unbroken "delete"
tell now
pair open 30
both -a 1 1
unbroken "added again"
count
check "packets of live flows are never refused" 0 "$refused"
pair reset

# Two changes in a row, and SYN cookies.  Servers in one kernel share its secret: while
# about as many bytes went as came, an ACK has a cookie that all of them take for theirs.
for s in $servers; do
	sysctls "$s" net.ipv4.tcp_syncookies=2
done
pair open 60
pair bulk 300 1
both -e 1 0
tell now
pair open 30
pair bulk 300 1
both -e 2 0
tell now
tell now # as a restart of the unit does
unbroken "two changes, SYN cookies"
pair open 30
pair bulk 300 1
both -e 1 1
unbroken "then the first one is back"
pair reset
both -e 2 1
tell now
for s in $servers; do
	sysctls "$s" net.ipv4.tcp_syncookies=1
done

# A dead server
pair open 40
of_s1
both -e 1 0
cable down
pair ping 1
check "control: flows of a dead server hang" "$mine 0" "$(sum broken) $(sum rst)"
pair reset
cable up
both -e 1 1
pair open 40
of_s1
check_cmp "the server is back" "$mine" -gt 0
both -e 1 0
cable down
servers="s2 s3" tell now --dead 10.2.0.11 --dead fd02::11
pair ping 1
check "marked as dead: its flows, and no others, are reset" "$mine $mine" \
	"$(sum broken) $(sum rst)"
servers="s2 s3" tell now
on s2 show
check "a dead server stays dead when another change is told" 1 \
	"$(grep -c "^dead: 10.2.0.11" "$work/said.s2")"
pair reset
cable up
both -e 1 1
tell now
on s2 show
check "until it is back" 0 "$(grep -c "^dead: 10.2.0.11" "$work/said.s2")"

# What check finds
in_ns s2 tc filter del dev eth0 ingress pref 4900
pattern="^error: the program is not attached to eth0"
check "check finds that the program is detached" "1 1" "$(found)"
ip -n "$(ns s2)" link del mhs-chance4
tell now
pattern=.
check "its remedy mends it, and a tunnel that is another now" "0 0" "$(found)"
both -e 3 0
dr ipvsadm -S -n >"$work/services"
pattern="^error: .*: what is set is old"
check "check finds an old list" "1 2" "$(found --servers "$work/services")"

# Another program, under load, while packets are sent on; and the way back
both -e 3 1
pair open 40
both -e 1 0
pair busy 1
flow_send c4 busy 600
flow_send c6 busy 600
tell next
check "another program takes over" 0 $?
flow c4 stop
reply4=$reply
flow c6 stop
check "another program: none broken, none moved" "0 0" \
	"$(sum broken) $(sum moved)"
count
check_cmp "another program: packets are sent on" "$sent" -gt 0
both -e 1 1
on s1 set --servers "$work/services" --service "$SVC4" --table-size 65521 \
	--table-program "$built/mhs_table" \
	--program "$work/next/chance.bpf.o"
on s1 show
check "one of the services, a large table" "1 1" "$(grep -c slots \
	"$work/said.s1") $(grep -c "65521 slots" "$work/said.s1")"
for s in $servers; do
	on "$s" clear
done
check "clear leaves no tunnel, no filter, no program" "" \
	"$(in_ns s1 ip -br link show | grep -o "mhs-chance."
	in_ns s1 tc qdisc show dev eth0 | grep clsact
	ls -d /sys/fs/bpf/real_server* 2>/dev/null)"
unbroken "after the way back"

# Two directors that disagree.  Each change here is a packet's way from one to the other:
# no server is told of it.
pair reset
both -e 2 5
dr ipvsadm -S -n >"$work/other"
both -e 2 1
tell next
both -e 2 5
pair open 60
both -e 2 1
pair ping
check_cmp "control: with the list of one of two directors flows break" \
	"$(sum broken)" -gt 0
pair reset
tell next --servers "$work/other"
both -e 2 5
pair open 60
both -e 2 1
unbroken "directors that disagree, one way"
pair open 60
both -e 2 5
unbroken "and the other way"
both -e 2 1
for s in $servers; do
	on "$s" clear
done

# The director's list of services
phases() {
	echo "$(mhs State "$SVC4") $(mhs State "$SVC6")"
}

listed "$SVC4 nonsense"
check "a wrong list is refused, and changes nothing" "1 $SVC4 $SVC6" \
	"$? $(dr cat /proc/sys/net/ipv4/vs/mhs/second_chance)"
listed "$SVC4"
change -e 1 0
check "a service that is listed no more has a transition, the other one none" \
	"stable transition" "$(phases)"
change -e 1 1
listed "$SVC6" "$SVC4"
change -e 1 0
check "with it again a change is over at once" "stable stable" "$(phases)"
dr ipvsadm -e -t "$SVC4" -r 10.2.0.13:80 -m
change -e 1 1
check "with a server by masquerading there is a transition" \
	"transition stable" "$(phases)"
kernel_said "$SVC4: the second chance is for"
check "the log says so" 0 $?

# Each kind of packet, and hostile ones
packets now 20000 ${btf#-}
