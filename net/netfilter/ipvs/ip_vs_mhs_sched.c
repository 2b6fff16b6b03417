// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: which server.
 *
 * The server of a new flow, and the statistics of flows that the core does not
 * see.  schedule() is what the core calls.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>

#include "ip_vs_mhs_pkt.h"

/* Slots to look at for another server before all servers are searched */
#define MHS_FALLBACK_PROBES	32

static __always_inline void mhs_stats_add(struct ip_vs_cpu_stats *s,
					  unsigned int bytes, u32 what)
{
	u64_stats_update_begin(&s->syncp);
	if (what & MHS_STAT_IN) {
		u64_stats_inc(&s->cnt.inpkts);
		u64_stats_add(&s->cnt.inbytes, bytes);
	}
	if (what & MHS_STAT_OUT) {
		u64_stats_inc(&s->cnt.outpkts);
		u64_stats_add(&s->cnt.outbytes, bytes);
	}
	if (what & MHS_STAT_CONN)
		u64_stats_inc(&s->cnt.conns);
	u64_stats_update_end(&s->syncp);
}

static __always_inline void mhs_stats(const struct ip_vs_mhs *mhs,
				      struct ip_vs_dest *dest,
				      unsigned int bytes, u32 what)
{
	mhs_stats_add(this_cpu_ptr(dest->stats.cpustats), bytes, what);
	mhs_stats_add(this_cpu_ptr(rcu_dereference(dest->svc)->stats.cpustats),
		      bytes, what);
	mhs_stats_add(ip_vs_mhs_total_stats(mhs->ipvs), bytes, what);
}

/**
 * ip_vs_mhs_stats() - count a packet where ipvsadm looks
 * @mhs: the service
 * @dest: the server
 * @skb: the packet
 * @what: MHS_STAT_*
 *
 * Like the core only for a server that is in the list, whose service
 * therefore stands.
 *
 * Context: softirq or process, under RCU.
 */
void ip_vs_mhs_stats(const struct ip_vs_mhs *mhs, struct ip_vs_dest *dest,
		     const struct sk_buff *skb, u32 what)
{
	if (!ip_vs_mhs_dest_listed(dest))
		return;

	local_bh_disable();
	/* nearly always, and worth a copy of its own */
	if (likely(what == MHS_STAT_IN))
		mhs_stats(mhs, dest, skb->len, MHS_STAT_IN);
	else
		mhs_stats(mhs, dest, skb->len, what);
	local_bh_enable();
}

/* Can @s take a new flow? */
static bool mhs_usable(const struct ip_vs_mhs_server *s)
{
	return s && READ_ONCE(s->state) & MHS_SRV_IN &&
	       !(READ_ONCE(s->dest->flags) & IP_VS_DEST_F_OVERLOAD);
}

/* Another server than the slot's: along the table, which is the same on every
 * director.  If @any, because many may be out of service or full: any other.
 */
static struct ip_vs_mhs_server *mhs_fallback(const struct ip_vs_mhs *mhs,
					     const u32 *slot, bool any)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs_server *s;
	u32 pos = slot - mhs->slots;
	u32 i, w;

	for (i = 0; i < MHS_FALLBACK_PROBES; i++) {
		if (++pos == mhs->size)
			pos = 0;
		w = ip_vs_mhs_slot_read(&mhs->slots[pos]);
		s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_cand(w));
		if (mhs_usable(s))
			return s;
	}
	if (!any)
		return NULL;
	servers = rcu_dereference(mhs->servers);
	for (i = 0; i < servers->max; i++) {
		/* not all of them to the first with room */
		s = rcu_dereference(servers->s[(pos + i) % servers->max]);
		if (mhs_usable(s))
			return s;
	}
	return NULL;
}

/**
 * ip_vs_mhs_pick() - the server of a new flow
 * @mhs: the service
 * @slot: the flow's slot
 * @idx: the candidate read there
 * @flags: of the service
 *
 * A server that is out of service but still in the table, because the rebuild
 * is a moment away, is passed over; one that is full only with the fallback
 * flag, as with mh.
 *
 * Context: softirq or process, under RCU.
 * Return: the server, NULL when there is none.
 */
struct ip_vs_mhs_server *ip_vs_mhs_pick(const struct ip_vs_mhs *mhs,
					const u32 *slot, u32 idx,
					unsigned int flags)
{
	struct ip_vs_mhs_server *s = ip_vs_mhs_server(mhs, idx);
	bool full;

	if (mhs_usable(s))
		return s;
	full = s && READ_ONCE(s->state) & MHS_SRV_IN;
	if (full && !(flags & MHS_SVC_F_FALLBACK))
		return NULL;
	return mhs_fallback(mhs, slot, full || READ_ONCE(mhs->dirty));
}

/**
 * ip_vs_mhs_pick_lone() - the server of plain UDP
 * @mhs: the service
 * @slot: the flow's slot
 * @w: the word read there
 * @flags: of the service
 *
 * While the slot is held, the old server goes on as long as it is in service;
 * with one packet a flow every one is new.
 *
 * Context: softirq or process, under RCU.
 * Return: the server, NULL when there is none.
 */
struct ip_vs_mhs_server *ip_vs_mhs_pick_lone(const struct ip_vs_mhs *mhs,
					     const u32 *slot, u32 w,
					     unsigned int flags)
{
	struct ip_vs_mhs_server *s;

	if (ip_vs_mhs_slot_holding(w) && !(flags & IP_VS_SVC_F_ONEPACKET)) {
		s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
		if (s && READ_ONCE(s->state) & MHS_SRV_IN)
			return s;
	}
	return ip_vs_mhs_pick(mhs, slot, ip_vs_mhs_slot_cand(w), flags);
}

/**
 * ip_vs_mhs_schedule() - name the server for a new entry
 * @svc: the service
 * @skb: a packet that the core makes an entry for
 * @iph: its header, or for an ICMP error that of the packet it quotes
 *
 * An ICMP error is about a flow that is under way, so it belongs to the old
 * server of an unstable slot.
 *
 * Context: softirq or process, under RCU; called by the core.
 * Return: the server, NULL when there is none.
 */
struct ip_vs_dest *ip_vs_mhs_schedule(struct ip_vs_service *svc,
				      const struct sk_buff *skb,
				      struct ip_vs_iphdr *iph)
{
	struct ip_vs_mhs *mhs = svc->sched_data;
	const union nf_inet_addr *caddr;
	struct ip_vs_mhs_server *s;
	__be16 _ports[2], *ports;
	bool inverse;
	u32 *slot, w;

	ports = frag_safe_skb_hp(skb, iph->len, sizeof(_ports), _ports);
	if (!ports)
		return NULL;
	inverse = ip_vs_iph_inverse(iph);
	caddr = inverse ? &iph->daddr : &iph->saddr;
	slot = ip_vs_mhs_slot(mhs, caddr, ports[inverse]);
	w = ip_vs_mhs_slot_read(slot);

	if (ip_vs_iph_icmp(iph))
		s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	else
		s = ip_vs_mhs_pick(mhs, slot, ip_vs_mhs_slot_cand(w),
				   READ_ONCE(svc->flags));
	/* Also if there is none: the core may make a cache_bypass entry */
	ip_vs_mhs_slot_track(slot);
	if (!s) {
		ip_vs_scheduler_err(svc, "no destination available");
		return NULL;
	}
	ip_vs_mhs_count(mhs, MHS_CNT_NEW);
	return s->dest;
}
