// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: clocks, settling, the work of a service.
 *
 * A change of servers sets mhs.dirty, and a rebuild (ip_vs_mhs_slots.c)
 * follows.  Rebuilds may use a fifth of one CPU: a change too soon after a
 * rebuild waits for the work, but no longer than until the next slots merge.
 * Meanwhile new flows pass over servers out of service (ip_vs_mhs_ask_pick()).
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

/* After a rebuild of length t the next one may start 4t later */
#define MHS_BUILD_SHARE		4

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

/* Jiffies that must pass between two rebuilds */
static unsigned long work_rest(const struct ip_vs_mhs *mhs)
{
	return usecs_to_jiffies(mhs->build_us * MHS_BUILD_SHARE);
}

/* When the set of servers will have been quiet for long enough; settle_by
 * bounds the time for a set that never gets quiet.
 */
static unsigned long work_settled_at(const struct ip_vs_mhs *mhs)
{
	unsigned long quiet = mhs->gap ? MHS_SETTLE_GAPS * mhs->gap :
					 MHS_SETTLE_LONE;

	quiet = max3(quiet, (unsigned long)MHS_SETTLE, 2 * work_rest(mhs));
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

static void work_build(struct ip_vs_mhs *mhs)
{
	ip_vs_mhs_slots_build(mhs);
	ip_vs_mhs_server_release_gone(mhs, false);
}

static void work_tick(struct ip_vs_mhs *mhs)
{
	unsigned long now = jiffies, latest;
	struct ip_vs_mhs_server *s;
	bool over = false;
	u32 ticks = 0;

	if (mhs->census.hold &&
	    time_after_eq(now, mhs->hold_tick + ip_vs_mhs_time_hold_period(mhs))) {
		ticks |= MHS_TICK_HOLD;
		mhs->hold_tick = now;
	}
	if (mhs->census.pin &&
	    time_after_eq(now, mhs->pin_tick + ip_vs_mhs_time_pin_period(mhs))) {
		ticks |= MHS_TICK_PIN;
		mhs->pin_tick = now;
	}
	if (time_after_eq(now, mhs->used_tick + used_period(mhs)) ||
	    used_period(mhs) > mhs->used_period) {
		if (work_used_ages(mhs))
			ticks |= MHS_TICK_USED;
		mhs->used_tick = now;
	}
	if (time_after_eq(now, mhs->track_tick +
			  msecs_to_jiffies(ip_vs_mhs_time_entry_ms(mhs)))) {
		/* the sync daemon may add an entry at any time */
		if (!READ_ONCE(mhs->net->backup))
			ticks |= MHS_TICK_TRACK;
		mhs->all_tracked = false;
		mhs->track_tick = now;
	}
	latest = now + msecs_to_jiffies(ip_vs_mhs_time_hold_ms(mhs)) +
		 msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs));
	list_for_each_entry(s, &mhs->gone, list) {
		/* hold_ms and pin_ms may be shorter than at del_dest */
		if (time_after(s->gone_until, latest))
			s->gone_until = latest;
		/* expire_nodest_conn may be set after del_dest */
		over |= s->named ? ip_vs_mhs_cutting(mhs->ipvs) :
				   time_after_eq(now, s->gone_until);
	}
	if (!ticks && !over)
		return;
	/* Rebuild before slots merge: a server added again gets them back */
	if (ticks & MHS_TICK_PIN && mhs->dirty &&
	    mhs->census.stage_max == MHS_STAGE_LAST)
		work_build(mhs);
	ip_vs_mhs_slots_walk(mhs, ticks);
	ip_vs_mhs_server_release_gone(mhs, false);
}

static void work_requeue(struct ip_vs_mhs *mhs)
{
	u32 phase = READ_ONCE(mhs->phase);
	unsigned long delay = MHS_IDLE;
	struct ip_vs_mhs_server *s;

	if (mhs->missing && !mhs->retry) {
		mhs->retry = MHS_RETRY;
		mhs->retry_at = jiffies + MHS_RETRY;
	}
	if (mhs->missing)
		delay = min(delay, work_until(mhs->retry_at));
	if (mhs->dirty)
		delay = min(delay, work_until(mhs->built + work_rest(mhs)));
	if (phase == MHS_SETTLING && mhs->svc && !mhs->dirty)
		delay = min(delay, work_until(work_settled_at(mhs)));
	else if (phase != MHS_SETTLED && mhs->svc)
		delay = min(delay, work_until(mhs->changed + MHS_YOUNG_MAX));
	if (mhs->census.hold || mhs->census.pin || !list_empty(&mhs->gone))
		delay = min_t(unsigned long, delay, MHS_LOOK);
#ifndef MHS_HAVE_UPD_SERVICE	/* only the patch series has the callback */
	/* Nobody tells that an edit has ended persistence */
	if (mhs->svc && mhs->hashed && !mhs->was_stateless)
		delay = min_t(unsigned long, delay, MHS_LOOK);
#endif
	if (mhs->census.hold)
		delay = min(delay, work_until(mhs->hold_tick +
					     ip_vs_mhs_time_hold_period(mhs)));
	if (mhs->census.pin)
		delay = min(delay, work_until(mhs->pin_tick +
					     ip_vs_mhs_time_pin_period(mhs)));
	delay = min(delay, work_until(mhs->used_tick + used_period(mhs)));
	delay = min(delay, work_until(mhs->track_tick + msecs_to_jiffies
				     (ip_vs_mhs_time_entry_ms(mhs))));
	list_for_each_entry(s, &mhs->gone, list)
		if (!s->named || time_before(jiffies, s->gone_until))
			delay = min(delay, work_until(s->gone_until));
	mod_delayed_work(ip_vs_mhs_slots_wq(mhs->net->net), &mhs->work, delay);
}

/* Take addr_only from the flags once the set is complete: the core stores the
 * flags of an edit after init_service().
 */
static void settle_flags(struct ip_vs_mhs *mhs)
{
	unsigned int flags = READ_ONCE(mhs->svc->flags);

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
	if (READ_ONCE(mhs->phase) == MHS_SETTLING)
		settle_flags(mhs);
	ip_vs_mhs_slots_use_all(mhs);
	mhs->requests = work_requests(mhs);
	mhs->used_looks = 0;
	mhs->used_tick = jiffies;
	/* Pairs with the acquire in ip_vs_mhs_settling() */
	smp_store_release(&mhs->phase, MHS_SETTLED);
}

/* The set has been quiet, but no packet has come */
static void settle_young(struct ip_vs_mhs *mhs)
{
	settle_flags(mhs);
	/* Pairs with the acquire in ip_vs_mhs_settling() */
	smp_store_release(&mhs->phase, MHS_YOUNG);
}

static void work_settle_on(struct ip_vs_mhs *mhs)
{
	if (!mhs->svc)
		return;
	switch (READ_ONCE(mhs->phase)) {
	case MHS_SETTLING:
		if (mhs->dirty || work_until(work_settled_at(mhs)))
			return;
		if (work_seen(mhs))
			settle_end(mhs);
		else
			settle_young(mhs);
		return;
	case MHS_YOUNG:
		if (!work_until(mhs->changed + MHS_YOUNG_MAX))
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
	work_requeue(mhs);
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
		work_requeue(mhs);
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
 * Rebuilds the table at once or, soon after the last rebuild, from the work.
 *
 * Context: process, mhs.lock held; takes the scratch space's lock, and those of
 *	ip_vs_mhs_server_release_gone().
 */
void ip_vs_mhs_work_changed(struct ip_vs_mhs *mhs)
{
	lockdep_assert_held(&mhs->lock);
	if (READ_ONCE(mhs->phase) == MHS_SETTLING)
		work_note_gap(mhs);
	mhs->changed = jiffies;
	WRITE_ONCE(mhs->dirty, true);
	if (!mhs->build_us || !work_until(mhs->built + work_rest(mhs)))
		work_build(mhs);
	work_requeue(mhs);
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
static void work_try_again(struct ip_vs_mhs *mhs)
{
	if (mhs->missing && mhs->retry && work_until(mhs->retry_at))
		return;
	if (mhs->missing) {
		ip_vs_mhs_work_before_change(mhs, work_server_leaves(mhs));
		if (ip_vs_mhs_server_reconcile(mhs))
			ip_vs_mhs_work_changed(mhs);
	}
	if (mhs->missing) {
		mhs->retry = clamp(2 * mhs->retry, MHS_RETRY, MHS_RETRY_MAX);
		mhs->retry_at = jiffies + mhs->retry;
	} else {
		mhs->retry = 0;
	}
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
 * ip_vs_mhs_work() - retry, rebuild, settle and tick
 * @work: mhs.work of the service
 *
 * Context: process; takes mhs.lock.
 */
void ip_vs_mhs_work(struct work_struct *work)
{
	struct ip_vs_mhs *mhs = container_of(to_delayed_work(work),
					     struct ip_vs_mhs, work);
	int i;

	mutex_lock(&mhs->lock);
	/* jiffies wrap: clamp times, or they would be in the future again */
	if (!work_until(mhs->built + MHS_IDLE))
		mhs->built = jiffies - MHS_IDLE;
	for (i = 0; i < ARRAY_SIZE(mhs->budget); i++)
		if (!work_until(READ_ONCE(mhs->budget[i].recount_at)))
			WRITE_ONCE(mhs->budget[i].recount_at, jiffies);
	work_try_again(mhs);
	if (mhs->dirty && !work_until(mhs->built + work_rest(mhs)))
		work_build(mhs);
	work_settle_on(mhs);
	work_check_flags(mhs);
	work_tick(mhs);
	work_requeue(mhs);
	mutex_unlock(&mhs->lock);
}
