// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: changes, clocks, the work of a service.
 *
 * A callback of the core only notes a change in mhs.dirty.  The work rebuilds the
 * table soon, once for changes that come together; rebuilds use at most a fifth of
 * one CPU, unless readers of /proc ask for more.  Until the rebuild a flow that begins
 * in a slot whose server is out of service goes to another one by an entry, see
 * ask_other().  Plain UDP, which has no entries, may move once more.
 *
 * Three clocks move slots through hold and pin and age the tracked marks; one walk
 * serves every clock that ticks:
 *
 *	hold	hold / 3, while a slot is held
 *	pin	pin / 10, while a slot is pinned
 *	tracked	the longest life of an idle connection entry; a mark that no packet
 *		sets again goes at the second tick
 *
 * The first slot that enters hold or pin restarts the clock of that phase, so a
 * lone change takes hold + pin exactly.
 */
#include "ip_vs_mhs_ctl.h"
#include "ip_vs_mhs_pkt.h"

/* Rebuilds wait until the servers of the namespace have been quiet for so long,
 * because commands tend to come together, but at most MHS_BUILD_LATEST
 */
#define MHS_BUILD_QUIET		(HZ / 50)
#define MHS_BUILD_LATEST	HZ

/* The work polls the sysctls and retries every MHS_POLL in a transition or if it has
 * something to retry, else every MHS_IDLE
 */
#define MHS_POLL		HZ
#define MHS_IDLE		(60 * HZ)

/* Tick the clocks; returns MHS_TICK_* of those that ticked */
static u32 work_clocks(struct mhs *mhs, unsigned long *delay)
{
	const bool runs[] = { mhs->census.hold, mhs->census.pin, true };
	u32 i, ms, ticks = 0;

	for (i = 0; i < MHS_CLOCKS; i++)
		if (runs[i] &&
		    mhs_time_due(mhs->ticked[i] +
				 mhs_time_period(mhs, i), delay)) {
			ms = jiffies_to_msecs(MHS_PIN_TICKS *
					      (jiffies - mhs->ticked[i]));
			if (i == MHS_CLOCK_PIN)
				mhs->pinned_ms = min(mhs->pinned_ms, ms);
			mhs->ticked[i] = jiffies;
			ticks |= BIT(i);
		}
	/* the sync daemon may add an entry at any time */
	if (ticks & MHS_TICK_TRACK && READ_ONCE(mhs->net->backup)) {
		ticks &= ~MHS_TICK_TRACK;
		mhs->all_tracked = false;
	}
	return ticks;
}

/* May servers without new flows have older ones?  In a transition; with the second
 * chance, which makes none, as long as the weight is 0.
 */
static bool work_drains(const struct mhs *mhs)
{
	return mhs->census.hold || mhs->census.pin ||
	       (READ_ONCE(mhs->chance) && mhs->drains);
}

/* Follow hold_ms and pin_ms, which may have become shorter since del_dest.  Returns
 * true if the caller has to walk, as flows are cut: a rebuild that is due does so.
 */
static bool work_cuts(struct mhs *mhs, unsigned long *delay)
{
	bool cutting = mhs_cutting(mhs->ipvs);
	struct mhs_server *s;
	unsigned long latest;
	bool cuts = false;

	latest = jiffies + msecs_to_jiffies(mhs_time_hold_ms(mhs)) +
		 msecs_to_jiffies(mhs_time_pin_ms(mhs));
	list_for_each_entry(s, &mhs->gone, list) {
		if (time_after(s->gone_until, latest))
			s->gone_until = latest;
		if (!s->in_slots) {
			mhs_time_due(s->gone_until, delay);
			continue;
		}
		cuts |= cutting | mhs_server_dies(s);
		/* then no slot names the server as the former one */
		if (!s->forgotten && mhs_time_due(s->gone_until, delay)) {
			s->forgotten = true;
			cuts = true;
		}
	}
	if (work_drains(mhs))
		list_for_each_entry(s, &mhs->listed, list)
			cuts |= mhs_server_dies(s);
	return cuts && !mhs->dirty;
}

/* Is a rebuild due?  In any case before slots merge by @ticks: a server added
 * again gets them back.
 */
static bool work_builds(struct mhs *mhs, u32 ticks, unsigned long *delay)
{
	unsigned long at = READ_ONCE(mhs->net->changed) + MHS_BUILD_QUIET;
	unsigned long latest = mhs->dirty_since + MHS_BUILD_LATEST;

	if (time_after(at, latest))
		at = latest;
	if (time_before(at, mhs->build_at))
		at = mhs->build_at;
	if (mhs->dirty && mhs_chance_waits(mhs) &&
	    time_before(at, jiffies + MHS_BUILD_QUIET))
		at = jiffies + MHS_BUILD_QUIET;
	return mhs->dirty &&
	       (mhs->hurry || mhs_time_due(at, delay) ||
		(ticks & MHS_TICK_PIN &&
		 mhs->census.stage_max == MHS_STAGE_LAST));
}

/* A server was added, removed or edited.  The work rebuilds the table soon, but
 * rests after the last rebuild.
 */
void mhs_work_changed(struct mhs *mhs)
{
	lockdep_assert_held(&mhs->lock);
	if (READ_ONCE(mhs->settle) == MHS_SETTLING)
		mhs_settle_note_gap(mhs);
	mhs->changed = jiffies;
	WRITE_ONCE(mhs->net->changed, jiffies);
	mhs->changes++;
	/* the work is on its way or at it, and sees changes when it ends */
	if (mhs->dirty)
		return;
	WRITE_ONCE(mhs->dirty, true);
	mhs->dirty_since = jiffies;
	mhs_queue(mhs, MHS_BUILD_QUIET);
}

/* Retry what callbacks could not allocate */
static void work_try_again(struct mhs *mhs)
{
	struct mhs_server *s;
	bool leaves = false;
	int idx;

	/* RCU callbacks free indexes, without a word to the work */
	idx = mhs->full ? mhs_server_index(mhs) : 0;
	if (idx > 0) {
		ida_free(&mhs->indexes, idx);
		mhs->poked = true;
	}
	if (!mhs->poked)
		return;
	/* one may have lost its weight, which upd_dest has yet to report */
	list_for_each_entry(s, &mhs->listed, list)
		leaves |= mhs_server_leaves(s);
	mhs_settle_before_change(mhs, leaves ? MHS_DRAINED : MHS_CHANGED);
	if (mhs_server_reconcile(mhs))
		mhs_work_changed(mhs);
}

/* Have the work rebuild the table now, if a rebuild is due, and wait for it.  For
 * readers of the table, who have a reference to the service.
 */
void mhs_work_build(struct mhs *mhs)
{
	if (!READ_ONCE(mhs->dirty))
		return;
	mutex_lock(&mhs->lock);
	if (mhs->dirty && !mhs->ended) {
		/* A build under way may have begun before the last change: the
		 * run after it builds again.
		 */
		mhs->hurry = true;
		mhs_queue(mhs, 0);
	}
	mutex_unlock(&mhs->lock);
	flush_delayed_work(&mhs->work);
}

/* Update mhs.stateful and mhs.stateful_since.  While the sysctl stateless is 0,
 * a packet of a flow without an entry makes one.  Every entry that could not be
 * made restarts the time, and every packet that goes by its connection ID.
 */
void mhs_work_poll_stateful(struct mhs *mhs)
{
	unsigned long pin = msecs_to_jiffies(mhs_time_pin_ms(mhs));
	bool stateful = !READ_ONCE(mhs->net->stateless);
	unsigned long refused;

	lockdep_assert_held(&mhs->lock);
	if (stateful) {
		refused = mhs_svc_counted(mhs, MHS_REFUSED | BIT(MHS_CNT_NAMED));
		if (!mhs->stateful || refused != mhs->refused ||
		    READ_ONCE(mhs->settle) == MHS_SETTLING)
			mhs->stateful_since = jiffies;
		/* A service that never had a server has no flow.  Clamp the
		 * time: jiffies wrap, and then it would be in the future.
		 */
		if (!mhs->svc || time_after(jiffies, mhs->stateful_since + pin))
			mhs->stateful_since = jiffies - pin;
		mhs->refused = refused;
	}
	mhs->stateful = stateful;
}

/* Count the entries of a service: no callback reports that one expires */
u32 mhs_work_entries(const struct mhs *mhs)
{
	struct mhs_server *s;
	u32 n = 0;

	lockdep_assert_held(&mhs->lock);
	list_for_each_entry(s, &mhs->listed, list)
		n += mhs_dest_entries(s->dest);
	list_for_each_entry(s, &mhs->gone, list)
		n += mhs_dest_entries(s->dest);
	return n;
}

/* Do what is due: retry, rebuild, settle, tick */
void mhs_work(struct work_struct *work)
{
	struct mhs *mhs = container_of(to_delayed_work(work), struct mhs, work);
	unsigned long delay = MHS_IDLE;
	bool builds, walks;
	u32 ticks;

	mhs_settle_flags(mhs);
	mutex_lock(&mhs->lock);
	/* jiffies wrap: clamp times, or they would be in the future again */
	if (!mhs_time_between(jiffies, mhs->build_at + MHS_IDLE))
		mhs->build_at = jiffies - MHS_IDLE;
	mhs_server_release_gone(mhs, false);
	work_try_again(mhs);
	mhs_settle_on(mhs, &delay);
	ticks = work_clocks(mhs, &delay);
	walks = work_cuts(mhs, &delay) || ticks;
	builds = work_builds(mhs, ticks, &delay);
	if (work_drains(mhs) || !list_empty(&mhs->gone) || mhs->poked || mhs->full)
		delay = min_t(unsigned long, delay, MHS_POLL);
	mhs_queue(mhs, builds || walks ? 0 : delay);
	mutex_unlock(&mhs->lock);

	if (builds)
		mhs_slots_build(mhs);
	if (walks)
		mhs_slots_walk(mhs, NULL, ticks);
}
