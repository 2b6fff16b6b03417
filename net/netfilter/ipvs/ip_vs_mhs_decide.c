// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the slot word, and where does a packet go? */
#include "ip_vs_mhs_decide.h"

/* Apply @idx, the server of the new table or MHS_IDX_NONE, to a slot: @at_once, or by
 * a transition that begins with @first_stage.  A slot without a server has no flow to
 * lose and changes at once.  The caller stores the word by compare-and-exchange.
 */
u32 mhs_slot_change(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	u32 old = mhs_slot_old(w);

	if (at_once || idx == old || old == MHS_IDX_NONE)
		return (w & MHS_TRACK) | idx;
	if (mhs_slot_stable(w))
		w = (w & MHS_TRACK) | first_stage << MHS_STAGE_SHIFT |
		    old << MHS_OTHER_SHIFT;
	return (w & ~MHS_IDX_MAX) | idx;
}

u32 mhs_slot_tick(u32 w, u32 ticks)
{
	u32 stage = mhs_slot_stage(w);

	if (ticks & MHS_TICK_TRACK)
		w = (w & ~MHS_TRACK) |
		    (w & MHS_TRACK_CUR ? MHS_TRACK_PREV : 0);

	if (stage == MHS_STAGE_STABLE)
		return w;
	if (stage == MHS_STAGE_LAST && ticks & MHS_TICK_PIN)
		return w & (MHS_TRACK | MHS_IDX_MAX);
	if (ticks & (stage < MHS_STAGE_PIN ? MHS_TICK_HOLD : MHS_TICK_PIN))
		w += 1U << MHS_STAGE_SHIFT;
	return w;
}

static mhs_verdict_t decide_act(enum mhs_act act)
{
	return mhs_verdict(act, MHS_CNT_MAX, 0);
}

/* The core makes the entry of a new flow.  With a persistence template it does
 * not call schedule(), which tracks the slot: the verdict asks for that.
 */
static mhs_verdict_t decide_tracks(void)
{
	return mhs_verdict(MHS_CORE, MHS_CNT_MAX, MHS_TRACKS);
}

/* May an older flow get an entry?  If not, the pin phase ends the flow. */
static bool decide_may_pin(mhs_srv_t server, mhs_facts_t facts)
{
	return !(facts & (MHS_PKT_ENDS | MHS_PKT_NO_PORT | MHS_AGAIN_NO_ENTRY)) &&
	       !(server & (MHS_SRV_GONE | MHS_SRV_ALL_ENTRY | MHS_SRV_FROZEN));
}

/* A packet of an older flow, or of a new flow to the server of a stable slot */
static mhs_verdict_t decide_to_old(u32 w, mhs_srv_t old, mhs_facts_t facts)
{
	mhs_verdict_t flags = 0;

	if (!(old & MHS_SRV_EXISTS))
		return decide_act(MHS_CORE);
	if (facts & MHS_PKT_NEW) {
		if (!(old & MHS_SRV_CARRIER) || old & MHS_SRV_NEW_ENTRY)
			return decide_tracks();
		flags = MHS_CONN;
	}
	if ((facts & MHS_SVC_STATEFUL || old & MHS_SRV_PIN_OLDER ||
	     mhs_slot_pinning(w)) && decide_may_pin(old, facts))
		return mhs_verdict(MHS_PIN, MHS_CNT_MAX, 0);
	/* All its flows have entries: the core answers a packet without one */
	if (old & MHS_SRV_ALL_ENTRY)
		return mhs_verdict(MHS_CORE, MHS_CNT_MAX, flags);
	/* The work retries to make the carrier, and the client resends */
	if (!(old & MHS_SRV_CARRIER))
		return mhs_verdict(MHS_DROP, MHS_CNT_MAX, flags);
	return mhs_verdict(MHS_FORWARD, mhs_slot_stable(w) ?
			   MHS_CNT_STABLE : MHS_CNT_OLD, flags);
}

/* The candidate takes no new flow.  Without another one the core sends ICMP. */
static mhs_verdict_t decide_not_taken(mhs_srv_t cand, mhs_facts_t facts)
{
	if (facts & MHS_AGAIN_SEARCHED || !mhs_decide_searches(cand, facts))
		return decide_act(MHS_CORE);
	return decide_act(MHS_SEARCH);
}

/* A new flow without an entry goes to the old server, because its later packets
 * go there.  A deleted old server may be dead: then the flow goes to the
 * candidate and the slot is cut, which ends the flows of the old server.
 */
static mhs_verdict_t decide_new_without(u32 w, mhs_srv_t old, mhs_srv_t cand,
					mhs_facts_t facts)
{
	bool cut = !(old & MHS_SRV_EXISTS) || old & MHS_SRV_GONE;
	enum mhs_cnt count = cut ? MHS_CNT_CAND : MHS_CNT_OLD;
	mhs_srv_t server = cut ? cand : old;

	if (!(server & MHS_SRV_CARRIER) || server & MHS_SRV_NEW_ENTRY ||
	    (cut && facts & MHS_AGAIN_SEARCHED))
		return decide_tracks();
	if (mhs_slot_stable(w))
		count = MHS_CNT_STABLE;
	return mhs_verdict(MHS_FORWARD, count, MHS_CONN |
			   (cut ? MHS_TO_CAND | MHS_CUTS : 0));
}

static mhs_verdict_t decide_new_flow(u32 w, mhs_srv_t old, mhs_srv_t cand,
				     mhs_facts_t facts)
{
	if (mhs_slot_cand(w) == MHS_IDX_NONE)
		return decide_act(MHS_CORE);
	if (!mhs_decide_takes(cand))
		return decide_not_taken(cand, facts);
	if (facts & MHS_PKT_NO_PORT)
		return decide_act(MHS_DROP);
	if (facts & MHS_AGAIN_NO_ENTRY)
		return decide_new_without(w, old, cand, facts);
	/* mhs makes the entry: the core would drop the packet if that failed */
	return mhs_verdict(MHS_NEW, MHS_CNT_CAND, MHS_TO_CAND | MHS_CONN);
}

/* May UDP that is to stay have flows to the old server without an entry?  Not
 * if it is deleted, nor if all its flows have got entries for a pin time.
 */
static bool udp_has_older(mhs_srv_t old)
{
	return (old & (MHS_SRV_EXISTS | MHS_SRV_GONE)) == MHS_SRV_EXISTS &&
	       (!(old & MHS_SRV_NEW_ENTRY) || old & MHS_SRV_PIN_OLDER);
}

/* UDP that shows no beginning.  Clients that use a port per query make each packet a
 * flow: mhs makes entries only for flows that need one, are to stay or have left one.
 */
static mhs_verdict_t decide_udp(u32 w, mhs_srv_t old, mhs_srv_t cand,
				mhs_facts_t facts)
{
	bool stable = mhs_slot_stable(w);
	bool one = facts & MHS_SVC_ONE_PACKET;
	bool stay_port = facts & MHS_PKT_STAYS;
	/* Out of service since the last rebuild: the slot is as good as in hold */
	bool in_hold = mhs_slot_holding(w) ||
		       (stay_port && stable && !(old & MHS_SRV_IN));
	bool to_old = in_hold && (stay_port ? udp_has_older(old) :
					    !one && old & MHS_SRV_IN);
	bool gets_entry = facts & MHS_SVC_STATEFUL || (stay_port && (in_hold || !stable));
	enum mhs_cnt count = stable ? MHS_CNT_STABLE :
			     to_old ? MHS_CNT_OLD : MHS_CNT_CAND;
	mhs_verdict_t to = to_old ? 0 : MHS_TO_CAND;
	mhs_srv_t server = to_old ? old : cand;

	if (!to_old && !mhs_decide_takes(cand))
		return decide_not_taken(cand, facts);
	if (facts & MHS_PKT_ERROR)
		return mhs_verdict(MHS_FORWARD, MHS_CNT_MAX, to);
	/* An entry would keep the flow on a server of a table not yet final */
	if (gets_entry && !one && !(facts & MHS_SVC_SETTLING) &&
	    decide_may_pin(server, facts))
		return mhs_verdict(MHS_PIN, MHS_CNT_MAX, to | MHS_CONN);
	if (server & MHS_SRV_CARRIER && !(server & MHS_SRV_NEW_ENTRY))
		return mhs_verdict(MHS_FORWARD, count,
				   to | (one ? MHS_CONN : 0));
	if (!(facts & MHS_PKT_LEFT))
		return decide_tracks();
	/* The core would find the entry left, and a one-packet entry, which is
	 * not hashed, cannot take its place.
	 */
	if (one || facts & MHS_AGAIN_NO_ENTRY)
		return decide_act(MHS_DROP);
	return mhs_verdict(MHS_NEW, MHS_CNT_MAX, to | MHS_CONN);
}

static mhs_verdict_t decide_error(u32 w, mhs_srv_t old, mhs_srv_t cand,
				  mhs_facts_t facts)
{
	if (facts & MHS_SVC_SETTLING)
		return decide_act(MHS_CORE);
	if (facts & MHS_PKT_CONNLESS)
		return decide_udp(w, old, cand, facts);
	return decide_act(old & MHS_SRV_EXISTS ? MHS_FORWARD : MHS_CORE);
}

/* Where does a packet without an entry go?  @w: the word of its slot; @old and @cand:
 * MHS_SRV_* of the servers there, the same if the slot is stable
 */
mhs_verdict_t mhs_decide(u32 w, mhs_srv_t old, mhs_srv_t cand,
			 mhs_facts_t facts)
{
	bool new_flow = facts & MHS_PKT_NEW;

	/* Nothing that may be a new flow goes to a deleted server */
	if (facts & MHS_PKT_ODD && old & MHS_SRV_GONE)
		facts |= MHS_PKT_CONNLESS;
	if (facts & MHS_PKT_ERROR)
		return decide_error(w, old, cand, facts);
	/* Persistence may choose the server */
	if ((new_flow || facts & MHS_PKT_CONNLESS) && facts & MHS_SVC_PERSISTENT)
		return decide_tracks();
	/* Also while the table is not final: nobody resends plain UDP */
	if (facts & MHS_PKT_CONNLESS)
		return decide_udp(w, old, cand, facts);
	if (facts & MHS_SVC_SETTLING)
		return new_flow ? decide_tracks() :
			       mhs_verdict(MHS_DROP, MHS_CNT_UNSETTLED, 0);
	/* Out of service since the last rebuild: the slot is as good as unstable */
	if (new_flow && (facts & MHS_SVC_STATEFUL || !mhs_slot_stable(w) ||
			 !(old & MHS_SRV_IN)))
		return decide_new_flow(w, old, cand, facts);
	return decide_to_old(w, old, facts);
}
