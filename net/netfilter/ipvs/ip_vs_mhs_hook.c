// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the netfilter hooks.
 *
 * The hooks stand in front of the core's own.  They send the packets of flows
 * that need no connection entry, and those of entries as far as sending is all
 * there is to do.  The core gets the rest, finds the entry or makes one with the
 * server that ip_vs_mhs_ask_schedule() names.  Which packet is which says
 * ip_vs_mhs_decide.h.
 *
 * On the way of a stable slot nothing is allocated, locked or written but the
 * CPU's own counters; the first packet of a slot in a pin time sets its "used"
 * mark.
 *
 * What is no request of a service may be a reply of a masquerading server
 * (ip_vs_mhs_nat.c) or an ICMP error (ip_vs_mhs_icmp.c).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/tcp.h>

#include "ip_vs_mhs_pkt.h"

/* A slot whose old server is deleted goes to the candidate now: without entries
 * one of the two has to lose its flows, and that server may be dead.  Not if
 * control has changed the slot meanwhile.
 */
static bool hook_cut(u32 *slot, u32 w)
{
	u32 old = ip_vs_mhs_slot_old(w), cand = ip_vs_mhs_slot_cand(w);

	while (!ip_vs_mhs_slot_stable(w)) {
		if (ip_vs_mhs_slot_old(w) != old ||
		    ip_vs_mhs_slot_cand(w) != cand)
			return false;
		/* a failed exchange reads the word anew */
		if (try_cmpxchg(slot, &w,
				ip_vs_mhs_slot_change(w, cand, true, 0)))
			return true;
	}
	return ip_vs_mhs_slot_cand(w) == cand;
}

/* An entry for a packet of an older flow: the slot is about to merge, or the
 * service about to get another scheduler.
 */
static struct ip_vs_conn *hook_pin(const struct ip_vs_mhs_ask *q,
				   struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *cp;

	cp = ip_vs_mhs_entry_make(q, p, q->server->dest, MHS_CNT_PINNED);
	/* A client that reads on may be silent for longer when nothing merges */
	if (cp && !(q->facts & MHS_SVC_STATEFUL) &&
	    ip_vs_mhs_proto_is_last_ack(p, q->hash))
		ip_vs_mhs_entry_closes(cp);
	return cp;
}

/* Make the entry that the verdict @act asks for */
static struct ip_vs_conn *hook_entry(const struct ip_vs_mhs_ask *q,
				     struct ip_vs_mhs_packet *p, u32 act)
{
	bool quic = p->quic ||
		    (act == MHS_PIN && q->facts & MHS_PKT_CONNLESS);

	if (act != MHS_REPLACE && !ip_vs_mhs_entry_allowed(q->mhs, quic)) {
		ip_vs_mhs_count(q->mhs, MHS_CNT_CAPPED);
		return NULL;
	}
	if (act == MHS_PIN)
		return hook_pin(q, p);
	return ip_vs_mhs_entry_make(q, p, q->server->dest, MHS_CNT_NEW);
}

/* Do what the decision says with a packet that has no entry */
static unsigned int hook_act(struct ip_vs_mhs_ask *q,
			     struct ip_vs_mhs_packet *p)
{
	u32 v, act, stats = MHS_STAT_IN;
	struct ip_vs_conn *cp;

	for (;;) {
		v = ip_vs_mhs_ask(q);
		act = ip_vs_mhs_verdict_act(v);
		if (ip_vs_mhs_verdict_count(v) != MHS_CNT_MAX)
			ip_vs_mhs_count(q->mhs, ip_vs_mhs_verdict_count(v));
		if (act <= MHS_FORWARD)
			break;
		cp = hook_entry(q, p, act);
		if (cp)
			return ip_vs_mhs_entry_first(q->mhs, p, cp,
						     v & MHS_BEGINS ?
						     MHS_STAT_CONN : 0);
		if (act == MHS_REPLACE)
			return NF_DROP;
		q->facts |= MHS_ASK_NO_ENTRY;
	}
	if (unlikely(v & (MHS_NOTES_FIN | MHS_CUTS | MHS_BEGINS))) {
		if (v & MHS_NOTES_FIN)
			ip_vs_mhs_proto_note_fin(p, q->hash);
		if (v & MHS_CUTS && !hook_cut(q->slot, q->w))
			return NF_DROP;
		if (v & MHS_BEGINS)
			stats |= MHS_STAT_CONN;
	}
	if (act != MHS_FORWARD)
		return act == MHS_DROP ? NF_DROP : NF_ACCEPT;
	/* there, since the decision saw it: a carrier is replaced, never removed */
	return ip_vs_mhs_xmit(q->mhs, rcu_dereference(q->server->carrier), p,
			      stats);
}

static __always_inline unsigned int
hook_request(struct ip_vs_mhs *mhs, struct ip_vs_mhs_packet *p)
{
	struct ip_vs_mhs_ask q;
	unsigned int verdict;
	u32 facts = p->facts;

	if (p->mark && ip_vs_mhs_svc_unsure(mhs, p->mark))
		facts |= MHS_SVC_UNSURE;
	if (ip_vs_mhs_proto_connectionless(mhs, p->iph.protocol, p->dport))
		facts |= MHS_PKT_CONNLESS;
	if (unlikely(!p->sport))
		facts |= MHS_PKT_NO_PORT;
	if (ip_vs_mhs_is_local(p))
		facts |= MHS_PKT_LOCAL;
	ip_vs_mhs_ask_begin(&q, mhs, &p->iph.saddr, p->sport, facts);
	if (ip_vs_mhs_decide_looks(q.w, q.facts)) {
		switch (ip_vs_mhs_entry_find(&q, p, &verdict)) {
		case MHS_ENTRY_DONE:
			return verdict;
		case MHS_ENTRY_LEFT:
			q.facts |= MHS_PKT_LEFT;
			break;
		case MHS_ENTRY_NONE:
			break;
		}
	}
	return hook_act(&q, p);
}

/* A packet that this host sends may be the reply of a server of its own to a
 * flow with an entry.
 */
static bool hook_local_reply(struct netns_ipvs *ipvs,
			     struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *cp;

	if (p->skb->dev && !(p->skb->dev->flags & IFF_LOOPBACK))
		return false;
	p->iph.hdr_flags ^= IP_VS_HDR_INVERSE;
	cp = ip_vs_conn_in_get_proto(ipvs, p->af, p->skb, &p->iph);
	p->iph.hdr_flags ^= IP_VS_HDR_INVERSE;
	if (!cp)
		return false;
	__ip_vs_conn_put(cp);
	return true;
}

/* A raw socket that wants its packets in pieces is left alone, as by the core */
static bool hook_is_nodefrag(const struct ip_vs_mhs_packet *p)
{
	const struct sock *sk;

	if (likely(!ip_vs_mhs_is_local(p) || p->af != AF_INET))
		return false;
	sk = skb_to_full_sk(p->skb);
	return sk && sk->sk_family == PF_INET && ip_vs_mhs_nodefrag(sk);
}

/* Network and transport header; later fragments have none of the latter */
static bool hook_parse(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
{
	bool v6 = p->af == AF_INET6;
	bool part;

	if (!ip_vs_fill_iph_skb(p->af, p->skb, false, &p->iph))
		return false;
	/* A fragment inside a fragment is left of those that were put together.
	 * The core makes entries for it if it has ports, so it is a request here
	 * too; the way back knows whole packets only.
	 */
	if (v6 && p->hook != NF_INET_FORWARD)
		part = p->iph.fragoffs;
	else
		part = v6 ? p->iph.flags & IP6_FH_F_FRAG :
			    ip_is_fragment(ip_hdr(p->skb));
	if (part)
		return false;
	if (p->iph.protocol == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return true;
	p->pd = ip_vs_proto_data_get(ipvs, p->iph.protocol);
	return p->pd && ip_vs_mhs_proto_parse(p);
}

/* What follows the network header, which hook_parse() fills */
static void hook_packet(struct ip_vs_mhs_packet *p, struct ip_vs_mhs_net *mn,
			struct sk_buff *skb, const struct nf_hook_state *state)
{
	memset_after(p, 0, iph);
	p->skb = skb;
	p->net = mn;
	p->af = state->pf;
	p->hook = state->hook;
	p->mark = skb->mark;
}

/* The core's gates first, in its order: a packet taken here never meets them */
static noinline unsigned int hook_packet_in(struct ip_vs_mhs_net *mn,
					    struct sk_buff *skb,
					   const struct nf_hook_state *state)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct ip_vs_mhs_packet p;
	struct ip_vs_mhs *mhs;

	hook_packet(&p, mn, skb, state);
	if ((skb->pkt_type != PACKET_HOST && !ip_vs_mhs_is_local(&p)) ||
	    !skb_dst(skb))
		return NF_ACCEPT;
	if (!READ_ONCE(ipvs->enable) || hook_is_nodefrag(&p))
		return NF_ACCEPT;
	if (!hook_parse(ipvs, &p))
		return NF_ACCEPT;
	if (!p.pd)
		return ip_vs_mhs_icmp(ipvs, &p);
	if (ip_vs_mhs_backup_only(ipvs))
		return NF_ACCEPT;
	if (p.iph.protocol == IPPROTO_TCP && p.sport == FTPDATA)
		return NF_ACCEPT;
	mhs = ip_vs_mhs_svc_of(&p, p.iph.protocol, &p.iph.daddr, p.dport);
	/* Before the first server nothing is ours.  Pairs with the release in
	 * ctl_add_dest(): who sees it sees the service settling.
	 */
	if (!mhs || !smp_load_acquire(&mhs->svc))
		return NF_ACCEPT;
	if (p.opens && hook_local_reply(ipvs, &p))
		return NF_ACCEPT;
	return hook_request(mhs, &p);
}

/* LOCAL_IN and LOCAL_OUT: what IPVS sends comes by once more.  @priv: our part
 * of the namespace.
 */
static unsigned int hook_in(void *priv, struct sk_buff *skb,
			    const struct nf_hook_state *state)
{
	return skb->ipvs_property ? NF_ACCEPT : hook_packet_in(priv, skb, state);
}

/* Is it ICMP?  Errors of routers have no extension headers */
static bool hook_is_icmp(const struct sk_buff *skb, u8 pf)
{
	return pf == NFPROTO_IPV6 ? ipv6_hdr(skb)->nexthdr == IPPROTO_ICMPV6 :
				    ip_hdr(skb)->protocol == IPPROTO_ICMP;
}

static noinline unsigned int
hook_packet_forward(struct ip_vs_mhs_net *mn, struct sk_buff *skb,
		    const struct nf_hook_state *state, bool pairs)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct ip_vs_mhs_packet p;

	hook_packet(&p, mn, skb, state);
	if (pairs && p.af == AF_INET && ip_is_fragment(ip_hdr(skb)) &&
	    ip_vs_mhs_nat_gather(ipvs, skb))
		return NF_STOLEN;
	if (!hook_parse(ipvs, &p))
		return NF_ACCEPT;
	if (!p.pd)
		return ip_vs_mhs_icmp(ipvs, &p);
	return ip_vs_mhs_nat_reply(&p);
}

/* FORWARD: replies of masquerading servers, and ICMP errors */
static unsigned int hook_forward(void *priv, struct sk_buff *skb,
				 const struct nf_hook_state *state)
{
	bool pairs;

	if (skb->ipvs_property || !skb_dst(skb) ||
	    !READ_ONCE(net_ipvs(state->net)->enable))
		return NF_ACCEPT;
	pairs = ip_vs_mhs_pairs(priv, state->pf);
	if (!pairs && !hook_is_icmp(skb, state->pf))
		return NF_ACCEPT;
	return hook_packet_forward(priv, skb, state, pairs);
}

#define MHS_HOOK(_hook, _pf, _hooknum, _priority) {	\
	.hook		= _hook,			\
	.pf		= _pf,				\
	.hooknum	= _hooknum,			\
	.priority	= _priority,			\
}

/* LOCAL_IN: before the core at NF_IP_PRI_NAT_SRC - 2 and - 1.  LOCAL_OUT:
 * NAT stands at NF_IP_PRI_NAT_DST, the core at + 1 and + 2, and of two hooks
 * of one priority the younger goes first: these are registered after the
 * core's, which come with the first service of the family.  FORWARD, which few
 * need (ip_vs_mhs_hook_forward_get()): the core is at 99 and 100.
 */
static const struct nf_hook_ops hook_ops4[MHS_HOOKS] = {
	MHS_HOOK(hook_in, NFPROTO_IPV4, NF_INET_LOCAL_IN,
		 NF_IP_PRI_NAT_SRC - 3),
	MHS_HOOK(hook_in, NFPROTO_IPV4, NF_INET_LOCAL_OUT,
		 NF_IP_PRI_NAT_DST + 1),
	MHS_HOOK(hook_forward, NFPROTO_IPV4, NF_INET_FORWARD, 98),
};

static const struct nf_hook_ops hook_ops6[MHS_HOOKS] = {
	MHS_HOOK(hook_in, NFPROTO_IPV6, NF_INET_LOCAL_IN,
		 NF_IP6_PRI_NAT_SRC - 3),
	MHS_HOOK(hook_in, NFPROTO_IPV6, NF_INET_LOCAL_OUT,
		 NF_IP6_PRI_NAT_DST + 1),
	MHS_HOOK(hook_forward, NFPROTO_IPV6, NF_INET_FORWARD, 98),
};

/* Hooks of a family, from one on: each packet is told its namespace */
static int hook_register(struct ip_vs_mhs_net *mn, bool v6, u32 first, u32 n)
{
	struct nf_hook_ops *ops = &mn->ops[v6][first];
	u32 i;

	memcpy(ops, (v6 ? hook_ops6 : hook_ops4) + first,
	       n * sizeof(*ops));
	for (i = 0; i < n; i++)
		ops[i].priv = mn;
	return nf_register_net_hooks(mn->net, ops, n);
}

/**
 * ip_vs_mhs_hook_forward_get() - somebody needs the FORWARD hook
 * @mn: the namespace
 * @v6: of which family
 *
 * Packets that are only routed shall not pay for what no service needs.
 *
 * Context: process; net.lock or mhs.lock may be held.
 * Return: 0 or an error of nf_register_net_hooks(), -ENOMEM for the most part.
 */
int ip_vs_mhs_hook_forward_get(struct ip_vs_mhs_net *mn, bool v6)
{
	int err = 0;

	mutex_lock(&mn->forward_lock);
	if (!mn->forward[v6])
		err = hook_register(mn, v6, MHS_HOOKS_IN,
				    MHS_HOOKS - MHS_HOOKS_IN);
	if (!err)
		mn->forward[v6]++;
	mutex_unlock(&mn->forward_lock);
	return err;
}

/**
 * ip_vs_mhs_hook_forward_put() - and does not need it any more
 * @mn: the namespace
 * @v6: of which family
 *
 * Packets may still be in the hook: the namespace's struct outlives them.
 *
 * Context: process; net.lock or mhs.lock may be held.
 */
void ip_vs_mhs_hook_forward_put(struct ip_vs_mhs_net *mn, bool v6)
{
	mutex_lock(&mn->forward_lock);
	if (!--mn->forward[v6])
		nf_unregister_net_hooks(mn->net, &mn->ops[v6][MHS_HOOKS_IN],
					MHS_HOOKS - MHS_HOOKS_IN);
	mutex_unlock(&mn->forward_lock);
}

/**
 * ip_vs_mhs_hook_get() - register the hooks that a service needs from its beginning
 * @mn: the namespace
 * @mhs: the service
 *
 * An ICMP error about a flow of a service by firewall mark may come by FORWARD.
 *
 * Context: process, net.lock held.
 * Return: 0 or an error of nf_register_net_hooks().
 */
int ip_vs_mhs_hook_get(struct ip_vs_mhs_net *mn,
		       const struct ip_vs_mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;
	int err;

	lockdep_assert_held(&mn->lock);
	if (mhs->fwmark) {
		err = ip_vs_mhs_hook_forward_get(mn, v6);
		if (err)
			return err;
	}
	if (!mhs->hashed || mn->hooks[v6]++)
		return 0;
	err = hook_register(mn, v6, 0, MHS_HOOKS_IN);
	if (err) {
		mn->hooks[v6] = 0;
		if (mhs->fwmark)
			ip_vs_mhs_hook_forward_put(mn, v6);
	}
	return err;
}

/**
 * ip_vs_mhs_hook_put() - unregister them if no other service needs them
 * @mn: the namespace
 * @mhs: the service
 *
 * Context: process, net.lock held.
 */
void ip_vs_mhs_hook_put(struct ip_vs_mhs_net *mn,
			const struct ip_vs_mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;

	lockdep_assert_held(&mn->lock);
	if (mhs->hashed && !--mn->hooks[v6])
		nf_unregister_net_hooks(mn->net, mn->ops[v6], MHS_HOOKS_IN);
	if (mhs->fwmark)
		ip_vs_mhs_hook_forward_put(mn, v6);
}
