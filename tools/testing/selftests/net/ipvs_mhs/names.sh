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
	dmesg -C
	insmod "$MHS_KO" ${1:+names=$1}
}

# service SCHEDULER [ARGUMENTS]: anew, with three servers
service() {
	dr ipvsadm -C
	{ echo "-A -t $VIP4:80 -s $*"; add_servers 1 2 3; } | dr ipvsadm -R
}

# runs NAME WANT: the scheduler's name, if there is a service, and whether mhs runs it
runs() {
	check "$1" "$2" "$(dr ipvsadm -Ln | awk -v s=$VIP4:80 '$2 == s { print $3 }'
		)$([ -z "$(mhs State)" ] || echo " by mhs")"
}

# said NAME TEXT: the log has it, since the module was loaded
said() {
	kernel_said "$2"
	result "$1" $?
}

# modules FILE...: those that modprobe finds when the kernel calls it
modules() {
	local dir

	dir=$work/root/lib/modules/$(uname -r)
	rm -rf "$dir"
	mkdir -p "$dir"
	cp "$@" "$dir"
	touch "$dir/modules.order" "$dir/modules.builtin"{,.modinfo}
	depmod -b "$work/root"
}

# modprobe_here LINE...: what the kernel calls has these lines for its modprobe.d
modprobe_here() {
	mkdir -p "$work/modprobe.d"
	printf '%s\n' "$@" >"$work/modprobe.d/ip_vs_mhs.conf"
	cat >"$work/modprobe" <<-EOT
		#!/bin/sh
		MODPROBE_OPTIONS="-C $work/modprobe.d -d $work/root"
		export MODPROBE_OPTIONS
		[ ! -f $work/first ] || . $work/first
		exec /sbin/modprobe "\$@"
	EOT
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
	modules "$MHS_KO"
	modprobe_here "${lines[@]}"
	service "$name"
	runs "modprobe.d: the kernel asks for $name and gets mhs" "$name by mhs"
	forget
	service mhs
	runs "the module is loaded by a service of mhs" "mhs by mhs"
	[ -n "$real" ] || return 0

	forget
	modules "$real"
	service "$name"
	runs "modprobe.d: no ip_vs_mhs for this kernel, its own $name runs" "$name"
	forget
	modprobe_here "${lines[@]}"
	service mhs 2>/dev/null
	runs "no ip_vs_mhs for this kernel: no mhs" ""
}

# at_an_end: the module is asked for while a namespace ends.  Where the core asks
# with the lock held for which that end waits, the command fails, but it ends.
at_an_end() {
	local pid err="" waits=""

	forget
	modules "$MHS_KO"
	modprobe_here ""
	# why: it keeps the namespace until it is killed
	unshare -n sh -c "ip link set lo up && : >$work/up; exec sleep 300" &
	pid=$!
	busywait 20 [ -f "$work/up" ]
	if grep -qw __ip_vs_mutex /proc/kallsyms; then
		waits=yes
	fi
	cat >"$work/first" <<-EOT
		rm $work/first
		kill $pid
		for i in \$(seq 50); do
			sleep 0.2 # why: the pace of looks
			! grep -qs ip_vs_dst_event /proc/[0-9]*/stack || break
			[ $waits ] || break
		done
	EOT
	dr timeout -s KILL 100 ipvsadm -A -t $VIP4:80 -s mhs 2>"$work/err" ||
		err=$(<"$work/err")
	check "asked for while a namespace ends" \
		"${waits:+Resource temporarily unavailable}" "$err"
	[ -z "$err" ] || busywait 20 dr ipvsadm -A -t $VIP4:80 -s mhs
	runs "asked for again: the service is there" "mhs by mhs"
	! kill -0 $pid 2>/dev/null && [ ! -f "$work/first" ]
	result "control: the namespace ended" $?
}

# by_wlc: to wlc and back, with the flows of a service of the kernel's own scheduler
by_wlc() {
	forget
	modules "$real" "$MHS_KO" "$(modinfo -F filename ip_vs_wlc)"
	modprobe_here "${lines[@]}"
	modprobe "ip_vs_$name"
	service "$name" -b flag-2
	flow c open 60
	flow_send c busy 3600
	dr ipvsadm -E -t $VIP4:80 -s wlc
	modprobe -r "ip_vs_$name"
	result "running: to wlc, and the other module goes" $?
	"$work/modprobe" ip_vs_mhs
	dr ipvsadm -E -t $VIP4:80 -s "$name"
	runs "running: the service is mhs" "$name by mhs"
	wait_settled
	flow c stop
	check "running: no flow broken" "60 0" "$(value flows) $(value broken)"
	flow c reset

	# for good
	dr ipvsadm -E -t $VIP4:80 -s "$name" -b flag-2
	runs "control: with names= a change to $name changes nothing" "$name by mhs"
	dr ipvsadm -E -t $VIP4:80 -s wlc
	"$work/modprobe" -r ip_vs_mhs
	result "back: by wlc the module can go" $?
	rm "$work/modprobe.d/ip_vs_mhs.conf"
	"$work/modprobe" "ip_vs_$name"
	dr ipvsadm -E -t $VIP4:80 -s "$name" -b flag-2
	runs "back: the kernel's own $name runs" "$name"
}

# a name that front ends know and the kernel does not have: mh's file is there where
# schedulers are modules
real=$(modinfo -F filename ip_vs_mh 2>/dev/null)
tests=23 name=mh
[ -f "$real" ] || tests=15 name=sed real=""
plan $tests
modprobe -q ip_vs
kernel_modprobe=$(</proc/sys/kernel/modprobe)
defer eval "echo $kernel_modprobe >/proc/sys/kernel/modprobe"
dmesg -n 1
setup_net 3
unload_module "ip_vs_$name"
unload_at_end=yes

reload "mhs,$name,$name"
said "the log says which name mhs answers for" \
	"new services with the scheduler $name are mhs"
service "$name" -b flag-1,flag-2
runs "a service by that name is mhs" "$name by mhs"
wait_settled
flow_start c --host $VIP4 --timeout 8
flow c open 60
flow c ping
check "its flows are served, without entries" "60 0" "$(value flows) $(conns)"
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
reload "rr,mhs,,m.h,$name"
said "a name that was mistyped is in the log" \
	"new services with the scheduler m.h are mhs"
said "the log says that a name is taken" "the kernel has a scheduler rr already"
service rr
runs "who has the name keeps it" rr
service "$name"
runs "the other names are there" "$name by mhs"

reload ""
service "$name" 2>/dev/null
check "control: without names= the service is not mhs" "" "$(mhs State)"

lines=("options ip_vs_mhs names=mhs,$name"
	"install ip_vs_$name /sbin/modprobe ip_vs_mhs || /sbin/modprobe --ignore-install ip_vs_$name")
by_modprobe_d
at_an_end
[ -z "$real" ] || by_wlc
forget
