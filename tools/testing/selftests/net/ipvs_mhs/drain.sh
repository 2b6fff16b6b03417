#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 45
# tags: races
# Draining and deleting a server keeps its flows, IPv4 by direct routing and
# IPv6 in tunnels; with mh, draining refuses new flows and deleting cuts old.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"
need nft

# both MODE SERVER [WEIGHT]: change it in both services
both() {
	dr ipvsadm -R <<-END
		$1 -t $SVC4 -r 10.2.0.$((10 + $2)):80 ${3:+-g -w $3}
		$1 -t $SVC6 -r [fd02::$((10 + $2))]:80 ${3:+-i -w $3}
	END
}

# services SCHEDULER...: lines for both
services() {
	echo "-A -t $SVC4 -s $*"
	echo "-A -t $SVC6 -s $*"
	real_lines "$SVC4" -g 1 2 3 4
	real_lines "$SVC6" -i 1 2 3 4
}

forgotten() {
	[ "$(pair_total Gone)" -eq 0 ]
}

plan 28
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
count_syns s1
windows 3600000 3600000
sysctls dr net.ipv4.vs.expire_nodest_conn=0
learn dr < <(services mhs)
pair_clients --timeout 4

# Weight 0: idle flows that wake in either phase
pair open 60
check "flows opened" 120 "$(sum flows)"
pair ping
check "flows answered" 0 "$(sum broken)"
check "no entries while stable" 0 "$(entries)"
mine=$(sum s1)
both -e 1 0
before=$(syns s1)
pair ping
check "weight 0: none broken while held" 0 "$(sum broken)"
check "weight 0: no entries for held flows" 0 "$(entries)"
pair open 20
check "weight 0: no new flow refused" 0 "$(sum failed)"
result "weight 0: pin phase begins" "$(to_pin; echo $?)"
pair ping
check "weight 0: none broken while pinned" 0 "$(sum broken)"
check_cmp "weight 0: the server's flows are pinned" \
	"$(pair_total PinnedEntries)" -ge "$mine"
result "weight 0: merged" "$(to_stable; echo $?)"
pair ping
check "weight 0: none broken by the merge" 0 "$(sum broken)"
check "weight 0: none moved" 0 "$(sum moved)"
check "weight 0: no SYN reached the server" "$before" "$(syns s1)"

# then delete it: its flows have entries, which go on for hold + pin
windows 3600000 3600000
both -d 1
pair ping
check "then delete: none broken" 0 "$(sum broken)"
check "then delete: none moved" 0 "$(sum moved)"
check "then delete: no SYN reached the server" "$before" "$(syns s1)"
pair reset

# Delete alone: flows live for hold + pin, then are cut
windows 0 100
busywait 40 forgotten
windows 3600000 3600000
pair open 40
pair ping
mine=$(sum s2)
both -d 2
pair ping
check "delete: none broken while held" 0 "$(sum broken)"
to_pin
pair ping
check "delete: none broken towards the end" 0 "$(sum broken)"
windows 0 100
result "delete: forgotten after hold and pin" \
	"$(busywait 60 forgotten; echo $?)"
pair ping
check "delete: then its flows, and no others, are cut" "$mine" \
	"$(sum broken)"
pair reset

# With expire_nodest_conn they are cut at once, by another server's reset
windows 3600000 3600000
sysctls dr net.ipv4.vs.expire_nodest_conn=1
pair open 40
pair ping
mine=$(sum s3)
both -d 3
pair ping
check "expire_nodest_conn: the server's flows are cut at once" "$mine" \
	"$(sum broken)"
check "expire_nodest_conn: by a reset" "$mine" "$(sum rst)"
pair reset
dr ipvsadm -C

# Set after the deletion it cuts them a moment later
sysctls dr net.ipv4.vs.expire_nodest_conn=0
learn dr < <(services mhs)
pair open 40
pair ping
mine=$(sum s3)
both -d 3
pair ping
check "expire_nodest_conn=0: none broken while held" 0 "$(sum broken)"
sysctls dr net.ipv4.vs.expire_nodest_conn=1
result "expire_nodest_conn, set after the deletion: forgotten" \
	"$(busywait 20 forgotten; echo $?)"
pair ping
check "expire_nodest_conn, set after the deletion: its flows are cut" "$mine" \
	"$(sum broken)"
pair reset
dr ipvsadm -C

# The same with mh
sysctls dr net.ipv4.vs.expire_nodest_conn=0
services mh -b mh-port | dr ipvsadm -R
flow c4 open 60
flow c4 ping
check_cmp "control: mh makes an entry for each flow" "$(entries)" -ge 60
both -e 1 0
flow c4 open 40
check_cmp "control: mh refuses new flows of a drained server" \
	"$(value failed)" -gt 0
both -d 2
flow c4 ping 4
check_cmp "control: mh cuts the flows of a deleted server at once" \
	"$(value broken)" -gt 0
flow c4 reset
dr ipvsadm -C
