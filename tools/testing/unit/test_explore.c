// SPDX-License-Identifier: GPL-2.0-only
/* Every state that one slot, three servers and one flow can get into, breadth
 * first, so that a violation comes with the shortest way to it.
 *
 * Clocks are free to tick in any order and combination, with two limits that
 * stand for "the flow sends a packet at least once a pin period": between two
 * of its packets come at most MHS_PIN_TICKS pin ticks, and a track tick comes only
 * while there is no entry.  A cut or a change at once comes only while the flow
 * has an entry.  The last two are duties of the caller.  (protocol.c has the clock
 * that keeps the first of them.)
 *
 * Control works in two steps, judge and store, and packets may come between
 * them: the store must then fail.  So does a packet that finds the old server
 * deleted, and no entry to be had, and makes the slot the candidate's: look and
 * cut.  Here any server may be deleted, and a flow of the one whose slot is cut
 * is lost.
 */
#include <stdio.h>
#include <stdlib.h>

#include "slots.h"
#include "unit.h"

#define SERVERS		3
#define MAX_STATES	(1U << 22)
#define HASH_SIZE	(1U << 23)

#define MISLED		"a flow went to another server"
#define MIXED_UP	"stable and two servers, or unstable and one"
#define TWO_OWNERS	"stable and a server for older flows"
#define NO_END		"no end to the transition"

struct state {
	u32 word;
	u32 judged, store;	/* both 0: control is not in between */
	u8 at_once;		/* what is to be stored harms no flow */
	u8 cut_old, cut_cand;	/* of a packet that has looked, or 0 */
	u8 owner, entry;	/* of the flow; owner 0: no flow */
	u8 pin_ticks;		/* since its last packet */
};

struct subject {
	const struct slot_ops *ops;
	bool plain_store;	/* control stores without comparing */
	bool careless_cut;	/* a packet compares the candidate only */
};

enum {
	BEGIN, SEND, END, OTHER_MARKS, STORE, LOOK, PACKET_CUT,
	TICKS,				/* 8: one for each combination */
	CUT = TICKS + 8,
	CHANGE,				/* server * 4 + no hold * 2 + at once */
	EVENTS = CHANGE + (SERVERS + 1) * 4
};

struct node {
	struct state state;
	u32 from, event;
};

static struct node *nodes;
static u32 nr_nodes;
static u32 *hash;

static const char *event_name(u32 e)
{
	static const char * const names[] = {
		"new flow", "packet", "flow ends", "another's entry",
		"store", "look", "packet cuts",
	};
	static char text[64];
	u32 change = e - CHANGE;

	if (e < TICKS)
		return names[e];
	if (e < CUT)
		snprintf(text, sizeof(text), "tick %#x", e - TICKS);
	else if (e == CUT)
		return "cut";
	else
		snprintf(text, sizeof(text), "change to %u%s%s",
			 change / 4, change & 1 ? " at once" : "",
			 change & 2 ? " no hold" : "");
	return text;
}

/* The flow sends; true when that goes to another server than its own */
static bool flow_sends(struct state *s)
{
	bool found, stable;
	u32 server;

	s->pin_ticks = 0;
	found = s->entry && mhs_slot_tracked(s->word);
	stable = mhs_slot_stable(s->word);
	if (!s->owner) {
		server = mhs_slot_cand(s->word);
		s->owner = server;
		s->entry = stable && !s->at_once ? 0 : server;
	} else {
		server = found ? s->entry : mhs_slot_old(s->word);
		if (!found && mhs_slot_pinning(s->word))
			s->entry = server;
	}
	if (s->entry)
		s->word |= MHS_TRACK_CUR;
	return server != s->owner;
}

/* Clocks tick, unless that breaks the limits above */
static bool clocks_tick(const struct slot_ops *ops, struct state *s, u32 ticks)
{
	s->word = ops->tick(s->word, ticks);
	if (!s->owner)
		return true;
	s->pin_ticks += !!(ticks & MHS_TICK_PIN);
	return s->pin_ticks <= MHS_PIN_TICKS &&
	       !(s->entry && ticks & MHS_TICK_TRACK);
}

/* Control stores what it judged, if it is still there */
static void store(const struct subject *subject, struct state *s)
{
	if (s->word == s->judged || subject->plain_store)
		s->word = s->store;
	s->judged = 0;
	s->store = 0;
	s->at_once = 0;
}

/* The flow is no more */
static void flow_ends(struct state *s)
{
	s->owner = 0;
	s->entry = 0;
	s->pin_ticks = 0;
}

/* A packet cuts, if the slot has the servers that it has seen */
static bool packet_cuts(const struct subject *subject, struct state *s)
{
	u32 w = s->word;
	bool same = mhs_slot_cand(w) == s->cut_cand &&
		    (mhs_slot_old(w) == s->cut_old ||
		     subject->careless_cut);

	if (!s->cut_old)
		return false;
	if (!mhs_slot_stable(w) && same) {
		s->word = subject->ops->change(w, s->cut_cand, true, 0);
		if (s->owner == s->cut_old && !s->entry)
			flow_ends(s);
	}
	s->cut_old = 0;
	s->cut_cand = 0;
	return true;
}

/* Apply what happened; false when it cannot happen in this state.  A flow
 * that is misled shows in *@misled.
 */
static bool happen(const struct subject *subject, struct state *s, u32 event,
		   bool *misled)
{
	const struct slot_ops *ops = subject->ops;
	bool pending = s->judged || s->store;
	u32 change = event - CHANGE;
	bool at_once = event == CUT || change & 1;

	switch (event) {
	case BEGIN:
	case SEND:
		if (!s->owner != (event == BEGIN))
			return false;
		*misled = flow_sends(s);
		return true;
	case END:
		flow_ends(s);
		return true;
	case OTHER_MARKS:
		s->word |= MHS_TRACK_CUR;
		return true;
	case STORE:
		store(subject, s);
		return pending;
	case LOOK:
		s->cut_old = mhs_slot_old(s->word);
		s->cut_cand = mhs_slot_cand(s->word);
		return !mhs_slot_stable(s->word);
	case PACKET_CUT:
		return packet_cuts(subject, s);
	}
	if (pending)
		return false;
	if (event < CUT)
		return clocks_tick(ops, s, event - TICKS);
	if (at_once && s->owner && !s->entry)
		return false;
	s->at_once = at_once;
	s->judged = s->word;
	s->store = event == CUT ? ops->cut(s->word) :
		   ops->change(s->word, change / 4, at_once,
			       change & 2 ? MHS_STAGE_PIN : MHS_STAGE_HOLD);
	return true;
}

/* What holds for every word there is */
static const char *word_fault(const struct subject *subject, u32 w)
{
	u32 field = w >> MHS_OTHER_SHIFT & MHS_IDX_MAX, n;
	u32 cand = mhs_slot_cand(w), old = mhs_slot_old(w);

	if (cand > SERVERS || old > SERVERS)
		return "there is no such server";
	if (mhs_slot_stable(w) != (old == cand))
		return MIXED_UP;
	if (mhs_slot_stable(w) && field)
		return TWO_OWNERS;
	if (old == MHS_IDX_NONE && cand)
		return "older flows have no server";
	for (n = 0; !mhs_slot_stable(w); n++) {
		if (n == 15)
			return NO_END;
		w = subject->ops->tick(w, n < 4 ? MHS_TICK_HOLD :
						  MHS_TICK_PIN);
	}
	return mhs_slot_cand(w) == cand ? NULL : "merged another server";
}

static bool same(const struct state *a, const struct state *b)
{
	return a->word == b->word && a->judged == b->judged &&
	       a->store == b->store && a->at_once == b->at_once &&
	       a->cut_old == b->cut_old && a->cut_cand == b->cut_cand &&
	       a->owner == b->owner && a->entry == b->entry &&
	       a->pin_ticks == b->pin_ticks;
}

/* Remember @s unless it is known */
static bool visit(const struct state *s, u32 from, u32 event)
{
	u64 h = s->word * 0x9e3779b97f4a7c15ULL ^ s->judged;

	h = h * 0x9e3779b97f4a7c15ULL ^ s->store;
	h = h * 0x9e3779b97f4a7c15ULL ^
	    (s->owner | s->entry << 4 | s->pin_ticks << 8 |
	     s->at_once << 24 | s->cut_old << 25 | s->cut_cand << 28);
	h = h * 0x9e3779b97f4a7c15ULL >> 32;
	for (h %= HASH_SIZE; hash[h]; h = (h + 1) % HASH_SIZE)
		if (same(&nodes[hash[h]].state, s))
			return true;
	if (nr_nodes == MAX_STATES)
		return false;
	nodes[nr_nodes] = (struct node){ *s, from, event };
	hash[h] = nr_nodes++;
	return true;
}

static bool violated(const char *fault, u32 from, u32 event, u32 word)
{
	char path[400] = "";
	u32 n;

	for (n = from; n > 1; n = nodes[n].from) {
		char rest[sizeof(path)];

		memcpy(rest, path, sizeof(path));
		snprintf(path, sizeof(path), "%s, %.300s",
			 event_name(nodes[n].event), rest);
	}
	return unit_fail("%s: %s%s gives %#x", fault, path, event_name(event),
			 word);
}

static bool explore(const struct subject *subject)
{
	struct state start = { .word = 0 };
	u32 n, event;

	nr_nodes = 1;
	visit(&start, 0, 0);
	for (n = 1; n < nr_nodes; n++) {
		for (event = 0; event < EVENTS; event++) {
			struct state s = nodes[n].state;
			bool misled = false;
			const char *fault;

			if (!happen(subject, &s, event, &misled))
				continue;
			fault = misled ? MISLED :
				word_fault(subject, s.word);
			if (fault)
				return violated(fault, n, event, s.word);
			if (!visit(&s, n, event))
				return unit_fail("more states than %u",
						 MAX_STATES);
		}
	}
	unit_note("%u states", nr_nodes - 1);
	return nr_nodes > 10000 || unit_fail("too few states: void");
}

static bool all_states(const void *arg)
{
	bool passed;

	nodes = unit_alloc(MAX_STATES, sizeof(*nodes));
	hash = unit_alloc(HASH_SIZE, sizeof(*hash));
	passed = explore(arg);
	free(hash);
	free(nodes);
	return passed;
}

#define SUBJECT(name) \
	static const struct subject name = { .ops = &slot_##name }

SUBJECT(real);
SUBJECT(forgets_old);
SUBJECT(undo_waits);
SUBJECT(always_at_once);
SUBJECT(loses_track);
SUBJECT(short_pin);
SUBJECT(never_merges);
SUBJECT(stage_overflows);

static const struct subject plain_store = { &slot_real, true, false };
static const struct subject careless_cut = { &slot_real, false, true };

static const struct unit_test tests[] = {
	{ "all_states", all_states, &real, NULL },
	{ "catches_forgotten_old", all_states, &forgets_old, MISLED },
	{ "catches_waiting_undo", all_states, &undo_waits, MIXED_UP },
	{ "catches_always_at_once", all_states, &always_at_once, MISLED },
	{ "catches_lost_track", all_states, &loses_track, MISLED },
	{ "catches_short_pin", all_states, &short_pin, MISLED },
	{ "catches_never_merges", all_states, &never_merges, NO_END },
	{ "catches_stage_overflow", all_states, &stage_overflows, TWO_OWNERS },
	{ "catches_plain_store", all_states, &plain_store, MISLED },
	{ "catches_careless_cut", all_states, &careless_cut, MISLED },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
