#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 130
# tags: core
# names=: the module answers for another scheduler's name, where that is free,
# for front ends that do not know mhs; by a line in modprobe.d, too, and on a
# director that has the other scheduler's module loaded.

. "${0%/*}/lib.sh"
# its file, which modprobe is given in other places, too
: "${MHS_KO:=$(modinfo -F filename ip_vs_mhs)}"

# reload NAMES: the module with other ones
reload() {
	dr ipvsadm -C
	unload_module
	insmod "$MHS_KO" ${1:+names=$1}
}

# service SCHEDULER [ARGUMENTS]: anew, with three servers
service() {
	dr ipvsadm -C
	{ echo "-A -t $VIP4:80 -s $*"; add_servers 1 2 3; } | dr ipvsadm -R
}

# is_mhs: does mhs run the service?
is_mhs() {
	[ -n "$(mhs State)" ]
}

# free_name: a name that front ends know and the kernel does not have.  Where
# schedulers are modules any will do, mh first: its file is there.
free_name() {
	local name

	for name in mh sh dh sed; do
		unload_module ip_vs_$name
		reload mhs,$name
		service $name 2>/dev/null
		if is_mhs; then
			echo $name
			return
		fi
	done
}

# modules NAME...: of the kernel's, those that modprobe finds when the kernel
# calls it, and ours if it is named
modules() {
	local dir name

	dir=$work/root/lib/modules/$(uname -r)
	rm -rf "$dir"
	mkdir -p "$dir"
	for name in "$@"; do
		if [ "$name" = ip_vs_mhs ]; then
			cp "$MHS_KO" "$dir"
		else
			cp "$(modinfo -F filename "$name")" "$dir"
		fi
	done
	touch "$dir/modules.order" "$dir/modules.builtin"{,.modinfo}
	depmod -b "$work/root"
}

# modprobe_here LINE...: what the kernel calls has these lines for its modprobe.d
modprobe_here() {
	rm -rf "$work/modprobe.d"
	mkdir "$work/modprobe.d"
	printf '%s\n' "$@" >"$work/modprobe.d/ip_vs_mhs.conf"
	cat >"$work/modprobe" <<-EOF
		#!/bin/sh
		MODPROBE_OPTIONS="-C $work/modprobe.d -d $work/root"
		export MODPROBE_OPTIONS
		[ ! -f $work/first ] || . $work/first
		exec /sbin/modprobe "\$@"
	EOF
	chmod +x "$work/modprobe"
	echo "$work/modprobe" >/proc/sys/kernel/modprobe
}

# forget: no service, no scheduler of that name
forget() {
	dr ipvsadm -C
	unload_module
	modprobe -q -r "ip_vs_$name"
}

# by_modprobe_d: with the lines of the document, $lines
by_modprobe_d() {
	forget
	modules ip_vs_mhs
	modprobe_here "${lines[@]}"
	service "$name"
	result "modprobe.d: the kernel asks for $name and gets mhs" \
		"$(is_mhs; echo $?)"
	forget
	! loaded && service mhs && is_mhs
	result "the module is loaded by a service of mhs" $?
	[ -n "$real" ] || return 0

	forget
	modules "ip_vs_$name"
	service "$name"
	check "modprobe.d: no ip_vs_mhs for this kernel, its own $name runs" \
		"$name no" "$(is_there) $(is_mhs && echo mhs || echo no)"
	forget
	modprobe_here "${lines[@]}"
	service mhs 2>/dev/null
	check "no ip_vs_mhs for this kernel: no mhs" "" "$(is_there)"
}

# at_an_end: the module is asked for while a namespace ends.  Where the core asks
# with the lock held for which that end waits, the command fails, but it ends.
at_an_end() {
	local pid err="" waits=""

	forget
	modules ip_vs_mhs
	modprobe_here ""
	# why: it keeps the namespace until it is killed
	unshare -n sh -c "ip link set lo up && : >$work/up; exec sleep 300" &
	pid=$!
	busywait 20 [ -f "$work/up" ]
	if grep -qw __ip_vs_mutex /proc/kallsyms; then
		waits=yes
	fi
	cat >"$work/first" <<-EOF
		rm $work/first
		kill $pid
		for i in \$(seq 50); do
			sleep 0.2 # why: the pace of looks
			! grep -qs ip_vs_dst_event /proc/[0-9]*/stack || break
			[ $waits ] || break
		done
	EOF
	dr timeout -s KILL 100 ipvsadm -A -t $VIP4:80 -s mhs 2>"$work/err" ||
		err=$(<"$work/err")
	check "asked for while a namespace ends" \
		"${waits:+Resource temporarily unavailable}" "$err"
	[ -z "$err" ] || busywait 20 dr ipvsadm -A -t $VIP4:80 -s mhs
	result "asked for again: the service is there" "$(is_mhs; echo $?)"
	! kill -0 $pid 2>/dev/null && [ ! -f "$work/first" ]
	result "control: the namespace ended" $?
}

# is_there: the scheduler's name, if there is a service
is_there() {
	dr ipvsadm -Ln | awk -v s=$VIP4:80 '$2 == s { print $3 }'
}

# by_wlc: to wlc and back, with the flows of a service of the kernel's own scheduler
by_wlc() {
	forget
	modules "ip_vs_$name" ip_vs_wlc ip_vs_mhs
	modprobe_here ""
	service "$name" -b flag-2
	flow c open 60
	flow c ping
	dmesg -C
	"$work/modprobe" ip_vs_mhs "names=mhs,$name"
	kernel_said "the kernel has a scheduler $name already"
	result "running: the name is taken" $?
	! is_mhs
	result "running: the service is as it was" $?
	unload_module

	modprobe_here "${lines[@]}"
	flow_send c busy 3600
	dr ipvsadm -E -t $VIP4:80 -s wlc
	modprobe -r "ip_vs_$name"
	result "running: to wlc, and the other module goes" $?
	"$work/modprobe" ip_vs_mhs
	dr ipvsadm -E -t $VIP4:80 -s "$name"
	is_mhs
	result "running: the service is mhs" $?
	wait_settled
	flow c stop
	check "running: no flow broken" "60 0" "$(value flows) $(value broken)"
	flow c reset
	back
}

# back: to the kernel's own scheduler for good
back() {
	dr ipvsadm -E -t $VIP4:80 -s "$name" -b flag-2
	result "control: with names= a change to $name changes nothing" \
		"$(is_mhs; echo $?)"
	dr ipvsadm -E -t $VIP4:80 -s wlc
	"$work/modprobe" -r ip_vs_mhs
	result "back: by wlc the module can go" $?
	rm "$work/modprobe.d/ip_vs_mhs.conf"
	"$work/modprobe" "ip_vs_$name"
	dr ipvsadm -E -t $VIP4:80 -s "$name" -b flag-2
	check "back: the kernel's own $name runs" "$name no" \
		"$(is_there) $(is_mhs && echo mhs || echo no)"
}

module=$(modinfo -F filename ip_vs_mh 2>/dev/null)
[ -f "$module" ] && real=mh count=26 || real="" count=16
plan "$count"
modprobe -q ip_vs
kernel_modprobe=$(</proc/sys/kernel/modprobe)
defer eval "echo $kernel_modprobe >/proc/sys/kernel/modprobe"
dmesg -n 1
setup_net 3
unload_at_end=yes
insmod "$MHS_KO"
name=$(free_name)
note "the name $name is free"

dmesg -C
reload "mhs,$name,$name"
kernel_said "new services with the scheduler $name are mhs"
result "the log says which name mhs answers for" $?
service "$name" -b flag-1,flag-2
result "a service by that name is mhs" "$(is_mhs; echo $?)"
wait_settled
flow_start c --host $VIP4 --timeout 8
flow c open 60
flow c ping
check "its flows are served, without entries" "60 0" "$(value flows) $(entries)"
check "ipvsadm shows it by that name" "$name" "$(is_there)"

# the other scheduler's module comes too late
! modprobe -q "ip_vs_$name"
result "the module of that name is not loaded beside" $?
dr ipvsadm -E -t $VIP4:80 -s mhs
wait_settled
flow c ping
check "a change of the name breaks no flow" 0 "$(value broken)"
flow c reset

# a name that is none, and one that is taken
modprobe -q ip_vs_rr
dmesg -C
reload "rr,mhs,,m.h,$name"
kernel_said "new services with the scheduler m.h are mhs"
result "a name that was mistyped is in the log" $?
kernel_said "the kernel has a scheduler rr already"
result "the log says that a name is taken" $?
service rr
! is_mhs
result "who has the name keeps it" $?
service "$name"
result "the other names are there" "$(is_mhs; echo $?)"

reload ""
service "$name" 2>/dev/null
! is_mhs
result "control: without names= the service is not mhs" $?

# where schedulers are modules, $name is mh
load=/sbin/modprobe
lines=("options ip_vs_mhs names=mhs,$name"
	"install ip_vs_$name $load ip_vs_mhs || $load --ignore-install ip_vs_$name")
by_modprobe_d
at_an_end
[ -z "$real" ] || by_wlc
forget
