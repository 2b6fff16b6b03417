#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# QUIC, UDP on the ports of the parameter quic_ports: an Initial begins a flow,
# as a SYN does, other packets belong to an older one, which is held and then
# pinned, under a cap of its own.  By the shapes of packets; real clients and
# servers: quic_real.sh.

# shellcheck disable=SC2034 # for lib.sh and lib_pair.sh
PORT=8443 proto=-u client_py=dgrams.py

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"

OLDER="short greased handshake 0rtt handshake2 0rtt2 retry2 runt"

# stays NAME: the last ping was answered, each flow by its server
stays() {
	check "$1" "0 0 0" "$(sum lost) $(sum refused) $(sum moved)"
}

plan 34
fresh_module quic_ports=443,$PORT
setup_net 4
dgram_servers $PORT
windows 3600000 3600000
pair_services "1 2 3" mhs
pair_clients
pair open 50
pair ping initial
stays "stable: an Initial is answered"
for kind in initial2 $OLDER; do
	pair ping "$kind"
	[ "$(sum lost) $(sum moved)" = "0 0" ] || break
done
stays "stable: all others, by the same server"
check "stable: no entry" "0 0" "$(conns) $(pair_total NewEntries)"

# A server is added
pair_edit -a 4 -g
result "hold phase" "$(busywait 20 pair_holding; echo $?)"
before=$(pair_total PktOld)
for kind in $OLDER; do
	pair ping "$kind"
	[ "$(sum lost) $(sum moved)" = "0 0" ] || break
done
stays "hold: older flows stay"
check "hold: they have no entry" 0 "$(conns)"
check_cmp "hold: they go to the old server" \
	$(($(pair_total PktOld) - before)) -gt 40
pair open 40
pair new initial
first=$(sum s4)
check "hold: new flows are answered" "0 0" "$(sum lost) $(sum refused)"
check_cmp "hold: some by the new server" "$first" -gt 4
check_cmp "hold: with an entry each" "$(conns)" -ge "$first"
check "hold: entries by cause" "$(conns) 0" \
	"$(pair_total NewEntries) $(pair_total PinnedEntries)"
pair open 40
pair new initial2
check "hold: new flows of version 2" "0 0" "$(sum lost) $(sum refused)"
check_cmp "hold: version 2, some by the new server" $(($(sum s4) - first)) -gt 4
pair ping short
stays "hold: all of them stay"

# Older flows get an entry, as many as the cap allows
base=$(pair_total NewEntries)
check "the cap by default" 65536 \
	"$(dr sysctl -n net.ipv4.vs.mhs.max_quic_entries)"
cap=$((base / 2 + 30))
dr sysctl -qw net.ipv4.vs.mhs.max_quic_entries=$cap
result "pin phase" "$(to_pin; echo $?)"
pair spray 400 short
check_cmp "flood: flows past the cap" "$(pair_total Capped)" -gt 20
check_cmp "flood: IPv4 entries" "$(mhs Entries "$SVC4")" -le $cap
check_cmp "flood: IPv6 entries" "$(mhs Entries "$SVC6")" -le $cap
pair ping short
stays "flood: flows stay, with an entry or without"
dr sysctl -qw net.ipv4.vs.mhs.max_quic_entries=65536
pair ping short
stays "pin: older flows stay"
check_cmp "pin: they are pinned" "$(pair_total PinnedEntries)" -gt 40
pair open 30
before=$(pair_total NewEntries)
pair new initial
check_cmp "pin: new flows have entries" "$(pair_total NewEntries)" \
	-gt "$before"
result "merged" "$(to_stable; echo $?)"
pair ping short
stays "merged: all stay"

# Entries that forged packets have made lead to a server of weight 0: a real Initial
# goes elsewhere, with what follows, but one that is forged moves no flow
pair open 20
pair new initial
pair_edit -e 1 -g -w 0
to_pin
pair ping short
pair ping initial
check_cmp "weight 0: Initials leave entries that short headers made" \
	"$(sum moved)" -gt 4
before=$(sum moved)
pair ping short
check "weight 0: one Initial moves no flow" "0 $before" "$(sum lost) $(sum moved)"
pair ping initial
pair ping handshake
check "weight 0: none meets the server, after a handshake" "0 0" \
	"$(sum lost) $(sum s1)"
result "weight 0: merged" "$(to_stable; echo $?)"

# The server is deleted: nothing that may be a new flow goes there
pair_edit -e 1 -g -w 1
result "back: merged" "$(to_stable; echo $?)"
windows 3600000 3600000
pair close
pair_edit -d 1
pair open 50
for kind in dtls wireguard unknown greased; do
	pair new "$kind"
	check "deleted: none of $kind" "0 0 0" \
		"$(sum lost) $(sum refused) $(sum s1)"
done
dr ipvsadm -C
