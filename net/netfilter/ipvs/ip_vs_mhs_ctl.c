// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the core's callbacks, for a service that
 * comes or goes and for a server that is added, edited or deleted.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "ip_vs_mhs_ctl.h"

static int ctl_add_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct mhs *mhs = svc->sched_data;
	int err;

	mutex_lock(&mhs->lock);
	if (!mhs->svc)
		mhs_settle_start(mhs, false);
	else
		mhs_settle_before_change(mhs, MHS_CHANGED);
	/* Pairs with the acquires in hook_packet_in() and lane_ask(): a packet
	 * that sees svc sees the service settling.
	 */
	smp_store_release(&mhs->svc, svc);
	err = mhs_server_add(mhs, dest);
	mhs_work_changed(mhs);
	mutex_unlock(&mhs->lock);
	return err;
}

static int ctl_upd_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct mhs *mhs = svc->sched_data;
	struct mhs_server *s;

	mutex_lock(&mhs->lock);
	s = mhs_server_find(mhs, dest);
	if (!s || s->weight != atomic_read(&dest->weight))
		mhs_settle_before_change(mhs, s && mhs_server_leaves(s) ?
					 MHS_DRAINED : MHS_CHANGED);
	/* add_dest had no memory for the server: the work adds it soon */
	if (!s || mhs_server_refresh(s) || mhs->poked)
		mhs_work_changed(mhs);
	mutex_unlock(&mhs->lock);
	return 0;
}

static int ctl_del_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest)
{
	struct mhs *mhs = svc->sched_data;
	struct mhs_server *s;

	mutex_lock(&mhs->lock);
	s = mhs_server_find(mhs, dest);
	if (s) {
		mhs_settle_before_change(mhs, MHS_DELETED);
		mhs_work_changed(mhs);
		mhs_server_gone(s);
	}
	mutex_unlock(&mhs->lock);
	return 0;
}

/* A service is refused rather than that the OOM killer ends a process for it: what
 * its servers take, and who makes it, must find memory, too
 */
#define CTL_SPARE_PAGES		(SZ_16M >> PAGE_SHIFT)

static struct mhs *ctl_new(struct ip_vs_service *svc)
{
	struct mhs *mhs;

	if (si_mem_available() < CTL_SPARE_PAGES)
		return NULL;
	mhs = kzalloc_obj(*mhs, GFP_KERNEL_ACCOUNT);
	if (!mhs)
		return NULL;
	mhs->ipvs = svc->ipvs;
	mhs->net = mhs_net(svc->ipvs->net);
	mhs->af = svc->af;
	mhs->protocol = svc->protocol;
	mhs->fwmark = svc->fwmark;
	ip_vs_addr_copy(svc->af, &mhs->addr, &svc->addr);
	mhs->port = svc->port;
	/* A service for all ports (port 0, no mark) is persistent: the core
	 * handles its packets, and no packet looks up the service here.
	 */
	mhs->hashed = svc->port || svc->fwmark;
	mhs->addr_only = svc->flags & MHS_SVC_F_ADDR_ONLY;
	mhs->size = mhs_slots_size;
	mhs->key = mhs_hash_key;
	INIT_LIST_HEAD(&mhs->listed);
	INIT_LIST_HEAD(&mhs->gone);
	ida_init(&mhs->indexes);
	mutex_init(&mhs->lock);
	INIT_DELAYED_WORK(&mhs->work, mhs_work);
	refcount_set(&mhs->refcnt, 1);
	mhs->slots = kvcalloc(mhs->size, sizeof(*mhs->slots),
			      GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL);
	mhs->cnt = alloc_percpu_gfp(struct mhs_counters, GFP_KERNEL_ACCOUNT);
	if (mhs->slots && mhs->cnt)
		return mhs;
	mhs_svc_put(mhs);
	return NULL;
}

/* Add the servers that the service has already, from another scheduler */
static int ctl_adopt(struct mhs *mhs, struct ip_vs_service *svc)
{
	struct ip_vs_dest *dest;
	int err = 0;

	mutex_lock(&mhs->lock);
	mhs_settle_start(mhs, true);
	/* the core's service mutex protects the list */
	list_for_each_entry(dest, &svc->destinations, n_list) {
		WRITE_ONCE(mhs->svc, svc);
		err = mhs_server_add(mhs, dest);
		if (err == -ENOMEM)
			break;
		err = 0;
	}
	/* without a server no clock runs */
	if (!err && mhs->svc)
		mhs_work_changed(mhs);
	mutex_unlock(&mhs->lock);
	return err;
}

static void ctl_rcu_put(struct rcu_head *head)
{
	mhs_svc_put(container_of(head, struct mhs, rcu));
}

/* Who may still be inside, and what waits for them:
 *
 *	the core's callbacks	nobody: the core holds the service mutex
 *	net_work(), /proc	nobody: each holds net.lock, which mhs_net_detach()
 *				takes, or a reference; a reader of /proc queues
 *				the work only until mhs.ended
 *	work of the service	cancel_delayed_work_sync(); nobody queues more
 *	packets, schedule()	call_rcu() frees servers and service
 *	RCU callbacks		that of a server holds the service; that of a
 *				carrier needs only the namespace, whose exit
 *				waits for conn_count
 */
static void ctl_free(struct mhs *mhs)
{
	mhs_net_detach(mhs);
	mutex_lock(&mhs->lock);
	mhs->ended = true;
	mutex_unlock(&mhs->lock);
	cancel_delayed_work_sync(&mhs->work);

	mutex_lock(&mhs->lock);
	mhs_server_release_gone(mhs, true);
	mutex_unlock(&mhs->lock);
	call_rcu(&mhs->rcu, ctl_rcu_put);
}

static int ctl_init_service(struct ip_vs_service *svc)
{
	struct mhs *mhs;
	int err;

	/* setsockopt() asks the user namespace for rights: its root could have
	 * the host rebuild tables and learn slots.  Netlink, which ipvsadm uses,
	 * asks that of the host.
	 */
	if (svc->ipvs->net->user_ns != &init_user_ns)
		return -EPERM;
	err = mhs_net_ready();
	if (err)
		return err;
	mhs = ctl_new(svc);
	if (!mhs) {
		pr_err_ratelimited("no memory for one more service, with a table of %u slots: free memory, or load the module with a smaller table_size on all directors\n",
				   mhs_slots_size);
		return -ENOMEM;
	}
	err = mhs_net_attach(mhs);
	if (err) {
		mhs_svc_put(mhs);
		return err;
	}
	err = ctl_adopt(mhs, svc);
	if (err) {
		ctl_free(mhs);
		return err;
	}

	/* nothing below may fail: packets find the service from here on */
	svc->sched_data = mhs;
	if (mhs->hashed)
		mhs_svc_publish(mhs);
	return 0;
}

static void ctl_done_service(struct ip_vs_service *svc)
{
	ctl_free(svc->sched_data);
}

/* Copied for each name */
const struct ip_vs_scheduler mhs_ctl_scheduler = {
	.name		= "mhs",
	.module		= THIS_MODULE,
	.init_service	= ctl_init_service,
	.done_service	= ctl_done_service,
	.add_dest	= ctl_add_dest,
	.upd_dest	= ctl_upd_dest,
	.del_dest	= ctl_del_dest,
	.schedule	= mhs_ask_schedule,
};
