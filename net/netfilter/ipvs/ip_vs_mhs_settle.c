// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: settling.
 *
 * Settling: the servers of a service come one by one, so the first tables are
 * partial.  Until the set of servers is quiet, the table changes without a
 * transition and no packet but plain UDP is sent by the table:
 *
 *	first server	-> SETTLING
 *	set quiet	-> YOUNG if no packet has come so far, else SETTLED
 *	YOUNG, change	-> SETTLING, but SETTLED if a server leaves
 *	YOUNG, packet	-> SETTLED
 *	YOUNG, a minute without a change -> SETTLED
 */
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

/* Longest settling: TCP repeats for longer */
#define MHS_SETTLE_MAX		(5 * HZ)

/* A service without a packet stays young until its set has been quiet for so
 * long.  A standby director must settle: flows may move to the standby during
 * a transition, and then both directors need the same old table.  A server that
 * leaves a quiet set may have died, so its removal also ends the youth.
 */
#define MHS_YOUNG_MAX		(60 * HZ)

/* Has a packet come since init_service?  Control counts in NOMEM, too. */
static bool settle_seen(const struct mhs *mhs)
{
	return mhs_svc_counted(mhs, ~MHS_REFUSED);
}

/* When the set of servers will have been quiet for long enough, or settle_by */
static unsigned long settle_at(const struct mhs *mhs)
{
	unsigned long quiet = mhs->gap ? MHS_SETTLE_GAPS * mhs->gap :
					 MHS_SETTLE_LONE;

	quiet = max3(quiet, (unsigned long)MHS_SETTLE, 2 * mhs_build_rest(mhs));
	quiet += mhs->changed;
	return time_before(quiet, mhs->settle_by) ? quiet : mhs->settle_by;
}

/* Is the set of servers complete? */
void mhs_settle_on(struct mhs *mhs, unsigned long *delay)
{
	u32 settle = READ_ONCE(mhs->settle);

	if (settle == MHS_SETTLING && mhs->svc && !mhs->dirty &&
	    mhs_time_due(settle_at(mhs), delay)) {
		/* Pairs with the acquire in mhs_settling() */
		smp_store_release(&mhs->settle, settle_seen(mhs) ? MHS_SETTLED :
								  MHS_YOUNG);
	} else if (settle == MHS_YOUNG &&
		   mhs_time_due(mhs->changed + MHS_YOUNG_MAX, delay)) {
		WRITE_ONCE(mhs->settle, MHS_SETTLED);
	}
}

/* Take addr_only from the flags while settling, as the core stores the flags of an
 * edit after init_service(); later only warn.  Waits for a grace period, so not
 * under mhs.lock, for which callbacks wait.
 */
void mhs_settle_flags(struct mhs *mhs)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);

	if (!svc ||
	    !!(READ_ONCE(svc->flags) & MHS_SVC_F_ADDR_ONLY) == mhs->addr_only)
		return;
	if (READ_ONCE(mhs->settle) == MHS_SETTLING) {
		/* Flows with a connection entry marked slots by the former
		 * hash: mark every slot when no packet uses that hash.
		 */
		WRITE_ONCE(mhs->addr_only, !mhs->addr_only);
		synchronize_rcu();
		mhs_slots_track_all(mhs);
		return;
	}
	mutex_lock(&mhs->lock);
	mhs_svc_warn_once(mhs, MHS_WARN_FLAGS,
			  "flag-3 (hash the address only) was edited, which would move most flows: the edit has no effect until the service is deleted and added again");
	mutex_unlock(&mhs->lock);
}

/* Has the namespace entries other than carriers, which conn_count counts, too? */
static bool settle_has_entries(const struct mhs *mhs)
{
	const atomic_t *of_carriers = &mhs->net->carriers;
	int carriers = atomic_read(of_carriers), n;

	/* Pairs with the barrier in carrier_new() */
	smp_rmb();
	n = atomic_read(&mhs->ipvs->conn_count);
	/* Pairs with the barrier in carrier_put().  A carrier that comes or goes
	 * between the reads may pass for an entry, but no entry for a carrier.
	 */
	smp_rmb();
	return n > min(carriers, atomic_read(of_carriers));
}

/* Start settling, at init or with the first server; @whole: all servers come at
 * once, from another scheduler.  Connection entries of the namespace may belong
 * to flows of this service (from a service for all ports, or a sync daemon that
 * has ended): if there are any, every slot is marked tracked.
 */
void mhs_settle_start(struct mhs *mhs, bool whole)
{
	lockdep_assert_held(&mhs->lock);
	WRITE_ONCE(mhs->settle, MHS_SETTLING);
	mhs->changed = jiffies;
	/* 0: one change so far; a complete set has no reason to wait */
	mhs->gap = whole ? 1 : 0;
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs->build_at = jiffies;
	mhs->ticked[MHS_CLOCK_TRACK] = jiffies;
	/* flows may come that lack an entry */
	mhs->stateful = false;
	if (settle_has_entries(mhs))
		mhs_slots_track_older(mhs);
}

/* A server of the service is about to change; @leaves: the server has slots,
 * and gets no new flow from now on.  A young service settles again, unless its
 * first packet has come.
 */
void mhs_settle_before_change(struct mhs *mhs, bool leaves)
{
	lockdep_assert_held(&mhs->lock);
	/* After MHS_YOUNG_MAX the youth is over, even if the timer of the work
	 * is late, which it may be by an eighth
	 */
	leaves |= !mhs_time_between(jiffies, mhs->changed + MHS_YOUNG_MAX);
	/* Pairs with the exchange in mhs_settling() */
	if (cmpxchg(&mhs->settle, MHS_YOUNG, leaves ? MHS_SETTLED :
		    MHS_SETTLING) != MHS_YOUNG || leaves)
		return;
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs_queue(mhs, 0);
}

/* Note the longest time between two changes of servers */
void mhs_settle_note_gap(struct mhs *mhs)
{
	unsigned long gap = max(jiffies - mhs->changed, 1UL);

	if (mhs->n_listed > 1 && gap > mhs->gap &&
	    (gap <= MHS_GAP_MAX || settle_seen(mhs)))
		mhs->gap = gap;
}
