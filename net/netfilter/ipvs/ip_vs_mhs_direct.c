// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: clients that talk to a masquerading server
 * directly, past the service.
 *
 * The server's replies look like those of the service (ip_vs_mhs_nat.c).  When
 * the client's slot names the very server, or is about to, the first packet that
 * passes makes an entry that translates the server's address into itself, which
 * only ip_vs_mhs_reply_ours() looks at.
 *
 * What another director sends to a server of both, by way of this one, is no
 * different from what a client sends: that is what masq_stateless=0 is for.
 *
 * Anybody may send such a packet in the name of a client that has a flow by the
 * service, whose replies must be translated as before.  So with TCP the server
 * decides: the entry counts for nothing until a reply fits the numbers of the
 * client's packet.  The server of the other flow has other numbers, and does
 * not answer a SYN with SYN and ACK.  Other protocols have no such numbers:
 * there the entry lives as long as the client goes on.
 *
 * They are kept where the core has what a helper needs, as the core does not
 * handle these packets:
 *
 *	in_seq.init_seq			the client's sequence number
 *	in_seq.delta			it is that of a SYN
 *	in_seq.previous_delta		the bytes that came with the SYN
 *	out_seq.init_seq		the client's acknowledgment, or the one
 *					that is to follow a SYN and ACK
 *	out_seq.delta			MHS_ANSWERED_*
 *	out_seq.previous_delta		replies that did not fit
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/bits.h>
#include <linux/tcp.h>

#include "ip_vs_mhs_pkt.h"

/* How far the numbers of a reply may be from those of the client's packet: in
 * one direction much may be under way, but hardly in both.  A guess hits
 * both once in half a million times, and so many times an entry is asked.
 */
#define MHS_DIRECT_NEAR		BIT(16)
#define MHS_DIRECT_FAR		BIT(26)
#define MHS_DIRECT_MISFITS	16

#define MHS_ANSWERED_NOT	0
#define MHS_ANSWERED_SYN	1	/* by SYN and ACK, of which the client ... */
#define MHS_ANSWERED_YES	2	/* ... knows */

static u32 seq_distance(u32 a, u32 b)
{
	return min(a - b, b - a);
}

static const struct tcphdr *tcp_header(const struct sk_buff *skb,
				       const struct ip_vs_iphdr *iph,
				       struct tcphdr *_th)
{
	if (iph->protocol != IPPROTO_TCP)
		return NULL;
	return skb_header_pointer(skb, iph->len, sizeof(*_th), _th);
}

static void direct_note_syn(struct ip_vs_conn *cp,
			    const struct ip_vs_mhs_packet *p,
			    const struct tcphdr *th)
{
	unsigned int head = p->iph.len + 4 * th->doff;
	u32 seq = ntohl(th->seq);

	/* sent again, perhaps without its data */
	if (READ_ONCE(cp->in_seq.delta) &&
	    READ_ONCE(cp->in_seq.init_seq) == seq)
		return;
	WRITE_ONCE(cp->in_seq.previous_delta,
		   p->skb->len > head ? p->skb->len - head : 0);
	WRITE_ONCE(cp->in_seq.init_seq, seq);
	WRITE_ONCE(cp->in_seq.delta, 1);
	/* as a refusal has it */
	if (!READ_ONCE(cp->out_seq.delta))
		WRITE_ONCE(cp->out_seq.init_seq, 0);
}

/* A packet of the client: its numbers count until the server has answered, and
 * those of a SYN begin anew.
 */
static void direct_note(struct ip_vs_conn *cp, const struct ip_vs_mhs_packet *p)
{
	u32 answered = READ_ONCE(cp->out_seq.delta);
	const struct tcphdr *th;
	struct tcphdr _th;

	th = tcp_header(p->skb, &p->iph, &_th);
	if (!th)
		return;
	if (th->rst) {
		/* The client refuses what somebody began in its name */
		if (answered == MHS_ANSWERED_SYN)
			WRITE_ONCE(cp->out_seq.delta, MHS_ANSWERED_NOT);
	} else if (th->syn) {
		if (!th->ack)
			direct_note_syn(cp, p, th);
	} else if (answered == MHS_ANSWERED_SYN) {
		if (th->ack && ntohl(th->ack_seq) -
			       READ_ONCE(cp->out_seq.init_seq) < MHS_DIRECT_NEAR)
			WRITE_ONCE(cp->out_seq.delta, MHS_ANSWERED_YES);
	} else if (!answered) {
		WRITE_ONCE(cp->in_seq.init_seq, ntohl(th->seq));
		WRITE_ONCE(cp->in_seq.delta, 0);
		WRITE_ONCE(cp->out_seq.init_seq, ntohl(th->ack_seq));
	}
}

/* A SYN and ACK begins a flow: this one, or if it does not fit the client's SYN
 * another one between the same ports
 */
static bool direct_begins(struct ip_vs_conn *cp, const struct tcphdr *th)
{
	bool fits;

	if (!th->ack)
		return READ_ONCE(cp->out_seq.delta);
	fits = READ_ONCE(cp->in_seq.delta) &&
	       ntohl(th->ack_seq) - READ_ONCE(cp->in_seq.init_seq) - 1 <=
	       READ_ONCE(cp->in_seq.previous_delta);
	if (fits) {
		WRITE_ONCE(cp->out_seq.init_seq, ntohl(th->seq) + 1);
		WRITE_ONCE(cp->out_seq.previous_delta, 0);
	}
	WRITE_ONCE(cp->out_seq.delta,
		   fits ? MHS_ANSWERED_SYN : MHS_ANSWERED_NOT);
	return fits;
}

/* Is the server in this flow? */
static bool direct_answered(struct ip_vs_conn *cp, const struct sk_buff *skb,
			    const struct ip_vs_iphdr *iph)
{
	u32 misfits = READ_ONCE(cp->out_seq.previous_delta);
	const struct tcphdr *th;
	struct tcphdr _th;
	u32 seq, ack;
	bool fits;

	th = tcp_header(skb, iph, &_th);
	if (!th)
		return iph->protocol != IPPROTO_TCP;
	if (th->syn)
		return direct_begins(cp, th);
	if (READ_ONCE(cp->out_seq.delta))
		return true;
	if (misfits >= MHS_DIRECT_MISFITS)
		return false;
	seq = seq_distance(ntohl(th->seq), READ_ONCE(cp->out_seq.init_seq));
	ack = th->ack ? seq_distance(ntohl(th->ack_seq),
				     READ_ONCE(cp->in_seq.init_seq)) : seq;
	fits = min(seq, ack) < MHS_DIRECT_NEAR && max(seq, ack) < MHS_DIRECT_FAR;
	if (!fits)
		WRITE_ONCE(cp->out_seq.previous_delta, misfits + 1);
	else if (!th->rst)
		/* a reset may be what somebody else's packet got */
		WRITE_ONCE(cp->out_seq.delta, MHS_ANSWERED_YES);
	return fits;
}

/* Is an ICMP error about this flow?  It quotes the client, and of TCP as much
 * as its number.
 */
static bool direct_quoted(const struct ip_vs_conn *cp,
			  const struct sk_buff *skb,
			  const struct ip_vs_iphdr *iph)
{
	__be32 _ports_seq[2], *h;

	if (iph->protocol != IPPROTO_TCP || READ_ONCE(cp->out_seq.delta))
		return true;
	h = skb_header_pointer(skb, iph->len, sizeof(_ports_seq), _ports_seq);
	return h && seq_distance(ntohl(h[1]), READ_ONCE(cp->in_seq.init_seq)) <
		    MHS_DIRECT_NEAR;
}

/**
 * ip_vs_mhs_direct_open() - has the server yet to answer in a direct flow?
 * @cp: an entry
 *
 * Context: softirq or process, under RCU.
 * Return: true if @cp is of a direct flow and counts for nothing so far.
 */
bool ip_vs_mhs_direct_open(const struct ip_vs_conn *cp)
{
	return ip_vs_mhs_is_direct(cp) && cp->protocol == IPPROTO_TCP &&
	       !READ_ONCE(cp->out_seq.delta);
}

/* A packet of a direct flow restarts the timer of its entry.  The first one
 * in a period is counted, see ip_vs_mhs_direct().  Only the core's way counts
 * packets in the entry: here it has the time of the period.
 */
static void direct_put(struct ip_vs_mhs *mhs, struct ip_vs_conn *cp)
{
	int period = (int)READ_ONCE(mhs->track_tick);

	if (atomic_read(&cp->in_pkts) != period &&
	    atomic_xchg(&cp->in_pkts, period) != period)
		atomic_inc(&mhs->direct_seen);
	ip_vs_conn_put(cp);
}

/* Is a reply one that is not to shorten the life of an entry?  Of other protocols
 * than TCP none has a say in that.
 */
static bool direct_ends(const struct sk_buff *skb,
			const struct ip_vs_iphdr *iph)
{
	const struct tcphdr *th;
	struct tcphdr _th;

	th = tcp_header(skb, iph, &_th);
	return !th || ip_vs_mhs_tcp_ends(th);
}

/**
 * ip_vs_mhs_direct_reply() - does a reply belong to a direct flow?
 * @mhs: the service
 * @cp: the flow's entry, with a reference that is given back
 * @pd: transport protocol
 * @skb: the reply, or an ICMP error
 * @iph: header of the reply, or of the request that an ICMP error quotes
 * @ours: a flow by the service would be without an entry
 *
 * What belongs to it is left as it is and not seen by the core.
 *
 * Context: softirq or process, under RCU.
 * Return: false if it does, true if the service has to translate it.
 */
bool ip_vs_mhs_direct_reply(struct ip_vs_mhs *mhs, struct ip_vs_conn *cp,
			    struct ip_vs_proto_data *pd, struct sk_buff *skb,
			    const struct ip_vs_iphdr *iph, bool ours)
{
	bool direct = ip_vs_iph_icmp(iph) ? direct_quoted(cp, skb, iph) :
					    direct_answered(cp, skb, iph);

	if (!direct && ours) {
		__ip_vs_conn_put(cp);
		return true;
	}
	skb->ipvs_property = 1;
	/* The server's part in the flow: else secure_tcp has it half open */
	if (direct && !ip_vs_iph_icmp(iph) && !direct_ends(skb, iph) &&
	    ip_vs_mhs_state_reads(cp->af, iph->len))
		ip_vs_mhs_set_state(cp, IP_VS_DIR_OUTPUT, skb, pd, iph->len);
	/* Replies alone must not keep what may be of somebody else alive */
	if (iph->protocol == IPPROTO_TCP)
		direct_put(mhs, cp);
	else
		__ip_vs_conn_put(cp);
	return false;
}

/* Has the client a flow by the service, from the same port, with an entry? */
static bool direct_taken(const struct ip_vs_mhs *mhs,
			 const struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	ip_vs_conn_fill_param(mhs->ipvs, p->af, p->iph.protocol,
			      &p->iph.daddr, p->dport, &p->iph.saddr, p->sport,
			      &param);
	cp = ip_vs_conn_out_get(&param);
	if (cp)
		__ip_vs_conn_put(cp);
	return cp;
}

/* Is it what another server sends to a client, which is a server itself?  The
 * core translates it, by an entry that any service may have made.
 */
static bool direct_is_reply(const struct ip_vs_mhs *mhs,
			    const struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *cp;

	cp = p->pd->pp->conn_out_get(mhs->ipvs, p->af, p->skb, &p->iph);
	if (cp)
		__ip_vs_conn_put(cp);
	return cp;
}

/* A new entry that leaves the packets of a direct flow as they are.  It
 * belongs to no server, and conntrack's flow is the client's own.
 */
static struct ip_vs_conn *direct_new(struct ip_vs_mhs *mhs,
				     const struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	ip_vs_conn_fill_param(mhs->ipvs, p->af, p->iph.protocol,
			      &p->iph.saddr, p->sport, &p->iph.daddr, p->dport,
			      &param);
	cp = ip_vs_conn_new(&param, p->af, &p->iph.daddr, p->dport,
			    IP_VS_CONN_F_MASQ, NULL, 0);
	if (!cp)
		return NULL;
	spin_lock_bh(&cp->lock);
	/* other packets of the flow may have found it */
	WRITE_ONCE(cp->flags, cp->flags & ~IP_VS_CONN_F_NFCT);
	spin_unlock_bh(&cp->lock);
	return cp;
}

/* The same, if there may be one, and the slot says that there is */
static struct ip_vs_conn *direct_make(const struct ip_vs_mhs_server *s,
				      const struct ip_vs_mhs_packet *p,
				      u32 *slot, u32 w)
{
	struct ip_vs_mhs *mhs = s->mhs;
	struct ip_vs_conn *cp;

	/* the core finds no entry of port 0 */
	if (p->ends || !p->sport)
		return NULL;
	/* never more than one a CPU above it */
	if (atomic_read(&mhs->direct) >=
	    (int)READ_ONCE(mhs->net->max_quic_entries)) {
		ip_vs_mhs_count(mhs, MHS_CNT_CAPPED);
		return NULL;
	}
	if (direct_is_reply(mhs, p) ||
	    (ip_vs_mhs_reply_unsure(s, w) && direct_taken(mhs, p)))
		return NULL;
	atomic_inc(&mhs->direct);
	/* Before the entry exists: a reply that could find it looks for it */
	ip_vs_mhs_slot_track(slot);
	cp = direct_new(mhs, p);
	ip_vs_mhs_count(mhs, cp ? MHS_CNT_DIRECT : MHS_CNT_NOMEM);
	if (!cp)
		atomic_dec(&mhs->direct);
	return cp;
}

/**
 * ip_vs_mhs_direct() - see a packet to a server's own address pass
 * @ipvs: the namespace
 * @p: the packet, in FORWARD or LOCAL_IN, no request of a service
 *
 * If the client's slot names the server, the replies would be translated, and
 * if it is about to, later: make an entry that says otherwise.  With TCP, whose
 * numbers tell the next flow of these ports, no RST or FIN cuts its life short:
 * anybody may have sent it.  No server counts these entries.  So mhs.direct
 * does: those with a packet in the last period, which is as long as an idle one
 * lives, and all that were made since.
 *
 * Context: softirq or process, under RCU.
 */
void ip_vs_mhs_direct(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
{
	struct ip_vs_mhs_server *s;
	struct ip_vs_conn *cp;
	struct ip_vs_mhs *mhs;
	u32 *slot, w;

	s = ip_vs_mhs_pair_find(ip_vs_mhs_hash(p->net), p->af, p->iph.protocol,
				&p->iph.daddr, p->dport);
	if (!s)
		return;
	mhs = s->mhs;
	if (p->hook == NF_INET_LOCAL_IN && ip_vs_mhs_mark_unsure(mhs, p->mark))
		return;
	slot = ip_vs_mhs_slot(mhs, &p->iph.saddr, p->sport);
	w = ip_vs_mhs_slot_read(slot);
	if (ip_vs_mhs_slot_old(w) != s->idx && ip_vs_mhs_slot_cand(w) != s->idx)
		return;
	cp = NULL;
	if (ip_vs_mhs_slot_tracked(w))
		cp = ip_vs_conn_in_get_proto(ipvs, p->af, p->skb, &p->iph);
	if (cp && !ip_vs_mhs_is_direct(cp)) {
		/* another service's, on the director itself */
		__ip_vs_conn_put(cp);
		return;
	}
	if (cp)
		ip_vs_mhs_slot_track(slot);
	else
		cp = direct_make(s, p, slot, w);
	if (!cp)
		return;
	direct_note(cp, p);
	if ((!p->ends && ip_vs_mhs_state_reads(p->af, p->iph.len)) ||
	    p->iph.protocol != IPPROTO_TCP)
		ip_vs_mhs_set_state(cp, IP_VS_DIR_INPUT, p->skb, p->pd,
				    p->iph.len);
	direct_put(mhs, cp);
	/* The core would find the entry and take the packet for its own */
	p->skb->ipvs_property = 1;
}
