#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
# real_server: check names each thing that is broken by hand on a real kernel, and its
# remedy mends it; clear leaves what others made; flows live through changes; what
# --dry-run prints can be run.  Options, the file, steps that fail, a setup that is
# killed, refusals: real_server_tests.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"
# shellcheck source=lib_pair.sh
. "${0%/*}/lib_pair.sh"
# shellcheck source=lib_real.sh
. "${0%/*}/lib_real.sh"

# named STATUS "SEVERITY: TEXT" [ARGUMENTS]: check on s1 says that, with a remedy
named() {
	on s1 check "${@:3}"
	grep -qE "^$2.*; remedy: ." "$work/said"
	check "named: $2" "$1 0" "$rc $?"
	note "$(said)"
}

# broken TEXT COMMAND...: on s1; check names it, and its remedy mends it
broken() {
	in_ns s1 "${@:2}" || note "$*: $?"
	named 1 "error: .*$1"
	mend
	quiet "mended: $1"
}

# dropped: packets that rp_filter of the servers has dropped
dropped() {
	local s

	for s in s1 s2; do
		in_ns $s nstat -asz TcpExtIPReversePathFilter
	done | awk '/IPReversePathFilter/ { n += $2 } END { print n + 0 }'
}

# answered: connections get through, after what the commands before may have cost
answered() {
	flow c4 reset
	flow c4 open 4
	[ "$(value flows)" = 4 ]
}

plan 93
load_module
real_net
pair_clients --timeout 1

# Where the tunnels are modules, it loads them, and their devices stay
both setup --vip $vips --tunnel ipip,gre,gue --outer ipv4,ipv6 --mss 1300 --port 80
quiet "all that there is: check is quiet"
both clear
for s in s1 s2; do
	looks $s >"$work/before.$s"
done

# What check names
both setup --vip $vips --tunnel ipip,gre,gue --outer ipv4,ipv6 --mss 1300 --port 80
broken "$VIP4 is not on lo" sh -c "
	for dev in lo tunl0 gre0 ip6tnl0 ip6gre0; do
		ip addr del $VIP4/32 dev \$dev
	done"
broken "$VIP6 is not on lo" ip addr del $VIP6/128 dev lo
broken "lo is down" ip link set lo down
broken "$VIP4 is on eth0" ip addr add $VIP4/24 dev eth0
broken "$VIP6 is on eth0" ip addr add $VIP6/64 dev eth0 nodad
broken "lo has $VIP4/24" ip addr add $VIP4/24 dev lo
broken "eth0 answers ARP" sysctl -qw net.ipv4.conf.all.arp_ignore=0
broken "eth0 answers ARP .*is 3" sysctl -qw net.ipv4.conf.eth0.arp_ignore=3
broken "eth0 may ask by ARP" sysctl -qw net.ipv4.conf.all.arp_announce=0
for device in tunl0 gre0 ip6gre0 ip6tnl0; do
	broken "rp_filter on $device .*martian" \
		sysctl -qw net.ipv4.conf.$device.rp_filter=1
	broken "$device has no IPv4 address.*martian" \
		ip addr del $VIP4/32 dev $device
done
for device in tunl0 sit0 gre0 ip6tnl0 ip6gre0; do
	broken "$device is down" ip link set $device down
done
broken "sit0.disable_ipv6 is 1: no IPv6" \
	sysctl -qw net.ipv6.conf.sit0.disable_ipv6=1
broken "lo.disable_ipv6 is 1" sysctl -qw net.ipv6.conf.lo.disable_ipv6=1
broken "ip6tnl0 drops IPv4" ip -6 tunnel change ip6tnl0 mode ip6ip6
broken "nobody takes GUE on UDP port 6080 of IPv4" ip fou del port 6080
broken "nobody takes GUE on UDP port 6080 of IPv6" ip fou del port 6080 -6
broken "table real_server of nft" nft flush table inet real_server
broken "MSS 1300 does not fit" ip link set eth0 mtu 1350
ip -n "$(ns s1)" link set eth0 mtu 1500
sysctls s1 net.ipv4.conf.eth0.arp_ignore=0
for router in 10.2.0.1 fd02::1; do
	ip -n "$(ns s1)" route del default via $router
	vip=$VIP6
	[[ $router = *:* ]] || vip=$VIP4
	named 0 "warning: no default route for what $vip answers"
	ip -n "$(ns s1)" route add default via ${router}77
	named 1 "error: ${router}77 on eth0, the router of what"
	ip -n "$(ns s1)" route del default via ${router}77
	ip -n "$(ns s1)" route add default via $router
done
ip_ns s1 <<<"rule add from $VIP4 prohibit"
named 0 "warning: no default route for what $VIP4 answers, or an 'ip rule'"
ip_ns s1 <<-EOT
	rule del from $VIP4 prohibit
	link add far type dummy
	link set far up
	route add default dev far metric 1
	route del default via 10.2.0.1
EOT
before=$(dropped)
in_ns cl bash -c 'echo >/dev/udp/10.2.0.11/9'
busywait 20 grown 1 dropped
result "control: the kernel drops what comes by eth0" $?
named 0 "warning: strict rp_filter on eth0 drops requests: answers leave by far"
mend
quiet "mended: strict rp_filter on eth0"
sysctls s1 net.ipv4.conf.eth0.rp_filter=1
ip_ns s1 <<-EOT
	link del far
	route add default via 10.2.0.1
EOT
bg_ns s1 python3 -IS -c "import socket, time
one = socket.create_server(('127.0.0.1', 81))
time.sleep(3600) # why: until it is killed" &
defer kill $!
busywait 20 listening s1 81
for port in 81/tcp 53/udp; do
	named 1 "error: nothing listens on ($VIP4|$VIP6) port $port" --port 80,81,53/udp
done
both clear
as_before "all that there is: s1 is as before"

# martians NAME COMMAND...: done on both servers, it makes the kernel drop requests
martians() {
	local s

	for s in s1 s2; do
		in_ns $s "${@:2}"
	done
	before=$(dropped)
	flow c4 open 1
	check "control: $1: no request passes" 0 "$(value flows)"
	result "$1: the kernel counts martians" "$(grown 1 dropped; echo $?)"
	flow c4 reset
	both setup --vip $vips --tunnel ipip --mss 1380
	flow c4 open 4
	check "$1: another setup mends it" 4 "$(value flows)"
	flow c4 reset
}

# It is rp_filter that breaks it
services -i
both setup --vip $vips --tunnel ipip --mss 1380
martians "strict rp_filter on tunl0" sysctl -qw net.ipv4.conf.tunl0.rp_filter=1
martians "loose rp_filter, no address on tunl0" ip addr del $VIP4/32 dev tunl0
# collect-metadata mode: tunl0 gets nothing any more
martians "another program's device takes IPIP" sh -c "
	ip link add ipip0 type ipip external
	ip link set ipip0 up"
both clear
ip -n "$(ns s1)" link del ipip0
ip -n "$(ns s2)" link del ipip0

# A namespace without the devices that come with the modules
sysctl -qw net.core.fb_tunnels_only_for_init_net=2
bare s3 13
sysctl -qw net.core.fb_tunnels_only_for_init_net=0
on s3 setup --vip $VIP4 --tunnel ipip --mss 1380
on s3 check
check "setup makes a device that is missing" "0 " "$rc $(said)"
on s3 clear
ip -n "$(ns s3)" link show tunl0 >/dev/null 2>&1
check "which clear deletes" "0 1" "$rc $?"

# A change, with traffic
services -g
both setup --vip $VIP4
looks s1 >"$work/one"
busywait 20 answered
flow c4 reset
flow c4 open 10
both setup --vip $vips --tunnel gre --mss 1300
flow c4 ping
check "another set-up breaks no flow" "10 0" "$(value flows) $(value broken)"
flow c6 open 10
check "and has the other address" 10 "$(value flows)"
echo "vip = $VIP4" >"$work/less"
both setup --config "$work/less"
flow c4 ping
check "a smaller one breaks no flow" "10 0" "$(value flows) $(value broken)"
looks s1 | diff "$work/one" - >"$work/diff"
result "what is not wanted any more is undone" $? "$(tr '\n' ' ' <"$work/diff")"
pair reset
both clear
as_before "after changes: s1 is as before"

# What others made, or changed
sysctls s1 net.ipv4.conf.all.arp_ignore=2 net.ipv4.conf.all.arp_announce=1
ip_ns s1 <<<"addr add $VIP4/32 dev lo"
looks s1 >"$work/before.s1"
on s1 setup --vip $vips
check "arp_ignore=2 is good" "0 2" \
	"$rc $(in_ns s1 cat /proc/sys/net/ipv4/conf/all/arp_ignore)"
on s1 clear
as_before "clear leaves an address that was there, and puts sysctls back"
on s1 setup --vip $vips
sysctls s1 net.ipv4.conf.all.arp_announce=0
on s1 clear
check "a sysctl that somebody else set stays" 0 \
	"$(in_ns s1 cat /proc/sys/net/ipv4/conf/all/arp_announce)"
sysctls s1 net.ipv4.conf.all.arp_announce=1

# What --dry-run prints
on s1 setup --dry-run --vip $vips --tunnel ipip,gue --mss 1380
cp "$work/said" "$work/commands"
as_before "setup --dry-run changes nothing"
in_ns s1 sh -e "$work/commands" >"$work/said" 2>&1
check "its commands can be run" 0 $?
on s1 check --vip $vips --tunnel ipip,gue --mss 1380
check "and do the same" "0 " "$rc $(said)"
on s2 setup --vip $vips --tunnel ipip,gue --mss 1380
on s2 clear --dry-run
cp "$work/said" "$work/commands"
in_ns s2 sh -e "$work/commands" >"$work/said" 2>&1
as_before "the commands of clear --dry-run undo it" s2
dr ipvsadm -C
