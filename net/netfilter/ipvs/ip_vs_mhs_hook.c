// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the netfilter hooks.
 *
 * The hooks run before the core's own.  The hooks send packets of flows without
 * a connection entry, and packets with an entry if the core would only send
 * them.  The core gets the other packets and finds the entry, or makes an entry
 * with the server from ip_vs_mhs_ask_schedule().  Overview: ip_vs_mhs_decide.h.
 *
 * A packet in a stable slot allocates and locks nothing and writes only the
 * counters of its CPU; about once per pin time a packet sets the used mark.
 *
 * The hooks also see ICMP errors (ip_vs_mhs_icmp.c).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter_ipv4.h>
#include <net/ip.h>

#include "ip_vs_mhs_pkt.h"

/* Make an entry for an older flow, because the slot will merge (pin phase) or
 * the service will get another scheduler (stateless=0).
 */
static struct ip_vs_conn *hook_pin(const struct ip_vs_mhs_ask *q,
				   struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *cp;

	cp = ip_vs_mhs_entry_make(q, p, q->server->dest, MHS_CNT_PINNED);
	/* Not with stateless=0: a client that reads on may be silent longer */
	if (cp && !(q->facts & MHS_SVC_STATEFUL) &&
	    ip_vs_mhs_proto_is_last_ack(p, q->hash))
		ip_vs_mhs_entry_closes(cp);
	return cp;
}

/* How many entries may the service have?  Anybody can forge QUIC and plain UDP.
 * Older flows may have half as much again, whatever a flood of SYNs has made.
 */
static u32 hook_limit(const struct ip_vs_mhs_ask *q,
		      const struct ip_vs_mhs_packet *p, u32 act)
{
	const struct ip_vs_mhs_net *mn = q->mhs->net;
	u32 max = READ_ONCE(mn->max_entries);

	if (p->quic || (act == MHS_PIN && q->facts & MHS_PKT_CONNLESS))
		return READ_ONCE(mn->max_quic_entries);
	return act == MHS_NEW ? max : max + max / 2;
}

static struct ip_vs_conn *hook_entry(const struct ip_vs_mhs_ask *q,
				     struct ip_vs_mhs_packet *p, u32 act)
{
	struct ip_vs_conn *cp;

	if (act != MHS_REPLACE &&
	    !ip_vs_mhs_entry_reserve(q->mhs, hook_limit(q, p, act))) {
		ip_vs_mhs_count(q->mhs, MHS_CNT_CAPPED);
		return NULL;
	}
	if (act == MHS_PIN)
		return hook_pin(q, p);
	cp = ip_vs_mhs_entry_make(q, p, q->server->dest, MHS_CNT_NEW);
	if (cp && act == MHS_NEW)
		ip_vs_mhs_entry_claim(p, cp);
	return cp;
}

/* Decide about a packet without an entry, and carry out the verdict */
static unsigned int hook_act(struct ip_vs_mhs_ask *q,
			     struct ip_vs_mhs_packet *p)
{
	u32 v, act, stats = MHS_STAT_IN;
	struct ip_vs_conn *cp;

	for (;;) {
		v = ip_vs_mhs_ask(q);
		act = ip_vs_mhs_verdict_act(v);
		if (act <= MHS_FORWARD)
			break;
		cp = hook_entry(q, p, act);
		if (cp) {
			ip_vs_mhs_count_verdict(q->mhs, v);
			return ip_vs_mhs_entry_first(q->mhs, p, cp,
						     v & MHS_BEGINS ?
						     MHS_STAT_CONN : 0);
		}
		if (act == MHS_REPLACE)
			return NF_DROP;
		q->facts |= MHS_ASK_NO_ENTRY;
	}
	if (unlikely(v & (MHS_NOTES_FIN | MHS_CUTS | MHS_BEGINS))) {
		if (v & MHS_NOTES_FIN)
			ip_vs_mhs_proto_note_fin(p, q->hash);
		if (v & MHS_CUTS && !ip_vs_mhs_ask_cut(q))
			return NF_DROP;
		if (v & MHS_BEGINS)
			stats |= MHS_STAT_CONN;
	}
	ip_vs_mhs_count_verdict(q->mhs, v);
	if (act != MHS_FORWARD)
		return act == MHS_DROP ? NF_DROP : NF_ACCEPT;
	/* The decision saw a carrier, which may be replaced but never removed */
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
	ip_vs_mhs_ask_begin(&q, mhs, &p->iph.saddr, p->sport, facts);
	if (ip_vs_mhs_decide_looks(q.w, q.facts)) {
		switch (ip_vs_mhs_entry_handle(&q, p, &verdict)) {
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

/* Is the packet the reply of a server on this host to a flow with an entry?  As in
 * ip_vs_schedule() such a reply begins no flow.
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

/* Like the core, ignore packets of a socket with IP_NODEFRAG */
static bool hook_is_nodefrag(const struct ip_vs_mhs_packet *p)
{
	const struct sock *sk;

	if (likely(!ip_vs_mhs_is_local(p) || p->af != AF_INET))
		return false;
	sk = skb_to_full_sk(p->skb);
	return sk && sk->sk_family == PF_INET && ip_vs_mhs_nodefrag(sk);
}

/* Make AH or ESP a packet of its IKE flow; false if the core has no UDP */
static bool hook_parse_ipsec(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
{
	p->ipsec = p->pd;
	p->pd = ip_vs_proto_data_get(ipvs, IPPROTO_UDP);
	p->iph.protocol = IPPROTO_UDP;
	p->sport = MHS_IKE_PORT;
	p->dport = MHS_IKE_PORT;
	return p->pd && p->hook != NF_INET_FORWARD;
}

/* Parse the network and the transport header; false for later fragments */
static bool hook_parse(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
{
	bool v6 = p->af == AF_INET6;
	bool part;

	if (!ip_vs_fill_iph_skb(p->af, p->skb, false, &p->iph))
		return false;
	/* IPv6: a fragment in a fragment keeps its inner header.  With ports the
	 * core makes an entry for such a packet, so the packet is a request
	 * here, too.
	 */
	part = v6 ? p->iph.fragoffs : ip_is_fragment(ip_hdr(p->skb));
	if (part)
		return false;
	if (p->iph.protocol == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return true;
	p->pd = ip_vs_proto_data_get(ipvs, p->iph.protocol);
	if (p->pd && unlikely(ip_vs_mhs_is_ipsec(p->iph.protocol)))
		return hook_parse_ipsec(ipvs, p);
	return p->pd && ip_vs_mhs_proto_parse(p);
}

/* Clear all but iph, and set what the hook knows; hook_parse() sets the rest */
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

/* Repeat the core's checks, in its order: a packet sent here skips the core */
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
	/* The core gets packets before the first server.  Pairs with the
	 * release in ctl_add_dest(): whoever sees mhs->svc sees MHS_SETTLING.
	 */
	if (!mhs || !smp_load_acquire(&mhs->svc))
		return NF_ACCEPT;
	if (p.opens && hook_local_reply(ipvs, &p))
		return NF_ACCEPT;
	return hook_request(mhs, &p);
}

/* LOCAL_IN and LOCAL_OUT, which packets from IPVS pass again.  @priv: struct
 * ip_vs_mhs_net of the namespace
 */
static unsigned int hook_in(void *priv, struct sk_buff *skb,
			    const struct nf_hook_state *state)
{
	return skb->ipvs_property ? NF_ACCEPT : hook_packet_in(priv, skb, state);
}

/* Is the packet ICMP?  Errors from routers have no extension headers. */
static bool hook_is_icmp(const struct sk_buff *skb, u8 pf)
{
	return pf == NFPROTO_IPV6 ? ipv6_hdr(skb)->nexthdr == IPPROTO_ICMPV6 :
				    ip_hdr(skb)->protocol == IPPROTO_ICMP;
}

/* FORWARD: ICMP errors about flows of services by firewall mark */
static unsigned int hook_forward(void *priv, struct sk_buff *skb,
				 const struct nf_hook_state *state)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct ip_vs_mhs_packet p;

	if (skb->ipvs_property || !skb_dst(skb) || !READ_ONCE(ipvs->enable) ||
	    !hook_is_icmp(skb, state->pf))
		return NF_ACCEPT;
	hook_packet(&p, priv, skb, state);
	if (!hook_parse(ipvs, &p) || p.pd)
		return NF_ACCEPT;
	return ip_vs_mhs_icmp(ipvs, &p);
}

/* All hooks run before the core's.  LOCAL_IN: the core is at NF_IP_PRI_NAT_SRC
 * - 2 and - 1.  LOCAL_OUT: NAT is at NF_IP_PRI_NAT_DST, the core at + 1 and
 * + 2.  Of two hooks with one priority the younger runs first, and the core's
 * hooks are older: the core registers its hooks before it calls init_service().
 * FORWARD: the core is at 99 and 100.
 */
static const struct nf_hook_ops hook_ops[MHS_HOOKS] = {
	{ .hook = hook_in, .hooknum = NF_INET_LOCAL_IN,
	  .priority = NF_IP_PRI_NAT_SRC - 3 },
	{ .hook = hook_in, .hooknum = NF_INET_LOCAL_OUT,
	  .priority = NF_IP_PRI_NAT_DST + 1 },
	{ .hook = hook_forward, .hooknum = NF_INET_FORWARD, .priority = 98 },
};

/* Register @n hooks of a family from @first on, with @mn as priv */
static int hook_register(struct ip_vs_mhs_net *mn, bool v6, u32 first, u32 n)
{
	struct nf_hook_ops *ops = &mn->ops[v6][first];
	u32 i;

	/* the priorities of IPv6 are those of IPv4 */
	memcpy(ops, hook_ops + first, n * sizeof(*ops));
	for (i = 0; i < n; i++) {
		ops[i].pf = v6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
		ops[i].priv = mn;
	}
	return nf_register_net_hooks(mn->net, ops, n);
}

static void hook_forward_unregister(struct ip_vs_mhs_net *mn, bool v6)
{
	nf_unregister_net_hooks(mn->net, &mn->ops[v6][MHS_HOOKS_IN],
				MHS_HOOKS - MHS_HOOKS_IN);
}

/**
 * ip_vs_mhs_hook_get() - register the hooks that a service needs from its start
 * @mn: the namespace
 * @mhs: the service
 *
 * An ICMP error about a flow of a service by firewall mark may arrive in FORWARD.
 * All routed packets pay for that hook, so it is registered only while used.
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
	if (mhs->fwmark && !mn->forward[v6]) {
		err = hook_register(mn, v6, MHS_HOOKS_IN,
				    MHS_HOOKS - MHS_HOOKS_IN);
		if (err)
			return err;
	}
	if (mhs->hashed && !mn->hooks[v6]) {
		err = hook_register(mn, v6, 0, MHS_HOOKS_IN);
		if (err)
			goto exit_forward;
	}
	mn->forward[v6] += !!mhs->fwmark;
	mn->hooks[v6] += mhs->hashed;
	return 0;

exit_forward:
	if (mhs->fwmark && !mn->forward[v6])
		hook_forward_unregister(mn, v6);
	return err;
}

/**
 * ip_vs_mhs_hook_put() - unregister the hooks that no other service needs
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
	if (mhs->fwmark && !--mn->forward[v6])
		hook_forward_unregister(mn, v6);
}
