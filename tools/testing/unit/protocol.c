// SPDX-License-Identifier: GPL-2.0-only
/* What can happen to a service, and what must not.  Each rule names the
 * function of the module that it restates.  A packet: protocol_packet.c.
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
	STEP, WALK, TICK, RETRY, FLOW_ENDS,
	GRACE,
	SEND = GRACE + SERVERS,
	OTHER = SEND + SLOTS,
	BUILD = OTHER + SLOTS,		/* one for each table */
	CONTROL = BUILD + TABLES,
	EXPIRE = CONTROL, ADD, WITHDRAW,
	READD,
	DELETE = READD + SERVERS,
	WEIGHT = DELETE + SERVERS,
	EVENTS = WEIGHT + SERVERS
};

static const char *event_name(u32 e)
{
	static const char * const names[] = {
		"time", "packet goes on", "walk goes on", "tick",
		"second try", "flow ends",
	};
	static char text[64];

	if (e < GRACE)
		return names[e];
	if (e < SEND)
		snprintf(text, sizeof(text), "grace period of %u",
			 e - GRACE + 1);
	else if (e < OTHER)
		snprintf(text, sizeof(text), "packet to slot %u", e - SEND);
	else if (e < BUILD)
		snprintf(text, sizeof(text), "another's to slot %u",
			 e - OTHER);
	else if (e < CONTROL)
		snprintf(text, sizeof(text), "rebuild %u %u",
			 (e - BUILD) / (SERVERS + 1),
			 (e - BUILD) % (SERVERS + 1));
	else if (e < READD)
		return e == EXPIRE ? "expire_nodest_conn" :
		       e == ADD ? "add a server" : "delete one without index";
	else
		snprintf(text, sizeof(text), "%s %u",
			 e < DELETE ? "add again" : e < WEIGHT ? "delete" :
			 "change weight of", (e - READD) % SERVERS + 1);
	return text;
}

bool protocol_is_control(u32 event)
{
	return event >= CONTROL;
}

bool protocol_is_readd(u32 event, u32 idx)
{
	return event == READD + idx - 1;
}

/* Settled, without servers: settle_end() marks every slot as used */
struct protocol protocol_start(void)
{
	struct protocol s;

	memset(&s, 0, sizeof(s));
	s.word[0] = MHS_USED_CUR;
	s.word[1] = MHS_USED_CUR;
	s.judged = NOT_JUDGED;
	s.used_due = PIN_TIME;
	return s;
}

static u32 slots_of(const struct rules *r)
{
	return r->scope == FLOWS ? 1 : SLOTS;
}

static bool names(u32 w, u32 idx)
{
	return ip_vs_mhs_slot_cand(w) == idx || ip_vs_mhs_slot_old(w) == idx;
}

/* What a flow may expect: its server.  Flows of a deleted one go on for hold
 * and pin, from when their slot left the server or, with an entry, from when it
 * was deleted.  They get no entry meanwhile: if it is back in time, a rebuild
 * decides whether it gets their slot back.
 */
static bool owed(const struct protocol *s)
{
	const u8 *state = &s->server[s->owner].state;

	if (!s->owner || (s->expire && *state == GONE))
		return false;
	if (s->entry)
		return *state != GONE || s->server[s->owner].left;
	return !s->lapses || s->away < HELD_TIME ||
	       (s->dirty && *state != GONE);
}

static void flow_forget(struct protocol *s)
{
	s->owner = 0;
	s->entry = 0;
	s->idle = 0;
	s->away = 0;
	s->lapses = 0;
	s->flow_slot = 0;
}

/* Indexes and servers */

/* server_rcu_free() */
static const char *index_free(struct protocol *s, u32 idx)
{
	memset(&s->server[idx], 0, sizeof(s->server[idx]));
	if (s->packet && (s->packet_server == idx ||
			  (s->packet != ENTRY_FOUND &&
			   names(s->packet_word, idx))))
		return "an index was free while a packet used it";
	return NULL;
}

/* ip_vs_mhs_server_release() */
static const char *server_release(const struct rules *r, struct protocol *s,
				  u32 idx)
{
	if (owed(s) && s->owner == idx)
		return "a server was forgotten that a flow was to reach";
	memset(&s->server[idx], 0, sizeof(s->server[idx]));
	s->server[idx].state = DEAD;
	s->server[idx].blocked = s->packet != NOT_THERE;
	s->missing |= s->waiting;
	return r->no_grace ? index_free(s, idx) : NULL;
}

/* server_add() of a server that is not known: the lowest free index */
static bool server_add(struct protocol *s)
{
	u32 idx;

	for (idx = 1; idx <= SERVERS; idx++) {
		if (s->server[idx].state != FREE)
			continue;
		s->server[idx].state = LISTED;
		s->dirty = 1;
		return true;
	}
	return false;
}

/* server_add() found no index: is one free after a grace period? */
static bool release_is_near(const struct rules *r, const struct protocol *s)
{
	u32 i;

	for (i = 1; i <= SERVERS; i++)
		if (s->waiting && s->server[i].state == DEAD && !r->gives_up)
			return true;
	return false;
}

/* ip_vs_mhs_reconcile() */
static bool second_try(const struct rules *r, struct protocol *s)
{
	if (!s->missing || s->walking)
		return false;
	if (s->waiting && server_add(s))
		s->waiting = 0;
	s->missing = release_is_near(r, s);
	return true;
}

/* ip_vs_mhs_add_dest(), _upd_dest(), _del_dest(), and the sysctl.  All but that
 * set "dirty"; BUILD follows at once or, when rebuilds rest, later.
 */
static bool control(const struct rules *r, struct protocol *s, u32 event)
{
	u32 idx = event < READD ? 0 : (event - READD) % SERVERS + 1;
	u8 *state = &s->server[idx].state;

	if (s->walking)
		return false;
	if (event == EXPIRE) {
		if (r->scope == FLOWS)
			return false;
		s->expire ^= 1;
	} else if (event == ADD) {
		if (s->waiting)
			return false;
		s->waiting = !server_add(s);
		if (s->waiting && r->scope != TIMES)
			return false;
		s->missing |= release_is_near(r, s);
	} else if (event == WITHDRAW) {
		if (!s->waiting)
			return false;
		s->waiting = 0;
	} else if (event < DELETE) {
		if (*state != GONE)
			return false;
		*state = LISTED;
		s->server[idx].left = 0;
		s->server[idx].named = 0;
		s->dirty = 1;
	} else if (*state != LISTED && *state != DRAINED) {
		return false;
	} else if (event < WEIGHT) {
		/* ip_vs_mhs_server_gone() */
		*state = GONE;
		s->server[idx].left = HELD_TIME;
		s->server[idx].named = 1;
		s->dirty = 1;
	} else {
		*state = LISTED + DRAINED - *state;
		s->dirty = 1;
	}
	return true;
}

/* The walk */

static bool any_slot(const struct protocol *s, bool (*is)(u32 w))
{
	return is(s->word[0]) || is(s->word[1]);
}

static void walk_begins(struct protocol *s, u32 ticks)
{
	u32 i;

	s->walking = 1;
	s->ticks = ticks;
	s->was_hold = any_slot(s, ip_vs_mhs_slot_holding);
	s->was_pin = any_slot(s, ip_vs_mhs_slot_pinning);
	s->first = HOLD_TIME ? MHS_STAGE_HOLD + !s->was_hold :
			       MHS_STAGE_PIN + !s->was_pin;
	for (i = 1; i <= SERVERS; i++)
		if (s->expire && s->server[i].state == GONE)
			s->cut |= 1 << i;
}

/* mhs_build(): any table of the servers in service */
static bool build(const struct rules *r, struct protocol *s, u32 table)
{
	u32 i, in_service = 0;

	if (!s->dirty || s->walking)
		return false;
	for (i = 1; i <= SERVERS; i++)
		in_service |= (s->server[i].state == LISTED) << i;
	s->target[0] = table / (SERVERS + 1);
	s->target[1] = table % (SERVERS + 1);
	if (r->scope == FLOWS && s->target[1])
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

/* mhs_tick(): the clocks that are due, or 0; *@over when a server's time is */
static u32 ticks_due(const struct protocol *s, bool *over)
{
	u32 i, ticks = 0;

	if (any_slot(s, ip_vs_mhs_slot_holding) && !s->hold_due)
		ticks |= MHS_TICK_HOLD;
	if (any_slot(s, ip_vs_mhs_slot_pinning) && !s->pin_due)
		ticks |= MHS_TICK_PIN;
	if (!s->used_due)
		ticks |= MHS_TICK_USED;
	*over = false;
	for (i = 1; i <= SERVERS; i++)
		*over |= s->server[i].state == GONE && !s->server[i].named &&
			 !s->server[i].left;
	return ticks;
}

static bool slot_at_last(u32 w)
{
	return ip_vs_mhs_slot_pinning(w) &&
	       ip_vs_mhs_slot_stage(w) == MHS_STAGE_LAST;
}

static bool tick(const struct rules *r, struct protocol *s)
{
	bool over;
	u32 ticks = ticks_due(s, &over);

	if ((!ticks && !over) || s->walking ||
	    (ticks & MHS_TICK_PIN && s->dirty && any_slot(s, slot_at_last) &&
	     !r->merges_unbuilt))
		return false;
	if (ticks & MHS_TICK_HOLD)
		s->hold_due = 1;
	if (ticks & MHS_TICK_PIN)
		s->pin_due = 1;
	if (ticks & MHS_TICK_USED)
		s->used_due = PIN_TIME;
	walk_begins(s, ticks);
	return true;
}

/* The end of mhs_walk(), mhs_release_gone() */
static const char *walk_ends(const struct rules *r, struct protocol *s)
{
	const char *fault = NULL;
	u32 i;

	if (any_slot(s, ip_vs_mhs_slot_holding) &&
	    (!s->was_hold || r->restarts_hold))
		s->hold_due = 1;
	if (!s->was_pin && any_slot(s, ip_vs_mhs_slot_pinning))
		s->pin_due = s->first >= MHS_STAGE_PIN;
	for (i = 1; i <= SERVERS && !fault; i++) {
		bool named = s->named >> i & 1 && !r->forgets_named;

		if (s->server[i].state != GONE)
			continue;
		s->server[i].named = named;
		if (named || (!(s->cut >> i & 1) && s->server[i].left &&
			      !r->impatient))
			continue;
		fault = server_release(r, s, i);
	}
	s->walking = 0;
	s->walk_at = 0;
	s->building = 0;
	s->ticks = 0;
	s->first = 0;
	s->was_hold = 0;
	s->was_pin = 0;
	s->named = 0;
	s->cut = 0;
	memset(s->target, 0, sizeof(s->target));
	return fault;
}

/* mhs_walk(), half a slot: judge the word, or store what came of it.  Packets
 * may come in between.
 */
static const char *walk_step(const struct rules *r, struct protocol *s)
{
	u32 *slot = &s->word[s->walk_at];
	u32 w = s->judged == NOT_JUDGED ? *slot : s->judged;
	u32 idx = s->building ? s->target[s->walk_at] :
				ip_vs_mhs_slot_cand(w);
	bool at_once = s->cut >> ip_vs_mhs_slot_old(w) & 1;
	u32 n = r->ops->tick(r->ops->change(w, idx, at_once, s->first),
			     s->ticks);

	if (n != w && s->judged == NOT_JUDGED && r->scope == FLOWS) {
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
	s->target[s->walk_at] = 0;
	if (!s->walk_at || !r->names_one_slot)
		s->named |= 1 << ip_vs_mhs_slot_cand(n) |
			    1 << ip_vs_mhs_slot_old(n);
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

static bool time_passes(const struct rules *r, struct protocol *s)
{
	u32 i;

	if (s->walking || s->packet || s->idle == PIN_TIME - 1 ||
	    (s->late && behind(s)))
		return false;
	s->late = behind(s);
	s->idle += !!s->owner;
	s->away += s->owner && s->away < HELD_TIME;
	s->hold_due -= !!s->hold_due;
	s->pin_due -= !!s->pin_due;
	s->used_due -= r->scope == FLOWS && s->used_due;
	for (i = 1; i <= SERVERS; i++)
		s->server[i].left -= !!s->server[i].left;
	return true;
}

static bool grace_period(struct protocol *s, u32 idx, const char **fault)
{
	if (s->server[idx].state != DEAD || s->server[idx].blocked)
		return false;
	*fault = index_free(s, idx);
	return true;
}

static bool another(const struct rules *r, u32 *slot)
{
	u32 w = *slot;

	*slot = r->ops->use(w);
	return *slot != w;
}

/* What follows from the rest, and what nobody asks for any more */
static void tidy(const struct rules *r, struct protocol *s)
{
	u32 i;

	if (s->owner &&
	    ip_vs_mhs_slot_cand(s->word[s->flow_slot]) == s->owner) {
		s->away = 0;
		s->lapses = 0;
	} else if (s->server[s->owner].state == GONE) {
		s->lapses = 1;
	}
	if (!owed(s))
		flow_forget(s);
	/* The clock of the marks: test_explore.c has it */
	for (i = 0; i < SLOTS && !s->walking; i++) {
		if (!s->entry || i != s->flow_slot)
			s->word[i] &= ~MHS_TRACK;
		if (r->scope != FLOWS && ip_vs_mhs_slot_stable(s->word[i]) &&
		    s->word[i] & MHS_USED)
			s->word[i] |= MHS_USED;
	}
	if (!s->walking && !any_slot(s, ip_vs_mhs_slot_holding))
		s->hold_due = 0;
	if (!s->walking && !any_slot(s, ip_vs_mhs_slot_pinning))
		s->pin_due = 0;
	s->late &= behind(s);
}

/* What holds in every state */
static const char *state_fault(const struct protocol *s)
{
	u32 i;

	for (i = 0; i < SLOTS; i++) {
		u32 cand = ip_vs_mhs_slot_cand(s->word[i]);
		u32 old = ip_vs_mhs_slot_old(s->word[i]);

		if ((cand && !protocol_reachable(s, cand)) ||
		    (old && !protocol_reachable(s, old)))
			return "a slot named a server that is not there";
	}
	return NULL;
}

static bool happens(const struct rules *r, struct protocol *s, u32 event,
		    const char **fault)
{
	if (event >= CONTROL)
		return control(r, s, event);
	if (event >= BUILD)
		return build(r, s, event - BUILD);
	if (event >= OTHER)
		return event - OTHER < slots_of(r) &&
		       another(r, &s->word[event - OTHER]);
	if (event >= SEND)
		return event - SEND < slots_of(r) &&
		       protocol_packet_begins(r, s, event - SEND);
	if (event >= GRACE)
		return grace_period(s, event - GRACE + 1, fault);
	switch (event) {
	case TIME:
		return time_passes(r, s);
	case STEP:
		if (!s->packet)
			return false;
		*fault = protocol_packet_step(r, s);
		return true;
	case WALK:
		if (!s->walking)
			return false;
		*fault = walk_step(r, s);
		return true;
	case TICK:
		return tick(r, s);
	case RETRY:
		return second_try(r, s);
	}
	/* FLOW_ENDS */
	if (!s->owner || s->packet)
		return false;
	flow_forget(s);
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
	tidy(r, s);
	if (!*fault)
		*fault = state_fault(s);
	return true;
}

const struct model protocol_model = {
	.size = sizeof(struct protocol),
	.events = EVENTS,
	.most = 1U << 22,
	.least = 50000,
	.happen = happen,
	.name = event_name,
};
