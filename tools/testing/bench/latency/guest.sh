#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two servers behind nginx, haproxy, mh and mhs; runs in the machine, see
# latency.py.
#
# usage: guest.sh OUT LOAD SECONDS [BY], histograms go to OUT, a line of CSV for each
# run to stdout

case ${1:---help} in
-h | --help)
	sed -n '3,/^$/s/^# \{0,1\}//p' "$0"
	exit 0
	;;
esac

readonly OUT=$1 LOAD=$2 SECONDS_EACH=$3 FAST=8080 SLOW=8090 SERVICE_MS=10
readonly CLIENTS="3 10 30 200"
pid=""
self=$(realpath "${0%/*}")
# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "$self/../../selftests/net/ipvs_mhs/lib.sh"

# web NAMESPACE-NAME HTTP: nginx with these lines in its section http
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
	bg_ns "${1%-*}" nginx -c "$work/$1/conf" 2>/dev/null &
	pid=$!
}

proxy_nginx() {
	web dr-nginx "
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
	bg_ns dr haproxy -db -f "$work/haproxy.conf" >/dev/null 2>&1 &
	pid=$!
}

# ipvs SCHEDULER METHOD: routes of replies follow the method
ipvs() {
	local port i

	for i in 1 2; do
		if [ "$2" = -m ]; then
			echo "rule add from 10.2.0.1$i lookup 100"
			echo "route replace default via 10.2.0.10 table 100"
		fi | ip_ns s$i
	done
	for port in $FAST $SLOW; do
		echo "-A -t $VIP4:$port -s $1"
		for i in 1 2; do
			echo "-a -t $VIP4:$port -r 10.2.0.1$i:$port $2 -w 1"
		done
	done | dr ipvsadm -R
	[ "$1" != mhs ] || for port in $FAST $SLOW; do
		wait_settled "$VIP4:$port"
	done
}

# ticks: CPU time of the proxy and its children
ticks() {
	local p sum=0 words

	for p in $pid ${pid:+$(pgrep -P "$pid")}; do
		read -ra words <"/proc/$p/stat"
		sum=$((sum + words[13] + words[14]))
	done
	echo $sum
}

answers() {
	in_ns cl curl -s -o "$work/null" -m 5 "http://$VIP4:$1/"
}

# measure BY
measure() {
	local before clients

	if ! busywait 10 answers $FAST || ! busywait 10 answers $SLOW; then
		note "$1 does not answer"
		exit 1
	fi
	before=$(ticks)
	in_ns cl wrk -t 1 -c 200 -d "$SECONDS_EACH" --latency \
		"http://$VIP4:$FAST/" >"$work/wrk"
	awk -v by="$1" -v cpu=$(($(ticks) - before)) -v s="$SECONDS_EACH" '
		$1 == "Latency" && $2 ~ /^[0-9]/ { latency = $2 }
		/Requests\/sec/ { rate = $2 }
		/Socket errors|Non-2xx/ { errors = 1 }
		END { printf "wrk,%s,200,%s,%s,%d,%.2f\n", by, rate, latency,
			errors, cpu / s / 100 }' "$work/wrk"
	for clients in $CLIENTS; do
		before=$(ticks)
		in_ns cl "$LOAD" $VIP4 $SLOW "$clients" 0 "$SECONDS_EACH" 0 \
			"$OUT/latency-$1-$clients.csv" >"$work/load"
		awk -v by="$1" -v cpu=$(($(ticks) - before)) -v clients="$clients" \
			-F '[:,}]' '{ printf "slow,%s,%s,%.1f,%s,%s,%.2f\n", by,
				clients, $2 / $8, $6 / 1000, $4, cpu / $8 / 100 }' \
				"$work/load"
	done
}

load_module
if [ $# -eq 3 ]; then
	echo "load,by,clients,rate,latency,failed,proxy_cpu"
	for by in nginx haproxy mh-dr mhs-dr mh-nat mhs-nat; do
		echo "# $by"
		"$self/guest.sh" "$@" $by || exit 1
	done
	exit
fi

by=$4
setup_net 2
for i in 1 2; do
	web s$i-web "server { listen $FAST backlog=4096; return 200 \"x\"; }"
	defer kill $!
	bg_ns s$i python3 -IS "$self/serial.py" $SLOW $SERVICE_MS &
	defer kill $!
done
pid=""
case $by in
nginx | haproxy)
	"proxy_$by"
	defer kill "$pid"
	;;
mh-dr)
	ipvs "mh -b mh-port" -g
	;;
mh-nat)
	ipvs "mh -b mh-port" -m
	;;
mhs-dr)
	ipvs mhs -g
	;;
mhs-nat)
	ipvs mhs -m
	;;
esac
measure "$by"
