#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 35
# vs.conntrack=1 makes state that mhs saves otherwise.  With the rules that the
# documentation gives there is none.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lib_pair.sh
. "$(dirname "$0")/lib_pair.sh"
need nft conntrack

doc=$here/../../../../../Documentation/networking/ipvs-mhs.rst

tracked() {
	dr cat /proc/sys/net/netfilter/nf_conntrack_count
}

# documented: the rules, for our addresses
documented() {
	sed -n '/^\ttable inet ipvs_notrack {/,/^\t}/p' "$doc" |
		sed "s/192\.0\.2\.1/$VIP4/; s/2001:db8::1/$VIP6/"
}

# talk: 2 x 40 flows that talk and end; how many conntrack entries came of it
talk() {
	dr conntrack -F >/dev/null 2>&1
	pair open 40
	pair ping
	well="$(sum flows) $(sum broken)"
	n=$(tracked)
	pair reset
}

flows() {
	talk
	check "$1: flows work" "80 0" "$well"
}

# leaves FROM TO: conntrack entries for the flows
leaves() {
	talk
	[ "$n" -ge "$1" ] && [ "$n" -le "$2" ]
}

plan 17
load_module
modprobe -q nft_ct
setup_net 2
pair_services "1 2" mhs
pair_clients --timeout 5
# a rule that wants to know the state turns conntrack on in the namespace
dr nft -f - <<-EOF
	table inet mhs_state {
		chain in {
			type filter hook input priority 0
			ct state established counter
		}
	}
	EOF
flows "vs.conntrack=0"
note "$n conntrack entries"
check "vs.conntrack=0: no conntrack entry" 0 "$n"

dr sysctl -qw net.ipv4.vs.conntrack=1
busywait 20 leaves 80 1000
result "vs.conntrack=1, set later: it has an effect" $?
flows "vs.conntrack=1, set later"
check_cmp "vs.conntrack=1, set later: conntrack entries" "$n" -ge 80
dr sysctl -qw net.ipv4.vs.conntrack=0
busywait 20 leaves 0 0
result "vs.conntrack=0 again: it has an effect" $?
dr sysctl -qw net.ipv4.vs.conntrack=1
dr ipvsadm -C
pair_services "1 2" mhs
flows "vs.conntrack=1"
check_cmp "control: conntrack entries with vs.conntrack=1" "$n" -ge 80

check_cmp "the documentation has rules, lines" "$(documented | wc -l)" -ge 10
documented | dr nft -f -
flows "NOTRACK"
check "NOTRACK: no conntrack entry" 0 "$n"
check "NOTRACK: no connection entry" 0 "$(conns)"
dr nft delete table inet ipvs_notrack
flows "rules gone"
check_cmp "control: rules gone, conntrack entries" "$n" -ge 80

# A claim is no flow: its end ends no conntrack of the flow with its addresses
dr nft -f - <<-EOF
	table inet strict {
		chain in {
			type filter hook input priority 0
			tcp flags & syn == 0 ct state new drop
		}
	}
	EOF
windows 3600000 3600000
pair open 40
pair ping
check "a firewall that wants a SYN: flows work" "80 0" "$(sum flows) $(sum broken)"
pair_edit -d 2
flow c4 where
for flow in $reply; do
	echo "10.1.0.2 ${flow%=*}"
done | raw cl --dst $VIP4 --good --pairs >/dev/null
check_cmp "a stranger's SYNs make claims" "$(conns)" -gt 0
no_claims() {
	! dr ipvsadm -Lnc | grep SYN_RECV >/dev/null
}
busywait 30 no_claims
pair ping
check "they end no conntrack of a flow" 0 "$(sum broken)"
