#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 90
# Masquerading where the way back is not plain: services that share a server,
# another scheduler's service, clients that talk to a server directly, the
# director's own clients and health checks, a server on the director, a helper,
# firewall marks, entries for all by masq_stateless=0, conntrack.  Real servers
# are nginx.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
need nft nginx curl

readonly R1=10.2.0.11 R2=10.2.0.12 LOCAL=10.2.0.10
readonly OTHER=10.9.0.2 # another virtual address, the director's alone
readonly R1V6=fd02::11 R2V6=fd02::12

# nginx NAMESPACE PORT: says its name
nginx_start() {
	local dir=$work/$1

	mkdir -p "$dir"
	cat >"$dir/conf" <<-EOF
		pid $dir/pid;
		error_log $dir/error.log;
		daemon off;
		worker_processes 1;
		events { worker_connections 256; }
		http {
			access_log off;
			server {
				listen $2; listen [::]:$2;
				location / { return 200 "$1\n"; }
			}
		}
	EOF
	bg_ns "$1" nginx -q -c "$dir/conf" -e "$dir/error.log" &
	defer kill $!
	busywait 20 listening "$1" "$2"
}

# get NAMESPACE ADDRESS:PORT COUNT: answers "COUNT" by server, as "s1=3 s2=7".
# From ports that none had before: IPVS itself, by any scheduler, confuses the
# flows of two services from one port to one server.
get() {
	local i urls=()

	fresh_ports "$1"
	for ((i = 0; i < $3; i++)); do
		urls+=("http://$2/")
	done
	reply=$(in_ns "$1" curl -s -m 5 -H "Connection: close" \
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

# service_in NAMESPACE ADDRESS:PORT SCHEDULER SERVER:PORT...: -m all
service_in() {
	local s

	learn "$1" < <(
		echo "-A -t $2 -s $3"
		for s in "${@:4}"; do
			echo "-a -t $2 -r $s -m"
		done
	)
}

# service ADDRESS:PORT SCHEDULER SERVER:PORT...: the director's
service() {
	service_in dr "$@"
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

# udp_serve NAMESPACE PORT: answers what it is asked
udp_serve() {
	bg_ns "$1" python3 "$here/nat.py" serve --port "$2" --name "$1" &
	defer kill $!
	busywait 20 udp_listening "$1" "$2"
}

udp_listening() {
	[ -n "$(in_ns "$1" ss -Hlun "sport = :$2")" ]
}

# udp_ask ADDRESS NAMESPACE: from that one, port 5060, who answers for $OTHER?
udp_ask() {
	in_ns "$2" python3 -c "
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(('$1', 5060))
sock.settimeout(3)
for _ in range(3):
    sock.sendto(b'x', ('$OTHER', 5060))
    try:
        print('%s:%d' % sock.recvfrom(99)[1])
        break
    except OSError:
        pass"
}

# direct_states: of the direct flows to $R1:80, a count for each state
direct_states() {
	dr ipvsadm -Lnc | awk -v s=$R1:80 '$5 == s && $6 == s { n[$3]++ }
		END { for (s in n) print n[s], s }'
}

# made SERVICE: entries since it is there
made() {
	echo $(($(mhs NewEntries "$1") + $(mhs PinnedEntries "$1")))
}

# stateless 0, or 1: may new masquerading servers do without entries?
stateless() {
	sysctls dr net.ipv4.vs.mhs.masq_stateless="$1"
}

# flows_by_both NAME STATELESS: 10 flows, both directors have the service anew
flows_by_both() {
	local n

	flow "$1" reset
	for n in dr d2; do
		in_ns $n ipvsadm -C
		sysctls $n net.ipv4.vs.mhs.masq_stateless="$2"
		service_in $n $VIP4:80 mhs $R1:80
	done
	flow "$1" open 10
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

# past: the number of entries for flows past the service, and of those not made
past() {
	echo "$(mhs DirectEntries) $(mhs Capped)"
}

# all_past N: have N flows past the service an entry?
all_past() {
	[ "$(mhs DirectEntries)" -eq "$1" ]
}

# past_again: 5 such flows of UDP; is there an entry more than the limit?
past_again() {
	in_ns cl bash -c "for i in {1..5}; do echo >/dev/udp/$R1/8080; done"
	[ "$(mhs DirectEntries)" -gt 3 ]
}

# past_on: for more than twice as long as an idle flow lives three flows of UDP
# go on, and others come.  The server refuses them, every second one is told.
past_on() {
	in_ns cl bash -c "
		exec 3>/dev/udp/$R1/8080 4>/dev/udp/$R1/8080 5>/dev/udp/$R1/8080
		for i in {1..40}; do
			for fd in 3 4 5; do
				echo >&\$fd || echo >&\$fd
			done
			echo >/dev/udp/$R1/8080
			sleep 0.2
		done" 2>/dev/null
}

# in_name_of_clients HOST FLAGS...: to the server, from the ports of the flows to
# HOST; their server answers those that ask for it
in_name_of_clients() {
	local flags

	for flags in "${@:2}"; do
		in_ns cl ss -Htn state established dst "$1" |
			awk '{ sub(/:/, " ", $3); print $3 }' |
			raw cl --pairs --good --dst $R1 --dports 80 \
				--flags "$flags" >/dev/null
	done
}

plan 66
load_module
setup_net 2
for i in 1 2; do
	ip -n "$(ns s$i)" route add 10.1.0.0/24 via 10.2.0.10
	nginx_start s$i 8080
done
nginx_start dr 8080
# what the client says to a server directly passes the director too
ip_ns rt <<-EOF
	route add $R1/32 via 10.2.0.10
	route add $R2/32 via 10.2.0.10
	route add $LOCAL/32 via 10.2.0.10
EOF

service $VIP4:80 mhs $R1:8080 $R2:8080
get cl $VIP4 20
check "nginx: served" 20 "$(total)"
check "nginx: no entries" "0 0" "$(conns) $(made $VIP4:80)"

# The client talks to a server directly
get cl $R1:8080 20
check "direct: answered by the server itself" "s1=20 " "$reply"
check_cmp "direct: entries where the slot names it" \
	"$(mhs DirectEntries)" -ge 1
check_cmp "direct: and only there" "$(mhs DirectEntries)" -lt 20
get cl $VIP4 10
check "direct: the service goes on" 10 "$(total)"
check "direct: without entries" 0 "$(made $VIP4:80)"

# The director's health check, and its own client of the service
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
get cl $R1:8080 20
check "masq_stateless=0, direct: answered, no entries" "s1=20  0" \
	"$reply $(mhs DirectEntries)"
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

# A server on the director
service $VIP4:80 mhs $LOCAL:8080 $R2:8080
get cl $VIP4 30
check "local node: served" 30 "$(total)"
check "local node: takes its share" yes "$([[ $reply = *dr=* ]] && echo yes)"
check "local node: no entries" 0 "$(made $VIP4:80)"
get cl $LOCAL:8080 20
check "local node, direct: answered" "dr=20 " "$reply"
dr ipvsadm -C

# A server of one service is a client of another scheduler's, from the very port:
# what the other server answers is not past the service
ip -n "$(ns dr)" addr add $OTHER/32 dev lo
ip -n "$(ns s1)" route add $OTHER/32 via $LOCAL
ip -n "$(ns s2)" route add $R1/32 via $LOCAL
udp_serve s2 5060
service_udp $VIP4:5060 mhs $R1:5060
service_udp $OTHER:5060 rr $R2:5060
check "a server that is a client, by another scheduler: answered" \
	"$OTHER:5060" "$(udp_ask $R1 s1)"
check "a server that is a client: no entry past the service" 0 \
	"$(mhs DirectEntries $VIP4:5060)"
dr ipvsadm -C
# and so is one on the director itself, of ours
service_udp $VIP4:5060 mhs $LOCAL:5060
service_udp $OTHER:5060 mhs $R2:5060
check "a server on the director that is a client: answered" \
	"$OTHER:5060" "$(udp_ask $LOCAL dr)"
dr ipvsadm -C

# Direct flows are as old as the server has it, also where a flood is awaited
dr sysctl -qw net.ipv4.vs.secure_tcp=3
service $VIP4:80 mhs $R1:80
flow_start e --host $R1
flow e open 10
flow e ping
check "secure_tcp, direct: the flows are established" "10 ESTABLISHED" \
	"$(direct_states)"
flow e reset
flow_end e
dr sysctl -qw net.ipv4.vs.secure_tcp=0
dr ipvsadm -C

# Flows past the service that began before there was one, and what others send
# to the server in the name of clients that have flows by the service
flow_start d --host $R1
flow_start c --host $VIP4
flow d open 20
service $VIP4:80 mhs $R1:80
flow d ping
check "direct, older than the service: they go on" "20 0" \
	"$(value flows) $(value broken)"
check "direct, older than the service: entries" 20 "$(mhs DirectEntries)"
flow c open 20
flow c ping
in_name_of_clients $VIP4 A S
check "in a client's name: an entry for each flow" 40 "$(mhs DirectEntries)"
flow c ping
check "in a client's name: the flows go on" "20 0" \
	"$(value flows) $(value broken)"
in_name_of_clients $VIP4 SA PA R S R PA F PA
flow c ping
check "in a client's name, again: the flows go on" "20 0" \
	"$(value flows) $(value broken)"
flow d ping
check "direct, beside them: they go on" "20 0" \
	"$(value flows) $(value broken)"
in_name_of_clients $R1 R S R PA
flow d ping
check "in a direct client's name: the flows go on" "20 0" \
	"$(value flows) $(value broken)"
flow d reset
flow d open 20
in_name_of_clients $R1 S R PA SA
flow d ping
check "in a direct client's name, from its SYN on: the flows go on" "20 0" \
	"$(value flows) $(value broken)"
flow_end c
flow d reset

# Only the server speaks
flow d open 20
flow d ping
in_name_of_clients $R1 R F P
flow d hear 1 12
check "direct, after what ends no flow of the client: the server speaks first" \
	"20 0" "$(value flows) $(value broken)"
dr ipvsadm -C
flow d reset
flow d open 20
windows 3600000 3600000
service $VIP4:80 mhs $R1:80 $R2:80
flow d ping
check_cmp "direct: other slots are of the other server" \
	"$(mhs DirectEntries)" -lt 20
flow_send d hear 80 0.1
sleep 1 # the clients have asked, and are silent
dr ipvsadm -d -t $VIP4:80 -r $R2:80
result "direct, the other server is deleted: an entry for each" \
	"$(busywait 20 all_past 20; echo $?)"
windows 0 3600000
busywait 20 pinning
windows 0 100
busywait 20 stable
flow_wait d "hear, while the other server is deleted"
check "direct, the other server is deleted: the server goes on alone" "20 0" \
	"$(value flows) $(value broken)"
flow_end d
windows 60000 0
dr ipvsadm -C

# A server with entries beside one from before that does without
windows 0 100
service $VIP4:80 mhs $R1:8080
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

# A director that is the router behind another one with the same servers, as the
# nodes of kube-proxy are: what that one sends looks like flows past the service
director d2 20
ip -n "$(ns dr)" route add $R1/32 via 10.2.0.20
ip -n "$(ns s1)" route replace 10.1.0.0/24 via 10.2.0.20
ip -n "$(ns d2)" route add 10.1.0.0/24 via $LOCAL
sysctls d2 net.ipv4.vs.mhs.max_quic_entries=3
flow_start g --host $VIP4 --timeout 2
flows_by_both g 1
check_cmp "a router behind the director, control: flows above the limit break" \
	"$(value flows)" -lt 10
flows_by_both g 0
check "a router behind the director, masq_stateless=0: flows" 10 \
	"$(value flows)"
check "a router behind the director, masq_stateless=0: entries of the first only" \
	"10 0 0" "$(made $VIP4:80) $(mhs NewEntries $VIP4:80 d2) $(mhs \
		DirectEntries $VIP4:80 d2)"
flow_end g
stateless 1
ip -n "$(ns dr)" route del $R1/32 via 10.2.0.20
ip -n "$(ns s1)" route replace 10.1.0.0/24 via $LOCAL
dr ipvsadm -C

# The limit of entries for flows past the service, of which every slot names the
# one server
service $VIP4:80 mhs $R1:8080
raw cl --src 10.1.0.2 --ports 2000-2019 --dst $R1 --dports 8080 >/dev/null
check "past the service, no limit: an entry for each" "20 0" "$(past)"
dr ipvsadm -C
sysctls dr net.ipv4.vs.mhs.max_quic_entries=3
service $VIP4:80 mhs $R1:8080
raw cl --src 10.1.0.2 --ports 2020-2039 --dst $R1 --dports 8080 >/dev/null
check "past the service, limit: that many entries" "3 17" "$(past)"
dr ipvsadm -C
# UDP without a packet for a second is over, and the limit told two later
dr ipvsadm --set 0 0 1
service_udp $VIP4:80 mhs $R1:8080
past_on
check "past the service, limit: flows that go on count" 3 "$(mhs DirectEntries)"
result "past the service, limit: more when the time has passed" \
	"$(busywait 20 past_again; echo $?)"
sysctls dr net.ipv4.vs.mhs.max_quic_entries=65536
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
