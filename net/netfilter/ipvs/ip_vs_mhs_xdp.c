// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the lane of XDP programs.
 *
 * An XDP program calls the kfunc bpf_ipvs_mhs_lane(), which decides and rewrites the
 * frame, and sends it: lane.bpf.c.  If the program rewrote the frame, the answer
 * would have to be copied twice and checked once more: some 100 instructions of a
 * packet.  A program that uses the kfunc holds a reference to this module.
 *
 * Programs find the kfunc by the module's BTF.
 */
#include <linux/bpf.h>
#include <linux/etherdevice.h>
#include <net/xdp.h>

#include "ip_vs_mhs_lane_ask.h"

#ifdef MHS_HAVE_KFUNCS

/* Records do not tell: look longer */
#define XDP_LOOK	INT_MIN

/* Moving xdp->data moves no data in front of the frame that another program left */
static __always_inline bool xdp_has_room(const struct xdp_buff *xdp)
{
	return xdp->data - xdp->data_hard_start >=
	       sizeof(struct xdp_frame) + sizeof(struct ipv6hdr) &&
	       xdp->data_meta >= xdp->data;
}

static __always_inline enum ip_vs_mhs_lane
xdp_ask(struct ip_vs_mhs_lane_packet *p, struct xdp_buff *xdp, bool quick)
{
	const struct ethhdr *eth = xdp->data;
	enum ip_vs_mhs_lane why;

	if (unlikely(xdp->data_end - xdp->data < ETH_HLEN ||
		     !ether_addr_equal(eth->h_dest, p->in->dev_addr) ||
		     xdp_buff_has_frags(xdp)))
		return MHS_LANE_FRAME;
	p->ip = (const u8 *)(eth + 1);
	p->bytes = xdp->data_end - xdp->data - ETH_HLEN;
	p->protocol = eth->h_proto;
	why = quick ? ip_vs_mhs_lane_ask_quick(p, MHS_LANE_FIT_XDP, true) :
		      ip_vs_mhs_lane_ask(p, MHS_LANE_FIT_XDP);
	if (unlikely(why))
		return why;
	if (unlikely(p->len > p->way.mtu))
		return MHS_LANE_MTU;
	/* A redirect to a device that cannot send would lose every frame */
	if (unlikely((p->way.out != p->in && !p->way.ifindex) ||
		     (p->way.outer && !xdp_has_room(xdp))))
		return MHS_LANE_DEVICE;
	return MHS_LANE_FORWARDED;
}

/* Cut padding off, and put the tunnel's header in front */
static __always_inline void xdp_push(const struct ip_vs_mhs_lane_packet *p,
				     struct xdp_buff *xdp)
{
	bool no_meta = xdp_data_meta_unsupported(xdp);

	xdp->data_end -= p->bytes - p->len;
	xdp->data -= p->way.outer;
	if (no_meta)
		xdp_set_data_meta_invalid(xdp);
	else
		xdp->data_meta = xdp->data;
	ip_vs_mhs_lane_tunnel(p, xdp->data + ETH_HLEN);
}

static __always_inline void xdp_rewrite(const struct ip_vs_mhs_lane_packet *p,
					struct xdp_buff *xdp)
{
	if (p->protocol == htons(ETH_P_IP))
		ip_decrease_ttl((struct iphdr *)p->ip);
	else
		((struct ipv6hdr *)p->ip)->hop_limit--;
	if (p->way.outer)
		xdp_push(p, xdp);
	memcpy(xdp->data, &p->way.eth8, 8);
	memcpy(xdp->data + 8, &p->way.eth4, 4);
	memcpy(xdp->data + 12, &p->way.proto, 2);
}

/* Decide, count and rewrite; the answer of the kfunc, or XDP_LOOK if @quick */
static __always_inline int xdp_lane(struct xdp_buff *xdp, bool quick)
{
	/* set as far as it is read; to clear it would take 10 % of the packet */
	struct ip_vs_mhs_lane_packet p __uninitialized;
	enum ip_vs_mhs_lane why;

	p.in = xdp->rxq->dev;
	p.mn = ip_vs_mhs_net_rcu(dev_net(p.in));
	p.hash = rcu_dereference(p.mn->hash);
	/* Without services no packet is counted */
	if (unlikely(!p.hash))
		return 0;
	why = xdp_ask(&p, xdp, quick);
	if (quick && unlikely(why == MHS_LANE_MAX))
		return XDP_LOOK;
	ip_vs_mhs_lane_count(&p, why);
	if (why)
		return 0;
	xdp_rewrite(&p, xdp);
	return likely(p.way.out == p.in) ? -1 : p.way.ifindex;
}

static noinline int xdp_lane_long(struct xdp_buff *xdp)
{
	return xdp_lane(xdp, false);
}

__bpf_kfunc_start_defs();

/**
 * bpf_ipvs_mhs_lane() - kfunc: where does a frame go?
 * @xdp_ctx: the frame
 *
 * A frame that goes to a server is rewritten and counted as sent: the program must
 * send it.  Pointers to the frame that the program had are to the frame as it was,
 * whose bytes stay in the buffer.
 *
 * Context: an XDP program in native mode.
 * Return: the index of the device to redirect the frame to, -1 if the frame goes
 *	back by the device that received it (XDP_TX), 0 if it goes up to the stack.
 */
__bpf_kfunc int bpf_ipvs_mhs_lane(struct xdp_md *xdp_ctx)
{
	struct xdp_buff *xdp = (struct xdp_buff *)xdp_ctx;
	int where;

	/* Softirqs are disabled, which is a read-side critical section of RCU;
	 * lockdep wants to be told.
	 */
	rcu_lock_acquire(&rcu_lock_map);
	where = xdp_lane(xdp, true);
	if (unlikely(where == XDP_LOOK))
		where = xdp_lane_long(xdp);
	rcu_lock_release(&rcu_lock_map);
	return where;
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(xdp_kfuncs)
BTF_ID_FLAGS(func, bpf_ipvs_mhs_lane)
BTF_KFUNCS_END(xdp_kfuncs)

static const struct btf_kfunc_id_set xdp_kfunc_set = {
	.owner	= THIS_MODULE,
	.set	= &xdp_kfuncs,
};

/**
 * ip_vs_mhs_xdp_register() - offer the kfunc to XDP programs
 *
 * Context: process, at module load; each namespace has struct ip_vs_mhs_net.
 * Return: 0, or a negative error.
 */
int ip_vs_mhs_xdp_register(void)
{
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, &xdp_kfunc_set);
}
#endif
