#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# Floods of SYN, ACK, RST, FIN, ACK and FIN, UDP, QUIC from random sources, IPv4 and IPv6,
# on stable, held and pinned slots: never more entries than the limits, none
# where none is due, nothing dropped; clients keep connecting, older flows live,
# and when it is over the memory is free again.  MHS_SYNS: how many SYNs to each
# address in each phase (make check-release ONLY=long: together a million).

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
need nft

: "${MHS_SYNS:=600}"
SERVICES="-t $SVC4
-t $SVC6
-u $VIP4:53
-u [$VIP6]:53
-u $VIP4:443
-u [$VIP6]:443"

# real MODE NUMBER MORE: a line of ipvsadm -R for this server of each service
real() {
	local svc

	while read -r svc; do
		case $svc in
		*\[*) echo "$1 $svc -r [fd02::$((10 + $2))]:${svc##*:} ${3:-}" ;;
		*) echo "$1 $svc -r 10.2.0.$((10 + $2)):${svc##*:} ${3:-}" ;;
		esac
	done <<<"$SERVICES"
}

make_services() {
	local lines

	lines=$(while read -r svc; do
		echo "-A $svc -s $*"
	done <<<"$SERVICES"
	for i in 1 2 3; do
		real -a $i -g
	done)
	dr ipvsadm -R <<<"$lines"	# all at once: a table settles soon
}

all_stable() {
	! dr grep -qE "settling|rebuilding|transition" /proc/net/ip_vs_mhs
}

# flood PHASE ARGUMENTS: all kinds, while clients connect
flood() {
	flow_start n4 --host $VIP4 --timeout 10 --pause 0.2
	flow_start n6 --host $VIP6 --timeout 10 --pause 0.2
	flow_send n4 churn 3600
	flow_send n6 churn 3600
	report in_ns rt python3 "$here/attack.py" --dev vdr --mac "$mac" \
		--director "/run/netns/$(ns dr)" --vip $VIP4 $VIP6 \
		--cap "$cap" --phase "$@"
	flow n4 stop churn
	reply4=$reply
	flow n6 stop churn
	check "$1: clients kept connecting" "0 0" "$(sum failed) $(sum slow)"
	[ "$1" = mh ] || check_cmp "$1: often" "$(sum "done")" -ge 4
	flow_end n4
	flow_end n6
}

# objects: in use of the slab cache of entries, which others may share: SLACK.
# Freed ones that a CPU keeps for its next entries would count, too.
SLACK=500
objects() {
	local n

	echo 1 >/sys/kernel/slab/ip_vs_conn/shrink
	read -r n _ </sys/kernel/slab/ip_vs_conn/objects
	echo "$n"
}

no_entries() {
	[ "$(conns)" -eq 0 ]
}

memory_back() {
	[ "$(objects)" -le $((base + SLACK)) ]
}

# limits ENTRIES: what a service may have, half of it of QUIC
limits() {
	cap=$1
	dr sysctl -qw net.ipv4.vs.mhs.max_entries="$cap" \
		net.ipv4.vs.mhs.max_quic_entries=$((cap / 2))
}

plan 67
fresh_module table_size=4093
setup_net 4
mac=$(dr ip -br link show eth0 | awk '{ print $3 }')
limits 100
windows 0 100	# for a service that settles before its last server comes
make_services mhs
busywait 20 all_stable
windows 3600000 3600000
pair_clients --timeout 10
pair open 30
pair ping

flood stable --syns "$MHS_SYNS"
check "stable: no entries at all" 0 "$(conns)"
check "stable: nothing dropped" 0 "$(pair_total PktUnsettled)"
pair ping
check "stable: older flows go on" "0 0" "$(sum broken) $(sum moved)"
base=$(objects)

real -a 4 -g | dr ipvsadm -R
flood hold --syns "$MHS_SYNS"
check_cmp "hold: flows above the limit, counted" "$(pair_total Capped)" -gt 0
pair ping
check "hold: older flows go on" "0 0" "$(sum broken) $(sum moved)"

# The flood has used up the limit of new flows; older ones have half as much more
to_pin
pair ping
# some expire before the flood ends
while objects; do
	nap 0.1 # why: the pace of looks
done >"$work/objects" &
sampler=$!
defer kill $sampler
flood pin --syns "$MHS_SYNS"
kill $sampler
most=$(sort -n "$work/objects" | tail -n 1)
pair ping
check "pin: older flows go on" "0 0" "$(sum broken) $(sum moved)"
check_cmp "pin: entries in the slab, at most" $((most - base)) -ge 250
to_stable
pair ping
check "merged: older flows go on" "0 0" "$(sum broken) $(sum moved)"

# Entries of deleted servers expire at once with this
dr sysctl -qw net.ipv4.vs.expire_nodest_conn=1
for i in 1 2 3 4; do
	real -d $i
done | dr ipvsadm -R
result "entries are gone" "$(busywait 30 no_entries; echo $?)" "$(conns)"
result "memory is back" "$(busywait 30 memory_back; echo $?)" \
	"$(($(objects) - base)) objects more than before the floods"
pair reset
dr ipvsadm -C

make_services mh -b mh-port
flood mh --kinds SYN
check_cmp "control: mh makes an entry for each SYN" "$(conns)" -ge 1200
dr ipvsadm -C
