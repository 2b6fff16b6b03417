// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: rebuilds and walks of the slots; times */
#include "ip_vs_mhs_ctl.h"

unsigned int mhs_rebuild_size __read_mostly = 4093;
module_param_named(table_size, mhs_rebuild_size, uint, 0444);
MODULE_PARM_DESC(table_size, "number of slots of each lookup table: 251, 509, 1021, 2039, 4093 (default), 8191, 16381, 32749, 65521, 131071, 262139 or 524287; the same on every director");

/* Allocated at module load, because a removal must not allocate.  Only works of
 * mhs_rebuild_wq use it, and the queue is ordered: one rebuild or walk at a time.
 */
static struct mhs_scratch {
	struct mhs_fill		fill;
	u16			idx[MHS_IDX_MAX];
	DECLARE_BITMAP(in_slots, MHS_IDX_MAX + 1);
	DECLARE_BITMAP(cut, MHS_IDX_MAX + 1);
	/* second chance: servers that answer, and that nobody asks */
	DECLARE_BITMAP(answer, MHS_IDX_MAX + 1);
	DECLARE_BITMAP(lost, MHS_IDX_MAX + 1);
} rebuild_scratch;

struct workqueue_struct *mhs_rebuild_wq;

int mhs_rebuild_init(void)
{
	struct mhs_fill *f = &rebuild_scratch.fill;

	f->size = mhs_rebuild_size;
	f->table = kvcalloc(f->size, sizeof(*f->table), GFP_KERNEL);
	f->head = kvcalloc(f->size, sizeof(*f->head), GFP_KERNEL);
	f->tail = kvcalloc(f->size, sizeof(*f->tail), GFP_KERNEL);
	f->share = kvcalloc(MHS_IDX_MAX, sizeof(*f->share), GFP_KERNEL);
	mhs_rebuild_wq = alloc_ordered_workqueue("ip_vs_mhs", 0);
	if (f->table && f->head && f->tail && f->share && mhs_rebuild_wq)
		return 0;
	mhs_rebuild_exit();
	return -ENOMEM;
}

void mhs_rebuild_exit(void)
{
	struct mhs_fill *f = &rebuild_scratch.fill;

	if (mhs_rebuild_wq)
		destroy_workqueue(mhs_rebuild_wq);
	kvfree(f->table);
	kvfree(f->head);
	kvfree(f->tail);
	kvfree(f->share);
}

/* The sysctls and the core's timeouts may change at any time: a function that uses a
 * time twice must read the time once.
 */

/* Pin time without a timeout table: that of the core's defaults for TCP */
#define MHS_PIN_MS		(15 * 60 * MSEC_PER_SEC)

/* Milliseconds of a timeout of the core in jiffies, which may overflow an int */
static unsigned int time_timeout_ms(int timeout)
{
	return jiffies_to_msecs(min_t(unsigned long, max(timeout, 0),
				      msecs_to_jiffies(INT_MAX / 2)));
}

/* Longest life of an idle entry of the service, by present and former timeouts */
static unsigned int time_entry_ms(struct mhs *mhs)
{
	static const u8 protocols[] = {
		IPPROTO_TCP, IPPROTO_UDP, IPPROTO_SCTP };
	struct ip_vs_proto_data *pd;
	int i, p;
	u32 ms;

	lockdep_assert_held(&mhs->lock);
	for (p = 0; p < ARRAY_SIZE(protocols); p++) {
		if (!mhs->fwmark && mhs->protocol != protocols[p])
			continue;
		pd = ip_vs_proto_data_get(mhs->ipvs, protocols[p]);
		if (!pd || !pd->timeout_table)
			continue;
		for (i = 0; i < pd->pp->num_states; i++) {
			ms = time_timeout_ms(READ_ONCE(pd->timeout_table[i]));
			mhs->entry_ms = max(mhs->entry_ms, ms);
		}
	}
	ms = mhs->entry_ms ? mhs->entry_ms : MHS_PIN_MS;
	/* a timer may be late by up to an eighth of its time, but is never early */
	return ms + ms / 7 + 2 * MSEC_PER_SEC;
}

/* How long a slot stays in pin: the sysctl pin_ms, or the core's timeout of an idle
 * flow, of TCP for a service by firewall mark, which has no protocol
 */
unsigned int mhs_time_pin_ms(const struct mhs *mhs)
{
	u16 protocol = mhs->fwmark ? IPPROTO_TCP : mhs->protocol;
	unsigned int ms = READ_ONCE(mhs->mn->pin_ms);
	struct ip_vs_proto_data *pd;
	int t;

	if (ms)
		return ms;
	pd = ip_vs_proto_data_get(mhs->ipvs, protocol);
	if (!pd || !pd->timeout_table)
		return MHS_PIN_MS;
	if (pd->pp->protocol == IPPROTO_TCP)
		t = max(READ_ONCE(pd->timeout_table[IP_VS_TCP_S_ESTABLISHED]),
			READ_ONCE(pd->timeout_table[IP_VS_TCP_S_FIN_WAIT]));
	else if (pd->pp->protocol == IPPROTO_SCTP)
		t = READ_ONCE(pd->timeout_table[IP_VS_SCTP_S_ESTABLISHED]);
	else
		t = READ_ONCE(pd->timeout_table[IP_VS_UDP_S_NORMAL]);
	return t > 0 ? time_timeout_ms(t) : MHS_PIN_MS;
}

/* How long a slot stays in hold: the sysctl hold_ms, at most the pin time */
unsigned int mhs_time_hold_ms(const struct mhs *mhs)
{
	return min(READ_ONCE(mhs->mn->hold_ms), mhs_time_pin_ms(mhs));
}

/* Jiffies between two ticks of a clock, 1 at least */
unsigned long mhs_time_period(struct mhs *mhs, u32 clock)
{
	unsigned int ms = clock == MHS_CLOCK_HOLD ?
		DIV_ROUND_UP(mhs_time_hold_ms(mhs), MHS_HOLD_TICKS) :
		clock == MHS_CLOCK_PIN ?
		DIV_ROUND_UP(mhs_time_pin_ms(mhs), MHS_PIN_TICKS) :
		time_entry_ms(mhs);

	return max(msecs_to_jiffies(ms), 1UL);
}

/* Upper bound of the time until a slot of @stage merges; times that are
 * compared need the same @now
 */
unsigned int mhs_time_merge_ms(struct mhs *mhs, u32 stage, unsigned long now)
{
	bool pins = stage >= MHS_STAGE_PIN;
	u32 clock = pins ? MHS_CLOCK_PIN : MHS_CLOCK_HOLD;
	u32 last = pins ? MHS_STAGE_LAST : MHS_STAGE_PIN - 1;
	unsigned long period, t;

	lockdep_assert_held(&mhs->lock);
	if (stage == MHS_STAGE_STABLE)
		return 0;
	period = mhs_time_period(mhs, clock);
	t = mhs_time_between(now, period + mhs->ticked[clock]);
	t += (last - stage) * period;
	if (pins)
		return jiffies_to_msecs(t);
	/* while slots are in pin, a new one waits for the next pin tick */
	if (mhs->census.pin)
		t += mhs_time_period(mhs, MHS_CLOCK_PIN);
	return jiffies_to_msecs(t) + mhs_time_pin_ms(mhs);
}

/* Add the server of a slot to the fingerprint of a table */
static void rebuild_print(const struct mhs *mhs, u64 *print, u32 idx)
{
	const struct mhs_server *s;

	rcu_read_lock();
	s = mhs_server_at(mhs, idx);
	*print = mhs_table_fingerprint(*print, s ? s->hash : 0);
	rcu_read_unlock();
}

/* Note what a walk wants to know of a server.  @cut: deleted, with its flows */
static void rebuild_note(const struct mhs_server *s, bool cut)
{
	struct mhs_scratch *scratch = &rebuild_scratch;

	__assign_bit(s->idx, scratch->cut, cut || s->missed == MHS_MISSED_MAX);
	__assign_bit(s->idx, scratch->lost, s->forgotten || mhs_chance_lost(s));
	__assign_bit(s->idx, scratch->answer, mhs_chance_answers(s));
}

/* Walk the slots, which packets read and write meanwhile: set candidates by the table
 * @target (if not NULL), move the slots on by the clocks that ticked, MHS_TICK_*, and
 * take the census.  The full barrier of the compare-and-exchange pairs with
 * mhs_slot_read().
 */
void mhs_rebuild_walk(struct mhs *mhs, const u16 *target, u32 ticks)
{
	struct mhs_scratch *scratch = &rebuild_scratch;
	/* Read once: a change may make it so, and no rebuild is due before */
	bool settling = READ_ONCE(mhs->settling);
	/* Walks write the census, one at a time */
	struct mhs_census was = mhs->census;
	u32 i, first, idx, stage, w, n;
	struct mhs_census now = {};
	struct mhs_server *s;
	bool at_once, chance, cutting;

	bitmap_zero(scratch->in_slots, MHS_IDX_MAX + 1);
	mutex_lock(&mhs->lock);
	chance = mhs_chance_has(mhs);
	if (target && (settling || chance))
		mhs->least_pin_ms = 0;
	cutting = mhs_cutting(mhs->ipvs);
	list_for_each_entry(s, &mhs->gone, list)
		rebuild_note(s, cutting);
	list_for_each_entry(s, &mhs->listed, list)
		rebuild_note(s, false);
	mutex_unlock(&mhs->lock);

	/* A slot that enters a phase between two ticks waits for its first tick
	 * less than a period: the first stage of a phase takes up that tick.  If
	 * no slot is in the phase, its clock starts now, and slots enter the
	 * second stage: a lone change takes hold + pin exactly.
	 */
	if (mhs_time_hold_ms(mhs))
		first = was.hold ? MHS_STAGE_HOLD : MHS_STAGE_HOLD + 1;
	else
		first = was.pin ? MHS_STAGE_PIN : MHS_STAGE_PIN + 1;

	for (i = 0; i < mhs->size; i++) {
		w = READ_ONCE(mhs->slots[i]);
		do {
			idx = mhs_slot_cand(w);
			if (target)
				idx = target[i] == MHS_FILL_NONE ?
				      MHS_IDX_NONE : scratch->idx[target[i]];
			at_once = settling ||
				  (test_bit(mhs_slot_old(w), scratch->cut) &&
				   (cutting || idx != MHS_IDX_NONE)) ||
				  (chance && test_bit(idx, scratch->answer) &&
				   test_bit(mhs_slot_old(w), scratch->answer));
			n = mhs_slot_change(w, idx, at_once, first);
			n = mhs_slot_tick(n, ticks);
			if (chance)
				n = mhs_chance_former(w, n, scratch->lost);
		} while (n != w && !try_cmpxchg(&mhs->slots[i], &w, n));

		__set_bit(mhs_slot_old(n), scratch->in_slots);
		__set_bit(mhs_slot_spare(n), scratch->in_slots);
		rebuild_print(mhs, &now.old_fingerprint, mhs_slot_old(n));
		rebuild_print(mhs, &now.cand_fingerprint, mhs_slot_cand(n));
		stage = mhs_slot_stage(n);
		now.hold += mhs_slot_holding(n);
		now.pin += mhs_slot_pinning(n);
		if (stage && (!now.stage_min || stage < now.stage_min))
			now.stage_min = stage;
		now.stage_max = max(now.stage_max, stage);
		if (!(i & 4095))
			cond_resched();
	}

	mutex_lock(&mhs->lock);
	mhs->census = now;
	if (ticks & MHS_TICK_TRACK)
		mhs->aging = false;
	if (!was.hold && now.hold)
		mhs->ticked[MHS_CLOCK_HOLD] = jiffies;
	if (!was.pin && now.pin)
		/* Slots that came from hold are in the first stage, and the
		 * clock of pin did not run: make the tick due now.
		 */
		mhs->ticked[MHS_CLOCK_PIN] = jiffies -
			(first >= MHS_STAGE_PIN ? 0 :
			 mhs_time_period(mhs, MHS_CLOCK_PIN));
	list_for_each_entry(s, &mhs->gone, list)
		s->in_slots = test_bit(s->idx, scratch->in_slots);
	mutex_unlock(&mhs->lock);
}

/* Fill a table from mhs.listed, and walk the slots.  Callbacks wait for the snapshot
 * of the servers only; one deleted later keeps its index until the next rebuild.
 */
void mhs_rebuild_table(struct mhs *mhs)
{
	struct mhs_scratch *scratch = &rebuild_scratch;
	struct mhs_fill *f = &scratch->fill;
	u32 changes, empty, n = 0;
	u64 start = ktime_get_ns();
	struct mhs_server *s;

	mutex_lock(&mhs->lock);
	changes = mhs->changes;
	mhs->hurry = false;
	/* No server had weight 0, and no flow awaits a merge */
	if (!mhs->drains && !mhs->census.hold && !mhs->census.pin) {
		mhs->least_pin_ms = U32_MAX;
		mhs->not_made_then = mhs_svc_counted(mhs, MHS_NOT_MADE);
	}
	mhs->drains = false;
	list_for_each_entry(s, &mhs->listed, list) {
		if (s->weight <= 0) {
			mhs->drains = true;
			continue;
		}
		scratch->idx[n] = s->idx;
		mhs_share_init(&f->share[n++], s->weight, s->hash, mhs->size);
	}
	mutex_unlock(&mhs->lock);

	/* done_service() waits for this, with the core's mutex */
	empty = mhs_table_fill(f, n);
	mhs_rebuild_walk(mhs, f->table, 0);

	mutex_lock(&mhs->lock);
	WRITE_ONCE(mhs->dirty, changes != mhs->changes);
	mhs->dirty_since = jiffies;
	mhs->hurry &= mhs->dirty;
	mhs->n_empty = empty;
	/* at most a second: a virtual machine may have paused meanwhile */
	mhs->build_us = min_t(u64, div_u64(ktime_get_ns() - start,
					   NSEC_PER_USEC), USEC_PER_SEC);
	mhs->build_at = jiffies + mhs_build_pause(mhs);
	if (empty)
		mhs_svc_warn_once(mhs, MHS_WARN_EMPTY,
				  "some servers get no slot, because their weight is too small a share of the table: load the module with a larger table_size, or choose weights that differ less");
	mutex_unlock(&mhs->lock);
}

/* Track every slot, for connection entries of unknown flows */
void mhs_rebuild_track_all(struct mhs *mhs)
{
	u32 i;

	for (i = 0; i < mhs->size; i++) {
		mhs_slot_track(&mhs->slots[i]);
		if (!(i & 4095))
			cond_resched();
	}
}
