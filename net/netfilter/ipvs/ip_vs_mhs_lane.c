// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: what few packets in a lane need.  It makes
 * the records of devices and services.  Overview: ip_vs_mhs_lane_ask.h.
 */
#include <linux/if_arp.h>
#include <linux/if_macvlan.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/seq_file.h>
#include <net/addrconf.h>
#include <net/ip6_route.h>
#include <net/l3mdev.h>
#include <net/route.h>
#include <net/rtnetlink.h>

#include "ip_vs_mhs_lane_ask.h"

/* The order is that of enum mhs_lane */
static const char * const lane_names[] = {
	"Forwarded", "Off", "Mark", "Conntrack", "Backup", "Frame", "Service",
	"Address", "Entry", "Decision", "Method", "Route", "Neighbour", "Mtu",
	"Device",
};

/* Why must all packets of the namespace go up?  0 if they need not */
static enum mhs_lane lane_closed(const struct mhs_net *mn)
{
	struct netns_ipvs *ipvs = net_ipvs(mn->net);

	if (!READ_ONCE(mn->lane) || !READ_ONCE(ipvs->enable))
		return MHS_LANE_OFF;
	/* Netfilter sets marks later: a service by mark may own any packet */
	if (READ_ONCE(mn->fwm_services))
		return MHS_LANE_MARK;
	if (mhs_conntrack(ipvs))
		return MHS_LANE_CONNTRACK;
	if (READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP)
		return MHS_LANE_BACKUP;
	return MHS_LANE_FORWARDED;
}

/* Does a macvlan take only frames to its own MAC address?  Passthru takes all
 * frames, source those of some senders.
 */
static bool is_apart(const struct net_device *dev)
{
	const struct macvlan_dev *vlan = netdev_priv(dev);

	return netif_is_macvlan(dev) &&
	       READ_ONCE(vlan->mode) != MACVLAN_MODE_PASSTHRU &&
	       READ_ONCE(vlan->mode) != MACVLAN_MODE_SOURCE;
}

/* ipvlan shares the MAC address, and takes frames to its IP addresses */
static bool is_ipvlan(const struct net_device *dev)
{
	const struct rtnl_link_ops *ops = READ_ONCE(dev->rtnl_link_ops);

	return ops && (!strcmp(ops->kind, "ipvlan") ||
		       !strcmp(ops->kind, "ipvtap"));
}

/* What do devices above leave of the frames to the device's MAC address? */
static u32 in_left(struct net_device *dev)
{
	u32 fit = MHS_LANE_FIT_IPV4 | MHS_LANE_FIT_IPV6, left = 0;
	struct net_device *above;
	struct list_head *iter;

	if (netif_is_l3_slave(dev))
		return 0;
	if (!rcu_access_pointer(dev->rx_handler))
		return fit | MHS_LANE_FIT_ALONE;
	netdev_for_each_upper_dev_rcu(dev, above, iter) {
		if (is_ipvlan(above))
			left = fit;
		else if (is_apart(above))
			left = fit | MHS_LANE_FIT_ALONE;
		else if (!is_vlan_dev(above))
			return 0;	/* a bridge or bond takes all */
	}
	return left;
}

/* dev->xdp_prog is generic XDP, which costs more than the stack.  XDP_TX leaves
 * by a bond's member only if the bond has the program and the kernel asks the
 * bond for the member; without a carrier the stack sends nothing.
 */
static int in_hides(struct net_device *dev, struct netdev_nested_priv *unused)
{
	if (rcu_access_pointer(dev->xdp_prog))
		return true;
	if (netif_is_bond_master(dev))
		return !mhs_has_xdp(dev) ||
		       !mhs_xdp_xmits(dev) || !netif_carrier_ok(dev);
	/* A card that strips VLAN tags hides them from XDP programs */
	return !is_vlan_dev(dev) &&
	       dev->features & (NETIF_F_HW_VLAN_CTAG_RX |
				NETIF_F_HW_VLAN_STAG_RX);
}

/* Does an XDP program see the device's frames as its cards receive them? */
static bool in_fits_xdp(struct net_device *dev)
{
	return dev->type == ARPHRD_ETHER && !in_hides(dev, NULL) &&
	       !netdev_walk_all_lower_dev_rcu(dev, in_hides, NULL);
}

static u32 in_fit(struct net_device *dev)
{
	const struct inet6_dev *in6 = __in6_dev_get(dev);
	u32 fit = in_left(dev);

	if (!(dev->flags & IFF_UP))
		return 0;
	if (!rcu_access_pointer(dev->ip_ptr))
		fit &= ~MHS_LANE_FIT_IPV4;
	if (!in6 || READ_ONCE(in6->cnf.disable_ipv6))
		fit &= ~MHS_LANE_FIT_IPV6;
	if (in_fits_xdp(dev))
		fit |= MHS_LANE_FIT_XDP;
	return fit;
}

/* Set p->fit, and make a record of p->in: 0, or why all its packets go up */
enum mhs_lane mhs_lane_open(struct mhs_lane_packet *p, u32 fit)
{
	struct mhs_lane_in *in = lane_in(p);
	u32 was = READ_ONCE(in->generation);
	enum mhs_lane why;

	/* After the read of p->generation; pairs with mhs_lane_changed() */
	smp_rmb();
	why = lane_closed(p->mn);
	if (why)
		return why;
	p->fit = in_fit(p->in);
	if (mhs_lane_claim(&in->generation, was, p->generation)) {
		WRITE_ONCE(in->dev, p->in);
		WRITE_ONCE(in->fit, p->fit);
		/* Pairs with the acquire in lane_is_open() */
		smp_store_release(&in->generation, p->generation);
	}
	fit &= ~p->fit;
	if (!fit)
		return MHS_LANE_FORWARDED;
	return fit == MHS_LANE_FIT_XDP ? MHS_LANE_DEVICE : MHS_LANE_FRAME;
}

static bool lane_lookup_ipv6(struct net *net, const struct net_device *in,
			     const struct in6_addr *addr)
{
	struct flowi6 fl6 = { .flowi6_iif = in->ifindex, .daddr = *addr };
	const struct rt6_info *rt;
	struct dst_entry *dst;
	bool local;

	/* of one device, and not for packets from outside */
	if (ipv6_addr_type(addr) & (IPV6_ADDR_LINKLOCAL | IPV6_ADDR_LOOPBACK))
		return false;
	dst = ip6_route_lookup(net, &fl6, NULL, 0);
	rt = container_of(dst, struct rt6_info, dst);
	local = !dst->error && rt->rt6i_flags & RTF_LOCAL;
	dst_release(dst);
	return local;
}

static bool lane_has_addr(struct net_device *dev, const struct mhs *mhs)
{
	const struct in_device *in_dev = __in_dev_get_rcu(dev);
	const struct in_ifaddr *ifa;

	if (IS_ENABLED(CONFIG_IP_VS_IPV6) && mhs->af == AF_INET6)
		return ipv6_chk_addr(dev_net(dev), &mhs->addr.in6, dev, 1);
	if (in_dev)
		in_dev_for_each_ifa_rcu(ifa, in_dev)
			if (ifa->ifa_local == mhs->addr.ip)
				return true;
	return false;
}

/* Has an ipvlan device above the one that received the packet the address? */
static bool lane_is_taken(const struct mhs_lane_packet *p)
{
	struct net_device *above;
	struct list_head *iter;

	netdev_for_each_upper_dev_rcu(p->in, above, iter)
		if (is_ipvlan(above) && lane_has_addr(above, p->mhs))
			return true;
	return false;
}

/* Is the virtual address local?  If so, the service gets a record of that. */
bool mhs_lane_is_local(const struct mhs_lane_packet *p)
{
	struct net *net = p->mn->net;
	struct mhs *mhs = p->mhs;

	/* After the read of p->generation; pairs with mhs_lane_changed() */
	smp_rmb();
	if (IS_ENABLED(CONFIG_IP_VS_IPV6) && mhs->af == AF_INET6) {
		if (!lane_lookup_ipv6(net, p->in, &mhs->addr.in6))
			return false;
	} else if (ipv4_is_loopback(mhs->addr.ip) ||
		   inet_addr_type_dev_table(net, p->in, mhs->addr.ip) !=
		   RTN_LOCAL) {
		return false;
	}
	if (!(p->fit & MHS_LANE_FIT_ALONE))
		return !lane_is_taken(p);
	WRITE_ONCE(mhs->local_generation, p->generation);
	return true;
}

static bool lane_has_entry(const struct mhs_lane_packet *p)
{
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	ip_vs_conn_fill_param(p->mhs->ipvs, p->mhs->af, p->transport, p->saddr,
			      p->sport, p->daddr, p->dport, &param);
	cp = ip_vs_conn_in_get(&param);
	if (!cp)
		return false;
	__ip_vs_conn_put(cp);
	return true;
}

/* Where does the packet go?  0: to p->server, else why it goes up */
enum mhs_lane mhs_lane_decide(struct mhs_lane_packet *p)
{
	unsigned int at = lane_head(p->mhs->af == AF_INET6) +
			  sizeof(struct udphdr);
	struct mhs_ask q;

	if (p->transport == IPPROTO_UDP) {
		if (mhs_proto_is_quic(p->dport))
			p->facts = p->len >= at + sizeof(struct mhs_quic) ?
				   mhs_quic_facts(p->ip + at, p->len - at) :
				   MHS_PKT_CONNLESS;
		p->facts |= mhs_proto_udp_facts(p->mhs, p->dport, p->facts);
	}
	mhs_ask_begin(&q, p->mhs, p->saddr, p->sport, p->facts);
	if (p->transport == IPPROTO_UDP && rcu_access_pointer(p->mhs->cid)) {
		p->server = mhs_cid_ask(&q, p->ip + at,
					min_t(u32, p->len,
					      MHS_LANE_HEADER_BYTES) - at);
		p->verdict = mhs_verdict(MHS_FORWARD, MHS_CNT_NAMED, 0);
		if (p->server)
			return MHS_LANE_FORWARDED;
	}
	if (mhs_decide_looks(q.w, q.facts) && lane_has_entry(p))
		return MHS_LANE_ENTRY;
	p->verdict = mhs_ask(&q);
	if (q.facts & MHS_PKT_UNNAMED)
		p->verdict |= MHS_UNNAMED;
	p->server = q.server;
	if (mhs_verdict_act(p->verdict) != MHS_FORWARD ||
	    p->verdict & MHS_CUTS)	/* only the hook cuts slots */
		return MHS_LANE_DECISION;
	return MHS_LANE_FORWARDED;
}

/**
 * mhs_lane_ask() - may a lane forward a packet, and how?
 * @p: the packet
 * @fit: MHS_LANE_FIT_XDP for a program, which wants whole frames; else 0
 *
 * The caller compares the length with p->way.mtu, sees whether the device can
 * send, and calls mhs_lane_count() in any case.
 *
 * Context: softirq, under RCU.
 * Return: MHS_LANE_FORWARDED, which is 0, or why the packet goes up.
 */
enum mhs_lane mhs_lane_ask(struct mhs_lane_packet *p, u32 fit)
{
	return mhs_lane_ask_quick(p, fit, false);
}

/* /proc/net/ip_vs_mhs_lane: what became of the frames that a lane saw */
int mhs_lane_show(struct seq_file *seq, void *v)
{
	struct mhs_net *mn = mhs_net(seq_file_single_net(seq));
	const struct mhs *mhs;
	unsigned long n;
	int cpu, i;

	BUILD_BUG_ON(ARRAY_SIZE(lane_names) != MHS_LANE_MAX);

	mutex_lock(&mn->lock);
	for (i = 0; i < MHS_LANE_MAX; i++) {
		n = 0;
		for_each_possible_cpu(cpu)
			n += mn->lane_stats ?
			     READ_ONCE(per_cpu_ptr(mn->lane_stats, cpu)->n[i]) : 0;
		if (i == MHS_LANE_FORWARDED)
			list_for_each_entry(mhs, &mn->list, net_list)
				n += mhs_svc_counted(mhs, MHS_LANE_COUNTS);
		seq_printf(seq, "%s %lu\n", lane_names[i], n);
	}
	mutex_unlock(&mn->lock);
	return 0;
}
