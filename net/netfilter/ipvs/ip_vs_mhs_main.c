// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: module, parameters, names.
 *
 * Start with ip_vs_mhs.h: locks, lifetimes, files of the packet path; those of the
 * control path are listed in ip_vs_mhs_ctl.h.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>

#include "ip_vs_mhs_ctl.h"

static char *hash_key = "";
module_param(hash_key, charp, 0400);
MODULE_PARM_DESC(hash_key, "key of the hash, 32 hexadecimal digits; the same on every director (default: a constant)");

/* More than IPVS has schedulers of its own */
#define MHS_NAMES		16

static char *mhs_names[MHS_NAMES];
static unsigned int mhs_names_n;
module_param_array_named(names, mhs_names, charp, &mhs_names_n, 0444);
MODULE_PARM_DESC(names, "further names under which mhs registers, for front ends that know no scheduler mhs, as in names=mhs,mh; mhs itself always registers (default mhs)");

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
	mhs_hash_set_key(raw);
	return 0;
}

/* One for each name, by which the core finds the struct in a list */
static struct ip_vs_scheduler mhs_schedulers[1 + MHS_NAMES];
static unsigned int mhs_schedulers_n;

static int mhs_register(char *name)
{
	struct ip_vs_scheduler *sched = &mhs_schedulers[mhs_schedulers_n];
	int err;

	*sched = mhs_ctl_scheduler;
	sched->name = name;
	INIT_LIST_HEAD(&sched->n_list);
	err = register_ip_vs_scheduler(sched);
	if (!err)
		mhs_schedulers_n++;
	return err;
}

/* Must not fail when a name is taken: after the first registration services may
 * use the module, and a module whose init fails is freed without waiting for
 * them.
 */
static void mhs_stand_in(char *name)
{
	if (!strcmp(name, mhs_ctl_scheduler.name))
		return;
	if (mhs_register(name))
		pr_warn("names: the kernel has a scheduler %s already, which stays: load ip_vs_mhs before ip_vs_%s\n",
			name, name);
	else
		pr_info("new services with the scheduler %s are mhs\n", name);
}

static int __init mhs_init(void)
{
	unsigned int i;
	int err;

	if (!mhs_table_size_valid(mhs_rebuild_size)) {
		pr_err("table_size=%u: want one of 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287\n",
		       mhs_rebuild_size);
		return -EINVAL;
	}
	err = mhs_parse_key();
	if (err)
		return err;
	err = mhs_rebuild_init();
	if (err)
		return err;
	err = mhs_net_register();
	if (err)
		goto exit_scratch;
	mhs_api_init(mhs_net_ready);
	err = mhs_register(mhs_ctl_scheduler.name);
	if (err)
		goto unregister_pernet;
	/* nothing below may fail, see mhs_stand_in() */
	for (i = 0; i < mhs_names_n; i++)
		mhs_stand_in(mhs_names[i]);
	pr_info("stateless Maglev scheduler, %u slots\n", mhs_rebuild_size);
	return 0;

unregister_pernet:
	mhs_api_close();
	mhs_net_unregister();
	mhs_api_put();
exit_scratch:
	mhs_rebuild_exit();
	return err;
}

static void __exit mhs_exit(void)
{
	while (mhs_schedulers_n)
		unregister_ip_vs_scheduler(&mhs_schedulers[--mhs_schedulers_n]);
	/* Who may still be inside, and what waits for them:
	 *
	 *	services, their works	none: each service held the module
	 *	packets in removed	synchronize_rcu(), before the namespaces'
	 *	hooks, schedule()	struct mhs_net is freed
	 *	net_work(), /proc,	net_exit(), for each namespace
	 *	sysctls, ingress hooks
	 *	the lane, XDP programs	mhs_api_close()
	 *	RCU callbacks		rcu_barrier(), before the code goes and
	 *				mhs_net.carriers, which they count down
	 */
	mhs_api_close();
	synchronize_rcu();
	rcu_barrier();
	mhs_net_unregister();
	mhs_api_put();
	mhs_rebuild_exit();
}

module_init(mhs_init);
module_exit(mhs_exit);
MODULE_DESCRIPTION("IPVS stateless Maglev scheduler");
MODULE_LICENSE("GPL");
#ifdef MHS_VERSION
MODULE_VERSION(MHS_VERSION);
#endif
