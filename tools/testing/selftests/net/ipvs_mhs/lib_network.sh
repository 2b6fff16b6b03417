# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2004,SC2034,SC2154 # lib.sh, which sources this, has net_dirs
# The network that the selftests run in.
#
#   cl ---- rt ==== dr            10.1.0.0/24, fd01::/64: client
#           |  br0                10.2.0.0/24, fd02::/64: director, servers
#           +==== s1 .. sN        10.9.0.1, fd09::1: the virtual address
#           +==== d2              a second director, in tests that ask for it
#
# The client reaches the virtual address by the router, which sends it to the
# director.  Servers have the address on lo and on a tunnel device and answer
# through the router.  Every namespace has a name of its own for this run.

# ns NAME: the namespace's real name; in_ns NAME COMMAND...: run there.  mhs
# rebuilds its tables soon after a command of ipvsadm, or for who reads the file:
# then what follows has the new tables.
ns() {
	echo "$1-$$"
}

in_ns() {
	local status=0

	nsenter "--net=/run/netns/$1-$$" "${@:2}" || status=$?
	[ "$2" != ipvsadm ] || rebuilt "$1"
	return $status
}

rebuilt() {
	local net

	net_dir "$1"
	[ ! -e "$net/ip_vs_mhs" ] || read -r -n 1 <"$net/ip_vs_mhs"
}

# bg_ns NAME COMMAND...: in the background, the process itself, for kill $!
bg_ns() {
	exec nsenter "--net=/run/netns/$1-$$" "${@:2}"
}

# In emulation a process costs a tenth of a second: ip works in batches
ip_ns() {
	ip -n "$1-$$" -batch -
}

# setup_ns NAME...: without the limits that chance meets.  All ICMP errors are sent:
# types in no mask are exempt from the host's limit for all namespaces, too; with
# ratelimit=0 they are not.  And no host asks for a router.
setup_ns() {
	local n dirs i=0 queue=/proc/sys/net/core/netdev_max_backlog

	# all hosts share the receive queue of a CPU, where a slow machine would drop
	if [ -w $queue ] && [ "$(<$queue)" -lt 20000 ]; then
		defer eval "echo $(<$queue) >$queue"
		echo 20000 >$queue
	fi
	printf "netns add %s-$$\n" "$@" | ip -batch -
	defer netns_del "$@"
	lab join "${@/%/-$$}"
	read -ra dirs <<<"$lab_reply"
	for n in "$@"; do
		net_dirs[$n]=${dirs[i++]}
		sysctls "$n" net.ipv4.conf.{all,default}.rp_filter=0 \
			net.ipv6.conf.{all,default}.accept_dad=0 \
			net.ipv6.conf.{all,default}.router_solicitations=0 \
			net.ipv4.conf.{all,default}.send_redirects=0 \
			net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratemask=255 \
			net.ipv4.ip_local_port_range=10000,33999
	done
}

netns_del() {
	local n

	for n in "$@"; do
		[ ! -e "/run/netns/$n-$$" ] || echo "netns del $n-$$"
	done | ip -force -batch -
}

# port NAME: lines for ip, a port of the router's bridge
port() {
	echo "link add v$1 type veth peer name eth0 netns $1-$$"
	echo "link set v$1 master br0 up"
}

# host HOST: lines for ip, addresses by host number, and the virtual addresses
# on lo; the tunnel devices that come with the modules, where they are loaded
host() {
	cat <<-EOF
		link set lo up
		addr add 10.2.0.$1/24 dev eth0
		addr add fd02::$1/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.2.0.1
		route add default via fd02::1
		addr add $VIP4/32 dev lo
		addr add $VIP6/128 dev lo nodad
	EOF
}

# attach NAME HOST: both
attach() {
	port "$1" | ip_ns rt
	host "$2" | ip_ns "$1"
}

forwarding() {
	sysctls "$1" net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
}

# lane NAME: if MHS_LANE is set, the director forwards what it can in the lane at
# the ingress hook.  For tests that are not about the lane.
lane() {
	[ -z "${MHS_LANE:-}" ] || [ ! -e /proc/sys/net/ipv4/vs/mhs/lane ] ||
		sysctls "$1" net.ipv4.vs.mhs.{lane=1,ingress=eth0}
}

# director NAME HOST
director() {
	setup_ns "$1"
	attach "$1" "$2"
	forwarding "$1"
	lane "$1"
}

# vip_lines HOST; route_vip HOST: where the router sends the virtual addresses
vip_lines() {
	echo "route replace $VIP4/32 via 10.2.0.$1"
	echo "route replace $VIP6/128 via fd02::$1"
}

route_vip() {
	vip_lines "$1" | ip_ns rt
}

# setup_net SERVERS: the network above.  Without an address of its own a bridge takes
# the lowest of its ports, another one when a port comes or goes; neighbours, who
# learnt the former one, then lose packets for seconds.
setup_net() {
	local i hosts=(dr)

	for ((i = 1; i <= $1; i++)); do
		hosts+=("s$i")
	done
	setup_ns cl rt "${hosts[@]}"
	forwarding rt
	{
		cat <<-EOF
			link set lo up
			link add br0 address 02:00:00:00:02:01 type bridge
			addr add 10.2.0.1/24 dev br0
			addr add fd02::1/64 dev br0 nodad
			link set br0 up
			link add vcl type veth peer name eth0 netns cl-$$
			addr add 10.1.0.1/24 dev vcl
			addr add fd01::1/64 dev vcl nodad
			link set vcl up
		EOF
		for i in "${hosts[@]}"; do
			port "$i"
		done
		vip_lines 10
	} | ip_ns rt
	ip_ns cl <<-EOF
		link set lo up
		addr add 10.1.0.2/24 dev eth0
		addr add fd01::2/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.1.0.1
		route add default via fd01::1
	EOF
	host 10 | ip_ns dr
	forwarding dr
	lane dr
	for ((i = 1; i <= $1; i++)); do
		serve "s$i" $((10 + i))
	done
}

# ten_servers: more addresses for s1 to s3; 1 2 3 4 21 22 23 41 42 43 are ten servers
ten_servers() {
	local i

	for i in 1 2 3; do
		ip_ns "s$i" <<-EOF
			addr add 10.2.0.$((30 + i))/24 dev eth0
			addr add 10.2.0.$((50 + i))/24 dev eth0
		EOF
	done
}

# server NAME HOST: a real server that takes direct routing and IPIP
server() {
	setup_ns "$1"
	port "$1" | ip_ns rt
	serve "$@"
}

# serve NAME HOST: make it one of what is connected.  The tunnel devices come
# with their modules, where these are loaded.
serve() {
	sysctls "$1" net.ipv4.conf.all.arp_ignore=1 \
		net.ipv4.conf.all.arp_announce=2
	{
		host "$2"
		[ ! -e /sys/module/ipip ] || echo "link set tunl0 up"
		[ ! -e /sys/module/sit ] || echo "link set sit0 up"
		[ ! -e /sys/module/ip6_tunnel ] || echo "link set ip6tnl0 up"
	} | ip_ns "$1"
	[ ! -e /sys/module/ip6_tunnel ] ||
		ip -n "$1-$$" -6 tunnel change ip6tnl0 mode any
	lab serve "$1-$$" "$1"
}

# listening NAME PORT
listening() {
	[ -n "$(in_ns "$1" ss -Hltn "sport = :$2")" ]
}

# dr COMMAND...: on the director
dr() {
	in_ns dr "$@"
}
