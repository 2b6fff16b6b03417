/* SPDX-License-Identifier: GPL-2.0-only */
/* The one place where one kernel differs from another.
 *
 * Each difference is a MHS_HAVE_* flag, which net/netfilter/ipvs/Kbuild derives
 * from the names in the kernel's own headers: fixes travel to older kernels,
 * so a version number proves nothing.  In the kernel tree this file vanishes:
 * scripts/make-series resolves the flags for that tree and puts what remains
 * into ip_vs_mhs.h.
 */
#ifndef _IP_VS_MHS_COMPAT_H
#define _IP_VS_MHS_COMPAT_H

#include <linux/kernel.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <net/inet_sock.h>
#include <net/ip_vs.h>
#include <net/net_namespace.h>

/* hex2bin() moved here from kernel.h */
#ifdef MHS_HAVE_HEX_H
#include <linux/hex.h>
#endif

#ifndef MHS_HAVE_SERVICE_MUTEX
#include <linux/completion.h>
#include <linux/workqueue.h>
#endif

/* Zeroed memory for what a pointer is to point at */
#ifndef MHS_HAVE_KZALLOC_OBJ
#define kzalloc_obj(P, GFP)	kzalloc(sizeof(P), GFP)
#define kvzalloc_obj(P, GFP)	kvzalloc(sizeof(P), GFP)
#endif

/* Not when the CPU is awake anyway, but after a grace period */
static inline void ip_vs_mhs_call_rcu(struct rcu_head *head,
				      rcu_callback_t func)
{
#ifdef MHS_HAVE_CALL_RCU_HURRY
	call_rcu_hurry(head, func);
#else
	call_rcu(head, func);
#endif
}

/* Is the server in the service's list?  The bit moved from flags, which are
 * shared with the overload bit, to cflags.
 */
static inline bool ip_vs_mhs_dest_listed(const struct ip_vs_dest *dest)
{
#ifdef MHS_HAVE_DEST_CFLAGS
	return READ_ONCE(dest->cflags) & IP_VS_DEST_CF_AVAILABLE;
#else
	return READ_ONCE(dest->flags) & IP_VS_DEST_F_AVAILABLE;
#endif
}

/* Number of live connection entries of a server */
static inline u32 ip_vs_mhs_dest_entries(struct ip_vs_dest *dest)
{
#ifdef MHS_HAVE_TOTALCONNS
	int n = atomic_read(&dest->totalconns);
#else
	int n = atomic_read(&dest->activeconns) +
		atomic_read(&dest->inactconns);
#endif

	return n > 0 ? n : 0;
}

/* Per-CPU totals of the namespace */
static inline struct ip_vs_cpu_stats *
ip_vs_mhs_total_stats(struct netns_ipvs *ipvs)
{
#ifdef MHS_HAVE_TOT_STATS_PTR
	return this_cpu_ptr(ipvs->tot_stats->s.cpustats);
#else
	return this_cpu_ptr(ipvs->tot_stats.cpustats);
#endif
}

/* May the namespace have services by firewall mark beside our @fwm?  Where the
 * core does not count them, any service beside our @known ones may be one.
 */
static inline bool ip_vs_mhs_foreign(struct netns_ipvs *ipvs, int known,
				     int fwm)
{
#ifdef MHS_HAVE_FWM_SERVICES
	int i, n = 0;

	for (i = 0; i < ARRAY_SIZE(ipvs->fwm_services); i++)
		n += atomic_read(&ipvs->fwm_services[i]);
	return n != fwm;
#else
	return READ_ONCE(ipvs->num_services) +
	       READ_ONCE(ipvs->num_services6) != known;
#endif
}

/* Move the state of entry @cp on, as the core does for a packet it sees */
static inline void ip_vs_mhs_set_state(struct ip_vs_conn *cp, int direction,
				       const struct sk_buff *skb,
				       struct ip_vs_proto_data *pd,
				       unsigned int iph_len)
{
#ifdef MHS_HAVE_STATE_IPH_LEN
	pd->pp->state_transition(cp, direction, skb, pd, iph_len);
#else
	pd->pp->state_transition(cp, direction, skb, pd);
#endif
}

/* Did the owner of an IPv4 socket ask that its packets stay in pieces? */
static inline bool ip_vs_mhs_nodefrag(const struct sock *sk)
{
#ifdef MHS_HAVE_INET_FLAGS
	return inet_test_bit(NODEFRAG, sk);
#else
	return inet_sk(sk)->nodefrag;
#endif
}

/* A table of @n entries; kernels that count entries want no end marker */
static inline struct ctl_table_header *
ip_vs_mhs_register_sysctl(struct net *net, const char *path,
			  struct ctl_table *table, size_t n)
{
#ifdef MHS_HAVE_SYSCTL_SZ
	return register_net_sysctl_sz(net, path, table, n);
#else
	return register_net_sysctl(net, path, table);
#endif
}

/* Only one file may call these three: each has variables of its own.  Where namespaces end
 * the start of a module must not wait for ever, as a core with one mutex for all
 * of them asks for a scheduler's module with that held: the end of a namespace
 * may wait for it while it holds pernet_ops_rwsem, for which a registration
 * waits.  So a work item registers, and services are refused until it is done.
 */
#ifndef MHS_HAVE_SERVICE_MUTEX
static struct {
	struct work_struct work;
	struct completion done;
	struct pernet_operations *ops;
	int err;
} ip_vs_mhs_pernet;

static inline void ip_vs_mhs_pernet_work(struct work_struct *work)
{
	int err = register_pernet_subsys(ip_vs_mhs_pernet.ops);

	if (err)
		pr_err("cannot register: error %d, load the module anew\n", err);
	/* for ip_vs_mhs_net_registered(): what registration wrote is there */
	smp_store_release(&ip_vs_mhs_pernet.err, err);
	complete(&ip_vs_mhs_pernet.done);
}

static inline int ip_vs_mhs_register_net(struct pernet_operations *ops)
{
	/* no end to wait for; and later the code that registers is gone */
	if (!IS_ENABLED(CONFIG_NET_NS))
		return register_pernet_subsys(ops);
	ip_vs_mhs_pernet.ops = ops;
	ip_vs_mhs_pernet.err = -EAGAIN;
	init_completion(&ip_vs_mhs_pernet.done);
	INIT_WORK(&ip_vs_mhs_pernet.work, ip_vs_mhs_pernet_work);
	queue_work(system_unbound_wq, &ip_vs_mhs_pernet.work);
	if (wait_for_completion_timeout(&ip_vs_mhs_pernet.done, 10 * HZ)) {
		/* the module may go, its code has to be through */
		flush_work(&ip_vs_mhs_pernet.work);
		return ip_vs_mhs_pernet.err;
	}
	pr_warn("a network namespace is being deleted: no service before that is done\n");
	return 0;
}

/* Waits, which is right on the way out: nobody asks for a module that is there.
 * A failing start gets here with a work item that waits only if the core has a
 * scheduler mhs already, and then it does not ask for ours.
 */
static inline void ip_vs_mhs_unregister_net(struct pernet_operations *ops)
{
	if (IS_ENABLED(CONFIG_NET_NS))
		flush_work(&ip_vs_mhs_pernet.work);
	if (!ip_vs_mhs_pernet.err)
		unregister_pernet_subsys(ops);
}

static inline int ip_vs_mhs_net_registered(void)
{
	/* pairs with ip_vs_mhs_pernet_work() */
	return smp_load_acquire(&ip_vs_mhs_pernet.err);
}
#else
static inline int ip_vs_mhs_register_net(struct pernet_operations *ops)
{
	return register_pernet_subsys(ops);
}

static inline void ip_vs_mhs_unregister_net(struct pernet_operations *ops)
{
	unregister_pernet_subsys(ops);
}

static inline int ip_vs_mhs_net_registered(void)
{
	return 0;
}
#endif

#endif /* _IP_VS_MHS_COMPAT_H */
