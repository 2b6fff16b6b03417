#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 190
# tags: races
# Masquerading where the way back is not plain.  By default, with an entry for
# each flow: a server on the director, clients that talk to a server straight, a
# server that speaks from its service's port.  Without entries, by
# masq_stateless=1: services that share a server, another scheduler's service, the
# director's own clients and health checks, a server on the director, a helper,
# firewall marks, conntrack.  And the hook in FORWARD, which is there as long as
# somebody needs it.  Real servers are nginx.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_nginx.sh
. "${0%/*}/lib_nginx.sh"
need nft nginx curl ping

readonly R1=10.2.0.11 R2=10.2.0.12 LOCAL=10.2.0.10
readonly OTHER=10.9.0.2 # another virtual address, the director's alone
readonly R1V6=fd02::11 R2V6=fd02::12 LOCALV6=fd02::10

# get NAMESPACE ADDRESS:PORT COUNT [SECONDS]: answers "COUNT" by server, as
# "s1=3 s2=7".  From ports that none had before: IPVS itself, by any scheduler,
# confuses the flows of two services from one port to one server.
get() {
	local i urls=()

	fresh_ports "$1"
	for ((i = 0; i < $3; i++)); do
		urls+=("http://$2/")
	done
	reply=$(in_ns "$1" curl -s -m "${4:-$((5 * ${patience:-1}))}" -H "Connection: close" \
		--no-keepalive "${urls[@]}" | sort | uniq -c |
		awk '{ printf "%s=%s ", $2, $1 }')
	note "get $* -> $reply"
}

total() {
	local n=0 w

	for w in $reply; do
		n=$((n + ${w#*=}))
	done
	echo $n
}

# service ADDRESS:PORT SCHEDULER SERVER:PORT...: -m all
service() {
	local s

	learn dr < <(
		echo "-A -t $1 -s $2"
		for s in "${@:3}"; do
			echo "-a -t $1 -r $s -m"
		done
	)
}

# service_mark MARK PORT: the same by mark, of what goes to that port
service_mark() {
	in_ns dr nft -f - <<-EOF
		table ip mhs {
			chain pre {
				type filter hook prerouting priority -150
				ip daddr $VIP4 tcp dport $2 meta mark set $1
			}
		}
	EOF
	{
		echo "-A -f $1 -s mhs"
		echo "-a -f $1 -r $R1:8080 -m"
		echo "-a -f $1 -r $R2:8080 -m"
	} | dr ipvsadm -R
	busywait 10 settled "$1"
}

# service_udp ADDRESS:PORT SCHEDULER SERVER:PORT: -m
service_udp() {
	printf '%s\n' "-A -u $1 -s $2" "-a -u $1 -r $3 -m" | dr ipvsadm -R
	[ "$2" != mhs ] || wait_settled "$1"
}

# udp_mirror NAMESPACE: on port 5060, tells who asks
udp_mirror() {
	bg_ns "$1" python3 "$here/nat.py" mirror --port 5060 &
	defer kill $!
	busywait 20 udp_listening "$1" 5060
}

udp_listening() {
	[ -n "$(in_ns "$1" ss -Hlun "sport = :$2")" ]
}

# udp_ask NAMESPACE ADDRESS PEER [PORT]: from that one, port 5060 if not given; who
# answers, and whom has the mirror seen?
udp_ask() {
	in_ns "$1" python3 "$here/nat.py" query --bind "$2" --host "$3" \
		--port 5060 --from "${4:-5060}" --timeout 3
}

# made SERVICE: entries since it is there
made() {
	echo $(($(mhs NewEntries "$1") + $(mhs PinnedEntries "$1")))
}

# stateless 0, or 1: may new masquerading servers do without entries?
stateless() {
	sysctls dr net.ipv4.vs.mhs.masq_stateless="$1"
}

# all_ways VIP LOCAL REMOTE: by two services, of a server on the director and of
# another one, and straight to these two
all_ways() {
	local got=""

	conns_begin
	service "$1:80" mhs "$2:8080"
	service "$1:81" mhs "$3:8080"
	get cl "$1:80" 10
	got+=$reply
	get dr "$2:8080" 10
	got+=$reply
	get cl "$2:8080" 10
	got+=$reply
	get cl "$1:81" 10
	got+=$reply
	get dr "$3:8080" 10
	got+=$reply
	get cl "$3:8080" 10
	check "$limit, $1: all are answered by the server itself" \
		"dr=10 dr=10 dr=10 s1=10 s1=10 s1=10 " "$got$reply"
	check "$limit, $1: an entry for each flow of the services" "10 10 20" \
		"$(made "$1:80") $(made "$1:81") $(conns_new)"
	dr ipvsadm -C
}

# own_client NAME ADDRESS SERVER: the director's, and its health check
own_client() {
	get dr "$3:8080" 5
	check "health check, $1: answered" "s1=5 " "$reply"
	get dr "$2" 5
	check "client on the director, $1: served" 5 "$(total)"
	check_cmp "client on the director, $1: by entries" \
		"$(made "$2:80")" -ge 5
}

# own_addresses add, or del
own_addresses() {
	ip_ns dr <<-EOF
		addr $1 $VIP4/32 dev lo
		addr $1 $VIP6/128 dev lo
	EOF
}

# local_node NAME VIP LOCAL REMOTE: of two servers one is on the director
local_node() {
	local own

	service "$2:80" mhs "$3:8080" "$4:8080"
	get cl "$2" 30
	own=${reply#*dr=}
	own=${own%% *}
	check "local node, $1: served" 30 "$(total)"
	check_cmp "local node, $1: takes its share" "${own:-0}" -ge 1
	check "local node, $1: its flows alone have entries" "$own" \
		"$(made "$2:80")"
	get cl "$3:8080" 10
	check "local node, $1, straight: answered" "dr=10 " "$reply"
	dr ipvsadm -C
}

# seen: TCP segments of the server that have reached the client, of either family:
# from its own address, and from the virtual one
seen() {
	in_ns cl nft list table inet mhs_seen |
		sed -n 's/.*counter packets \([0-9]*\).*/\1/p' | paste -sd ' '
}

# out_of_servers_port FLAGS: 20 segments of each family to the client
out_of_servers_port() {
	in_ns cl nft -f - <<-EOF
		table inet mhs_seen
		delete table inet mhs_seen
		table inet mhs_seen {
			chain pre {
				type filter hook prerouting priority 0
				tcp dport 2000-2019 ip saddr $R1 counter
				tcp dport 2000-2019 ip saddr $VIP4 counter
				tcp dport 2000-2019 ip6 saddr $R1V6 counter
				tcp dport 2000-2019 ip6 saddr $VIP6 counter
			}
		}
	EOF
	raw s1 --good --src $R1 $R1V6 --ports 8080 --dst 10.1.0.2 fd01::2 \
		--dports 2000-2019 --flags "$1" >/dev/null
	busywait 10 all_seen
}

all_seen() {
	local n

	n=$(seen)
	[ $((${n// / + })) -ge 40 ]
}

# forgotten SERVICE: are its deleted servers?
forgotten() {
	[ "$(mhs Gone "$1")" -eq 0 ]
}

# segments NAMESPACE: TCP segments sent from there
segments() {
	local net lines

	net_dir "$1"
	mapfile -t lines <"$net/snmp"
	[[ "${lines[*]}" =~ Tcp:(\ -?[0-9]+){10}\ ([0-9]+) ]]
	echo "${BASH_REMATCH[2]}"
}

# while_settling ARGUMENTS: a server speaks to clients past the director while a
# service of it settles, added by these arguments
while_settling() {
	flow d open 5
	flow_send d hear 40 0.1
	until_more 20 segments s1
	printf '%s\n' "-A -t $VIP4:80 -s mhs" "-a -t $VIP4:80 -r $R1:80 $*" |
		dr ipvsadm -R
	wait_settled
	flow_wait d "hear, while a service of $* settles"
}

# forward_hooks: does the module stand in FORWARD of IPv4, and of IPv6?  1 is yes.
# Where the kernel does not list its hooks, a packet that is forwarded tells.
forward_hooks() {
	local family before peer ways=()

	for family in ip ip6; do
		if [ -z "$probe" ]; then
			ways+=("$(dr nft list hooks $family |
				grep -c "hook_forward \[ip_vs_mhs\]")")
			continue
		fi
		before=$(probed)
		peer=$R1
		[ $family = ip ] || peer=$R1V6
		in_ns cl ping -q -c 1 -W 20 "$peer" >/dev/null || ways+=(lost)
		ways+=($(($(probed) > before)))
	done
	echo "${ways[*]}"
}

# probed: packets that met the hook
probed() {
	awk -v p="$probe" '$1 == p { print $2 }' $T/kprobe_profile
}

probe_begin() {
	echo "p:mhs/$probe ip_vs_mhs:hook_forward" >>$T/kprobe_events &&
		defer probe_end && echo 1 >"$T/events/mhs/$probe/enable"
}

probe_end() {
	echo 0 >"$T/events/mhs/$probe/enable"
	echo "-:mhs/$probe" >>$T/kprobe_events
}

hooks_are() {
	[ "$(forward_hooks)" = "$1" ]
}

# hooks NAME WANT: of IPv4 and IPv6
hooks() {
	if [ "$probe" = none ]; then
		result "FORWARD, $1" 0 "SKIP no list of hooks and no kprobes"
		return
	fi
	busywait 20 hooks_are "$2"
	check "FORWARD, $1" "$2" "$(forward_hooks)"
}

# edit LINES: of ipvsadm
edit() {
	printf '%s\n' "$@" | dr ipvsadm -R
}

plan 84
load_module
setup_net 2
for i in 1 2; do
	ip_ns s$i <<-EOF
		route add 10.1.0.0/24 via $LOCAL
		route add fd01::/64 via $LOCALV6
	EOF
	nginx_start s$i 8080
done
nginx_start dr 8080
# what the client says to a server straight passes the director too
ip_ns rt <<-EOF
	route add $R1/32 via $LOCAL
	route add $R2/32 via $LOCAL
	route add $LOCAL/32 via $LOCAL
	route add $R1V6/128 via $LOCALV6
	route add $R2V6/128 via $LOCALV6
EOF

# By default, whatever the limit of entries for UDP is
udp_mirror s2
for limit in 65536 0; do
	sysctls dr net.ipv4.vs.mhs.max_quic_entries=$limit
	port=$((5061 + !limit)) # for a flow that had no entry before
	limit="by default, max_quic_entries=$limit"
	all_ways $VIP4 $LOCAL $R1
	all_ways "[$VIP6]" "[$LOCALV6]" "[$R1V6]"
	service_udp $VIP4:5060 mhs $R2:5060
	service_udp "[$VIP6]:5060" mhs "[$R2V6]:5060"
	check "$limit, UDP: served" \
		"$VIP4:5060 10.1.0.2:$port [$VIP6]:5060 [fd01::2]:$port" \
		"$(udp_ask cl 10.1.0.2 $VIP4 $port) $(udp_ask cl fd01::2 $VIP6 $port)"
	check "$limit, UDP: an entry for each" "1 1" \
		"$(made $VIP4:5060) $(made "[$VIP6]:5060")"
	dr ipvsadm -C
done
sysctls dr net.ipv4.vs.mhs.max_quic_entries=65536

# Replies past the director while a service settles: somebody else's, unless it
# masquerades without entries
flow_start d --host $R1
while_settling -m
check "settling, masquerading by default: replies of others go on" "5 0 0" \
	"$(value flows) $(value broken) $(mhs PktUnsettled)"
flow d reset
dr ipvsadm -C

# A server that speaks to a peer from its service's port, as SIP and DNS do
udp_mirror cl
for n in 0 1; do
	[ $n = 0 ] || stateless 1
	service_udp $VIP4:5060 mhs $R1:5060
	service_udp "[$VIP6]:5060" mhs "[$R1V6]:5060"
	said4=$(udp_ask s1 $R1 10.1.0.2)
	said6=$(udp_ask s1 $R1V6 fd01::2)
	if [ $n = 0 ]; then
		check "by default, a server's own words, IPv4: from itself" \
			"10.1.0.2:5060 $R1:5060" "$said4"
		check "by default, a server's own words, IPv6: from itself" \
			"[fd01::2]:5060 [$R1V6]:5060" "$said6"
		check "by default, a server's own words: no entries" "0 0" \
			"$(made $VIP4:5060) $(made "[$VIP6]:5060")"
	else
		check "control: masq_stateless=1: from the service" \
			"10.1.0.2:5060 $VIP4:5060 [fd01::2]:5060 [$VIP6]:5060" \
			"$said4 $said6"
	fi
	dr ipvsadm -C
done

# A server of one service is a client of another scheduler's, from the very port;
# and so is one on the director itself, of ours
ip -n "$(ns dr)" addr add $OTHER/32 dev lo
ip -n "$(ns s1)" route add $OTHER/32 via $LOCAL
ip -n "$(ns s2)" route add $R1/32 via $LOCAL
for n in 0 1; do
	stateless $n
	service_udp $VIP4:5060 mhs $R1:5060
	service_udp $OTHER:5060 rr $R2:5060
	check "masq_stateless=$n, a server is another scheduler's client" \
		"$OTHER:5060 $R1:5060" "$(udp_ask s1 $R1 $OTHER)"
	dr ipvsadm -C
	service_udp $VIP4:5060 mhs $LOCAL:5060
	service_udp $OTHER:5060 mhs $R2:5060
	check "masq_stateless=$n, a server on the director is our client" \
		"$OTHER:5060 $LOCAL:5060" "$(udp_ask dr $LOCAL $OTHER)"
	dr ipvsadm -C
done

# Without entries: what that asks for
stateless 1
service $VIP4:80 mhs $R1:8080
service "[$VIP6]:80" mhs "[$R1V6]:8080"
for vip in $VIP4 "[$VIP6]"; do
	get cl "$vip" 20
	check "$vip: served, no entries" "s1=20  0" "$reply $(made "$vip:80")"
done
get cl $R1:8080 3 2
n=$(total)
get cl "[$R1V6]:8080" 3 2
check "control: masq_stateless=1, straight: no answer by the server" "0 0" \
	"$n $(total)"
out_of_servers_port S
check "a SYN of the server is its own" "20 0 20 0" "$(seen)"
out_of_servers_port SA
check "control: a SYN with ACK is the service's" "0 20 0 20" "$(seen)"
dr ipvsadm -C

# The same beside a service that does not masquerade, and one that does
while_settling -g
check "settling, direct routing: replies of others go on" "5 0 0" \
	"$(value flows) $(value broken) $(mhs PktUnsettled)"
flow d reset
dr ipvsadm -C
while_settling -m -w 0
check_cmp "control: settling, masq_stateless=1: replies are dropped" \
	"$(mhs PktUnsettled)" -ge 1
flow d reset
flow_end d
dr ipvsadm -C

# A server on the director
local_node IPv4 $VIP4 $LOCAL $R2
local_node IPv6 "[$VIP6]" "[$LOCALV6]" "[$R2V6]"

# The director's health check, and its own client of the service
service $VIP4:80 mhs $R1:8080 $R2:8080
service "[$VIP6]:80" mhs "[$R1V6]:8080" "[$R2V6]:8080"
own_addresses del
own_client IPv4 $VIP4 $R1
own_client IPv6 "[$VIP6]" "[$R1V6]"
own_addresses add
dr ipvsadm -D -t "[$VIP6]:80"

# Masquerading with entries, for those that come from now on
stateless 0
before=$(made $VIP4:80)
dr ipvsadm -e -t $VIP4:80 -r $R1:8080 -m -w 1
get cl $VIP4 10
check "masq_stateless=0: those of before do without" "10 $before" \
	"$(total) $(made $VIP4:80)"
dr ipvsadm -C
service $VIP4:80 mhs $R1:8080 $R2:8080
get cl $VIP4 20
check "masq_stateless=0: served, by entries" "20 20" \
	"$(total) $(made $VIP4:80)"
stateless 1
dr ipvsadm -C
service $VIP4:80 mhs $R1:8080 $R2:8080

# A second service with the same servers
service $VIP4:81 mhs $R1:8080 $R2:8080
get cl $VIP4:81 20
check "shared server, second service: served" 20 "$(total)"
check "shared server, second service: by entries" 20 "$(made $VIP4:81)"
before=$(made $VIP4:80)
get cl $VIP4 20
check "shared server, first service: served" 20 "$(total)"
check "shared server, first service: no entries" "$before" "$(made $VIP4:80)"

# The first one goes
dr ipvsadm -D -t $VIP4:80
get cl $VIP4:81 20
check "the first service is gone: entries for good" "20 40" \
	"$(total) $(made $VIP4:81)"
dr ipvsadm -e -t $VIP4:81 -r $R1:8080 -m -w 2
busywait 20 in_state transition $VIP4:81
before=$(made $VIP4:81)
get cl $VIP4:81 20
check "the first service is gone: also after an edit" "20 20" \
	"$(total) $(($(made $VIP4:81) - before))"
windows 0 100
dr ipvsadm -d -t $VIP4:81 -r $R1:8080
busywait 20 forgotten $VIP4:81
dr ipvsadm -a -t $VIP4:81 -r $R1:8080 -m
busywait 20 stable $VIP4:81
before=$(made $VIP4:81)
get cl $VIP4:81 20
own=${reply#*s2=}
check "a server is deleted, forgotten and back: its flows have no entries" \
	"20 ${own%% *}" "$(total) $(($(made $VIP4:81) - before))"
windows 60000 0
dr ipvsadm -D -t $VIP4:81
service $VIP4:81 mhs $R1:8080 $R2:8080
get cl $VIP4:81 20
check "the second service is made anew: no entries" "20 0" \
	"$(total) $(made $VIP4:81)"
dr ipvsadm -C
service $VIP4:80 mhs $R1:8080 $R2:8080
service $VIP4:81 mhs $R1:8080 $R2:8080
before=$(made $VIP4:80)

# A service of another scheduler with the same servers
service $VIP4:82 rr $R1:8080 $R2:8080
get cl $VIP4:82 20
check "another scheduler: served" 20 "$(total)"
get cl $VIP4 20
check "beside another scheduler: served" 20 "$(total)"
check "beside another scheduler: no entries" "$before" "$(made $VIP4:80)"
dr ipvsadm -D -t $VIP4:82

# A service by mark with the same servers
service_mark 8 83
get cl $VIP4:83 20
check "mark, shared server: served" 20 "$(total)"
get cl $VIP4 20
check "beside a mark: served" 20 "$(total)"
check "beside a mark: no entries" "$before" "$(made $VIP4:80)"
dr ipvsadm -D -f 8
in_ns dr nft delete table ip mhs

# A helper needs state
service $VIP4:21 mhs $R1:8080
get cl $VIP4:21 5
check "port of a helper: served" 5 "$(total)"
check "port of a helper: entries" 5 "$(made $VIP4:21)"
dr ipvsadm -C

# A server with entries beside one from before that does without
windows 0 100
service $VIP4:80 mhs $R1:8080
get cl $VIP4 1 # the first packet: a change is one from now on
stateless 0
dr ipvsadm -a -t $VIP4:80 -r $R2:8080 -m
busywait 20 stable
before=$(made $VIP4:80)
get cl $VIP4 20
own=${reply#*s2=}
check "masq_stateless=0, a server is added: its flows alone have entries" \
	"20 ${own%% *}" "$(total) $(($(made $VIP4:80) - before))"
dr ipvsadm -C
# and back, under flows that have one
service $VIP4:80 mhs $R1:80
flow_start f --host $VIP4
flow f open 10
flow f ping
check "masq_stateless=0: flows by entries" "10 0 10" \
	"$(value flows) $(value broken) $(made $VIP4:80)"
stateless 1
dr ipvsadm -e -t $VIP4:80 -r $R1:80 -m -w 1
flow f open 10
flow f ping
check "masq_stateless=1 again: those of before keep entries" "20 0 20" \
	"$(value flows) $(value broken) $(made $VIP4:80)"
flow f reset
flow_end f
windows 60000 0
dr ipvsadm -C

# A firewall mark
service_mark 7 80
get cl $VIP4 10
check "mark: served" 10 "$(total)"
check "mark: by entries" 10 "$(made 7)"
dr ipvsadm -C
in_ns dr nft delete table ip mhs

# Conntrack keeps the flows of the service in its own table, and knows replies
modprobe -q nf_conntrack
dr sysctl -qw net.ipv4.vs.conntrack=1
in_ns dr nft -f - <<-EOF
	table ip mhs {
		chain established {
			type filter hook forward priority 0
			ip saddr { $R1, $R2 } ct state != established drop
		}
	}
EOF
service $VIP4:80 mhs $R1:8080 $R2:8080
get cl $VIP4 10
check "vs.conntrack=1: served" 10 "$(total)"
check "vs.conntrack=1: no entries" 0 "$(made $VIP4:80)"
# and with the client's address hidden, as in a cluster of containers
in_ns dr nft -f - <<-EOF
	table ip hide {
		chain post {
			type nat hook postrouting priority 100
			ip daddr { $R1, $R2 } masquerade
		}
	}
EOF
get cl $VIP4 10
check "source address hidden: served" 10 "$(total)"
check "source address hidden: no entries" 0 "$(made $VIP4:80)"
in_ns dr nft delete table ip hide
in_ns dr nft delete table ip mhs
dr sysctl -qw net.ipv4.vs.conntrack=0
dr ipvsadm -C
service $VIP4:80 mhs $R1:8080 $R2:8080
get cl $VIP4 10
check "vs.conntrack=0 again: served" 10 "$(total)"
dr ipvsadm -C

# the control: without the way back
service $VIP4:80 "mh -b mh-port" $R1:8080 $R2:8080
get cl $VIP4 10
check_cmp "control: mh makes entries" "$(conns)" -ge 10
dr ipvsadm -C

# The hook in FORWARD: nobody needs it where no service is by mark and nothing
# masquerades without entries
stateless 0
windows 3600000 3600000
edit "-A -t $VIP4:80 -s mhs" "-a -t $VIP4:80 -r $R1:80 -g" \
	"-a -t $VIP4:80 -r $R2:80 -m" "-A -t [$VIP6]:80 -s mhs" \
	"-a -t [$VIP6]:80 -r [$R1V6]:80 -m"
T=/sys/kernel/tracing probe=""
if ! dr nft list hooks ip 2>/dev/null | grep -q "hook_in \[ip_vs_mhs\]"; then
	probe=forward$$
	note "this kernel does not list its hooks"
	probe_begin || probe=none
fi
hooks "by default: not there" "0 0"
edit "-A -f 7 -s mhs"
hooks "a service by mark" "1 0"
edit "-A -f 7 -6 -s mhs" "-D -f 7"
hooks "a service by mark, IPv6" "0 1"
edit "-D -f 7 -6"
hooks "services by mark are gone" "0 0"
stateless 1
edit "-e -t $VIP4:80 -r $R2:80 -m -w 2"
hooks "a server with entries is edited" "0 0"
edit "-A -t $VIP4:81 -s mhs" "-a -t $VIP4:81 -r $R1:81 -m"
hooks "a server without entries" "1 0"
edit "-A -f 7 -s mhs" "-D -t $VIP4:81"
hooks "its service is gone, one by mark is there" "1 0"
edit "-A -t [$VIP6]:81 -s mhs" "-a -t [$VIP6]:81 -r [$R1V6]:81 -m" \
	"-a -t [$VIP6]:81 -r [$R2V6]:81 -m" "-D -f 7"
hooks "servers without entries, IPv6" "0 1"
edit "-d -t [$VIP6]:81 -r [$R1V6]:81"
hooks "one of them is deleted" "0 1"
edit "-d -t [$VIP6]:81 -r [$R2V6]:81"
hooks "both are deleted, older flows are held" "0 1"
windows 0 100
hooks "both are forgotten" "0 0"
edit "-a -t [$VIP6]:81 -r [$R2V6]:81 -m" "-A -t $VIP4:81 -s mhs" \
	"-a -t $VIP4:81 -r $R1:81 -m"
hooks "servers without entries, both families" "1 1"
dr ipvsadm -C
edit "-A -t $VIP4:80 -s mhs" "-A -t [$VIP6]:80 -s mhs"
hooks "all is gone, and services without servers are there" "0 0"
dr ipvsadm -C
