// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: rebuilds.
 *
 * A rebuild fills a new table in a scratch space and then walks the slots, word
 * by word, under the packets: ip_vs_mhs_slot_change() says what becomes of each.
 * The same walk moves slots on when clocks tick (ip_vs_mhs_move.c).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "ip_vs_mhs.h"

/* No rebuild takes a second; a virtual machine that stood still meanwhile has no
 * say
 */
#define MHS_BUILD_MAX_US	USEC_PER_SEC

/* A removal must not allocate, so the space for rebuilds is there before.  One
 * at a time: all of them together take one CPU at most.  Whoever may make
 * services in a namespace of his own makes only others like him wait for it:
 * they have a space and a queue, of which there are two.  Up to 6.12 all wait
 * for each other all the same, in the core, which has one lock for the commands
 * of all.
 */
struct ip_vs_mhs_scratch {
	struct workqueue_struct	*wq;
	struct mutex		lock;	/* guards the rest */
	struct ip_vs_mhs_fill	fill;
	u16			idx[MHS_IDX_MAX];
	DECLARE_BITMAP(named, MHS_IDX_MAX + 1);
	DECLARE_BITMAP(cut, MHS_IDX_MAX + 1);
};

static struct ip_vs_mhs_scratch *mhs_scratch[2];

static void scratch_free(struct ip_vs_mhs_scratch *scratch)
{
	if (!scratch)
		return;
	if (scratch->wq)
		destroy_workqueue(scratch->wq);
	kvfree(scratch->fill.table);
	kvfree(scratch->fill.head);
	kvfree(scratch->fill.tail);
	kvfree(scratch->fill.share);
	kvfree(scratch);
}

static struct ip_vs_mhs_scratch *scratch_new(const char *name)
{
	struct ip_vs_mhs_scratch *scratch;
	struct ip_vs_mhs_fill *f;

	scratch = kvzalloc_obj(*scratch, GFP_KERNEL);
	if (!scratch)
		return NULL;
	mutex_init(&scratch->lock);
	f = &scratch->fill;
	f->size = ip_vs_mhs_size;
	f->table = kvcalloc(f->size, sizeof(*f->table), GFP_KERNEL);
	f->head = kvcalloc(f->size, sizeof(*f->head), GFP_KERNEL);
	f->tail = kvcalloc(f->size, sizeof(*f->tail), GFP_KERNEL);
	f->share = kvcalloc(MHS_IDX_MAX, sizeof(*f->share), GFP_KERNEL);
	scratch->wq = alloc_workqueue("%s", WQ_UNBOUND, 0, name);
	if (f->table && f->head && f->tail && f->share && scratch->wq)
		return scratch;
	scratch_free(scratch);
	return NULL;
}

/**
 * ip_vs_mhs_scratch_init() - allocate what rebuilds need
 *
 * Context: process, at module load, after the table size is known.
 * Return: 0 or -ENOMEM.
 */
int ip_vs_mhs_scratch_init(void)
{
	mhs_scratch[0] = scratch_new("ip_vs_mhs");
	/* without user namespaces there is nobody else */
	mhs_scratch[1] = IS_ENABLED(CONFIG_USER_NS) ?
			 scratch_new("ip_vs_mhs_userns") : NULL;
	if (mhs_scratch[0] && (mhs_scratch[1] || !IS_ENABLED(CONFIG_USER_NS)))
		return 0;
	ip_vs_mhs_scratch_exit();
	return -ENOMEM;
}

/**
 * ip_vs_mhs_scratch_exit() - free it, also when it is half made
 *
 * Context: process, no service is left.
 */
void ip_vs_mhs_scratch_exit(void)
{
	scratch_free(mhs_scratch[0]);
	scratch_free(mhs_scratch[1]);
}

/* That of a namespace; valid until the module ends */
static struct ip_vs_mhs_scratch *scratch_of(const struct net *net)
{
	return mhs_scratch[net->user_ns != &init_user_ns];
}

/**
 * ip_vs_mhs_wq() - the queue for the works of a namespace
 * @net: the namespace
 *
 * Context: any.
 * Return: never NULL; valid until the module ends.
 */
struct workqueue_struct *ip_vs_mhs_wq(const struct net *net)
{
	return scratch_of(net)->wq;
}

static const char *mhs_name(const struct ip_vs_mhs *mhs, char *buf, size_t len)
{
	if (mhs->fwmark)
		snprintf(buf, len, "FWM %u", mhs->fwmark);
	else if (mhs->af == AF_INET6)
		snprintf(buf, len, "[%pI6c]:%u", &mhs->addr.in6,
			 ntohs(mhs->port));
	else
		snprintf(buf, len, "%pI4:%u", &mhs->addr.ip,
			 ntohs(mhs->port));
	return buf;
}

/**
 * ip_vs_mhs_warn_once() - say something about a service in the log
 * @mhs: the service
 * @bit: MHS_WARN_*, what is said once only
 * @what: the text
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_warn_once(struct ip_vs_mhs *mhs, u8 bit, const char *what)
{
	char name[64];

	if (mhs->warned & bit)
		return;
	mhs->warned |= bit;
	pr_warn_ratelimited("%s: %s\n", mhs_name(mhs, name, sizeof(name)), what);
}

/* Forget deleted servers whose time is over and that no slot names.  One that
 * is named waits for the walk that merges its last slot.
 */
static void mhs_release_gone(struct ip_vs_mhs *mhs,
			     const struct ip_vs_mhs_scratch *scratch)
{
	struct ip_vs_mhs_server *s, *next;

	list_for_each_entry_safe(s, next, &mhs->gone, list) {
		s->named = test_bit(s->idx, scratch->named);
		if (s->named || (!test_bit(s->idx, scratch->cut) &&
				 time_before(jiffies, s->gone_until)))
			continue;
		ip_vs_mhs_server_release(s);
		/* room for a server that found none */
		mhs->missing |= !!(mhs->warned & MHS_WARN_FULL);
	}
}

/* Visit every slot: a new table if @target, ticks if any, and a new census.
 * Slots change under packets, which write them too: by compare-and-exchange
 * only, a full barrier that pairs with ip_vs_mhs_slot_read().
 */
static void mhs_walk(struct ip_vs_mhs *mhs, struct ip_vs_mhs_scratch *scratch,
		     const u16 *target, u32 ticks)
{
	bool cutting = ip_vs_mhs_cutting(mhs->ipvs);
	struct ip_vs_mhs_census was = mhs->census;
	struct ip_vs_mhs_census now = {};
	u32 i, first, idx, stage, w, n;
	struct ip_vs_mhs_server *s;
	bool at_once;

	lockdep_assert_held(&mhs->lock);
	lockdep_assert_held(&scratch->lock);

	bitmap_zero(scratch->named, MHS_IDX_MAX + 1);
	bitmap_zero(scratch->cut, MHS_IDX_MAX + 1);
	if (cutting)
		list_for_each_entry(s, &mhs->gone, list)
			__set_bit(s->idx, scratch->cut);

	/* The first slots to enter a phase start its clock, with this walk as
	 * its first tick; later ones wait for the next tick.
	 */
	if (ip_vs_mhs_hold_ms(mhs))
		first = MHS_STAGE_HOLD + !was.hold;
	else
		first = MHS_STAGE_PIN + !was.pin;

	for (i = 0; i < mhs->size; i++) {
		w = READ_ONCE(mhs->slots[i]);
		do {
			idx = ip_vs_mhs_slot_cand(w);
			if (target)
				idx = target[i] == MHS_FILL_NONE ?
				      MHS_IDX_NONE : scratch->idx[target[i]];
			at_once = mhs->phase == MHS_SETTLING ||
				  test_bit(ip_vs_mhs_slot_old(w),
					   scratch->cut);
			n = ip_vs_mhs_slot_change(w, idx, at_once, first);
			n = ip_vs_mhs_slot_tick(n, ticks);
		} while (n != w && !try_cmpxchg(&mhs->slots[i], &w, n));

		__set_bit(ip_vs_mhs_slot_cand(n), scratch->named);
		__set_bit(ip_vs_mhs_slot_old(n), scratch->named);
		stage = ip_vs_mhs_slot_stage(n);
		now.tracked += ip_vs_mhs_slot_tracked(n);
		now.hold += stage && stage < MHS_STAGE_PIN;
		now.pin += stage >= MHS_STAGE_PIN;
		if (stage && (!now.stage_min || stage < now.stage_min))
			now.stage_min = stage;
		now.stage_max = max(now.stage_max, stage);
		if (!(i & 4095))
			cond_resched();
	}
	mhs->census = now;
	if (!was.hold && now.hold)
		mhs->hold_tick = jiffies;
	if (!was.pin && now.pin)
		/* moved here by a tick of hold: their first tick is due */
		mhs->pin_tick = first >= MHS_STAGE_PIN ? jiffies :
				jiffies - ip_vs_mhs_pin_period(mhs);
	mhs_release_gone(mhs, scratch);
}

/**
 * ip_vs_mhs_walk() - the slots move on
 * @mhs: the service
 * @ticks: MHS_TICK_* of the clocks that ticked
 *
 * Context: process, mhs.lock held; takes the scratch space's lock.
 */
void ip_vs_mhs_walk(struct ip_vs_mhs *mhs, u32 ticks)
{
	struct ip_vs_mhs_scratch *scratch = scratch_of(mhs->net->net);

	mutex_lock(&scratch->lock);
	mhs_walk(mhs, scratch, NULL, ticks);
	mutex_unlock(&scratch->lock);
}

/**
 * ip_vs_mhs_build() - make the table that belongs to the servers
 * @mhs: the service
 *
 * Allocates nothing.
 *
 * Context: process, mhs.lock held; takes the scratch space's lock.
 */
void ip_vs_mhs_build(struct ip_vs_mhs *mhs)
{
	struct ip_vs_mhs_scratch *scratch = scratch_of(mhs->net->net);
	struct ip_vs_mhs_fill *f = &scratch->fill;
	struct ip_vs_mhs_server *s;
	u64 start;
	u32 n = 0;

	mutex_lock(&scratch->lock);
	start = ktime_get_ns();
	list_for_each_entry(s, &mhs->listed, list) {
		if (s->weight <= 0)
			continue;
		scratch->idx[n] = s->idx;
		ip_vs_mhs_share_init(&f->share[n++], s->weight, s->id,
				     mhs->size);
	}
	mhs->n_empty = ip_vs_mhs_table_fill(f, n);
	mhs_walk(mhs, scratch, f->table, 0);
	mutex_unlock(&scratch->lock);

	WRITE_ONCE(mhs->dirty, false);
	mhs->built = jiffies;
	mhs->build_us = min_t(u64, div_u64(ktime_get_ns() - start,
					   NSEC_PER_USEC), MHS_BUILD_MAX_US);
	if (mhs->n_empty)
		ip_vs_mhs_warn_once(mhs, MHS_WARN_EMPTY,
				    "some servers get no slot, their share is too small for the table: load the module with a larger table_size or even out the weights");
}
