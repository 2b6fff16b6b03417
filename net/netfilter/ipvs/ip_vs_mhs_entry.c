// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: a packet that has a connection entry or gets
 * one, and the server that such a flow gets
 */
#include "ip_vs_mhs.h"

/* Slots to try for another server, and then servers: a packet looks at no more */
#define MHS_TRY_SLOTS		32
#define MHS_TRY_SERVERS		512U

/* Find another server in the next slots, and then in servers[], as many may be full,
 * and new ones have no slot before a rebuild: there each server has a rank in each
 * slot.  All directors find the same.
 */
struct mhs_server *mhs_entry_search(const struct mhs *mhs, const u32 *slot)
{
	const struct mhs_servers *servers;
	struct mhs_server *s, *best = NULL;
	u32 pos = slot - mhs->slots;
	u64 rank, highest = 0;
	u32 i, w, n;

	for (i = 0; i < MHS_TRY_SLOTS; i++) {
		if (++pos == mhs->size)
			pos = 0;
		w = mhs_slot_read(&mhs->slots[pos]);
		s = mhs_server_at(mhs, mhs_slot_cand(w));
		if (mhs_decide_takes(mhs_server_facts(s, true)))
			return s;
	}
	servers = rcu_dereference(mhs->servers);
	n = servers ? min(servers->max, MHS_TRY_SERVERS) : 0;
	for (i = 0; i < n; i++) {
		s = rcu_dereference(servers->s[(pos + i) % servers->max]);
		if (!mhs_decide_takes(mhs_server_facts(s, true)))
			continue;
		rank = (s->hash ^ pos) * GOLDEN_RATIO_64;
		if (rank >= highest) {
			highest = rank;
			best = s;
		}
	}
	return best;
}

/* Choose the server of a new flow by the word @w of its slot; NULL: none */
static struct mhs_server *entry_pick(const struct mhs *mhs, const u32 *slot, u32 w)
{
	struct mhs_server *s;
	mhs_srv_t facts;

	s = mhs_server_at(mhs, mhs_slot_cand(w));
	facts = mhs_server_facts(s, true);
	if (mhs_decide_takes(facts))
		return s;
	return mhs_decide_searches(facts, mhs_svc_flags(mhs)) ?
	       mhs_entry_search(mhs, slot) : NULL;
}

/* Find the server of an ip_vs_dest, listed or gone, without a reference */
struct mhs_server *mhs_entry_server(const struct mhs *mhs,
				    const struct ip_vs_dest *dest)
{
	u32 key = mhs_dest_bucket(mhs, dest->af, &dest->addr, dest->port);
	struct mhs_server *s;

	hash_for_each_possible_rcu(mhs->by_dest, s, node, key,
				   lockdep_is_held(&mhs->lock))
		if (s->dest == dest)
			return s;
	return NULL;
}

static bool entries_below(const struct mhs_entries *e, u32 limit)
{
	return atomic_read(&e->made) + READ_ONCE(e->counted) < limit;
}

/* May the service have one more entry, up to @limit?  The answer may count it as made
 * even if it is no; net_work() counts again.  A flood may go to every service: all
 * together have a limit, too, a third of which is for older flows.
 */
static bool entry_reserve(struct mhs *mhs, u32 limit, bool new_flow)
{
	struct mhs_entries *own = &mhs->entries, *all = &mhs->mn->entries;
	u32 total = READ_ONCE(mhs->mn->max_total_entries);

	if (new_flow)
		total -= total / 3;
	/* The reads keep a flood above a limit from writing the cache lines */
	if (!entries_below(own, limit) || !entries_below(all, total))
		return false;
	atomic_inc(&all->made);
	return atomic_inc_return(&own->made) + READ_ONCE(own->counted) <= limit;
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

/* Whose is a TCP packet with an entry?  The rule for claims
 * ---------------------------------------------------------
 *
 * The director sees no server's answer, and anybody can send a SYN.  So a SYN
 * alone never takes a flow's entry: the entry notes the number, and only the
 * packet that ends that handshake has the number + 1, or + 1 + the bytes of data
 * in the SYN (TCP Fast Open), which a stranger would have to guess.
 *
 * A SYN in an unstable slot, which has no entry, makes one that is a claim: the
 * flow may be an older one without an entry.  A SYN that meets an entry whose
 * server is out of service may go elsewhere, see entry_leaves().  Then
 *
 *	number of the packet		the entry is a claim	  a SYN went elsewhere
 *	that ends the handshake		claim is over, by entry	  new entry, elsewhere
 *	up to 64 KiB more, for 1 s	dropped			  dropped
 *	SYN				noted, by entry		  noted, elsewhere
 *	another RST			by entry		  elsewhere
 *	any other			older flow, by the slot	  by the entry
 *
 * A RST may answer a server that has an older socket with these ports, which the
 * SYN met.
 * The first and the latest SYN count for a claim: either may be forged.  Who sent
 * what is dropped sends it again; the wrong server's answer would end the flow.
 *
 * The core zeroes delta, and uses in_seq and out_seq only with a helper or
 * IP_VS_CONN_F_SEQ_MASK, which entries here have not.
 */
#define CLAIM_MADE(CP)		((CP)->in_seq.delta)	/* when; 0: no claim */
#define CLAIM_FIRST(CP)		((CP)->in_seq.previous_delta) /* SYN's number */
#define CLAIM_FIRST_BYTES(CP)	((CP)->out_seq.init_seq)	/* in that SYN */
#define CLAIM_LATEST(CP)	((CP)->in_seq.init_seq)	/* the latest SYN's */
#define CLAIM_LATEST_BYTES(CP)	((CP)->out_seq.previous_delta)
/* When the latest SYN went elsewhere; 0: never, ENTRY_BARE: never, and a packet made
 * the entry that began no flow
 */
#define CLAIM_TRIED(CP)		((CP)->out_seq.delta)

#define CLAIM_YOUNG	(5 * HZ)	/* a handshake, two packets lost */
#define CLAIM_TIMEOUT	(10 * HZ)	/* of a claim without traffic */
#define CLAIM_UNCLEAR	HZ
#define CLAIM_WINDOW	65536U
#define CLAIM_NOW	((u32)jiffies | 3)	/* neither 0 nor ENTRY_BARE */
#define ENTRY_BARE	1U

enum whose { OF_ENTRY, OF_OLDER, OF_NEWER, OF_EITHER, OF_TRIED };

/* With vs.conntrack the end of an entry deletes the conntrack of its addresses
 * and ports: clear NFCT to keep that conntrack.
 */
static void entry_clear_nfct(struct ip_vs_conn *cp)
{
	spin_lock_bh(&cp->lock);
	WRITE_ONCE(cp->flags, cp->flags & ~IP_VS_CONN_F_NFCT);
	spin_unlock_bh(&cp->lock);
}

static const struct tcphdr *claim_tcp(const struct mhs_packet *p,
				      struct tcphdr *buffer)
{
	return skb_header_pointer(p->skb, p->iph.len, sizeof(*buffer), buffer);
}

static void claim_note(const struct mhs_packet *p, struct ip_vs_conn *cp,
		       const struct tcphdr *th)
{
	WRITE_ONCE(CLAIM_LATEST(cp), ntohl(th->seq));
	WRITE_ONCE(CLAIM_LATEST_BYTES(cp),
		   p->skb->len - p->iph.len - 4 * th->doff);
}

/* Make the entry of a new flow a claim, if @p is a SYN.  Other CPUs may find
 * the entry before: they use it as one without a claim.
 */
static void claim_begin(const struct mhs_packet *p, struct ip_vs_conn *cp)
{
	const struct tcphdr *th;
	struct tcphdr _th;

	if (p->iph.protocol != IPPROTO_TCP || !(p->facts & MHS_PKT_NEW) ||
	    READ_ONCE(cp->app))
		return;
	th = claim_tcp(p, &_th);
	if (!th)
		return;
	/* A confirmed conntrack may be that of an older flow */
	if (READ_ONCE(cp->flags) & IP_VS_CONN_F_NFCT &&
	    ip_vs_conn_uses_old_conntrack(cp, p->skb))
		entry_clear_nfct(cp);
	claim_note(p, cp, th);
	WRITE_ONCE(CLAIM_FIRST(cp), CLAIM_LATEST(cp));
	WRITE_ONCE(CLAIM_FIRST_BYTES(cp), CLAIM_LATEST_BYTES(cp));
	/* Pairs with entry_whose(): who sees the claim sees its numbers */
	smp_store_release(&CLAIM_MADE(cp), CLAIM_NOW);
}

/* Make an entry, with a reference; NULL without memory or room in the table */
static struct ip_vs_conn *entry_make(const struct mhs_question *q,
				     const struct mhs_packet *p,
				     struct ip_vs_dest *dest, enum mhs_cnt kind)
{
	const struct mhs *mhs = q->mhs;
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	/* Track first: packets look for the entry only in a tracked slot */
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
	else if (cp && !(q->facts & MHS_PKT_CONNLESS) && !READ_ONCE(cp->app))
		WRITE_ONCE(CLAIM_TRIED(cp), ENTRY_BARE);
	return cp;
}

/* Do in_seq and out_seq belong to mhs? */
static bool claim_can(const struct ip_vs_conn *cp)
{
	return !READ_ONCE(cp->app) &&
	       !(READ_ONCE(cp->flags) & IP_VS_CONN_F_SEQ_MASK);
}

/* Is an entry a claim in its handshake?  SYNACK: after a SYN, with secure_tcp */
bool mhs_entry_is_claim(const struct ip_vs_conn *cp)
{
	u16 state = READ_ONCE(cp->state);

	return READ_ONCE(CLAIM_MADE(cp)) && cp->protocol == IPPROTO_TCP &&
	       claim_can(cp) &&
	       (state == IP_VS_TCP_S_SYN_RECV || state == IP_VS_TCP_S_SYNACK ||
		state == IP_VS_TCP_S_NONE);
}

static bool claim_ends(u32 seq, u32 syn, u32 bytes)
{
	return seq == syn + 1 || seq == syn + 1 + bytes;
}

static bool claim_near(u32 seq, u32 syn)
{
	return seq - syn < CLAIM_WINDOW;
}

/* Whose is a packet that has an entry?  See above.  QUIC and SCTP have no numbers:
 * there the next packet of a handshake that began elsewhere tells.
 */
static enum whose entry_whose(const struct mhs_packet *p, struct ip_vs_conn *cp)
{
	u32 claim, tried, seq, first, latest, now;
	const struct tcphdr *th;
	struct tcphdr _th;

	/* Pairs with the release in claim_begin() */
	claim = smp_load_acquire(&CLAIM_MADE(cp));
	/* Pairs with the release in entry_try() */
	tried = smp_load_acquire(&CLAIM_TRIED(cp));
	if (likely(!claim && tried <= ENTRY_BARE) || !claim_can(cp))
		return OF_ENTRY;
	/* After both were read: neither lies in the future */
	now = CLAIM_NOW;
	if (tried <= ENTRY_BARE || now - tried > CLAIM_TIMEOUT)
		tried = 0;
	if (cp->protocol != IPPROTO_TCP)
		return tried && p->facts & (MHS_PKT_NEW | MHS_PKT_ANSWERS) ?
		       OF_NEWER : OF_ENTRY;
	th = claim_tcp(p, &_th);
	if (!th)
		return OF_ENTRY;
	seq = ntohl(th->seq);
	first = READ_ONCE(CLAIM_FIRST(cp));
	latest = READ_ONCE(CLAIM_LATEST(cp));
	if (p->facts & MHS_PKT_NEW) {
		if (claim) {
			claim_note(p, cp, th);
			WRITE_ONCE(CLAIM_TRIED(cp), 0);
		}
		return OF_ENTRY;
	}
	if (claim_ends(seq, latest, READ_ONCE(CLAIM_LATEST_BYTES(cp)))) {
		if (tried)
			return OF_NEWER;
	} else if (!claim ||
		   !claim_ends(seq, first, READ_ONCE(CLAIM_FIRST_BYTES(cp)))) {
		if (th->rst && (claim || tried))
			return tried ? OF_TRIED : OF_ENTRY;
		if ((tried && now - tried < CLAIM_UNCLEAR &&
		     claim_near(seq, latest)) ||
		    (claim && now - claim < CLAIM_UNCLEAR &&
		     (claim_near(seq, first) || claim_near(seq, latest))))
			return OF_EITHER;
		return claim ? OF_OLDER : OF_ENTRY;
	}
	WRITE_ONCE(CLAIM_MADE(cp), 0);
	return OF_ENTRY;
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
static bool entry_may_end(const struct mhs_question *q, const struct ip_vs_conn *cp)
{
	const struct mhs_server *s;

	if (!(q->facts & MHS_PKT_STAYS) || q->facts & MHS_SVC_STATEFUL ||
	    !mhs_slot_stable(q->w))
		return false;
	s = mhs_server_at(q->mhs, mhs_slot_cand(q->w));
	return s && s->dest == READ_ONCE(cp->dest) &&
	       READ_ONCE(s->facts) == MHS_SRV_IN;
}

/* Send the packet by @by, the entry or a carrier, and put the entry, whose timer
 * restarts if @renew.  packet_xmit is NULL for a moment in ip_vs_try_bind_dest().
 */
static unsigned int entry_send(struct mhs *mhs, struct mhs_packet *p,
			       struct ip_vs_conn *cp, struct ip_vs_conn *by,
			       u32 stats, bool renew)
{
	typeof(by->packet_xmit) xmit = READ_ONCE(by->packet_xmit);
	unsigned int nf;

	if (unlikely(!xmit)) {
		__ip_vs_conn_put(cp);
		return NF_ACCEPT;
	}
	mhs_xmit_stats(mhs, by->dest, p->skb->len, stats);
	/* The RST is about another flow: with secure_tcp it would close the claim,
	 * and the flow that begins would have the timeout of CLOSE
	 */
	if (likely(!(p->facts & MHS_PKT_ENDS) || !mhs_entry_is_claim(cp)))
		mhs_set_state(cp, p->skb, p->pd, p->iph.len);
	claim_shorten(cp);
	nf = xmit(p->skb, by, p->pd->pp, &p->iph);
	/* A sync daemon that starts later reads in_pkts */
	atomic_inc(&cp->in_pkts);
	if (renew)
		ip_vs_conn_put(cp);
	else
		__ip_vs_conn_put(cp);
	return nf;
}

/* Send an entry's first packet and put the entry; the core counts no @stats */
static unsigned int entry_first(struct mhs *mhs, struct mhs_packet *p,
				struct ip_vs_conn *cp, u32 stats)
{
	if (entry_is_plain(mhs, p, cp))
		return entry_send(mhs, p, cp, cp, stats | MHS_STAT_IN, true);
	if (stats)
		mhs_xmit_stats(mhs, cp->dest, p->skb->len, stats);
	ip_vs_conn_put(cp);
	return NF_ACCEPT;
}

/* Carry out the verdict MHS_NEW or MHS_PIN; false if there is no room or no memory.
 * One forged packet can make an entry of QUIC, or of UDP that is pinned:
 * max_quic_entries is for these.  Other older flows may have 1.5 times max_entries,
 * whatever a flood of SYNs has made.
 */
bool mhs_entry_new(const struct mhs_question *q, struct mhs_packet *p,
		   mhs_verdict_t v, unsigned int *nf)
{
	bool pin = mhs_verdict_act(v) == MHS_PIN;
	const struct mhs_net *mn = q->mhs->mn;
	u32 limit = READ_ONCE(mn->max_entries);
	struct ip_vs_conn *cp;

	if (p->quic || (pin && q->facts & MHS_PKT_CONNLESS))
		limit = READ_ONCE(mn->max_quic_entries);
	else if (pin)
		limit += limit / 2;
	if (!entry_reserve(q->mhs, limit, !pin || q->facts & MHS_PKT_STAYS)) {
		mhs_count(q->mhs, MHS_CNT_CAPPED);
		return false;
	}
	cp = entry_make(q, p, q->server->dest, pin ? MHS_CNT_PINNED : MHS_CNT_NEW);
	if (!cp)
		return false;
	mhs_count_verdict(q->mhs, v);
	*nf = entry_first(q->mhs, p, cp, v & MHS_CONN ? MHS_STAT_CONN : 0);
	return true;
}

/* The carrier for packets of an entry whose server is deleted, which the core would
 * drop; NULL: the flow has ended, or the core knows what to do
 */
static struct ip_vs_conn *entry_carrier(struct mhs *mhs,
					const struct ip_vs_conn *cp,
					struct ip_vs_dest *dest)
{
	struct mhs_server *s = mhs_cutting(mhs->ipvs) ? NULL :
			       mhs_entry_server(mhs, dest);
	struct ip_vs_conn *carrier = s ? rcu_dereference(s->carrier) : NULL;

	return carrier && IP_VS_FWD_METHOD(carrier) ==
			  (READ_ONCE(cp->flags) & IP_VS_CONN_F_FWD_MASK) ?
	       carrier : NULL;
}

enum leaves { LEAVES_NOT, LEAVES_TRY, LEAVES };

/* Must a packet leave its entry, whose server is out of service?
 *
 * Plain UDP: yes, or it would keep the entry for ever; but UDP that is to stay only
 * if the server is deleted and the service does not settle, and UDP to a QUIC
 * port only if the server is deleted, as the entry may be of QUIC.
 *
 * A packet that begins a flow: yes if the flow of the entry has ended, which of
 * TCP only the states CLOSE and TIME_WAIT say.  A flow that opened at a server of
 * weight 0 stays.  The packet tries another server if the entry may be forged, as a
 * bare packet made it, if its server is deleted, or if the flow has half ended.
 */
static enum leaves entry_leaves(const struct mhs_question *q,
				const struct mhs_packet *p,
				const struct ip_vs_conn *cp)
{
	bool bare = READ_ONCE(CLAIM_TRIED(cp)) && claim_can(cp);
	struct ip_vs_dest *dest = READ_ONCE(cp->dest);
	u16 state = READ_ONCE(cp->state);
	bool stays, listed;

	if (!(q->facts & (MHS_PKT_NEW | MHS_PKT_CONNLESS)) || !dest ||
	    READ_ONCE(cp->control) || dest->vfwmark != q->mhs->fwmark)
		return LEAVES_NOT;
	listed = mhs_dest_available(dest);
	if (listed && atomic_read(&dest->weight))
		return LEAVES_NOT;
	if (q->facts & MHS_PKT_CONNLESS) {
		stays = q->facts & MHS_PKT_STAYS &&
			(listed || q->facts & MHS_SVC_SETTLING);
		return stays || (listed && p->quic) ? LEAVES_NOT : LEAVES;
	}
	if (!listed && (p->iph.protocol != IPPROTO_TCP ||
			!entry_carrier(q->mhs, cp, dest)))
		return LEAVES;
	if (p->iph.protocol != IPPROTO_TCP)
		return bare ? LEAVES_TRY : LEAVES_NOT;
	if (state == IP_VS_TCP_S_CLOSE || state == IP_VS_TCP_S_TIME_WAIT)
		return LEAVES;
	return listed && state == IP_VS_TCP_S_ESTABLISHED && !bare ?
	       LEAVES_NOT : LEAVES_TRY;
}

static unsigned int entry_goes(const struct mhs_question *q, struct mhs_packet *p,
			       struct ip_vs_conn *cp)
{
	struct ip_vs_dest *dest = READ_ONCE(cp->dest);
	bool listed = dest && mhs_dest_available(dest);
	struct ip_vs_conn *carrier;
	struct mhs *mhs = q->mhs;
	bool may_reuse, renew;

	mhs_slot_track(q->slot);
	mhs_count(mhs, MHS_CNT_ENTRY);
	/* conn_reuse_mode: the core may reschedule a SYN, but not in a claim */
	may_reuse = p->iph.protocol == IPPROTO_TCP ?
		p->maybe_reply && !mhs_entry_is_claim(cp) :
		!!(q->facts & MHS_PKT_NEW);
	if (listed && !may_reuse && entry_is_plain(mhs, p, cp))
		return entry_send(mhs, p, cp, cp, MHS_STAT_IN,
				  !entry_may_end(q, cp));

	carrier = dest && !listed ? entry_carrier(mhs, cp, dest) : NULL;
	if (carrier) {
		/* Restart no timer of an entry that a new flow has just left.
		 * Either value of a racing mod_timer_pending() will do.
		 */
		renew = time_after(data_race(cp->timer.expires), jiffies);
		return entry_send(mhs, p, cp, carrier, MHS_STAT_IN, renew);
	}
	__ip_vs_conn_put(cp);
	return NF_ACCEPT;
}

/* Send a packet that begins a flow to another server, and note that in the entry,
 * which keeps its timer; or a RST after it.  False if no server can take it so.
 */
static bool entry_try(const struct mhs_question *q, struct mhs_packet *p,
		      struct ip_vs_conn *cp, unsigned int *nf)
{
	bool begins = q->facts & MHS_PKT_NEW;
	struct mhs *mhs = q->mhs;
	const struct tcphdr *th;
	struct ip_vs_conn *by;
	struct mhs_server *s;
	struct tcphdr _th;

	s = entry_pick(mhs, q->slot, mhs_slot_read(q->slot));
	if (!s || READ_ONCE(s->facts) & MHS_SRV_METHOD || !claim_can(cp))
		return false;
	by = rcu_dereference(s->carrier);
	if (!by)
		return false;
	if (begins) {
		if (p->iph.protocol == IPPROTO_TCP) {
			th = claim_tcp(p, &_th);
			if (!th)
				return false;
			claim_note(p, cp, th);
		}
		/* Pairs with entry_whose(): who sees the time sees the number */
		smp_store_release(&CLAIM_TRIED(cp), CLAIM_NOW);
	}
	mhs_slot_track(q->slot);
	__ip_vs_conn_put(cp);
	mhs_xmit_stats(mhs, by->dest, p->skb->len,
		       MHS_STAT_IN | (begins ? MHS_STAT_CONN : 0));
	*nf = by->packet_xmit(p->skb, by, p->pd->pp, &p->iph);
	return true;
}

/* Replace the old entry, which expires, by one for the new flow that leaves it.
 * Returns the new entry, or NULL and netfilter's verdict.  The core finds the new entry
 * first, unless a newer kernel resizes the table before the old one is gone.
 * Without memory drop the packet: part of the flow would follow the old entry.
 *
 * With vs.conntrack the end of the old entry deletes a confirmed conntrack of
 * the older flow: drop the packet, as the core does.  Clear NFCT to keep an
 * unconfirmed one, which is the new flow's, as any one is that @began elsewhere.
 */
static struct ip_vs_conn *entry_anew(const struct mhs_question *q,
				     const struct mhs_packet *p,
				     struct ip_vs_conn *old, bool began,
				     unsigned int *nf)
{
	bool nfct = READ_ONCE(old->flags) & IP_VS_CONN_F_NFCT;
	struct ip_vs_conn *cp;
	struct mhs_server *s;

	s = entry_pick(q->mhs, q->slot, mhs_slot_read(q->slot));
	if (!s) {
		/* When the client resends, the core sends ICMP unreachable */
		if (!mhs_dest_available(old->dest))
			mod_timer_pending(&old->timer, jiffies);
		return NULL;
	}
	if (nfct && !began && ip_vs_conn_uses_old_conntrack(old, p->skb)) {
		/* entries of a helper end first */
		if (!atomic_read(&old->n_control)) {
			mod_timer_pending(&old->timer, jiffies);
			*nf = NF_DROP;
		}
		return NULL;
	}
	*nf = NF_DROP;
	cp = entry_make(q, p, s->dest, MHS_CNT_NEW);
	if (!cp)
		return NULL;
	if (nfct)
		entry_clear_nfct(old);
	mod_timer_pending(&old->timer, jiffies);
	return cp;
}

/* Find the entry of a packet and handle the packet: *nf is netfilter's verdict.  False
 * if it has no entry, has left one (MHS_PKT_LEFT) or is refused by a claim.
 *
 * Plain UDP that leaves its entry does not go to the core, which would find the
 * entry until its last user puts it.  A new flow goes there if persistence may
 * choose its server.
 *
 * A packet that a claim refuses makes no entry while the claim is young: the
 * core would find that entry first, and one forged packet would break a new
 * flow.  Later the older flow ends the claim.
 */
bool mhs_entry_handle(struct mhs_question *q, struct mhs_packet *p,
		      unsigned int *nf)
{
	bool ours = !(q->facts & MHS_SVC_PERSISTENT);
	struct ip_vs_conn *cp, *new = NULL;
	struct mhs *mhs = q->mhs;
	enum leaves leaves;
	enum whose whose;
	u32 claim;

	cp = unlikely(p->ipsec) ?
	     p->ipsec->pp->conn_in_get(mhs->ipvs, mhs->af, p->skb, &p->iph) :
	     ip_vs_conn_in_get_proto(mhs->ipvs, mhs->af, p->skb, &p->iph);
	if (!cp)
		return false;
	whose = entry_whose(p, cp);
	if (unlikely(whose == OF_OLDER)) {
		/* 0: another CPU has just seen the handshake end */
		claim = READ_ONCE(CLAIM_MADE(cp));
		if (!claim || CLAIM_NOW - claim < CLAIM_YOUNG) {
			q->facts |= MHS_AGAIN_NO_ENTRY;
			/* Whoever waits for an entry of each flow waits on */
			if (q->facts & MHS_SVC_STATEFUL)
				mhs_count(mhs, MHS_CNT_CAPPED);
		} else {
			mod_timer_pending(&cp->timer, jiffies);
		}
		__ip_vs_conn_put(cp);
		return false;
	}
	leaves = whose == OF_NEWER ? LEAVES :
		 whose == OF_TRIED ? LEAVES_TRY : entry_leaves(q, p, cp);
	if (leaves == LEAVES_TRY) {
		if (ours && entry_try(q, p, cp, nf)) {
			mhs_count(mhs, MHS_CNT_ENTRY);
			return true;
		}
		leaves = whose == OF_TRIED || mhs_dest_available(cp->dest) ?
			 LEAVES_NOT : LEAVES;
	}
	if (leaves == LEAVES_NOT && whose != OF_EITHER) {
		*nf = entry_goes(q, p, cp);
		return true;
	}
	mhs_count(mhs, MHS_CNT_ENTRY);
	*nf = whose == OF_EITHER ? NF_DROP : NF_ACCEPT;
	if (whose == OF_EITHER) {
		mhs_slot_track(q->slot);
	} else if (!ours) {
		mhs_slot_track(q->slot);
		if (!mhs_dest_available(cp->dest))
			mod_timer_pending(&cp->timer, jiffies);
	} else if (q->facts & MHS_PKT_CONNLESS) {
		q->facts |= MHS_PKT_LEFT;
		mod_timer_pending(&cp->timer, jiffies);
	} else {
		new = entry_anew(q, p, cp, whose == OF_NEWER, nf);
	}
	__ip_vs_conn_put(cp);
	if (new)
		*nf = entry_first(mhs, p, new, whose == OF_NEWER ?
				  0 : MHS_STAT_CONN);
	return !(q->facts & MHS_PKT_LEFT);
}

/* Choose the server for an entry that the core makes.  An ICMP error is about
 * an older flow: the old server gets the entry, and @iph is the quoted header.
 */
struct ip_vs_dest *mhs_entry_schedule(struct ip_vs_service *svc,
				      const struct sk_buff *skb,
				      struct ip_vs_iphdr *iph)
{
	struct mhs *mhs = svc->sched_data;
	const union nf_inet_addr *caddr;
	__be16 _ports[2], *ports;
	struct mhs_server *s;
	bool inverse;
	u32 *slot, w;

	ports = frag_safe_skb_hp(skb, iph->len, sizeof(_ports), _ports);
	if (!ports)
		return NULL;
	inverse = ip_vs_iph_inverse(iph);
	caddr = inverse ? &iph->daddr : &iph->saddr;
	slot = mhs_slot(mhs, caddr, ports[inverse]);
	w = mhs_slot_read(slot);
	s = ip_vs_iph_icmp(iph) ? mhs_server_at(mhs, mhs_slot_old(w)) :
				  entry_pick(mhs, slot, w);
	/* Without a server, too: the core may make a cache_bypass entry */
	mhs_slot_track(slot);
	if (!s) {
		ip_vs_scheduler_err(svc, "no destination available");
		return NULL;
	}
	mhs_count(mhs, MHS_CNT_NEW);
	return s->dest;
}
