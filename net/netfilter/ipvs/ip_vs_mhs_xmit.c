// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: sending without an entry.
 *
 * Statistics, and requests by a carrier.
 */
#include "ip_vs_mhs_pkt.h"

static __always_inline void xmit_stats_add(struct ip_vs_cpu_stats *s,
					   unsigned int bytes, u32 what)
{
	u64_stats_update_begin(&s->syncp);
	if (what & MHS_STAT_IN) {
		u64_stats_inc(&s->cnt.inpkts);
		u64_stats_add(&s->cnt.inbytes, bytes);
	}
	if (what & MHS_STAT_CONN)
		u64_stats_inc(&s->cnt.conns);
	u64_stats_update_end(&s->syncp);
}

static __always_inline void xmit_stats(const struct ip_vs_mhs *mhs,
				       struct ip_vs_dest *dest,
				       unsigned int bytes, u32 what)
{
	xmit_stats_add(this_cpu_ptr(dest->stats.cpustats), bytes, what);
	xmit_stats_add(this_cpu_ptr(rcu_dereference(dest->svc)->stats.cpustats),
		       bytes, what);
	xmit_stats_add(ip_vs_mhs_total_stats(mhs->ipvs), bytes, what);
}

/* As in the core, count only for a listed server: the service of an unlisted
 * server may be freed.
 */
static __always_inline void xmit_count(const struct ip_vs_mhs *mhs,
				       struct ip_vs_dest *dest,
				       unsigned int bytes, u32 what)
{
	if (!ip_vs_mhs_dest_listed(dest))
		return;
	/* Constants for the common cases let the compiler drop branches */
	if (likely(what == MHS_STAT_IN))
		xmit_stats(mhs, dest, bytes, MHS_STAT_IN);
	else if (what == (MHS_STAT_IN | MHS_STAT_CONN))
		xmit_stats(mhs, dest, bytes, MHS_STAT_IN | MHS_STAT_CONN);
	else
		xmit_stats(mhs, dest, bytes, what);
}

/* Count where softirqs may be enabled */
static __always_inline void xmit_count_anywhere(const struct ip_vs_mhs *mhs,
						struct ip_vs_dest *dest,
						unsigned int bytes, u32 what)
{
	local_bh_disable();
	xmit_count(mhs, dest, bytes, what);
	local_bh_enable();
}

/* Count a packet in the statistics of ipvsadm, where softirqs are disabled */
void ip_vs_mhs_xmit_stats_bh(const struct ip_vs_mhs *mhs,
			     struct ip_vs_dest *dest, unsigned int bytes,
			     u32 what)
{
	xmit_count(mhs, dest, bytes, what);
}

/* The same anywhere */
void ip_vs_mhs_xmit_stats(const struct ip_vs_mhs *mhs, struct ip_vs_dest *dest,
			  unsigned int bytes, u32 what)
{
	xmit_count_anywhere(mhs, dest, bytes, what);
}

/* Send a packet to the server of a carrier */
unsigned int ip_vs_mhs_xmit(const struct ip_vs_mhs *mhs,
			    struct ip_vs_conn *carrier,
			    struct ip_vs_mhs_packet *p, u32 stats)
{
	xmit_count_anywhere(mhs, carrier->dest, p->skb->len, stats);
	return carrier->packet_xmit(p->skb, carrier, p->pd->pp, &p->iph);
}
