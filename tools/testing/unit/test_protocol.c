// SPDX-License-Identifier: GPL-2.0-only
/* The protocol of slots, indexes and grace periods: every schedule there is,
 * for a small service.  Nothing bad happens in any state, and from every state
 * on what has to come about does come about, as time goes on.
 */
#include <stdio.h>

#include "protocol.h"
#include "unit.h"

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

	return !ip_vs_mhs_slot_stable(s->word[slot]);
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
		{ "a transition does not end", slot_waits, 0, all_events },
		{ "a transition does not end", slot_waits, 1, all_events },
		{ "a deleted server is kept", server_waits, 1, but_readd },
		{ "a deleted server is kept", server_waits, 2, but_readd },
		{ "a server gets no flow", listed_waits, 0, no_control },
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
RULES(no_mark, .ops = &slot_packet_leaves_no_mark, .scope = FLOWS);
RULES(short_pin, .ops = &slot_short_pin, .scope = FLOWS);

RULES(indexes, .ops = &slot_real, .scope = INDEXES);
RULES(no_grace, .ops = &slot_real, .scope = INDEXES, .no_grace = true);
RULES(forgets_named, .ops = &slot_real, .scope = INDEXES,
      .forgets_named = true);
RULES(names_one_slot, .ops = &slot_real, .scope = INDEXES,
      .names_one_slot = true);

RULES(times, .ops = &slot_real, .scope = TIMES);
RULES(restarts_slot, .ops = &slot_restarts_clock, .scope = TIMES);
RULES(never_merges, .ops = &slot_never_merges, .scope = TIMES);
RULES(restarts_clock, .ops = &slot_real, .scope = TIMES,
      .restarts_hold = true);
RULES(restarts_gone, .ops = &slot_real, .scope = TIMES, .restarts_gone = true);
RULES(gives_up, .ops = &slot_real, .scope = TIMES, .gives_up = true);

static const struct unit_test tests[] = {
	{ "flows", safe, &flows, false },
	{ "flows_catches_plain_store", safe, &plain_store, true },
	{ "flows_catches_two_reads", safe, &reads_twice, true },
	{ "flows_catches_impatience", safe, &impatient, true },
	{ "flows_catches_merge_before_rebuild", safe, &merges_unbuilt, true },
	{ "flows_catches_no_mark", safe, &no_mark, true },
	{ "flows_catches_short_pin", safe, &short_pin, true },
	{ "indexes", safe, &indexes, false },
	{ "indexes_catches_no_grace_period", safe, &no_grace, true },
	{ "indexes_catches_forgotten_name", safe, &forgets_named, true },
	{ "indexes_catches_one_slot", safe, &names_one_slot, true },
	{ "ends", ends, &times, false },
	{ "ends_catches_restarted_slot", ends, &restarts_slot, true },
	{ "ends_catches_no_merge", ends, &never_merges, true },
	{ "ends_catches_restarted_clock", ends, &restarts_clock, true },
	{ "ends_catches_restarted_time", ends, &restarts_gone, true },
	{ "ends_catches_giving_up", ends, &gives_up, true },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
