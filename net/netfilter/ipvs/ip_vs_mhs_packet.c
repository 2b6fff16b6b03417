// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the way of a packet, from the bottom of this file
 * up.
 *
 *	packet_in(), packet_out()	netfilter hooks, before the core's own
 *	packet_checked()
 *	  packet_parse()	network and transport header: a struct mhs_packet
 *	  mhs_svc_find()	the virtual service, by mark or address and port
 *	  packet_local_reply()	of a server on this host?
 *	  packet_request()
 *	    packet_question()	facts, and the word of the client's slot
 *	    packet_by_id()	QUIC: the server that a connection ID names
 *	    mhs_entry_handle()	a packet with a connection entry
 *	    packet_act()	a packet without
 *	      mhs_packet_decide()	where does it go?  See ip_vs_mhs_decide.h
 *	      mhs_entry_new()	make an entry, and send the packet by it, or
 *	      packet_send()	send the packet by the server's carrier
 *	  packet_error()	an ICMP error about such a packet
 *	    packet_error_tunnel()	quotes a packet to a server, in a tunnel
 *	    mhs_icmp_about()	quotes a packet to a client
 *	    packet_error_server()	packet_question(), mhs_packet_decide()
 *
 * Packets with an entry are sent here if the core would only send them.  A packet
 * in a stable slot allocates and locks nothing and writes only the counters of its
 * CPU.
 */
#include <linux/moduleparam.h>
#include <linux/netfilter_ipv4.h>
#include <linux/sctp.h>
#include <linux/udp.h>
#include <net/ip.h>

#include "ip_vs_mhs.h"

static unsigned short quic_ports[16] __read_mostly = { 443 };
static unsigned int quic_ports_n __read_mostly = 1;
module_param_array(quic_ports, ushort, &quic_ports_n, 0444);
MODULE_PARM_DESC(quic_ports, "UDP ports that are QUIC, at most 16; 0: none (default 443)");

static unsigned short stay_ports[16] __read_mostly;
static unsigned int stay_ports_n __read_mostly;
module_param_array(stay_ports, ushort, &stay_ports_n, 0444);
MODULE_PARM_DESC(stay_ports, "UDP ports whose flows stay in a change, at most 16 (default none)");

static bool packet_port_in(const unsigned short *ports, unsigned int n, __be16 port)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (ntohs(port) == ports[i])
			return true;
	return false;
}

bool mhs_packet_is_quic(__be16 port)
{
	return packet_port_in(quic_ports, quic_ports_n, port);
}

static void packet_sctp(struct mhs_packet *p)
{
	const struct sctp_chunkhdr *ch;
	struct sctp_chunkhdr _ch;

	ch = skb_header_pointer(p->skb, p->iph.len + sizeof(struct sctphdr),
				sizeof(_ch), &_ch);
	if (!ch)
		return;
	switch (ch->type) {
	case SCTP_CID_INIT:
		p->facts = MHS_PKT_NEW;
		break;
	case SCTP_CID_COOKIE_ECHO:
		p->facts = MHS_PKT_ANSWERS;
		break;
	case SCTP_CID_ABORT:
	case SCTP_CID_SHUTDOWN:
	case SCTP_CID_SHUTDOWN_ACK:
	case SCTP_CID_SHUTDOWN_COMPLETE:
		p->facts = MHS_PKT_ENDS;
		break;
	}
}

static void packet_quic(struct mhs_packet *p)
{
	unsigned int at = p->iph.len + sizeof(struct udphdr);
	const struct mhs_quic *h;
	struct mhs_quic _h;

	p->quic = true;
	h = skb_header_pointer(p->skb, at, sizeof(_h), &_h);
	p->facts = h ? mhs_quic_facts(h, p->skb->len - at) : MHS_PKT_CONNLESS;
}

/* Parse TCP, UDP or SCTP, but no later fragment; false if it is too short */
bool mhs_packet_transport(struct mhs_packet *p)
{
	const union {
		struct tcphdr	tcp;
		__be16		port[2];
	} *h;
	bool tcp = p->iph.protocol == IPPROTO_TCP;
	struct tcphdr _h;

	h = skb_header_pointer(p->skb, p->iph.len,
			       tcp ? sizeof(h->tcp) : sizeof(h->port), &_h);
	if (!h)
		return false;
	p->sport = h->port[0];
	p->dport = h->port[1];
	p->maybe_reply = true;
	if (tcp) {
		p->maybe_reply = h->tcp.syn;
		p->facts = mhs_tcp_facts(&h->tcp);
	} else if (p->iph.protocol == IPPROTO_SCTP) {
		packet_sctp(p);
	} else if (mhs_packet_is_quic(p->dport)) {
		packet_quic(p);
	}
	return true;
}

/* Parse the network and the transport header; false for later fragments.  AH or
 * ESP becomes a packet of its IKE flow.
 */
static bool packet_parse(struct netns_ipvs *ipvs, struct mhs_packet *p)
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
		return p->pd && mhs_packet_transport(p);
	p->ipsec = p->pd;
	p->pd = ip_vs_proto_data_get(ipvs, IPPROTO_UDP);
	p->iph.protocol = IPPROTO_UDP;
	p->sport = MHS_IKE_PORT;
	p->dport = MHS_IKE_PORT;
	return p->pd;
}

/* Facts of UDP to a port, beside those of a QUIC header.  MHS_PKT_CONNLESS: the first
 * packets of flows look like all others.  With -o all are, and none stays.
 */
static mhs_facts_t packet_udp_facts(const struct mhs *mhs, __be16 port,
				    mhs_facts_t facts)
{
	bool stays = packet_port_in(stay_ports, stay_ports_n, port);

	if (mhs_svc_flags(mhs) & MHS_SVC_ONE_PACKET)
		return MHS_PKT_CONNLESS;
	if (mhs_packet_is_quic(port) && !(facts & MHS_PKT_CONNLESS) &&
	    !(facts & MHS_PKT_ODD && stays))
		return 0;
	return stays ? MHS_PKT_CONNLESS | MHS_PKT_STAYS : MHS_PKT_CONNLESS;
}

/* Fill a question about a packet from @caddr, @cport to the port @vport of a service.
 * @facts: MHS_PKT_*, as far as the caller knows.  Under RCU.
 */
static __always_inline void
packet_question(struct mhs_question *q, struct mhs *mhs,
		const union nf_inet_addr *caddr, __be16 cport, u16 protocol,
		__be16 vport, mhs_facts_t facts)
{
	BUILD_BUG_ON(MHS_FACT(IP_VS_SVC_F_PERSISTENT) != MHS_SVC_PERSISTENT);
	BUILD_BUG_ON(MHS_FACT(IP_VS_SVC_F_ONEPACKET) != MHS_SVC_ONE_PACKET);
	BUILD_BUG_ON(MHS_FACT(IP_VS_SVC_F_SCHED1) != MHS_SVC_FALLBACK);

	if (protocol == IPPROTO_UDP)
		facts |= packet_udp_facts(mhs, vport, facts);
	if (facts & MHS_PKT_CONNLESS)
		facts &= ~MHS_PKT_NEW;
	/* Before the slot is read.  Pairs with the release in mhs_work(): a
	 * settled service has its final table.
	 */
	if (unlikely(smp_load_acquire(&mhs->settling)))
		facts |= MHS_SVC_SETTLING;
	facts |= mhs_svc_flags(mhs) & MHS_SVC_FLAGS;
	if (unlikely(READ_ONCE(mhs->ipvs->sync_state) & IP_VS_STATE_BACKUP))
		facts |= MHS_SVC_BACKUP;
	if (unlikely(!READ_ONCE(mhs->mn->stateless)))
		facts |= MHS_SVC_STATEFUL;
	q->mhs = mhs;
	q->facts = facts;
	q->slot = mhs_slot(mhs, caddr, cport);
	q->w = mhs_slot_read(q->slot);
}

/* The same, for the lane's packets */
void mhs_packet_question(struct mhs_question *q, struct mhs *mhs,
			 const union nf_inet_addr *caddr, __be16 cport,
			 u16 protocol, __be16 vport, mhs_facts_t facts)
{
	packet_question(q, mhs, caddr, cport, protocol, vport, facts);
}

/* Decide, and set q->server, without a reference.  Under RCU. */
mhs_verdict_t mhs_packet_decide(struct mhs_question *q)
{
	bool may_begin = q->facts & (MHS_PKT_NEW | MHS_PKT_CONNLESS);
	struct mhs_server *old, *cand;
	mhs_srv_t old_facts, cand_facts;
	mhs_verdict_t v;

	cand = mhs_server_at(q->mhs, mhs_slot_cand(q->w));
	cand_facts = mhs_server_facts(cand, may_begin);
	q->server = cand;
	if (likely(mhs_decide_is_quick(q->w, cand_facts, q->facts)))
		return mhs_verdict(MHS_FORWARD, MHS_CNT_STABLE,
				   q->facts & MHS_PKT_NEW ? MHS_CONN : 0);
	old = cand;
	old_facts = cand_facts;
	if (!mhs_slot_stable(q->w)) {
		old = mhs_server_at(q->mhs, mhs_slot_old(q->w));
		old_facts = mhs_server_facts(old, may_begin);
	}
	v = mhs_decide(q->w, old_facts, cand_facts, q->facts);
	if (unlikely(mhs_verdict_act(v) == MHS_SEARCH)) {
		cand = mhs_entry_search(q->mhs, q->slot);
		cand_facts = mhs_server_facts(cand, may_begin);
		v = mhs_decide(q->w, old_facts, cand_facts, q->facts | MHS_AGAIN_SEARCHED);
	}
	q->server = v & MHS_TO_CAND ? cand : old;
	if (unlikely(v & MHS_TRACKS))
		mhs_slot_track(q->slot);
	return v;
}

/* Carry out MHS_CUTS: make the slot stable.  Returns false if the slot has
 * changed since the decision, but for tracked bits, or changes just now.
 */
static bool packet_cut(const struct mhs_question *q)
{
	u32 w = READ_ONCE(*q->slot);

	return !((w ^ q->w) & ~MHS_TRACK) &&
	       try_cmpxchg(q->slot, &w,
			   mhs_slot_change(w, mhs_slot_cand(w), true, 0));
}

static unsigned int packet_send(const struct mhs *mhs,
				struct ip_vs_conn *carrier,
				struct mhs_packet *p, u32 stats)
{
	mhs_xmit_stats(mhs, carrier->dest, p->skb->len, stats);
	return carrier->packet_xmit(p->skb, carrier, p->pd->pp, &p->iph);
}

static unsigned int packet_act(struct mhs_question *q, struct mhs_packet *p)
{
	u32 stats = MHS_STAT_IN;
	enum mhs_act act;
	mhs_verdict_t v;
	unsigned int nf;

	for (;;) {
		v = mhs_packet_decide(q);
		act = mhs_verdict_act(v);
		if (act <= MHS_FORWARD)
			break;
		/* MHS_NEW or MHS_PIN: mhs_packet_decide() has searched */
		if (mhs_entry_new(q, p, v, &nf))
			return nf;
		q->facts |= MHS_AGAIN_NO_ENTRY;
	}
	if (unlikely(v & (MHS_CUTS | MHS_CONN))) {
		if (v & MHS_CUTS && !packet_cut(q))
			return NF_DROP;
		stats |= v & MHS_CONN ? MHS_STAT_CONN : 0;
	}
	mhs_count_verdict(q->mhs, v);
	/* The core makes no entry for AH and ESP */
	if (unlikely(p->ipsec) && act == MHS_CORE && q->server &&
	    rcu_access_pointer(q->server->carrier))
		act = MHS_FORWARD;
	if (act != MHS_FORWARD)
		return act == MHS_DROP ? NF_DROP : NF_ACCEPT;
	/* The decision saw a carrier, which may be replaced but never removed */
	return packet_send(q->mhs, rcu_dereference(q->server->carrier), p, stats);
}

/* The first octet of an ID says which configuration made it, but for 7: none */
#define ID_BITS_SHIFT		5

/* Under RCU or mhs.lock: the server, listed or gone, that alone has the ID, or NULL */
struct mhs_server *mhs_packet_id_server(const struct mhs *mhs, __be32 id)
{
	const union nf_inet_addr addr = { .ip = id };
	struct mhs_server *s, *found = NULL;
	const struct ip_vs_dest *dest;

	hash_for_each_possible_rcu(mhs->by_dest, s, node,
				   mhs_dest_bucket(mhs, AF_INET, &addr, mhs->port),
				   lockdep_is_held(&mhs->lock)) {
		dest = s->dest;
		if (mhs_dest_id(dest->af, &dest->addr) != id ||
		    (!mhs->fwmark && dest->port != mhs->port))
			continue;
		if (found)
			return NULL;
		found = s;
	}
	return found;
}

/* The server, with a carrier, that the connection ID of the packet @h names, or NULL.
 * @q gets MHS_PKT_NO_ID if the ID names none.  A Handshake or 1-RTT packet goes there,
 * whatever the tables say, and neither follows nor makes an entry.
 *
 * An ID may be forged: it chooses among the servers of the service, those of weight 0
 * and deleted ones that are not yet released included, and does nothing else.  A server
 * whose flows need entries is never named.
 */
struct mhs_server *mhs_packet_by_id(struct mhs_question *q, const u8 *h,
				    unsigned int bytes)
{
	const struct mhs_list_item *item = rcu_dereference(q->mhs->ids);
	__be32 id[MHS_QUIC_BLOCK / sizeof(__be32)];
	struct mhs_server *s = NULL;
	unsigned int at;

	if (!item || q->facts & MHS_PKT_CONNLESS)
		return NULL;
	at = mhs_quic_id(h, bytes, MHS_QUIC_UNKEYED);
	if (!at)
		return NULL;
	while (item && !(item->bits & BIT(h[at - 1] >> ID_BITS_SHIFT)))
		item = item->next;
	if (item && !item->keyed) {
		memcpy(id, h + at, sizeof(*id));
		s = mhs_packet_id_server(q->mhs, *id);
	} else if (item && mhs_quic_id(h, bytes, MHS_QUIC_BLOCK)) {
		aes_decrypt(&item->key, (u8 *)id, h + at);
		s = mhs_packet_id_server(q->mhs, *id);
	}
	if (!s)
		q->facts |= MHS_PKT_NO_ID;
	return mhs_decide_by_id(mhs_server_facts(s, false)) ? s : NULL;
}

static noinline bool packet_by_id(struct mhs_question *q, struct mhs_packet *p,
				  unsigned int *nf)
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
	s = mhs_packet_by_id(q, h, len);
	if (q->facts & MHS_PKT_NO_ID)
		mhs_count(q->mhs, MHS_CNT_NO_ID);
	if (!s)
		return false;
	mhs_count(q->mhs, MHS_CNT_BY_ID);
	*nf = packet_send(q->mhs, rcu_dereference(s->carrier), p, MHS_STAT_IN);
	return true;
}

/* The server of the flow that an ICMP error quotes, if it has no entry; NULL leaves
 * the error to the core
 */
static struct mhs_server *packet_error_server(struct mhs *mhs,
					      const struct mhs_packet *p,
					      const struct mhs_quote *e)
{
	struct mhs_question q;
	struct ip_vs_conn *cp;
	bool claim;

	/* Also if untracked: a service by firewall mark may own the flow */
	cp = e->pd->pp->conn_in_get(mhs->ipvs, p->af, p->skb, &e->quoted);
	if (cp) {
		/* no data flows in a handshake: about an older flow */
		claim = mhs_entry_is_claim(cp);
		__ip_vs_conn_put(cp);
		if (!claim)
			return NULL;
	}
	packet_question(&q, mhs, e->client, e->cport, e->quoted.protocol,
			e->vport, MHS_PKT_ERROR);
	return mhs_verdict_act(mhs_packet_decide(&q)) == MHS_FORWARD ?
	       q.server : NULL;
}

/* Services by mark to look at in a jiffy: errors may be forged */
#define FWMARK_LOOKS		1024

/* Handle an error about a tunnel packet to a server of a service by firewall mark.  A
 * walk that has begun is finished, however many services there are.
 */
static bool packet_error_fwmark(struct netns_ipvs *ipvs, struct mhs_packet *p,
				const struct mhs_tunnel *t, unsigned int *nf)
{
	u32 now = jiffies, looks = 0;
	struct mhs_net *mn = p->mn;
	struct mhs_server *s;
	bool handled = false;
	struct mhs *mhs;

	/* CPUs may lose each other's count: the bound is one of many */
	if (READ_ONCE(mn->fwmark_at) == now)
		looks = READ_ONCE(mn->fwmark_looks);
	/* Without such a service forged errors write nothing */
	if (looks >= FWMARK_LOOKS || hlist_empty(&mn->by_fwmark))
		return false;
	hlist_for_each_entry_rcu(mhs, &mn->by_fwmark, fwmark_node) {
		looks++;
		s = mhs_packet_id_server(mhs, t->outer.daddr);
		handled = s && mhs_icmp_tunnel_error(ipvs, p, s, t, nf);
		if (handled)
			break;
	}
	WRITE_ONCE(mn->fwmark_at, now);
	WRITE_ONCE(mn->fwmark_looks, looks);
	return handled;
}

/* Is it a router's error about a tunnel packet to a server?  Then handle it. */
static bool packet_error_tunnel(struct netns_ipvs *ipvs, struct mhs_packet *p,
				unsigned int *nf)
{
	struct mhs_tunnel t;
	struct mhs_server *s;
	struct mhs_quote e;
	struct mhs *mhs;

	if (!mhs_icmp_parse_tunnel(p, &t))
		return false;
	mhs = mhs_icmp_quoted(ipvs, p, t.inner, false, &e);
	if (!mhs)
		return packet_error_fwmark(ipvs, p, &t, nf);
	s = packet_error_server(mhs, p, &e);
	/* A connection ID or the second chance may have chosen another one */
	if ((rcu_access_pointer(mhs->ids) || READ_ONCE(mhs->chance)) &&
	    (!s || s->dest->addr.ip != t.outer.daddr))
		s = mhs_packet_id_server(mhs, t.outer.daddr);
	return s && mhs_icmp_tunnel_error(ipvs, p, s, &t, nf);
}

/* Handle ICMP to this host, not a fragment; NF_ACCEPT leaves it to the core */
static unsigned int packet_error(struct netns_ipvs *ipvs, struct mhs_packet *p)
{
	struct ip_vs_conn *carrier;
	struct mhs_server *s;
	unsigned int nf;
	struct mhs_quote e;
	struct mhs *mhs;

	if (p->af == AF_INET && packet_error_tunnel(ipvs, p, &nf))
		return nf;
	mhs = mhs_icmp_about(ipvs, p, &e);
	if (!mhs)
		return NF_ACCEPT;
	s = packet_error_server(mhs, p, &e);
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (!carrier)
		return NF_ACCEPT;
	mhs_count(mhs, MHS_CNT_ICMP);
	mhs_xmit_stats(mhs, s->dest, p->skb->len, MHS_STAT_IN);
	return carrier->packet_xmit(p->skb, carrier, e.pd->pp, &e.quoted);
}

static __always_inline unsigned int
packet_request(struct mhs *mhs, struct mhs_packet *p)
{
	unsigned int nf;
	struct mhs_question q;

	packet_question(&q, mhs, &p->iph.saddr, p->sport, p->iph.protocol,
			p->dport, p->facts);
	if (unlikely(!p->sport))
		q.facts |= MHS_PKT_NO_PORT;
	if (unlikely(p->quic) && rcu_access_pointer(mhs->ids) &&
	    packet_by_id(&q, p, &nf))
		return nf;
	if (mhs_decide_looks(q.w, q.facts) && mhs_entry_handle(&q, p, &nf))
		return nf;
	return packet_act(&q, p);
}

/* Is the packet the reply of a server on this host to a flow with an entry?  As in
 * ip_vs_schedule() such a reply begins no flow.
 */
static bool packet_local_reply(struct netns_ipvs *ipvs, struct mhs_packet *p)
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

/* Repeat the core's checks, in its order: a packet sent here skips the core */
static noinline unsigned int packet_checked(struct mhs_net *mn,
					    struct sk_buff *skb,
					    const struct nf_hook_state *state)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct mhs_packet p = {
		.skb = skb,
		.mn = mn,
		.af = state->pf,
	};
	bool local = state->hook == NF_INET_LOCAL_OUT;
	struct mhs *mhs = NULL;

	if ((skb->pkt_type != PACKET_HOST && !local) || !skb_dst(skb))
		return NF_ACCEPT;
	if (!READ_ONCE(ipvs->enable) || !packet_parse(ipvs, &p) ||
	    /* any value the sysctl had will do */
	    data_race(sysctl_backup_only(ipvs)))
		return NF_ACCEPT;
	/* An error of this host, if its address is local, comes in again */
	if (!p.pd)
		return local ? NF_ACCEPT : packet_error(ipvs, &p);
	if (p.iph.protocol == IPPROTO_TCP && p.sport == FTPDATA)
		return NF_ACCEPT;
	if (unlikely(skb->mark))
		mhs = mhs_svc_find_mark(mn, p.af, skb->mark);
	if (!mhs)
		mhs = mhs_svc_find(mn, p.af, p.iph.protocol, &p.iph.daddr,
				   p.dport);
	/* The core gets packets before the first server.  Pairs with the
	 * release in mhs_work_add_dest(): whoever sees mhs->svc sees the service settling.
	 */
	if (!mhs || !smp_load_acquire(&mhs->svc))
		return NF_ACCEPT;
	if (p.maybe_reply && packet_local_reply(ipvs, &p))
		return NF_ACCEPT;
	return packet_request(mhs, &p);
}

/* LOCAL_IN; packets from IPVS pass the hooks again */
static unsigned int packet_in(void *priv, struct sk_buff *skb,
			      const struct nf_hook_state *state)
{
	return skb->ipvs_property ? NF_ACCEPT : packet_checked(priv, skb, state);
}

/* The core leaves what raw sockets with IP_NODEFRAG send alone, too */
static unsigned int packet_out(void *priv, struct sk_buff *skb,
			       const struct nf_hook_state *state)
{
	const struct sock *sk;

	if (skb->ipvs_property)
		return NF_ACCEPT;
	sk = skb_to_full_sk(skb);
	if (sk && state->pf == NFPROTO_IPV4 && sk->sk_family == PF_INET &&
	    inet_test_bit(NODEFRAG, sk))
		return NF_ACCEPT;
	return packet_checked(priv, skb, state);
}

/* All hooks run before the core's.  LOCAL_IN: the core is at NF_IP_PRI_NAT_SRC
 * - 2 and - 1.  LOCAL_OUT: NAT is at NF_IP_PRI_NAT_DST, the core at + 1 and
 * + 2.  Of two hooks with one priority the younger runs first, and the core's
 * hooks are older: the core registers its hooks before it calls init_service().
 */
static const struct nf_hook_ops packet_ops[MHS_HOOKS] = {
	{ .hook = packet_in, .hooknum = NF_INET_LOCAL_IN,
	  .priority = NF_IP_PRI_NAT_SRC - 3 },
	{ .hook = packet_out, .hooknum = NF_INET_LOCAL_OUT,
	  .priority = NF_IP_PRI_NAT_DST + 1 },
};

int mhs_packet_hook(struct mhs_net *mn, const struct mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;
	struct nf_hook_ops *ops = mn->ops[v6];
	int i, err;

	lockdep_assert_held(&mn->lock);
	if (!mhs->hashed || mn->hooks[v6]++)
		return 0;
	/* the priorities of IPv6 are those of IPv4 */
	memcpy(ops, packet_ops, sizeof(packet_ops));
	for (i = 0; i < MHS_HOOKS; i++) {
		ops[i].pf = v6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
		ops[i].priv = mn;
	}
	err = nf_register_net_hooks(mn->net, ops, MHS_HOOKS);
	if (err)
		mn->hooks[v6] = 0;
	return err;
}

void mhs_packet_unhook(struct mhs_net *mn, const struct mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;

	lockdep_assert_held(&mn->lock);
	if (mhs->hashed && !--mn->hooks[v6])
		nf_unregister_net_hooks(mn->net, mn->ops[v6], MHS_HOOKS);
}
