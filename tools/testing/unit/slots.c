// SPDX-License-Identifier: GPL-2.0-only
/* The slot word's functions as a set, and wrong variants of that set. */
#include "slots.h"

#define ONE_STAGE	(1U << MHS_STAGE_SHIFT)
#define STAGE_BITS	(MHS_STAGE_MASK << MHS_STAGE_SHIFT)

/* End a transition now: by a change at once to its own candidate */
static u32 slot_cut(u32 w)
{
	return mhs_slot_change(w, mhs_slot_cand(w), true,
			       MHS_STAGE_HOLD);
}

/* The right set, but for the members that @... names */
#define SLOT_OPS(...)						\
{								\
	.change = mhs_slot_change,				\
	.cut = slot_cut,				\
	.tick = mhs_slot_tick,					\
	__VA_ARGS__						\
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"

const struct slot_ops slot_real = SLOT_OPS();

static u32 restarts_clock(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	u32 next = mhs_slot_change(w, idx, at_once, first_stage);

	if (mhs_slot_stable(next) || idx == mhs_slot_cand(w))
		return next;
	return (next & ~STAGE_BITS) | first_stage << MHS_STAGE_SHIFT;
}

const struct slot_ops slot_restarts_clock = SLOT_OPS(.change = restarts_clock);

static u32 forgets_old(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	if (!mhs_slot_stable(w) && idx != mhs_slot_cand(w))
		w = slot_cut(w);
	return mhs_slot_change(w, idx, at_once, first_stage);
}

const struct slot_ops slot_forgets_old = SLOT_OPS(.change = forgets_old);

static u32 undo_waits(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	if (!mhs_slot_stable(w) && idx == mhs_slot_old(w) &&
	    !at_once)
		return (w & ~MHS_IDX_MAX) | idx;
	return mhs_slot_change(w, idx, at_once, first_stage);
}

const struct slot_ops slot_undo_waits = SLOT_OPS(.change = undo_waits);

static u32 always_at_once(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	(void)at_once;
	return mhs_slot_change(w, idx, true, first_stage);
}

const struct slot_ops slot_always_at_once = SLOT_OPS(.change = always_at_once);

static u32 holds_empty(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	if (mhs_slot_stable(w) && !mhs_slot_cand(w) && idx &&
	    !at_once)
		return w | first_stage << MHS_STAGE_SHIFT | idx;
	return mhs_slot_change(w, idx, at_once, first_stage);
}

const struct slot_ops slot_holds_empty = SLOT_OPS(.change = holds_empty);

static u32 loses_track(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	u32 next = mhs_slot_change(w, idx, at_once, first_stage);

	return next == w ? w : next & ~MHS_TRACK;
}

const struct slot_ops slot_loses_track = SLOT_OPS(.change = loses_track);

static u32 track_one_tick(u32 w, u32 ticks)
{
	w = mhs_slot_tick(w, ticks);
	return ticks & MHS_TICK_TRACK ? w & ~MHS_TRACK : w;
}

const struct slot_ops slot_track_one_tick = SLOT_OPS(.tick = track_one_tick);

static u32 short_hold(u32 w, u32 ticks)
{
	u32 next = mhs_slot_tick(w, ticks);

	if (mhs_slot_stage(w) == MHS_STAGE_HOLD &&
	    mhs_slot_stage(next) == MHS_STAGE_HOLD + 1)
		next += ONE_STAGE;
	return next;
}

const struct slot_ops slot_short_hold = SLOT_OPS(.tick = short_hold);

static u32 short_pin(u32 w, u32 ticks)
{
	u32 next = mhs_slot_tick(w, ticks);

	return mhs_slot_stage(next) == MHS_STAGE_LAST ?
	       slot_cut(next) : next;
}

const struct slot_ops slot_short_pin = SLOT_OPS(.tick = short_pin);

static u32 never_merges(u32 w, u32 ticks)
{
	if (mhs_slot_stage(w) == MHS_STAGE_LAST)
		ticks &= ~MHS_TICK_PIN;
	return mhs_slot_tick(w, ticks);
}

const struct slot_ops slot_never_merges = SLOT_OPS(.tick = never_merges);

static u32 stage_overflows(u32 w, u32 ticks)
{
	if (mhs_slot_stage(w) == MHS_STAGE_LAST && ticks & MHS_TICK_PIN)
		return w + ONE_STAGE;
	return mhs_slot_tick(w, ticks);
}

const struct slot_ops slot_stage_overflows = SLOT_OPS(.tick = stage_overflows);

#pragma GCC diagnostic pop
