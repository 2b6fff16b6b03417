// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: sending without an entry.
 *
 * Statistics, and requests by a carrier.
 */
#include "ip_vs_mhs_pkt.h"

static __always_inline void xmit_count(const struct ip_vs_mhs *mhs,
				       struct ip_vs_dest *dest,
				       unsigned int bytes, u32 what)
{
	local_bh_disable();
	/* A constant lets the compiler drop branches */
	if (likely(what == MHS_STAT_IN))
		ip_vs_mhs_xmit_stats_bh(mhs, dest, bytes, MHS_STAT_IN);
	else
		ip_vs_mhs_xmit_stats_bh(mhs, dest, bytes, what);
	local_bh_enable();
}

/* Count a packet in the statistics of ipvsadm */
void ip_vs_mhs_xmit_stats(const struct ip_vs_mhs *mhs, struct ip_vs_dest *dest,
			  unsigned int bytes, u32 what)
{
	xmit_count(mhs, dest, bytes, what);
}

/* Send a packet to the server of a carrier */
unsigned int ip_vs_mhs_xmit(const struct ip_vs_mhs *mhs,
			    struct ip_vs_conn *carrier,
			    struct ip_vs_mhs_packet *p, u32 stats)
{
	xmit_count(mhs, carrier->dest, p->skb->len, stats);
	return carrier->packet_xmit(p->skb, carrier, p->pd->pp, &p->iph);
}
