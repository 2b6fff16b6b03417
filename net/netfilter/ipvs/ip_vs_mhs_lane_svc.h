/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: services and servers for a lane.
 *
 * Services come from the module's own table, servers get packets as their
 * carriers say, and counters of the namespace say why packets go up.
 */
#ifndef _IP_VS_MHS_LANE_SVC_H
#define _IP_VS_MHS_LANE_SVC_H

#include "ip_vs_mhs_lane.h"
#include "ip_vs_mhs_pkt.h"

/* Bytes from the network header on that a lane reads: 40 of IPv6, 20 of TCP */
#define MHS_LANE_HEADER_BYTES	60

/* What only the hook does for a packet: cut slots */
#define MHS_LANE_HOOK_ONLY	MHS_CUTS

/* Has the namespace services?  Without, no packet is counted. */
static __always_inline bool
ip_vs_mhs_lane_exists(const struct ip_vs_mhs_net *mn)
{
	return rcu_access_pointer(mn->hash);
}

/* Has the namespace no lane, or may a service by firewall mark own any packet?
 * A lane runs before netfilter sets marks.
 */
static __always_inline enum ip_vs_mhs_lane
ip_vs_mhs_lane_svc_closed(const struct ip_vs_mhs_net *mn)
{
	struct netns_ipvs *ipvs = net_ipvs(mn->net);

	if (!READ_ONCE(mn->lane) || !READ_ONCE(ipvs->enable))
		return MHS_LANE_OFF;
	if (READ_ONCE(mn->fwm_services) || READ_ONCE(mn->foreign) ||
	    ip_vs_mhs_foreign(ipvs, READ_ONCE(mn->services), 0))
		return MHS_LANE_MARK;
	return MHS_LANE_FORWARDED;
}

/* The counters, or NULL without a service.  Under net.lock. */
static inline struct ip_vs_mhs_lane_stats __percpu *
ip_vs_mhs_lane_stats(const struct ip_vs_mhs_net *mn)
{
	const struct ip_vs_mhs_hash *hash;

	hash = rcu_dereference_protected(mn->hash, lockdep_is_held(&mn->lock));
	return hash ? hash->lane : NULL;
}

/* The service of a packet, or NULL */
static __always_inline struct ip_vs_mhs *
ip_vs_mhs_lane_service(const struct ip_vs_mhs_lane_packet *p, u16 af)
{
	return ip_vs_mhs_svc_find(p->mn, af, p->transport, p->daddr, p->dport);
}

/* By what the stack would send to the server of a verdict to forward: a carrier,
 * which may be replaced but never removed
 */
static __always_inline void
ip_vs_mhs_lane_carrier(struct ip_vs_mhs_lane_packet *p)
{
	p->carrier = rcu_dereference(p->server->carrier);
}

/**
 * ip_vs_mhs_lane_count() - count a packet of a lane
 * @p: the packet; unless @why is set, as ip_vs_mhs_lane_ask() left it
 * @why: 0 if the packet is sent, else why it goes up
 *
 * Context: softirq, under RCU.
 */
static __always_inline void
ip_vs_mhs_lane_count(const struct ip_vs_mhs_lane_packet *p,
		     enum ip_vs_mhs_lane why)
{
	const struct ip_vs_mhs_hash *hash = rcu_dereference(p->mn->hash);
	u32 stats = MHS_STAT_IN;

	/* The last service may have gone meanwhile */
	if (likely(hash))
		this_cpu_inc(hash->lane->n[why]);
	if (unlikely(why))
		return;
	ip_vs_mhs_count_verdict(p->mhs, p->verdict);
	ip_vs_mhs_count(p->mhs, MHS_CNT_LANE);
	if (unlikely(p->verdict & MHS_BEGINS))
		stats |= MHS_STAT_CONN;
	ip_vs_mhs_xmit_stats_bh(p->mhs, p->server->dest, p->len, stats);
}

#endif /* _IP_VS_MHS_LANE_SVC_H */
