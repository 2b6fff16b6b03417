#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 300
# weight: 20
# The model card: frames go the way that the XDP program says, or through the
# stack, and what was sent can be read.  Needs card.ko beside the module's
# directory, see build-module --card; make check-release ONLY=card does all.

# shellcheck source=../../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../../selftests/net/ipvs_mhs/lib.sh"

readonly CARDS=/proc/card MAC=02:00:00:00:01:0 FRAMES=150
source=$(realpath "${0%/*}/../lane/bare.bpf.c")
card=${MHS_KO%/*/*}/module-card/card.ko

# frame PORT [TTL]: a TCP segment from 10.1.0.2 to 10.2.0.2, in hexadecimal
frame() {
	local ttl=${2:-64} sum head

	# the checksum of the header without its own field
	sum=$((0x4500 + 0x0028 + 0x4000 + (ttl << 8 | 6) + 0x0a01 + 0x0002 +
		0x0a02 + 0x0002))
	while ((sum > 0xffff)); do
		sum=$(((sum & 0xffff) + (sum >> 16)))
	done
	printf -v head '4500002800004000%02x06%04x0a0100020a020002' "$ttl" \
		$((sum ^ 0xffff))
	printf '%s%s0800%s%04x0050%032d' "${MAC//:/}0" "${MAC//:/}2" "$head" \
		"$1" 0
}

# put HEX: one more frame to be received by card0
put() {
	# shellcheck disable=SC2059,SC2001
	printf "$(sed 's/../\\x&/g' <<<"$1")" |
		dd of=$CARDS/card0/frames bs=4096 iflag=fullblock \
			conv=notrunc status=none
}

# run N
run() {
	echo "$1" >$CARDS/card0/run
}

# count CARD NAME
count() {
	awk -v name="$2" '$1 == name { print $2 }' $CARDS/"$1"/counts
}

# sent CARD WAY: the oldest frame kept, in hexadecimal
sent() {
	dd if=$CARDS/"$1"/sent/"$2" bs=4096 count=1 status=none |
		od -An -v -tx1 | tr -d ' \n'
}

# attach SECTION
attach() {
	dr ip -force link set dev card0 xdpdrv obj "$work/bare.o" sec "$1"
}

detach() {
	dr ip link set dev card0 xdpdrv off
}

# refused COMMAND...: what it says
refused() {
	{ "$@" && echo "no error"; } 2>&1 | sed 's/.*: //'
}

unload_card() {
	! loaded card || busywait 20 rmmod card
}

need clang
plan 25
clang -target bpf -O2 -g -I"/usr/include/$(gcc -print-multiarch)" \
	-c "$source" -o "$work/bare.o"
insmod "$card"
defer unload_card
ip netns add "dr-$$"
defer ip netns del "dr-$$"
for i in 0 1; do
	ip link set card$i address "$MAC$i" addrgenmode none
	ip link set card$i netns "dr-$$"
done

check "a card that is down receives nothing" "Network is down" \
	"$(refused run 1)"
dr sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.disable_ipv6=1
dr ip link set card0 up
dr ip link set card1 up
dr ip addr add 10.1.0.1/16 dev card0
dr ip addr add 10.2.0.1/16 dev card1
dr ip neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev card1
check "a card without frames receives nothing" "No data available" \
	"$(refused run 1)"
check "a frame has an Ethernet header" "Message too long" \
	"$(refused put 020000)"
put "$(frame 1)"
put "$(frame 2)"
for i in 0 1; do
	echo 2 >$CARDS/card$i/keep
done

routed=02000000020202000000010108004500002800004000
run $FRAMES
read -r ran _ <$CARDS/card0/run
check "it says how many it has received" $FRAMES "$ran"
check "no program: all are routed" $FRAMES "$(count card1 sent_start_xmit)"
check "in the order of frames" 0001 "$(sent card1 start_xmit | cut -c 69-72)"
last=$(sent card1 start_xmit)
check "with the next MAC address, a lower TTL" "${routed}3f06" \
	"${last:0:48}"
check "and the last of those kept is the last one" 0002 "${last:68:4}"
check "no more are kept" "" "$(sent card1 start_xmit)"

attach xdp_pass
run $FRAMES
check "XDP_PASS: all are counted" $FRAMES "$(count card0 xdp_pass)"
check "and routed" $((2 * FRAMES)) "$(count card1 sent_start_xmit)"
detach

attach xdp_drop
run $FRAMES
check "XDP_DROP: all are counted" $FRAMES "$(count card0 xdp_drop)"
check "XDP_DROP: none is routed" $((2 * FRAMES)) "$(count card1 sent_start_xmit)"
detach

attach xdp_tx
run $FRAMES
check "XDP_TX: all are sent by the card itself" $FRAMES \
	"$(count card0 sent_xdp_tx)"
sent card0 xdp_tx >/dev/null
check "XDP_TX: as they have come" "$(frame 2)" "$(sent card0 xdp_tx)"
check "XDP_TX: none is routed" $((2 * FRAMES)) "$(count card1 sent_start_xmit)"
detach

attach xdp_redirect
run $FRAMES
check "XDP_REDIRECT: all are sent by the other card" $FRAMES \
	"$(count card1 sent_xdp_xmit)"
sent card1 xdp_xmit >/dev/null
check "XDP_REDIRECT: as they have come" "$(frame 2)" "$(sent card1 xdp_xmit)"
check "no redirect has failed" 0 "$(count card0 redirect_failed)"
dr ip link set card1 down
run $FRAMES
check "control: to a card that is down they fail" $FRAMES \
	"$(count card0 redirect_failed)"
dr ip link set card1 up
detach

printf '' >$CARDS/card0/frames
check "frames are forgotten" "No data available" "$(refused run 1)"

# Changes under load: what the machine finds wrong in the kernel's log fails the test
put "$(frame 3)"
received=$(count card0 received)
(while run 64; do :; done 2>/dev/null) &
load=$!
attached=0
for i in 1 2 3; do
	attach xdp_drop && attach xdp_pass && detach && attached=$((attached + 1))
done
check "programs come and go under load" 3 $attached
dr ip link set card0 down
wait $load
check_cmp "and frames are received meanwhile" \
	"$(count card0 received)" -gt "$received"
check "none was left without a page" 0 "$(count card0 no_page)"

dr ip link set card0 up
attach xdp_pass
check "a card with a program goes" "" "$(unload_card 2>&1)"
