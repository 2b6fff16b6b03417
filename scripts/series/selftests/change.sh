#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Flows when servers come, go and change; with mh older flows survive by their
# connections, which the first control takes away.
# timeout: 180

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
		net.ipv4.vs.mhs.hold_ms=500 net.ipv4.vs.mhs.pin_ms=1000
	service mhs "${1:--g}" -t $VIP:80
	ask open $VIP 80 100 >/dev/null
}

long() {
	director sysctl -wq net.ipv4.vs.mhs.hold_ms=100000 \
		net.ipv4.vs.mhs.pin_ms=100000
}

some() { [ "$("$@")" -gt 0 ]; }
# packets that the statistics of the service have counted
arrived() { ipvs -Ln --stats --exact | awk '$1 == "TCP" { print $4; exit }'; }
none_of() { local what=$1; shift; [[ $("$@") != *$what=* ]]; }

ktap_print_header
ktap_set_plan 32
topology

fresh
long
add -g 3 -t $VIP:80
result "added: slots are unstable" some unstable
result "added: older flows live" is "$all_live" ask check
result "added: without connections" is 0 conns
result "added: new flows come to all" is 's1=* s2=* s3=*' ask open $VIP 80 90
result "added: some of them have connections" some conns
result "added: all flows live" is 'alive=190 dead=0 moved=0' ask check

fresh
director sysctl -wq net.ipv4.vs.mhs.pin_ms=5000
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
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -g -w 0
result "weight 0: no new flow" none_of s2 ask open $VIP 80 50
result "weight 0: older flows live" is 'alive=150 dead=0 moved=0' ask check

fresh
long
ipvs -d -t $VIP:80 -r 10.0.0.12:80
result "deleted: no new flow" none_of s2 ask open $VIP 80 50
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
ask open $VIP 80 50 >/dev/null
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
	ask open $VIP 80 1
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

# a template is for direct routing and tunnels only
fresh
long
ipvs -e -t $VIP:80 -r 10.0.0.11:80 -m
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -m
result "masqueraded: older flows live" is "$all_live" ask check
ipvs -E -t $VIP:80 -s wlc
ipvs -E -t $VIP:80 -s mhs -b flag-1,flag-2
at_last stable mhs State
result "bound again, masqueraded: no template is left" \
	is 'alive=0 dead=100 moved=0' ask check

fresh
long
ipvs -d -t $VIP:80 -r 10.0.0.12:80
ipvs -a -t $VIP:80 -r 10.0.0.12:80 -m
result "added again, masqueraded: no template is left" \
	is 'alive=* dead=[1-9]* moved=0' ask check

fresh
ipvs -e -t $VIP:80 -r 10.0.0.11:80 -i
ipvs -e -t $VIP:80 -r 10.0.0.12:80 -i
rx() { in_ns "$s1" cat /sys/class/net/tunl0/statistics/rx_packets; }
before=$(rx)
result "another method: flows live" is "$all_live" ask check
result "another method: by the tunnel" test "$(rx)" -gt "$before"

# from a scheduler with connections, and back
ask close >/dev/null
service wlc -g -t $VIP:80
ask open $VIP 80 100 >/dev/null
before=$(conns)
ipvs -E -t $VIP:80 -s mhs -b flag-1,flag-2
result "from wlc: flows live" is "$all_live" ask check
at_last stable mhs State >/dev/null
result "from wlc: new flows need no connection" is 's1=* s2=*' \
	ask open $VIP 80 40
result "from wlc: they have none" is "$before" conns
director sysctl -wq net.ipv4.vs.mhs.stateless=0
ask check >/dev/null
# a late packet of a closed flow makes one, too
result "stateless=0: each flow has a connection" \
	test "$(conns)" -ge $((before + 40))
ipvs -E -t $VIP:80 -s wlc
result "back to wlc: flows live" is 'alive=140 dead=0 moved=0' ask check
ktap_finished
