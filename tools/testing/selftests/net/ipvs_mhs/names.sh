#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 25
# names=: the module answers for another scheduler's name, where that is free,
# for front ends that do not know mhs.

. "${0%/*}/lib.sh"

said() {
	dmesg | grep -q "IPVS: mhs: .*$1"
}

# refuse NAMES: loading fails, and the log says what would be right
refuse() {
	dmesg -C
	! insmod "$MHS_KO" names="$1" 2>/dev/null && said "as in names=mhs,mh"
	result "names=$1 is refused" $?
}

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
# schedulers are modules any will do.
free_name() {
	local name

	for name in mh sh dh sed; do
		modprobe -q -r ip_vs_$name
		reload mhs,$name
		service $name 2>/dev/null
		if is_mhs; then
			echo $name
			return
		fi
	done
}

plan 18
modprobe -q ip_vs
dmesg -n 1
setup_net 3
unload_at_end=yes
refuse none
refuse m.h
refuse mhs,,mh
refuse abcdefghijklmnop

insmod "$MHS_KO"
name=$(free_name)
note "the name $name is free"

dmesg -C
reload "mhs,$name,$name"
said "new services with the scheduler $name are mhs"
result "the log says which name mhs answers for" $?
service "$name" -b flag-1,flag-2
result "a service by that name is mhs" "$(is_mhs; echo $?)"
wait_settled
flow_start c --host $VIP4 --timeout 8
flow c open 60
flow c ping
check "its flows are served" 60 "$(value flows)"
check "they have no entries" 0 "$(entries)"
check "ipvsadm shows it by that name" "$name" \
	"$(dr ipvsadm -Ln | awk -v s=$VIP4:80 '$2 == s { print $3 }')"
print=$(mhs CandidatePrint)

# the other scheduler's module comes too late
! modprobe -q "ip_vs_$name"
result "the module of that name is not loaded beside" $?
dr ipvsadm -E -t $VIP4:80 -s mhs
wait_settled
flow c ping
check "a change of the name breaks no flow" 0 "$(value broken)"
check "the table is the same" "$print" "$(mhs CandidatePrint)"
! rmmod ip_vs_mhs 2>/dev/null
result "a service holds the module" $?
flow c reset

# a name that is taken
dr ipvsadm -C
unload_module
modprobe -q ip_vs_rr
dmesg -C
reload "rr,mhs,$name"
said "the kernel has a scheduler rr already"
result "the log says that a name is taken" $?
service rr
! is_mhs
result "who has the name keeps it" $?
service "$name"
result "the other names are there" "$(is_mhs; echo $?)"

# nothing stays behind
dr ipvsadm -C
for ((i = 0; i < 20; i++)); do
	unload_module
	insmod "$MHS_KO" names="mhs,$name,twos"
done
result "twenty times unloaded and loaded" $?
reload ""
service "$name" 2>/dev/null
! is_mhs
result "control: without names= the service is not mhs" $?
dr ipvsadm -C
