// SPDX-License-Identifier: GPL-2.0-only
/* What becomes of a packet, step by step: RCU begins before the first of these
 * and ends with the last.  Each rule names the function of the module that it
 * restates.
 */
#include "protocol.h"

/* mhs_in(): the word is read, and the entry looked for if there may be one.
 * The flow begins with a packet if there is none.
 */
bool protocol_packet_begins(const struct rules *r, struct protocol *s, u32 slot)
{
	u32 w = s->word[slot];

	if (s->packet || r->scope == TIMES)
		return false;
	if (r->scope != FLOWS) {
		/* All that matters is which servers it may use */
		s->packet_word = (u32)ip_vs_mhs_slot_cand(w) |
				 ip_vs_mhs_slot_old(w) << MHS_OLD_SHIFT |
				 1U << MHS_STAGE_SHIFT;
		s->packet_slot = 0;
		s->packet_fresh = 0;
		s->packet = SERVER_KNOWN;
		return true;
	}
	s->packet_slot = slot;
	s->packet_word = w;
	s->packet_fresh = !s->owner;
	s->idle = 0;
	if (s->entry && ip_vs_mhs_slot_tracked(w))
		s->packet = ENTRY_FOUND;
	else
		s->packet = ip_vs_mhs_slot_needs_use(w) ? WORD_READ :
							  WORD_KNOWN;
	return true;
}

/* mhs_in_table(): "used" is written before the packet is sent */
static void packet_uses(const struct rules *r, struct protocol *s)
{
	u32 *slot = &s->word[s->packet_slot];

	if (*slot == s->packet_word)
		*slot = r->ops->use(*slot);
	s->packet_word = *slot;
	if (!ip_vs_mhs_slot_needs_use(*slot) || r->ops->use(*slot) == *slot)
		s->packet = WORD_KNOWN;
}

/* ip_vs_mhs_server() */
static void packet_finds_server(const struct rules *r, struct protocol *s)
{
	u32 w = r->reads_twice ? s->word[s->packet_slot] : s->packet_word;
	u32 idx = s->packet_fresh ? ip_vs_mhs_slot_cand(w) :
				    ip_vs_mhs_slot_old(w);

	s->packet_server = protocol_reachable(s, idx) ? idx : 0;
	s->packet = SERVER_KNOWN;
}

/* A new flow goes to @idx, with an entry: ip_vs_mhs_make_entry() */
static void flow_begins(const struct rules *r, struct protocol *s, u32 idx, bool entry)
{
	if (!idx || r->scope != FLOWS)
		return;
	s->flow_slot = s->packet_slot;
	s->owner = idx;
	if (!entry)
		return;
	s->word[s->flow_slot] |= MHS_TRACK_CUR;
	s->entry = idx;
}

/* ip_vs_mhs_pick(): passes over servers out of service */
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

/* mhs_in_table() and mhs_in_new() for a new flow; where the core makes the
 * entry, schedule() reads the word again.
 */
static void packet_opens(const struct rules *r, struct protocol *s)
{
	u32 idx = s->packet_server;

	if (!ip_vs_mhs_slot_stable(s->packet_word))
		flow_begins(r, s, pick(s, idx), true);
	else if (s->server[idx].state == LISTED)
		flow_begins(r, s, idx, false);
	else
		flow_begins(r, s, pick(s, ip_vs_mhs_slot_cand
				    (s->word[s->packet_slot])), true);
}

/* mhs_in_table() for an older flow, mhs_pin(); mhs_in_entry() */
static const char *packet_goes(struct protocol *s)
{
	u32 idx = s->packet == ENTRY_FOUND ? s->entry : s->packet_server;

	if (!s->owner)
		return NULL;
	if (s->packet == ENTRY_FOUND && !protocol_reachable(s, idx))
		idx = 0;
	if (idx && s->packet != ENTRY_FOUND && s->server[idx].state != GONE &&
	    ip_vs_mhs_slot_pinning(s->packet_word)) {
		s->word[s->packet_slot] |= MHS_TRACK_CUR;
		s->entry = idx;
	}
	if (idx == s->owner)
		return NULL;
	return idx ? "a flow went to another server" : "a flow had no server";
}

const char *protocol_packet_step(const struct rules *r, struct protocol *s)
{
	const char *fault = NULL;
	u32 i;

	if (s->packet == WORD_READ) {
		packet_uses(r, s);
		return NULL;
	}
	if (s->packet == WORD_KNOWN) {
		packet_finds_server(r, s);
		return NULL;
	}
	if (s->packet_fresh)
		packet_opens(r, s);
	else
		fault = packet_goes(s);
	s->packet = NOT_THERE;
	s->packet_slot = 0;
	s->packet_word = 0;
	s->packet_server = 0;
	s->packet_fresh = 0;
	for (i = 1; i <= SERVERS; i++)
		s->server[i].blocked = 0;
	return fault;
}
