#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two servers behind nginx, haproxy and IPVS, each on a director of its own, in
# turns; runs in the machine, see latency.py.
#
# usage: guest.sh OUT LOAD SECONDS ROUNDS, histograms go to OUT, a line of CSV for
# each run to stdout

case ${1:---help} in
-h | --help)
	sed -n '3,/^$/s/^# \{0,1\}//p' "$0"
	exit 0
	;;
esac

readonly OUT=$1 LOAD=$2 RUN_S=$3 ROUNDS=$4 FAST=8080 SLOW=8090 SERVICE_MS=10
readonly BALANCERS="nginx haproxy wlc-dr mh-dr mhs-dr mh-nat"
declare -A host_of=() pid_of=()
self=$(realpath "${0%/*}")
# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "$self/../../selftests/net/ipvs_mhs/lib.sh"

# web NAMESPACE HTTP: nginx with these lines in its section http
web() {
	mkdir -p "$work/$1"
	cat >"$work/$1/conf" <<-EOF2
		daemon off; user root; worker_processes 1;
		pid $work/$1/pid; error_log $work/$1/log;
		events { worker_connections 4096; }
		http {
			access_log off; keepalive_requests 1000000;
			client_body_temp_path $work/$1; proxy_temp_path $work/$1;
			fastcgi_temp_path $work/$1; uwsgi_temp_path $work/$1;
			scgi_temp_path $work/$1;
			$2
		}
	EOF2
	bg_ns "$1" nginx -c "$work/$1/conf" 2>/dev/null &
	pid_of[$1]=$!
	defer kill $!
}

proxy_nginx() {
	web nginx "
		upstream fast { server 10.2.0.11:$FAST; server 10.2.0.12:$FAST; keepalive 256; }
		upstream slow { server 10.2.0.11:$SLOW; server 10.2.0.12:$SLOW; }
		server { listen $VIP4:$FAST backlog=4096; location / {
			proxy_pass http://fast; proxy_http_version 1.1;
			proxy_set_header Connection \"\"; } }
		server { listen $VIP4:$SLOW backlog=4096;
			location / { proxy_pass http://slow; } }"
}

proxy_haproxy() {
	cat >"$work/haproxy.conf" <<-EOF2
		global
			maxconn 4096
			nbthread 1
		defaults
			mode http
			timeout connect 20s
			timeout client 20s
			timeout server 20s
		listen fast
			bind $VIP4:$FAST
			server s1 10.2.0.11:$FAST
			server s2 10.2.0.12:$FAST
		listen slow
			bind $VIP4:$SLOW
			server s1 10.2.0.11:$SLOW
			server s2 10.2.0.12:$SLOW
	EOF2
	bg_ns haproxy haproxy -db -f "$work/haproxy.conf" >/dev/null 2>&1 &
	pid_of[haproxy]=$!
	defer kill $!
}

# ipvs NAMESPACE SCHEDULER METHOD
ipvs() {
	local port i

	for port in $FAST $SLOW; do
		echo "-A -t $VIP4:$port -s $2"
		for i in 1 2; do
			echo "-a -t $VIP4:$port -r 10.2.0.1$i:$port $3 -w 1"
		done
	done | learn "$1"
}

balancer() {
	case $1 in
	nginx | haproxy) "proxy_$1" ;;
	wlc-dr) ipvs "$1" wlc -g ;;
	mh-dr) ipvs "$1" "mh -b mh-port" -g ;;
	mh-nat) ipvs "$1" "mh -b mh-port" -m ;;
	mhs-dr) ipvs "$1" mhs -g ;;
	esac
}

answers() {
	in_ns cl curl -s -o "$work/null" -m 5 "http://$VIP4:$1/"
}

# turn BALANCER: requests go to its director, and so does what servers send to
# clients by their own addresses, as they do for masquerading alone
turn() {
	local i

	route_vip "${host_of[$1]}"
	for i in 1 2; do
		echo "route replace default via 10.2.0.${host_of[$1]} table 100" |
			ip_ns s$i
	done
}

# busy_ms: how long the machine's one CPU was not idle, softirqs included, which is
# where IPVS works.  Not by the other fields of /proc/stat: User-Mode Linux samples
# them at its 100 ticks a second, and with the idle time, which is by the clock, they
# are more than has passed.
busy_ms() {
	local up idle

	read -r up idle </proc/uptime
	echo $(((${up/./} - ${idle/./}) * 10))
}

# proxy_ms BALANCER: CPU time of its processes, which ticks sample; none for IPVS
proxy_ms() {
	local pid sum=0 words

	for pid in ${pid_of[$1]:+${pid_of[$1]} $(pgrep -P "${pid_of[$1]}")}; do
		read -ra words <"/proc/$pid/stat"
		sum=$((sum + words[13] + words[14]))
	done
	echo $((sum * 10))
}

# charge BALANCER COMMAND...: from the client; $cpu is what it took, $work/said
# what it said
charge() {
	local busy proxy

	proxy=$(proxy_ms "$1") busy=$(busy_ms)
	in_ns cl "${@:2}" >"$work/said"
	cpu=$(($(busy_ms) - busy)),$(($(proxy_ms "$1") - proxy))
}

# measure ROUND BALANCER
measure() {
	local clients cpu

	charge "$2" wrk -t 1 -c 200 -d "$RUN_S" --latency "http://$VIP4:$FAST/"
	awk -v run="$1,fast,$2,200" -v cpu="$cpu" -v OFS=, '
		BEGIN { ms["us"] = 0.001; ms["ms"] = 1; ms["s"] = 1000; ms["m"] = 60000 }
		function in_ms(text) {
			match(text, /[a-z]+/)
			return text * ms[substr(text, RSTART, RLENGTH)]
		}
		$1 == "Latency" && $2 ~ /^[0-9]/ { average = in_ms($2); longest = in_ms($4) }
		$1 ~ /^[0-9]+%$/ { at[$1] = in_ms($2) }
		$2 == "requests" { requests = $1; seconds = in_ms($4) / 1000 }
		/Socket errors/ { failed += $4 + $6 + $8 + $10 }
		/Non-2xx/ { failed += $NF }
		END { print run, requests, seconds, failed + 0, average, at["50%"],
				at["90%"], at["99%"], longest, cpu }' "$work/said"
	for clients in 3 30 200; do
		charge "$2" "$LOAD" $VIP4 $SLOW "$clients" 0 "$RUN_S" 0 \
			"$OUT/$1-$2-$clients.csv"
		awk -v run="$1,slow,$2,$clients" -v cpu="$cpu" -v OFS=, \
			-F '[:,}] *' '{ print run, $2, $8, $4, "", "", "", "",
				$6 / 1000, cpu }' "$work/said"
	done
}

load_module table_size=65521
setup_net 2
for i in 1 2; do
	echo "rule add from 10.2.0.1$i to 10.1.0.0/24 lookup 100" | ip_ns s$i
	web s$i "server { listen $FAST backlog=4096; return 200 \"x\"; }"
	bg_ns s$i python3 -IS "$self/serial.py" $SLOW $SERVICE_MS &
	defer kill $!
done
host=20
for by in $BALANCERS; do
	host_of[$by]=$((host++))
	director "$by" "${host_of[$by]}"
	balancer "$by"
	turn "$by"
	if ! busywait 10 answers $FAST || ! busywait 10 answers $SLOW; then
		note "$by does not answer"
		exit 1
	fi
done
echo "round,load,by,clients,requests,seconds,failed,average_ms,p50_ms,p90_ms,p99_ms,longest_ms,busy_ms,proxy_ms"
for ((round = 1; round <= ROUNDS; round++)); do
	for by in $BALANCERS; do
		note "round $round, $by"
		turn "$by"
		measure "$round" "$by"
	done
done
