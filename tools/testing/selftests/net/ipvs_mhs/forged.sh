#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 60
# tags: core
# A forged SYN with the addresses and ports of a live flow does not move the flow,
# in a transition by an added, a drained and a deleted server, held and pinned,
# IPv4 by direct routing and IPv6 in tunnels; and a real connection from ports that
# were forged before opens at once.  The control forges the packet after the SYN,
# too, and breaks flows.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"

# lives: the addresses and ports of the clients' flows, a file for each family
lives() {
	in_ns cl ss -Htn state established dst "$VIP4" >"$work/ss4"
	in_ns cl ss -Htn state established dst "[$VIP6]" >"$work/ss6"
	sed -E 's/^ *[0-9]+ +[0-9]+ +\[?([^] ]*[^]: ])\]?:([0-9]+) .*/\1 \2/' \
		"$work/ss4" >"$work/lives4"
	sed -E 's/^ *[0-9]+ +[0-9]+ +\[?([^] ]*[^]: ])\]?:([0-9]+) .*/\1 \2/' \
		"$work/ss6" >"$work/lives6"
}

# forge FLAGS...: such a segment for each of them, then the next
forge() {
	cat "$work"/lives[46] |
		raw cl --dst $VIP4 $VIP6 --good --flags "$@" --pairs >/dev/null
}

# none_half_open: for busywait, claims end within ten seconds
none_half_open() {
	! dr ipvsadm -Lnc | grep -E "SYN_RECV|SYNACK" >/dev/null
}

# attack NAME: SYNs for all flows in this phase, twice.  An answer of the client to
# the server of such a SYN may pin the flow in place of the claim.
attack() {
	local before

	before=$(pair_total NewEntries)
	forge S
	# claims of before may be renewed, and those of now be over
	check_cmp "$1: forged SYNs make entries" \
		$(($(entries) + $(pair_total NewEntries) - before)) -gt 0
	pair ping
	check "$1: none broken" 0 "$(sum broken)"
	forge S
	pair ping
	check "$1: none broken, again" "0 0" "$(sum broken) $(sum moved)"
}

# event NAME COMMAND...: a change of servers, from hold to the merge
event() {
	windows 3600000 3600000
	"${@:2}"
	attack "$1, held"
	to_pin
	attack "$1, pinned"
	# what a young claim keeps from being pinned is pinned later
	busywait 30 none_half_open
	pair ping
	to_stable
	pair ping
}

how6=-i
plan 28
load_module
modprobe -q -a ipip ip6_tunnel
setup_net 4
windows 3600000 3600000
sysctls dr net.ipv4.vs.expire_nodest_conn=0
pair_services "1 2 3" mhs
pair_clients --timeout 4
pair open 60
pair ping
check "flows answered" "120 0" "$(sum flows) $(sum broken)"
check "no entries while stable" 0 "$(entries)"
lives
check "all flows are known" "60 60" "$(wc -l <"$work/lives4") $(wc -l <"$work/lives6")"

merged() {
	check "$1, merged: none broken" "0 0" "$(sum broken) $(sum moved)"
}

event add pair_weight -a 4 1
merged add
pair reset
pair open 60
lives
sysctls dr net.ipv4.vs.secure_tcp=3	# has other states for half-open entries
event drain pair_weight -e 1 0
merged drain
# The end of an entry ends no conntrack of an older flow, which each flow has: the
# firewall drops all others, until mhs has seen the sysctl
sysctls dr net.ipv4.vs.secure_tcp=0 net.ipv4.vs.conntrack=1
dr nft -f - <<-END
	table inet strict {
		chain input {
			type filter hook input priority 0
			tcp flags & syn == 0 ct state new drop
		}
	}
END
whole() {
	pair reset
	pair open 60
	pair ping
	[ "$(sum flows) $(sum broken) $(sum failed)" = "120 0 0" ]
}
busywait 30 whole
lives
event delete pair_weight -d 2	# whose flows end with the merge

# real NAME: connections from ports of a stranger's packets, which all open at once
real() {
	flow_start real --host $VIP4 --bind 10.1.0.2 --timeout 10 --ports 21000-21039
	flow_send real churn 3600
	before=$(opened cl)
	busywait 60 grown 45 opened cl
	flow real stop churn
	check "$1: all open at once" "0 0" "$(value failed) $(value slow)"
	flow_end real
}

# forge_ports FLAGS: from these ports, with another number than a real one has
forge_ports() {
	before=$(pair_total "$2")
	for i in {21000..21039}; do
		echo "10.1.0.2 $i"
	done | raw cl --dst $VIP4 --flags "$1" --pairs >/dev/null
	check_cmp "forged $1 from free ports: these make entries" \
		"$(pair_total "$2")" -gt "$before"
}

windows 3600000 3600000
pair_weight -e 3 5
forge_ports S NewEntries
real "real SYNs after forged ones"

# A server that is dead and has weight 0, and flows of its that never were
pair reset
to_stable
windows 0 3600000
pair_weight -e 3 0
busywait 20 pair_pinning
forge_ports A PinnedEntries
in_ns s3 nft -f - <<-END
	table inet dead {
		chain in {
			type filter hook prerouting priority -300
			tcp dport 80 drop
		}
	}
END
real "real SYNs after forged ACKs, the server is dead"
pair_weight -e 3 1
in_ns s3 nft delete table inet dead

pair reset
pair open 60
lives
pair ping
pair_weight -a 2 5
forge S A
pair ping 2
check_cmp "control: a forged flow that goes on takes the place of others" \
	"$(sum broken)" -gt 0
