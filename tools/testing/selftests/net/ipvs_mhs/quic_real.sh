#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 60
# QUIC by aioquic and Envoy: clients whose ports and addresses change in the middle of downloads,
# while servers are drained, deleted, added and weighted, and when another director
# takes over.  Without connection IDs in the director such a connection ends.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=443 proto=-u client_py=quic_real.py

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"
. "${0%/*}/lib_lane.sh"
need openssl gtlsclient ethtool

# aioquic is in the Python environment of the tests
top=$here/../../../../..
PYTHONPATH=$(echo "$top"/build/venv/lib/python3*/site-packages)
export PYTHONPATH
python3 -S -c "import aioquic" 2>/dev/null || skip_all "no aioquic"

EVENTS=(nothing drain delete add weight director)

# event WHAT [undo]: while s1 has the connections
event() {
	case $* in
	drain) pair_edit -e 1 -g -w 0 ;;
	delete) pair_edit -d 3 ;;
	add) pair_edit -a 4 -g ;;
	weight) pair_edit -e 1 -g -w 3 ;;
	director) route_vip 30 ;;
	"drain undo" | "weight undo") pair_edit -e 1 -g -w 1 ;;
	"delete undo") pair_edit -a 3 -g ;;
	"add undo") pair_edit -d 4 ;;
	"director undo") route_vip 10 ;;
	esac
}

# strays PORTS: packets from there have come to s2, which does not know them
strays() {
	local p

	for p in ${1//,/ }; do
		grep -q "^s2 stray .* $p\$" "$work/servers" || return 1
	done
}

# lost EVENT...: a connection ends when its port changes, or its address
lost() {
	local e ports

	for e; do
		flow c open "lost-$e"
		event "$e"
		flow c chunk "lost-$e"
		check "control: $e: they go on while they stay" "2 s1,s1" \
			"$(value ok) $(value servers)"
		flow c rebind "lost-$e" 4
		ports=$(value ports)
		flow c migrate "lost-$e" 6
		ports+=,$(value ports)
		flow c ask "lost-$e"
		busywait 20 strays "$ports"
		result "control: $e: when they move their packets come to s2" $?
		event "$e" undo
	done
}

# ngtcp2 NAME [HOME AWAY]: a client of another make, which has a connection to s1.  It is stopped
# until ngtcp2_moves: then it changes its port, with another connection ID, and asks s1
# for its name.
ngtcp2() {
	local home=${2:-}

	mkdir "$work/$1"
	echo "${3:-}" >"$work/$1/away"
	if [ -z "$home" ]; then
		flow c spare
		value away >"$work/$1/away"
		home=$(value home)
	fi
	sysctls cl net.ipv4.ip_local_port_range="$home,$home"
	bg_ns cl gtlsclient --no-quic-dump --no-http-dump --timeout=300s \
		--change-local-addr=8s --delay-stream=9s \
		--exit-on-all-streams-close --download="$work/$1" \
		$VIP4 "$PORT" "https://$VIP4:$PORT/name" \
		</dev/null >"$work/$1/log" 2>&1 &
	echo $! >"$work/$1/pid"
	defer kill -KILL $!
	busywait 30 grep -q "handshake has been confirmed" "$work/$1/log"
	result "ngtcp2, $1: a connection" $?
	kill -STOP $!
}

ngtcp2_moves() {
	local port

	port=$(<"$work/$1/away")
	sysctls cl net.ipv4.ip_local_port_range="$port,$port"
	kill -CONT "$(<"$work/$1/pid")"
	busywait 30 grep -q "local=.*]:$port " "$work/$1/log"
	result "ngtcp2, $1: its port changes" $?
}

# envoys: on s1 and s2, by the example, with the key of the IPv6 service
envoys() {
	local s at

	envoy=$(echo "$top"/build/venv/lib/python3*/site-packages/envoy/_bin/envoy)
	for s in 1 2; do
		at=$(printf '%b' "\x0a\x02\x00\x$(printf %x $((10 + s)))" | base64)
		sed "s,192\.0\.2\.1,$VIP4,; s,: 443,: 9443,; s,: 10\.0\.0\.11,: s$s,
			s,CgAACw==,$at,; s,/etc/ssl/example,$work/,
			s,$work/\.pem,$work/pem," \
			"$top/examples/quic/envoy.yaml" >"$work/envoy.s$s.yaml"
		bg_ns s$s "$envoy" --concurrency 1 --use-dynamic-base-id -l warning \
			-c "$work/envoy.s$s.yaml" >"$work/envoy.s$s" 2>&1 &
		defer kill -KILL $!
		busywait 60 in_ns s$s sh -c 'ss -Hlnu sport = :9443 | grep -c . >/dev/null' ||
			sed 's/^/# /' "$work/envoy.s$s"
	done
}

# port_of SERVER: one from which a client's packets come there
port_of() {
	local port

	for port in {2001..2200}; do
		! dr "$top/scripts/mhsstat" lookup -u "$VIP4:9443" "10.1.0.2:$port" |
			grep -- "-> 10.2.0.1${1#s}:" >/dev/null || break
	done
	echo "$port"
}

# A connection by ngtcp2 to Envoy at s1, which is drained
by_envoy() {
	local svc=$VIP4:9443 PORT=9443

	envoys
	learn dr < <(
		echo "-A -u $svc -s mhs"
		real_lines "$svc" -g 1 2
	)
	ngtcp2 envoy "$(port_of s1)" "$(port_of s2)"
	dr ipvsadm -e -u "$svc" -r 10.2.0.11:9443 -g -w 0
	ngtcp2_moves envoy
	busywait 20 test -s "$work/envoy/name"
	check "ngtcp2: Envoy at s1 answers" s1 "$(<"$work/envoy/name")"
	check "Envoy: an ID names no server" 0 "$(mhs PktNoId "$svc")"
	dr ipvsadm -D -u "$svc"
}

# go_on DOOR EVENT...: with connection IDs downloads end where they have begun, though
# the clients move in each phase, and no entry is made
go_on() {
	local e door=$1

	for e in "${@:2}"; do
		conns_begin dr
		conns_begin d2
		flow c open "$door-$e"
		event "$e"
		flow c rebind "$door-$e"
		flow c chunk "$door-$e"
		[ "$(pair_total Hold)" = 0 ] || to_pin
		flow c migrate "$door-$e"
		flow c chunk "$door-$e"
		to_stable
		flow c rebind "$door-$e"
		flow c chunk "$door-$e"
		flow c end "$door-$e"
		check "$door, $e: the downloads end at s1" "2 s1,s1" \
			"$(value ok) $(value servers)"
		check "$door, $e: entries" 0 $(($(conns_new dr) + $(conns_new d2)))
		event "$e" undo
		to_stable
		windows 3600000 3600000
	done
}

# services PORT SCHEDULER...: of both families on both directors; connections are to
# them from now on
services() {
	local d

	PORT=$1 SVC4=$VIP4:$1 SVC6="[$VIP6]:$1"
	for d in dr d2; do
		at=$d pair_services "1 2 3" "${@:2}"
		sysctls $d net.ipv4.vs.mhs.{hold_ms,pin_ms}=3600000
	done
	flow c find "$PORT" s1 s2 48
}

all_ready() {
	[ "$(grep -c ready "$work/servers")" = 8 ]
}

# User-Mode Linux has no lane of XDP programs
lanes=(ingress)
[ ! -e "${MHS_KO%/*}/lane.bpf.o" ] || lanes+=(xdp)
fresh_module quic_ports=443,8443,9443
setup_net 4
director d2 30
ip_ns cl <<-EOF
	addr add 10.1.0.3/24 dev eth0
	addr add fd01::3/64 dev eth0 nodad
EOF
# plain IDs with IPv4; encrypted ones with IPv6, where the kernel has AES
key=8f95f09245765f80256934e50c66207f
in_ns rt sysctl -qw net.ipv4.vs.mhs.quic_ids="$SVC6=$key" 2>/dev/null || key=""
[ -n "$key" ] || note "no AES in this kernel: plain IDs only, and no Envoy"
plan $((16 + 6 + 3 * ${#lanes[@]} + 4 + 0${key:+4}))
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
	-subj /CN=mhs -keyout "$work/pem" -out "$work/cert" 2>/dev/null
cat "$work/cert" >>"$work/pem"
for i in 1 2 3 4; do
	servers+=("s$i-$$/10.2.0.1$i/$VIP4" "s$i-$$/fd02::1$i/$VIP6${key:+/$key}")
done
touch "$work/servers"
flow_start c 443,8443 "$work/pem" "$work/servers" "${servers[@]}"
busywait 30 all_ready || note "quic_real.py does not serve"

services 443 mhs
ngtcp2 control
lost nothing drain

services 8443 mhs
for d in dr d2; do
	sysctls $d net.ipv4.vs.mhs.quic_ids="$SVC4,$SVC6${key:+=$key,$VIP4:9443=0:$key}"
done
[ -z "$key" ] || by_envoy
ngtcp2 ids
go_on hook "${EVENTS[@]}"
check_cmp "packets by their IDs" "$(pair_total PktById)" -gt 200
check "packets whose ID names no server" 0 "$(pair_total PktNoId)"
event drain
ngtcp2_moves control
busywait 20 strays "$(<"$work/control/away")"
result "control: ngtcp2: its packets come to another server" $?
ngtcp2_moves ids
busywait 20 test -s "$work/ids/name"
check "ngtcp2: s1 answers" s1 "$(<"$work/ids/name")"
event drain undo
for door in "${lanes[@]}"; do
	sysctls dr net.ipv4.vs.mhs.lane=1
	lane_open
	before=$(pair_total PktLane)
	go_on "$door" drain
	check_cmp "$door: packets in the lane" "$(pair_total PktLane)" \
		-gt $((before + 20))
	lane_close
done
for e in nothing drain; do
	flow c ended "lost-$e"
	check "control: $e: those that moved have ended" 2 "$(value ok)"
done
