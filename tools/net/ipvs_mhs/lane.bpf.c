// SPDX-License-Identifier: GPL-2.0-only
/* The lane of XDP programs: forwards stable packets of mhs before the IP stack.
 *
 *	ip link set dev eth0 xdpdrv obj lane.bpf.o sec xdp
 *
 * The module decides, in the kfunc bpf_ipvs_mhs_lane().  This program rewrites
 * the frame as the kfunc says and sends it.
 */
#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ip_vs_mhs_fwd.h"

extern int bpf_ipvs_mhs_lane(struct xdp_md *ctx, struct bpf_ipvs_mhs_fwd *fwd,
			     __u32 fwd__sz) __ksym;

/* Copy a multiple of two bytes, in the widest parts.  The compiler's memcpy()
 * would copy single bytes, because the frame may be anywhere.
 */
static __always_inline void copy(void *to, const void *from, __u32 bytes)
{
	for (; bytes >= 8; bytes -= 8, to += 8, from += 8)
		*(__u64 *)to = *(const __u64 *)from;
	for (; bytes >= 4; bytes -= 4, to += 4, from += 4)
		*(__u32 *)to = *(const __u32 *)from;
	for (; bytes >= 2; bytes -= 2, to += 2, from += 2)
		*(__u16 *)to = *(const __u16 *)from;
}

/* The packet's own header: one hop less */
static __always_inline void decrement_ttl(const struct bpf_ipvs_mhs_fwd *fwd,
					  struct ethhdr *eth)
{
	struct ipv6hdr *ipv6 = (struct ipv6hdr *)(eth + 1);
	struct iphdr *ipv4 = (struct iphdr *)(eth + 1);

	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		ipv4->ttl--;
		ipv4->check = fwd->check;
	} else {
		ipv6->hop_limit--;
	}
}

SEC("xdp")
int mhs_lane(struct xdp_md *ctx)
{
	struct bpf_ipvs_mhs_fwd fwd = {};
	struct ethhdr *eth;
	void *data_end;

	if (bpf_ipvs_mhs_lane(ctx, &fwd, sizeof(fwd)) <= 0)
		return XDP_PASS;

	/* The module has checked all lengths, which the verifier cannot know */
	eth = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if ((void *)(eth + 1) + sizeof(struct iphdr) > data_end)
		return XDP_ABORTED;
	decrement_ttl(&fwd, eth);

	if (fwd.outer) {
		if (fwd.trim && bpf_xdp_adjust_tail(ctx, -(int)fwd.trim))
			return XDP_ABORTED;
		if (bpf_xdp_adjust_head(ctx, -(int)fwd.outer))
			return XDP_ABORTED;
		eth = (void *)(long)ctx->data;
		data_end = (void *)(long)ctx->data_end;
		if ((void *)(eth + 1) + sizeof(fwd.head) > data_end)
			return XDP_ABORTED;
		if (fwd.outer == sizeof(struct iphdr))
			copy(eth + 1, fwd.head, sizeof(struct iphdr));
		else
			copy(eth + 1, fwd.head, sizeof(struct ipv6hdr));
	}
	copy(eth, &fwd.eth, sizeof(fwd.eth));
	return fwd.ifindex ? bpf_redirect(fwd.ifindex, 0) : XDP_TX;
}

/* The kfunc is for programs under this license only */
char _license[] SEC("license") = "GPL";
