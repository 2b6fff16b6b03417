// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: clocks.
 *
 * A change of servers marks the service dirty, for a rebuild (ip_vs_mhs_slots.c).
 * Rebuilds may take a fifth of one CPU at most: a change that comes sooner waits
 * for the work, but not beyond the next merge.  Until then schedule() passes over
 * servers out of service.
 *
 * The work also moves the slots through hold and pin.  Four clocks tick, each
 * with its own period, and one walk serves all that are due:
 *
 *	hold	hold / 3, while a slot is held
 *	pin	pin / 10, while a slot is pinned
 *	used	pin / 8: a mark not renewed in eight periods goes, if there
 *		was traffic in each
 *	tracked	the longest life of an idle entry: the same
 *
 * The clocks of hold and pin start afresh with the first slot that enters, so
 * a lone change takes hold + pin, to the tick.
 *
 * Settling: a service begins with a partial table, because its servers come
 * one by one.  Until the set has been quiet the table changes without
 * transitions and nothing is sent by it:
 *
 *	first server	-> SETTLING
 *	set quiet	-> YOUNG if no packet has come so far, else SETTLED
 *	YOUNG, change	-> SETTLING, but SETTLED if a server leaves
 *	YOUNG, packet	-> WOKEN, and with the next look of control SETTLED
 *	YOUNG, a minute without a change -> SETTLED
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/math64.h>
#include <linux/module.h>

#include "ip_vs_mhs_ctl.h"

/* Quiet time after which a set of servers is complete, at least; of one server,
 * which does not tell how quickly others come; in the longest time between two
 * changes so far
 */
#define MHS_SETTLE		(HZ / 10)
#define MHS_SETTLE_LONE		HZ
#define MHS_SETTLE_GAPS		2

/* Without a packet a longer time between two changes is an operator's */
#define MHS_GAP_MAX		HZ

/* Meanwhile older flows wait, so not for long: TCP repeats for much longer */
#define MHS_SETTLE_MAX		(5 * HZ)

/* A service without a packet is young until its set has been quiet for so long.
 * A standby director must not be young for ever: flows may come over in a
 * transition of the active one, for which its old table must be the same.  So a
 * server that leaves a quiet set ends the youth, too: it may have died.
 */
#define MHS_YOUNG_MAX		(60 * HZ)

/* A rebuild that took t may be followed by the next after 4t */
#define MHS_BUILD_SHARE		4

/* Second try after a failed allocation, and the longest to a later one */
#define MHS_RETRY		(HZ / 10)
#define MHS_RETRY_MAX		(5 * HZ)

/* In a transition, and while a deleted server is held, the work looks at least
 * this often whether a sysctl has changed, else at least once in MHS_IDLE; so it
 * looks whether a service that began with persistence still has it
 */
#define MHS_LOOK		HZ
#define MHS_IDLE		(60 * HZ)

/* Looks at the traffic in the life of a used mark; what are hardly any packets
 * from one look to the next, in a second
 */
#define MHS_USED_LOOKS		8
#define MHS_USED_FEW		32

/* A used mark must live for a pin time; longer does no harm, and a walk for
 * every millisecond would.  The time between two looks, rounded up.
 */
static unsigned long used_period(const struct ip_vs_mhs *mhs)
{
	return max_t(unsigned long, HZ,
		     msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs))) /
	       MHS_USED_LOOKS + 1;
}

/* Jiffies from now, 0 when it is past */
static unsigned long work_until(unsigned long then)
{
	return ip_vs_mhs_time_between(jiffies, then);
}

/* Jiffies for which a rebuild rests, or after which a set is complete */
static unsigned long work_rest(const struct ip_vs_mhs *mhs)
{
	return usecs_to_jiffies(mhs->build_us * MHS_BUILD_SHARE);
}

/* When the set of servers will have been quiet for long enough.  A service
 * without a server waits for one; one whose servers never rest does not.
 */
static unsigned long work_settled_at(const struct ip_vs_mhs *mhs)
{
	unsigned long quiet = mhs->gap ? MHS_SETTLE_GAPS * mhs->gap :
					 MHS_SETTLE_LONE;

	quiet = max3(quiet, (unsigned long)MHS_SETTLE, 2 * work_rest(mhs));
	quiet += mhs->changed;
	return time_before(quiet, mhs->settle_by) ? quiet : mhs->settle_by;
}

/* The sum of some counters */
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

/* Packets from clients so far.  Replies and errors may come from the flows of
 * another director.
 */
static unsigned long work_requests(const struct ip_vs_mhs *mhs)
{
	return work_counted(mhs, BIT(MHS_CNT_STATELESS) | BIT(MHS_CNT_OLD) |
				BIT(MHS_CNT_CAND) | BIT(MHS_CNT_TRACKED));
}

/* Has a packet come since the service was made? */
static bool work_seen(const struct ip_vs_mhs *mhs)
{
	return work_counted(mhs, ~(BIT(MHS_CNT_CAPPED) | BIT(MHS_CNT_NOMEM)));
}

/* Where hardly a packet comes, only probes of the virtual address perhaps, or the
 * sync daemon is told of flows, these may be on another director, and come here
 * when that one dies: no slot is known to have none.  Else marks age, after so
 * many looks in a row.  A pin time that became longer begins anew.
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
		/* a sync backup may get an entry at any time */
		if (!READ_ONCE(mhs->net->backup))
			ticks |= MHS_TICK_TRACK;
		mhs->all_tracked = false;
		mhs->track_tick = now;
	}
	latest = now + msecs_to_jiffies(ip_vs_mhs_time_hold_ms(mhs)) +
		 msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs));
	list_for_each_entry(s, &mhs->gone, list) {
		/* the times may be shorter than when it was deleted */
		if (time_after(s->gone_until, latest))
			s->gone_until = latest;
		/* expire_nodest_conn may be set after the deletion */
		over |= s->named ? ip_vs_mhs_cutting(mhs->ipvs) :
				   time_after_eq(now, s->gone_until);
	}
	if (!ticks && !over)
		return;
	/* A server that is back in time gets its slots before they merge */
	if (ticks & MHS_TICK_PIN && mhs->dirty &&
	    mhs->census.stage_max == MHS_STAGE_LAST)
		work_build(mhs);
	ip_vs_mhs_slots_walk(mhs, ticks);
	ip_vs_mhs_server_release_gone(mhs, false);
}

static void work_requeue(struct ip_vs_mhs *mhs)
{
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
	if (mhs->phase == MHS_SETTLING && mhs->svc && !mhs->dirty)
		delay = min(delay, work_until(work_settled_at(mhs)));
	else if (mhs->phase != MHS_SETTLED && mhs->svc)
		delay = min(delay, work_until(mhs->changed + MHS_YOUNG_MAX));
	if (mhs->census.hold || mhs->census.pin || !list_empty(&mhs->gone) ||
	    (mhs->svc && mhs->hashed && !mhs->was_stateless))
		delay = min_t(unsigned long, delay, MHS_LOOK);
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

/* Flags are final with the set: the core stores those of an edit after
 * init_service().
 */
static void settle_flags(struct ip_vs_mhs *mhs)
{
	unsigned int flags = READ_ONCE(mhs->svc->flags);

	if (!!(flags & MHS_SVC_F_ADDR_ONLY) != mhs->addr_only) {
		/* Flows with an entry marked the slots of another hash: when
		 * the last packet has used that, mark every slot.
		 */
		WRITE_ONCE(mhs->addr_only, !mhs->addr_only);
		synchronize_rcu();
		ip_vs_mhs_slots_track_all(mhs);
	}
}

/* The set is complete, and from now on changes open transitions.
 *
 * A slot without a packet so far may have flows all the same, from before a
 * restart or from another director: whether a slot is used is known a pin time
 * from now.
 */
static void settle_end(struct ip_vs_mhs *mhs)
{
	if (mhs->phase == MHS_SETTLING)
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

/* The core calls no scheduler when only flags change */
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
					"persistence needs state: every new flow gets a connection entry, as with any scheduler");
	if (!!(flags & MHS_SVC_F_ADDR_ONLY) != mhs->addr_only)
		ip_vs_mhs_svc_warn_once(mhs, MHS_WARN_FLAGS,
					"flag-3 (hash the address only) would move most flows of a live service: it stays as it was until the service is made again");
}

/**
 * ip_vs_mhs_work_settle() - the set of servers is only beginning to be known
 * @mhs: the service
 * @whole: all servers come at once
 *
 * Entries that the namespace has by now may be of flows of this service: from a
 * service for all ports, say, or from a sync daemon that has ended.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_work_settle(struct ip_vs_mhs *mhs, bool whole)
{
	lockdep_assert_held(&mhs->lock);
	WRITE_ONCE(mhs->phase, MHS_SETTLING);
	mhs->changed = jiffies;
	mhs->gap = whole;
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs->used_tick = jiffies;
	mhs->track_tick = jiffies;
	/* flows may come that lack an entry */
	mhs->stateful = false;
	if (ip_vs_mhs_has_entries(mhs->net, mhs->ipvs))
		ip_vs_mhs_slots_track_older(mhs);
	work_requeue(mhs);
}

/**
 * ip_vs_mhs_work_unsettle() - a server of the service is about to change
 * @mhs: the service
 * @leaves: it has slots, and gets no new flow from now on
 *
 * A young service goes back to settling, unless its first packet was quicker.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_work_unsettle(struct ip_vs_mhs *mhs, bool leaves)
{
	lockdep_assert_held(&mhs->lock);
	/* The work may be late by an eighth of the minute */
	leaves |= !work_until(mhs->changed + MHS_YOUNG_MAX);
	/* Pairs with the exchange in ip_vs_mhs_settling() */
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

/* How quickly servers come tells how long to wait for the next */
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
 * Rebuilds the table, now or, if the last rebuild was too long a moment ago,
 * from the work.
 *
 * Context: process, mhs.lock held; takes the scratch space's lock.
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

/* A failure that lasts must not keep a CPU busy: there may be thousands of
 * servers to look at
 */
static void work_try_again(struct ip_vs_mhs *mhs)
{
	if (mhs->missing && mhs->retry && work_until(mhs->retry_at))
		return;
	if (mhs->missing) {
		ip_vs_mhs_work_unsettle(mhs, false);
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
 * ip_vs_mhs_work_refresh() - carriers may not fit any more
 * @mhs: the service
 *
 * The work makes those anew that do not.
 *
 * Context: process; takes mhs.lock.
 */
void ip_vs_mhs_work_refresh(struct ip_vs_mhs *mhs)
{
	mutex_lock(&mhs->lock);
	/* before the first server there is nothing to do, and no clock runs */
	if (mhs->svc) {
		mhs->missing = true;
		work_requeue(mhs);
	}
	mutex_unlock(&mhs->lock);
}

/**
 * ip_vs_mhs_work_look_stateful() - since when has every flow got an entry?
 * @mhs: the service
 *
 * Each packet of a flow makes one while stateless is 0; where one could not be
 * made the time begins anew.
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
		/* A service that never had a server has no flow.  A time long past
		 * would be in the future again one day.
		 */
		if (!mhs->svc ||
		    time_after(jiffies, mhs->stateful_since + pin))
			mhs->stateful_since = jiffies - pin;
		mhs->refused = refused;
	}
	mhs->stateful = stateful;
}

/**
 * ip_vs_mhs_work() - what a service does by itself
 * @work: of the service
 *
 * Context: process.
 */
void ip_vs_mhs_work(struct work_struct *work)
{
	struct ip_vs_mhs *mhs = container_of(to_delayed_work(work),
					     struct ip_vs_mhs, work);
	int i;

	mutex_lock(&mhs->lock);
	/* Times long past would be in the future again one day */
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
