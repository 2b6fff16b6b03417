/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: packets before the IP stack.
 *
 * A lane forwards the packets that the stack would forward without a connection
 * entry, before the stack sees them.  The decision is the same:
 * ip_vs_mhs_ask().  What a lane cannot forward exactly as the stack does "goes
 * up": the stack gets the packet.  So a lane resolves no route and no neighbour,
 * makes no entry and sends no ICMP.
 *
 * The functions are inline: all packets of a device run through them, and a
 * caller of ip_vs_mhs_lane_ask() calls it once.
 *
 * The caller holds RCU until it has used the answer: the core frees dest_dst, the
 * route its device and neighbours, and control the server a grace period after
 * the last packet could find them.
 */
#ifndef _IP_VS_MHS_LANE_ASK_H
#define _IP_VS_MHS_LANE_ASK_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/arp.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/l3mdev.h>
#include <net/ndisc.h>
#include <net/neighbour.h>
#include <net/route.h>

#include "ip_vs_mhs_lane_svc.h"
#include "ip_vs_mhs_proto.h"
#include "ip_vs_mhs_quic.h"

/* Why must all packets of the namespace go up?  0 if they need not */
static __always_inline enum ip_vs_mhs_lane
lane_closed(const struct ip_vs_mhs_net *mn)
{
	struct netns_ipvs *ipvs = net_ipvs(mn->net);
	enum ip_vs_mhs_lane why = ip_vs_mhs_lane_svc_closed(mn);

	if (unlikely(why))
		return why;
	if (ip_vs_mhs_conntrack(ipvs))
		return MHS_LANE_CONNTRACK;
	if (READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP)
		return MHS_LANE_BACKUP;
	return MHS_LANE_FORWARDED;
}

/* Plain IPv4 that ip_rcv() accepts, without options, not a fragment */
static __always_inline bool lane_parse_ipv4(struct ip_vs_mhs_lane_packet *p)
{
	const struct iphdr *ih = (const struct iphdr *)p->ip;

	if (p->bytes < sizeof(*ih) || *p->ip != 0x45 ||
	    ih->frag_off & ~htons(IP_DF) || ih->ttl <= 1)
		return false;
	p->len = ntohs(ih->tot_len);
	if (ip_fast_csum(ih, 5))
		return false;
	p->ttl = ih->ttl;
	p->tos = ih->tos;
	p->df = ih->frag_off;
	p->transport = ih->protocol;
	p->saddr = (const union nf_inet_addr *)&ih->saddr;
	p->daddr = (const union nf_inet_addr *)&ih->daddr;
	return true;
}

/* Plain IPv6 without extension headers */
static __always_inline bool lane_parse_ipv6(struct ip_vs_mhs_lane_packet *p)
{
	const struct ipv6hdr *ih = (const struct ipv6hdr *)p->ip;

	if (p->bytes < sizeof(*ih) || *p->ip >> 4 != 6 || ih->hop_limit <= 1)
		return false;
	p->len = ntohs(ih->payload_len) + sizeof(*ih);
	p->ttl = ih->hop_limit;
	p->tos = ipv6_get_dsfield(ih);
	p->df = 0;
	p->transport = ih->nexthdr;
	p->saddr = (const union nf_inet_addr *)&ih->saddr;
	p->daddr = (const union nf_inet_addr *)&ih->daddr;
	return true;
}

/* TCP, or UDP, which is QUIC or not by the port of the service */
static __always_inline bool
lane_parse_transport(struct ip_vs_mhs_lane_packet *p, unsigned int head)
{
	const struct tcphdr *th = (const struct tcphdr *)(p->ip + head);

	p->facts = 0;
	if (likely(p->transport == IPPROTO_TCP)) {
		if (p->len < head + sizeof(*th))
			return false;
		p->facts = ip_vs_mhs_proto_tcp_facts(th);
	} else if (p->transport != IPPROTO_UDP ||
		   p->len < head + sizeof(struct udphdr)) {
		return false;
	}
	p->sport = th->source;
	p->dport = th->dest;
	/* A client without a port may get no entry; the core gets active FTP */
	return p->sport && p->sport != FTPDATA;
}

static __always_inline bool lane_parse(struct ip_vs_mhs_lane_packet *p, bool v6)
{
	if (!(v6 ? lane_parse_ipv6(p) : lane_parse_ipv4(p)) ||
	    p->len > p->bytes)
		return false;
	/* An XDP program trims only before a tunnel's header: more than padding
	 * would leave with the packet.
	 */
	if (p->len != p->bytes && p->bytes > ETH_ZLEN - ETH_HLEN)
		return false;
	return lane_parse_transport(p, v6 ? sizeof(struct ipv6hdr) :
					    sizeof(struct iphdr));
}

/* Sources for which the stack drops a packet without asking its routes */
static __always_inline bool lane_is_source(const union nf_inet_addr *addr,
					   bool v6)
{
	if (v6)
		return (addr->ip6[0] | addr->ip6[1]) &&
		       !ipv6_addr_is_multicast(&addr->in6);
	return !ipv4_is_multicast(addr->ip) && !ipv4_is_lbcast(addr->ip) &&
	       !ipv4_is_loopback(addr->ip) && !ipv4_is_zeronet(addr->ip);
}

/* Is the virtual address local?  Without the address (VRRP backup, say) the
 * stack would route the packet.  A change of the namespace's routes changes the
 * generation, and so does time, for the few changes that do not.
 */
static __always_inline bool lane_is_local(struct ip_vs_mhs *mhs,
					  const struct net_device *in, bool v6)
{
	u32 generation = get_jiffies_64() / 256;

	if (!v6)
		generation += rt_genid_ipv4(mhs->net->net);
#if IS_ENABLED(CONFIG_IP_VS_IPV6)
	else
		generation += rt_genid_ipv6(mhs->net->net);
#endif
	return likely(READ_ONCE(mhs->local_generation) == generation) ||
	       ip_vs_mhs_lane_is_local(mhs, in, generation);
}

static __always_inline u32 lane_udp_facts(const struct ip_vs_mhs_lane_packet *p,
					  unsigned int head)
{
	head += sizeof(struct udphdr);
	if (ip_vs_mhs_proto_is_plain(p->mhs, p->dport))
		return MHS_PKT_CONNLESS;
	if (p->len < head + sizeof(struct ip_vs_mhs_quic))
		return 0;
	return ip_vs_mhs_quic_facts((const struct ip_vs_mhs_quic *)(p->ip +
								    head));
}

/* Ask where the packet goes */
static __always_inline enum ip_vs_mhs_lane
lane_decide(struct ip_vs_mhs_lane_packet *p, bool v6)
{
	struct ip_vs_mhs_ask q;

	if (unlikely(p->transport == IPPROTO_UDP))
		p->facts |= lane_udp_facts(p, v6 ? sizeof(struct ipv6hdr) :
						   sizeof(struct iphdr));
	ip_vs_mhs_ask_begin(&q, p->mhs, p->saddr, p->sport, p->facts);
	if (unlikely(ip_vs_mhs_decide_looks(q.w, q.facts)) &&
	    ip_vs_mhs_lane_has_entry(p->mhs, p->transport, p->saddr, p->sport,
				     p->daddr, p->dport))
		return MHS_LANE_ENTRY;
	p->verdict = ip_vs_mhs_ask(&q);
	p->server = q.server;
	if (ip_vs_mhs_verdict_act(p->verdict) != MHS_FORWARD ||
	    p->verdict & MHS_LANE_HOOK_ONLY)
		return MHS_LANE_DECISION;
	return MHS_LANE_FORWARDED;
}

/* How does the server get packets?  A lane knows plain packets and tunnels of IP
 * in IP.
 */
static __always_inline bool lane_method(struct ip_vs_mhs_lane_packet *p,
					const struct ip_vs_dest *dest)
{
	u32 flags = READ_ONCE(p->carrier->flags);

	p->outer = 0;
	flags &= IP_VS_CONN_F_FWD_MASK | IP_VS_CONN_F_NFCT;
	if (likely(flags == IP_VS_CONN_F_DROUTE))
		return true;
	if (flags != IP_VS_CONN_F_TUNNEL ||
	    READ_ONCE(dest->tun_type) != IP_VS_CONN_F_TUNNEL_TYPE_IPIP)
		return false;
	/* Without path MTU discovery the tunnel fragments, too.  The core reads
	 * without READ_ONCE; any value the sysctl had will do.
	 */
	if (!data_race(sysctl_pmtu_disc(p->mhs->ipvs)))
		return false;
	p->outer = dest->af == AF_INET6 ? htons(ETH_P_IPV6) : htons(ETH_P_IP);
	return true;
}

static __always_inline struct neighbour *
lane_next_hop_ipv4(const struct dst_entry *dst, const struct ip_vs_dest *dest)
{
	const struct rtable *rt = container_of(dst, struct rtable, dst);
	__be32 hop = rt->rt_gw_family ? rt->rt_gw4 : dest->addr.ip;

	if (rt->rt_type != RTN_UNICAST || rt->rt_gw_family == AF_INET6)
		return NULL;
	return __ipv4_neigh_lookup_noref(READ_ONCE(dst->dev),
					 (__force u32)hop);
}

static __always_inline struct neighbour *
lane_next_hop_ipv6(const struct dst_entry *dst, const struct ip_vs_dest *dest)
{
#if IS_ENABLED(CONFIG_IP_VS_IPV6)
	const struct rt6_info *rt = container_of(dst, struct rt6_info, dst);

	if (rt->rt6i_flags & (RTF_LOCAL | RTF_ANYCAST | RTF_REJECT))
		return NULL;
	return __ipv6_neigh_lookup_noref(READ_ONCE(dst->dev),
					 rt6_nexthop(rt, &dest->addr.in6));
#else
	return NULL;
#endif
}

static __always_inline bool lane_is_plain(const struct dst_entry *dst)
{
#ifdef CONFIG_XFRM
	if (dst->xfrm)
		return false;
#endif
	return !dst->lwtstate && !dst->error;
}

/* The longest packet for the path.  Every path takes packets of the length that
 * the protocol guarantees, so dst_mtu() is for longer ones.
 */
static __always_inline u32 lane_mtu(const struct ip_vs_mhs_lane_packet *p,
				    const struct dst_entry *dst, bool v6)
{
	u32 mtu;

	if (!p->outer) {
		mtu = v6 ? IPV6_MIN_MTU : IPV4_MIN_MTU;
		return p->len <= mtu ? mtu : dst_mtu(dst);
	}
	mtu = dst_mtu(dst);
	/* With less than the minimum for the packet the core drops it */
	if (p->outer == htons(ETH_P_IP))
		return mtu < IPV4_MIN_MTU + sizeof(struct iphdr) ?
		       0 : mtu - sizeof(struct iphdr);
	return mtu < IPV6_MIN_MTU + sizeof(struct ipv6hdr) ?
	       0 : mtu - sizeof(struct ipv6hdr);
}

/* The route that the core has cached for the server, and the next hop.  The
 * stack uses the address of a neighbour while it probes whether the neighbour is
 * alive; a packet to a stale one starts the probe, so the packet goes up.
 */
static __always_inline enum ip_vs_mhs_lane
lane_route(struct ip_vs_mhs_lane_packet *p, struct ip_vs_dest *dest, bool v6)
{
	struct dst_entry *dst;

	p->route = rcu_dereference(dest->dest_dst);
	if (unlikely(!p->route))
		return MHS_LANE_ROUTE;
	dst = p->route->dst_cache;
	if (unlikely(!dst_check(dst, p->route->dst_cookie) ||
		     !lane_is_plain(dst)))
		return MHS_LANE_ROUTE;
	p->neigh = dest->af == AF_INET6 ? lane_next_hop_ipv6(dst, dest) :
					  lane_next_hop_ipv4(dst, dest);
	if (unlikely(!p->neigh || !(READ_ONCE(p->neigh->nud_state) &
				    (NUD_CONNECTED | NUD_DELAY | NUD_PROBE))))
		return MHS_LANE_NEIGHBOUR;
	p->mtu = lane_mtu(p, dst, v6);
	return MHS_LANE_FORWARDED;
}

static __always_inline enum ip_vs_mhs_lane
lane_ask(struct ip_vs_mhs_lane_packet *p, bool v6)
{
	enum ip_vs_mhs_lane why;
	struct ip_vs_dest *dest;

	if (unlikely(!lane_parse(p, v6)))
		return MHS_LANE_FRAME;
	p->mhs = ip_vs_mhs_lane_service(p, v6 ? AF_INET6 : AF_INET);
	/* Pairs with the release in ctl_add_dest(): whoever sees mhs->svc sees
	 * MHS_SETTLING.
	 */
	if (!p->mhs || !smp_load_acquire(&p->mhs->svc))
		return MHS_LANE_SERVICE;
	if (unlikely(ip_vs_addr_equal(v6 ? AF_INET6 : AF_INET, p->saddr,
				      p->daddr) ||
		     !lane_is_source(p->saddr, v6) ||
		     !lane_is_local(p->mhs, p->in, v6)))
		return MHS_LANE_ADDRESS;
	why = lane_decide(p, v6);
	if (unlikely(why))
		return why;
	dest = p->server->dest;
	ip_vs_mhs_lane_carrier(p);
	if (unlikely(!lane_method(p, dest)))
		return MHS_LANE_METHOD;
	return lane_route(p, dest, v6);
}

/* Does the device receive IP for itself?  A bridge, bond or VRF takes over what
 * its members receive.
 */
static __always_inline bool lane_receives(const struct net_device *in, bool v6)
{
	if (rcu_access_pointer(in->rx_handler) || netif_is_l3_slave(in))
		return false;
#if IS_ENABLED(CONFIG_IP_VS_IPV6)
	if (v6) {
		const struct inet6_dev *idev = __in6_dev_get(in);

		return idev && !READ_ONCE(idev->cnf.disable_ipv6);
	}
#endif
	return !v6 && rcu_access_pointer(in->ip_ptr);
}

/* The protocol that a tunnel's header names */
static inline u8
ip_vs_mhs_lane_inner(const struct ip_vs_mhs_lane_packet *p)
{
	return p->protocol == htons(ETH_P_IPV6) ? IPPROTO_IPV6 : IPPROTO_IPIP;
}

/* The header of a tunnel over IPv4.  As in the core the header has the packet's
 * DF, and without DF an identification; the congestion mark of the packet stays.
 */
static inline void
ip_vs_mhs_lane_tunnel_ipv4(const struct ip_vs_mhs_lane_packet *p,
			   struct iphdr *ih)
{
	*ih = (struct iphdr){
		.version	= 4,
		.ihl		= 5,
		.tos		= INET_ECN_encapsulate(p->tos, p->tos),
		.tot_len	= htons(p->len + sizeof(*ih)),
		.frag_off	= p->df,
		.ttl		= p->ttl - 1,
		.protocol	= ip_vs_mhs_lane_inner(p),
		.saddr		= p->route->dst_saddr.ip,
		.daddr		= p->server->dest->addr.ip,
	};
	if (!p->df)
		__ip_select_ident(p->mn->net, ih, 1);
	ih->check = ip_fast_csum(ih, 5);
}

static inline void
ip_vs_mhs_lane_tunnel_ipv6(const struct ip_vs_mhs_lane_packet *p,
			   struct ipv6hdr *ih)
{
	*ih = (struct ipv6hdr){
		.payload_len	= htons(p->len),
		.nexthdr	= ip_vs_mhs_lane_inner(p),
		.hop_limit	= p->ttl - 1,
		.saddr		= p->route->dst_saddr.in6,
		.daddr		= p->server->dest->addr.in6,
	};
	ip6_flow_hdr(ih, INET_ECN_encapsulate(p->tos, p->tos), 0);
}

/**
 * ip_vs_mhs_lane_ask() - may a lane forward a packet, and how?
 * @p: the packet
 *
 * The caller compares the length with p->mtu, sees whether the device of
 * p->neigh can send, and calls ip_vs_mhs_lane_count() in any case.
 *
 * Context: softirq, under RCU.
 * Return: MHS_LANE_FORWARDED, which is 0, or why the packet goes up.
 */
static __always_inline enum ip_vs_mhs_lane
ip_vs_mhs_lane_ask(struct ip_vs_mhs_lane_packet *p)
{
	enum ip_vs_mhs_lane why = lane_closed(p->mn);

	if (unlikely(why))
		return why;
	if (likely(p->protocol == htons(ETH_P_IP)))
		return lane_receives(p->in, false) ? lane_ask(p, false) :
						     MHS_LANE_FRAME;
	if (p->protocol == htons(ETH_P_IPV6) && lane_receives(p->in, true))
		return lane_ask(p, true);
	return MHS_LANE_FRAME;
}

#endif /* _IP_VS_MHS_LANE_ASK_H */
