// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: connection entries and their limit */
#include "ip_vs_mhs_pkt.h"

/* May the service have one more entry, up to @limit?  If so, it counts as made;
 * net_work() finds the room that ended entries leave.  A flood may go to every
 * service: all together have a limit, too, a third of which is for older flows.
 */
bool mhs_entry_reserve(struct mhs *mhs, u32 limit, bool begins)
{
	int total = READ_ONCE(mhs->net->max_total_entries);
	u32 counted = READ_ONCE(mhs->counted);

	if (begins)
		total -= total / 3;
	if (atomic_read(&mhs->ipvs->conn_count) - READ_ONCE(mhs->net->others) >=
	    total)
		return false;
	/* The read keeps a flood above the limit from writing the cache line */
	return atomic_read(&mhs->made) + counted < limit &&
	       atomic_inc_return(&mhs->made) + counted <= limit;
}

/* May mhs send the packets of an entry, which saves the core a second lookup?
 * Only if the core would just send and count: not with conntrack, a master sync
 * daemon, a persistence template or a helper.
 */
static bool entry_is_plain(const struct mhs *mhs, const struct mhs_packet *p,
			   const struct ip_vs_conn *cp)
{
	u32 flags = READ_ONCE(cp->flags);
	u32 method = flags & IP_VS_CONN_F_FWD_MASK;

	return (method == IP_VS_CONN_F_DROUTE ||
		method == IP_VS_CONN_F_TUNNEL ||
		(method == IP_VS_CONN_F_MASQ && !READ_ONCE(cp->app) &&
		 !p->ipsec)) &&
	       !(flags & (IP_VS_CONN_F_NFCT | IP_VS_CONN_F_ONE_PACKET |
			  IP_VS_CONN_F_NO_CPORT)) &&
	       !READ_ONCE(cp->control) &&
	       !(READ_ONCE(mhs->ipvs->sync_state) & IP_VS_STATE_MASTER);
}

/* A SYN in an unstable slot makes an entry that is a claim: the flow may be an
 * older one whose addresses the SYN forges.  Until the handshake ends, packets
 * that do not continue the SYN belong to the older flow.
 *
 * The core zeroes delta, and uses in_seq and out_seq only with a helper or
 * IP_VS_CONN_F_SEQ_MASK.  A claim has neither:
 *	in_seq.delta		when the claim was made, odd; 0: no claim
 *	in_seq.previous_delta	sequence number of the first SYN
 *	in_seq.init_seq		sequence number of the latest SYN
 *	out_seq.delta		1: a packet of an older flow has come
 */
#define CLAIM_YOUNG	(5 * HZ)	/* a handshake, two packets lost */
#define CLAIM_TIMEOUT	(10 * HZ)	/* of a claim without traffic */
/* A client sends so much before the server answers, and no more than the end of
 * the handshake counts beside an older flow, whose numbers might meet the claim
 */
#define CLAIM_WINDOW	65537U
#define CLAIM_NARROW	1U
#define CLAIM_NOW	((u32)jiffies | 1)

/* With vs.conntrack the end of an entry deletes the conntrack of its addresses
 * and ports: clear NFCT to keep that conntrack.
 */
static void entry_clear_nfct(struct ip_vs_conn *cp)
{
	spin_lock_bh(&cp->lock);
	WRITE_ONCE(cp->flags, cp->flags & ~IP_VS_CONN_F_NFCT);
	spin_unlock_bh(&cp->lock);
}

/* Make the entry of a new flow a claim, if @p is a SYN.  Other CPUs may find
 * the entry before: they use it as one without a claim.
 */
static void claim_begin(const struct mhs_packet *p, struct ip_vs_conn *cp)
{
	const struct tcphdr *th;
	struct tcphdr _th;

	if (p->iph.protocol != IPPROTO_TCP || READ_ONCE(cp->app))
		return;
	th = skb_header_pointer(p->skb, p->iph.len, sizeof(_th), &_th);
	if (!th)
		return;
	/* A confirmed conntrack may be that of an older flow */
	if (READ_ONCE(cp->flags) & IP_VS_CONN_F_NFCT &&
	    ip_vs_conn_uses_old_conntrack(cp, p->skb))
		entry_clear_nfct(cp);
	WRITE_ONCE(cp->in_seq.previous_delta, ntohl(th->seq));
	WRITE_ONCE(cp->in_seq.init_seq, ntohl(th->seq));
	/* Pairs with claim_marked(): who sees the claim sees its numbers */
	smp_store_release(&cp->in_seq.delta, CLAIM_NOW);
}

/* Make an entry, with a reference; NULL without memory or room in the table */
struct ip_vs_conn *mhs_entry_make(const struct mhs_ask *q,
				  const struct mhs_packet *p,
				  struct ip_vs_dest *dest, enum mhs_cnt kind)
{
	const struct mhs *mhs = q->mhs;
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	/* Mark first: packets look for the entry only in a tracked slot */
	mhs_slot_track(q->slot);
	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, p->iph.protocol,
			      &p->iph.saddr, p->sport, &p->iph.daddr, p->dport,
			      &param);
	cp = ip_vs_conn_new(&param, dest->af, &dest->addr,
			    dest->port ? dest->port : p->dport, 0, dest,
			    p->skb->mark);
	mhs_count(mhs, cp ? kind : MHS_CNT_NOMEM);
	if (cp && kind == MHS_CNT_NEW)
		claim_begin(p, cp);
	return cp;
}

static bool claim_half_open(const struct ip_vs_conn *cp)
{
	u16 state = READ_ONCE(cp->state);

	/* SYNACK: after a SYN, with secure_tcp */
	return state == IP_VS_TCP_S_SYN_RECV || state == IP_VS_TCP_S_SYNACK ||
	       state == IP_VS_TCP_S_NONE;
}

static bool claim_marked(const struct ip_vs_conn *cp)
{
	if (cp->protocol != IPPROTO_TCP)
		return false;
	/* Pairs with the release in claim_begin() */
	return smp_load_acquire(&cp->in_seq.delta) && !READ_ONCE(cp->app) &&
	       !(READ_ONCE(cp->flags) & IP_VS_CONN_F_SEQ_MASK);
}

/* Is an entry a claim in its handshake? */
bool mhs_entry_is_claim(const struct ip_vs_conn *cp)
{
	return claim_marked(cp) && claim_half_open(cp);
}

/* Does a packet belong to an older flow, not to the claim?  Not if it continues
 * the first SYN or the latest: either may be forged.  The time of the claim
 * stays that of the first, or SYNs would keep the older flow from its entry for
 * good.
 */
static bool claim_refuses(const struct mhs_packet *p, struct ip_vs_conn *cp)
{
	const struct tcphdr *th;
	struct tcphdr _th;
	u32 seq, window;

	if (likely(!claim_marked(cp)))
		return false;
	if (!claim_half_open(cp)) {
		WRITE_ONCE(cp->out_seq.delta, 0);
		WRITE_ONCE(cp->in_seq.delta, 0);
		return false;
	}
	th = skb_header_pointer(p->skb, p->iph.len, sizeof(_th), &_th);
	if (!th)
		return false;
	seq = ntohl(th->seq);
	window = READ_ONCE(cp->out_seq.delta) ? CLAIM_NARROW : CLAIM_WINDOW;
	if (seq - READ_ONCE(cp->in_seq.previous_delta) <= window ||
	    seq - READ_ONCE(cp->in_seq.init_seq) <= window)
		return false;
	if (p->facts & MHS_PKT_FRESH) {
		WRITE_ONCE(cp->in_seq.init_seq, seq);
		return false;
	}
	WRITE_ONCE(cp->out_seq.delta, 1);
	return true;
}

/* A claim ends soon, as a flood of SYNs makes many; set_state() of the next
 * packet gives an established flow the timeout of its state.
 */
static void claim_shorten(struct ip_vs_conn *cp)
{
	if (likely(!mhs_entry_is_claim(cp)))
		return;
	spin_lock_bh(&cp->lock);
	if (cp->timeout > CLAIM_TIMEOUT && mhs_entry_is_claim(cp))
		cp->timeout = CLAIM_TIMEOUT;
	spin_unlock_bh(&cp->lock);
}

/* May an entry end though its flow lives?  The packets of UDP that is to stay need
 * none where the slot leads to the server of the entry.
 */
static bool entry_may_end(const struct mhs_ask *q, const struct ip_vs_conn *cp)
{
	const struct mhs_server *s;

	if (!(q->facts & MHS_PKT_STAYS) || q->facts & MHS_SVC_STATEFUL ||
	    !mhs_slot_stable(q->w))
		return false;
	s = mhs_server_at(q->mhs, mhs_slot_cand(q->w));
	return s && s->dest == READ_ONCE(cp->dest) &&
	       READ_ONCE(s->state) == MHS_SRV_IN;
}

/* Send the packet by @by, the entry or a carrier, and put the entry, whose
 * timer restarts if @renew.  packet_xmit is NULL for a moment while the sync
 * daemon is in ip_vs_try_bind_dest(): the core gets the packet.
 */
static unsigned int entry_send(struct mhs *mhs, struct mhs_packet *p,
			       struct ip_vs_conn *cp, struct ip_vs_conn *by,
			       u32 stats, bool renew)
{
	typeof(by->packet_xmit) xmit = READ_ONCE(by->packet_xmit);
	unsigned int verdict;

	if (unlikely(!xmit)) {
		__ip_vs_conn_put(cp);
		return NF_ACCEPT;
	}
	mhs_xmit_stats(mhs, by->dest, p->skb->len, stats);
	mhs_set_state(cp, p->skb, p->pd, p->iph.len);
	claim_shorten(cp);
	verdict = xmit(p->skb, by, p->pd->pp, &p->iph);
	/* A sync daemon that starts later reads in_pkts */
	atomic_inc(&cp->in_pkts);
	if (renew)
		ip_vs_conn_put(cp);
	else
		__ip_vs_conn_put(cp);
	return verdict;
}

/* Send an entry's first packet and put the entry; the core counts no @stats */
unsigned int mhs_entry_first(struct mhs *mhs, struct mhs_packet *p,
			     struct ip_vs_conn *cp, u32 stats)
{
	if (entry_is_plain(mhs, p, cp))
		return entry_send(mhs, p, cp, cp, stats | MHS_STAT_IN, true);
	if (stats)
		mhs_xmit_stats(mhs, cp->dest, p->skb->len, stats);
	ip_vs_conn_put(cp);
	return NF_ACCEPT;
}

/* Must a packet leave its entry, whose server is out of service?  Yes: a new
 * flow from the client port of an older one, which has ended if the server has
 * weight 0; plain UDP, which would keep the entry for ever; UDP that is to stay
 * if the server is deleted and the service does not settle.
 */
static bool entry_is_left(const struct mhs_ask *q, const struct mhs_packet *p,
			  const struct ip_vs_conn *cp)
{
	const struct ip_vs_dest *dest = READ_ONCE(cp->dest);

	if (!(q->facts & (MHS_PKT_FRESH | MHS_PKT_CONNLESS)) || !dest ||
	    READ_ONCE(cp->control) || dest->vfwmark != q->mhs->fwmark)
		return false;
	if (!mhs_dest_listed(dest))
		return !(q->facts & MHS_PKT_STAYS && q->facts & MHS_SVC_SETTLING);
	if (atomic_read(&dest->weight))
		return false;
	if (q->facts & MHS_PKT_CONNLESS)
		return !(q->facts & MHS_PKT_STAYS);
	return p->iph.protocol == IPPROTO_TCP &&
	       READ_ONCE(cp->state) != IP_VS_TCP_S_ESTABLISHED;
}

/* Handle a packet that has an entry, and put the entry */
static unsigned int entry_goes(const struct mhs_ask *q, struct mhs_packet *p,
			       struct ip_vs_conn *cp)
{
	struct ip_vs_dest *dest = READ_ONCE(cp->dest);
	bool listed = dest && mhs_dest_listed(dest);
	struct ip_vs_conn *carrier;
	struct mhs *mhs = q->mhs;
	struct mhs_server *s;
	bool opens, renew;

	mhs_slot_track(q->slot);
	mhs_count(mhs, MHS_CNT_TRACKED);
	/* conn_reuse_mode: the core may reschedule a SYN, but not in a claim */
	opens = p->iph.protocol == IPPROTO_TCP ?
		p->opens && !mhs_entry_is_claim(cp) :
		q->facts & MHS_PKT_FRESH;
	if (listed && !opens && entry_is_plain(mhs, p, cp))
		return entry_send(mhs, p, cp, cp, MHS_STAT_IN,
				  !entry_may_end(q, cp));

	/* The core would drop packets to a deleted server: use its carrier */
	s = dest && !listed && !mhs_cutting(mhs->ipvs) ?
	    mhs_svc_server(mhs, dest) : NULL;
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (carrier && IP_VS_FWD_METHOD(carrier) ==
		       (READ_ONCE(cp->flags) & IP_VS_CONN_F_FWD_MASK)) {
		/* Restart no timer of an entry that a new flow has just left.
		 * Either value of a racing mod_timer_pending() will do.
		 */
		renew = time_after(data_race(cp->timer.expires), jiffies);
		return entry_send(mhs, p, cp, carrier, MHS_STAT_IN, renew);
	}
	__ip_vs_conn_put(cp);
	return NF_ACCEPT;
}

/* Replace the old entry, which expires, by one for the new flow that leaves it.
 * Returns the new entry, or NULL and the verdict.  The core finds the new entry
 * first, unless a newer kernel resizes the table before the old one is gone.
 * Without memory drop the packet: part of the flow would follow the old entry.
 *
 * With vs.conntrack the end of the old entry deletes a confirmed conntrack of
 * the older flow: drop the packet, as the core does.  Clear NFCT to keep an
 * unconfirmed one, which is the new flow's.
 */
static struct ip_vs_conn *entry_anew(const struct mhs_ask *q,
				     const struct mhs_packet *p,
				     struct ip_vs_conn *old,
				     unsigned int *verdict)
{
	bool nfct = READ_ONCE(old->flags) & IP_VS_CONN_F_NFCT;
	struct ip_vs_conn *cp;
	struct mhs_server *s;

	s = mhs_ask_pick(q->mhs, q->slot, mhs_slot_read(q->slot));
	if (!s) {
		/* When the client resends, the core sends ICMP unreachable */
		if (!mhs_dest_listed(old->dest))
			mod_timer_pending(&old->timer, jiffies);
		return NULL;
	}
	if (nfct && ip_vs_conn_uses_old_conntrack(old, p->skb)) {
		/* entries of a helper end first */
		if (!atomic_read(&old->n_control)) {
			mod_timer_pending(&old->timer, jiffies);
			*verdict = NF_DROP;
		}
		return NULL;
	}
	*verdict = NF_DROP;
	cp = mhs_entry_make(q, p, s->dest, MHS_CNT_NEW);
	if (!cp)
		return NULL;
	if (nfct)
		entry_clear_nfct(old);
	mod_timer_pending(&old->timer, jiffies);
	return cp;
}

/**
 * mhs_entry_handle() - find the entry of a packet and handle the packet
 * @q: the question about the packet
 * @p: the packet
 * @verdict: set to the verdict of the hook if the packet is handled
 *
 * Plain UDP that leaves its entry does not go to the core, which would find the
 * entry until its last user puts it.  A new flow goes there if persistence or
 * another scheduler may choose its server.
 *
 * A packet that a claim refuses makes no entry while the claim is young: the
 * core would find that entry first, and one forged packet would break a new
 * flow.  Later the older flow ends the claim.
 *
 * Context: softirq or process, under RCU.
 * Return: true if the packet is handled; false if it has no entry, has left one
 * (MHS_PKT_LEFT) or is refused by a claim.
 */
bool mhs_entry_handle(struct mhs_ask *q, struct mhs_packet *p,
		      unsigned int *verdict)
{
	bool ours = !(q->facts & (MHS_SVC_PERSISTENT | MHS_SVC_UNSURE));
	struct ip_vs_conn *cp, *new = NULL;
	struct mhs *mhs = q->mhs;

	cp = unlikely(p->ipsec) ?
	     p->ipsec->pp->conn_in_get(mhs->ipvs, mhs->af, p->skb, &p->iph) :
	     ip_vs_conn_in_get_proto(mhs->ipvs, mhs->af, p->skb, &p->iph);
	if (!cp)
		return false;
	if (unlikely(claim_refuses(p, cp))) {
		if (CLAIM_NOW - READ_ONCE(cp->in_seq.delta) < CLAIM_YOUNG) {
			q->facts |= MHS_ASK_NO_ENTRY;
			/* Whoever waits for an entry of each flow waits on */
			if (q->facts & MHS_SVC_STATEFUL)
				mhs_count(mhs, MHS_CNT_CAPPED);
		} else {
			mod_timer_pending(&cp->timer, jiffies);
		}
		__ip_vs_conn_put(cp);
		return false;
	}
	if (!entry_is_left(q, p, cp)) {
		*verdict = entry_goes(q, p, cp);
		return true;
	}
	mhs_count(mhs, MHS_CNT_TRACKED);
	*verdict = NF_ACCEPT;
	if (!ours) {
		mhs_slot_track(q->slot);
		if (!mhs_dest_listed(cp->dest))
			mod_timer_pending(&cp->timer, jiffies);
	} else if (q->facts & MHS_PKT_FRESH) {
		new = entry_anew(q, p, cp, verdict);
	} else {
		q->facts |= MHS_PKT_LEFT;
		mod_timer_pending(&cp->timer, jiffies);
	}
	__ip_vs_conn_put(cp);
	if (new)
		*verdict = mhs_entry_first(mhs, p, new, MHS_STAT_CONN);
	return !(q->facts & MHS_PKT_LEFT);
}
