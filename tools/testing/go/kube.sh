#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 40
# kube-proxy's calls, by the library that it uses: what is promised of them
# with mhs, and what is not.  MHS_KUBE is the program kube, see kube.go.

. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

algo=mhs said=""

# round SERVER...: of kube-proxy; what it did is in $said, without what the
# library tells of modprobe
round() {
	said=$(dr "$MHS_KUBE" "$algo" $VIP4:80 "${@/%/:80}" 2>&1 |
		grep -v '^time=')
	said=${said//$'\n'/, }
	note "kube $algo $* -> $said"
}

# kube_starts: what kube-proxy sets whenever it starts in this mode; on kernels
# from 5.9 on it leaves conn_reuse_mode alone
kube_starts() {
	sysctls dr net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 \
		net.ipv4.vs.expire_quiescent_template=1 net.ipv4.ip_forward=1
}

# begin: flows to the servers
begin() {
	flow c reset
	flow c open 60
	flow c ping
	mine=$(value s1)
}

# over: no flow has an entry any more
over() {
	[ "$(conns)" -eq 0 ]
}

plan 22
[ -x "${MHS_KUBE:-}" ] || skip_all "no MHS_KUBE: run 'make check-release ONLY=go'"
modprobe -q ip_vs
dmesg -C
fresh_module names=mhs,mh
own_mh=no
! dmesg | grep -q "has a scheduler mh already" || own_mh=yes
setup_net 3
for i in 1 2 3; do
	# answers go back by the director: kube-proxy masquerades
	ip -n "$(ns s$i)" route add 10.1.0.0/24 via 10.2.0.10
done
flow_start c --host $VIP4 --timeout 6
windows 600000 600000
kube_starts
readonly all="10.2.0.11 10.2.0.12 10.2.0.13"

# shellcheck disable=SC2086 # three servers
{
	round $all
	check "the service is made" "add service $VIP4:80" "${said%%,*}"
	wait_settled
	check "it is mhs, without flags" "mhs" \
		"$(dr ipvsadm -Ln | awk -v s=$VIP4:80 '$2 == s { print $3 $4 }')"
	begin
	check "clients are served by all servers" "60 0 yes" \
		"$(value flows) $(value failed) $([ "$mine" -gt 0 ] && echo yes)"
	check "M7: each flow has an entry" 60 "$(mhs NewEntries)"
	round $all
	round $all
	check "a resync changes nothing" "" "$said"
	check "no slot is unstable after it" stable "$(mhs State)"
	flow c ping
	check "no flow is broken by it" 0 "$(value broken)"

	round ${all#* }
	check "M6: a server with flows gets weight 0" \
		"update server 10.2.0.11:80" "$said"
	flow c ping
	check "M6: its flows go on" "0 $mine" "$(value broken) $(value s1)"
	round ${all#* }
	check "M6: it stays while they live" "" "$said"
	flow c reset
	busywait 60 over
	round ${all#* }
	check "M6: it is deleted when they are over" \
		"delete server 10.2.0.11:80" "$said"

	# the only flag it knows is for the name mh
	dr ipvsadm -C
	algo=mh
	round $all
	check "M5: for mh it sets the flag of the port" "mh (mh-port)" \
		"$(dr ipvsadm -Ln | awk -v s=$VIP4:80 '$2 == s { print $3, $4 }')"
	round $all
	check "M5: a resync changes nothing" "" "$said"
	busywait 5 stable || note "this kernel has its own mh built in"
	check "M5: it is mhs, unless the kernel has its own mh" \
		"$([ "$own_mh" = yes ] || echo stable)" "$(mhs State)"
	begin
	check "M5: and clients are served" "60 0" "$(value flows) $(value failed)"

	# what it expects of a scheduler that keeps connections; mh is the kernel's
	flow c reset
	dr ipvsadm -C
	fresh_module
	for algo in wlc mh; do
		round $all
		begin
		round ${all#* }
		check "control: with $algo a server with flows gets weight 0" \
			"update server 10.2.0.11:80" "$said"
		flow c ping
		check "control: with $algo its flows go on" 0 "$(value broken)"
		dr ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
		flow c ping
		check "control: with $algo, too, they are cut if it is deleted" \
			"$mine" "$(value broken)"
		flow c reset
		dr ipvsadm -C
	done
	algo=none-such
	round $all
	check "control: it says when a scheduler is unknown" \
		"kube: add service $VIP4:80: no such file or directory" "$said"
}
flow_end c
