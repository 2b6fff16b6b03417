// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: services that come and go; network
 * namespaces: sysctls, and a work that polls
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/user_namespace.h>

#include "ip_vs_mhs_ctl.h"

/* 80 MB for one service, at some 300 bytes for a connection entry */
#define MHS_MAX_ENTRIES		262144

/* 0 when mhs_net() works, -EAGAIN before, or why it never will */
int mhs_net_ready(void)
{
	return mhs_net_registered();
}

/* Poll what no callback of the core reports.  On a sync backup entries of unknown
 * flows arrive: every slot is tracked when the role begins, which packets see
 * themselves, and no tracked bit ages while it lasts.  A walk that had begun may age the
 * bits once, so every slot is tracked again when the role ends.  Not in the queue of
 * rebuilds, which may take many seconds: services would stay at their limits of entries.
 */
static void net_work(struct work_struct *work)
{
	struct mhs_net *mn = container_of(to_delayed_work(work),
					  struct mhs_net, work);
	struct netns_ipvs *ipvs = net_ipvs(mn->net);
	u32 all_made = atomic_read(&mn->entries.made), all = 0, made, n;
	bool backup, turns, conntrack;
	struct mhs *mhs;
	loff_t pos = 0;

	mutex_lock(&mn->lock);
	/* a carrier's IP_VS_CONN_F_NFCT is fixed: replace the carriers */
	conntrack = mhs_conntrack(ipvs);
	if (conntrack != mn->conntrack)
		list_for_each_entry(mhs, &mn->list, net_list)
			mhs_work_refresh(mhs);
	mhs = NULL;
	mn->conntrack = conntrack;

	backup = READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP;
	turns = backup != mn->backup;
	/* Before slots are tracked, and until they are: no tick ages that */
	WRITE_ONCE(mn->backup, backup || turns);
	mutex_unlock(&mn->lock);

	while ((mhs = mhs_svc_next(mn, mhs, pos++))) {
		if (turns)
			mhs_rebuild_track_all(mhs);
		mutex_lock(&mhs->lock);
		mhs_work_poll_stateful(mhs);
		/* entries made from now on may count twice, until the next count */
		made = atomic_read(&mhs->entries.made);
		n = made + mhs->entries.counted ? mhs_work_entries(mhs) : 0;
		WRITE_ONCE(mhs->entries.counted, n - made);
		mutex_unlock(&mhs->lock);
		all += n;
		cond_resched();
	}
	WRITE_ONCE(mn->entries.counted, all - all_made);

	mutex_lock(&mn->lock);
	WRITE_ONCE(mn->backup, backup);
	if (!list_empty(&mn->list))
		queue_delayed_work(system_long_wq, &mn->work, HZ);
	mutex_unlock(&mn->lock);
}

/* The hooks and the work of a namespace come with its first service */
static int net_attach(struct mhs *mhs)
{
	struct mhs_net *mn = mhs->mn;
	int err;

	mutex_lock(&mn->lock);
	err = mhs_packet_hook(mn, mhs);
	if (err)
		goto unlock;
	if (list_empty(&mn->list)) {
		mn->conntrack = mhs_conntrack(mhs->ipvs);
		queue_delayed_work(system_long_wq, &mn->work, HZ);
	}
	WRITE_ONCE(mn->fwm_services, mn->fwm_services + !!mhs->fwmark);
	mhs_lane_changed(&mn->generation);
	if (READ_ONCE(mn->backup))
		mhs_rebuild_track_all(mhs);
	list_add_tail(&mhs->net_list, &mn->list);
	mhs_list_attach(mhs);
unlock:
	mutex_unlock(&mn->lock);
	return err;
}

static void net_detach(struct mhs *mhs)
{
	struct mhs_net *mn = mhs->mn;

	mutex_lock(&mn->lock);
	list_del_init(&mhs->net_list);
	hash_del_rcu(&mhs->node);
	hlist_del_init_rcu(&mhs->fwmark_node);
	RCU_INIT_POINTER(mhs->ids, NULL);
	mn->lane_gone += mhs_svc_counted(mhs, MHS_LANE_COUNTS);
	WRITE_ONCE(mn->fwm_services, mn->fwm_services - !!mhs->fwmark);
	mhs_packet_unhook(mn, mhs);
	mutex_unlock(&mn->lock);
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
	mhs->mn = mhs_net(svc->ipvs->net);
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
	mhs->size = mhs_rebuild_size;
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
static void ctl_adopt(struct mhs *mhs, struct ip_vs_service *svc)
{
	struct ip_vs_dest *dest;

	mutex_lock(&mhs->lock);
	mhs_settle_start(mhs, true);
	/* the core's service mutex protects the list */
	list_for_each_entry(dest, &svc->destinations, n_list) {
		WRITE_ONCE(mhs->svc, svc);
		mhs_server_add(mhs, dest);
	}
	/* without a server no clock runs */
	if (mhs->svc)
		mhs_work_note(mhs);
	mutex_unlock(&mhs->lock);
}

static void ctl_rcu_put(struct rcu_head *head)
{
	mhs_svc_put(container_of(head, struct mhs, rcu));
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
				   mhs_rebuild_size);
		return -ENOMEM;
	}
	err = net_attach(mhs);
	if (err) {
		mhs_svc_put(mhs);
		return err;
	}
	/* nothing below may fail */
	ctl_adopt(mhs, svc);
	svc->sched_data = mhs;
	if (mhs->hashed)
		mhs_svc_publish(mhs);
	return 0;
}

/* Who may still be inside, and what waits for them:
 *
 *	the core's callbacks	nobody: the core holds the service mutex
 *	net_work(), /proc	nobody: each holds net.lock, which net_detach()
 *				takes, or a reference; a reader of /proc queues
 *				the work only until mhs.ended
 *	work of the service	cancel_delayed_work_sync(); nobody queues more
 *	packets, schedule()	call_rcu() frees servers and service
 *	RCU callbacks		that of a server holds the service; that of a
 *				carrier needs only the namespace, whose exit
 *				waits for conn_count
 */
static void ctl_done_service(struct ip_vs_service *svc)
{
	struct mhs *mhs = svc->sched_data;

	/* Older kernels do so after us only: in "ipvsadm -E" a packet could call
	 * schedule() when our grace period is over
	 */
	RCU_INIT_POINTER(svc->scheduler, NULL);
	net_detach(mhs);
	mutex_lock(&mhs->lock);
	mhs->ended = true;
	mutex_unlock(&mhs->lock);
	cancel_delayed_work_sync(&mhs->work);

	mutex_lock(&mhs->lock);
	mhs_server_release_gone(mhs, true);
	mutex_unlock(&mhs->lock);
	call_rcu(&mhs->rcu, ctl_rcu_put);
}

const struct ip_vs_scheduler mhs_ctl_scheduler = {
	.name		= "mhs",
	.module		= THIS_MODULE,
	.init_service	= ctl_init_service,
	.done_service	= ctl_done_service,
	.add_dest	= mhs_work_add_dest,
	.upd_dest	= mhs_work_upd_dest,
	.del_dest	= mhs_work_del_dest,
	.schedule	= mhs_entry_schedule,
};

/* Sysctls, net.ipv4.vs.mhs.* of each namespace */

static const unsigned int net_day_ms = 24 * 60 * 60 * MSEC_PER_SEC;

/* A number; data is the offset in struct mhs_net */
#define NET_SYSCTL(NAME, MAX, HANDLER)					\
	{								\
		.procname	= #NAME,				\
		.data		= (void *)offsetof(struct mhs_net, NAME), \
		.maxlen		= sizeof(unsigned int),			\
		.mode		= 0644,					\
		.proc_handler	= HANDLER,				\
		.extra2		= (void *)(MAX),			\
	}

#define NET_SYSCTL_TEXT(NAME, MODE, HANDLER, EXTRA)			\
	{								\
		.procname	= #NAME,				\
		.mode		= MODE,					\
		.proc_handler	= HANDLER,				\
		.extra1		= EXTRA,				\
	}

static const struct ctl_table net_table[] = {
	NET_SYSCTL(hold_ms, &net_day_ms, proc_douintvec_minmax),
	NET_SYSCTL(pin_ms, &net_day_ms, proc_douintvec_minmax),
	NET_SYSCTL(max_entries, SYSCTL_INT_MAX, proc_douintvec_minmax),
	NET_SYSCTL(max_quic_entries, SYSCTL_INT_MAX, proc_douintvec_minmax),
	NET_SYSCTL(max_total_entries, SYSCTL_INT_MAX, proc_douintvec_minmax),
	NET_SYSCTL(stateless, SYSCTL_ONE, proc_douintvec_minmax),
	NET_SYSCTL(lane, SYSCTL_ONE, mhs_api_sysctl),
	NET_SYSCTL_TEXT(ingress, 0644, mhs_api_ingress, NULL),
	NET_SYSCTL_TEXT(second_chance, 0644, mhs_list_sysctl, NULL),
	/* a key is secret */
	NET_SYSCTL_TEXT(quic_ids, 0600, mhs_list_sysctl, SYSCTL_ONE),
	{ } /* where register_net_sysctl() stops */
};

static int net_sysctls_init(struct mhs_net *mn)
{
	unsigned int i, n = ARRAY_SIZE(net_table) - 1;

	if (!IS_ENABLED(CONFIG_SYSCTL))
		return 0;
	mn->table = kmemdup(net_table, sizeof(net_table), GFP_KERNEL);
	if (!mn->table)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		mn->table[i].data = (char *)mn + (unsigned long)net_table[i].data;
	mn->header = mhs_register_sysctl(mn->net, "net/ipv4/vs/mhs",
					 mn->table, n);
	return mn->header ? 0 : -ENOMEM;
}

/* Runs before the core deletes the namespace's services: done_service() still
 * detaches them from *mn afterwards.  Also the way out when net_init() fails:
 * remove_proc_subtree() does not mind that a file is missing.
 */
static void __net_exit net_exit(struct net *net)
{
	struct mhs_net *mn = mhs_net(net);

	remove_proc_subtree("ip_vs_mhs_lookup", net->proc_net);
	remove_proc_subtree("ip_vs_mhs_chance", net->proc_net);
	remove_proc_subtree("ip_vs_mhs_lane", net->proc_net);
	remove_proc_subtree("ip_vs_mhs", net->proc_net);
	unregister_net_sysctl_table(mn->header);
	kfree(mn->table);
	mhs_api_net_exit(mn);
	mhs_list_exit(mn);
	cancel_delayed_work_sync(&mn->work);
}

static int __net_init net_init(struct net *net)
{
	struct mhs_net *mn = mhs_net(net);
	int err;

	mn->net = net;
	mn->hold_ms = 60 * MSEC_PER_SEC;
	mn->max_entries = MHS_MAX_ENTRIES;
	/* UDP source addresses are easily forged */
	mn->max_quic_entries = MHS_MAX_ENTRIES / 4;
	/* an eighth of the memory, at 320 bytes for an entry */
	mn->max_total_entries = clamp_t(unsigned long, totalram_pages() / 8 *
					(PAGE_SIZE / 320), MHS_MAX_ENTRIES,
					INT_MAX);
	mn->stateless = 1;
	mutex_init(&mn->lock);
	INIT_LIST_HEAD(&mn->list);
	INIT_DELAYED_WORK(&mn->work, net_work);
	INIT_DELAYED_WORK(&mn->chance_work, mhs_chance_work);
	/* no service can come, see ctl_init_service() */
	if (net->user_ns != &init_user_ns)
		return 0;
	err = net_sysctls_init(mn);
	/* 0440: a read walks every slot of every service */
	if (!err && IS_ENABLED(CONFIG_PROC_FS) &&
	    (!proc_create_net("ip_vs_mhs", 0440, net->proc_net, &mhs_proc_ops,
			      sizeof(struct seq_net_private)) ||
	     !proc_create_net_single("ip_vs_mhs_lane", 0440, net->proc_net,
				     mhs_api_show, NULL) ||
	     !proc_create_net_single("ip_vs_mhs_chance", 0440, net->proc_net,
				     mhs_chance_show, NULL) ||
	     !proc_create_net_data_write("ip_vs_mhs_lookup", 0600,
					 net->proc_net, &mhs_proc_lookup_ops,
					 mhs_proc_lookup_write,
					 mhs_proc_lookup_size, NULL)))
		err = -ENOMEM;
	if (err)
		net_exit(net);
	return err;
}

static struct pernet_operations net_ops = {
	.init	= net_init,
	.exit	= net_exit,
	.id	= &mhs_svc_net_id,
	.size	= sizeof(struct mhs_net),
};

/* Perhaps the namespaces get their parts after the return */
int mhs_net_register(void)
{
	return mhs_register_net(&net_ops);
}

void mhs_net_unregister(void)
{
	mhs_unregister_net(&net_ops);
}
