// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: clocks, settling, the work of a service.
 *
 * A callback of the core, which holds the core's mutex, only notes a change of
 * servers: mhs.dirty is set, and the work rebuilds the table soon
 * (ip_vs_mhs_slots.c), once for the changes that come together.  So commands
 * wait for no table, and a restore builds one table per service, not one per
 * server.  The rebuilds of a service use at most a fifth of one CPU.  Until the
 * rebuild
 *
 *	- a flow that begins in a slot whose server has left or has weight 0 goes
 *	  to another server (ip_vs_mhs_ask_pick()), by an entry that keeps the
 *	  flow there: the rebuild makes the slot unstable, and the older server
 *	  gets the packets without an entry.  Plain UDP, which has no entries,
 *	  may move once more;
 *	- a flow that begins in any other slot uses the present table, and the
 *	  rebuild takes the flow for an older one;
 *	- a change that is undone has changed no slot;
 *	- State in /proc is "rebuilding"; but who opens /proc builds first.
 *
 * The hold time begins at the rebuild.
 *
 * The work also moves slots through hold and pin.  Four clocks have a period
 * each, and one walk serves every clock that ticks:
 *
 *	hold	hold / 3, while a slot is held
 *	pin	pin / 10, while a slot is pinned
 *	used	pin / 8: after eight looks in a row with traffic the marks age
 *	tracked	the longest life of an idle connection entry: the marks age
 *
 * A mark that no packet sets again goes at the second ageing.  The first slot
 * that enters hold or pin restarts the clock of that phase, so a lone change
 * takes hold + pin exactly.
 *
 * A run of the work asks for each thing once whether its time has come, which
 * also yields the time of the next run.  A run that builds or walks changes
 * clocks: another run follows at once.
 *
 * Settling: the servers of a service come one by one, so the first tables are
 * partial.  Until the set of servers is quiet, the table changes without a
 * transition and no packet is sent by the table:
 *
 *	first server	-> SETTLING
 *	set quiet	-> YOUNG if no packet has come so far, else SETTLED
 *	YOUNG, change	-> SETTLING, but SETTLED if a server leaves
 *	YOUNG, packet	-> WOKEN, and SETTLED at the next change or work
 *	YOUNG, a minute without a change -> SETTLED
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/math64.h>

#include "ip_vs_mhs_ctl.h"

/* Quiet time after which a set of servers is complete: at least MHS_SETTLE, and
 * MHS_SETTLE_GAPS times the longest time between two changes, or
 * MHS_SETTLE_LONE after a single change
 */
#define MHS_SETTLE		(HZ / 10)
#define MHS_SETTLE_LONE		HZ
#define MHS_SETTLE_GAPS		2

/* A longer time between two changes does not count before the first packet: an
 * operator types the commands
 */
#define MHS_GAP_MAX		HZ

/* Longest settling.  Packets of older flows are dropped; TCP repeats longer. */
#define MHS_SETTLE_MAX		(5 * HZ)

/* A service without a packet stays young until its set has been quiet for so
 * long.  A standby director must settle: flows may move to the standby during
 * a transition, and then both directors need the same old table.  A server that
 * leaves a quiet set may have died, so its removal also ends the youth.
 */
#define MHS_YOUNG_MAX		(60 * HZ)

/* Rebuilds wait until the servers of the namespace have been quiet for so long,
 * because commands tend to come together, but at most MHS_BUILD_LATEST
 */
#define MHS_BUILD_QUIET		(HZ / 50)
#define MHS_BUILD_LATEST	HZ

/* First and longest time to a retry after a failed allocation */
#define MHS_RETRY		(HZ / 10)
#define MHS_RETRY_MAX		(5 * HZ)

/* The work polls the sysctls every MHS_LOOK in a transition or while a deleted
 * server is held, else every MHS_IDLE
 */
#define MHS_LOOK		HZ
#define MHS_IDLE		(60 * HZ)

/* Looks at the traffic between two ageings of the used marks; packets in a
 * second below which a look counts as without traffic
 */
#define MHS_USED_LOOKS		8
#define MHS_USED_FEW		32

/* Time between two looks, rounded up.  A used mark must live for a pin time; a
 * longer life is harmless, but walks every few jiffies are not: hence a second
 * at least, whatever the pin time.
 */
static unsigned long used_period(const struct ip_vs_mhs *mhs)
{
	return max_t(unsigned long, HZ,
		     msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs))) /
	       MHS_USED_LOOKS + 1;
}

/* Jiffies from now to @then, 0 when @then is past */
static unsigned long work_until(unsigned long then)
{
	return ip_vs_mhs_time_between(jiffies, then);
}

/* Has the time @then come?  If not, it may be the next thing to do: *delay */
static bool work_due(unsigned long then, unsigned long *delay)
{
	unsigned long left = work_until(then);

	*delay = min(*delay, left);
	return !left;
}

/* Has a clock ticked?  Its next tick is a period later. */
static bool work_ticks(unsigned long *last, unsigned long period,
		       unsigned long *delay)
{
	if (!work_due(*last + period, delay))
		return false;
	*last = jiffies;
	return true;
}

/* Run the work in at most @delay jiffies */
static void work_queue(struct ip_vs_mhs *mhs, unsigned long delay)
{
	mod_delayed_work(ip_vs_mhs_slots_wq(mhs->net->net), &mhs->work, delay);
}

/* When the set of servers will have been quiet for long enough; settle_by
 * bounds the time for a set that never gets quiet.
 */
static unsigned long work_settled_at(const struct ip_vs_mhs *mhs)
{
	unsigned long quiet = mhs->gap ? MHS_SETTLE_GAPS * mhs->gap :
					 MHS_SETTLE_LONE;

	quiet = max3(quiet, (unsigned long)MHS_SETTLE, 2 * ip_vs_mhs_build_rest(mhs));
	quiet += mhs->changed;
	return time_before(quiet, mhs->settle_by) ? quiet : mhs->settle_by;
}

/* Sum of the counters in the mask @which, over all CPUs */
static unsigned long work_counted(const struct ip_vs_mhs *mhs,
				  unsigned long which)
{
	unsigned long n = 0;
	int cpu, i;

	for_each_possible_cpu(cpu)
		for (i = 0; i < MHS_CNT_MAX; i++)
			if (which & BIT(i))
				n += READ_ONCE(per_cpu_ptr(mhs->cnt, cpu)->n[i]);
	return n;
}

/* Packets from clients so far.  Replies and ICMP errors do not count: they may
 * belong to flows through another director.
 */
static unsigned long work_requests(const struct ip_vs_mhs *mhs)
{
	return work_counted(mhs, BIT(MHS_CNT_STATELESS) | BIT(MHS_CNT_OLD) |
				BIT(MHS_CNT_CAND) | BIT(MHS_CNT_TRACKED));
}

/* Has a packet come since init_service?  Control counts in NOMEM, too. */
static bool work_seen(const struct ip_vs_mhs *mhs)
{
	return work_counted(mhs, ~(BIT(MHS_CNT_CAPPED) | BIT(MHS_CNT_NOMEM)));
}

/* Do the used marks age now?  With few packets (probes of the virtual address,
 * say) or as sync backup, flows may run on another director and come here when
 * that director dies.  Then any slot may have flows, and all are marked used.
 * A longer pin time restarts the count of looks.
 */
static bool work_used_ages(struct ip_vs_mhs *mhs)
{
	unsigned long requests = work_requests(mhs), period = used_period(mhs);
	bool few = requests - mhs->requests <
		   div_u64((u64)MHS_USED_FEW * period, HZ);
	bool longer = period > mhs->used_period;

	mhs->requests = requests;
	mhs->used_period = period;
	if (few || longer || READ_ONCE(mhs->net->backup)) {
		ip_vs_mhs_slots_use_all(mhs);
		mhs->used_looks = 0;
		return false;
	}
	if (++mhs->used_looks < MHS_USED_LOOKS)
		return false;
	mhs->used_looks = 0;
	return true;
}

/* Tick the clocks; returns MHS_TICK_* of those that ticked */
static u32 work_clocks(struct ip_vs_mhs *mhs, unsigned long *delay)
{
	unsigned long entry = msecs_to_jiffies(ip_vs_mhs_time_entry_ms(mhs));
	unsigned long used = used_period(mhs);
	u32 ticks = 0;

	if (mhs->census.hold &&
	    work_ticks(&mhs->hold_tick, ip_vs_mhs_time_hold_period(mhs), delay))
		ticks |= MHS_TICK_HOLD;
	if (mhs->census.pin &&
	    work_ticks(&mhs->pin_tick, ip_vs_mhs_time_pin_period(mhs), delay))
		ticks |= MHS_TICK_PIN;
	/* A longer period begins now */
	if (used > mhs->used_period)
		mhs->used_tick = jiffies - used;
	if (work_ticks(&mhs->used_tick, used, delay) && work_used_ages(mhs))
		ticks |= MHS_TICK_USED;
	if (work_ticks(&mhs->track_tick, entry, delay)) {
		/* the sync daemon may add an entry at any time */
		if (!READ_ONCE(mhs->net->backup))
			ticks |= MHS_TICK_TRACK;
		mhs->all_tracked = false;
	}
	return ticks;
}

/* Follow sysctls that were set after del_dest: hold_ms and pin_ms may be
 * shorter; with expire_nodest_conn the caller has to walk: returns true.  Not
 * before a rebuild, which cuts, too.
 */
static bool work_cuts(struct ip_vs_mhs *mhs, unsigned long *delay)
{
	bool cutting = ip_vs_mhs_cutting(mhs->ipvs) && !mhs->dirty;
	struct ip_vs_mhs_server *s;
	unsigned long latest;
	bool cuts = false;

	latest = jiffies + msecs_to_jiffies(ip_vs_mhs_time_hold_ms(mhs)) +
		 msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs));
	list_for_each_entry(s, &mhs->gone, list) {
		if (time_after(s->gone_until, latest))
			s->gone_until = latest;
		if (s->named)
			cuts |= cutting;
		else
			work_due(s->gone_until, delay);
	}
	return cuts;
}

/* When may a dirty table be rebuilt? */
static unsigned long work_build_at(const struct ip_vs_mhs *mhs)
{
	unsigned long quiet = READ_ONCE(mhs->net->changed) + MHS_BUILD_QUIET;
	unsigned long latest = mhs->dirty_since + MHS_BUILD_LATEST;
	unsigned long at = time_before(quiet, latest) ? quiet : latest;

	return time_before(at, mhs->build_at) ? mhs->build_at : at;
}

/* Is a rebuild due?  In any case before slots merge by @ticks: a server added
 * again gets them back.
 */
static bool work_builds(const struct ip_vs_mhs *mhs, u32 ticks,
			unsigned long *delay)
{
	return mhs->dirty &&
	       (work_due(work_build_at(mhs), delay) ||
		(ticks & MHS_TICK_PIN &&
		 mhs->census.stage_max == MHS_STAGE_LAST));
}

/* Poll sysctls in a transition and while a deleted server is held */
static void work_polls(const struct ip_vs_mhs *mhs, unsigned long *delay)
{
	bool polls = mhs->census.hold || mhs->census.pin ||
		     !list_empty(&mhs->gone);

#ifndef MHS_HAVE_UPD_SERVICE	/* only the patch series has the callback */
	/* Nobody tells that an edit has ended persistence */
	polls |= mhs->svc && mhs->hashed && !mhs->was_stateless;
#endif
	if (polls)
		*delay = min_t(unsigned long, *delay, MHS_LOOK);
}

/* Take addr_only from the flags until the set is complete: the core stores the
 * flags of an edit after init_service().
 */
static void settle_flags(struct ip_vs_mhs *mhs)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);
	unsigned int flags;

	if (!svc || READ_ONCE(mhs->phase) != MHS_SETTLING)
		return;
	flags = READ_ONCE(svc->flags);
	if (!!(flags & MHS_SVC_F_ADDR_ONLY) != mhs->addr_only) {
		/* Flows with a connection entry marked slots by the former
		 * hash: mark every slot when no packet uses that hash.
		 */
		WRITE_ONCE(mhs->addr_only, !mhs->addr_only);
		synchronize_rcu();
		ip_vs_mhs_slots_track_all(mhs);
	}
}

/* The set is complete: from now on a change makes slots unstable.  Flows from
 * before a restart or from another director may have sent no packet yet, so
 * every slot counts as used for a pin time.
 */
static void settle_end(struct ip_vs_mhs *mhs)
{
	ip_vs_mhs_slots_use_all(mhs);
	mhs->requests = work_requests(mhs);
	mhs->used_looks = 0;
	mhs->used_tick = jiffies;
	/* Pairs with the acquire in ip_vs_mhs_settling() */
	smp_store_release(&mhs->phase, MHS_SETTLED);
}

static void work_settle_on(struct ip_vs_mhs *mhs, unsigned long *delay)
{
	if (!mhs->svc)
		return;
	switch (READ_ONCE(mhs->phase)) {
	case MHS_SETTLING:
		if (mhs->dirty || !work_due(work_settled_at(mhs), delay))
			return;
		if (work_seen(mhs))
			settle_end(mhs);
		else
			/* Pairs with the acquire in ip_vs_mhs_settling() */
			smp_store_release(&mhs->phase, MHS_YOUNG);
		return;
	case MHS_YOUNG:
		if (work_due(mhs->changed + MHS_YOUNG_MAX, delay))
			settle_end(mhs);
		return;
	case MHS_WOKEN:
		settle_end(mhs);
	}
}

/* Follow the flags, which an edit may have changed */
static void work_check_flags(struct ip_vs_mhs *mhs)
{
	unsigned int flags;

	if (READ_ONCE(mhs->phase) == MHS_SETTLING || !mhs->svc)
		return;
	flags = READ_ONCE(mhs->svc->flags);
	if (!(flags & IP_VS_SVC_F_PERSISTENT))
		WRITE_ONCE(mhs->was_stateless, true);
	else
		ip_vs_mhs_svc_warn_once(mhs, MHS_WARN_PERSISTENT,
					"persistence needs connection entries: every new flow gets one, as with any scheduler");
	if (!!(flags & MHS_SVC_F_ADDR_ONLY) != mhs->addr_only)
		ip_vs_mhs_svc_warn_once(mhs, MHS_WARN_FLAGS,
					"flag-3 (hash the address only) was edited, which would move most flows: the edit has no effect until the service is deleted and added again");
}

/**
 * ip_vs_mhs_work_start_settling() - start settling, at init or with the first server
 * @mhs: the service
 * @whole: all servers come at once, from another scheduler
 *
 * Connection entries of the namespace may belong to flows of this service (from
 * a service for all ports, or a sync daemon that has ended): if there are any,
 * every slot is marked tracked.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_work_start_settling(struct ip_vs_mhs *mhs, bool whole)
{
	lockdep_assert_held(&mhs->lock);
	WRITE_ONCE(mhs->phase, MHS_SETTLING);
	mhs->changed = jiffies;
	/* 0: one change so far, so work_settled_at() waits longer; a complete
	 * set has no reason to wait
	 */
	mhs->gap = whole ? 1 : 0;
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs->used_tick = jiffies;
	mhs->track_tick = jiffies;
	/* flows may come that lack an entry */
	mhs->stateful = false;
	if (ip_vs_mhs_has_entries(mhs))
		ip_vs_mhs_slots_track_older(mhs);
}

/**
 * ip_vs_mhs_work_before_change() - a server of the service is about to change
 * @mhs: the service
 * @leaves: the server has slots, and gets no new flow from now on
 *
 * A young service settles again, unless its first packet has come.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_work_before_change(struct ip_vs_mhs *mhs, bool leaves)
{
	lockdep_assert_held(&mhs->lock);
	/* After MHS_YOUNG_MAX the youth is over, even if the timer of the work
	 * is late, which it may be by an eighth
	 */
	leaves |= !work_until(mhs->changed + MHS_YOUNG_MAX);
	/* Pairs with the exchange in ip_vs_mhs_settling().  MHS_WOKEN keeps
	 * packets from a second exchange until settle_end() has set MHS_SETTLED.
	 */
	switch (cmpxchg(&mhs->phase, MHS_YOUNG,
			leaves ? MHS_WOKEN : MHS_SETTLING)) {
	case MHS_YOUNG:
		if (leaves)
			break;
		mhs->settle_by = jiffies + MHS_SETTLE_MAX;
		work_queue(mhs, MHS_BUILD_QUIET);
		return;
	case MHS_WOKEN:
		break;
	default:
		return;
	}
	settle_end(mhs);
}

/* Note the longest time between two changes, for work_settled_at() */
static void work_note_gap(struct ip_vs_mhs *mhs)
{
	unsigned long gap = max(jiffies - mhs->changed, 1UL);

	if (mhs->n_listed > 1 && gap > mhs->gap &&
	    (gap <= MHS_GAP_MAX || work_seen(mhs)))
		mhs->gap = gap;
}

/**
 * ip_vs_mhs_work_changed() - a server was added, removed or edited
 * @mhs: the service
 *
 * The work rebuilds the table soon, but rests after the last rebuild.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_work_changed(struct ip_vs_mhs *mhs)
{
	lockdep_assert_held(&mhs->lock);
	if (READ_ONCE(mhs->phase) == MHS_SETTLING)
		work_note_gap(mhs);
	mhs->changed = jiffies;
	WRITE_ONCE(mhs->net->changed, jiffies);
	mhs->changes++;
	/* the work is on its way or at it, and sees changes when it ends */
	if (mhs->dirty)
		return;
	WRITE_ONCE(mhs->dirty, true);
	mhs->dirty_since = jiffies;
	work_queue(mhs, MHS_BUILD_QUIET);
}

/* Has a server lost its weight, which upd_dest has yet to report? */
static bool work_server_leaves(const struct ip_vs_mhs *mhs)
{
	struct ip_vs_mhs_server *s;

	list_for_each_entry(s, &mhs->listed, list)
		if (s->weight > 0 && atomic_read(&s->dest->weight) <= 0)
			return true;
	return false;
}

/* Retry failed allocations, after times that double: each retry looks at every
 * server, which must not keep a CPU busy
 */
static void work_try_again(struct ip_vs_mhs *mhs, unsigned long *delay)
{
	if (mhs->missing && mhs->retry && !work_due(mhs->retry_at, delay))
		return;
	if (mhs->missing) {
		ip_vs_mhs_work_before_change(mhs, work_server_leaves(mhs));
		if (ip_vs_mhs_server_reconcile(mhs))
			ip_vs_mhs_work_changed(mhs);
	}
	if (mhs->missing) {
		mhs->retry = clamp(2 * mhs->retry, MHS_RETRY, MHS_RETRY_MAX);
		mhs->retry_at = jiffies + mhs->retry;
		work_due(mhs->retry_at, delay);
	} else {
		mhs->retry = 0;
	}
}

/**
 * ip_vs_mhs_work_build() - rebuild the table now, if a rebuild is due
 * @mhs: the service
 *
 * For readers of the table: the work need not rest, the reader pays.
 *
 * Context: process; takes mhs.build_lock and the locks of
 *	ip_vs_mhs_slots_build().
 */
void ip_vs_mhs_work_build(struct ip_vs_mhs *mhs)
{
	mutex_lock(&mhs->build_lock);
	if (READ_ONCE(mhs->dirty))
		ip_vs_mhs_slots_build(mhs);
	mutex_unlock(&mhs->build_lock);
}

/**
 * ip_vs_mhs_work_look_stateful() - update mhs.stateful and mhs.stateful_since
 * @mhs: the service
 *
 * While the sysctl stateless is 0, a packet of a flow without an entry makes
 * one.  Every entry that could not be made restarts the time.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_work_look_stateful(struct ip_vs_mhs *mhs)
{
	unsigned long pin = msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs));
	bool stateful = !READ_ONCE(mhs->net->stateless);
	unsigned long refused;

	lockdep_assert_held(&mhs->lock);
	if (stateful) {
		refused = work_counted(mhs, BIT(MHS_CNT_CAPPED) |
					   BIT(MHS_CNT_NOMEM));
		if (!mhs->stateful || refused != mhs->refused ||
		    READ_ONCE(mhs->phase) == MHS_SETTLING)
			mhs->stateful_since = jiffies;
		/* A service that never had a server has no flow.  Clamp the
		 * time: jiffies wrap, and then it would be in the future.
		 */
		if (!mhs->svc ||
		    time_after(jiffies, mhs->stateful_since + pin))
			mhs->stateful_since = jiffies - pin;
		mhs->refused = refused;
	}
	mhs->stateful = stateful;
}

/**
 * ip_vs_mhs_work() - do what is due: retry, rebuild, settle, tick
 * @work: mhs.work of the service
 *
 * Context: process; takes mhs.build_lock, mhs.lock and the locks of
 *	ip_vs_mhs_slots_build().
 */
void ip_vs_mhs_work(struct work_struct *work)
{
	struct ip_vs_mhs *mhs = container_of(to_delayed_work(work),
					     struct ip_vs_mhs, work);
	unsigned long delay = MHS_IDLE;
	bool builds, walks;
	u32 ticks;
	int i;

	mutex_lock(&mhs->build_lock);
	settle_flags(mhs);
	mutex_lock(&mhs->lock);
	/* jiffies wrap: clamp times, or they would be in the future again */
	if (!work_until(mhs->build_at + MHS_IDLE))
		mhs->build_at = jiffies - MHS_IDLE;
	for (i = 0; i < ARRAY_SIZE(mhs->budget); i++)
		if (!work_until(READ_ONCE(mhs->budget[i].recount_at)))
			WRITE_ONCE(mhs->budget[i].recount_at, jiffies);
	ip_vs_mhs_server_release_gone(mhs, false);
	work_try_again(mhs, &delay);
	work_settle_on(mhs, &delay);
	work_check_flags(mhs);
	ticks = work_clocks(mhs, &delay);
	walks = work_cuts(mhs, &delay) || ticks;
	builds = work_builds(mhs, ticks, &delay);
	work_polls(mhs, &delay);
	work_queue(mhs, builds || walks ? 0 : delay);
	mutex_unlock(&mhs->lock);

	if (builds)
		ip_vs_mhs_slots_build(mhs);
	if (walks)
		ip_vs_mhs_slots_walk(mhs, ticks);
	mutex_unlock(&mhs->build_lock);
}
