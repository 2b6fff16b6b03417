// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: module, network namespaces, sysctls.
 *
 * mhs balances like mh, by consistent hashing, but keeps no connection for a
 * flow whose server does not change.  Each slot of a service's lookup table names
 * two servers, the old one and the candidate.  A slot with the same server as both
 * is stable: the table alone forwards its packets.  A change of servers makes the
 * slots that move unstable for a bounded time: new flows get a connection and go
 * to the candidate, older flows stay with the old server.  So the number of
 * connections depends on changes, not on load.
 *
 * Start with ip_vs_mhs.h: files, locks and lifetimes.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/hex.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#ifdef MHS_SERIES_PROC
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#endif
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "ip_vs_mhs_ctl.h"
#ifdef MHS_SERIES_XDP
#include "ip_vs_mhs_lane.h"
#endif

static char *hash_key = "";
module_param(hash_key, charp, 0400);
MODULE_PARM_DESC(hash_key, "key of the hash, 32 hexadecimal digits; the same on every director (default: a constant)");

#define MHS_HOLD_MS		(60 * MSEC_PER_SEC)
#ifdef MHS_SERIES_PROC
#define MHS_DAY_MS		(24 * 60 * 60 * MSEC_PER_SEC)
#endif

/* 80 MB for one service, at some 300 bytes for a connection */
#define MHS_MAX_ENTRIES		262144
#ifdef MHS_SERIES_QUIC

/* A quarter: UDP source addresses are easily forged */
#define MHS_MAX_QUIC_ENTRIES	65536
#endif

/* Time between two looks at the role of the sync daemon and at the sysctl
 * stateless; the work is deferrable, so an idle CPU does not wake for them
 */
#define MHS_NET_PERIOD		HZ

unsigned int ip_vs_mhs_net_id __read_mostly;

static void net_queue(struct ip_vs_mhs_net *mn)
{
	queue_delayed_work(ip_vs_mhs_slots_wq(mn->net), &mn->work,
			   MHS_NET_PERIOD);
}

/* On a sync backup connections of unknown flows arrive, and flows run on another
 * director.  So the work marks every slot tracked and used when the role begins,
 * and the clocks of a service age no mark while the role lasts.  Packets read
 * the role themselves, so the work may notice its beginning late.
 */
static void net_work(struct work_struct *work)
{
	struct ip_vs_mhs_net *mn = container_of(to_delayed_work(work),
						struct ip_vs_mhs_net, work);
	struct netns_ipvs *ipvs = net_ipvs(mn->net);
	struct ip_vs_mhs *mhs;
	bool backup, begins, stateful;

	mutex_lock(&mn->lock);
	backup = READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP;
	begins = backup && !mn->backup;
	/* Before the marks are set: no tick may age them meanwhile */
	WRITE_ONCE(mn->backup, backup);
	stateful = !READ_ONCE(mn->stateless);
	if (begins || stateful || mn->was_stateful)
		list_for_each_entry(mhs, &mn->list, net_list) {
			mutex_lock(&mhs->lock);
			if (begins) {
				ip_vs_mhs_slots_track_all(mhs);
				ip_vs_mhs_slots_use_all(mhs);
			}
			ip_vs_mhs_work_look_stateful(mhs);
			mutex_unlock(&mhs->lock);
		}
	mn->was_stateful = stateful;
	if (!list_empty(&mn->list))
		net_queue(mn);
	mutex_unlock(&mn->lock);
}

/**
 * ip_vs_mhs_net_attach() - a service comes
 * @mhs: the service
 *
 * Context: process; takes net.lock.
 */
void ip_vs_mhs_net_attach(struct ip_vs_mhs *mhs)
{
	struct ip_vs_mhs_net *mn = mhs->net;

	mutex_lock(&mn->lock);
	if (list_empty(&mn->list))
		net_queue(mn);
	if (READ_ONCE(mn->backup))
		ip_vs_mhs_slots_track_all(mhs);
	list_add_tail(&mhs->net_list, &mn->list);
	mutex_unlock(&mn->lock);
}

/**
 * ip_vs_mhs_net_detach() - a service that was attached goes
 * @mhs: the service
 *
 * Context: process; takes net.lock.
 */
void ip_vs_mhs_net_detach(struct ip_vs_mhs *mhs)
{
	mutex_lock(&mhs->net->lock);
	list_del(&mhs->net_list);
	mutex_unlock(&mhs->net->lock);
}

#ifdef MHS_SERIES_PROC
static const unsigned int net_day_ms = MHS_DAY_MS;
static const unsigned int net_int_max = INT_MAX;

/* net.ipv4.vs.mhs.*; data is the offset in struct ip_vs_mhs_net */
#define MHS_SYSCTL(NAME, MAX)						\
	{								\
		.procname	= #NAME,				\
		.data		= (void *)offsetof(struct ip_vs_mhs_net, NAME), \
		.maxlen		= sizeof(unsigned int),			\
		.mode		= 0644,					\
		.proc_handler	= proc_douintvec_minmax,		\
		.extra1		= SYSCTL_ZERO,				\
		.extra2		= (void *)(MAX),			\
	}

static const struct ctl_table net_table[] = {
	MHS_SYSCTL(stateless, SYSCTL_ONE),
	/* These cost CPU and memory of the host: not writable outside the
	 * initial user namespace
	 */
	MHS_SYSCTL(hold_ms, &net_day_ms),
	MHS_SYSCTL(pin_ms, &net_day_ms),
	MHS_SYSCTL(max_entries, &net_int_max),
#ifdef MHS_SERIES_QUIC
	MHS_SYSCTL(max_quic_entries, &net_int_max),
#endif
};

static int net_sysctls_init(struct ip_vs_mhs_net *mn)
{
	int i;

	if (!IS_ENABLED(CONFIG_SYSCTL))
		return 0;
	mn->table = kmemdup(net_table, sizeof(net_table), GFP_KERNEL);
	if (!mn->table)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(net_table); i++) {
		mn->table[i].data = (char *)mn +
				    (unsigned long)net_table[i].data;
		if (i && mn->net->user_ns != &init_user_ns)
			mn->table[i].mode = 0444;
	}
	mn->header = register_net_sysctl_sz(mn->net, "net/ipv4/vs/mhs",
					    mn->table, ARRAY_SIZE(net_table));
	if (mn->header)
		return 0;
	kfree(mn->table);
	return -ENOMEM;
}

static void net_sysctls_exit(struct ip_vs_mhs_net *mn)
{
	if (mn->header)
		unregister_net_sysctl_table(mn->header);
	kfree(mn->table);
}

#endif
#ifdef MHS_SERIES_XDP
/* What XDP programs ask for, and the file that says what became of the frames */
static int net_lane_init(struct ip_vs_mhs_net *mn)
{
	if (!IS_ENABLED(CONFIG_IP_VS_MHS_XDP))
		return 0;
	mn->lane = alloc_percpu(struct ip_vs_mhs_lane_stats);
	if (!mn->lane)
		return -ENOMEM;
	if (!IS_ENABLED(CONFIG_PROC_FS) ||
	    proc_create_net_single("ip_vs_mhs_lane", 0440, mn->net->proc_net,
				   ip_vs_mhs_lane_show, NULL))
		return 0;
	free_percpu(mn->lane);
	return -ENOMEM;
}

/* The namespace has no device any more, or no XDP program holds the module */
static void net_lane_exit(struct ip_vs_mhs_net *mn)
{
	if (!IS_ENABLED(CONFIG_IP_VS_MHS_XDP))
		return;
	remove_proc_entry("ip_vs_mhs_lane", mn->net->proc_net);
	free_percpu(mn->lane);
}

#endif
static int __net_init net_init(struct net *net)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(net);
#ifdef MHS_SERIES_PROC
	int err;
#endif

	mn->net = net;
	mn->hold_ms = MHS_HOLD_MS;
	mn->max_entries = MHS_MAX_ENTRIES;
#ifdef MHS_SERIES_QUIC
	mn->max_quic_entries = MHS_MAX_QUIC_ENTRIES;
#endif
	mn->stateless = 1;
	mutex_init(&mn->lock);
	INIT_LIST_HEAD(&mn->list);
	INIT_DEFERRABLE_WORK(&mn->work, net_work);
#ifndef MHS_SERIES_PROC
	return 0;
#else
	err = net_sysctls_init(mn);
	if (err)
		return err;
	/* 0440: a read walks every slot of every service */
	if (IS_ENABLED(CONFIG_PROC_FS) &&
	    !proc_create_net("ip_vs_mhs", 0440, net->proc_net,
			     &ip_vs_mhs_proc_ops,
			     sizeof(struct seq_net_private))) {
		err = -ENOMEM;
		goto exit_sysctls;
	}
#ifdef MHS_SERIES_XDP
	err = net_lane_init(mn);
	if (err)
		goto exit_proc;
#endif
	return 0;

#ifdef MHS_SERIES_XDP
exit_proc:
	remove_proc_entry("ip_vs_mhs", net->proc_net);
#endif
exit_sysctls:
	net_sysctls_exit(mn);
	return err;
#endif
}

/* Runs before the core deletes the namespace's services: done_service() still
 * detaches them from *mn afterwards.
 */
static void __net_exit net_exit(struct net *net)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(net);

#ifdef MHS_SERIES_XDP
	net_lane_exit(mn);
#endif
#ifdef MHS_SERIES_PROC
	remove_proc_entry("ip_vs_mhs", net->proc_net);
	net_sysctls_exit(mn);
#endif
	cancel_delayed_work_sync(&mn->work);
}

static struct pernet_operations net_ops = {
	.init	= net_init,
	.exit	= net_exit,
	.id	= &ip_vs_mhs_net_id,
	.size	= sizeof(struct ip_vs_mhs_net),
};

static int mhs_parse_key(void)
{
	u8 raw[16];

	if (!*hash_key)
		return 0;
	if (strlen(hash_key) != 2 * sizeof(raw) ||
	    hex2bin(raw, hash_key, sizeof(raw))) {
		pr_err("hash_key: want 32 hexadecimal digits (0-9, a-f), or nothing for the default key\n");
		return -EINVAL;
	}
	ip_vs_mhs_hash_set_key(raw);
	memzero_explicit(raw, sizeof(raw));
	return 0;
}

static int __init ip_vs_mhs_init(void)
{
	int err;

	if (!ip_vs_mhs_table_size_valid(ip_vs_mhs_slots_size)) {
		pr_err("table_size=%u: want one of 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287\n",
		       ip_vs_mhs_slots_size);
		return -EINVAL;
	}
	err = mhs_parse_key();
	if (err)
		return err;
	err = ip_vs_mhs_slots_init();
	if (err)
		return err;
	err = register_pernet_subsys(&net_ops);
	if (err)
		goto exit_slots;
#ifdef MHS_SERIES_XDP
	err = ip_vs_mhs_xdp_register();
	if (err)
		goto unregister_pernet;
#endif
	err = register_ip_vs_scheduler(&ip_vs_mhs_ctl_scheduler);
	if (!err)
		return 0;
#ifdef MHS_SERIES_XDP
unregister_pernet:
#endif
	unregister_pernet_subsys(&net_ops);
exit_slots:
	ip_vs_mhs_slots_exit();
	return err;
}

static void __exit ip_vs_mhs_exit(void)
{
	unregister_ip_vs_scheduler(&ip_vs_mhs_ctl_scheduler);
	/* Who may still be inside, and what waits for them:
	 *
	 *	services, their works	none: each service held the module
	 *	packets			synchronize_rcu(), before the namespaces'
	 *				struct ip_vs_mhs_net is freed
	 *	net_work(), /proc	net_exit(), for each namespace
	 *	RCU callbacks		rcu_barrier()
	 */
	synchronize_rcu();
	unregister_pernet_subsys(&net_ops);
	rcu_barrier();
	ip_vs_mhs_slots_exit();
}

module_init(ip_vs_mhs_init);
module_exit(ip_vs_mhs_exit);
MODULE_DESCRIPTION("IPVS stateless Maglev scheduler");
MODULE_LICENSE("GPL");
