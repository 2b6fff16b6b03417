// SPDX-License-Identifier: GPL-2.0-only
/* What can happen to a service, and what must not.  Each rule names the
 * function of the module that it restates.  Packets are in protocol_packet.c,
 * servers and the operator in protocol_servers.c.
 */
#include <stdio.h>

#include "protocol.h"
#include "unit.h"

#define NOT_JUDGED	(~0U)
#define TABLES		((SERVERS + 1) * (SERVERS + 1))

_Static_assert(SLOTS == 2, "TABLES is for two slots");
_Static_assert(MHS_HOLD_TICKS == 1 && MHS_PIN_TICKS == 2,
	       "not the small stages that this was made for");

enum {
	TIME = PROTOCOL_TIME,
	STEP, FULL, CUT, WALK, TICK, MARKS, RETRY, FLOW_ENDS,
	GRACE,
	SEND = GRACE + SERVERS,
	CUTTER = SEND + SLOTS,
	BUILD = CUTTER + SLOTS,		/* one for each table */
	CONTROL = BUILD + TABLES,	/* one for each command and server */
	EVENTS = CONTROL + COMMANDS * SERVERS
};

static const char *event_name(u32 e)
{
	static const char * const names[] = {
		"time", "packet goes on", "packet goes on, no entry",
		"another goes on", "walk goes on", "tick", "tick of the marks",
		"second try", "flow ends",
	};
	static const char * const commands[] = {
		"expire_nodest_conn", "add a server",
		"delete one without index", "add again", "delete",
		"change weight of",
	};
	static char text[64];
	u32 command = (e - CONTROL) / SERVERS;

	if (e < GRACE)
		return names[e];
	if (e < SEND)
		snprintf(text, sizeof(text), "grace period of %u",
			 e - GRACE + 1);
	else if (e < CUTTER)
		snprintf(text, sizeof(text), "packet to slot %u", e - SEND);
	else if (e < BUILD)
		snprintf(text, sizeof(text), "another without entry to slot %u",
			 e - CUTTER);
	else if (e < CONTROL)
		snprintf(text, sizeof(text), "rebuild %u %u",
			 (e - BUILD) / (SERVERS + 1),
			 (e - BUILD) % (SERVERS + 1));
	else if (command < READD)
		snprintf(text, sizeof(text), "%s", commands[command]);
	else
		snprintf(text, sizeof(text), "%s %u", commands[command],
			 (e - CONTROL) % SERVERS + 1);
	return text;
}

bool protocol_is_control(u32 event)
{
	return event >= CONTROL;
}

bool protocol_is_readd(u32 event, u32 idx)
{
	return event == CONTROL + READD * SERVERS + idx - 1;
}

/* Settled, without servers */
struct protocol protocol_start(void)
{
	struct protocol s;

	memset(&s, 0, sizeof(s));
	s.judged = NOT_JUDGED;
	return s;
}

static u32 slots_of(const struct rules *r)
{
	return protocol_has_flow(r) ? 1 : SLOTS;
}

/* The walk */

static void walk_begins(struct protocol *s, u32 ticks)
{
	u32 i;

	s->walking = 1;
	s->ticks = ticks;
	s->first = HOLD_TIME ? MHS_STAGE_HOLD + !(s->census & HOLDING) :
			       MHS_STAGE_PIN + !(s->census & PINNING);
	for (i = 1; i <= SERVERS; i++)
		if (s->expire && s->server[i].state == GONE)
			s->cut |= 1 << i;
}

/* mhs_rebuild_table(): any table of the servers in service */
static bool build(const struct rules *r, struct protocol *s, u32 table)
{
	u32 i, in_service = 0;

	if (!s->dirty || s->walking)
		return false;
	for (i = 1; i <= SERVERS; i++)
		in_service |= (s->server[i].state == LISTED) << i;
	s->target[0] = table / (SERVERS + 1);
	s->target[1] = table % (SERVERS + 1);
	if (protocol_has_flow(r) && s->target[1])
		return false;
	for (i = 0; i < slots_of(r); i++)
		if (!((in_service ? in_service : 1) >> s->target[i] & 1))
			return false;
	for (i = 1; i <= SERVERS && r->restarts_gone; i++)
		if (s->server[i].state == GONE)
			s->server[i].left = HELD_TIME;
	s->dirty = 0;
	s->building = 1;
	walk_begins(s, 0);
	return true;
}

/* work_clocks(), work_cuts(): the clocks that are due, or 0; *@over when a server's time is */
static u32 ticks_due(const struct protocol *s, bool *over)
{
	u32 i, ticks = 0;

	if (s->census & HOLDING && !s->hold_due)
		ticks |= MHS_TICK_HOLD;
	if (s->census & PINNING && !s->pin_due)
		ticks |= MHS_TICK_PIN;
	*over = false;
	for (i = 1; i <= SERVERS; i++)
		*over |= s->server[i].state == GONE && !s->server[i].named &&
			 !s->server[i].left;
	return ticks;
}

/* With @marks the clock of the tracked marks ticks, too.  It matters only while
 * there is an entry, so that is when it is modelled: nothing is known of when it
 * has ticked before.
 */
static bool tick(const struct rules *r, struct protocol *s, bool marks)
{
	bool over;
	u32 ticks = ticks_due(s, &over);

	if (marks && (r->scope != MARKED || !s->entry || s->track_due))
		return false;
	if ((!ticks && !over && !marks) || s->walking ||
	    (ticks & MHS_TICK_PIN && s->dirty && s->census & LAST &&
	     !r->merges_unbuilt))
		return false;
	if (ticks & MHS_TICK_HOLD)
		s->hold_due = 1;
	if (ticks & MHS_TICK_PIN)
		s->pin_due = 1;
	if (marks) {
		ticks |= MHS_TICK_TRACK;
		s->track_due = ENTRY_TIME - r->hasty_marks;
	}
	walk_begins(s, ticks);
	return true;
}

/* The end of mhs_rebuild_walk(), mhs_server_release_gone() */
static const char *walk_ends(const struct rules *r, struct protocol *s)
{
	const char *fault = NULL;
	u32 i;

	if (s->counted & HOLDING &&
	    (!(s->census & HOLDING) || r->restarts_hold))
		s->hold_due = 1;
	if (!(s->census & PINNING) && s->counted & PINNING)
		s->pin_due = s->first >= MHS_STAGE_PIN;
	s->census = s->counted;
	for (i = 1; i <= SERVERS && !fault; i++) {
		bool named = s->named >> i & 1 && !r->forgets_named;

		if (s->server[i].state != GONE)
			continue;
		s->server[i].named = named;
		if (named || (!(s->cut >> i & 1) && s->server[i].left &&
			      !r->impatient))
			continue;
		fault = protocol_release(r, s, i);
	}
	s->walking = 0;
	s->walk_at = 0;
	s->building = 0;
	s->ticks = 0;
	s->first = 0;
	s->counted = 0;
	s->named = 0;
	s->cut = 0;
	return fault;
}

/* mhs_rebuild_walk(), half a slot: judge the word, or store what came of it.
 * Packets may come in between.
 */
static const char *walk_step(const struct rules *r, struct protocol *s)
{
	u32 *slot = &s->word[s->walk_at];
	u32 w = s->judged == NOT_JUDGED ? *slot : s->judged;
	u32 idx = s->building ? s->target[s->walk_at] :
				mhs_slot_cand(w);
	bool at_once = s->cut >> mhs_slot_old(w) & 1;
	u32 n = r->ops->tick(r->ops->change(w, idx, at_once, s->first),
			     s->ticks);

	if (n != w && s->judged == NOT_JUDGED && protocol_has_flow(r)) {
		s->judged = w;
		return NULL;
	}
	if (n != w && *slot != w && !r->plain_store) {
		s->judged = *slot;
		return NULL;
	}
	if (n != w)
		*slot = n;
	s->judged = NOT_JUDGED;
	s->counted |= (mhs_slot_holding(n) ? HOLDING : 0) |
		      (mhs_slot_pinning(n) ? PINNING : 0) |
		      (mhs_slot_stage(n) == MHS_STAGE_LAST ? LAST : 0);
	if (!s->walk_at || !r->names_one_slot)
		s->named |= 1 << mhs_slot_cand(n) |
			    1 << mhs_slot_old(n);
	return ++s->walk_at == slots_of(r) ? walk_ends(r, s) : NULL;
}

/* Time */

/* Is there anything for the work or for RCU to do? */
static bool behind(const struct protocol *s)
{
	bool over;
	u32 i;

	for (i = 1; i <= SERVERS; i++)
		if (s->server[i].state == DEAD)
			return true;
	return s->dirty || s->missing || ticks_due(s, &over) || over;
}

static bool time_passes(struct protocol *s)
{
	u32 i;

	if (s->walking || s->packet || s->cutter || s->idle == PIN_TIME - 1 ||
	    (s->late && behind(s)))
		return false;
	s->late = behind(s);
	s->idle += !!s->owner;
	s->away += s->owner && s->away < HELD_TIME;
	s->hold_due -= !!s->hold_due;
	s->pin_due -= !!s->pin_due;
	s->track_due -= !!s->track_due;
	for (i = 1; i <= SERVERS; i++)
		s->server[i].left -= !!s->server[i].left;
	return true;
}

static bool grace_period(struct protocol *s, u32 idx, const char **fault)
{
	if (s->server[idx].state != DEAD || s->server[idx].blocked)
		return false;
	*fault = protocol_index_free(s, idx);
	return true;
}

/* What follows from the rest, and what nobody asks for any more */
static void tidy(struct protocol *s)
{
	u32 i;

	protocol_flow_tidy(s);
	for (i = 0; i < SLOTS && !s->walking; i++) {
		u32 *w = &s->word[i];

		/* A mark does nothing without an entry, and nothing more in
		 * its older generation
		 */
		if (!s->entry || i != s->flow_slot)
			*w &= ~MHS_TRACK;
		else if (*w & MHS_TRACK_CUR)
			*w &= ~MHS_TRACK_PREV;
	}
	if (!s->entry && !(s->ticks & MHS_TICK_TRACK))
		s->track_due = 0;
	if (!s->walking && !(s->census & HOLDING))
		s->hold_due = 0;
	if (!s->walking && !(s->census & PINNING))
		s->pin_due = 0;
	s->late &= behind(s);
}

/* What holds in every state */
static const char *state_fault(const struct rules *r, const struct protocol *s)
{
	u32 i;

	for (i = 0; i < SLOTS; i++) {
		u32 cand = mhs_slot_cand(s->word[i]);
		u32 old = mhs_slot_old(s->word[i]);

		if ((cand && !protocol_reachable(s, cand)) ||
		    (old && !protocol_reachable(s, old)))
			return NAMELESS;
		/* asked for one slot: what follows from it is worse */
		if (protocol_has_flow(r) && !s->building &&
		    cand != s->target[i])
			return NOT_THE_TABLE;
	}
	return NULL;
}

static bool happens(const struct rules *r, struct protocol *s, u32 event,
		    const char **fault)
{
	u32 command = (event - CONTROL) / SERVERS;
	u32 idx = (event - CONTROL) % SERVERS + 1;

	if (event >= CONTROL)
		return (command >= READD || idx == 1) &&
		       protocol_control(r, s, command, idx);
	if (event >= BUILD)
		return build(r, s, event - BUILD);
	if (event >= CUTTER)
		return event - CUTTER < slots_of(r) &&
		       protocol_cutter_begins(r, s, event - CUTTER);
	if (event >= SEND)
		return event - SEND < slots_of(r) &&
		       protocol_packet_begins(r, s, event - SEND);
	if (event >= GRACE)
		return grace_period(s, event - GRACE + 1, fault);
	switch (event) {
	case TIME:
		return time_passes(s);
	case STEP:
	case FULL:
		return protocol_packet_step(r, s, event == STEP, fault);
	case CUT:
		return protocol_cutter_cuts(r, s);
	case WALK:
		if (!s->walking)
			return false;
		*fault = walk_step(r, s);
		return true;
	case TICK:
	case MARKS:
		return tick(r, s, event == MARKS);
	case RETRY:
		return protocol_second_try(r, s);
	}
	/* FLOW_ENDS */
	if (!s->owner || s->packet)
		return false;
	protocol_flow_forget(s);
	return true;
}

static bool happen(const void *arg, void *state, u32 event, const char **fault)
{
	const struct rules *r = arg;
	struct protocol *s = state;

	if (!happens(r, s, event, fault))
		return false;
	while (r->scope == TIMES && s->walking && !*fault)
		*fault = walk_step(r, s);
	tidy(s);
	if (!*fault)
		*fault = state_fault(r, s);
	return true;
}

const struct model protocol_model = {
	.size = sizeof(struct protocol),
	.events = EVENTS,
	.most = 1U << 23,
	.least = 50000,
	.happen = happen,
	.name = event_name,
};
