#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 720
# weight: 65
# The way back to another scheduler: with net.ipv4.vs.mhs.stateless=0 flows get
# entries, mhsstat waits until all have one, and then wlc or mh takes the services
# over without a broken flow.  Without that nearly all break.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

readonly top=$here/../../../../..
# Timeouts during the wait, which is one pin time; flows that are busy send several
# times in that, in emulation, too.  Where none is busy a second does.
pin=$((3 * ${patience:-1}))

# check_wait NAME STATUS ARGUMENTS...: the operator's wait ends so
check_wait() {
	local status

	dr ipvsadm --set "$pin" "$pin" "$pin"
	dr "$top/scripts/mhsstat" wait --stateful "${@:3}" >"$work/said" 2>&1
	status=$?
	dr ipvsadm --set 900 120 300
	sed 's/^/# /' "$work/said"
	check "$1" "$2" $status
}

# stateless VALUE
stateless() {
	sysctls dr net.ipv4.vs.mhs.stateless="$1"
}

# hand_over SCHEDULER: both
hand_over() {
	printf -- "-E $proto %s -s $1\n" "$SVC4" "$SVC6" | dr ipvsadm -R
}

# runs: the scheduler of both
runs() {
	dr ipvsadm -Ln | awk -v a="$SVC4" -v b="$SVC6" '
		$2 == a || $2 == b { printf "%s%s", s, $3; s = " " }'
}

# begin METHOD FLOWS: services, and flows of both that have no entries
begin() {
	how4=$1 how6=$1 pair_services "1 2 3" mhs
	pair open "$2"
	pair ping
}

# end: nothing is left but entries that live for seconds
end() {
	pair reset
	dr ipvsadm -C
	stateless 1
}

# back METHOD SCHEDULER FLOWS: so many of each family, busy all the time
back() {
	local name="$1, to $2"

	begin "$1" "$3"
	flow_send c4 busy 3600
	flow_send c6 busy 3600
	stateless 0
	check_wait "$name: every flow has an entry" 0
	hand_over "$2"
	pair stop
	pair ping
	check "$name: the scheduler is another" "$2 $2" "$(runs)"
	check "$name: none broken, none moved" "$((2 * $3)) 0 0" \
		"$(sum flows) $(sum broken) $(sum moved)"
	end
}

plan 27
ulimit -n 4096	# flows that break leave their sockets to the servers
fresh_module
modprobe -q -a ipip sit ip6_tunnel ip_vs_wlc ip_vs_mh
setup_net 3
pair_clients --timeout 8

# How flows come to their entries
windows 3600000 3600000
begin -g 30
stateless 0
pair open 10
check "stateful: new flows have entries at once" "20 0" \
	"$(pair_total NewEntries) $(pair_total PinnedEntries)"
pair ping
check "stateful: older ones with their next packet" "20 60" \
	"$(pair_total NewEntries) $(pair_total PinnedEntries)"
check_cmp "stateful: not yet all, as far as known" "$(mhs StatefulMs)" -gt 0
before=$(pair_total PktStateless)
pair ping
check "stateful: no packet by the table" "$before" "$(pair_total PktStateless)"
windows 0 0
# one that never had a server is not waited for
dr ipvsadm -A -t "${SVC4%:*}:81" -s mhs
pin=1 check_wait "stateful: the wait is over, of all services" 0
# With its first servers flows may come that lack an entry.  why: the look that
# tells whether the service has settled begins the time anew as well
windows 3600000 3600000
check "stateful: a service without a server is" 0 \
	"$(mhs StatefulMs "${SVC4%:*}:81")"
real_lines "${SVC4%:*}:81" -g 1 2 | dr ipvsadm -R
nap 1	# why: as above
check_cmp "stateful: one that has just got servers is not" \
	"$(mhs StatefulMs "${SVC4%:*}:81")" -gt 0
dr ipvsadm -D -t "${SVC4%:*}:81"
windows 0 100
check "stateful: the time is over" "2 0" \
	"$(pair_total Stateful) $(pair_total StatefulMs)"
stateless 1
pair open 10
pair ping
check "stateless again: new flows have no entry" "20 60" \
	"$(pair_total NewEntries) $(pair_total PinnedEntries)"
check "stateless again: none broken" "100 0 0" \
	"$(sum flows) $(sum broken) $(sum moved)"
end

# Busy flows
windows 0 0
back -g wlc 350
back -i mh 40
begin -g 40
hand_over wlc
pair ping
check_cmp "control: stateless: nearly all break" \
	$(($(sum broken) + $(sum moved))) -ge 64
end

flow_end c4
flow_end c6

# UDP.  A client asks only now and then, so the pin time is over when it has.
# datagrams PORT: services of UDP there, and clients
datagrams() {
	# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
	PORT=$1 proto=-u client_py=dgrams.py SVC4=$VIP4:$1 SVC6="[$VIP6]:$1"
	pair_services "1 2 3" mhs
	rm -f "$work"/c[46].{in,out}
	pair_clients
	pair open 40
}

# answered NAME: the last ping was, each flow by its server
answered() {
	check "$1" "0 0 0" "$(sum lost) $(sum refused) $(sum moved)"
}

# answer_wlc NAME [PING]: the wait, and then wlc serves them
answer_wlc() {
	windows 0 0
	pin=1 check_wait "$1: the wait ends well" 0
	hand_over wlc
	pair ping ${2:+"$2"}
	answered "$1, to wlc: none moved"
	flow_end c4
	flow_end c6
	dr ipvsadm -C
	stateless 1
}

dgram_servers 53,443
windows 3600000 3600000
datagrams 53
pair ping
stateless 0
pair ping
check "UDP: entries" 80 "$(pair_made)"
answer_wlc UDP
datagrams 53
pair ping
hand_over wlc
pair ping
check_cmp "control: UDP, stateless: many move" "$(sum moved)" -ge 20
flow_end c4
flow_end c6
dr ipvsadm -C

# QUIC, with less room than flows at first
windows 3600000 3600000
datagrams 443
pair ping initial
pair ping short
sysctls dr net.ipv4.vs.mhs.max_quic_entries=20
stateless 0
pair ping short
answered "QUIC, no room: answered"
check_cmp "QUIC, no room: flows without entries" "$(pair_made)" -lt 80
sysctls dr net.ipv4.vs.mhs.max_quic_entries=65536
pair open 10
pair new initial
check "QUIC, room: new flows have entries at once" 20 \
	"$(pair_total NewEntries)"
pair ping short
check "QUIC, room: so have all" 100 "$(pair_made)"
answer_wlc QUIC short
