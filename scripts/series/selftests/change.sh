#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Flows when servers come, go and change, and when another director takes over.

# setup_ns sets variables; tests call functions by name
# shellcheck disable=SC2154,SC2317 source=lib.sh
source "$(dirname "$0")/lib.sh"
need ipvsadm python3

all_live='alive=100 dead=0 moved=0'

# fresh [METHOD]: a settled service with 100 flows
fresh() {
	ask close >/dev/null
	ask udp $VIP 80 1 >/dev/null
	director sysctl -wq net.ipv4.vs.expire_nodest_conn=0 \
		net.ipv4.vs.mhs.max_entries=262144
	short
	service mhs "${1:--g}" -t $VIP:80
	ask tcp $VIP 80 100 >/dev/null
}

some() { [ "$("$@")" -gt 0 ]; }
# packets that the statistics of the service have counted
arrived() { ipvs -Ln --stats --exact | awk '$1 == "TCP" { print $4; exit }'; }
none_of() { local what=$1; shift; [[ $("$@") != *$what=* ]]; }

ktap_print_header
ktap_set_plan 70
topology

# added PROTOCOL SERVICE...: a third server
added() {
	local what=$1 protocol=${1,,} port=80 begins=hi goes_on=hi

	shift
	if [ "$what" = QUIC ]; then
		protocol=udp port=443 begins=initial goes_on=short
	fi
	ask close >/dev/null
	forget
	service mhs -g "$@"
	ask "$protocol" $VIP $port 100 $begins >/dev/null
	long
	add -g 3 "$@"
	result "$what, added: slots are unstable" some unstable
	result "$what, added: older flows live" is "$all_live" \
		ask check $goes_on
	result "$what, added: without connections" is 0 conns
	result "$what, added: new flows come to all" is 's1=* s2=* s3=*' \
		ask "$protocol" $VIP $port 90 $begins
	result "$what, added: some of them have connections" some conns
	result "$what, added: all flows live" is 'alive=190 dead=0 moved=0' \
		ask check $goes_on
}

# without_flow REQUEST...: each goes where it would have gone before, and makes
# no connection
without_flow() {
	local before request

	before=$(conns)
	for request; do
		is "s1=$NUM s2=$NUM" ask udp $VIP 443 40 "$request" || return
	done
	is "$before" conns
}

fresh
added TCP -t $VIP:80
added SCTP --sctp-service $VIP:80
added QUIC -u $VIP:443
result "QUIC, added: no other packet begins a flow" \
	without_flow 0rtt handshake handshake2 unknown short
result "QUIC, added: an Initial of version 2 does" is 's1=* s2=* s3=*' \
	ask udp $VIP 443 90 initial2
ask close >/dev/null
forget
service mhs -g -u $VIP:80
ask udp $VIP 80 60 initial >/dev/null
add -g 3 -u $VIP:80
result "control: to another port an Initial begins none" \
	is "s1=$NUM s2=$NUM" ask udp $VIP 80 90 initial
result "control: nor does it make a connection" is 0 conns
ask close >/dev/null
forget

fresh
phases 500 5000
add -g 3 -t $VIP:80
# each flow sends in the pin phase
pinned() {
	[ "$(ask check)" = "$all_live" ] || return 2
	[ "$(mhs State)" = stable ] && [ "$(mhs Stable)" = "$(mhs Size)" ]
}
result "merged: older flows live until then" slowwait 20 pinned
result "merged: and afterwards" is "$all_live" ask check
result "merged: some got connections" some mhs PinnedEntries

fresh
phases 500 100000
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -g -w 0
result "weight 0: no new flow" none_of s2 ask tcp $VIP 80 50
result "weight 0: older flows live" is 'alive=150 dead=0 moved=0' ask check

fresh
long
ipvs -d -t $VIP:80 -r 10.0.0.12:80
result "deleted: no new flow" none_of s2 ask tcp $VIP 80 50
before=$(arrived)
result "deleted: older flows live" is 'alive=150 dead=0 moved=0' ask check
# a request and an acknowledgment of the answer from each
more() { [ "$(arrived)" -ge $((before + 300)) ]; }
result "deleted: the statistics count their packets" slowwait 20 more
add -g 2 -t $VIP:80
result "added again: all flows live" is 'alive=150 dead=0 moved=0' ask check
at_last 0 unstable >/dev/null
result "added again: the table is the old one" is 0 unstable
# one with a connection, to the server that leaves
add -g 3 -t $VIP:80
ask tcp $VIP 80 50 >/dev/null
ipvs -d -t $VIP:80 -r 10.0.0.13:80
result "deleted: flows with connections live" \
	is 'alive=200 dead=0 moved=0' ask check

fresh
ipvs -d -t $VIP:80 -r 10.0.0.12:80
at_last 0 mhs Gone >/dev/null
result "cut: in the end no flow is there" is 0 mhs Gone
result "cut: its flows are over" is 'alive=* dead=[1-9]* moved=0' ask check

fresh
director sysctl -wq net.ipv4.vs.expire_nodest_conn=1
long
ipvs -d -t $VIP:80 -r 10.0.0.12:80
result "expire_nodest_conn: cut at once" is 'alive=* dead=[1-9]* moved=0' \
	ask check

# ftp: a deleted server, masqueraded, gets the data connection of an older flow
ftp() {
	director sysctl -wq net.ipv4.vs.expire_nodest_conn="$1"
	ipvs -C
	ipvs -A -t $VIP:21 -s mhs
	ipvs -a -t $VIP:21 -r 10.0.0.12:80 -m
	at_last stable mhs State || return
	is "227*${VIP//./,},0,80?" ask pasv $VIP 21 || return
	ipvs -d -t $VIP:21 -r 10.0.0.12:80
	ask tcp $VIP 80 1
}

fresh
long
director sysctl -wq net.ipv4.vs.conntrack=1
director modprobe -q ip_vs_ftp
ip -n "$s2" route add 10.0.0.1 via 10.0.0.2
result "deleted, FTP: the data connection comes" is s2=1 ftp 0
result "control: with expire_nodest_conn=1 not" is failed=1 ftp 1
ip -n "$s2" route del 10.0.0.1
director sysctl -wq net.ipv4.vs.conntrack=0

# a carrier is for direct routing and tunnels only
fresh
long
ipvs -e -t $VIP:80 -r 10.0.0.11:80 -m
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -m
result "masqueraded: older flows live" is "$all_live" ask check
ipvs -E -t $VIP:80 -s wlc
ipvs -E -t $VIP:80 -s mhs -b flag-1,flag-2
at_last stable mhs State
result "bound again, masqueraded: no carrier is left" \
	is 'alive=0 dead=100 moved=0' ask check

fresh
long
ipvs -d -t $VIP:80 -r 10.0.0.12:80
ipvs -a -t $VIP:80 -r 10.0.0.12:80 -m
result "added again, masqueraded: no carrier is left" \
	is 'alive=* dead=[1-9]* moved=0' ask check

fresh
ipvs -e -t $VIP:80 -r 10.0.0.11:80 -i
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -i
rx() { in_ns "$s1" cat /sys/class/net/tunl0/statistics/rx_packets; }
before=$(rx)
result "another method: flows live" is "$all_live" ask check
result "another method: by the tunnel" test "$(rx)" -gt "$before"

# 33 or so of the 100 flows are in slots that move
ask close >/dev/null
forget
fresh
phases 500 100000
director sysctl -wq net.ipv4.vs.mhs.max_entries=10
add -g 3 -t $VIP:80
at_last 0 mhs Hold
result "max_entries: all flows live in the pin phase" is "$all_live" ask check
result "max_entries: ten have connections" is 10 conns
result "max_entries: those that have none are counted" some mhs Capped
director sysctl -wq net.ipv4.vs.mhs.max_entries=262144
before=$(mhs Capped)
result "control: with another limit all flows live" is "$all_live" ask check
result "control: more have connections" test "$(conns)" -gt 10
result "control: no more is counted" is "$before" mhs Capped

ask close >/dev/null
forget
masquerading on
fresh -m
long
result "masquerading: each flow has a connection" is 100 conns
add -m 3 -t $VIP:80
result "masquerading, added: older flows live" is "$all_live" ask check
result "masquerading, added: new flows come to all" is 's1=* s2=* s3=*' \
	ask tcp $VIP 80 50
ipvs -d -t $VIP:80 -r 10.0.0.12:80
result "masquerading, deleted: no new flow" is "s1=$NUM s3=$NUM" \
	ask tcp $VIP 80 50
result "masquerading, deleted: older flows live" \
	is 'alive=200 dead=0 moved=0' ask check
director sysctl -wq net.ipv4.vs.expire_nodest_conn=1
ipvs -d -t $VIP:80 -r 10.0.0.11:80
result "control: with expire_nodest_conn=1 not" \
	is 'alive=* dead=[1-9]* moved=0' ask check
masquerading off

# A second director, and a route to the virtual address by either
setup_ns backup
link "$backup" 3
ip -n "$backup" addr add "$VIP/32" dev lo
in_ns "$backup" sysctl -wq net.ipv4.ip_forward=1
on_backup() { local director=$backup; "$@"; }
on_backup long
by() { ip -n "$client" route replace $VIP via "10.0.0.$1"; }

# both SCHEDULER: the same service on both directors, and 100 flows by the first
both() {
	ask close >/dev/null
	forget
	on_backup forget
	by 2
	service "$1" -g -t $VIP:80
	on_backup service "$1" -g -t $VIP:80
	ask tcp $VIP 80 100 >/dev/null
	by 3
}

both mhs
result "another director has the same table" \
	is "$(mhs CandidatePrint)" on_backup mhs CandidatePrint
result "another director: all flows live" is "$all_live" ask check
result "another director: without connections" is 0 on_backup conns
both mh
result "control: with mh they do not" is 'alive=0 dead=100 moved=0' ask check

# pinned_there: flows that the first director pins to servers that are not those
# of the other one's table
pinned_there() {
	ask close >/dev/null
	forget
	on_backup forget
	by 2
	fresh
	SERVERS="1 2 3" on_backup service mhs -g -t $VIP:80
	phases 500 100000
	add -g 3 -t $VIP:80
	at_last 0 mhs Hold
	is "$all_live" ask check
}

# synced: the backup has their connections
synced() { pinned_there && at_last "$(conns)" on_backup conns; }

director sysctl -wq net.ipv4.vs.sync_threshold="1 2"
ipvs --start-daemon master --mcast-interface eth0
on_backup ipvs --start-daemon backup --mcast-interface eth0
result "sync daemon: the backup gets connections of pinned flows" synced
by 3
result "sync daemon: by the backup all flows live" is "$all_live" ask check
result "sync daemon: the others have no connection" \
	is "$(conns)" on_backup conns
result "sync daemon: the backup gets connections again" synced
on_backup ipvs --stop-daemon backup
by 3
result "sync daemon: when it has ended, all flows live, too" \
	is "$all_live" ask check
ipvs --stop-daemon master
pinned_there
by 3
result "control: without the daemon they do not" \
	is 'alive=* dead=[1-9]* moved=0' ask check
by 2

# from a scheduler with connections, and back
ask close >/dev/null
forget
service wlc -g -t $VIP:80
ask tcp $VIP 80 100 >/dev/null
before=$(conns)
ipvs -E -t $VIP:80 -s mhs -b flag-1,flag-2
result "from wlc: flows live" is "$all_live" ask check
at_last stable mhs State >/dev/null
result "from wlc: new flows need no connection" is 's1=* s2=*' \
	ask tcp $VIP 80 40
result "from wlc: they have none" is "$before" conns
director sysctl -wq net.ipv4.vs.mhs.stateless=0
ask check >/dev/null
# a late packet of a closed flow makes one, too
result "stateless=0: each flow has a connection" \
	test "$(conns)" -ge $((before + 40))
ipvs -E -t $VIP:80 -s wlc
result "back to wlc: flows live" is 'alive=140 dead=0 moved=0' ask check
ktap_finished
