// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the way of a change of servers, from a callback
 * of the core until slots merge.
 *
 *	mhs_work_upd_dest()	a callback
 *	  settle_before_change()	was the first set of servers not right?
 *	  mhs_server_refresh()	weight, facts, carrier
 *	  mhs_work_note()	a rebuild is due
 *	mhs_work()		soon, and when a clock ticks
 *	  mhs_rebuild_table()	a new table
 *	    mhs_rebuild_walk()	all slots, also when a clock ticks alone
 *	      mhs_slot_change()	gives a slot its candidate
 *	      mhs_slot_tick()	the next stage; after the last the slot merges
 *
 * A callback of the core only notes a change in mhs.dirty.  The work rebuilds the
 * table soon, once for changes that come together; rebuilds use at most a fifth of
 * one CPU, unless readers of /proc ask for more.  Until the rebuild a flow that begins
 * in a slot whose server is out of service goes to another one by an entry, see
 * mhs_entry_search().  Plain UDP, which has no entries, may move once more.
 *
 * Three clocks move slots through hold and pin and age the tracked bits; one walk
 * serves every clock that ticks:
 *
 *	hold	hold / 3, while a slot is in hold
 *	pin	pin / 10, while a slot is in pin
 *	tracked	the longest life of an idle connection entry; what no packet sets
 *		again goes at the second tick
 *
 * Settling: the servers of a service come one by one, so the first tables are
 * partial.  Until the set of servers is quiet, the table changes without a
 * transition and no packet but plain UDP is sent by the table:
 *
 *	first server	-> settling
 *	set quiet	-> settled
 *	early, a server is added or edited before the first packet
 *			-> settling
 *	early, a server is deleted before the first new flow
 *			-> settling
 *	any other change, or MHS_EARLY after the last one
 *			-> not early any more
 *
 * A health checker deletes servers of its file that are dead; a server that is to
 * be drained gets weight 0.  So a server that is deleted early was dead when the
 * service came.  If that is wrong, other servers reset its older flows; and a dead
 * server that is deleted late, or gets weight 0, keeps slots for hold + pin in
 * which another director has other servers: flows from there break.
 */
#include "ip_vs_mhs_ctl.h"

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

/* Quiet time after which a set of servers is complete: twice the longest time
 * between two changes, and at least MHS_SETTLE, or MHS_SETTLE_LONE after a
 * single change or if they do not come together
 */
#define MHS_SETTLE		(HZ / 10)
#define MHS_SETTLE_LONE		HZ

/* A longer gap does not count before the first packet: an operator types */
#define MHS_GAP_MAX		HZ

/* Longest settling: TCP repeats for longer */
#define MHS_SETTLE_MAX		(5 * HZ)

/* A set that has been quiet for so long is no first one: a standby needs the active
 * director's transitions.  keepalived begins its first check within a minute.
 */
#define MHS_EARLY		(120 * HZ)

/* Has the time @then come?  If not, it may be the next thing to do: *delay */
static bool work_due(unsigned long then, unsigned long *delay)
{
	unsigned long wait = mhs_time_between(jiffies, then);

	*delay = min(*delay, wait);
	return !wait;
}

/* Has a packet come since init_service?  Control counts in NOMEM, too. */
static bool settle_seen(const struct mhs *mhs)
{
	return mhs_svc_counted(mhs, ~MHS_NOT_MADE);
}

/* Has a flow begun here?  A packet of UDP does not show whether it begins one. */
static bool settle_begun(const struct mhs *mhs)
{
	const struct ip_vs_cpu_stats *stats;
	u64 conns = 0;
	int cpu;

	if (mhs->fwmark || mhs->protocol == IPPROTO_UDP)
		return settle_seen(mhs);
	for_each_possible_cpu(cpu) {
		stats = per_cpu_ptr(mhs->svc->stats.cpustats, cpu);
		conns |= u64_stats_read(&stats->cnt.conns);
	}
	return conns;
}

/* When the set of servers will have been quiet for long enough, or settle_by */
static unsigned long settle_at(const struct mhs *mhs)
{
	unsigned long least = mhs->gap && mhs->gap < MHS_SETTLE / 2 ?
			      MHS_SETTLE : MHS_SETTLE_LONE;
	unsigned long quiet = max3(2 * mhs->gap, least,
				   2 * mhs_build_pause(mhs));

	quiet += mhs->changed_at;
	return time_before(quiet, mhs->settle_by) ? quiet : mhs->settle_by;
}

/* Take addr_only from the flags while settling, as the core stores the flags of an
 * edit after init_service(); later only warn.  Waits for a grace period, so not
 * under mhs.lock, for which callbacks wait.
 */
static void settle_flags(struct mhs *mhs)
{
	bool addr_only = (__force u32)mhs_svc_flags(mhs) & MHS_SVC_F_ADDR_ONLY;

	if (addr_only == mhs->addr_only)
		return;
	if (READ_ONCE(mhs->settling)) {
		/* Flows with a connection entry track slots by the former
		 * hash: track every slot when no packet uses that hash.
		 */
		WRITE_ONCE(mhs->addr_only, addr_only);
		synchronize_rcu();
		mhs_rebuild_track_all(mhs);
		return;
	}
	mutex_lock(&mhs->lock);
	mhs_svc_warn_once(mhs, MHS_WARN_ADDR_ONLY,
			  "flag-3 (hash the address only) was edited, which would move most flows: the edit has no effect until the service is deleted and added again");
	mutex_unlock(&mhs->lock);
}

/* Has the namespace entries other than carriers, which conn_count counts, too? */
static bool settle_has_entries(const struct mhs *mhs)
{
	/* The acquires pair with the full barriers of carrier_new() and
	 * carrier_put().  A carrier that comes or goes between the reads may
	 * pass for an entry.  One that goes and another that comes between
	 * them may hide an entry, whose flow then goes by the table.
	 */
	int carriers = atomic_read_acquire(&mhs->mn->carriers);
	int n = atomic_read_acquire(&mhs->ipvs->conn_count);

	return n > min(carriers, atomic_read(&mhs->mn->carriers));
}

static void settle_again(struct mhs *mhs)
{
	WRITE_ONCE(mhs->settling, true);
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs->early_until = get_jiffies_64() + MHS_EARLY;
}

/* Start settling, at init or with the first server; @whole: all servers come at
 * once, from another scheduler.  Entries of the namespace may be of flows of this
 * service, by a former service for all ports or a sync daemon: track every slot.
 */
void mhs_settle_start(struct mhs *mhs, bool whole)
{
	lockdep_assert_held(&mhs->lock);
	settle_again(mhs);
	mhs->changed_at = jiffies;
	/* 0: one change so far; a complete set has no reason to wait */
	mhs->gap = whole ? 1 : 0;
	mhs->build_at = jiffies;
	mhs->ticked[MHS_CLOCK_TRACK] = jiffies;
	/* flows may come that lack an entry */
	mhs->stateful = false;
	if (settle_has_entries(mhs))
		mhs_rebuild_track_all(mhs);
}

/* Settle again?  A packet on its way goes by the former table. */
static void settle_before_change(struct mhs *mhs, enum mhs_change change)
{
	lockdep_assert_held(&mhs->lock);
	if (READ_ONCE(mhs->settling) ||
	    !time_before64(get_jiffies_64(), mhs->early_until))
		return;
	if (change == MHS_DRAINED ||
	    (change == MHS_DELETED ? settle_begun(mhs) : settle_seen(mhs))) {
		mhs->early_until = 0;
		return;
	}
	/* a check may fail at any time: no pause to wait for again */
	if (change == MHS_DELETED)
		mhs->changed_at = jiffies;
	settle_again(mhs);
	mod_delayed_work(mhs_rebuild_wq, &mhs->work, 0);
}

static void settle_note_gap(struct mhs *mhs)
{
	unsigned long gap = max(jiffies - mhs->changed_at, 1UL);

	if (mhs->n_listed > 1 && gap > mhs->gap &&
	    (gap <= MHS_GAP_MAX || settle_seen(mhs)))
		mhs->gap = gap;
}

void mhs_work_note(struct mhs *mhs)
{
	lockdep_assert_held(&mhs->lock);
	if (READ_ONCE(mhs->settling))
		settle_note_gap(mhs);
	mhs->changed_at = jiffies;
	WRITE_ONCE(mhs->mn->changed_at, jiffies);
	mhs->changes++;
	/* the work is on its way or at it, and sees changes when it ends */
	if (mhs->dirty)
		return;
	WRITE_ONCE(mhs->dirty, true);
	mhs->dirty_since = jiffies;
	mod_delayed_work(mhs_rebuild_wq, &mhs->work, MHS_BUILD_QUIET);
}

int mhs_work_add_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct mhs *mhs = svc->sched_data;

	mutex_lock(&mhs->lock);
	if (!mhs->svc)
		mhs_settle_start(mhs, false);
	else
		settle_before_change(mhs, MHS_EDITED);
	/* Pairs with the acquires in packet_checked() and lane_ask(): a packet
	 * that sees svc sees the service settling.
	 */
	smp_store_release(&mhs->svc, svc);
	mhs_server_add(mhs, dest);
	mhs_work_note(mhs);
	mutex_unlock(&mhs->lock);
	return 0;
}

int mhs_work_upd_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct mhs *mhs = svc->sched_data;
	struct mhs_server *s;

	mutex_lock(&mhs->lock);
	s = mhs_server_find(mhs, dest);
	if (!s || s->weight != atomic_read(&dest->weight))
		settle_before_change(mhs, s && mhs_server_drains(s) ?
					 MHS_DRAINED : MHS_EDITED);
	/* add_dest had no memory for the server: the work adds it soon */
	if (!s || mhs_server_refresh(s) || mhs->retry)
		mhs_work_note(mhs);
	mutex_unlock(&mhs->lock);
	return 0;
}

int mhs_work_del_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct mhs *mhs = svc->sched_data;
	struct mhs_server *s;

	mutex_lock(&mhs->lock);
	s = mhs_server_find(mhs, dest);
	if (s) {
		settle_before_change(mhs, MHS_DELETED);
		mhs_work_note(mhs);
		mhs_server_gone(s);
	}
	mutex_unlock(&mhs->lock);
	return 0;
}

/* Have the work replace carriers that do not fit */
void mhs_work_refresh(struct mhs *mhs)
{
	mutex_lock(&mhs->lock);
	/* before the first server no carrier exists */
	if (mhs->svc) {
		mhs->retry = true;
		mod_delayed_work(mhs_rebuild_wq, &mhs->work, 0);
	}
	mutex_unlock(&mhs->lock);
}

/* Tick the clocks; returns MHS_TICK_* of those that ticked */
static u32 work_clocks(struct mhs *mhs, unsigned long *delay)
{
	const bool runs[] = { mhs->census.hold, mhs->census.pin, true };
	u32 i, ms, ticks = 0;

	for (i = 0; i < MHS_CLOCKS; i++)
		if (runs[i] &&
		    work_due(mhs->ticked[i] + mhs_time_period(mhs, i), delay)) {
			ms = jiffies_to_msecs(MHS_PIN_TICKS *
					      (jiffies - mhs->ticked[i]));
			if (i == MHS_CLOCK_PIN)
				mhs->least_pin_ms = min(mhs->least_pin_ms, ms);
			mhs->ticked[i] = jiffies;
			ticks |= BIT(i);
		}
	/* the sync daemon may add an entry at any time */
	return READ_ONCE(mhs->mn->backup) ? ticks & ~MHS_TICK_TRACK : ticks;
}

/* May servers without new flows have older ones?  In a transition; with the second
 * chance, which makes none, as long as the weight is 0.
 */
static bool work_has_older(const struct mhs *mhs)
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
			work_due(s->gone_until, delay);
			continue;
		}
		cuts |= cutting | mhs_server_dies(s);
		/* then no slot has the server as the former one */
		if (!s->forgotten && work_due(s->gone_until, delay)) {
			s->forgotten = true;
			cuts = true;
		}
	}
	if (work_has_older(mhs))
		list_for_each_entry(s, &mhs->listed, list)
			cuts |= mhs_server_dies(s);
	return cuts && !mhs->dirty;
}

/* Is a rebuild due?  In any case before slots merge by @ticks: a server added
 * again gets them back.
 */
static bool work_builds(struct mhs *mhs, u32 ticks, unsigned long *delay)
{
	unsigned long at = READ_ONCE(mhs->mn->changed_at) + MHS_BUILD_QUIET;
	unsigned long latest = mhs->dirty_since + MHS_BUILD_LATEST;
	bool waits;

	if (!mhs->dirty)
		return false;
	if (time_after(at, latest))
		at = latest;
	if (time_before(at, mhs->build_at))
		at = mhs->build_at;
	waits = mhs_chance_waits(mhs);
	if (waits && (mhs->hurry || time_before(at, jiffies + MHS_BUILD_QUIET)))
		at = jiffies + MHS_BUILD_QUIET;
	return (mhs->hurry && !waits) || work_due(at, delay) ||
	       (ticks & MHS_TICK_PIN && mhs->census.stage_max == MHS_STAGE_LAST);
}

/* Retry what callbacks could not allocate */
static void work_try_again(struct mhs *mhs)
{
	struct mhs_server *s;
	bool leaves = false;
	int idx;

	/* RCU callbacks free indexes, without a word to the work */
	idx = mhs->lacks_index ? mhs_server_index(mhs) : 0;
	if (idx > 0) {
		ida_free(&mhs->indexes, idx);
		mhs->retry = true;
	}
	if (!mhs->retry)
		return;
	/* one may have lost its weight, which upd_dest has yet to report */
	list_for_each_entry(s, &mhs->listed, list)
		leaves |= mhs_server_drains(s);
	settle_before_change(mhs, leaves ? MHS_DRAINED : MHS_EDITED);
	if (mhs_server_reconcile(mhs))
		mhs_work_note(mhs);
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
		mod_delayed_work(mhs_rebuild_wq, &mhs->work, 0);
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
	bool stateful = !READ_ONCE(mhs->mn->stateless);
	unsigned long refused;

	lockdep_assert_held(&mhs->lock);
	if (stateful) {
		refused = mhs_svc_counted(mhs, MHS_NOT_MADE | BIT(MHS_CNT_BY_ID));
		if (!mhs->stateful || refused != mhs->not_made ||
		    READ_ONCE(mhs->settling))
			mhs->stateful_since = jiffies;
		/* A service that never had a server has no flow.  Clamp the
		 * time: jiffies wrap, and then it would be in the future.
		 */
		if (!mhs->svc || time_after(jiffies, mhs->stateful_since + pin))
			mhs->stateful_since = jiffies - pin;
		mhs->not_made = refused;
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

/* Do what is due once a server came: retry, settle, rebuild, tick */
void mhs_work(struct work_struct *work)
{
	struct mhs *mhs = container_of(to_delayed_work(work), struct mhs, work);
	unsigned long delay = MHS_IDLE;
	bool builds, walks;
	u32 ticks;

	settle_flags(mhs);
	mutex_lock(&mhs->lock);
	/* jiffies wrap: clamp times, or they would be in the future again */
	if (!mhs_time_between(jiffies, mhs->build_at + MHS_IDLE))
		mhs->build_at = jiffies - MHS_IDLE;
	mhs_server_release_gone(mhs, false);
	work_try_again(mhs);
	if (READ_ONCE(mhs->settling) && !mhs->dirty &&
	    work_due(mhs->retry ? mhs->settle_by : settle_at(mhs), &delay))
		/* Pairs with the acquires in packet_question(), lane_decide() and
		 * chance_packet()
		 */
		smp_store_release(&mhs->settling, false);
	ticks = work_clocks(mhs, &delay);
	if (ticks & MHS_TICK_TRACK) {
		mhs->all_tracked = false;
		mhs->aging = true;
	}
	walks = work_cuts(mhs, &delay) || ticks;
	builds = work_builds(mhs, ticks, &delay);
	if (work_has_older(mhs) || !list_empty(&mhs->gone) || mhs->retry || mhs->lacks_index)
		delay = min_t(unsigned long, delay, MHS_POLL);
	mod_delayed_work(mhs_rebuild_wq, &mhs->work,
			 builds || walks ? 0 : delay);
	mutex_unlock(&mhs->lock);

	if (builds)
		mhs_rebuild_table(mhs);
	if (walks)
		mhs_rebuild_walk(mhs, NULL, ticks);
}
