// SPDX-License-Identifier: GPL-2.0-only
/* The slot word, one step at a time: every well-formed word whose indexes
 * are edge cases, and every phase between the clocks and a change.
 */
#include "slots.h"
#include "unit.h"

static const u32 edges[] = {
	0, 1, 2, 4095, 4096, MHS_IDX_MAX - 1, MHS_IDX_MAX,
};

/* The fields of a word, taken apart without the code under test */
struct fields {
	u32 cand, old, stage, track;	/* old: 0 while stable */
};

static u32 pack(const struct fields *f)
{
	return f->cand + f->old * 0x2000 + f->stage * 0x4000000 +
	       f->track * 0x40000000;
}

/* Call @each with every well-formed word of the edge indexes */
static bool all_words(bool (*each)(const struct fields *f, const void *arg),
		      const void *arg)
{
	struct fields f;
	u32 c, o;

	for (f.stage = 0; f.stage < 16; f.stage++)
		for (f.track = 0; f.track < 4; f.track++)
			for (c = 0; c < ARRAY_SIZE(edges); c++)
				for (o = 0; o < ARRAY_SIZE(edges); o++) {
					f.cand = edges[c];
					f.old = edges[o];
					if (f.stage ? !o || o == c : o)
						continue;
					if (!each(&f, arg))
						return false;
				}
	return true;
}

struct accessors {
	u32 (*cand)(u32 w);
	u32 (*old)(u32 w);
	u32 (*stage)(u32 w);
	bool (*stable)(u32 w);
	bool (*pinning)(u32 w);
	bool (*tracked)(u32 w);
};

#define ACCESSORS						\
	.cand = mhs_slot_cand,					\
	.stage = mhs_slot_stage,				\
	.stable = mhs_slot_stable,				\
	.pinning = mhs_slot_pinning,				\
	.tracked = mhs_slot_tracked

static u32 old_field(u32 w)
{
	return (w >> MHS_OTHER_SHIFT) & MHS_IDX_MAX;
}

static const struct accessors accessors = {
	ACCESSORS, .old = mhs_slot_old,
};
/* Finds no server for the older flows of a stable slot */
static const struct accessors raw_old = {
	ACCESSORS, .old = old_field,
};

static bool layout_of(const struct fields *f, const void *arg)
{
	const struct accessors *a = arg;
	u32 w = pack(f), old = f->stage ? f->old : f->cand;

	if (a->cand(w) == f->cand && a->old(w) == old &&
	    a->stage(w) == f->stage && a->stable(w) == !f->stage &&
	    a->pinning(w) == (f->stage >= 5) && a->tracked(w) == !!f->track &&
	    mhs_slot_holding(w) == (f->stage && f->stage < 5) &&
	    mhs_slot_spare(w | 9 << MHS_OTHER_SHIFT) == (f->stage ? f->cand : 9))
		return true;
	return unit_fail("word %#x: cand %u old %u stage %u", w, a->cand(w),
			 a->old(w), a->stage(w));
}

static bool layout(const void *arg)
{
	return all_words(layout_of, arg);
}

/* What any combination of ticks may do to a word */
static bool ticks_of(const struct fields *f, const void *arg)
{
	const struct slot_ops *ops = arg;
	u32 w = pack(f), ticks;

	for (ticks = 0; ticks < 8; ticks++) {
		u32 n = ops->tick(w, ticks), want = f->stage;
		bool hold = ticks & 1, pin = ticks & 2;
		struct fields to = *f;

		if (ticks & 4)
			to.track = f->track << 1 & 2;
		if (f->stage >= 1 && f->stage <= 4)
			want += hold;
		else if (f->stage)
			want += pin;
		to.stage = want;
		if (want == 16) {
			to.stage = 0;
			to.old = 0;
		}
		if (n != pack(&to))
			return unit_fail("word %#x ticks %#x: %#x, not %#x", w,
					 ticks, n, pack(&to));
	}
	return true;
}

static bool ticks(const void *arg)
{
	return all_words(ticks_of, arg);
}

static bool changes_of(const struct fields *f, const void *arg)
{
	const struct slot_ops *ops = arg;
	u32 w = pack(f), i, first, at_once;

	for (i = 0; i < ARRAY_SIZE(edges); i++)
		for (first = 1; first <= 5; first += 4)
			for (at_once = 0; at_once < 2; at_once++) {
				u32 n = ops->change(w, edges[i], at_once,
						    first);
				struct fields to = *f;

				to.cand = edges[i];
				if (f->stage) {
					if (at_once || to.cand == f->old) {
						to.stage = 0;
						to.old = 0;
					}
				} else if (to.cand != f->cand && !at_once &&
					   f->cand) {
					to.stage = first;
					to.old = f->cand;
				}
				if (n != pack(&to))
					return unit_fail("word %#x to %u%s, first stage %u: %#x, not %#x",
							 w, edges[i], at_once ?
							 " at once" : "",
							 first, n, pack(&to));
			}
	return true;
}

static bool changes(const void *arg)
{
	return all_words(changes_of, arg);
}

static bool cuts_of(const struct fields *f, const void *arg)
{
	const struct slot_ops *ops = arg;
	u32 w = pack(f), n = ops->cut(w);
	struct fields to = *f;

	if (f->stage) {
		to.stage = 0;
		to.old = 0;
	}
	if (n != pack(&to))
		return unit_fail("word %#x: %#x, not %#x", w, n, pack(&to));
	return true;
}

static bool cuts(const void *arg)
{
	return all_words(cuts_of, arg);
}

static u32 cut_is_noop(u32 w)
{
	return w;
}
static const struct slot_ops never_cuts = { .cut = cut_is_noop };

/* Clocks of periods that share no divisor: over their product, a change
 * meets every phase of both.
 */
#define HOLD_T		4
#define PIN_T		3
#define ALL_PHASES	(HOLD_T * PIN_T)

/* A change at @first, perhaps another one at @second: when does it end? */
static bool one_life(const struct slot_ops *ops, u32 first_stage, u32 first,
		     u32 second)
{
	u32 hold = first_stage == MHS_STAGE_HOLD ? MHS_HOLD_TICKS * HOLD_T : 0;
	u32 pin = MHS_PIN_TICKS * PIN_T;
	u32 limit = 2 * (hold + pin + HOLD_T + PIN_T);
	u32 w = 1, cand = 2, pinned = 0, merged = 0, t;

	for (t = 0; t < first + limit && !merged; t++) {
		if (t > first) {
			u32 mask = (t % HOLD_T ? 0 : MHS_TICK_HOLD) |
				   (t % PIN_T ? 0 : MHS_TICK_PIN);

			w = ops->tick(w, mask);
		} else if (t == first) {
			w = ops->change(w, 2, false, first_stage);
		}
		if (t > first && mhs_slot_stable(w))
			merged = t;
		else if (t == second)
			w = ops->change(w, cand = 3, false, first_stage);
		if (mhs_slot_pinning(w) && !pinned)
			pinned = t;
	}
	if (!pinned || !merged)
		return unit_fail("change at %u, again at %u: never merged",
				 first, second);
	if (mhs_slot_cand(w) != cand)
		return unit_fail("change at %u, again at %u: wrong server",
				 first, second);
	if (pinned - first < hold ||
	    pinned - first > hold + (hold ? HOLD_T : 0) ||
	    merged - pinned < pin || merged - pinned > pin + PIN_T)
		return unit_fail("change at %u, again at %u: pinned at %u, merged at %u, times %u and %u",
				 first, second, pinned, merged, hold, pin);
	return true;
}

static bool times(const void *arg)
{
	u32 first, second;
	u32 longest = (MHS_HOLD_TICKS + 1) * HOLD_T +
		      (MHS_PIN_TICKS + 1) * PIN_T;

	for (first = 1; first <= ALL_PHASES; first++)
		for (second = first + 1; second <= first + longest; second++)
			if (!one_life(arg, MHS_STAGE_HOLD, first, second) ||
			    !one_life(arg, MHS_STAGE_PIN, first, second))
				return false;
	return true;
}

/* Only two ticks without a refresh take the tracked marks away */
static bool tracked_of(const struct fields *f, const void *arg)
{
	const struct slot_ops *ops = arg;
	u32 w = pack(f) | MHS_TRACK_CUR, i;

	for (i = 0; i < 32; i++) {
		u32 idx = edges[i % ARRAY_SIZE(edges)];
		u32 first = i & 4 ? MHS_STAGE_PIN : MHS_STAGE_HOLD;

		w = ops->change(w, idx, i % 16 == 0, first);
		w = ops->tick(w, i & 3);
		w = i % 8 ? w : ops->cut(w);
		if (!(w & MHS_TRACK_CUR))
			return unit_fail("word %#x: mark lost in step %u",
					 pack(f), i);
	}
	w = ops->tick(w, MHS_TICK_TRACK);
	if (!mhs_slot_tracked(w))
		return unit_fail("word %#x: mark lost in one tick", pack(f));
	w = ops->tick(w | MHS_TRACK_CUR, MHS_TICK_TRACK);
	if (!mhs_slot_tracked(w))
		return unit_fail("word %#x: refresh ignored", pack(f));
	w = ops->tick(w, MHS_TICK_TRACK);
	if (mhs_slot_tracked(w))
		return unit_fail("word %#x: marked for ever", pack(f));
	return true;
}

static bool tracked(const void *arg)
{
	return all_words(tracked_of, arg);
}

static const struct unit_test tests[] = {
	{ "layout", layout, &accessors, NULL },
	{ "layout_catches_raw_old", layout, &raw_old, "old 0 stage 0" },
	{ "ticks", ticks, &slot_real, NULL },
	{ "ticks_catches_short_hold", ticks, &slot_short_hold,
	  "0xc002000, not 0x8002000" },
	{ "ticks_catches_short_pin", ticks, &slot_short_pin,
	  "0, not 0x3c002000" },
	{ "ticks_catches_never_merges", ticks, &slot_never_merges,
	  "0x3c002000, not 0" },
	{ "ticks_catches_stage_overflow", ticks, &slot_stage_overflows,
	  "0x40002000, not 0" },
	{ "changes", changes, &slot_real, NULL },
	{ "changes_catches_restart", changes, &slot_restarts_clock,
	  "0x14002002, not 0x4002002" },
	{ "changes_catches_forgotten_old", changes, &slot_forgets_old,
	  "0x2, not 0x4002002" },
	{ "changes_catches_waiting_undo", changes, &slot_undo_waits,
	  "0x4002001, not 0x1" },
	{ "changes_catches_held_empty", changes, &slot_holds_empty,
	  "0x4000001, not 0x1" },
	{ "cuts", cuts, &slot_real, NULL },
	{ "cuts_catches_no_cut", cuts, &never_cuts, "0x4002000, not 0" },
	{ "times", times, &slot_real, NULL },
	{ "times_catches_restart", times, &slot_restarts_clock,
	  "merged at 36, times 0 and 30" },
	{ "times_catches_short_hold", times, &slot_short_hold,
	  "pinned at 12, merged at 45, times 12" },
	{ "times_catches_short_pin", times, &slot_short_pin,
	  "pinned at 16, merged at 45, times 12" },
	{ "times_catches_never_merges", times, &slot_never_merges,
	  "never merged" },
	{ "tracked", tracked, &slot_real, NULL },
	{ "tracked_catches_loss", tracked, &slot_loses_track,
	  "mark lost in step" },
	{ "tracked_catches_one_generation", tracked, &slot_track_one_tick,
	  "mark lost in one tick" },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
