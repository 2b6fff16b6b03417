// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the core's question about a packet.
 *
 * A packet in a stable slot allocates and locks nothing and writes only the
 * counters of its CPU; about once per pin time a packet sets the used mark.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include "ip_vs_mhs_pkt.h"

/* Is there room for a connection, or was the last count a moment ago? */
static bool budget_known(const struct ip_vs_mhs_budget *budget, unsigned int max)
{
	/* Pairs with the release in budget_count(): made, left and of are at
	 * least as new as recount_at.
	 */
	unsigned long recount_at = smp_load_acquire(&budget->recount_at);

	return READ_ONCE(budget->of) == max &&
	       (atomic_read(&budget->made) < READ_ONCE(budget->left) ||
		time_before(jiffies, recount_at));
}

static void budget_count(const struct ip_vs_mhs *mhs,
			 struct ip_vs_mhs_budget *budget, unsigned int max)
{
	const struct ip_vs_mhs_servers *servers;
	const struct ip_vs_mhs_server *s;
	u64 n = 0;
	u32 i;

	servers = rcu_dereference(mhs->servers);
	for (i = 0; i < servers->max; i++) {
		s = rcu_dereference(servers->s[i]);
		if (s)
			n += ip_vs_mhs_dest_entries(s->dest);
	}
	n = min_t(u64, n, max);
	atomic_set(&budget->made, 0);
	WRITE_ONCE(budget->left, max - n);
	WRITE_ONCE(budget->of, max);
	/* Pairs with the acquire in budget_known() */
	smp_store_release(&budget->recount_at, jiffies + HZ / 20 + 1);
}

/* May the service have one more connection?  No callback reports that one
 * expires, so they are counted anew when those made since the last count use up
 * the limit, at most 20 times a second.  Other CPUs wait for the count: a wrong
 * "no" may cut older flows.
 */
#ifdef MHS_SERIES_QUIC
static bool budget_take(struct ip_vs_mhs *mhs, bool quic)
{
	/* A QUIC packet is easily forged: a limit of its own */
	unsigned int max = quic ? READ_ONCE(mhs->net->max_quic_entries) :
				  READ_ONCE(mhs->net->max_entries);
	struct ip_vs_mhs_budget *budget = &mhs->budget[quic];
#else
static bool budget_take(struct ip_vs_mhs *mhs)
{
	unsigned int max = READ_ONCE(mhs->net->max_entries);
	struct ip_vs_mhs_budget *budget = mhs->budget;
#endif

	if (!budget_known(budget, max)) {
		spin_lock_bh(&mhs->recount_lock);
		if (!budget_known(budget, max))
			budget_count(mhs, budget, max);
		spin_unlock_bh(&mhs->recount_lock);
	}
	/* The read keeps a flood above the limit from writing the cache line */
	return atomic_read(&budget->made) < READ_ONCE(budget->left) &&
	       atomic_inc_return(&budget->made) <= READ_ONCE(budget->left);
}

/* Is the packet the reply of a server on this host to a flow with a connection?
 * As in ip_vs_schedule() such a reply begins no flow.
 */
static bool is_local_reply(struct ip_vs_service *svc, const struct sk_buff *skb,
			   struct ip_vs_iphdr *iph)
{
	struct ip_vs_conn *cp;

	if (skb->dev && !(skb->dev->flags & IFF_LOOPBACK))
		return false;
	iph->hdr_flags ^= IP_VS_HDR_INVERSE;
	cp = ip_vs_conn_in_get_proto(svc->ipvs, svc->af, skb, iph);
	iph->hdr_flags ^= IP_VS_HDR_INVERSE;
	if (!cp)
		return false;
	__ip_vs_conn_put(cp);
	return true;
}

/* Make the connection of a packet to the server of the verdict */
static struct ip_vs_conn *conn_make(const struct ip_vs_mhs_ask *q,
				    const struct sk_buff *skb,
				    const struct ip_vs_iphdr *iph,
				    const __be16 *ports, enum ip_vs_mhs_cnt kind)
{
	struct ip_vs_dest *dest = q->server->dest;
	const struct ip_vs_mhs *mhs = q->mhs;
	struct ip_vs_conn_param p;
	struct ip_vs_conn *cp;

	/* Mark first: packets look for a connection only in a tracked slot */
	ip_vs_mhs_slot_track(q->slot);
	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, iph->protocol, &iph->saddr,
			      ports[0], &iph->daddr, ports[1], &p);
	cp = ip_vs_conn_new(&p, dest->af, &dest->addr,
			    dest->port ? dest->port : ports[1], 0, dest,
			    skb->mark);
	ip_vs_mhs_count(mhs, cp ? kind : MHS_CNT_NOMEM);
	return cp;
}

/* Forward by the carrier of the server */
static enum ip_vs_select_verdict
select_forward(const struct ip_vs_mhs_ask *q, bool begins,
	       struct ip_vs_conn **cpp)
{
	*cpp = rcu_dereference(q->server->dest->carrier);
	if (!*cpp)
		return IP_VS_SEL_DROP;
	return begins ? IP_VS_SEL_FORWARD_NEW : IP_VS_SEL_FORWARD;
}

/* Ask about a packet without a connection */
static enum ip_vs_select_verdict
select_ask(struct ip_vs_mhs_ask *q, const struct sk_buff *skb,
#ifdef MHS_SERIES_QUIC
	   const struct ip_vs_iphdr *iph, const __be16 *ports, bool quic,
	   struct ip_vs_conn **cpp)
#else
	   const struct ip_vs_iphdr *iph, const __be16 *ports,
	   struct ip_vs_conn **cpp)
#endif
{
	bool begins;
	u32 v, act;

	for (;;) {
		v = ip_vs_mhs_ask(q);
		act = ip_vs_mhs_verdict_act(v);
		begins = v & MHS_BEGINS;
		if (act <= MHS_FORWARD)
			break;
		/* the defence against floods (drop_packet) */
		if (begins && ip_vs_todrop(q->mhs->ipvs))
			return IP_VS_SEL_DROP;
#ifdef MHS_SERIES_QUIC
		/* plain UDP gets connections with stateless=0 only */
		if (budget_take(q->mhs,
				quic || q->facts & MHS_PKT_CONNLESS)) {
#else
		if (budget_take(q->mhs)) {
#endif
			*cpp = conn_make(q, skb, iph, ports, act == MHS_PIN ?
					 MHS_CNT_PINNED : MHS_CNT_NEW);
			if (*cpp) {
				ip_vs_mhs_count_verdict(q->mhs, v);
				return begins ? IP_VS_SEL_NEW : IP_VS_SEL_ADOPT;
			}
		} else {
			ip_vs_mhs_count(q->mhs, MHS_CNT_CAPPED);
		}
		q->facts |= MHS_ASK_NO_ENTRY;
	}
	if (v & MHS_CUTS && !ip_vs_mhs_ask_cut(q))
		return IP_VS_SEL_DROP;
	ip_vs_mhs_count_verdict(q->mhs, v);
	if (act == MHS_CORE)
		return IP_VS_SEL_CONN;
	if (act == MHS_DROP)
		return IP_VS_SEL_DROP;
	return select_forward(q, begins, cpp);
}

/**
 * ip_vs_mhs_select() - where does a packet go?
 * @svc: the service
 * @skb: the packet
 * @iph: header of the packet, or of the packet that an ICMP error quotes
 * @cpp: set to the connection of the packet, with a reference, or to the
 *	carrier of its server
 *
 * Context: softirq or process, under RCU; called by the core.
 * Return: enum ip_vs_select_verdict.
 */
enum ip_vs_select_verdict
ip_vs_mhs_select(struct ip_vs_service *svc, struct sk_buff *skb,
		 struct ip_vs_iphdr *iph, struct ip_vs_conn **cpp)
{
	bool icmp = ip_vs_iph_icmp(iph), inverse = ip_vs_iph_inverse(iph);
	struct ip_vs_mhs *mhs = svc->sched_data;
	__be16 _ports[2], *ports;
	struct ip_vs_mhs_ask q;
#ifdef MHS_SERIES_QUIC
	bool opens = false, quic;
#else
	bool opens = false;
#endif
	u32 facts;

	/* Pairs with the release in ctl_add_dest(): whoever sees svc sees
	 * MHS_SETTLING.
	 */
	if (!smp_load_acquire(&mhs->svc))
		return IP_VS_SEL_CONN;
	ports = skb_header_pointer(skb, iph->len, sizeof(_ports), _ports);
	if (!ports)
		return IP_VS_SEL_CONN;
	if (!icmp)
		facts = ip_vs_mhs_proto_facts(skb, iph, &opens);
	else if (iph->protocol == IPPROTO_UDP)
		facts = MHS_PKT_ERROR | MHS_PKT_CONNLESS;
	else
		facts = MHS_PKT_ERROR;
#ifdef MHS_SERIES_QUIC
	quic = iph->protocol == IPPROTO_UDP &&
	       !ip_vs_mhs_proto_is_plain(mhs, ports[!inverse]);
	if (quic)
		facts = icmp ? MHS_PKT_ERROR :
			       ip_vs_mhs_proto_quic_facts(skb, iph);
#endif
	if (unlikely(!ports[inverse]))
		facts |= MHS_PKT_NO_PORT;
	if (opens && is_local_reply(svc, skb, iph))
		return IP_VS_SEL_CONN;
	ip_vs_mhs_ask_begin(&q, mhs, inverse ? &iph->daddr : &iph->saddr,
			    ports[inverse], facts);
	if (icmp) {
		if (ip_vs_mhs_verdict_act(ip_vs_mhs_ask(&q)) != MHS_FORWARD)
			return IP_VS_SEL_CONN;
		ip_vs_mhs_count(mhs, MHS_CNT_ICMP);
		return select_forward(&q, false, cpp);
	}
	if (ip_vs_mhs_decide_looks(q.w, q.facts)) {
		*cpp = ip_vs_conn_in_get_proto(svc->ipvs, svc->af, skb, iph);
		if (*cpp) {
			ip_vs_mhs_slot_track(q.slot);
			ip_vs_mhs_count(mhs, MHS_CNT_TRACKED);
			return IP_VS_SEL_CONN;
		}
	}
#ifdef MHS_SERIES_QUIC
	return select_ask(&q, skb, iph, ports, quic, cpp);
#else
	return select_ask(&q, skb, iph, ports, cpp);
#endif
}
