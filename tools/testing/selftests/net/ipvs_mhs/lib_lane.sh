# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2086,SC2154 # VIP4 and VIP6 are words; others use
# what is unused here
# The lane before the IP stack, by one of its doors: $door is ingress, the netfilter
# hook of a device; xdp, a program that calls the module, on veth; or virtio, the
# program on a card of the machine.  Sourced after lib.sh.

readonly LANE_CHECKS=22 LANE_REASONS=25 LANE_UPGRADE=5 FLOWS=80
readonly FOUR=(10.2.0.{11..14})

# lane_open, lane_close: the door of the director's device.  A veth sends frames of
# XDP at once only if the other end has a program, too, and it loses checksums that
# the sender left to the device.
lane_open() {
	case $door in
	ingress) dr sysctl -qw net.ipv4.vs.mhs.ingress=eth0 ;;
	xdp)
		modprobe ip_vs_mhs_lane
		in_ns rt ethtool -K vdr tx off >/dev/null
		dr ethtool -K eth0 rxvlan off rx-vlan-stag-hw-parse off
		in_ns rt ip link set dev vdr xdpdrv \
			obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
		lane_attach xdpdrv
		;;
	virtio) lane_attach xdpdrv ;;
	esac
}

# lane_attach MODE: the program to the director's device
lane_attach() {
	modprobe ip_vs_mhs_lane
	dr ip link set dev eth0 "$1" obj "${MHS_KO%/*}/lane.bpf.o" sec xdp
}

lane_close() {
	case $door in
	ingress) dr sysctl -qw net.ipv4.vs.mhs.ingress= ;;
	xdp)
		dr ip link set dev eth0 xdpdrv off
		in_ns rt ip link set dev vdr xdpdrv off
		;;
	virtio) dr ip link set dev eth0 xdpdrv off ;;
	esac
}

# lane_net: the network; a test may have another
lane_net() {
	setup_net 4
}

# lane_saw WORD: how many packets that line of /proc/net/ip_vs_mhs_lane counts
lane_saw() {
	local net key number

	net_dir dr
	while read -r key number; do
		[ "$key" != "$1" ] || echo "$number"
	done <"$net/ip_vs_mhs_lane"
}

# lane_findings: what mhsstat check says of the lane
lane_findings() {
	dr "$here/../../../../../scripts/mhsstat" check |
		grep -o '\[lane-[a-z]*\]$' | sort -u
}

# lane_begin: remember what was counted; lane_new WORD: how many since
declare -A lane_was
lane_begin() {
	local net key number

	net_dir dr
	while read -r key number; do
		lane_was[$key]=$number
	done <"$net/ip_vs_mhs_lane"
}

lane_new() {
	echo $(($(lane_saw "$1") - ${lane_was[$1]:-0}))
}

# lane_share: percent of the packets to the service that were forwarded in the lane
lane_share() {
	local up=$(($(lane_new Entry) + $(lane_new Decision)))
	local lane

	lane=$(lane_new Forwarded)
	echo $((lane * 100 / (lane + up + 1)))
}

# lane_lines VIP METHOD SERVER...: of ipvsadm, a service
lane_lines() {
	echo "-A -t $1:80 -s mhs"
	printf -- "-a -t $1:80 -r %s:80 $2\n" "${@:3}"
}

# lane_service VIP METHOD SERVER...: the same, with a client c of its own
lane_service() {
	[ -z "${c_in:-}" ] || flow_end c
	dr ipvsadm -C
	learn dr < <(lane_lines "$@")
	flow_start c --timeout 8 --host "${1//[][]/}"
}

# lane_rule HOOK PRIORITY VERDICT...: what comes there for the service is counted, see
# ruled
lane_rule() {
	dr nft -f - <<-EOT
		table ip t { counter n { }
			chain c { type filter hook $1 priority $2;
				ip daddr $VIP4 counter name n ${*:3}; }; }
	EOT
}

ruled() {
	dr nft list counter ip t n | awk '$1 == "packets" { print $2 }'
}

# lane_flows NAME [WORD]: open flows, ping over them; all are served, and packets are
# counted as WORD, in the lane if not given
lane_flows() {
	local word=${2:-Forwarded}

	lane_begin
	flow c open 20
	flow c ping
	flow c ping
	check "$1: served" "20 0" "$(value flows) $(value broken)"
	check_cmp "$1: $word" "$(lane_new "$word")" -ge 20
	flow c reset
}

# load: flows that stay busy; load_ends NAME: none noticed anything
load() {
	flow c open $FLOWS
	flow_send c busy 3600
}

load_ends() {
	flow c stop
	check "$1: all served" "$FLOWS 0 0 0" \
		"$(value flows) $(value broken) $(value failed) $(value stalled)"
	flow c reset
}

lane_sent() {
	lane_saw Forwarded
}

# by_stack: packets of the service that the stack forwarded
by_stack() {
	echo $(($(mhs PktStateless) - $(mhs PktLane)))
}

# lane_upgrade: the scheduler is loaded anew under load while a lane is in use.  A rule
# drops the packets meanwhile: without a service the stack would reset them.
lane_upgrade() {
	lane_open
	sysctls dr net.ipv4.vs.mhs.lane=1
	lane_service $VIP4 -g "${FOUR[@]}"
	lane_warm
	flow_end c
	flow_start c --timeout 60 --host $VIP4
	load
	until_more $FLOWS lane_sent
	lane_rule prerouting -300 drop
	dr ipvsadm -Sn >"$work/saved"
	dr ipvsadm -C
	busywait 20 try_unload ip_vs_mhs
	check "upgrade: the scheduler goes, the lane stays" "gone stays" \
		"$(loaded || echo gone) $(loaded ip_vs_mhs_lane && echo stays)"
	until_more 1 ruled
	result "upgrade: without a scheduler frames go up" $?
	load_module
	learn dr <"$work/saved"
	dr nft delete table ip t
	until_more $FLOWS by_stack
	check "upgrade, control: the stack forwards until lane=1" "0 0" \
		"$? $(lane_sent)"
	[ "$door" != ingress ] || lane_open
	sysctls dr net.ipv4.vs.mhs.lane=1
	until_more $FLOWS lane_sent
	result "upgrade: packets are in the lane again" $?
	load_ends "upgrade"
	flow_end c
	unset c_in
}

# lane_warm: until the stack has cached the routes to the servers and their
# neighbours, and the module has seen that a new service is none of firewall marks
lane_warm() {
	busywait 20 lane_takes_all
}

# enough flows to come to each server
lane_takes_all() {
	flow c open 24
	lane_begin
	flow c ping
	flow c reset
	[ "$(lane_new Forwarded)" -ge 24 ]
}

# lane_turned WORD: packets are counted as WORD.  The kernel does not report all that
# closes a lane, which notices the rest within a second.
lane_turned() {
	lane_begin
	flow c open 1
	flow c reset
	[ "$(lane_new "$1")" -gt 0 ]
}

# lane_method NAME VIP METHOD SERVER...: a service, whose flows are in the lane
lane_method() {
	lane_service "${@:2}"
	lane_warm
	lane_flows "$1"
}

# lane_counted: ipvsadm counts what PktStateless counts; the core reads its counters
# every two seconds
lane_counted() {
	[ "$(dr ipvsadm -Ln --stats --exact |
		awk '$1 == "TCP" { print $4 }')" = "$(mhs PktStateless)" ]
}

# lane_above NAME WORD LINK...: another device above the director's, even down
lane_above() {
	dr ip link add above link eth0 type "${@:3}"
	[ "$2" != Forwarded ] || lane_warm
	lane_flows "$1" "$2"
	dr ip link del above
}

# lane_shut NAME WORD: what comes is not for the director; WORD counts it
lane_shut() {
	flow_start lost --timeout 1 --impatient --host $VIP4
	lane_begin
	flow lost open 4
	check_cmp "$1: $2" "$(lane_new "$2")" -ge 4
	check "$1: none in the lane" 0 "$(lane_new Forwarded)"
	flow_end lost
}

# lane_reasons: what goes up, and why, with the service that lane_tests has made.  Devices
# with MAC addresses of their own leave the lane open; those that take frames to the
# device's own address close it.  Neighbours that the stack looks for, drains: lane_live.sh.
lane_reasons() {
	sysctls dr net.ipv4.vs.conntrack=1
	busywait 20 lane_turned Conntrack
	lane_flows "vs.conntrack=1" Conntrack
	sysctls dr net.ipv4.vs.conntrack=0
	dr ipvsadm -A -f 7 -s mhs
	busywait 20 lane_turned Mark
	lane_flows "a service by mark" Mark
	dr ipvsadm -D -f 7

	lane_above "a macvlan beside" Forwarded macvlan mode bridge
	lane_above "a macvtap beside" Forwarded macvtap mode vepa
	lane_above "control, a macvlan by sources" Frame macvlan mode source
	lane_above "control, an ipvlan beside" Frame ipvlan mode l2
	dr ip link add above link eth0 type macvlan mode passthru
	lane_shut "control, a macvlan that takes all" Frame
	dr ip link del above
	# a backup has the service but not the address
	dr ip addr del $VIP4/32 dev lo
	lane_shut "address gone" Address
	dr ip addr add $VIP4/32 dev lo
	lane_warm
	lane_flows "with none above, address back"

	# longer than the way to the servers takes
	dr ip route add 10.2.0.11 dev eth0 mtu 600
	lane_warm
	lane_begin
	flow c open 20
	flow c bulk 20000 1000
	check "a path with a small MTU: served" "20 0" \
		"$(value flows) $(value broken)"
	check_cmp "a path with a small MTU: Mtu" "$(lane_new Mtu)" -ge 1
	flow c reset
	dr ip route del 10.2.0.11 dev eth0 mtu 600

	# deleted and added again with live flows: all slots are tracked
	lane_warm
	flow c open 60
	dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
	flow c open 20
	dr ipvsadm -a -t $VIP4:80 -r 10.2.0.11:80 -g -w 1
	flow c ping
	lane_begin
	for _ in 1 2 3 4; do
		flow c ping
	done
	check "added again: none broken" "80 0" "$(value flows) $(value broken)"
	check_cmp "added again: percent in the lane" "$(lane_share)" -ge 70
	flow c reset

	dr ipvsadm -E -t $VIP4:80 -s mhs -p 60
	lane_flows "persistent" Decision
	lane_service $VIP4 "-i --tun-type gre" 10.2.0.11
	busywait 20 lane_turned Method
	result "GRE: Method" $?
}

# lane_tests [COMMAND]: all that depends on the door, and the command amid of it.  The
# lane bypasses INPUT, as the manual says.
lane_tests() {
	load_module
	modprobe -q -a ipip ip6_tunnel sit
	lane_net
	windows 3600000 3600000
	# no neighbour becomes stale on a slow machine: that takes a packet up
	sysctls dr net.ipv4.neigh.eth0.base_reachable_time_ms=3600000
	lane_service $VIP4 -g "${FOUR[@]}"
	# what was never on counts nothing
	sysctls dr net.ipv4.vs.mhs.lane=1
	sysctls dr net.ipv4.vs.mhs.lane=0
	lane_open
	lane_rule input 0
	lane_flows "control, lane=0" Off
	check "control, lane=0: none in the lane" 0 "$(lane_new Forwarded)"
	check_cmp "control, lane=0: a rule in INPUT sees them" "$(ruled)" -ge 60
	sysctls dr net.ipv4.vs.mhs.lane=1
	lane_warm
	dr nft reset counters >/dev/null
	lane_flows "direct routing"
	check "direct routing: past a rule in INPUT" 0 "$(ruled)"
	dr nft delete table ip t
	check_cmp "PktLane of the service" "$(mhs PktLane)" -ge 60
	check_cmp "lane packets are stateless packets" "$(mhs PktStateless)" -ge \
		"$(mhs PktLane)"
	busywait 20 lane_counted
	result "ipvsadm --stats counts them" $?
	check "no entries" 0 "$(conns)"
	"$@"

	lane_method "IPIP" $VIP4 -i "${FOUR[@]}"
	lane_method "IPv6" "[$VIP6]" -g "[fd02::11]" "[fd02::12]"
	lane_method "IPv6 in IPv6" "[$VIP6]" -i "[fd02::11]"
	lane_method "IPv4 in IPv6" $VIP4 -i "[fd02::11]"
	lane_method "IPv6 in IPv4" "[$VIP6]" -i 10.2.0.11
	lane_close
	lane_begin
	flow c open 20
	check "closed: served by the stack" "20 0" \
		"$(value flows) $(lane_new Forwarded)"
	flow_end c
	unset c_in
}
