#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 40
# kube-router's calls, by the library that it uses, for an external address with
# direct server return and the scheduler mh, which the module answers for: a mark by
# iptables, no such address on the node, a tunnel in each pod.  What is promised of
# them with mhs, and what is not.  MHS_KUBE_ROUTER is the program of kube-router/.

. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

readonly MARK=4242 MARK6=4243
said="" algo=mh

# sync [--graceful] SERVER...: one of kube-router on the node $node, dr unless said;
# what it did is in $said, without what the library tells of modprobe
sync() {
	local graceful=()

	[ "${1:-}" != --graceful ] || { graceful=("$1"); shift; }
	said=$(in_ns "${node:-dr}" "$MHS_KUBE_ROUTER" "${graceful[@]}" $algo $MARK 4 \
		"${@/%/:80}" 2>&1 | grep -v '^time=')
	said=${said//$'\n'/, }
	note "sync ${graceful[*]} $* -> $said"
}

# kube_starts NODE: what kube-router sets when it starts, and with mh and direct
# server return
kube_starts() {
	sysctls "$1" net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 \
		net.ipv4.vs.expire_quiescent_template=1 \
		net.ipv4.vs.conn_reuse_mode=0 net.ipv4.vs.sloppy_tcp=1 \
		net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
}

# address NODE VIP/PREFIX MARK TABLES FAMILY: what it does to have packets to the
# address marked and delivered to IPVS; its rules for the MSS are left out
address() {
	local chain rule=(-p tcp -m tcp -d "$2" --dport 80 -j MARK --set-mark "$3")
	local ip=(ip "$5" -n "$(ns "$1")")

	for chain in PREROUTING OUTPUT; do
		in_ns "$1" "$4" -t mangle -A $chain "${rule[@]}"
	done
	"${ip[@]}" addr del "$2" dev lo
	"${ip[@]}" rule add prio 32764 fwmark "$3" table 78
	"${ip[@]}" route add local default dev lo table 78
}

# node NAME: all of it, on one that is there
node() {
	kube_starts "$1"
	address "$1" $VIP4/32 $MARK iptables -4
	address "$1" $VIP6/128 $MARK6 ip6tables -6
}

# pod NUMBER: the tunnel that kube-router makes in it, with the address
pod() {
	ip_ns "s$1" <<-EOF
		link set tunl0 down
		link set ip6tnl0 down
		addr del $VIP4/32 dev lo
		addr del $VIP6/128 dev lo
		link add kube-tunnel-if type ipip local 10.2.0.$((10 + $1))
		link set kube-tunnel-if up
		addr add $VIP4/32 dev kube-tunnel-if
		link add kube-tunnel-v6 type ip6tnl local fd02::$((10 + $1)) mode any
		link set kube-tunnel-v6 up
		addr add $VIP6/128 dev kube-tunnel-v6 nodad
	EOF
	sysctls "s$1" net.ipv4.conf.kube-tunnel-if.rp_filter=0
}

# scheduler: what ipvsadm calls that of the service
scheduler() {
	dr ipvsadm -Ln | awk -v m=$MARK '$1 == "FWM" && $2 == m { print $3 }'
}

# fresh [NUMBER]: new flows in place of those before
fresh() {
	flow c reset
	conns_begin
	flow c open "${1:-60}"
	flow c ping
	mine=$(value s1)
}

# held: no slot is in hold any more
held() {
	[ "$(mhs Hold $MARK)" -eq 0 ]
}

# over: the transition; flows that are used get an entry meanwhile
over() {
	windows 0 600000
	busywait 60 held
	flow c ping
	windows 0 100
	busywait 60 stable $MARK
	windows 600000 600000
}

plan 34
[ -x "${MHS_KUBE_ROUTER:-}" ] || skip_all "no MHS_KUBE_ROUTER: run 'make check-release ONLY=go'"
need iptables ip6tables
modprobe -q ip_vs
modprobe -q -a ipip ip6_tunnel
dmesg -C
fresh_module names=mhs,mh
# a kernel that has its own mh built in does not give the name away
! dmesg | grep -c "has a scheduler mh already" >"$work/own" || algo=mhs
note "the scheduler is called $algo"
setup_net 4
for i in 1 2 3 4; do
	pod $i
done
node dr
flow_start c --host $VIP4 --timeout 6
windows 600000 600000
readonly three="10.2.0.11 10.2.0.12 10.2.0.13"
readonly four="$three 10.2.0.14"

# shellcheck disable=SC2086 # several servers
{
	# A service begins with rr
	sync $three
	check "the service is made, then its servers, one by one" "add service $MARK, \
add server 10.2.0.11:80, add server 10.2.0.12:80, add server 10.2.0.13:80" "$said"
	check "it begins with rr" rr "$(scheduler)"
	fresh 30
	check "until the next sync each flow has an entry" "30 0 30" \
		"$(value flows) $(value broken) $(conns_new)"
	sync $three
	check "the next sync makes it what is wanted" "update service $MARK" "${said%%,*}"
	check "it is mhs" "$algo yes" "$(scheduler) $([ -n "$(mhs State $MARK)" ] && echo yes)"
	flow c ping
	check "the flows of before go on" "0 0" "$(value broken) $(value moved)"
	wait_settled $MARK

	# The steady state
	fresh
	check "all pods serve" "60 0 s1 s2 s3" "$(value flows) $(value failed) $(
		for s in s1 s2 s3 s4; do
			[ "$(value $s)" -eq 0 ] || echo $s
		done | xargs)"
	check "no entry" 0 "$(conns_new)"
	sync $three
	sync $three
	check "a resync edits each server to what it is" "update server 10.2.0.11:80, \
update server 10.2.0.12:80, update server 10.2.0.13:80" "$said"
	check "no slot is unstable after it" stable "$(mhs State $MARK)"
	flow c ping
	check "no flow is broken by a resync" "0 0" "$(value broken) $(value moved)"
	check "still no entry" 0 "$(conns_new)"

	# The node dies, and routes lead to another
	director d2 20
	node d2
	node=d2 sync $three
	node=d2 sync $three
	wait_settled $MARK d2
	route_vip 20
	flow c ping
	check "another node goes on with the flows" "60 0 0" \
		"$(value flows) $(value broken) $(value moved)"
	check "without entries" 0 "$(conns d2)"
	route_vip 10

	# A pod comes
	sync $four
	check "a pod is added" "add server 10.2.0.14:80" "${said##*, }"
	flow c ping
	check "no flow is broken by a new pod" "0 0" "$(value broken) $(value moved)"
	flow c open 40
	flow c ping
	check "the new pod serves new flows" "100 0 yes" "$(value flows) $(value broken) \
$([ "$(value s4)" -gt 0 ] && echo yes)"
	check "of these, those of unstable slots have an entry" \
		"$(mhs NewEntries $MARK)" "$(conns_new)"
	check_cmp "a part of all" "$(conns_new)" -lt 30
	over
	flow c ping
	check "after the transition all are where they were" "0 0" \
		"$(value broken) $(value moved)"
	fresh
	check "and new ones have no entry" "60 0 0" \
		"$(value flows) $(value broken) $(conns_new)"

	# A pod goes
	sync ${four#* }
	check "a pod that is gone is deleted at once" "delete server 10.2.0.11:80" \
		"${said##*, }"
	flow c ping
	check "its flows are reset, no others" "$mine $mine" \
		"$(value broken) $(value rst)"
	fresh
	check "new ones are served by the others" "60 0 0" \
		"$(value flows) $(value failed) $(value s1)"
	over
	sync $four
	over

	# with --ipvs-graceful-termination
	fresh
	sync --graceful ${four#* }
	check "graceful: it gets weight 0" "drain server 10.2.0.11:80" "${said##*, }"
	flow c ping
	check "graceful: its flows go on" "0 $mine" "$(value broken) $(value s1)"
	sync --graceful ${four#* }
	check "graceful: it counts no connection, and is deleted at the next look" \
		"delete server 10.2.0.11:80" "${said##*, }"
	flow c ping
	check "graceful: then its flows are reset, no others" "$mine" "$(value broken)"
	over
	sync $four
	over

	# what lets them go on
	sysctls dr net.ipv4.vs.expire_nodest_conn=0
	fresh
	sync ${four#* }
	flow c ping
	check "expire_nodest_conn=0: the flows of a deleted pod go on" "0 $mine" \
		"$(value broken) $(value s1)"
	sync $four
	over
	kube_starts dr

	# IPv6
	for i in 1 2; do
		dr "$MHS_KUBE_ROUTER" $algo $MARK6 6 "[fd02::11]:80" "[fd02::12]:80" \
			>"$work/six" 2>&1 || note "$(<"$work/six")"
	done
	wait_settled $MARK6
	flow_start c6 --host $VIP6 --timeout 6
	conns_begin
	flow c6 open 40
	flow c6 ping
	check "IPv6: served, without entries" "40 0 0 0" "$(value flows) $(value broken) \
$(value failed) $(conns_new)"
	flow c6 reset

	# the kernel's own mh
	flow c reset
	dr ipvsadm -C
	in_ns d2 ipvsadm -C
	algo=mh
	fresh_module
	sync $three
	sync $three
	check "control: without names= it is the kernel's own mh" "mh " \
		"$(scheduler) $(mhs State $MARK)"
	fresh
	check "control: mh: all are served" "60 0" "$(value flows) $(value failed)"
	check "control: mh: each has an entry" 60 "$(conns_new)"
	sync $three
	fresh
	sync ${three#* }
	flow c ping
	check_cmp "control: mh: a deleted pod's flows are cut, too" \
		"$(value broken)" -ge "$mine"
}
flow_end c
flow_end c6
