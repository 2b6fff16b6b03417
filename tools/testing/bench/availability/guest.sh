#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Flows that break when servers or directors change; runs in the machine, see
# availability.py.
#
# usage: guest.sh FLOWS, prints a line of CSV for each scenario and scheduler

case ${1:---help} in
-h | --help)
	sed -n '3,/^$/s/^# \{0,1\}//p' "$0"
	exit 0
	;;
esac

readonly FLOWS=$1
SERVERS=4
ulimit -n 65536
readonly SCENARIOS="rolling flap drain delete add weight restart failover disagree killed"
declare -A SCHEDULERS=(
	[mh]="mh -b mh-port,mh-fallback"
	[mh-sloppy]="mh -b mh-port,mh-fallback"
	[mhs]="mhs"
	[mhs-chance]="mhs"
	[wlc-sync]="wlc"
)

# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "$(dirname "$0")/../../selftests/net/ipvs_mhs/lib.sh"
# shellcheck source=../../selftests/net/ipvs_mhs/lib_chance.sh
. "$here/lib_chance.sh"

# services NAMESPACE [SERVERS]: make a director of it
services() {
	[ "$by" != mhs-chance ] ||
		sysctls "$1" net.ipv4.vs.mhs.second_chance=$VIP4:80
	{
		echo "-A -t $VIP4:80 -s ${SCHEDULERS[$by]}"
		real_lines $VIP4:80 -g $(seq "${2:-$SERVERS}")
	} | in_ns "$1" ipvsadm -R
	[ "${SCHEDULERS[$by]}" != mhs ] || wait_settled "$VIP4:80" "$1"
	[ "$by" != mh-sloppy ] || sysctls "$1" net.ipv4.vs.sloppy_tcp=1
}

# out N HOW; back N HOW: a server, by weight or by delete
out() {
	if [ "$2" = weight ]; then
		weight "$1" 0
	else
		dr ipvsadm -d -t $VIP4:80 -r "10.2.0.$((10 + $1)):80"
	fi
}

back() {
	if [ "$2" = weight ]; then
		weight "$1" 1
	else
		real_lines $VIP4:80 -g "$1" | dr ipvsadm -R
	fi
}

# all_entries: of both directors
all_entries() {
	local n=0

	[ ! -e "/run/netns/d2-$$" ] || n=$(conns d2)
	echo $((n + $(conns)))
}

# watch_entries: until killed; milliseconds since the change, which comes after 2 s
watch_entries() {
	local began=${EPOCHREALTIME/./}

	while :; do
		echo "@$by,$(((${EPOCHREALTIME/./} - began) / 1000 - 2000)),$(conns)"
		nap 0.25
	done
}

# Each server in turn is drained, replaced by an equal one, and back
scenario_rolling() {
	local i

	for i in $(seq $SERVERS); do
		out "$i" weight
		nap 0.5
		back "$i" weight
		nap 0.5
	done
}

# One server of ten is deleted and added again, five times
scenario_flap() {
	local i

	for i in 1 2 3 4 5; do
		out 1 delete
		nap 0.4
		back 1 delete
		nap 0.4
	done
}

scenario_drain() {
	# the windows are short, so that the slots merge meanwhile, and long
	# enough for each flow to come by in the second
	[ "$by" != mhs ] || windows 1000 12000
	watch_entries &
	nap 2
	out 1 weight
	nap 16
	kill $!
	wait $! 2>/dev/null
}

# It is dead for the director, but still there
scenario_delete() {
	out 1 delete
	nap 2
}

scenario_add() {
	back $SERVERS delete
	nap 2
}

# Of the first one, from 1 to 3
scenario_weight() {
	weight 1 3
	nap 2
}

# The next director knows the servers and, for wlc, what it was told
scenario_restart() {
	director d2 20
	services d2
	route_vip 20
	nap 2
}

scenario_failover() {
	[ "$by" != wlc-sync ] || daemon=yes
	if [ "$before" = yes ]; then
		director d2 20
		services d2
		[ -z "${daemon:-}" ] || {
			in_ns d2 ipvsadm --start-daemon backup \
				--mcast-interface eth0
			dr ipvsadm --start-daemon master \
				--mcast-interface eth0
		}
		return
	fi
	route_vip 20
	nap 2
}

# The next director has had another weight for some time, and then the clients are back
scenario_disagree() {
	if [ "$before" = yes ]; then
		scenario_failover
		return
	fi
	weight 1 3 d2
	nap 1
	route_vip 20
	nap 2
	route_vip 10
	nap 2
}

# The director dies after a change that both know.  Half of the flows
# began after the change.
scenario_killed() {
	if [ "$before" = yes ]; then
		scenario_failover
		return
	fi
	weight 1 0
	weight 1 0 d2
	clients="old mid"
	flow_start mid --host $VIP4 --timeout 4
	flow mid open $((FLOWS / 2)) >/dev/null
	flow_send mid busy 3600
	nap 1
	route_vip 20
	nap 2
}

load_module table_size=65521
if [ $# -eq 1 ]; then
	echo "scenario,by,flows,servers,broken,reset,new,failed,slow,entries"
	for scenario in $SCENARIOS; do
		echo "# $scenario"
		for by in mh mh-sloppy mhs mhs-chance wlc-sync; do
			"$0" "$FLOWS" "$scenario" "$by" || exit 1
		done
	done
	exit
fi

scenario=$2 by=$3 before=""
[ "$scenario" != flap ] || SERVERS=10
setup_net $SERVERS
if [ "$scenario" = add ]; then
	services dr $((SERVERS - 1))
else
	services dr
fi
if [[ "failover disagree killed" = *$scenario* ]]; then
	before=yes
	"scenario_$scenario"
	before=""
fi
if [ "$by" = mhs-chance ]; then
	chance_kernel
	servers=$(seq -f s%.0f -s " " $SERVERS)
	# shellcheck disable=SC2086
	equip $servers >&2
	busywait 20 answering $SERVERS
fi
flow_start old --host $VIP4 --timeout 4
flow_start new --host $VIP4 --timeout 4 --pause 0.02
first=$FLOWS clients=old
[ "$scenario" != killed ] || first=$((FLOWS / 2))
flow old open "$first" >/dev/null
flow old ping >/dev/null
flow_send old busy 3600
flow_send new churn 3600
nap 1
"scenario_$scenario"
flow new stop churn >/dev/null
new="$(value "done"),$(value failed),$(value slow)"
flows=0 broken=0 rst=0
for client in $clients; do
	flow "$client" stop >/dev/null
	flow "$client" ping >/dev/null
	flows=$((flows + $(value flows)))
	broken=$((broken + $(value broken)))
	rst=$((rst + $(value rst)))
done
echo "$scenario,$by,$flows,$SERVERS,$broken,$rst,$new,$(all_entries)"
for client in $clients; do
	flow "$client" reset >/dev/null
done
