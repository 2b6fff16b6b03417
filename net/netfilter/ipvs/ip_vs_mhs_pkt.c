// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the packet path.
 *
 * The hooks stand in front of the core's own.  They send the packets of
 * flows that need no connection entry, and those of entries as far as sending
 * is all there is to do.  The rest they pass to the core, which then finds the
 * entry or makes one with the server that ip_vs_mhs_schedule() names:
 *
 *	packet to a service of ours
 *	  |
 *	  |-- tracked slot, and it has an entry --------> sent here, where the
 *	  |                                               core would do no more,
 *	  |                                               else core (or, server
 *	  |                                               deleted: carrier)
 *	  |-- the table is not final: new flow ---------> core, entry
 *	  |                           older flow -------> dropped, sent again
 *	  |-- stable slot ------------------------------> carrier, candidate
 *	  |-- unstable slot, new flow ------------------> entry, candidate
 *	  |                  older flow, hold ----------> carrier, old server
 *	  |                  older flow, pin -----------> entry, old server
 *	  |                  plain UDP, hold -----------> carrier, old server
 *	  |                             else -----------> carrier, candidate
 *	  '-- no server --------------------------------> core
 *
 * On the way of a stable slot nothing is allocated, locked or written but
 * the CPU's own counters; the first packet of a slot in a pin time sets its
 * "used" mark.
 *
 * A flow that was sent without an entry is never handed to the core while
 * there is a server for it: the core would pass a packet in mid-flow to the
 * local stack, which resets the connection.  Stepping aside, for the sake of
 * persistence, a threshold or a mark, is for new flows only.
 *
 * With net.ipv4.vs.mhs.stateless=0 every slot makes entries as an unstable one in
 * the pin phase, plain UDP included.
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

/* Older flows of these servers are held, then cut */
#define MHS_SRV_NO_PIN	(MHS_SRV_GONE | MHS_SRV_STATEFUL | MHS_SRV_FROZEN)

/**
 * ip_vs_mhs_send() - send a packet to the server of a carrier
 * @carrier: the carrier
 * @p: a request
 *
 * Context: softirq or process, under RCU.
 * Return: the verdict of the hook.
 */
unsigned int ip_vs_mhs_send(struct ip_vs_conn *carrier,
			    struct ip_vs_mhs_packet *p)
{
	if (IP_VS_FWD_METHOD(carrier) == IP_VS_CONN_F_MASQ)
		ip_vs_mhs_request(p->skb, p->af, &p->iph);
	return carrier->packet_xmit(p->skb, carrier, p->pd->pp, &p->iph);
}

/* Send a packet that has been counted among those of its kind */
static unsigned int mhs_xmit_counted(struct ip_vs_mhs *mhs,
				     struct ip_vs_conn *carrier,
				     struct ip_vs_mhs_packet *p)
{
	ip_vs_mhs_stats(mhs, carrier->dest, p->skb,
			p->fresh ? MHS_STAT_IN | MHS_STAT_CONN : MHS_STAT_IN);
	return ip_vs_mhs_send(carrier, p);
}

static unsigned int mhs_xmit(struct ip_vs_mhs *mhs, struct ip_vs_conn *carrier,
			     struct ip_vs_mhs_packet *p,
			     enum ip_vs_mhs_cnt kind)
{
	ip_vs_mhs_count(mhs, kind);
	return mhs_xmit_counted(mhs, carrier, p);
}

/* A new flow that gets an entry from the core.  Persistence may take the
 * server from a template and never ask schedule(): the slot is marked here.
 */
static unsigned int mhs_to_core(u32 *slot)
{
	ip_vs_mhs_slot_track(slot);
	return NF_ACCEPT;
}

/* Must a new flow to @s have an entry?  To a masquerading server the flows of
 * this host itself do: their replies end here, where only an entry tells them
 * from those of a health check.
 */
static bool mhs_needs_entry(const struct ip_vs_mhs_server *s,
			    const struct ip_vs_mhs_packet *p)
{
	u32 state = READ_ONCE(s->state);

	return state & MHS_SRV_TRACKED ||
	       (state & MHS_SRV_NAT && ip_vs_mhs_is_local(p));
}

/* A slot whose old server is deleted goes to the candidate now: without entries
 * one of the two has to lose its flows, and that server may be dead.  Not if
 * control has changed the slot meanwhile.
 */
static bool mhs_slot_cut(u32 *slot, u32 w)
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

/* A new flow in an unstable slot gets an entry.  The core would make it too,
 * but drop the packet if it cannot.  Without one, above the limit or for want
 * of memory, the flow goes where its next packets will go.
 */
static unsigned int mhs_in_new(struct ip_vs_mhs *mhs,
			       struct ip_vs_mhs_packet *p, u32 *slot, u32 w)
{
	u32 idx = ip_vs_mhs_slot_cand(w);
	struct ip_vs_conn *carrier, *cp;
	struct ip_vs_mhs_server *s;

	s = idx ? ip_vs_mhs_pick(mhs, slot, idx, ip_vs_mhs_flags(mhs)) : NULL;
	if (!s)
		return NF_ACCEPT;	/* the core says so to the client */
	if (!p->sport)
		return NF_DROP;		/* an entry would never be found */
	ip_vs_mhs_count(mhs, MHS_CNT_CAND);
	if (!ip_vs_mhs_may_track(mhs, p->quic)) {
		ip_vs_mhs_count(mhs, MHS_CNT_CAPPED);
	} else {
		cp = ip_vs_mhs_make_entry(mhs, p, slot, s->dest, MHS_CNT_NEW);
		if (cp)
			return ip_vs_mhs_entry_first(mhs, p, cp, MHS_STAT_CONN);
	}
	s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	if (!s || READ_ONCE(s->state) & MHS_SRV_GONE) {
		s = ip_vs_mhs_server(mhs, idx);
		if (!s || !(READ_ONCE(s->state) & MHS_SRV_IN) ||
		    !rcu_access_pointer(s->carrier) || mhs_needs_entry(s, p))
			return mhs_to_core(slot);
		if (!mhs_slot_cut(slot, w))
			return NF_DROP;	/* the client tries again */
	} else if (mhs_needs_entry(s, p)) {
		return mhs_to_core(slot);
	}
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (!carrier)
		return mhs_to_core(slot);
	return mhs_xmit_counted(mhs, carrier, p);
}

/* Pin an older flow: the slot is about to merge, or the service about to get
 * another scheduler
 */
static struct ip_vs_conn *mhs_pin(struct ip_vs_mhs *mhs,
				  struct ip_vs_mhs_packet *p, u32 *slot,
				  struct ip_vs_mhs_server *s)
{
	struct ip_vs_conn *cp;

	if (p->ends) {
		ip_vs_mhs_note_fin(p);
		return NULL;
	}
	/* the core would not find an entry of port 0 */
	if (!p->sport || READ_ONCE(s->state) & MHS_SRV_NO_PIN)
		return NULL;
	if (!ip_vs_mhs_may_track(mhs, p->quic || p->lone)) {
		ip_vs_mhs_count(mhs, MHS_CNT_CAPPED);
		return NULL;
	}
	cp = ip_vs_mhs_make_entry(mhs, p, slot, s->dest, MHS_CNT_PINNED);
	/* A client that reads on may be silent for longer when nothing merges */
	if (cp && !ip_vs_mhs_stateful(p) && ip_vs_mhs_is_last_ack(p))
		ip_vs_mhs_entry_closes(cp);
	return cp;
}

/* Plain UDP: nothing tells an older flow from a new one and a port for each
 * query makes every packet a flow, so there are no entries, unless all flows
 * are to have one.
 */
static unsigned int mhs_in_lone(struct ip_vs_mhs *mhs,
				struct ip_vs_mhs_packet *p, u32 *slot, u32 w)
{
	unsigned int flags = ip_vs_mhs_flags(mhs);
	enum ip_vs_mhs_cnt kind = MHS_CNT_STATELESS;
	struct ip_vs_conn *carrier, *cp;
	struct ip_vs_mhs_server *s;

	s = ip_vs_mhs_pick_lone(mhs, slot, w, flags);
	if (!s)
		return NF_ACCEPT;	/* the core says so to the client */
	if (!ip_vs_mhs_slot_stable(w))
		kind = s->idx == ip_vs_mhs_slot_old(w) ? MHS_CNT_OLD :
							 MHS_CNT_CAND;
	/* A table that is not final is none to stay with */
	if (ip_vs_mhs_stateful(p) && !(flags & IP_VS_SVC_F_ONEPACKET) &&
	    READ_ONCE(mhs->phase) != MHS_SETTLING) {
		cp = mhs_pin(mhs, p, slot, s);
		if (cp)
			return ip_vs_mhs_entry_first(mhs, p, cp,
						     MHS_STAT_CONN);
	}
	carrier = rcu_dereference(s->carrier);
	if (!carrier || mhs_needs_entry(s, p) ||
	    (READ_ONCE(s->state) & MHS_SRV_NAT && !ip_vs_mhs_slot_names(s, w))) {
		if (!p->left)
			return mhs_to_core(slot);
		/* the core would find the entry that was left; one for one
		 * packet cannot stand before it
		 */
		cp = flags & IP_VS_SVC_F_ONEPACKET ? NULL :
		     ip_vs_mhs_make_entry(mhs, p, slot, s->dest, MHS_CNT_NEW);
		if (!cp)
			return NF_DROP;
		return ip_vs_mhs_entry_first(mhs, p, cp, MHS_STAT_CONN);
	}
	/* like the core, which makes an entry for each */
	p->fresh = flags & IP_VS_SVC_F_ONEPACKET;
	return mhs_xmit(mhs, carrier, p, kind);
}

/* The packet has no entry: go by the table */
static unsigned int mhs_in_table(struct ip_vs_mhs *mhs,
				 struct ip_vs_mhs_packet *p, u32 *slot, u32 w)
{
	struct ip_vs_conn *carrier, *cp;
	struct ip_vs_mhs_server *s;
	bool stable, stateful;
	u32 state;

	w = ip_vs_mhs_slot_use(slot, w);
	if (p->lone)
		return mhs_in_lone(mhs, p, slot, w);
	stable = ip_vs_mhs_slot_stable(w);
	stateful = ip_vs_mhs_stateful(p);
	if ((!stable || stateful) && p->fresh)
		return mhs_in_new(mhs, p, slot, w);

	s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	if (!s)
		return NF_ACCEPT;
	state = READ_ONCE(s->state);
	carrier = rcu_dereference(s->carrier);
	if (p->fresh && (!carrier || !(state & MHS_SRV_IN) ||
			 mhs_needs_entry(s, p)))
		return mhs_to_core(slot);
	if (stateful || ip_vs_mhs_slot_pinning(w)) {
		cp = mhs_pin(mhs, p, slot, s);
		if (cp)
			return ip_vs_mhs_entry_first(mhs, p, cp, 0);
	}
	/* Flows that need an entry have one or are nobody's */
	if (state & MHS_SRV_STATEFUL ||
	    (state & MHS_SRV_NAT && ip_vs_mhs_is_local(p)))
		return NF_ACCEPT;
	if (!carrier)
		return NF_DROP;	/* no memory: sent again a moment later */
	return mhs_xmit(mhs, carrier, p,
			stable ? MHS_CNT_STATELESS : MHS_CNT_OLD);
}

/**
 * ip_vs_mhs_mark_unsure() - may a service that is not ours own the mark?
 * @mhs: the service that the packet is for otherwise
 * @mark: the packet's mark
 *
 * The core asks services by firewall mark first.  Where it does not count
 * them, our number of services and the core's differ for a moment while a
 * service comes or goes: only when they agreed in two looks, a second apart,
 * is nobody else's there.
 *
 * Context: softirq or process, under RCU.
 * Return: true if the core has to decide.
 */
bool ip_vs_mhs_mark_unsure(const struct ip_vs_mhs *mhs, u32 mark)
{
	struct ip_vs_mhs_net *mn = mhs->net;

	if (likely(!(mark & ~READ_ONCE(ip_vs_mhs_mark_ignore))) || mhs->fwmark)
		return false;
	if (READ_ONCE(mn->foreign))
		return true;
	if (!ip_vs_mhs_foreign(mhs->ipvs, READ_ONCE(mn->services),
			       READ_ONCE(mn->fwm_services)))
		return false;
	WRITE_ONCE(mn->foreign, true);
	return true;
}

static unsigned int mhs_in(struct ip_vs_mhs *mhs, struct ip_vs_mhs_packet *p)
{
	bool unsure = p->mark && ip_vs_mhs_mark_unsure(mhs, p->mark);
	bool settling, persistent;
	unsigned int verdict;
	u32 *slot, w;

	settling = ip_vs_mhs_settling(mhs);
	persistent = ip_vs_mhs_flags(mhs) & IP_VS_SVC_F_PERSISTENT;
	p->lone = ip_vs_mhs_is_lone(mhs, p->iph.protocol, p->dport);
	p->fresh &= !p->lone;
	slot = ip_vs_mhs_slot(mhs, &p->iph.saddr, p->sport);
	w = ip_vs_mhs_slot_read(slot);

	if ((ip_vs_mhs_slot_tracked(w) || settling || persistent || unsure ||
	     ip_vs_mhs_backup(mhs->ipvs)) &&
	    ip_vs_mhs_by_entry(mhs, p, slot, !persistent && !unsure, &verdict))
		return verdict;
	if ((p->fresh && settling) ||
	    ((p->fresh || p->lone) && (persistent || unsure)))
		return mhs_to_core(slot);
	if (persistent && !READ_ONCE(mhs->was_stateless))
		return NF_ACCEPT;
	/* Plain UDP is not sent again: the table as it stands must do */
	if (settling && !p->lone) {
		ip_vs_mhs_count(mhs, MHS_CNT_UNSETTLED);
		return NF_DROP;
	}
	return mhs_in_table(mhs, p, slot, w);
}

/* A packet that this host sends may be the reply of a server of its own to a
 * flow with an entry.
 */
static bool mhs_local_reply(struct netns_ipvs *ipvs,
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

/**
 * ip_vs_mhs_service() - the service that a packet is for, in the core's order
 * @p: the packet
 * @protocol: transport protocol, its own or of what an ICMP error quotes
 * @addr: the virtual address
 * @port: the virtual port
 *
 * Context: any, under RCU.
 * Return: the service, without a reference, or NULL.
 */
struct ip_vs_mhs *ip_vs_mhs_service(const struct ip_vs_mhs_packet *p,
				    u16 protocol,
				    const union nf_inet_addr *addr,
				    __be16 port)
{
	struct ip_vs_mhs *mhs = NULL;

	if (p->mark)
		mhs = ip_vs_mhs_find_fwm(p->net, p->af, p->mark);
	return mhs ? mhs : ip_vs_mhs_find(p->net, p->af, protocol, addr, port);
}

/* A raw socket that wants its packets in pieces is left alone, as by the core */
static bool mhs_is_nodefrag(const struct ip_vs_mhs_packet *p)
{
	const struct sock *sk;

	if (likely(!ip_vs_mhs_is_local(p) || p->af != AF_INET))
		return false;
	sk = skb_to_full_sk(p->skb);
	return sk && sk->sk_family == PF_INET && ip_vs_mhs_nodefrag(sk);
}

/* Network and transport header; later fragments have none of the latter */
static bool mhs_parse(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
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
	return p->pd && ip_vs_mhs_parse(p);
}

/* What follows the network header, which mhs_parse() fills */
static void mhs_packet(struct ip_vs_mhs_packet *p, struct ip_vs_mhs_net *mn,
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
static noinline unsigned int mhs_packet_in(struct ip_vs_mhs_net *mn,
					   struct sk_buff *skb,
					   const struct nf_hook_state *state)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct ip_vs_mhs_packet p;
	struct ip_vs_mhs *mhs;

	mhs_packet(&p, mn, skb, state);
	if ((skb->pkt_type != PACKET_HOST && !ip_vs_mhs_is_local(&p)) ||
	    !skb_dst(skb))
		return NF_ACCEPT;
	if (!READ_ONCE(ipvs->enable) || mhs_is_nodefrag(&p))
		return NF_ACCEPT;
	if (!mhs_parse(ipvs, &p))
		return NF_ACCEPT;
	if (!p.pd)
		return ip_vs_mhs_icmp(ipvs, &p);
	if (ip_vs_mhs_backup_only(ipvs))
		return NF_ACCEPT;
	if (p.iph.protocol == IPPROTO_TCP && p.sport == FTPDATA)
		return NF_ACCEPT;
	mhs = ip_vs_mhs_service(&p, p.iph.protocol, &p.iph.daddr, p.dport);
	/* Before the first server nothing is ours.  Pairs with the release in
	 * ip_vs_mhs_add_dest(): who sees it sees the service settling.
	 */
	if (!mhs || !smp_load_acquire(&mhs->svc))
		return NF_ACCEPT;
	if (p.opens && mhs_local_reply(ipvs, &p))
		return NF_ACCEPT;
	return mhs_in(mhs, &p);
}

/* LOCAL_IN and LOCAL_OUT: what IPVS sends comes by once more.  @priv: our part
 * of the namespace.
 */
static unsigned int mhs_hook_in(void *priv, struct sk_buff *skb,
				const struct nf_hook_state *state)
{
	return skb->ipvs_property ? NF_ACCEPT : mhs_packet_in(priv, skb, state);
}

/* Is it ICMP?  Errors of routers have no extension headers */
static bool mhs_is_icmp(const struct sk_buff *skb, u8 pf)
{
	return pf == NFPROTO_IPV6 ? ipv6_hdr(skb)->nexthdr == IPPROTO_ICMPV6 :
				    ip_hdr(skb)->protocol == IPPROTO_ICMP;
}

static noinline unsigned int
mhs_packet_forward(struct ip_vs_mhs_net *mn, struct sk_buff *skb,
		   const struct nf_hook_state *state, bool pairs)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct ip_vs_mhs_packet p;

	mhs_packet(&p, mn, skb, state);
	if (pairs && p.af == AF_INET && ip_is_fragment(ip_hdr(skb)) &&
	    ip_vs_mhs_gather(ipvs, skb))
		return NF_STOLEN;
	if (!mhs_parse(ipvs, &p))
		return NF_ACCEPT;
	if (!p.pd)
		return ip_vs_mhs_icmp(ipvs, &p);
	return ip_vs_mhs_reply(&p);
}

/* FORWARD: replies of masquerading servers, and ICMP errors */
static unsigned int mhs_hook_forward(void *priv, struct sk_buff *skb,
				     const struct nf_hook_state *state)
{
	bool pairs;

	if (skb->ipvs_property || !skb_dst(skb) ||
	    !READ_ONCE(net_ipvs(state->net)->enable))
		return NF_ACCEPT;
	pairs = ip_vs_mhs_pairs(priv, state->pf);
	if (!pairs && !mhs_is_icmp(skb, state->pf))
		return NF_ACCEPT;
	return mhs_packet_forward(priv, skb, state, pairs);
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
 * need (ip_vs_mhs_forward_get()): the core is at 99 and 100.
 */
const struct nf_hook_ops ip_vs_mhs_ops4[MHS_HOOKS] = {
	MHS_HOOK(mhs_hook_in, NFPROTO_IPV4, NF_INET_LOCAL_IN,
		 NF_IP_PRI_NAT_SRC - 3),
	MHS_HOOK(mhs_hook_in, NFPROTO_IPV4, NF_INET_LOCAL_OUT,
		 NF_IP_PRI_NAT_DST + 1),
	MHS_HOOK(mhs_hook_forward, NFPROTO_IPV4, NF_INET_FORWARD, 98),
};

const struct nf_hook_ops ip_vs_mhs_ops6[MHS_HOOKS] = {
	MHS_HOOK(mhs_hook_in, NFPROTO_IPV6, NF_INET_LOCAL_IN,
		 NF_IP6_PRI_NAT_SRC - 3),
	MHS_HOOK(mhs_hook_in, NFPROTO_IPV6, NF_INET_LOCAL_OUT,
		 NF_IP6_PRI_NAT_DST + 1),
	MHS_HOOK(mhs_hook_forward, NFPROTO_IPV6, NF_INET_FORWARD, 98),
};
