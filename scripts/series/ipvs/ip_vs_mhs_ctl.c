// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the core's callbacks, and real servers.
 *
 * The core ignores what add_dest, upd_dest and del_dest return.  So a removal
 * allocates nothing, and the work retries an addition that could not allocate
 * (ip_vs_mhs_server_reconcile()).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "ip_vs_mhs_ctl.h"
#include "ip_vs_mhs_pkt.h"

/* First size of servers[], which doubles when full */
#define MHS_SERVERS_MIN		16

/**
 * ip_vs_mhs_svc_warn_once() - log a warning once per service
 * @mhs: the service
 * @bit: MHS_WARN_* of the warning
 * @what: the text
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_svc_warn_once(struct ip_vs_mhs *mhs, u8 bit, const char *what)
{
	static DEFINE_RATELIMIT_STATE(limit, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	lockdep_assert_held(&mhs->lock);
	/* A warning that the limit suppresses comes at the next call */
	if (mhs->warned & bit || !__ratelimit(&limit))
		return;
	mhs->warned |= bit;
	if (mhs->fwmark)
		pr_warn("FWM %u: %s\n", mhs->fwmark, what);
	else if (mhs->af == AF_INET6)
		pr_warn("[%pI6c]:%u: %s\n", &mhs->addr.in6, ntohs(mhs->port),
			what);
	else
		pr_warn("%pI4:%u: %s\n", &mhs->addr.ip, ntohs(mhs->port), what);
}

static void svc_put(struct ip_vs_mhs *mhs)
{
	if (!refcount_dec_and_test(&mhs->refcnt))
		return;
	free_percpu(mhs->cnt);
	kvfree(mhs->slots);
	/* The last reference is gone: no reader and no writer is left */
	kvfree(rcu_dereference_raw(mhs->servers));
	kfree(mhs);
}

static void svc_rcu_put(struct rcu_head *head)
{
	svc_put(container_of(head, struct ip_vs_mhs, rcu));
}

static void server_rcu_free(struct rcu_head *head)
{
	struct ip_vs_mhs_server *s = container_of(head,
						  struct ip_vs_mhs_server,
						  rcu);
	struct ip_vs_mhs *mhs = s->mhs;

	ip_vs_dest_put_and_free(s->dest);
	clear_bit(s->idx, mhs->idx_map);
	kfree(s);
	svc_put(mhs);
}

static void server_release(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs *mhs = s->mhs;

	servers = rcu_dereference_protected(mhs->servers,
					    lockdep_is_held(&mhs->lock));
	RCU_INIT_POINTER(servers->s[s->idx], NULL);
	s->dest->sched_data = NULL;
	list_del(&s->list);
	if (s->state & MHS_SRV_GONE)
		ip_vs_dest_keep(s->dest, false);
	/* hurried: the trash waits for the reference */
	call_rcu_hurry(&s->rcu, server_rcu_free);
}

/* Follow weight and flags of the ip_vs_dest.  With masquerading new flows need
 * connections, and older ones, too, unless the server has a carrier from
 * before.  The core makes no carrier for a method that it does not know,
 * either: every flow needs a connection then, as with any scheduler.
 * Return: true if the weight has changed: the caller has to rebuild the table.
 */
static bool server_refresh(struct ip_vs_mhs_server *s)
{
	int weight = atomic_read(&s->dest->weight);
	bool changed = weight != s->weight;
	bool carrier = rcu_access_pointer(s->dest->carrier);
	u32 state = 0;

	lockdep_assert_held(&s->mhs->lock);
	if (weight > 0)
		state |= MHS_SRV_IN;
	if (READ_ONCE(s->dest->u_threshold))
		state |= MHS_SRV_NEW_ENTRY;
	if (!carrier || IP_VS_DFWD_METHOD(s->dest) == IP_VS_CONN_F_MASQ)
		state |= MHS_SRV_NEW_ENTRY |
			 (carrier ? MHS_SRV_FROZEN : MHS_SRV_ALL_ENTRY);
	WRITE_ONCE(s->state, state);
	s->weight = weight;
	return changed;
}

/* Keep mhs.listed sorted by address: the table depends on the order, and every
 * director must compute the same table.  Servers tend to come in order, so the
 * search starts at the end.
 */
static void server_list(struct ip_vs_mhs_server *s)
{
	const struct ip_vs_dest *a, *b = s->dest;
	struct ip_vs_mhs_server *pos;

	list_for_each_entry_reverse(pos, &s->mhs->listed, list) {
		a = pos->dest;
		if (ip_vs_mhs_table_order(a->af, &a->addr, a->port,
					  b->af, &b->addr, b->port) < 0)
			break;
	}
	list_add(&s->list, &pos->list);
	s->mhs->n_listed++;
}

/* Make room for an index in servers[] */
static int server_grow(struct ip_vs_mhs *mhs, u32 idx)
{
	struct ip_vs_mhs_servers *old, *new;
	u32 max = MHS_SERVERS_MIN;

	old = rcu_dereference_protected(mhs->servers,
					lockdep_is_held(&mhs->lock));
	if (old && idx < old->max)
		return 0;
	while (max <= idx)
		max *= 2;
	new = kvzalloc(struct_size(new, s, max), GFP_KERNEL_ACCOUNT);
	if (!new)
		return -ENOMEM;
	new->max = max;
	if (old)
		memcpy(new->s, old->s, old->max * sizeof(new->s[0]));
	rcu_assign_pointer(mhs->servers, new);
	if (old)
		kvfree_rcu(old, rcu);
	return 0;
}

/* An index that no server has, or 0 */
static u32 index_free(const struct ip_vs_mhs *mhs)
{
	u32 idx = find_next_zero_bit(mhs->idx_map, MHS_IDX_MAX + 1, 1);

	return idx > MHS_IDX_MAX ? 0 : idx;
}

/* Add a server that the core has listed, or list a deleted one again.  The work
 * may have added the server before its add_dest gets mhs.lock: refresh it then.
 * mhs.lock guards sched_data of the service's dests.
 */
static int server_add_one(struct ip_vs_mhs *mhs, struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs_server *s;
	u32 idx;

	lockdep_assert_held(&mhs->lock);
	/* connections from before a deletion, or of another scheduler */
	if (ip_vs_mhs_dest_entries(dest))
		ip_vs_mhs_slots_track_older(mhs);

	s = dest->sched_data;
	if (s && s->state & MHS_SRV_GONE) {
		ip_vs_dest_keep(dest, false);
		list_del(&s->list);
		server_list(s);
	}
	if (s) {
		server_refresh(s);
		return 0;
	}

	idx = index_free(mhs);
	if (!idx) {
		ip_vs_mhs_svc_warn_once(mhs, MHS_WARN_FULL,
					"a service can have 8191 servers, including deleted servers that still have flows: further servers get no flow until hold_ms + pin_ms after a deletion");
		return -ENOSPC;
	}
	if (server_grow(mhs, idx))
		return -ENOMEM;
	s = kzalloc_obj(*s, GFP_KERNEL_ACCOUNT);
	if (!s)
		return -ENOMEM;
	s->mhs = mhs;
	s->idx = idx;
	s->id = ip_vs_mhs_hash_server(dest->af, &dest->addr, dest->port);
	s->dest = dest;
	dest->sched_data = s;
	ip_vs_dest_hold(dest);
	refcount_inc(&mhs->refcnt);
	set_bit(idx, mhs->idx_map);
	server_list(s);
	server_refresh(s);

	/* Published before a rebuild writes the index into a slot word */
	servers = rcu_dereference_protected(mhs->servers,
					    lockdep_is_held(&mhs->lock));
	rcu_assign_pointer(servers->s[idx], s);
	return 0;
}

static int server_add(struct ip_vs_mhs *mhs, struct ip_vs_dest *dest)
{
	int err = server_add_one(mhs, dest);

	if (err == -ENOMEM) {
		ip_vs_mhs_count(mhs, MHS_CNT_NOMEM);
		pr_warn_ratelimited("no memory for a server: the server gets no flow until a retry succeeds\n");
	}
	/* no callback comes when memory or an index is free: the work retries */
	mhs->missing |= err;
	return err;
}

/**
 * ip_vs_mhs_server_release_gone() - release deleted servers
 * @mhs: the service
 * @all: release every server, listed or named by slots: the service ends
 *
 * Called after a walk, which updates server.named.  Releases a server that no
 * slot names, when hold + pin are over or expire_nodest_conn cuts its flows.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_server_release_gone(struct ip_vs_mhs *mhs, bool all)
{
	bool cutting = ip_vs_mhs_cutting(mhs->ipvs);
	struct ip_vs_mhs_server *s, *next;

	lockdep_assert_held(&mhs->lock);
	if (all)
		list_splice_init(&mhs->listed, &mhs->gone);
	list_for_each_entry_safe(s, next, &mhs->gone, list)
		if (all || (!s->named &&
			    (cutting || time_after_eq(jiffies, s->gone_until))))
			server_release(s);
}

/* The number of servers that the core lists */
static u32 core_lists(const struct ip_vs_mhs *mhs)
{
	struct ip_vs_dest *dest;
	u32 n = 0;

	rcu_read_lock();
	list_for_each_entry_rcu(dest, &mhs->svc->destinations, n_list)
		n++;
	rcu_read_unlock();
	return n;
}

/**
 * ip_vs_mhs_server_reconcile() - retry what a callback could not allocate
 * @mhs: the service
 *
 * Callbacks may wait for mhs.lock meanwhile: add_dest then finds its server
 * here, del_dest removes it.  Sets mhs.missing if a retry has to follow.
 *
 * Context: process, mhs.lock held.
 * Return: true if the caller has to rebuild the table.
 */
bool ip_vs_mhs_server_reconcile(struct ip_vs_mhs *mhs)
{
	struct ip_vs_dest *dest, *found;
	bool changed = false;

	lockdep_assert_held(&mhs->lock);
	mhs->missing = false;
	if (!mhs->svc)
		return false;
	/* The search below walks all servers for each one: not in vain */
	if (!index_free(mhs)) {
		mhs->missing = core_lists(mhs) > mhs->n_listed;
		return false;
	}
	while (!mhs->missing) {
		found = NULL;
		rcu_read_lock();
		list_for_each_entry_rcu(dest, &mhs->svc->destinations, n_list)
			if (READ_ONCE(dest->cflags) & IP_VS_DEST_CF_AVAILABLE &&
			    !dest->sched_data) {
				found = dest;
				ip_vs_dest_hold(found);
				break;
			}
		rcu_read_unlock();
		cond_resched();
		if (!found)
			break;
		changed |= !server_add(mhs, found);
		/* never the last: the trash keeps a deleted dest until only its
		 * own reference is left
		 */
		ip_vs_dest_put(found);
	}
	return changed;
}

static int ctl_add_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct ip_vs_mhs *mhs = svc->sched_data;
	int err;

	mutex_lock(&mhs->lock);
	if (!mhs->svc)
		ip_vs_mhs_settle_start(mhs, false);
	else
		ip_vs_mhs_settle_before_change(mhs, false);
	/* Pairs with the acquire in ip_vs_mhs_select(): a packet that sees svc
	 * sees the service settling.
	 */
	smp_store_release(&mhs->svc, svc);
	err = server_add(mhs, dest);
	ip_vs_mhs_work_changed(mhs);
	mutex_unlock(&mhs->lock);
	return err;
}

static int ctl_upd_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	bool out = atomic_read(&dest->weight) <= 0;
	struct ip_vs_mhs *mhs = svc->sched_data;
	struct ip_vs_mhs_server *s;

	mutex_lock(&mhs->lock);
	s = dest->sched_data;
	ip_vs_mhs_settle_before_change(mhs, s && s->weight > 0 && out);
	/* without a struct the work adds the server, and the table changes */
	if (!s || server_refresh(s) || mhs->missing)
		ip_vs_mhs_work_changed(mhs);
	mutex_unlock(&mhs->lock);
	return 0;
}

/* The server gets no new flow; its older flows are held */
static int ctl_del_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct ip_vs_mhs *mhs = svc->sched_data;
	struct ip_vs_mhs_server *s;

	mutex_lock(&mhs->lock);
	s = dest->sched_data;
	if (s) {
		ip_vs_mhs_settle_before_change(mhs, s->weight > 0);
		ip_vs_dest_keep(dest, true);
		WRITE_ONCE(s->state,
			   (s->state & MHS_SRV_METHOD) | MHS_SRV_GONE);
		s->gone_until = jiffies +
				msecs_to_jiffies(ip_vs_mhs_time_hold_ms(mhs)) +
				msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs));
		s->named = true;
		list_move(&s->list, &mhs->gone);
		mhs->n_listed--;
		ip_vs_mhs_work_changed(mhs);
	}
	mutex_unlock(&mhs->lock);
	return 0;
}

/* Have the work look at the flags; before the first server no clock runs */
static void ctl_upd_service(struct ip_vs_service *svc)
{
	struct ip_vs_mhs *mhs = svc->sched_data;

	if (mhs->svc)
		ip_vs_mhs_queue(mhs, 0);
}

static struct ip_vs_mhs *ctl_new(struct ip_vs_service *svc)
{
	struct ip_vs_mhs *mhs = kzalloc_obj(*mhs, GFP_KERNEL_ACCOUNT);
	int err, i;

	if (!mhs)
		return NULL;
	mhs->ipvs = svc->ipvs;
	mhs->net = ip_vs_mhs_net(svc->ipvs->net);
	mhs->af = svc->af;
	mhs->protocol = svc->protocol;
	mhs->fwmark = svc->fwmark;
	ip_vs_addr_copy(svc->af, &mhs->addr, &svc->addr);
	mhs->port = svc->port;
	mhs->addr_only = svc->flags & MHS_SVC_F_ADDR_ONLY;
	mhs->size = ip_vs_mhs_slots_size;
	INIT_LIST_HEAD(&mhs->listed);
	INIT_LIST_HEAD(&mhs->gone);
	mutex_init(&mhs->build_lock);
	mutex_init(&mhs->lock);
	spin_lock_init(&mhs->recount_lock);
	for (i = 0; i < ARRAY_SIZE(mhs->budget); i++)
		mhs->budget[i].recount_at = jiffies;
	INIT_DELAYED_WORK(&mhs->work, ip_vs_mhs_work);
	refcount_set(&mhs->refcnt, 1);
	mhs->slots = kvcalloc(mhs->size, sizeof(*mhs->slots),
			      GFP_KERNEL_ACCOUNT);
	mhs->cnt = alloc_percpu_gfp(struct ip_vs_mhs_counters,
				    GFP_KERNEL_ACCOUNT);
	mutex_lock(&mhs->lock);
	err = server_grow(mhs, 1);
	mutex_unlock(&mhs->lock);
	if (mhs->slots && mhs->cnt && !err)
		return mhs;
	svc_put(mhs);
	return NULL;
}

/* Add the servers that the service has already, from another scheduler */
static int ctl_adopt(struct ip_vs_mhs *mhs, struct ip_vs_service *svc)
{
	struct ip_vs_dest *dest;
	int err = 0;

	mutex_lock(&mhs->lock);
	ip_vs_mhs_settle_start(mhs, true);
	/* the core's service mutex protects the list */
	list_for_each_entry(dest, &svc->destinations, n_list) {
		WRITE_ONCE(mhs->svc, svc);
		err = server_add(mhs, dest);
		if (err == -ENOMEM)
			break;
		err = 0;
	}
	/* without a server no clock runs */
	if (!err && mhs->svc)
		ip_vs_mhs_work_changed(mhs);
	mutex_unlock(&mhs->lock);
	return err;
}

/* Who may still be inside, and what waits for them:
 *
 *	the core's callbacks	nobody: the core holds the service mutex
 *	work of the namespace,	ip_vs_mhs_net_detach(): takes mhs_net.lock,
 *	/proc			which both hold
 *	work of the service	cancel_delayed_work_sync(); nobody queues more
 *	packets			call_rcu() frees servers and service
 */
static void ctl_free(struct ip_vs_mhs *mhs)
{
	ip_vs_mhs_net_detach(mhs);
	cancel_delayed_work_sync(&mhs->work);

	mutex_lock(&mhs->lock);
	ip_vs_mhs_server_release_gone(mhs, true);
	mutex_unlock(&mhs->lock);
	call_rcu(&mhs->rcu, svc_rcu_put);
}

static int ctl_init_service(struct ip_vs_service *svc)
{
	struct ip_vs_mhs *mhs = ctl_new(svc);
	int err;

	if (!mhs)
		return -ENOMEM;
	ip_vs_mhs_net_attach(mhs);
	err = ctl_adopt(mhs, svc);
	if (err) {
		ctl_free(mhs);
		return err;
	}
	svc->sched_data = mhs;
	return 0;
}

static void ctl_done_service(struct ip_vs_service *svc)
{
	ctl_free(svc->sched_data);
}

struct ip_vs_scheduler ip_vs_mhs_ctl_scheduler = {
	.name		= "mhs",
	.refcnt		= ATOMIC_INIT(0),
	.module		= THIS_MODULE,
	.n_list		= LIST_HEAD_INIT(ip_vs_mhs_ctl_scheduler.n_list),
	.init_service	= ctl_init_service,
	.done_service	= ctl_done_service,
	.upd_service	= ctl_upd_service,
	.add_dest	= ctl_add_dest,
	.upd_dest	= ctl_upd_dest,
	.del_dest	= ctl_del_dest,
	.select		= ip_vs_mhs_select,
	.schedule	= ip_vs_mhs_ask_schedule,
};
