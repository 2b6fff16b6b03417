/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: one packet before the IP stack, and what becomes
 * of it.  Overview: ip_vs_mhs_lane_ask.h.
 */
#ifndef _IP_VS_MHS_LANE_H
#define _IP_VS_MHS_LANE_H

#include "ip_vs_mhs.h"

/* What became of a frame that a lane saw: what is not forwarded goes up to the
 * stack.
 */
enum ip_vs_mhs_lane {
	MHS_LANE_FORWARDED,
	MHS_LANE_OFF,		/* lane=0, or the namespace has no service */
	MHS_LANE_MARK,		/* a service by firewall mark may exist */
	MHS_LANE_CONNTRACK,	/* vs.conntrack is 1 */
	MHS_LANE_BACKUP,	/* sync daemon's backup */
	MHS_LANE_FRAME,		/* not to this device, or not plain TCP or UDP */
	MHS_LANE_SERVICE,	/* to no service of mhs */
	MHS_LANE_ADDRESS,	/* source invalid, or destination not local */
	MHS_LANE_ENTRY,		/* has a connection entry */
	MHS_LANE_DECISION,	/* gets an entry, settles, or has no server */
	MHS_LANE_METHOD,	/* server by masquerading, GUE or GRE */
	MHS_LANE_ROUTE,		/* no route cached */
	MHS_LANE_NEIGHBOUR,	/* next hop not known to be alive, or local */
	MHS_LANE_MTU,		/* too long for the path */
	MHS_LANE_DEVICE,	/* receiving or output device unfit for a lane */
	MHS_LANE_MAX
};

/* Frames of a namespace, on one CPU */
struct ip_vs_mhs_lane_stats {
	unsigned long		n[MHS_LANE_MAX];
};

/* A packet in a lane.  The caller sets the fields from mn to bytes, and protocol. */
struct ip_vs_mhs_lane_packet {
	struct ip_vs_mhs_net		*mn;
	const struct ip_vs_mhs_hash	*hash;
	/* the receiver, as the stack sees it: a bond, the device of a VLAN */
	const struct net_device		*in;
	/* network header; MHS_LANE_HEADER_BYTES are readable, or all bytes */
	const u8			*ip;
	unsigned int			bytes;		/* from ip on */
	unsigned int			len;		/* by the header */
	u32				generation;	/* of mn, odd */
	u32				fit;		/* MHS_LANE_FIT_* of in */
	__be16				protocol;	/* Ethernet type */
	u8				transport;	/* IPPROTO_* */
	const union nf_inet_addr	*saddr;		/* in the packet */
	const union nf_inet_addr	*daddr;
	__be16				sport;
	__be16				dport;
	u32				facts;		/* MHS_PKT_* */
	u32				verdict;	/* of ip_vs_mhs_ask() */
	struct ip_vs_mhs		*mhs;
	struct ip_vs_mhs_server		*server;
	struct ip_vs_mhs_lane_way	way;
};

enum ip_vs_mhs_lane ip_vs_mhs_lane_ask(struct ip_vs_mhs_lane_packet *p, u32 fit);
enum ip_vs_mhs_lane ip_vs_mhs_lane_open(struct ip_vs_mhs_lane_packet *p,
					u32 fit);
bool ip_vs_mhs_lane_is_local(const struct ip_vs_mhs_lane_packet *p);
enum ip_vs_mhs_lane ip_vs_mhs_lane_decide(struct ip_vs_mhs_lane_packet *p);
enum ip_vs_mhs_lane ip_vs_mhs_lane_way_find(struct ip_vs_mhs_lane_packet *p);

/* Packets of a service that lanes have forwarded, a mask of enum ip_vs_mhs_cnt */
#define MHS_LANE_COUNTS		(BIT(MHS_CNT_LANE) | BIT(MHS_CNT_LANE_STABLE))

int ip_vs_mhs_lane_show(struct seq_file *seq, void *v);

unsigned int ip_vs_mhs_ingress_hook(void *priv, struct sk_buff *skb,
				    const struct nf_hook_state *state);

#endif /* _IP_VS_MHS_LANE_H */
