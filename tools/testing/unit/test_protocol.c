// SPDX-License-Identifier: GPL-2.0-only
/* The protocol of slots, indexes and grace periods: every schedule there is,
 * for a small service.  Nothing bad happens in any state, and from every state
 * on what has to come about does come about, as time goes on.
 */
#include <stdio.h>

#include "protocol.h"
#include "unit.h"

#define NO_END		"a transition does not end"
#define KEPT		"a deleted server is kept"
#define NO_FLOW		"a server gets no flow"

/* Every state is searched for what must not be */
static bool safe(const void *arg)
{
	struct protocol start = protocol_start();
	struct search *s = search_states(&protocol_model, arg, &start);

	search_free(s);
	return s;
}

/* Each slot is stable in the end, whatever the operator does */
static bool slot_waits(const void *state, u32 slot)
{
	const struct protocol *s = state;

	return !mhs_slot_stable(s->word[slot]);
}

static bool all_events(u32 event, u32 slot)
{
	(void)event;
	(void)slot;
	return true;
}

/* A deleted server is forgotten, and its index free, unless it is added */
static bool server_waits(const void *state, u32 idx)
{
	const struct protocol *s = state;

	return s->server[idx].state == GONE || s->server[idx].state == DEAD;
}

static bool but_readd(u32 event, u32 idx)
{
	return !protocol_is_readd(event, idx);
}

/* Once the operator rests, servers that are listed have an index if there is
 * one, and a table.
 */
static bool listed_waits(const void *state, u32 nothing)
{
	const struct protocol *s = state;
	u32 i, taken = 0;

	(void)nothing;
	for (i = 1; i <= SERVERS; i++)
		taken += s->server[i].state == LISTED ||
			 s->server[i].state == DRAINED;
	return s->dirty || (s->waiting && taken < SERVERS);
}

static bool no_control(u32 event, u32 nothing)
{
	(void)nothing;
	return !protocol_is_control(event);
}

static bool ends(const void *arg)
{
	static const struct ending endings[] = {
		{ NO_END, slot_waits, 0, all_events },
		{ NO_END, slot_waits, 1, all_events },
		{ KEPT, server_waits, 1, but_readd },
		{ KEPT, server_waits, 2, but_readd },
		{ NO_FLOW, listed_waits, 0, no_control },
	};
	struct protocol start = protocol_start();
	struct search *s = search_states(&protocol_model, arg, &start);
	bool passed = s;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(endings) && passed; i++)
		passed = search_ends(s, &endings[i], PROTOCOL_TIME);
	search_free(s);
	return passed;
}

#define RULES(name, ...) \
	static const struct rules name = { __VA_ARGS__ }

RULES(flows, .ops = &slot_real, .scope = FLOWS);
RULES(plain_store, .ops = &slot_real, .scope = FLOWS, .plain_store = true);
RULES(reads_twice, .ops = &slot_real, .scope = FLOWS, .reads_twice = true);
RULES(impatient, .ops = &slot_real, .scope = FLOWS, .impatient = true);
RULES(merges_unbuilt, .ops = &slot_real, .scope = FLOWS,
      .merges_unbuilt = true);
RULES(short_pin, .ops = &slot_short_pin, .scope = FLOWS);

RULES(cuts_listed, .ops = &slot_real, .scope = FLOWS, .cuts_listed = true);
RULES(cuts_unseen, .ops = &slot_real, .scope = FLOWS, .cuts_unseen = true);

RULES(marks, .ops = &slot_real, .scope = MARKED);
RULES(hasty_marks, .ops = &slot_real, .scope = MARKED, .hasty_marks = true);
RULES(marks_once, .ops = &slot_real, .scope = MARKED, .marks_once = true);
RULES(loses_track, .ops = &slot_loses_track, .scope = MARKED);
RULES(track_one_tick, .ops = &slot_track_one_tick, .scope = MARKED);

RULES(indexes, .ops = &slot_real, .scope = INDEXES);
RULES(no_grace, .ops = &slot_real, .scope = INDEXES, .no_grace = true);
RULES(forgets_named, .ops = &slot_real, .scope = INDEXES,
      .forgets_named = true);
RULES(names_one_slot, .ops = &slot_real, .scope = INDEXES,
      .names_one_slot = true);
RULES(unseen_index, .ops = &slot_real, .scope = INDEXES, .cuts_unseen = true);

RULES(times, .ops = &slot_real, .scope = TIMES);
RULES(restarts_slot, .ops = &slot_restarts_clock, .scope = TIMES);
RULES(never_merges, .ops = &slot_never_merges, .scope = TIMES);
RULES(restarts_clock, .ops = &slot_real, .scope = TIMES,
      .restarts_hold = true);
RULES(restarts_gone, .ops = &slot_real, .scope = TIMES, .restarts_gone = true);
RULES(gives_up, .ops = &slot_real, .scope = TIMES, .gives_up = true);

static const struct unit_test tests[] = {
	{ "flows", safe, &flows, NULL },
	{ "flows_catches_plain_store", safe, &plain_store, MISLED },
	{ "flows_catches_two_reads", safe, &reads_twice, MISLED },
	{ "flows_catches_impatience", safe, &impatient, FORGOTTEN },
	{ "flows_catches_merge_before_rebuild", safe, &merges_unbuilt, LOST },
	{ "flows_catches_short_pin", safe, &short_pin, MISLED },
	{ "flows_catches_cut_of_listed", safe, &cuts_listed, MISLED },
	{ "flows_catches_cut_unseen", safe, &cuts_unseen, NOT_THE_TABLE },
	{ "marks", safe, &marks, NULL },
	{ "marks_catches_short_period", safe, &hasty_marks, LOST },
	{ "marks_catches_one_mark", safe, &marks_once, LOST },
	{ "marks_catches_loss", safe, &loses_track, MISLED },
	{ "marks_catches_one_generation", safe, &track_one_tick, LOST },
	{ "indexes", safe, &indexes, NULL },
	{ "indexes_catches_no_grace_period", safe, &no_grace, TAKEN_AWAY },
	{ "indexes_catches_forgotten_name", safe, &forgets_named, NAMELESS },
	{ "indexes_catches_one_slot", safe, &names_one_slot, NAMELESS },
	{ "indexes_catches_cut_unseen", safe, &unseen_index, NAMELESS },
	{ "ends", ends, &times, NULL },
	{ "ends_catches_restarted_slot", ends, &restarts_slot, NO_END },
	{ "ends_catches_no_merge", ends, &never_merges, NO_END },
	{ "ends_catches_restarted_clock", ends, &restarts_clock, NO_END },
	{ "ends_catches_restarted_time", ends, &restarts_gone, KEPT },
	{ "ends_catches_giving_up", ends, &gives_up, NO_FLOW },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
