// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler, its lane: makes the records of devices, services
 * and ways to servers, which are what the stack would find out for each packet.
 * Few packets run this code.  Overview: ip_vs_mhs_lane.h.
 */
#include <linux/if_arp.h>
#include <linux/if_macvlan.h>
#include <linux/if_vlan.h>
#include <net/addrconf.h>
#include <net/arp.h>
#include <net/ip6_route.h>
#include <net/ndisc.h>
#include <net/neighbour.h>
#include <net/route.h>

#include "ip_vs_mhs_lane_ask.h"

/* Of the scheduler; who has found a service sees it, see mhs_lane_xdp_net_id */
enum mhs_lane_why (*mhs_lane_record_decide)(struct mhs_lane_packet *p) __read_mostly;

/* Why must all packets of the namespace go up?  0 if they need not */
static enum mhs_lane_why lane_closed(const struct mhs_net *mn)
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
	return MHS_LANE_NO_REASON;
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

/* Do devices above leave it the frames to its MAC address?  A bridge or bond takes
 * all, an ipvlan those to its IP addresses.
 */
static bool in_is_left(struct net_device *dev)
{
	bool left = !rcu_access_pointer(dev->rx_handler);
	struct net_device *above;
	struct list_head *iter;

	if (netif_is_l3_slave(dev))
		return false;
	if (left)
		return true;
	netdev_for_each_upper_dev_rcu(dev, above, iter) {
		if (is_apart(above))
			left = true;
		else if (!is_vlan_dev(above))
			return false;
	}
	return left;
}

/* Does no XDP program see the device's frames as its cards receive them?
 * dev->xdp_prog is generic XDP, which costs more than the stack.  XDP_TX leaves
 * by a bond's member only if the bond has the program and the kernel asks the
 * bond for the member; without a link the stack sends nothing.
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

static u32 in_fit(struct net_device *dev)
{
	const struct inet6_dev *in6 = __in6_dev_get(dev);
	u32 fit = 0;

	if (!(dev->flags & IFF_UP) || !in_is_left(dev))
		return 0;
	if (rcu_access_pointer(dev->ip_ptr))
		fit |= MHS_LANE_FIT_IPV4;
	if (in6 && !READ_ONCE(in6->cnf.disable_ipv6))
		fit |= MHS_LANE_FIT_IPV6;
	if (dev->type == ARPHRD_ETHER && !in_hides(dev, NULL) &&
	    !netdev_walk_all_lower_dev_rcu(dev, in_hides, NULL))
		fit |= MHS_LANE_FIT_XDP;
	return fit;
}

/* Make a record of p->in: 0, or why all its packets go up */
enum mhs_lane_why mhs_lane_record_in(struct mhs_lane_packet *p, u32 fit)
{
	atomic64_t *in = mhs_lane_in(p);
	enum mhs_lane_why why;
	u32 has, need;

	/* After the read of p->generation; pairs with mhs_lane_changed() */
	smp_rmb();
	why = lane_closed(p->mn);
	if (why)
		return why;
	has = in_fit(p->in);
	for (need = 0; need < ARRAY_SIZE(p->lane_net->in[0]); need++)
		atomic64_set(&in[need],
			     (has & need) == need ? mhs_lane_in_key(p) : 0);
	fit &= ~has;
	if (!fit)
		return MHS_LANE_NO_REASON;
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

/* Make a record of the service: 0 if its address is local, else why packets go up */
enum mhs_lane_why mhs_lane_record_local(const struct mhs_lane_packet *p)
{
	struct net *net = p->mn->net;
	struct mhs *mhs = p->mhs;

	/* After the read of p->generation; pairs with mhs_lane_changed() */
	smp_rmb();
	if (IS_ENABLED(CONFIG_IP_VS_IPV6) && mhs->af == AF_INET6) {
		if (!lane_lookup_ipv6(net, p->in, &mhs->addr.in6))
			return MHS_LANE_ADDRESS;
	} else if (ipv4_is_loopback(mhs->addr.ip) ||
		   inet_addr_type_dev_table(net, p->in, mhs->addr.ip) !=
		   RTN_LOCAL) {
		return MHS_LANE_ADDRESS;
	}
	WRITE_ONCE(mhs->local_generation, p->generation);
	return MHS_LANE_NO_REASON;
}

/* Is the server reached without a tunnel, or by IP in IP? */
static bool way_method(struct mhs_lane_way *way, const struct mhs *mhs,
		       const struct ip_vs_dest *dest,
		       const struct ip_vs_conn *carrier)
{
	u32 flags = READ_ONCE(carrier->flags) &
		    (IP_VS_CONN_F_FWD_MASK | IP_VS_CONN_F_NFCT);

	if (flags == IP_VS_CONN_F_DROUTE)
		return true;
	if (flags != IP_VS_CONN_F_TUNNEL ||
	    READ_ONCE(dest->tun_type) != IP_VS_CONN_F_TUNNEL_TYPE_IPIP)
		return false;
	/* Without path MTU discovery the tunnel fragments, too */
	if (!data_race(sysctl_pmtu_disc(mhs->ipvs)))
		return false;
	way->tunnel_hlen = dest->af == AF_INET6 ? sizeof(struct ipv6hdr) :
						  sizeof(struct iphdr);
	return true;
}

static struct neighbour *way_next_hop(const struct dst_entry *dst,
				      const struct ip_vs_dest *dest)
{
	const struct rt6_info *rt6 = container_of(dst, struct rt6_info, dst);
	const struct rtable *rt = container_of(dst, struct rtable, dst);
	struct net_device *dev = READ_ONCE(dst->dev);
	__be32 hop = dest->addr.ip;

	if (IS_ENABLED(CONFIG_IP_VS_IPV6) && dest->af == AF_INET6) {
		if (rt6->rt6i_flags & (RTF_LOCAL | RTF_ANYCAST | RTF_REJECT))
			return NULL;
		return __ipv6_neigh_lookup_noref(dev, rt6_nexthop(rt6, &dest->addr.in6));
	}
	if (rt->rt_type != RTN_UNICAST || rt->rt_gw_family == AF_INET6)
		return NULL;
	if (rt->rt_gw_family)
		hop = rt->rt_gw4;
	return __ipv4_neigh_lookup_noref(dev, (__force u32)hop);
}

/* The longest packet; 0 if the tunnel leaves less than the core accepts */
static u16 way_mtu(const struct mhs_lane_way *way,
		   const struct dst_entry *dst, const struct ip_vs_dest *dest)
{
	u32 least = dest->af == AF_INET6 ? IPV6_MIN_MTU : IPV4_MIN_MTU;
	u32 mtu = dst_mtu(dst);

	if (way->tunnel_hlen && mtu < least + way->tunnel_hlen)
		return 0;
	return min_t(u32, mtu - way->tunnel_hlen, U16_MAX);
}

/* Make the Ethernet header.  The stack, too, uses the address of a neighbour
 * that it probes; a packet to a stale one goes up, to start the probe.
 */
static bool way_eth(struct mhs_lane_way *way, __be16 ethertype)
{
	u8 *eth = (u8 *)way + offsetof(struct mhs_lane_way, eth8);
	struct neighbour *neigh = way->neigh;
	char to[MAX_ADDR_LEN];	/* the device may have made it longer */

	/* A neighbour may have died before the generation was read */
	if (READ_ONCE(neigh->dead) || !(READ_ONCE(neigh->nud_state) &
					(NUD_CONNECTED | NUD_DELAY | NUD_PROBE)))
		return false;
	neigh_ha_snapshot(to, neigh, neigh->dev);
	memcpy(eth, to, ETH_ALEN);
	memcpy(eth + ETH_ALEN, neigh->dev->dev_addr, ETH_ALEN);
	way->proto = way->tunnel_hlen == sizeof(struct iphdr) ? htons(ETH_P_IP) :
		     way->tunnel_hlen ? htons(ETH_P_IPV6) : ethertype;
	return true;
}

/* The tag of a VLAN, if one tag is all, and no priority of packets in it */
static __be16 way_tci(const struct net_device *dev)
{
#if IS_ENABLED(CONFIG_VLAN_8021Q)
	const struct vlan_dev_priv *vlan;

	if (!is_vlan_dev(dev))
		return 0;
	vlan = vlan_dev_priv(dev);
	if (vlan->vlan_proto == htons(ETH_P_8021Q) &&
	    !READ_ONCE(vlan->nr_egress_mappings) && !is_vlan_dev(vlan->real_dev))
		return htons(vlan->vlan_id);
#endif
	return 0;
}

/* Make p->way the record of the server, which had the key @was before its facts were
 * read; leave it to others who do so
 */
static void way_write(struct mhs_lane_packet *p, s64 was, s64 key)
{
	struct mhs_lane_record *r = &p->server->record;

	if (was == key || was == MHS_LANE_WRITING ||
	    !atomic64_try_cmpxchg(&r->key, &was, MHS_LANE_WRITING))
		return;
	/* After that: who is late would bring back a key that came before, and
	 * a reader in between would take words of several records for those of one
	 */
	p->generation = mhs_lane_generation(p->mn);
	if ((u32)key == mhs_lane_generation_of(p, (u64)key >> 32)) {
		/* No reader sees new words with the old key; pairs with the
		 * second read of the key in lane_way()
		 */
		smp_wmb();
		lane_copy(r->way, p->way);
		lane_copy(r->ends, p->ends);
		was = key;
	}
	/* Pairs with the acquire in lane_way() */
	atomic64_set_release(&r->key, was);
}

/**
 * mhs_lane_record_way() - make a record of the way by the core's cached route
 * @p: the packet; the function sets p->way and p->ends
 *
 * Return: 0, or why the packet goes up.
 */
enum mhs_lane_why mhs_lane_record_way(struct mhs_lane_packet *p)
{
	struct mhs_lane_record *r = &p->server->record;
	s64 was = atomic64_read(&r->key), key;
	struct ip_vs_dest *dest = p->server->dest;
	struct mhs_lane_way *way = &p->way;
	const struct ip_vs_dest_dst *route;
	const struct ip_vs_conn *carrier;
	struct dst_entry *dst;
	u32 hop, half;

	/* After the read of p->generation; pairs with mhs_lane_changed() */
	smp_rmb();
	*way = (struct mhs_lane_way){};
	/* None until the work has memory for it; lane_decide() does not ask */
	carrier = rcu_dereference(p->server->carrier);
	if (!carrier)
		return MHS_LANE_DECISION;
	if (!way_method(way, p->mhs, dest, carrier))
		return MHS_LANE_METHOD;
	route = rcu_dereference(dest->dest_dst);
	if (!route)
		return MHS_LANE_ROUTE;
	dst = route->dst_cache;
	if (!dst_check(dst, route->dst_cookie) || dst_xfrm(dst) ||
	    dst->lwtstate || dst->error)
		return MHS_LANE_ROUTE;
	way->neigh = way_next_hop(dst, dest);
	if (!way->neigh)
		return MHS_LANE_NEIGHBOUR;
	hop = hash_ptr(way->neigh, MHS_LANE_HOP_BITS);
	key = (u64)hop << 32 | mhs_lane_generation_of(p, hop);
	/* Pairs with the barrier in mhs_lane_changed() */
	smp_rmb();
	way->out = way->neigh->dev;
	/* Devices of other types may need the route of a packet */
	if (way->out->type != ARPHRD_ETHER || !(way->out->flags & IFF_UP))
		return MHS_LANE_DEVICE;
	if (!way_eth(way, p->ethertype))
		return MHS_LANE_NEIGHBOUR;
	way->tci = way_tci(way->out);
	if (mhs_xdp_xmits(way->out))
		way->ifindex = way->out->ifindex;
	way->mtu = way_mtu(way, dst, dest);
	half = way->tunnel_hlen == sizeof(struct iphdr) ? sizeof(struct in_addr) :
							  sizeof(struct in6_addr);
	memcpy(&p->ends, &route->dst_saddr, half);
	memcpy((u8 *)&p->ends + half, &dest->addr, half);
	way_write(p, was, key);
	return MHS_LANE_NO_REASON;
}

/* As mhs_lane_ask(), for all packets */
enum mhs_lane_why mhs_lane_record_ask(struct mhs_lane_packet *p, u32 fit)
{
	return mhs_lane_ask(p, fit, false);
}
