#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 80
# cpus: 2
# memory: 1G
# tags: races
# Servers, services, namespaces and the module come and go at any moment, flags,
# methods, sysctls and the sync daemon change, under traffic of every kind;
# afterwards nothing is left.  MHS_TORTURE_S: for how many seconds.

. "${0%/*}/lib.sh"
need hping3

: "${MHS_TORTURE_S:=30}"
stop=$((SECONDS + MHS_TORTURE_S))

# loop NAME COMMAND...: until the time is over; counts its rounds
loop() {
	local name=$1 n=0

	shift
	while [ "$SECONDS" -lt "$stop" ]; do
		"$@" >/dev/null 2>&1
		n=$((n + 1))
		echo $n >"$work/$name.rounds"
	done
}

# a server's number stands for %
SERVICES=("-t $VIP4:80 -r 10.2.0.1%:80" "-t [$VIP6]:80 -r [fd02::1%]:80"
	"-u $VIP4:53 -r 10.2.0.1%:53" "-u [$VIP6]:443 -r [fd02::1%]:443"
	"--sctp-service $VIP4:80 -r 10.2.0.1%:80" "-f 7 -r 10.2.0.1%:80"
	"-u $VIP4:443 -r 10.2.0.1%:443")
METHODS=(-g -g -g -i -m "-i --tun-type gue --tun-port 6080" "-i --tun-type gre")
FLAGS=("" "-b flag-1" "-b flag-2" "-b flag-3" "-p 5" "-b flag-1,flag-3")

base() {
	local i svc

	for svc in "${SERVICES[@]}"; do
		echo "-A ${svc% -r *} -s mhs"
		for i in 1 2 3; do
			echo "-a ${svc/\%/$i} -g -w 1"
		done
	done
}

# reload: the module goes and comes back when the other namespaces have ended
reload() {
	touch "$work/reloading"
	dr ipvsadm -C
	if busywait 20 rmmod ip_vs_mhs; then
		echo >>"$work/reloads"
		insert_module
	fi
	rm "$work/reloading"
	dr ipvsadm -R <<<"$all"
}

# a few changes in a row, without a process for each; a slow machine comes to the
# reload, too, so that is first (n is the loop's)
change() {
	local i svc server how todo=""

	for ((i = 0; i < 8; i++)); do
		svc=${SERVICES[RANDOM % ${#SERVICES[@]}]}
		server=${svc/\%/$((1 + RANDOM % 3))}
		how=${METHODS[RANDOM % ${#METHODS[@]}]}
		case $((RANDOM % 12)) in
		[0-3]) todo+="-e $server -g -w $((RANDOM % 3))" ;;
		4 | 5) todo+="-d $server" ;;
		[6-8]) todo+="-a $server -g -w 1" ;;
		9) todo+="-e $server $how -w 1" ;;
		10) todo+="-e $server -g -w 1 -x $((RANDOM % 2 * 100))" ;;
		11) todo+="-E ${svc% -r *} -s mhs ${FLAGS[RANDOM % ${#FLAGS[@]}]}" ;;
		esac
		todo+=$'\n'
	done
	# it stops at the first line that fails
	while [ -n "$todo" ]; do
		dr ipvsadm -R <<<"${todo%%$'\n'*}"
		todo=${todo#*$'\n'}
	done
	case $((n % 8)) in
	1)
		dr ipvsadm -E -t $VIP4:80 -s wlc
		dr ipvsadm -E -t $VIP4:80 -s mhs
		;;
	2)
		dr ipvsadm -C
		dr ipvsadm -R <<<"$all"
		;;
	3)
		dr ipvsadm -Sn >"$work/saved"
		dr ipvsadm -C
		dr ipvsadm -R <"$work/saved"
		;;
	0 | 4) reload ;;
	5)
		dr ipvsadm --start-daemon backup --mcast-interface eth0
		dr ipvsadm --start-daemon master --mcast-interface eth0
		;;
	6)
		dr ipvsadm --stop-daemon backup
		dr ipvsadm --stop-daemon master
		;;
	7)
		dr ipvsadm -Z
		dr ipvsadm --set $((1 + RANDOM % 900)) $((1 + RANDOM % 9)) 9
		;;
	esac
}

knobs() {
	local d=/proc/sys/net/ipv4/vs

	dr sh -c "echo $((RANDOM % 3 * 500)) >$d/mhs/hold_ms
		echo $((RANDOM % 3 * 700)) >$d/mhs/pin_ms
		echo $((RANDOM % 2 * 1000)) >$d/mhs/max_entries
		echo $((RANDOM % 2 * 50)) >$d/mhs/max_quic_entries
		echo $((RANDOM % 4 > 0)) >$d/mhs/stateless
		echo $((RANDOM % 2)) >$d/expire_nodest_conn
		echo $((RANDOM % 2)) >$d/sloppy_tcp
		echo $((RANDOM % 2)) >$d/schedule_icmp
		echo $((RANDOM % 2)) >$d/drop_entry
		echo $((RANDOM % 3)) >$d/conn_reuse_mode
		echo $((RANDOM % 2)) >$d/conntrack
		cat /proc/net/ip_vs_mhs; ipvsadm -Ln --stats"
	starve $((RANDOM % 2 * 10))	# now and then, of ten one
}

# a namespace that dies in mid-transition, with entries and carriers
namespace() {
	local n

	while [ -e "$work/reloading" ]; do
		nap 0.1 # why: the pace of looks
	done
	n=$(ns "x$RANDOM")
	ip netns add "$n"
	ip -n "$n" -batch - <<-EOF
		link set lo up
		addr add $VIP4/32 dev lo
		link add d0 type dummy
		addr add 10.2.0.9/24 dev d0
		link set d0 up
	EOF
	nsenter "--net=/run/netns/$n" ipvsadm -R <<<"$all"
	nsenter "--net=/run/netns/$n" hping3 -q -S -c 20 -i u1000 -p 80 $VIP4
	nsenter "--net=/run/netns/$n" ipvsadm -d -t $VIP4:80 -r 10.2.0.11:80
	nsenter "--net=/run/netns/$n" hping3 -q -S -c 20 -i u1000 -p 80 $VIP4
	ip netns del "$n"
}

plan 8
load_module
setup_net 3
all=$(base)
: >"$work/reloads"
dr ipvsadm -R <<<"$all"
mac=$(dr ip -br link show eth0 | awk '{ print $3 }')
# Hooks of others stay all the time.  Each time that the last one goes the kernel
# changes its own code: after 26 minutes of that two CPUs that QEMU emulates stood
# still at the place.
setup_ns stays
in_ns stays ipvsadm -R <<-EOF
	-A -t $VIP4:81 -s wlc
	-A -t [$VIP6]:81 -s wlc
	EOF
stop=$((SECONDS + MHS_TORTURE_S))
pids=()
bg_ns rt python3 "$here/attack.py" --dev vdr --mac "$mac" --vip $VIP4 $VIP6 \
	--seconds "$MHS_TORTURE_S" >"$work/storm" &
pids+=($!)
for job in change knobs namespace; do
	loop $job $job &
	pids+=($!)
done
flow_start c --host $VIP4 --timeout 2 --impatient
flow_send c churn $((2 * MHS_TORTURE_S))
wait "${pids[@]}"
flow c stop churn
starve 0
served=$(value "done")

# what the slowest machines do
least=$((1 + MHS_TORTURE_S / 300))
for name in change knobs namespace; do
	check_cmp "$name went on, rounds" "$(cat "$work/$name.rounds")" -ge $least
done
check_cmp "the module was reloaded, times" "$(wc -l <"$work/reloads")" -ge $least
note "$(<"$work/storm")"
check "packets of every kind went on" 12 \
	"$(grep -oE "=[1-9][0-9]*" "$work/storm" | wc -l)"
check_cmp "connections were made meanwhile" "$served" -gt 5

dr ipvsadm -C
no_services() {
	! grep -q ' mhs ' /proc/net/ip_vs && rmmod ip_vs_mhs
}
busywait 30 no_services
result "the module goes" $?
flow_end c
lab_stop	# it keeps the namespaces
for n in cl rt dr s1 s2 s3 stays; do
	in_ns $n ipvsadm -C 2>/dev/null
	ip netns del "$(ns $n)"
done

# A dying namespace waits until its last entry and carrier is gone, and the
# next one waits for it: when a namespace made now dies, all others have.
last=$(ns last)
ip netns add "$last"
ip link add mhs-last type veth peer name eth0 netns "$last"
ip netns del "$last"
nothing_left() {
	[ ! -e /sys/class/net/mhs-last ]
}
busywait 90 nothing_left
result "entries and carriers are gone, namespaces too" $?
