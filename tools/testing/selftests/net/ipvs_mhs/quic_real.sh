#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 40
# QUIC by aioquic: clients whose ports and addresses change in the middle of downloads,
# while servers are drained, deleted, added and weighted, and when another director
# takes over.  Without connection IDs in the director, with mh or mhs, such a
# connection ends.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=443 proto=-u client_py=quic_real.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
need openssl

# aioquic is in the Python environment of the tests
PYTHONPATH=$(echo "$here"/../../../../../build/venv/lib/python3*/site-packages)
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

# lost SCHEDULER: a connection ends when its port changes, or its address
lost() {
	local e ports

	flow c find "$PORT" s1 s2 24
	for e in "${EVENTS[@]}"; do
		flow c open "$1-$e"
		event "$e"
		flow c chunk "$1-$e"
		check "control: $1, $e: they go on while they stay" "2 s1,s1" \
			"$(value ok) $(value servers)"
		flow c rebind "$1-$e" 4
		ports=$(value ports)
		flow c migrate "$1-$e" 6
		ports+=,$(value ports)
		flow c ask "$1-$e"
		busywait 20 strays "$ports"
		result "control: $1, $e: when they move their packets come to s2" $?
		event "$e" undo
	done
}

# all_ended SCHEDULER...: those of lost
all_ended() {
	local s

	for s; do
		flow c ended "${EVENTS[@]/#/$s-}"
		check "control: $s: all that moved have ended" \
			$((2 * ${#EVENTS[@]})) "$(value ended)"
	done
}

# services PORT SCHEDULER...: of both families on both directors, from now on
services() {
	local d

	PORT=$1 SVC4=$VIP4:$1 SVC6="[$VIP6]:$1"
	shift
	for d in dr d2; do
		printf -- "-D -u %s\n" "$SVC4" "$SVC6" | in_ns $d ipvsadm -R 2>/dev/null
		learn $d < <(
			echo "-A -u $SVC4 -s $*"
			echo "-A -u $SVC6 -s $*"
			real_lines "$SVC4" -g 1 2 3
			real_lines "$SVC6" -g 1 2 3
		)
		sysctls $d net.ipv4.vs.mhs.{hold_ms,pin_ms}=3600000
	done
}

all_ready() {
	[ "$(grep -c ready "$work/servers")" = 8 ]
}

plan 26
fresh_module
setup_net 4
director d2 30
ip_ns cl <<-EOF
	addr add 10.1.0.3/24 dev eth0
	addr add fd01::3/64 dev eth0 nodad
EOF
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
	-subj /CN=mhs -keyout "$work/pem" -out "$work/cert" 2>/dev/null
cat "$work/cert" >>"$work/pem"
for i in 1 2 3 4; do
	servers+=("s$i-$$/10.2.0.1$i/$VIP4" "s$i-$$/fd02::1$i/$VIP6")
done
touch "$work/servers"
flow_start c --certificate "$work/pem" --log "$work/servers" "${servers[@]}"
busywait 30 all_ready || note "quic_real.py does not serve"

services 443 mh -b mh-port
lost mh
services 443 mhs
lost mhs
all_ended mh mhs
