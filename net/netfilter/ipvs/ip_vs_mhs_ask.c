// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: facts for decisions, searches, schedule() */
#include "ip_vs_mhs_pkt.h"

/* Slots to try for another server, and then servers: a packet looks at no more */
#define MHS_TRY_SLOTS		32
#define MHS_TRY_SERVERS		512U

/* Find another server in the next slots, and then in servers[], as many may be full,
 * and new ones have no slot before a rebuild: there each server has a rank in each
 * slot.  All directors find the same.
 */
static struct mhs_server *ask_other(const struct mhs *mhs, const u32 *slot)
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
		if (mhs_decide_takes(mhs_ask_facts(s, true)))
			return s;
	}
	servers = rcu_dereference(mhs->servers);
	n = servers ? min(servers->max, MHS_TRY_SERVERS) : 0;
	for (i = 0; i < n; i++) {
		s = rcu_dereference(servers->s[(pos + i) % servers->max]);
		if (!mhs_decide_takes(mhs_ask_facts(s, true)))
			continue;
		rank = (s->id ^ pos) * GOLDEN_RATIO_64;
		if (rank >= highest) {
			highest = rank;
			best = s;
		}
	}
	return best;
}

/* Choose the server of a new flow by the word @w of its slot; NULL: none */
struct mhs_server *mhs_ask_pick(const struct mhs *mhs, const u32 *slot, u32 w)
{
	struct mhs_server *s;
	mhs_srv_t facts;

	s = mhs_server_at(mhs, mhs_slot_cand(w));
	facts = mhs_ask_facts(s, true);
	if (mhs_decide_takes(facts))
		return s;
	return mhs_decide_searches(facts, mhs_flags(mhs)) ?
	       ask_other(mhs, slot) : NULL;
}

/* Decide, and set q->server, without a reference.  Under RCU. */
mhs_verdict_t mhs_ask(struct mhs_ask *q)
{
	bool begins = q->facts & (MHS_PKT_FRESH | MHS_PKT_CONNLESS);
	struct mhs_server *old, *cand;
	mhs_srv_t from, to;
	mhs_verdict_t v;

	cand = mhs_server_at(q->mhs, mhs_slot_cand(q->w));
	to = mhs_ask_facts(cand, begins);
	old = cand;
	from = to;
	if (!mhs_slot_stable(q->w)) {
		old = mhs_server_at(q->mhs, mhs_slot_old(q->w));
		from = mhs_ask_facts(old, begins);
	}
	v = mhs_decide(q->w, from, to, q->facts);
	if (unlikely(mhs_verdict_act(v) == MHS_SEARCH)) {
		cand = ask_other(q->mhs, q->slot);
		to = mhs_ask_facts(cand, begins);
		v = mhs_decide(q->w, from, to, q->facts | MHS_ASK_SEARCHED);
	}
	q->server = v & MHS_TO_CAND ? cand : old;
	if (unlikely(v & MHS_TRACKS))
		mhs_slot_track(q->slot);
	return v;
}

/* Carry out MHS_CUTS: make the slot stable.  Returns false if the slot has
 * changed since the decision, but for its marks, or changes just now.
 */
bool mhs_ask_cut(const struct mhs_ask *q)
{
	u32 w = READ_ONCE(*q->slot);

	return !((w ^ q->w) & ~MHS_TRACK) &&
	       try_cmpxchg(q->slot, &w,
			   mhs_slot_change(w, mhs_slot_cand(w), true, 0));
}

/* Choose the server for an entry that the core makes.  An ICMP error is about
 * an older flow: the old server gets the entry, and @iph is the quoted header.
 */
struct ip_vs_dest *mhs_ask_schedule(struct ip_vs_service *svc,
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
				  mhs_ask_pick(mhs, slot, w);
	/* Without a server, too: the core may make a cache_bypass entry */
	mhs_slot_track(slot);
	if (!s) {
		ip_vs_scheduler_err(svc, "no destination available");
		return NULL;
	}
	mhs_count(mhs, MHS_CNT_NEW);
	return s->dest;
}
