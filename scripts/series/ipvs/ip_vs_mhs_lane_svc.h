/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: services and servers for a lane.
 *
 * The core finds the service and counts the packet, and a server gets packets as
 * its carrier says.
 */
#ifndef _IP_VS_MHS_LANE_SVC_H
#define _IP_VS_MHS_LANE_SVC_H

#include "ip_vs_mhs_lane.h"
#include "ip_vs_mhs_pkt.h"

/* Has the namespace services? */
static __always_inline bool
ip_vs_mhs_lane_exists(const struct ip_vs_mhs_net *mn)
{
	const struct netns_ipvs *ipvs = net_ipvs(mn->net);

	return ipvs && READ_ONCE(ipvs->enable);
}

/* May a service by firewall mark own any packet?  A lane runs before netfilter
 * sets marks.
 */
static __always_inline enum ip_vs_mhs_lane
ip_vs_mhs_lane_svc_closed(const struct ip_vs_mhs_net *mn)
{
	const struct netns_ipvs *ipvs = net_ipvs(mn->net);

	if (atomic_read(&ipvs->fwm_services[IP_VS_AF_INET]) ||
	    atomic_read(&ipvs->fwm_services[IP_VS_AF_INET6]))
		return MHS_LANE_MARK;
	return MHS_LANE_FORWARDED;
}

static inline bool ip_vs_mhs_conntrack(struct netns_ipvs *ipvs)
{
	/* a sysctl: any value that it had will do */
	return data_race(ip_vs_conntrack_enabled(ipvs));
}

/* The service of a packet, or NULL */
static __always_inline struct ip_vs_mhs *
ip_vs_mhs_lane_service(const struct ip_vs_mhs_lane_packet *p, u16 af)
{
	struct ip_vs_scheduler *sched;
	struct ip_vs_service *svc;

	svc = ip_vs_service_find(net_ipvs(p->mn->net), af, 0, p->transport,
				 p->daddr, p->dport);
	if (!svc || svc->port != p->dport)
		return NULL;
	sched = rcu_dereference(svc->scheduler);
	if (!sched || sched->select != ip_vs_mhs_select)
		return NULL;
	/* As in the core: read svc->sched_data after svc->scheduler */
	smp_rmb();
	return svc->sched_data;
}

/* By what the stack would send to the server of a verdict to forward: the
 * server's carrier, which an edit replaces or takes away
 */
static __always_inline bool
ip_vs_mhs_lane_carrier(struct ip_vs_mhs_lane_packet *p)
{
	p->carrier = rcu_dereference(p->server->dest->carrier);
	return p->carrier;
}

static __always_inline bool ip_vs_mhs_xdp_xmits(const struct net_device *dev)
{
	return READ_ONCE(dev->xdp_features) & NETDEV_XDP_ACT_NDO_XMIT;
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
	this_cpu_inc(p->mn->lane->n[why]);
	if (unlikely(why))
		return;
	ip_vs_mhs_count_verdict(p->mhs, p->verdict);
	ip_vs_carrier_count(p->carrier, p->verdict & MHS_BEGINS ?
			    READ_ONCE(p->mhs->svc) : NULL, p->len);
}

#endif /* _IP_VS_MHS_LANE_SVC_H */
