// SPDX-License-Identifier: GPL-2.0-only
/* One slot, a few servers and flows, random schedules of everything that can
 * happen to them.  Two questions, each with its own controls: does the word
 * agree with a reference that knows points in time and no bits, and does a
 * flow stay with its server as long as that server is listed?
 */
#include "slots.h"
#include "unit.h"

#define SERVERS		4
#define FLOWS		6
#define SCHEDULES	6000
#define STEPS		400
#define NEVER		(~0U)

#define MISLED		"a flow went to another server"
#define DISAGREES	"the reference disagrees"

struct clock {
	u32 period, phase;
};

/* Ticks in the time after @from up to and with @to */
static u32 ticks_between(const struct clock *c, u32 from, u32 to)
{
	return (to + c->period - c->phase) / c->period -
	       (from + c->period - c->phase) / c->period;
}

static u32 nth_tick(const struct clock *c, u32 from, u32 n)
{
	u32 t = from;

	while (ticks_between(c, from, t) < n)
		t++;
	return t;
}

/* The reference: where flows go is a matter of when things happened */
struct ref {
	u32 old, cand;		/* the same while stable */
	u32 pin_from, merge_at;	/* of the transition */
	u32 tracked_at;		/* in ticks of the track clock */
};

struct flow {
	u32 owner;		/* 0: no such flow */
	u32 entry;
	u32 sent_at;
};

struct sim {
	const struct slot_ops *ops;
	bool careful;		/* cuts only slots whose old server is gone */
	bool tracks;		/* marks kept while there is an entry */
	struct clock hold, pin;
	struct rng rng;
	u32 now, track_ticks, w;
	bool listed[SERVERS + 1], weight[SERVERS + 1];
	struct flow flow[FLOWS];
	struct ref ref;
	const char *broken;
};

struct subject {
	const struct slot_ops *ops;
	bool hasty_cut, careless_marks;
};

static bool ref_stable(const struct ref *r)
{
	return r->old == r->cand;
}

static void ref_end(struct ref *r, u32 server)
{
	r->old = server;
	r->cand = server;
}

static void ref_change(struct sim *s, u32 server, bool at_once, bool hold)
{
	struct ref *r = &s->ref;

	if (!ref_stable(r)) {
		if (at_once || server == r->old)
			ref_end(r, server);
		else
			r->cand = server;
	} else if (server != r->cand) {
		r->cand = server;
		if (at_once || !r->old) {
			r->old = server;
			return;
		}
		r->pin_from = hold ? nth_tick(&s->hold, s->now,
					      MHS_HOLD_TICKS + 1) : s->now;
		r->merge_at = nth_tick(&s->pin, r->pin_from,
				       MHS_PIN_TICKS + 1);
	}
}

static bool ref_agrees(const struct sim *s)
{
	const struct ref *r = &s->ref;
	bool tracked = r->tracked_at != NEVER &&
		       s->track_ticks - r->tracked_at < 2;

	return mhs_slot_cand(s->w) == r->cand &&
	       mhs_slot_old(s->w) == r->old &&
	       mhs_slot_stable(s->w) == ref_stable(r) &&
	       mhs_slot_tracked(s->w) == tracked &&
	       (ref_stable(r) ||
		mhs_slot_pinning(s->w) == (s->now >= r->pin_from));
}

/* As the control path does: choose a server for new flows, if there is one */
static void change(struct sim *s, bool at_once)
{
	bool hold = rng_below(&s->rng, 4);
	u32 i = rng_below(&s->rng, SERVERS), n, server = 0;

	for (n = 0; n < SERVERS && !server; n++, i++)
		if (s->listed[i % SERVERS + 1] && s->weight[i % SERVERS + 1])
			server = i % SERVERS + 1;
	s->w = s->ops->change(s->w, server, at_once,
			      hold ? MHS_STAGE_HOLD : MHS_STAGE_PIN);
	ref_change(s, server, at_once, hold);
}

static void delete(struct sim *s, u32 server)
{
	bool expire = rng_below(&s->rng, 2);
	bool cut = expire && (!s->careful ||
			      mhs_slot_old(s->w) == server);
	u32 i;

	s->listed[server] = false;
	for (i = 0; i < FLOWS; i++)
		if (s->flow[i].owner == server)
			s->flow[i].owner = 0;
	if (cut || s->ref.cand == server)
		change(s, cut);
}

static void control(struct sim *s)
{
	u32 server = rng_below(&s->rng, SERVERS) + 1;

	switch (rng_below(&s->rng, 6)) {
	case 0:
		if (s->listed[server])
			delete(s, server);
		break;
	case 1:
	case 2:
		s->listed[server] = true;
		s->weight[server] = true;
		break;
	case 3:
		s->weight[server] = false;
		if (s->ref.cand == server)
			change(s, false);
		break;
	default:
		change(s, false);
	}
}

static void make_entry(struct sim *s, struct flow *f, u32 server)
{
	f->entry = server;
	s->w |= MHS_TRACK_CUR;
	s->ref.tracked_at = s->track_ticks;
}

/* As the packet path does, with flows that carry data the reference to who
 * must get it.
 */
static void packet(struct sim *s, struct flow *f)
{
	bool stable = mhs_slot_stable(s->w), begins = !f->owner;
	u32 server;

	f->sent_at = s->now;
	if (begins) {
		f->owner = mhs_slot_cand(s->w);
		f->entry = 0;
		if (f->owner && !stable)
			make_entry(s, f, f->owner);
		return;
	}
	if (f->entry && mhs_slot_tracked(s->w)) {
		server = f->entry;
	} else {
		server = mhs_slot_old(s->w);
		if (mhs_slot_pinning(s->w))
			make_entry(s, f, server);
	}
	if (server != f->owner)
		s->broken = MISLED;
}

static void tick(struct sim *s)
{
	u32 mask = (ticks_between(&s->hold, s->now - 1, s->now) ?
		    MHS_TICK_HOLD : 0) |
		   (ticks_between(&s->pin, s->now - 1, s->now) ?
		    MHS_TICK_PIN : 0);
	bool entries = false;
	u32 i;

	for (i = 0; i < FLOWS; i++)
		entries |= s->flow[i].owner && s->flow[i].entry;
	if (!rng_below(&s->rng, 8) && !(entries && s->tracks)) {
		mask |= MHS_TICK_TRACK;
		s->track_ticks++;
	}
	s->w = s->ops->tick(s->w, mask);
	if (!ref_stable(&s->ref) && s->now >= s->ref.merge_at)
		ref_end(&s->ref, s->ref.cand);
}

static void step(struct sim *s)
{
	u32 pin = MHS_PIN_TICKS * s->pin.period;
	u32 i, when = rng_below(&s->rng, FLOWS * 8);

	tick(s);
	for (i = 0; i < FLOWS; i++) {
		struct flow *f = &s->flow[i];
		bool due = f->owner && s->now - f->sent_at >= pin;

		if (i == when)
			control(s);
		if (f->owner && !rng_below(&s->rng, 3 * pin))
			f->owner = 0;
		else if (due || !rng_below(&s->rng, f->owner ? pin : 4 * pin))
			packet(s, f);
	}
}

static struct sim sim_init(const struct subject *subject, u32 schedule)
{
	struct sim s = {
		.ops = subject->ops,
		.careful = !subject->hasty_cut,
		.tracks = !subject->careless_marks,
		.rng = unit_rng(schedule),
		.ref.tracked_at = NEVER,
	};
	u32 i;

	s.hold.period = 1 + rng_below(&s.rng, 4);
	s.pin.period = 1 + rng_below(&s.rng, 3);
	s.hold.phase = rng_below(&s.rng, s.hold.period);
	s.pin.phase = rng_below(&s.rng, s.pin.period);
	for (i = 1; i <= SERVERS; i++) {
		s.listed[i] = rng_below(&s.rng, 4);
		s.weight[i] = true;
	}
	return s;
}

static bool schedules(const struct subject *subject, bool compare)
{
	u32 schedule, changed = 0, merged = 0;

	for (schedule = 0; schedule < SCHEDULES; schedule++) {
		struct sim s = sim_init(subject, schedule);

		change(&s, true);
		for (s.now = 1; s.now < STEPS; s.now++) {
			bool stable = ref_stable(&s.ref);
			u32 before = s.w;

			step(&s);
			changed += stable && !ref_stable(&s.ref);
			merged += !stable && ref_stable(&s.ref);
			if (compare && !ref_agrees(&s))
				s.broken = DISAGREES;
			else if (compare)
				s.broken = NULL;
			if (s.broken)
				return unit_fail("schedule %u step %u: %s: word %#x became %#x, reference %u -> %u pin from %u merge at %u",
						 schedule, s.now, s.broken,
						 before, s.w, s.ref.old,
						 s.ref.cand, s.ref.pin_from,
						 s.ref.merge_at);
		}
	}
	unit_note("%u schedules, %u transitions begun, %u ended", schedule,
		  changed, merged);
	return merged > SCHEDULES ||
	       unit_fail("only %u transitions: the test is void", merged);
}

static bool reference(const void *arg)
{
	return schedules(arg, true);
}

static bool flows(const void *arg)
{
	return schedules(arg, false);
}

#define SUBJECT(name) \
	static const struct subject name = { .ops = &slot_##name }

SUBJECT(real);
SUBJECT(restarts_clock);
SUBJECT(forgets_old);
SUBJECT(undo_waits);
SUBJECT(always_at_once);
SUBJECT(holds_empty);
SUBJECT(loses_track);
SUBJECT(track_one_tick);
SUBJECT(short_hold);
SUBJECT(short_pin);
SUBJECT(never_merges);
SUBJECT(stage_overflows);

/* Wrong callers of the right functions */
static const struct subject hasty_cut = { &slot_real, true, false };
static const struct subject careless_marks = { &slot_real, false, true };

static const struct unit_test tests[] = {
	{ "reference", reference, &real, NULL },
	{ "reference_catches_restart", reference, &restarts_clock, DISAGREES },
	{ "reference_catches_forgotten_old", reference, &forgets_old,
	  DISAGREES },
	{ "reference_catches_waiting_undo", reference, &undo_waits, DISAGREES },
	{ "reference_catches_held_empty", reference, &holds_empty, DISAGREES },
	{ "reference_catches_one_track", reference, &track_one_tick,
	  DISAGREES },
	{ "reference_catches_short_hold", reference, &short_hold, DISAGREES },
	{ "reference_catches_short_pin", reference, &short_pin, DISAGREES },
	{ "reference_catches_never_merges", reference, &never_merges,
	  DISAGREES },
	{ "flows", flows, &real, NULL },
	{ "flows_catches_forgotten_old", flows, &forgets_old, MISLED },
	{ "flows_catches_always_at_once", flows, &always_at_once, MISLED },
	{ "flows_catches_lost_track", flows, &loses_track, MISLED },
	{ "flows_catches_short_pin", flows, &short_pin, MISLED },
	{ "flows_catches_stage_overflow", flows, &stage_overflows, MISLED },
	{ "flows_catches_hasty_cut", flows, &hasty_cut, MISLED },
	{ "flows_catches_careless_marks", flows, &careless_marks, MISLED },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
