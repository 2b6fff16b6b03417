// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: settling.
 *
 * Settling: the servers of a service come one by one, so the first tables are
 * partial.  Until the set of servers is quiet, the table changes without a
 * transition and no packet but plain UDP is sent by the table:
 *
 *	first server	-> SETTLING
 *	set quiet	-> SETTLED
 *	early, a server is added or edited before the first packet
 *			-> SETTLING
 *	early, a server is deleted before the first new flow
 *			-> SETTLING
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

/* Quiet time after which a set of servers is complete: MHS_SETTLE_GAPS times the
 * longest time between two changes, and at least MHS_SETTLE, or MHS_SETTLE_LONE after
 * a single change or if they do not come together
 */
#define MHS_SETTLE		(HZ / 10)
#define MHS_SETTLE_LONE		HZ
#define MHS_SETTLE_GAPS		2

/* A longer gap does not count before the first packet: an operator types */
#define MHS_GAP_MAX		HZ

/* Longest settling: TCP repeats for longer */
#define MHS_SETTLE_MAX		(5 * HZ)

/* A set that has been quiet for so long is no first one: a standby needs the active
 * director's transitions.  keepalived begins its first check within a minute.
 */
#define MHS_EARLY		(120 * HZ)

/* Has a packet come since init_service?  Control counts in NOMEM, too. */
static bool settle_seen(const struct mhs *mhs)
{
	return mhs_svc_counted(mhs, ~MHS_REFUSED);
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
	unsigned long quiet = max3(MHS_SETTLE_GAPS * mhs->gap, least,
				   2 * mhs_build_rest(mhs));

	quiet += mhs->changed;
	return time_before(quiet, mhs->settle_by) ? quiet : mhs->settle_by;
}

void mhs_settle_on(struct mhs *mhs, unsigned long *delay)
{
	if (READ_ONCE(mhs->settle) == MHS_SETTLING && mhs->svc &&
	    !mhs->dirty && mhs_time_due(settle_at(mhs), delay))
		/* Pairs with the acquire in mhs_ask_begin() */
		smp_store_release(&mhs->settle, MHS_SETTLED);
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
	/* The acquires pair with the full barriers of carrier_new() and
	 * carrier_put().  A carrier that comes or goes between the reads may
	 * pass for an entry, but no entry for a carrier.
	 */
	int carriers = atomic_read_acquire(&mhs->net->carriers);
	int n = atomic_read_acquire(&mhs->ipvs->conn_count);

	return n > min(carriers, atomic_read(&mhs->net->carriers));
}

/* Start settling, at init or with the first server; @whole: all servers come at
 * once, from another scheduler.  Entries of the namespace may be of flows of this
 * service, by a former service for all ports or a sync daemon: mark every slot.
 */
void mhs_settle_start(struct mhs *mhs, bool whole)
{
	lockdep_assert_held(&mhs->lock);
	WRITE_ONCE(mhs->settle, MHS_SETTLING);
	mhs->changed = jiffies;
	/* 0: one change so far; a complete set has no reason to wait */
	mhs->gap = whole ? 1 : 0;
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs->early_until = get_jiffies_64() + MHS_EARLY;
	mhs->build_at = jiffies;
	mhs->ticked[MHS_CLOCK_TRACK] = jiffies;
	/* flows may come that lack an entry */
	mhs->stateful = false;
	if (settle_has_entries(mhs))
		mhs_slots_track_older(mhs);
}

/* A server of the service is about to change: early, the first set of servers was
 * not complete or not right, and the service settles again.  A packet that is on
 * its way meanwhile goes by the former table.
 */
void mhs_settle_before_change(struct mhs *mhs, enum mhs_change change)
{
	lockdep_assert_held(&mhs->lock);
	if (READ_ONCE(mhs->settle) == MHS_SETTLING ||
	    !time_before64(get_jiffies_64(), mhs->early_until))
		return;
	if (change == MHS_DRAINED ||
	    (change == MHS_DELETED ? settle_begun(mhs) : settle_seen(mhs))) {
		mhs->early_until = 0;
		return;
	}
	/* a check may fail at any time: no pause to wait for again */
	if (change == MHS_DELETED)
		mhs->changed = jiffies;
	WRITE_ONCE(mhs->settle, MHS_SETTLING);
	mhs->settle_by = jiffies + MHS_SETTLE_MAX;
	mhs->early_until = get_jiffies_64() + MHS_EARLY;
	mhs_queue(mhs, 0);
}

void mhs_settle_note_gap(struct mhs *mhs)
{
	unsigned long gap = max(jiffies - mhs->changed, 1UL);

	if (mhs->n_listed > 1 && gap > mhs->gap &&
	    (gap <= MHS_GAP_MAX || settle_seen(mhs)))
		mhs->gap = gap;
}
