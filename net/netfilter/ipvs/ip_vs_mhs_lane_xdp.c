// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler, its lane: of XDP programs.
 *
 * An XDP program calls the kfunc bpf_ipvs_mhs_lane(), which decides and rewrites the
 * frame: in the program that would take some 100 instructions more.  A program that
 * uses the kfunc holds a reference to this module.
 */
#include <linux/bpf.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <net/bonding.h>
#include <net/xdp.h>

#include "ip_vs_mhs_lane_ask.h"

unsigned int mhs_lane_xdp_net_id __read_mostly;

#ifdef MHS_HAVE_KFUNCS

static int xdp_lane_full(struct xdp_buff *xdp);

/* The bond of a member; NULL if the stack drops what the member receives.  Who
 * sees the handler has its data and the bond until the end of the RCU section.
 */
static noinline struct net_device *xdp_bond(const struct net_device *member)
{
	struct slave *slave;

	if (!rcu_access_pointer(member->rx_handler))
		return NULL;
	slave = rcu_dereference(member->rx_handler_data);
	return slave && !bond_is_slave_inactive(slave) ? slave->bond->dev : NULL;
}

/* A tag is that of a VLAN of the card or, as in the stack, of its bond */
static bool xdp_untag(struct mhs_lane_packet *p, struct net_device *card,
		      struct net_device *link)
{
	const struct vlan_hdr *tag = p->ip;
	struct net_device *vlan;
	u16 vid;

	if (p->bytes < VLAN_HLEN)
		return false;
	vid = ntohs(tag->h_vlan_TCI) & VLAN_VID_MASK;
	vlan = __vlan_find_dev_deep_rcu(card, p->ethertype, vid) ?:
	       __vlan_find_dev_deep_rcu(link, p->ethertype, vid);
	/* The first look climbs to a bridge, too, which may block its port */
	if (!vlan || !net_eq(dev_net(vlan), p->mn->net) ||
	    (vlan_dev_real_dev(vlan) != card &&
	     vlan_dev_real_dev(vlan) != link))
		return false;
	p->in = vlan;
	p->eth_hlen += VLAN_HLEN;
	p->ip += VLAN_HLEN;
	p->bytes -= VLAN_HLEN;
	p->ethertype = tag->h_vlan_encapsulated_proto;
	return true;
}

/* XDP sends by cards and bonds: by what is below a VLAN */
static void xdp_link(struct mhs_lane_packet *p, struct net_device *link)
{
	struct mhs_lane_way *way = &p->way;

	p->in = link;
	if (!way->tci)
		return;
	way->out = vlan_dev_real_dev(way->out);
	/* The program knows devices of its namespace */
	if (net_eq(dev_net(way->out), p->mn->net) &&
	    way->out->flags & IFF_UP && mhs_xdp_xmits(way->out))
		way->ifindex = way->out->ifindex;
}

/* Bytes of the Ethernet header that the frame gets */
static __always_inline unsigned int
xdp_eth_hlen_out(const struct mhs_lane_packet *p)
{
	return ETH_HLEN + (p->way.tci ? VLAN_HLEN : 0);
}

/* How many bytes longer the headers become */
static __always_inline int xdp_growth(const struct mhs_lane_packet *p)
{
	return p->way.tunnel_hlen + xdp_eth_hlen_out(p) - p->eth_hlen;
}

static __always_inline enum mhs_lane_why
xdp_ask(struct mhs_lane_packet *p, struct xdp_buff *xdp, bool records_only)
{
	struct net_device *card = xdp->rxq->dev, *link = card;
	const struct ethhdr *eth = xdp->data;
	enum mhs_lane_why why;

	if (unlikely(xdp->data_end - xdp->data < ETH_HLEN ||
		     !ether_addr_equal_64bits(xdp->data, p->in->dev_addr) ||
		     xdp_buff_has_frags(xdp)))
		return MHS_LANE_FRAME;
	if (unlikely(netif_is_bond_slave(card))) {
		link = xdp_bond(card);
		if (!link)
			return MHS_LANE_FRAME;
		p->in = link;
	}
	p->eth_hlen = ETH_HLEN;
	p->ip = eth + 1;
	p->bytes = xdp->data_end - xdp->data - ETH_HLEN;
	p->ethertype = eth->h_proto;
	if (!records_only && p->ethertype == htons(ETH_P_8021Q) &&
	    !xdp_untag(p, card, link))
		return MHS_LANE_FRAME;
	why = records_only ? mhs_lane_ask(p, MHS_LANE_FIT_XDP, true) :
			     mhs_lane_record_ask(p, MHS_LANE_FIT_XDP);
	if (unlikely(why))
		return why;
	if (unlikely(p->len > p->way.mtu))
		return MHS_LANE_MTU;
	/* Of these a packet comes and goes without a tag */
	if (records_only)
		p->way.tci = 0;
	else
		xdp_link(p, link);
	/* the kfunc's answer */
	if (likely(p->way.out == p->in))
		p->way.ifindex = -1;
	/* A redirect to a device that cannot send would lose every frame */
	if (unlikely(!p->way.ifindex))
		return records_only ? MHS_LANE_UNTOLD : MHS_LANE_DEVICE;
	/* Metadata of another program before the frame would not move along */
	if (unlikely(xdp_growth(p) &&
		     (xdp->data_meta < xdp->data ||
		      xdp->data - xdp->data_hard_start < sizeof(struct xdp_frame) +
		      sizeof(struct ipv6hdr) + VLAN_HLEN)))
		return MHS_LANE_DEVICE;
	return MHS_LANE_NO_REASON;
}

/* Move the start of the frame, trim padding, and write the tunnel's header */
static __always_inline void xdp_push(const struct mhs_lane_packet *p,
				     struct xdp_buff *xdp, int growth)
{
	int lacks;

	xdp->data -= growth;
	/* one byte behind data where the driver has none */
	xdp->data_meta -= growth;
	/* A card may lose a frame that is too short without its tag.  veth,
	 * whose frames may end where their room does, loses none.
	 */
	lacks = ETH_ZLEN - (int)(xdp->data_end - xdp->data);
	if (growth < 0 && lacks > 0 &&
	    xdp->data_end + lacks <= xdp_data_hard_end(xdp)) {
		memset(xdp->data_end, 0, lacks);
		xdp->data_end += lacks;
	}
	if (!p->way.tunnel_hlen)
		return;
	xdp->data_end -= p->bytes - p->len;
	mhs_lane_tunnel(p, xdp->data + xdp_eth_hlen_out(p));
}

static __always_inline void xdp_rewrite(const struct mhs_lane_packet *p,
					struct xdp_buff *xdp)
{
	const __be16 tag[] = { htons(ETH_P_8021Q), p->way.tci };
	u8 *to = xdp->data, *ip = to + p->eth_hlen;
	int growth = xdp_growth(p);

	if (p->ethertype == htons(ETH_P_IP))
		ip_decrease_ttl((struct iphdr *)ip);
	else
		((struct ipv6hdr *)ip)->hop_limit--;
	if (growth) {
		xdp_push(p, xdp, growth);
		to = xdp->data;
	}
	memcpy(to, &p->way.eth8, 8);
	memcpy(to + 8, &p->way.eth4, 4);
	if (tag[1])
		memcpy(to + 12, tag, VLAN_HLEN);
	memcpy(to + xdp_eth_hlen_out(p) - 2, &p->way.proto, 2);
}

/* The whole kfunc; with @records_only where records tell, else xdp_lane_full() */
static __always_inline int xdp_lane(struct xdp_buff *xdp, bool records_only)
{
	/* Pairs with the release in main_attach() */
	unsigned int id = smp_load_acquire(&mhs_lane_xdp_net_id);
	/* what is read is set; to clear all would take 10 % of the packet */
	struct mhs_lane_packet p __uninitialized;
	enum mhs_lane_why why;

	if (unlikely(!id))
		return 0;
	p.in = xdp->rxq->dev;
	/* net_generic() would enter another section of RCU */
	p.mn = rcu_dereference(dev_net(p.in)->gen)->ptr[id];
	p.lane_net = rcu_dereference(p.mn->lane_net);
	if (unlikely(!p.lane_net))
		return 0;
	why = xdp_ask(&p, xdp, records_only);
	if (records_only && unlikely(why == MHS_LANE_UNTOLD))
		return xdp_lane_full(xdp);
	if (likely(!why))
		xdp_rewrite(&p, xdp);
	/* Last: before, the way stays in registers */
	mhs_lane_count(&p, why);
	return likely(!why) ? p.way.ifindex : 0;
}

static noinline int xdp_lane_full(struct xdp_buff *xdp)
{
	return xdp_lane(xdp, false);
}

__bpf_kfunc_start_defs();

/**
 * bpf_ipvs_mhs_lane() - kfunc: where does a frame go?
 * @xdp_ctx: the frame
 *
 * A frame that goes to a server is rewritten and counted as sent: the program
 * must send it.  The program's pointers stay within the buffer, but do not
 * follow the frame.
 *
 * Context: an XDP program in native mode.
 * Return: the index of the device to redirect the frame to, -1 if the program
 *	must return XDP_TX and nothing else (a bond's program runs on its
 *	members, where xdp_master_redirect() then sends by the member that
 *	the bond chooses), 0 if it goes up to the stack.
 */
__bpf_kfunc int bpf_ipvs_mhs_lane(struct xdp_md *xdp_ctx)
{
	struct xdp_buff *xdp = (struct xdp_buff *)xdp_ctx;
	int where;

	/* Disabled softirqs are a section of RCU, but lockdep must be told */
	rcu_lock_acquire(&rcu_lock_map);
	where = xdp_lane(xdp, true);
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

#endif

/* Offer the kfunc to XDP programs: 0, or an error */
int mhs_lane_xdp_register(void)
{
#ifdef MHS_HAVE_KFUNCS
	/* A module without BTF has nothing to offer */
	if (!mhs_has_btf(THIS_MODULE))
		return -ENOENT;
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, &xdp_kfunc_set);
#endif
	return -EOPNOTSUPP;
}
