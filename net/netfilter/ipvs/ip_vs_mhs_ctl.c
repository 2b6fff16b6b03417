// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the control path.
 *
 * The core's scheduler callbacks end here.  Servers are the business of
 * ip_vs_mhs_dest.c, what a change does to the table that of ip_vs_mhs_build.c and
 * ip_vs_mhs_move.c.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "ip_vs_mhs.h"

/* How often to look for what no callback tells, see ip_vs_mhs_net_work() */
#define MHS_NET_PERIOD		HZ

static u32 mhs_key_of(const struct ip_vs_mhs *mhs)
{
	return mhs->fwmark ? mhs->fwmark :
	       ip_vs_mhs_key_addr(mhs->af, &mhs->addr, mhs->port);
}

/**
 * ip_vs_mhs_find() - find the service a packet is for
 * @mn: the packet's namespace
 * @af: address family
 * @protocol: transport protocol
 * @addr: destination address
 * @port: destination port
 *
 * Context: any, under RCU.
 * Return: the service, without a reference, or NULL.
 */
struct ip_vs_mhs *ip_vs_mhs_find(const struct ip_vs_mhs_net *mn, u16 af,
				 u16 protocol, const union nf_inet_addr *addr,
				 __be16 port)
{
	struct ip_vs_mhs_hash *hash = ip_vs_mhs_hash(mn);
	struct ip_vs_mhs *mhs;

	if (!hash)
		return NULL;
	hash_for_each_possible_rcu(hash->services, mhs, node,
				   ip_vs_mhs_key_addr(af, addr, port))
		if (mhs->port == port && mhs->af == af &&
		    ip_vs_addr_equal(af, &mhs->addr, addr) &&
		    mhs->protocol == protocol && !mhs->fwmark)
			return mhs;
	return NULL;
}

/**
 * ip_vs_mhs_find_fwm() - find the service of a firewall mark
 * @mn: the packet's namespace
 * @af: address family
 * @fwmark: its mark, not 0
 *
 * Context: any, under RCU.
 * Return: the service, without a reference, or NULL.
 */
struct ip_vs_mhs *ip_vs_mhs_find_fwm(const struct ip_vs_mhs_net *mn, u16 af,
				     u32 fwmark)
{
	struct ip_vs_mhs_hash *hash = ip_vs_mhs_hash(mn);
	struct ip_vs_mhs *mhs;

	if (!hash)
		return NULL;
	hash_for_each_possible_rcu(hash->services, mhs, node, fwmark)
		if (mhs->fwmark == fwmark && mhs->af == af)
			return mhs;
	return NULL;
}

/**
 * ip_vs_mhs_put() - drop a reference to a service
 * @mhs: the service
 *
 * The last one goes a grace period after done_service(), or in the RCU
 * callback of the last server.
 *
 * Context: any but hard interrupt.
 */
void ip_vs_mhs_put(struct ip_vs_mhs *mhs)
{
	if (!refcount_dec_and_test(&mhs->refcnt))
		return;
	if (mhs->hash && refcount_dec_and_test(&mhs->hash->refcnt))
		kvfree(mhs->hash);
	free_percpu(mhs->cnt);
	kvfree(mhs->slots);
	/* no reader is left, so nobody can change it either */
	kvfree(rcu_dereference_raw(mhs->servers));
	kfree(mhs);
}

static void mhs_rcu_put(struct rcu_head *head)
{
	ip_vs_mhs_put(container_of(head, struct ip_vs_mhs, rcu));
}

/**
 * ip_vs_mhs_track_all() - entries of unknown flows may exist
 * @mhs: the service
 *
 * Context: process; any lock or none, words change by compare-and-exchange.
 */
void ip_vs_mhs_track_all(struct ip_vs_mhs *mhs)
{
	u32 i;

	for (i = 0; i < mhs->size; i++) {
		ip_vs_mhs_slot_track(&mhs->slots[i]);
		if (!(i & 4095))
			cond_resched();
	}
}

/**
 * ip_vs_mhs_track_older() - entries from before were found
 * @mhs: the service
 *
 * Marks all slots, once in a tick: there may be thousands of servers with entries.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_track_older(struct ip_vs_mhs *mhs)
{
	lockdep_assert_held(&mhs->lock);
	if (!mhs->all_tracked)
		ip_vs_mhs_track_all(mhs);
	mhs->all_tracked = true;
}

static void mhs_net_queue(struct ip_vs_mhs_net *mn)
{
	queue_delayed_work(ip_vs_mhs_wq(mn->net), &mn->work, MHS_NET_PERIOD);
}

/* vs.conntrack may be set at any time */
static void mhs_net_check_conntrack(struct ip_vs_mhs_net *mn)
{
	lockdep_assert_held(&mn->lock);
	if (!mn->conntrack)
		return;
	if (!mn->warned_conntrack)
		pr_warn_ratelimited("net.ipv4.vs.conntrack=1 makes conntrack state for every flow: set it to 0, and NOTRACK the virtual addresses\n");
	mn->warned_conntrack = true;
	if (mn->warned_xt_ipvs ||
	    !(atomic_read(&mn->pairs[0]) + atomic_read(&mn->pairs[1])))
		return;
	mn->warned_xt_ipvs = true;
	pr_warn_ratelimited("net.ipv4.vs.conntrack=1 with masq_stateless=1: iptables -m ipvs matches no packet of a flow without an entry, source NAT by it fails: set masq_stateless to 0 and make the services anew\n");
}

/**
 * ip_vs_mhs_net_work() - watch what no callback tells
 * @work: of the namespace
 *
 * When the host becomes a sync backup, entries of unknown flows come, and flows
 * are on another director: every slot is marked, and marks stay until it is
 * none.  Packets look at the role themselves, so only its beginning may be seen
 * late.
 *
 * Services of other schedulers by firewall mark: see ip_vs_mhs_mark_unsure().
 *
 * Context: process.
 */
void ip_vs_mhs_net_work(struct work_struct *work)
{
	struct ip_vs_mhs_net *mn = container_of(to_delayed_work(work),
						struct ip_vs_mhs_net, work);
	struct netns_ipvs *ipvs = net_ipvs(mn->net);
	struct ip_vs_mhs *mhs;
	bool backup, begins, foreign, conntrack, stateful;

	mutex_lock(&mn->lock);
	/* carriers are made for the one value or the other */
	conntrack = ip_vs_mhs_conntrack(ipvs);
	if (conntrack != mn->conntrack)
		list_for_each_entry(mhs, &mn->list, net_list)
			ip_vs_mhs_refresh(mhs);
	mn->conntrack = conntrack;

	backup = READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP;
	begins = backup && !mn->backup;
	/* First, so that no tick ages what is marked now */
	WRITE_ONCE(mn->backup, backup);
	if (begins)
		list_for_each_entry(mhs, &mn->list, net_list) {
			mutex_lock(&mhs->lock);
			ip_vs_mhs_track_all(mhs);
			ip_vs_mhs_use_all(mhs);
			mutex_unlock(&mhs->lock);
		}

	foreign = ip_vs_mhs_foreign(ipvs, mn->services, mn->fwm_services);
	WRITE_ONCE(mn->foreign, foreign || mn->was_foreign);
	mn->was_foreign = foreign;
	stateful = !READ_ONCE(mn->stateless);
	if (stateful || mn->was_stateful)
		list_for_each_entry(mhs, &mn->list, net_list) {
			mutex_lock(&mhs->lock);
			ip_vs_mhs_look_stateful(mhs);
			mutex_unlock(&mhs->lock);
		}
	mn->was_stateful = stateful;
	if (!list_empty(&mn->list)) {
		mhs_net_check_conntrack(mn);
		mhs_net_queue(mn);
	}
	mutex_unlock(&mn->lock);
}

static int ip_vs_mhs_add_dest(struct ip_vs_service *svc,
			      struct ip_vs_dest *dest)
{
	struct ip_vs_mhs *mhs = svc->sched_data;
	int err;

	mutex_lock(&mhs->lock);
	if (!mhs->svc)
		ip_vs_mhs_settle(mhs, false);
	else
		ip_vs_mhs_unsettle(mhs, false);
	/* Pairs with the acquire in mhs_packet_in() */
	smp_store_release(&mhs->svc, svc);
	err = ip_vs_mhs_server_add(mhs, dest);
	ip_vs_mhs_changed(mhs);
	mutex_unlock(&mhs->lock);
	return err;
}

static int ip_vs_mhs_upd_dest(struct ip_vs_service *svc,
			      struct ip_vs_dest *dest)
{
	bool out = atomic_read(&dest->weight) <= 0;
	struct ip_vs_mhs *mhs = svc->sched_data;
	struct ip_vs_mhs_server *s;

	mutex_lock(&mhs->lock);
	s = ip_vs_mhs_server_find(mhs, dest);
	ip_vs_mhs_unsettle(mhs, s && s->weight > 0 && out);
	if (!s || ip_vs_mhs_server_refresh(s) || mhs->missing)
		ip_vs_mhs_changed(mhs);
	mutex_unlock(&mhs->lock);
	return 0;
}

static int ip_vs_mhs_del_dest(struct ip_vs_service *svc,
			      struct ip_vs_dest *dest)
{
	struct ip_vs_mhs *mhs = svc->sched_data;
	struct ip_vs_mhs_server *s;

	mutex_lock(&mhs->lock);
	s = ip_vs_mhs_server_find(mhs, dest);
	if (s) {
		ip_vs_mhs_unsettle(mhs, s->weight > 0);
		ip_vs_mhs_server_gone(s);
		ip_vs_mhs_changed(mhs);
	}
	mutex_unlock(&mhs->lock);
	return 0;
}

/* Services */

/* The namespace's, or those that it gets if nothing fails */
static struct ip_vs_mhs_hash *mhs_net_hash(struct ip_vs_mhs_net *mn)
{
	struct ip_vs_mhs_hash *hash;

	hash = rcu_dereference_protected(mn->hash, lockdep_is_held(&mn->lock));
	if (hash) {
		refcount_inc(&hash->refcnt);
		return hash;
	}
	hash = kvzalloc_obj(*hash, GFP_KERNEL_ACCOUNT);
	if (hash) {
		spin_lock_init(&hash->lock);
		refcount_set(&hash->refcnt, 1);
	}
	return hash;
}

/* Hooks of a family, from one on: each packet is told its namespace */
static int mhs_net_hook(struct ip_vs_mhs_net *mn, bool v6, u32 first, u32 n)
{
	struct nf_hook_ops *ops = &mn->ops[v6][first];
	u32 i;

	memcpy(ops, (v6 ? ip_vs_mhs_ops6 : ip_vs_mhs_ops4) + first,
	       n * sizeof(*ops));
	for (i = 0; i < n; i++)
		ops[i].priv = mn;
	return nf_register_net_hooks(mn->net, ops, n);
}

/**
 * ip_vs_mhs_forward_get() - somebody needs the FORWARD hook
 * @mn: the namespace
 * @v6: of which family
 *
 * Packets that are only routed shall not pay for what no service needs.
 *
 * Context: process; net.lock or mhs.lock may be held.
 * Return: 0 or an error of nf_register_net_hooks(), -ENOMEM for the most part.
 */
int ip_vs_mhs_forward_get(struct ip_vs_mhs_net *mn, bool v6)
{
	int err = 0;

	mutex_lock(&mn->forward_lock);
	if (!mn->forward[v6])
		err = mhs_net_hook(mn, v6, MHS_HOOKS_IN,
				   MHS_HOOKS - MHS_HOOKS_IN);
	if (!err)
		mn->forward[v6]++;
	mutex_unlock(&mn->forward_lock);
	return err;
}

/**
 * ip_vs_mhs_forward_put() - and does not need it any more
 * @mn: the namespace
 * @v6: of which family
 *
 * Packets may still be in the hook: the namespace's struct outlives them.
 *
 * Context: process; net.lock or mhs.lock may be held.
 */
void ip_vs_mhs_forward_put(struct ip_vs_mhs_net *mn, bool v6)
{
	mutex_lock(&mn->forward_lock);
	if (!--mn->forward[v6])
		nf_unregister_net_hooks(mn->net, &mn->ops[v6][MHS_HOOKS_IN],
					MHS_HOOKS - MHS_HOOKS_IN);
	mutex_unlock(&mn->forward_lock);
}

/* The hooks that a service needs from its beginning: an ICMP error about a flow
 * of a service by firewall mark may come by FORWARD
 */
static int mhs_net_hooks_get(struct ip_vs_mhs_net *mn,
			     const struct ip_vs_mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;
	int err;

	if (mhs->fwmark) {
		err = ip_vs_mhs_forward_get(mn, v6);
		if (err)
			return err;
	}
	if (!mhs->hashed || mn->hooks[v6]++)
		return 0;
	err = mhs_net_hook(mn, v6, 0, MHS_HOOKS_IN);
	if (err) {
		mn->hooks[v6] = 0;
		if (mhs->fwmark)
			ip_vs_mhs_forward_put(mn, v6);
	}
	return err;
}

static void mhs_net_hooks_put(struct ip_vs_mhs_net *mn,
			      const struct ip_vs_mhs *mhs)
{
	bool v6 = mhs->af == AF_INET6;

	if (mhs->hashed && !--mn->hooks[v6])
		nf_unregister_net_hooks(mn->net, mn->ops[v6], MHS_HOOKS_IN);
	if (mhs->fwmark)
		ip_vs_mhs_forward_put(mn, v6);
}

/* Hash tables, hooks and the watch for the backup role come with the first
 * service
 */
static int mhs_net_attach(struct ip_vs_mhs *mhs)
{
	struct ip_vs_mhs_net *mn = mhs->net;
	int err = -ENOMEM;

	mutex_lock(&mn->lock);
	mhs->hash = mhs_net_hash(mn);
	if (mhs->hash)
		err = mhs_net_hooks_get(mn, mhs);
	if (!err) {
		rcu_assign_pointer(mn->hash, mhs->hash);
		WRITE_ONCE(mn->services, mn->services + 1);
		WRITE_ONCE(mn->fwm_services, mn->fwm_services + !!mhs->fwmark);
		if (list_empty(&mn->list)) {
			mn->conntrack = ip_vs_mhs_conntrack(mhs->ipvs);
			mhs_net_queue(mn);
		}
		WRITE_ONCE(mn->foreign, true);
		mn->was_foreign = true;
		if (READ_ONCE(mn->backup))
			ip_vs_mhs_track_all(mhs);
		list_add_tail(&mhs->net_list, &mn->list);
		mhs_net_check_conntrack(mn);
	}
	mutex_unlock(&mn->lock);
	return err;
}

static void mhs_net_detach(struct ip_vs_mhs *mhs)
{
	struct ip_vs_mhs_net *mn = mhs->net;

	mutex_lock(&mn->lock);
	list_del(&mhs->net_list);
	WRITE_ONCE(mn->services, mn->services - 1);
	WRITE_ONCE(mn->fwm_services, mn->fwm_services - !!mhs->fwmark);
	mhs_net_hooks_put(mn, mhs);
	if (list_empty(&mn->list))
		RCU_INIT_POINTER(mn->hash, NULL);
	mutex_unlock(&mn->lock);
}

static struct ip_vs_mhs *mhs_new(struct ip_vs_service *svc)
{
	struct ip_vs_mhs *mhs = kzalloc_obj(*mhs, GFP_KERNEL_ACCOUNT);

	if (!mhs)
		return NULL;
	mhs->ipvs = svc->ipvs;
	mhs->net = ip_vs_mhs_net(svc->ipvs->net);
	mhs->af = svc->af;
	mhs->protocol = svc->protocol;
	mhs->fwmark = svc->fwmark;
	ip_vs_addr_copy(svc->af, &mhs->addr, &svc->addr);
	mhs->port = svc->port;
	/* A service for all ports is persistent: it goes to the core, has no
	 * carriers and is never looked up.
	 */
	mhs->hashed = svc->port || svc->fwmark;
	mhs->addr_only = svc->flags & MHS_SVC_F_ADDR_ONLY;
	mhs->size = ip_vs_mhs_size;
	INIT_LIST_HEAD(&mhs->listed);
	INIT_LIST_HEAD(&mhs->gone);
	mutex_init(&mhs->lock);
	spin_lock_init(&mhs->recount_lock);
	mhs->room[0].recount_at = jiffies;
	mhs->room[1].recount_at = jiffies;
	INIT_DELAYED_WORK(&mhs->work, ip_vs_mhs_work);
	refcount_set(&mhs->refcnt, 1);
	mhs->slots = kvcalloc(mhs->size, sizeof(*mhs->slots),
			      GFP_KERNEL_ACCOUNT);
	mhs->cnt = alloc_percpu_gfp(struct ip_vs_mhs_counters,
				    GFP_KERNEL_ACCOUNT);
	if (mhs->slots && mhs->cnt) {
		int err;

		mutex_lock(&mhs->lock);
		err = ip_vs_mhs_servers_grow(mhs, 1);
		mutex_unlock(&mhs->lock);
		if (!err)
			return mhs;
	}
	ip_vs_mhs_put(mhs);
	return NULL;
}

/* Take the servers that the service has, if another scheduler ran it */
static int mhs_adopt(struct ip_vs_mhs *mhs, struct ip_vs_service *svc)
{
	struct ip_vs_dest *dest;
	int err = 0;

	mutex_lock(&mhs->lock);
	ip_vs_mhs_settle(mhs, true);
	/* the core's mutex keeps the list as it is */
	list_for_each_entry(dest, &svc->destinations, n_list) {
		WRITE_ONCE(mhs->svc, svc);
		err = ip_vs_mhs_server_add(mhs, dest);
		if (err == -ENOMEM)
			break;
		err = 0;
	}
	if (!err)
		ip_vs_mhs_changed(mhs);
	mutex_unlock(&mhs->lock);
	return err;
}

static void mhs_free(struct ip_vs_mhs *mhs)
{
	struct ip_vs_mhs_server *s, *next;

	/* neighbours in the chain come and go */
	if (mhs->hashed && !hlist_unhashed_lockless(&mhs->node)) {
		spin_lock(&mhs->hash->lock);
		hash_del_rcu(&mhs->node);
		spin_unlock(&mhs->hash->lock);
	}
	mhs_net_detach(mhs);
	cancel_delayed_work_sync(&mhs->work);

	mutex_lock(&mhs->lock);
	list_splice_init(&mhs->gone, &mhs->listed);
	list_for_each_entry_safe(s, next, &mhs->listed, list)
		ip_vs_mhs_server_release(s);
	mutex_unlock(&mhs->lock);
	/* packets that found the service before still read it */
	call_rcu(&mhs->rcu, mhs_rcu_put);
}

static int ip_vs_mhs_init_service(struct ip_vs_service *svc)
{
	struct ip_vs_mhs *mhs;
	int err;

	err = ip_vs_mhs_ready();
	if (err)
		return err;
	mhs = mhs_new(svc);
	if (!mhs)
		return -ENOMEM;
	err = mhs_net_attach(mhs);
	if (err) {
		ip_vs_mhs_put(mhs);
		return err;
	}
	err = mhs_adopt(mhs, svc);
	if (err) {
		mhs_free(mhs);
		return err;
	}

	/* no more failures */
	svc->sched_data = mhs;
	if (mhs->hashed) {
		spin_lock(&mhs->hash->lock);
		hash_add_rcu(mhs->hash->services, &mhs->node, mhs_key_of(mhs));
		spin_unlock(&mhs->hash->lock);
	}
	return 0;
}

static void ip_vs_mhs_done_service(struct ip_vs_service *svc)
{
	mhs_free(svc->sched_data);
}

struct ip_vs_scheduler ip_vs_mhs_scheduler = {
	.name		= "mhs",
	.refcnt		= ATOMIC_INIT(0),
	.module		= THIS_MODULE,
	.n_list		= LIST_HEAD_INIT(ip_vs_mhs_scheduler.n_list),
	.init_service	= ip_vs_mhs_init_service,
	.done_service	= ip_vs_mhs_done_service,
	.add_dest	= ip_vs_mhs_add_dest,
	.upd_dest	= ip_vs_mhs_upd_dest,
	.del_dest	= ip_vs_mhs_del_dest,
	.schedule	= ip_vs_mhs_schedule,
};
