// SPDX-License-Identifier: GPL-2.0-only
/* The youth of a service: its set of servers is complete as far as known, and no
 * packet has come.  Every state of one slot, two servers, a packet on its way and
 * control, which are free to take turns at each access of what they share.
 *
 *	packet, ip_vs_mhs_settling()	reads the phase until an exchange of YOUNG
 *					for WOKEN succeeds or there is another;
 *					then reads its slot and is sent
 *	change, ip_vs_mhs_settle_before_change() exchanges YOUNG for SETTLING, for WOKEN if
 *					a server leaves; makes WOKEN SETTLED; then
 *					walks, at once while SETTLING
 *	quiet, ip_vs_mhs_settle_on()	SETTLING becomes YOUNG or, like the others
 *					in time, SETTLED
 *
 * Packets are of flows without an entry: where new ones get one, no change harms
 * them.  Nothing merges, so whatever moves a flow is a change at once.  A packet
 * that control has not noticed may have come while the service was settling:
 * what control counts is left open.
 */
#include <stdio.h>

#include "search.h"
#include "slots.h"
#include "unit.h"

#define SERVERS		2

#define MOVED		"a flow without an entry was moved at once"
#define OPENED		"a change opened a transition while the service settled"
#define NOT_HELD	"a server left, and its flows were not held"

enum phase { SETTLED, SETTLING, YOUNG, WOKEN };

enum control_step {
	RESTS,
	READ_YOUNG,		/* in a wrong variant: SETTLING is to be stored */
	MARKS,			/* settle_end(): the slot is to be marked as used */
	STORES,			/* and SETTLED to be stored */
	WALKS,			/* what came of the slot is to be stored */
};

enum packet_step {
	NOT_THERE,
	ASKS,			/* the phase is to be read, ... */
	PHASE_READ,		/* ... and again when an exchange failed */
	MAY_GO,			/* the slot is to be read */
	WORD_READ,		/* and to be marked as used */
	MARKED,
};

struct young {
	u32 word;
	u32 judged, store;	/* the walk's, until it has compared */
	u32 packet_word;
	u8 phase;
	u8 control;		/* enum control_step */
	u8 target;		/* server that the slot is to get */
	u8 dirty;		/* it has not got it yet */
	u8 held;		/* server whose flows are to be held, as it left */
	u8 packet;		/* enum packet_step */
	u8 packet_phase;
	u8 owner;		/* of the flow, 0: it has not been sent yet */
};

/* The rules that controls break */
struct rules {
	bool packet_stores;	/* no exchange, but a plain store */
	bool control_stores;	/* the same for control */
	bool reads_first;	/* a packet reads its slot before the phase */
	bool goes_on;		/* a packet whose exchange failed goes on */
	bool tries_once;	/* what it reads then may be YOUNG again */
	bool marks_none;	/* no slot is marked as used */
};

enum {
	PACKET, PACKET_STEP, FLOW_ENDS, ANOTHER, CONTROL_STEP, WALK, QUIET,
	SETTLE,
	CHANGE,				/* one for each server, or none */
	LEAVE = CHANGE + SERVERS + 1,
	EVENTS = LEAVE + SERVERS + 1
};

static const char *event_name(u32 e)
{
	static const char * const names[] = {
		"packet", "packet goes on", "flow ends", "another's packet",
		"control goes on", "walk", "quiet", "settled",
	};
	static char text[32];

	if (e < CHANGE)
		return names[e];
	snprintf(text, sizeof(text), "%s %u", e < LEAVE ? "change to" :
		 "leaves to", (e - CHANGE) % (SERVERS + 1));
	return text;
}

/* Packets */

static bool packet_begins(const struct rules *r, struct young *s)
{
	if (s->packet)
		return false;
	s->packet = ASKS;
	if (r->reads_first)
		s->packet_word = s->word;
	return true;
}

static void packet_is_gone(struct young *s)
{
	s->packet = NOT_THERE;
	s->packet_phase = 0;
	s->packet_word = 0;
}

/* Older flows wait while the service settles */
static void packet_asked(struct young *s)
{
	if (s->packet_phase == SETTLING)
		packet_is_gone(s);
	else
		s->packet = MAY_GO;
}

static const char *packet_sent(struct young *s)
{
	u32 server = ip_vs_mhs_slot_old(s->packet_word);
	bool moved = s->owner && s->owner != server;

	s->owner = server;
	packet_is_gone(s);
	return moved ? MOVED : NULL;
}

static bool packet_step(const struct rules *r, struct young *s,
			const char **fault)
{
	bool young = s->packet_phase == YOUNG;

	switch (s->packet) {
	case PHASE_READ:
		if (young && (s->phase == YOUNG || r->packet_stores)) {
			s->phase = WOKEN;
		} else if (young && !r->goes_on) {
			s->packet = ASKS;
			return true;
		}
		packet_asked(s);
		return true;
	case ASKS:
		s->packet_phase = s->phase;
		s->packet = PHASE_READ;
		/* YOUNG is what it has read before */
		if (r->tries_once && young)
			packet_asked(s);
		return true;
	case MAY_GO:
		if (!r->reads_first)
			s->packet_word = s->word;
		s->packet = WORD_READ;
		return true;
	case WORD_READ:
		/* ip_vs_mhs_slot_use() */
		if (!ip_vs_mhs_slot_needs_use(s->packet_word) ||
		    r->marks_none) {
			s->packet = MARKED;
		} else if (s->word == s->packet_word) {
			s->word = slot_real.use(s->word);
			s->packet_word = s->word;
			s->packet = MARKED;
		} else {
			s->packet_word = s->word;
		}
		return true;
	case MARKED:
		*fault = packet_sent(s);
		return true;
	}
	return false;
}

/* Of another flow in that slot, on its way in no time.  Plain UDP, and a reply
 * that the slot names, do not wait.
 */
static bool another(const struct rules *r, struct young *s)
{
	if (s->phase == YOUNG)
		s->phase = WOKEN;
	if (!r->marks_none)
		s->word = slot_real.use(s->word);
	return true;
}

/* Control: from one step to another it holds the service's lock */

/* ip_vs_mhs_settle_before_change(), but for settle_end() */
static bool change(const struct rules *r, struct young *s, u32 target,
		   bool leaves)
{
	if (s->control)
		return false;
	s->target = target;
	s->dirty = 1;
	if (r->control_stores && s->phase == YOUNG && !leaves) {
		s->control = READ_YOUNG;
		return true;
	}
	s->held = leaves && s->phase != SETTLING &&
		  ip_vs_mhs_slot_stable(s->word) ?
		  ip_vs_mhs_slot_cand(s->word) : 0;
	if (s->phase == YOUNG)
		s->phase = leaves ? WOKEN : SETTLING;
	if (s->phase == WOKEN)
		s->control = MARKS;
	return true;
}

/* slots_walk() */
static void walk_judge(struct young *s)
{
	s->control = WALKS;
	s->judged = s->word;
	s->store = slot_real.change(s->word, s->target, s->phase == SETTLING,
				    MHS_STAGE_HOLD);
}

static const char *walk_store(struct young *s)
{
	u32 n = s->store, held = s->held;

	if (s->word != s->judged) {
		walk_judge(s);
		return NULL;
	}
	s->word = n;
	s->judged = 0;
	s->store = 0;
	s->control = RESTS;
	s->dirty = 0;
	s->target = 0;
	s->held = 0;
	if (s->phase == SETTLING && !ip_vs_mhs_slot_stable(n))
		return OPENED;
	return held && ip_vs_mhs_slot_old(n) != held ? NOT_HELD : NULL;
}

static bool control_step(const struct rules *r, struct young *s,
			 const char **fault)
{
	switch (s->control) {
	case READ_YOUNG:
		s->phase = SETTLING;
		s->control = RESTS;
		return true;
	case MARKS:
		if (!r->marks_none)
			s->word = slot_real.use(s->word);
		s->control = STORES;
		return true;
	case STORES:
		s->phase = SETTLED;
		s->control = RESTS;
		return true;
	case WALKS:
		*fault = walk_store(s);
		return true;
	}
	return false;
}

/* ip_vs_mhs_settle_on() */
static bool settle_on(struct young *s, bool young)
{
	if (s->control || (s->phase == SETTLING && s->dirty))
		return false;
	if (s->phase == SETTLED || (young && s->phase != SETTLING))
		return false;
	if (young)
		s->phase = YOUNG;
	else
		s->control = MARKS;
	return true;
}

static bool happen(const void *arg, void *state, u32 event, const char **fault)
{
	const struct rules *r = arg;
	struct young *s = state;

	switch (event) {
	case PACKET:
		return packet_begins(r, s);
	case PACKET_STEP:
		return packet_step(r, s, fault);
	case FLOW_ENDS:
		if (!s->owner || s->packet)
			return false;
		s->owner = 0;
		return true;
	case ANOTHER:
		return another(r, s);
	case CONTROL_STEP:
		return control_step(r, s, fault);
	case WALK:
		if (!s->dirty || s->control)
			return false;
		walk_judge(s);
		return true;
	case QUIET:
	case SETTLE:
		return settle_on(s, event == QUIET);
	}
	return change(r, s, (event - CHANGE) % (SERVERS + 1), event >= LEAVE);
}

static const struct model model = {
	.size	= sizeof(struct young),
	.events	= EVENTS,
	.most	= 1 << 20,
	.least	= 1000,
	.happen	= happen,
	.name	= event_name,
};

static bool all_states(const void *arg)
{
	struct young start;
	struct search *s;

	memset(&start, 0, sizeof(start));
	start.phase = SETTLING;
	s = search_states(&model, arg, &start);
	search_free(s);
	return s;
}

#define RULES(name, ...) \
	static const struct rules name = { __VA_ARGS__ }

RULES(right, .packet_stores = false);
RULES(packet_stores, .packet_stores = true);
RULES(control_stores, .control_stores = true);
RULES(reads_first, .reads_first = true);
RULES(goes_on, .goes_on = true);
RULES(tries_once, .tries_once = true);
RULES(marks_none, .marks_none = true);

static const struct unit_test tests[] = {
	{ "all_states", all_states, &right, NULL },
	{ "catches_plain_store_of_packet", all_states, &packet_stores, MOVED },
	{ "catches_plain_store_of_control", all_states, &control_stores, MOVED },
	{ "catches_slot_before_phase", all_states, &reads_first, MOVED },
	{ "catches_failed_exchange", all_states, &goes_on, MOVED },
	{ "catches_one_try", all_states, &tries_once, MOVED },
	{ "catches_unmarked", all_states, &marks_none, NOT_HELD },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
