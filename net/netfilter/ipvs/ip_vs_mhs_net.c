// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: network namespaces: their sysctls, their
 * list of services, and a work that polls what no callback of the core reports.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "ip_vs_mhs_ctl.h"
#include "ip_vs_mhs_pkt.h"

#define MHS_HOLD_MS		(60 * MSEC_PER_SEC)
#define MHS_DAY_MS		(24 * 60 * 60 * MSEC_PER_SEC)

/* 80 MB for one service, at some 300 bytes for a connection entry */
#define MHS_MAX_ENTRIES		262144

/* The entries of all services of a namespace take an eighth of the memory */
#define MHS_ENTRY_BYTES		320

/* A quarter: UDP source addresses are easily forged */
#define MHS_MAX_QUIC_ENTRIES	65536

/* 0 when mhs_net() works, -EAGAIN before, or why it never will */
int mhs_net_ready(void)
{
	return mhs_net_registered();
}

/* Have the work replace carriers that do not fit */
static void net_refresh(struct mhs *mhs)
{
	mutex_lock(&mhs->lock);
	/* before the first server no carrier exists */
	if (mhs->svc) {
		mhs->poked = true;
		mhs_queue(mhs, 0);
	}
	mutex_unlock(&mhs->lock);
}

/* Poll what no callback of the core reports.  On a sync backup entries of unknown
 * flows arrive: every slot is marked tracked when the role begins, which packets see
 * themselves, and no mark ages while it lasts.
 */
static void net_work(struct work_struct *work)
{
	struct mhs_net *mn = container_of(to_delayed_work(work),
					  struct mhs_net, work);
	struct netns_ipvs *ipvs = net_ipvs(mn->net);
	u32 all_made = atomic_read(&mn->entries.made), all = 0, made, n;
	bool backup, begins, foreign, conntrack;
	struct mhs *mhs;
	loff_t pos = 0;

	mutex_lock(&mn->lock);
	/* a carrier's IP_VS_CONN_F_NFCT is fixed: replace the carriers */
	conntrack = mhs_conntrack(ipvs);
	if (conntrack != mn->conntrack)
		list_for_each_entry(mhs, &mn->list, net_list)
			net_refresh(mhs);
	mhs = NULL;
	mn->conntrack = conntrack;

	backup = READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP;
	begins = backup && !mn->backup;
	/* Before the marks are set: no tick may age them meanwhile */
	WRITE_ONCE(mn->backup, backup);
	mutex_unlock(&mn->lock);

	while ((mhs = mhs_svc_next(mn, mhs, pos++))) {
		if (begins)
			mhs_slots_track_all(mhs);
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
	foreign = mhs_foreign(ipvs, mn->services, mn->fwm_services);
	/* No record of a lane lasts longer than a second */
	WRITE_ONCE(mn->foreign, foreign || mn->was_foreign);
	mn->was_foreign = foreign;
	if (!list_empty(&mn->list))
		queue_delayed_work(mhs_slots_wq, &mn->work, HZ);
	mutex_unlock(&mn->lock);
}

/* A service comes.  The hooks and the work of a namespace come with its first
 * service.  After an error nothing is attached.
 */
int mhs_net_attach(struct mhs *mhs)
{
	struct mhs_net *mn = mhs->net;
	int err;

	mutex_lock(&mn->lock);
	err = mhs_hook_get(mn, mhs);
	if (err)
		goto unlock;
	if (list_empty(&mn->list)) {
		mn->conntrack = mhs_conntrack(mhs->ipvs);
		queue_delayed_work(mhs_slots_wq, &mn->work, HZ);
	}
	WRITE_ONCE(mn->services, mn->services + 1);
	WRITE_ONCE(mn->fwm_services, mn->fwm_services + !!mhs->fwmark);
	WRITE_ONCE(mn->foreign, true);
	mn->was_foreign = true;
	mhs_lane_changed(&mn->generation);
	if (READ_ONCE(mn->backup))
		mhs_slots_track_all(mhs);
	list_add_tail(&mhs->net_list, &mn->list);
	mhs_cid_attach(mhs);
unlock:
	mutex_unlock(&mn->lock);
	return err;
}

/* A service that was attached goes.  Packets that have found it may use it until a
 * grace period is over.
 */
void mhs_net_detach(struct mhs *mhs)
{
	struct mhs_net *mn = mhs->net;

	mutex_lock(&mn->lock);
	list_del_init(&mhs->net_list);
	hash_del_rcu(&mhs->node);
	RCU_INIT_POINTER(mhs->cid, NULL);
	mn->lane_gone += mhs_svc_counted(mhs, MHS_LANE_COUNTS);
	WRITE_ONCE(mn->services, mn->services - 1);
	WRITE_ONCE(mn->fwm_services, mn->fwm_services - !!mhs->fwmark);
	mhs_hook_put(mn, mhs);
	mutex_unlock(&mn->lock);
}

/* Sysctls, net.ipv4.vs.mhs.* of each namespace */

static const unsigned int net_day_ms = MHS_DAY_MS;

/* A number; data is the offset in struct mhs_net */
#define NET_SYSCTL(NAME, MAX, HANDLER)					\
	{								\
		.procname	= #NAME,				\
		.data		= (void *)offsetof(struct mhs_net, NAME), \
		.maxlen		= sizeof(unsigned int),			\
		.mode		= 0644,					\
		.proc_handler	= HANDLER,				\
		.extra1		= SYSCTL_ZERO,				\
		.extra2		= (void *)(MAX),			\
	}

#define NET_SYSCTL_TEXT(NAME, MODE, HANDLER, EXTRA)			\
	{								\
		.procname	= #NAME,				\
		.maxlen		= PAGE_SIZE,				\
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
	NET_SYSCTL_TEXT(second_chance, 0644, mhs_chance_sysctl, NULL),
	/* a key is secret */
	NET_SYSCTL_TEXT(quic_ids, 0600, mhs_cid_sysctl, SYSCTL_ONE),
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
	mhs_chance_exit(mn);
	cancel_delayed_work_sync(&mn->work);
}

static int __net_init net_init(struct net *net)
{
	struct mhs_net *mn = mhs_net(net);
	int err;

	mn->net = net;
	mn->hold_ms = MHS_HOLD_MS;
	mn->max_entries = MHS_MAX_ENTRIES;
	mn->max_quic_entries = MHS_MAX_QUIC_ENTRIES;
	mn->max_total_entries = clamp_t(unsigned long, totalram_pages() / 8 *
					(PAGE_SIZE / MHS_ENTRY_BYTES),
					MHS_MAX_ENTRIES, INT_MAX);
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
