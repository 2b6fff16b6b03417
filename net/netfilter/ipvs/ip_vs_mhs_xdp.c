// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the lane of XDP programs.
 *
 * An XDP program calls the kfunc bpf_ipvs_mhs_lane(), which decides, and then
 * rewrites and sends the frame itself: lane.bpf.c.  A program that uses the kfunc
 * holds a reference to this module.
 *
 * Programs find the kfunc by the module's BTF.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/bpf.h>
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <net/xdp.h>

#include "ip_vs_mhs_fwd.h"
#include "ip_vs_mhs_lane_ask.h"

#ifdef MHS_HAVE_KFUNCS

/* Does the device show a program the whole frame of Ethernet, before the stack
 * made an skb of it?  A device that strips VLAN tags hides them from programs.
 * in->xdp_prog is a program of generic XDP, which costs more than the stack.
 */
static __always_inline bool xdp_shows_all(const struct net_device *in)
{
	return in->type == ARPHRD_ETHER &&
	       !(in->features & (NETIF_F_HW_VLAN_CTAG_RX |
				 NETIF_F_HW_VLAN_STAG_RX)) &&
	       !rcu_access_pointer(in->xdp_prog);
}

/* Room that bpf_xdp_adjust_head() wants for a tunnel's header */
static bool xdp_has_room(const struct xdp_buff *xdp)
{
	unsigned int room = sizeof(struct xdp_frame) + sizeof(struct ipv6hdr);

	if (!xdp_data_meta_unsupported(xdp))
		room += xdp->data - xdp->data_meta;
	return xdp->data - xdp->data_hard_start >= room;
}

/* Can the device send frames of a lane?  A redirect to a device that cannot
 * would lose every frame.
 */
static bool xdp_can_send(const struct net_device *in,
			 const struct net_device *out)
{
	if (out->type != ARPHRD_ETHER)
		return false;
	return in == out || (out->flags & IFF_UP && ip_vs_mhs_xdp_xmits(out));
}

/* The checksum after the TTL has gone down by one, as in ip_decrease_ttl() */
static __always_inline u16 xdp_check_after_hop(const struct iphdr *ih)
{
	u32 check = (__force u32)ih->check + (__force u32)htons(0x0100);

	return check + (check >= 0xffff);
}

/* Functions that take the packet are inline: its fields stay in registers */
static __always_inline void
xdp_tunnel(const struct ip_vs_mhs_lane_packet *p, struct bpf_ipvs_mhs_fwd *fwd)
{
	BUILD_BUG_ON(sizeof(fwd->head) != sizeof(struct ipv6hdr) ||
		     offsetof(struct bpf_ipvs_mhs_fwd, head) %
		     __alignof__(struct ipv6hdr));

	fwd->trim = p->bytes - p->len;
	if (p->outer == htons(ETH_P_IP)) {
		fwd->outer = sizeof(struct iphdr);
		ip_vs_mhs_lane_tunnel_ipv4(p, (struct iphdr *)fwd->head);
	} else {
		fwd->outer = sizeof(struct ipv6hdr);
		ip_vs_mhs_lane_tunnel_ipv6(p, (struct ipv6hdr *)fwd->head);
	}
}

static __always_inline void xdp_fill(const struct ip_vs_mhs_lane_packet *p,
				     struct bpf_ipvs_mhs_fwd *fwd)
{
	struct net_device *out = p->neigh->dev;
	unsigned int seq;

	fwd->ifindex = out == p->in ? 0 : out->ifindex;
	fwd->outer = 0;
	do {
		seq = read_seqbegin(&p->neigh->ha_lock);
		ether_addr_copy(fwd->eth.h_dest, p->neigh->ha);
	} while (read_seqretry(&p->neigh->ha_lock, seq));
	ether_addr_copy(fwd->eth.h_source, out->dev_addr);
	fwd->eth.h_proto = p->outer ? p->outer : p->protocol;
	if (p->protocol == htons(ETH_P_IP))
		fwd->check = xdp_check_after_hop((const struct iphdr *)p->ip);
	if (likely(!p->outer))
		return;
	xdp_tunnel(p, fwd);
}

static __always_inline enum ip_vs_mhs_lane
xdp_ask(struct ip_vs_mhs_lane_packet *p, struct xdp_buff *xdp)
{
	const struct ethhdr *eth = xdp->data;
	unsigned int bytes = xdp->data_end - xdp->data;
	enum ip_vs_mhs_lane why;

	if (unlikely(bytes < ETH_HLEN ||
		     !ether_addr_equal(eth->h_dest, p->in->dev_addr) ||
		     xdp_buff_has_frags(xdp)))
		return MHS_LANE_FRAME;
	p->ip = (const u8 *)(eth + 1);
	p->bytes = bytes - ETH_HLEN;
	p->protocol = eth->h_proto;
	why = ip_vs_mhs_lane_ask(p);
	if (unlikely(why))
		return why;
	if (unlikely(p->len > p->mtu))
		return MHS_LANE_MTU;
	if (unlikely(!xdp_shows_all(p->in) ||
		     !xdp_can_send(p->in, p->neigh->dev) ||
		     (p->outer && !xdp_has_room(xdp))))
		return MHS_LANE_DEVICE;
	return MHS_LANE_FORWARDED;
}

__bpf_kfunc_start_defs();

/**
 * bpf_ipvs_mhs_lane() - kfunc: where does a frame go?
 * @xdp_ctx: the frame
 * @fwd: set if the frame goes to a server
 * @fwd__sz: the size of @fwd
 *
 * The packet is counted as sent: the program must send it.
 *
 * Context: an XDP program in native mode.
 * Return: 1 if the program is to rewrite and send the frame as @fwd says, 0 if
 *	the frame goes up to the stack, -EINVAL if @fwd has another size.
 */
__bpf_kfunc int bpf_ipvs_mhs_lane(struct xdp_md *xdp_ctx,
				  struct bpf_ipvs_mhs_fwd *fwd, u32 fwd__sz)
{
	struct xdp_buff *xdp = (struct xdp_buff *)xdp_ctx;
	enum ip_vs_mhs_lane why = MHS_LANE_OFF;
	struct ip_vs_mhs_lane_packet p;

	if (fwd__sz != sizeof(*fwd))
		return -EINVAL;
	/* Softirqs are disabled, which is a read-side critical section of RCU;
	 * lockdep wants to be told.
	 */
	rcu_lock_acquire(&rcu_lock_map);
	p.in = xdp->rxq->dev;
	p.mn = ip_vs_mhs_net(dev_net(p.in));
	if (likely(ip_vs_mhs_lane_exists(p.mn))) {
		why = xdp_ask(&p, xdp);
		if (likely(!why))
			xdp_fill(&p, fwd);
	}
	ip_vs_mhs_lane_count(&p, why);
	rcu_lock_release(&rcu_lock_map);
	return !why;
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
