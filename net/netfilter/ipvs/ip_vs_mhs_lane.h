/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: one packet before the IP stack.
 *
 *	ip_vs_mhs_lane.h	the packet, and what becomes of it
 *	ip_vs_mhs_lane_svc.h	its service, and the counters
 *	ip_vs_mhs_lane_ask.h	may the lane forward it, and how?
 */
#ifndef _IP_VS_MHS_LANE_H
#define _IP_VS_MHS_LANE_H

#include <net/neighbour.h>

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

/**
 * struct ip_vs_mhs_lane_packet - one packet in a lane
 * @mn: the namespace
 * @in: the device that received the packet
 * @ip: the network header; 60 bytes are readable (40 of IPv6, 20 of TCP), or
 *	all bytes
 * @bytes: number of bytes from @ip on, padding included
 * @len: length that the network header states
 * @protocol: Ethernet type of the packet
 * @outer: Ethernet type of the tunnel's header, or 0
 * @transport: IPPROTO_*
 * @ttl: TTL or hop limit, as received
 * @tos: TOS or traffic class
 * @df: IPv4: IP_DF or 0
 * @saddr: the client's address, in the packet
 * @daddr: the virtual address, in the packet
 * @sport: the client's port
 * @dport: the virtual port
 * @facts: MHS_PKT_*
 * @verdict: of ip_vs_mhs_ask()
 * @mhs: the service
 * @server: the server
 * @carrier: the connection by which the stack would send to the server
 * @route: the route to the server, as the core has cached it
 * @neigh: the next hop, with its device
 * @mtu: longest packet for the path, without the tunnel's header
 *
 * The caller sets @mn to @bytes, and @protocol.
 */
struct ip_vs_mhs_lane_packet {
	struct ip_vs_mhs_net		*mn;
	const struct net_device		*in;
	const u8			*ip;
	unsigned int			bytes;
	unsigned int			len;
	__be16				protocol;
	__be16				outer;
	u8				transport;
	u8				ttl;
	u8				tos;
	__be16				df;
	const union nf_inet_addr	*saddr;
	const union nf_inet_addr	*daddr;
	__be16				sport;
	__be16				dport;
	u32				facts;
	u32				verdict;
	struct ip_vs_mhs		*mhs;
	struct ip_vs_mhs_server		*server;
	struct ip_vs_conn		*carrier;
	const struct ip_vs_dest_dst	*route;
	struct neighbour		*neigh;
	u32				mtu;
};

bool ip_vs_mhs_lane_is_local(struct ip_vs_mhs *mhs, const struct net_device *in,
			     u32 generation);
bool ip_vs_mhs_lane_has_entry(const struct ip_vs_mhs *mhs, u8 transport,
			      const union nf_inet_addr *caddr, __be16 cport,
			      const union nf_inet_addr *vaddr, __be16 vport);
int ip_vs_mhs_lane_show(struct seq_file *seq, void *v);

#endif /* _IP_VS_MHS_LANE_H */
