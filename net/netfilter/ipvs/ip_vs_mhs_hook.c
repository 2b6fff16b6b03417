// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the netfilter hooks.
 *
 * The hooks run before the core's own.  They send packets of flows without a
 * connection entry, and packets with an entry if the core would only send them.
 * A packet in a stable slot allocates and locks nothing and writes only the
 * counters of its CPU.
 */
#include <linux/netfilter_ipv4.h>
#include <linux/udp.h>
#include <net/ip.h>

#include "ip_vs_mhs_pkt.h"

/* What one forged packet can make, of QUIC and of plain UDP that has left none,
 * has a limit of its own.  Older flows may have half as many entries again,
 * whatever a flood of SYNs has made.
 */
static struct ip_vs_conn *hook_entry(const struct mhs_ask *q,
				     struct mhs_packet *p, enum mhs_act act)
{
	const struct mhs_net *mn = q->mhs->net;
	u32 limit = READ_ONCE(mn->max_entries);

	if (p->quic || (act == MHS_PIN && q->facts & MHS_PKT_CONNLESS))
		limit = READ_ONCE(mn->max_quic_entries);
	else if (act == MHS_PIN)
		limit += limit / 2;
	if (!mhs_entry_reserve(q->mhs, limit,
			       act == MHS_NEW || q->facts & MHS_PKT_STAYS)) {
		mhs_count(q->mhs, MHS_CNT_CAPPED);
		return NULL;
	}
	return mhs_entry_make(q, p, q->server->dest, act == MHS_PIN ?
			      MHS_CNT_PINNED : MHS_CNT_NEW);
}

/* Decide about a packet without an entry, and carry out the verdict */
static unsigned int hook_act(struct mhs_ask *q, struct mhs_packet *p)
{
	u32 stats = MHS_STAT_IN;
	struct ip_vs_conn *cp;
	enum mhs_act act;
	mhs_verdict_t v;

	for (;;) {
		v = mhs_ask(q);
		act = mhs_verdict_act(v);
		if (act <= MHS_FORWARD)
			break;
		cp = hook_entry(q, p, act);
		if (cp) {
			mhs_count_verdict(q->mhs, v);
			return mhs_entry_first(q->mhs, p, cp, v & MHS_BEGINS ?
					       MHS_STAT_CONN : 0);
		}
		q->facts |= MHS_ASK_NO_ENTRY;
	}
	if (unlikely(v & (MHS_CUTS | MHS_BEGINS))) {
		if (v & MHS_CUTS && !mhs_ask_cut(q))
			return NF_DROP;
		stats |= v & MHS_BEGINS ? MHS_STAT_CONN : 0;
	}
	mhs_count_verdict(q->mhs, v);
	/* The core makes no entry for AH and ESP */
	if (unlikely(p->ipsec) && act == MHS_CORE && q->server &&
	    rcu_access_pointer(q->server->carrier))
		act = MHS_FORWARD;
	if (act != MHS_FORWARD)
		return act == MHS_DROP ? NF_DROP : NF_ACCEPT;
	/* The decision saw a carrier, which may be replaced but never removed */
	return mhs_xmit(q->mhs, rcu_dereference(q->server->carrier), p, stats);
}

/* Send a QUIC packet to the server that its connection ID names, if any */
static noinline bool hook_id(struct mhs_ask *q, struct mhs_packet *p,
			     unsigned int *verdict)
{
	unsigned int off = p->iph.len + sizeof(struct udphdr), len;
	u8 _h[MHS_QUIC_BYTES];
	struct mhs_server *s;
	const u8 *h;

	if (p->skb->len <= off)
		return false;
	len = min_t(unsigned int, p->skb->len - off, sizeof(_h));
	h = skb_header_pointer(p->skb, off, len, _h);
	if (!h)
		return false;
	s = mhs_cid_ask(q, h, len);
	if (q->facts & MHS_PKT_UNNAMED)
		mhs_count(q->mhs, MHS_CNT_UNNAMED);
	if (!s)
		return false;
	mhs_count(q->mhs, MHS_CNT_NAMED);
	*verdict = mhs_xmit(q->mhs, rcu_dereference(s->carrier), p,
			    MHS_STAT_IN);
	return true;
}

static __always_inline unsigned int
hook_request(struct mhs *mhs, struct mhs_packet *p)
{
	unsigned int verdict;
	mhs_facts_t facts = p->facts;
	struct mhs_ask q;

	if (p->iph.protocol == IPPROTO_UDP)
		facts |= mhs_proto_udp_facts(mhs, p->dport, facts);
	if (unlikely(!p->sport))
		facts |= MHS_PKT_NO_PORT;
	mhs_ask_begin(&q, mhs, &p->iph.saddr, p->sport, facts);
	if (unlikely(p->quic) && rcu_access_pointer(mhs->cid) &&
	    hook_id(&q, p, &verdict))
		return verdict;
	if (mhs_decide_looks(q.w, q.facts) && mhs_entry_handle(&q, p, &verdict))
		return verdict;
	return hook_act(&q, p);
}

/* Is the packet the reply of a server on this host to a flow with an entry?  As in
 * ip_vs_schedule() such a reply begins no flow.
 */
static bool hook_local_reply(struct netns_ipvs *ipvs, struct mhs_packet *p)
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

/* Parse the network and the transport header; false for later fragments.  AH or
 * ESP becomes a packet of its IKE flow.
 */
static bool hook_parse(struct netns_ipvs *ipvs, struct mhs_packet *p)
{
	bool v6 = p->af == AF_INET6;

	if (!ip_vs_fill_iph_skb(p->af, p->skb, false, &p->iph))
		return false;
	/* IPv6: a fragment in a fragment keeps its inner header.  With ports
	 * the core makes an entry for it, so it is a request here, too.
	 */
	if (v6 ? p->iph.fragoffs : ip_is_fragment(ip_hdr(p->skb)))
		return false;
	if (p->iph.protocol == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return true;
	p->pd = ip_vs_proto_data_get(ipvs, p->iph.protocol);
	if (!p->pd || likely(!mhs_is_ipsec(p->iph.protocol)))
		return p->pd && mhs_proto_parse(p);
	p->ipsec = p->pd;
	p->pd = ip_vs_proto_data_get(ipvs, IPPROTO_UDP);
	p->iph.protocol = IPPROTO_UDP;
	p->sport = MHS_IKE_PORT;
	p->dport = MHS_IKE_PORT;
	return p->pd;
}

/* Repeat the core's checks, in its order: a packet sent here skips the core */
static noinline unsigned int hook_packet_in(struct mhs_net *mn,
					    struct sk_buff *skb,
					    const struct nf_hook_state *state)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct mhs_packet p = {
		.skb = skb,
		.net = mn,
		.af = state->pf,
	};
	bool local = state->hook == NF_INET_LOCAL_OUT;
	struct mhs *mhs = NULL;

	if ((skb->pkt_type != PACKET_HOST && !local) || !skb_dst(skb))
		return NF_ACCEPT;
	if (!READ_ONCE(ipvs->enable) || !hook_parse(ipvs, &p) ||
	    mhs_sysctl(sysctl_backup_only(ipvs)))
		return NF_ACCEPT;
	/* An error of this host, if its address is local, comes in again */
	if (!p.pd)
		return local ? NF_ACCEPT : mhs_icmp(ipvs, &p);
	if (p.iph.protocol == IPPROTO_TCP && p.sport == FTPDATA)
		return NF_ACCEPT;
	if (unlikely(skb->mark))
		mhs = mhs_svc_find_mark(mn, p.af, skb->mark);
	if (!mhs)
		mhs = mhs_svc_find(mn, p.af, p.iph.protocol, &p.iph.daddr,
				   p.dport);
	/* The core gets packets before the first server.  Pairs with the
	 * release in ctl_add_dest(): whoever sees mhs->svc sees MHS_SETTLING.
	 */
	if (!mhs || !smp_load_acquire(&mhs->svc))
		return NF_ACCEPT;
	if (p.opens && hook_local_reply(ipvs, &p))
		return NF_ACCEPT;
	return hook_request(mhs, &p);
}

/* LOCAL_IN and LOCAL_OUT, which packets from IPVS pass again */
static unsigned int hook_in(void *priv, struct sk_buff *skb,
			    const struct nf_hook_state *state)
{
	return skb->ipvs_property ? NF_ACCEPT : hook_packet_in(priv, skb, state);
}

/* All hooks run before the core's.  LOCAL_IN: the core is at NF_IP_PRI_NAT_SRC
 * - 2 and - 1.  LOCAL_OUT: NAT is at NF_IP_PRI_NAT_DST, the core at + 1 and
 * + 2.  Of two hooks with one priority the younger runs first, and the core's
 * hooks are older: the core registers its hooks before it calls init_service().
 */
static const struct nf_hook_ops hook_ops[MHS_HOOKS] = {
	{ .hook = hook_in, .hooknum = NF_INET_LOCAL_IN,
	  .priority = NF_IP_PRI_NAT_SRC - 3 },
	{ .hook = hook_in, .hooknum = NF_INET_LOCAL_OUT,
	  .priority = NF_IP_PRI_NAT_DST + 1 },
};

int mhs_hook_get(struct mhs_net *mn, const struct mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;
	struct nf_hook_ops *ops = mn->ops[v6];
	int i, err;

	lockdep_assert_held(&mn->lock);
	if (!mhs->hashed || mn->hooks[v6]++)
		return 0;
	/* the priorities of IPv6 are those of IPv4 */
	memcpy(ops, hook_ops, sizeof(hook_ops));
	for (i = 0; i < MHS_HOOKS; i++) {
		ops[i].pf = v6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
		ops[i].priv = mn;
	}
	err = nf_register_net_hooks(mn->net, ops, MHS_HOOKS);
	if (err)
		mn->hooks[v6] = 0;
	return err;
}

void mhs_hook_put(struct mhs_net *mn, const struct mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;

	lockdep_assert_held(&mn->lock);
	if (mhs->hashed && !--mn->hooks[v6])
		nf_unregister_net_hooks(mn->net, mn->ops[v6], MHS_HOOKS);
}
