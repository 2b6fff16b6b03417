// SPDX-License-Identifier: GPL-2.0-only
/* Flows and packets.  What becomes of a packet, step by step: RCU begins before
 * the first of these and ends with the last.  mhs_decide() of the module
 * decides; each rule besides names the function of the module that it restates.
 */
#include "ip_vs_mhs_decide.h"
#include "protocol.h"

/* What a flow may expect: its server.  Flows of a deleted one go on for hold
 * and pin, from when their slot left the server or, with an entry, from when it
 * was deleted.  They get no entry meanwhile: if it is back in time, a rebuild
 * decides whether it gets their slot back.
 *
 * Flows that were to be pinned when no entry could be made go by the table.
 */
bool protocol_owed(const struct protocol *s)
{
	const u8 *state = &s->server[s->owner].state;

	if (!s->owner || (s->expire && *state == GONE))
		return false;
	if (s->entry)
		return *state != GONE || s->server[s->owner].left;
	if (s->unpinned &&
	    mhs_slot_old(s->word[s->flow_slot]) != s->owner)
		return false;
	return !s->lapses || s->away < HELD_TIME ||
	       (s->dirty && *state != GONE);
}

void protocol_flow_forget(struct protocol *s)
{
	s->owner = 0;
	s->entry = 0;
	s->idle = 0;
	s->away = 0;
	s->lapses = 0;
	s->flow_slot = 0;
	s->unpinned = 0;
}

void protocol_flow_tidy(struct protocol *s)
{
	u32 w = s->word[s->flow_slot];

	if (s->owner && mhs_slot_cand(w) == s->owner) {
		s->away = 0;
		s->lapses = 0;
	} else if (s->server[s->owner].state == GONE) {
		s->lapses = 1;
	}
	if (s->entry || (mhs_slot_stable(w) &&
			 mhs_slot_cand(w) == s->owner))
		s->unpinned = 0;
	if (!protocol_owed(s))
		protocol_flow_forget(s);
}

/* packet_request(): the word is read, and the entry looked for if there may be one.
 * The flow begins with a packet if there is none.
 */
bool protocol_packet_begins(const struct rules *r, struct protocol *s, u32 slot)
{
	u32 w = s->word[slot];

	if (s->packet || r->scope == TIMES)
		return false;
	if (!protocol_has_flow(r)) {
		/* All that matters is which servers it may use */
		s->packet_word = (u32)mhs_slot_cand(w) |
				 mhs_slot_old(w) << MHS_OTHER_SHIFT |
				 1U << MHS_STAGE_SHIFT;
		s->packet_slot = 0;
		s->packet_new = 0;
		s->packet = SERVER_KNOWN;
		return true;
	}
	s->packet_slot = slot;
	s->packet_word = w;
	s->packet_new = !s->owner;
	s->idle = 0;
	s->packet = s->entry && mhs_slot_tracked(w) ? ENTRY_FOUND :
							   WORD_KNOWN;
	return true;
}

/* mhs_server_at() */
static void packet_finds_server(const struct rules *r, struct protocol *s)
{
	u32 w = r->reads_twice ? s->word[s->packet_slot] : s->packet_word;
	u32 idx = s->packet_new ? mhs_slot_cand(w) :
				    mhs_slot_old(w);

	s->packet_server = protocol_reachable(s, idx) ? idx : 0;
	s->packet = SERVER_KNOWN;
}

/* A new flow goes to @idx, with an entry: mhs_entry_new() */
static void flow_begins(const struct rules *r, struct protocol *s, u32 idx,
			bool entry)
{
	if (!idx || !protocol_has_flow(r))
		return;
	s->flow_slot = s->packet_slot;
	s->owner = idx;
	if (!entry)
		return;
	s->word[s->flow_slot] |= MHS_TRACK_CUR;
	s->entry = idx;
}

/* mhs_entry_search(): passes over servers out of service */
static u32 pick(const struct protocol *s, u32 idx)
{
	u32 i;

	if (s->server[idx].state == LISTED)
		return idx;
	for (i = 1; i <= SERVERS; i++)
		if (s->server[i].state == LISTED)
			return i;
	return 0;
}

/* The core makes the entry, whatever our limit, or drops the packet; schedule()
 * reads the word again
 */
static void packet_to_core(const struct rules *r, struct protocol *s)
{
	u32 w = s->word[s->packet_slot];

	flow_begins(r, s, pick(s, mhs_slot_cand(w)), true);
}

/* Is the old server of a slot deleted, so that the slot may be cut? */
static bool is_gone(const struct rules *r, const struct protocol *s, u32 old)
{
	return !protocol_reachable(s, old) || s->server[old].state == GONE ||
	       r->cuts_listed;
}

/* packet_cut(), which drops the packet more often: a cut is possible as long as
 * the word has the same two servers
 */
static bool slot_cut(const struct rules *r, u32 *slot, u32 old, u32 cand)
{
	u32 w = *slot;

	if (mhs_slot_stable(w))
		return mhs_slot_cand(w) == cand;
	if ((mhs_slot_old(w) != old || mhs_slot_cand(w) != cand) &&
	    !r->cuts_unseen)
		return false;
	*slot = r->ops->change(w, cand, true, 0);
	return true;
}

/* mhs_server_facts() */
static u32 server_facts(const struct protocol *s, u32 idx)
{
	static const u32 facts[] = {
		[LISTED]	= MHS_SRV_IN,
		[DRAINED]	= 0,
		[GONE]		= MHS_SRV_GONE,
	};

	if (!idx || !protocol_reachable(s, idx))
		return 0;
	return MHS_SRV_EXISTS | MHS_SRV_CARRIER | facts[s->server[idx].state];
}

/* mhs_packet_decide() for the packet under way, whose server it has read already; the
 * server of the answer goes to @idx
 */
static u32 verdict(const struct rules *r, const struct protocol *s, bool room,
		   u32 *idx)
{
	u32 w = s->packet_word, v;
	u32 facts = (s->packet_new ? MHS_PKT_NEW : 0) |
		    (room ? 0 : MHS_AGAIN_NO_ENTRY);
	u32 cand = s->packet_new ? s->packet_server : mhs_slot_cand(w);
	u32 old = s->packet_new && !mhs_slot_stable(w) ?
		  mhs_slot_old(w) : s->packet_server;
	u32 from = server_facts(s, old);

	if (s->packet_new && r->cuts_listed && !mhs_slot_stable(w))
		from |= MHS_SRV_GONE;
	v = mhs_decide(w, from, server_facts(s, cand), facts);
	if (mhs_verdict_act(v) == MHS_SEARCH) {
		cand = pick(s, cand);
		v = mhs_decide(w, from, server_facts(s, cand),
			       facts | MHS_AGAIN_SEARCHED);
	}
	*idx = v & MHS_TO_CAND ? cand : old;
	return v;
}

/* packet_act() for a new flow.  One that is sent to the old server, because no entry
 * can be made, may expect nothing more should that server be deleted later: the
 * slot may have left the server long ago.  False if the packet is not sent yet.
 */
static bool packet_begins(const struct rules *r, struct protocol *s, bool room)
{
	bool stable = mhs_slot_stable(s->packet_word);
	u32 idx, v;

	if (s->packet == TO_CUT) {
		idx = s->packet_server;
		if (slot_cut(r, &s->word[s->packet_slot],
			     mhs_slot_old(s->packet_word), idx))
			flow_begins(r, s, idx, false);
		return true;
	}
	v = verdict(r, s, room, &idx);
	switch (mhs_verdict_act(v)) {
	case MHS_NEW:
		flow_begins(r, s, idx, true);
		break;
	case MHS_CORE:
		/* it asks schedule(), whatever the slot said before */
		if (room || !stable)
			packet_to_core(r, s);
		break;
	case MHS_FORWARD:
		if (v & MHS_CUTS) {
			s->packet = TO_CUT;
			return false;
		}
		if (s->packet_cut)
			break;
		flow_begins(r, s, idx, false);
		if (!stable) {
			s->away = HELD_TIME;
			s->unpinned = mhs_slot_pinning(s->packet_word);
		}
		break;
	default:
		break;
	}
	return true;
}

/* Is the older flow of the packet to have an entry? */
static bool packet_pins(const struct rules *r, const struct protocol *s)
{
	u32 idx;

	return s->owner && s->packet != ENTRY_FOUND &&
	       mhs_verdict_act(verdict(r, s, true, &idx)) == MHS_PIN;
}

/* packet_act() for an older flow; entry_goes() */
static const char *packet_goes(const struct rules *r, struct protocol *s,
			       bool room)
{
	u32 idx = s->entry;

	if (!s->owner)
		return NULL;
	if (s->packet != ENTRY_FOUND &&
	    mhs_verdict_act(verdict(r, s, room, &idx)) < MHS_FORWARD)
		idx = 0;
	if (s->packet == ENTRY_FOUND && !r->marks_once)
		s->word[s->packet_slot] |= MHS_TRACK_CUR;
	if (s->packet == ENTRY_FOUND && !protocol_reachable(s, idx))
		idx = 0;
	if (packet_pins(r, s) && room) {
		s->word[s->packet_slot] |= MHS_TRACK_CUR;
		s->entry = idx;
	} else if (packet_pins(r, s)) {
		s->unpinned = 1;
	}
	if (idx == s->owner)
		return NULL;
	return idx ? MISLED : LOST;
}

/* Is it now that an entry is made? */
static bool asks_for_entry(const struct rules *r, const struct protocol *s)
{
	if (r->scope != FLOWS || s->packet != SERVER_KNOWN)
		return false;
	if (!s->packet_new)
		return packet_pins(r, s);
	return !mhs_slot_stable(s->packet_word) ||
	       s->server[s->packet_server].state != LISTED;
}

/* RCU ends: a grace period waits no more for the packet */
static void unblock(struct protocol *s, u8 by)
{
	u32 i;

	for (i = 1; i <= SERVERS; i++)
		s->server[i].blocked &= ~by;
}

bool protocol_packet_step(const struct rules *r, struct protocol *s, bool room,
			  const char **fault)
{
	if (!s->packet || (!room && !asks_for_entry(r, s)))
		return false;
	if (s->packet == WORD_KNOWN) {
		packet_finds_server(r, s);
		return true;
	}
	if (!s->packet_new)
		*fault = packet_goes(r, s, room);
	else if (!packet_begins(r, s, room))
		return true;
	s->packet = NOT_THERE;
	s->packet_slot = 0;
	s->packet_word = 0;
	s->packet_server = 0;
	s->packet_new = 0;
	s->packet_cut = 0;
	unblock(s, BY_PACKET);
	return true;
}

/* packet_act() for another's new flow without an entry, which finds that the old
 * server of its slot is deleted.  What it does then it may do late.
 */
bool protocol_cutter_begins(const struct rules *r, struct protocol *s, u32 slot)
{
	u32 w = s->word[slot];
	u32 old = mhs_slot_old(w);

	if (r->scope == MARKED || s->cutter || mhs_slot_stable(w) ||
	    !is_gone(r, s, old) ||
	    s->server[mhs_slot_cand(w)].state != LISTED)
		return false;
	s->cutter = s->server[old].state == GONE ? CUTS_GONE : CUTS_LISTED;
	s->cut_slot = slot;
	s->cut_old = old;
	s->cut_cand = mhs_slot_cand(w);
	return r->scope == TIMES ? protocol_cutter_cuts(r, s) : true;
}

/* Flows of the deleted server lose it, and so does one that is about to begin by
 * an earlier word.  A server that is back before the packet has cut loses them
 * all the same, with those that began meanwhile: the word does not tell.
 */
static void flows_cut(struct protocol *s)
{
	if (s->owner == s->cut_old && !s->entry)
		protocol_flow_forget(s);
	s->packet_cut |= s->packet_new &&
			 mhs_slot_old(s->packet_word) == s->cut_old;
}

bool protocol_cutter_cuts(const struct rules *r, struct protocol *s)
{
	u32 *slot = &s->word[s->cut_slot];
	bool unstable = !mhs_slot_stable(*slot);

	if (!s->cutter)
		return false;
	if (slot_cut(r, slot, s->cut_old, s->cut_cand) && unstable &&
	    s->cutter == CUTS_GONE)
		flows_cut(s);
	s->cutter = 0;
	s->cut_slot = 0;
	s->cut_old = 0;
	s->cut_cand = 0;
	unblock(s, BY_CUTTER);
	return true;
}
