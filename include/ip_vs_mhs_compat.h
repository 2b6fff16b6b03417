/* SPDX-License-Identifier: GPL-2.0-only */
/* All differences between kernel versions.
 *
 * What the preprocessor cannot tell has a MHS_HAVE_* flag, which Kbuild in
 * net/netfilter/ipvs derives from names in the kernel's headers, not from the
 * version: older kernels get backports.
 */
#ifndef _IP_VS_MHS_COMPAT_H
#define _IP_VS_MHS_COMPAT_H

#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/completion.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>
#include <net/inet_sock.h>
#include <net/ip_vs.h>
#include <net/net_namespace.h>

/* hex2bin() moved from kernel.h to hex.h */
#ifdef MHS_HAVE_HEX_H
#include <linux/hex.h>
#endif

/* skb_gso_validate_network_len() moved from skbuff.h to gso.h */
#ifdef MHS_HAVE_GSO_H
#include <net/gso.h>
#endif

/* One block of AES-128, where the kernel has its library */
#if IS_REACHABLE(CONFIG_CRYPTO_LIB_AES)
#include <crypto/aes.h>
#ifdef MHS_HAVE_AES_KEY
#define MHS_AES_KEY	struct aes_key
#define mhs_aes_prepare	aes_preparekey
#else
#define MHS_AES_KEY	struct crypto_aes_ctx
#define mhs_aes_prepare	aes_expandkey
#endif
#else
#define MHS_AES_KEY	struct { }
#define mhs_aes_prepare(KEY, RAW, LEN)	(-EOPNOTSUPP)
#define aes_decrypt(KEY, TO, FROM)	do { } while (0)
#endif

/* What a handler of a sysctl gets */
#ifdef MHS_HAVE_CONST_CTL_TABLE
#define MHS_CTL_TABLE		const struct ctl_table
#else
#define MHS_CTL_TABLE		struct ctl_table
#endif

/* Zeroed memory of the size of P */
#ifndef kzalloc_obj
#define kzalloc_obj(P, GFP)	kzalloc(sizeof(P), GFP)
#define kvzalloc_obj(P, GFP)	kvzalloc(sizeof(P), GFP)
#endif

/* A variable that the compiler does not clear (CONFIG_INIT_STACK_ALL_ZERO) */
#ifndef __uninitialized
#if __has_attribute(__uninitialized__)
#define __uninitialized		__attribute__((__uninitialized__))
#else
#define __uninitialized
#endif
#endif

/* Counters of older cores are u64, written between the same calls for syncp */
#ifndef MHS_HAVE_STATS_T
#define u64_stats_inc(P)	((*(P))++)
#define u64_stats_add(P, N)	(*(P) += (N))
#define u64_stats_read(P)	READ_ONCE(*(P))
#endif

/* Newer kernels may delay the callback of call_rcu() for seconds */
#ifndef MHS_HAVE_CALL_RCU_HURRY
#define call_rcu_hurry		call_rcu
#endif

/* Is the server in the service's list?  The bit moved from flags, which the
 * overload bit shares, to cflags.
 */
static inline bool mhs_dest_available(const struct ip_vs_dest *dest)
{
#ifdef MHS_HAVE_DEST_CFLAGS
	return READ_ONCE(dest->cflags) & IP_VS_DEST_CF_AVAILABLE;
#else
	return READ_ONCE(dest->flags) & IP_VS_DEST_F_AVAILABLE;
#endif
}

/* Number of live connection entries of a server */
static inline u32 mhs_dest_entries(struct ip_vs_dest *dest)
{
#ifdef MHS_HAVE_TOTALCONNS
	int n = atomic_read(&dest->totalconns);
#else
	int n = atomic_read(&dest->activeconns) +
		atomic_read(&dest->inactconns);
#endif

	return n > 0 ? n : 0;
}

/* The namespace's statistics of this CPU */
static inline struct ip_vs_cpu_stats *mhs_total_stats(struct netns_ipvs *ipvs)
{
#ifdef MHS_HAVE_TOT_STATS_PTR
	return this_cpu_ptr(ipvs->tot_stats->s.cpustats);
#else
	return this_cpu_ptr(ipvs->tot_stats.cpustats);
#endif
}

/* Update the state of entry @cp by a request, as the core does */
static inline void
mhs_set_state(struct ip_vs_conn *cp, const struct sk_buff *skb,
	      struct ip_vs_proto_data *pd, unsigned int iph_len)
{
#ifdef MHS_HAVE_STATE_IPH_LEN
	pd->pp->state_transition(cp, IP_VS_DIR_INPUT, skb, pd, iph_len);
#else
	pd->pp->state_transition(cp, IP_VS_DIR_INPUT, skb, pd);
#endif
}

/* Flags of a socket were bit fields: NODEFRAG is the one that is asked */
#ifndef inet_test_bit
#define inet_test_bit(BIT, SK)	(inet_sk(SK)->nodefrag)
#endif

/* Register @n entries; a kernel without _sz reads up to the end marker */
#ifdef register_net_sysctl
#define mhs_register_sysctl	register_net_sysctl_sz
#else
#define mhs_register_sysctl(NET, PATH, TABLE, N)			\
	register_net_sysctl(NET, PATH, TABLE)
#endif

#ifdef MHS_HAVE_KFUNCS
#ifndef __bpf_kfunc
#define __bpf_kfunc	__used
#endif
/* In older kernels Kbuild sets the options that these macros set in newer ones */
#ifndef __bpf_kfunc_start_defs
#define __bpf_kfunc_start_defs()
#define __bpf_kfunc_end_defs()
#endif
#ifndef BTF_KFUNCS_START
#define BTF_KFUNCS_START	BTF_SET8_START
#define BTF_KFUNCS_END		BTF_SET8_END
#endif

/* Has the module BTF?  Whether the kernel accepts the BTF is not known here. */
static inline bool mhs_has_btf(const struct module *module)
{
#if IS_ENABLED(CONFIG_DEBUG_INFO_BTF_MODULES)
	return module->btf_data_size;
#else
	return false;
#endif
}
#endif

/* Does the device have an XDP program in native mode? */
static inline bool mhs_has_xdp(const struct net_device *dev)
{
	return READ_ONCE(dev->xdp_state[XDP_MODE_DRV].prog) ||
	       READ_ONCE(dev->xdp_state[XDP_MODE_DRV].link);
}

/* Does the device send frames that XDP programs redirect?  Older kernels do not
 * tell, and most of their drivers do so only with an XDP program of their own.
 */
static inline bool mhs_xdp_xmits(const struct net_device *dev)
{
#ifdef MHS_HAVE_XDP_FEATURES
	return READ_ONCE(dev->xdp_features) & NETDEV_XDP_ACT_NDO_XMIT;
#else
	return dev->netdev_ops->ndo_xdp_xmit && mhs_has_xdp(dev);
#endif
}

#ifndef MHS_HAVE_SERVICE_MUTEX
/* Only one .c file may use the next functions: mhs_pernet is static, so
 * each file that includes this header has its own copy.
 *
 * A core with one service mutex for all namespaces holds the mutex while it
 * loads a scheduler's module.  register_pernet_subsys() in module init would
 * wait for pernet_ops_rwsem, which the exit of a namespace holds while it waits
 * for the service mutex: a deadlock.  So a work item registers, module init
 * waits 10 seconds at most, and services are refused until the item is done.
 */
static struct {
	struct work_struct work;
	struct completion done;
	struct pernet_operations *ops;
	int err;
} mhs_pernet;

static inline void mhs_pernet_work(struct work_struct *work)
{
	int err = register_pernet_subsys(mhs_pernet.ops);

	if (err)
		pr_err("cannot register with network namespaces: error %d, so no service can use mhs: load the module again\n",
		       err);
	/* Pairs with the acquire in mhs_net_registered(): a reader of 0
	 * sees what the registration wrote
	 */
	smp_store_release(&mhs_pernet.err, err);
	complete(&mhs_pernet.done);
}

static inline int mhs_register_net(struct pernet_operations *ops)
{
	mhs_pernet.ops = ops;
	mhs_pernet.err = -EAGAIN;
	init_completion(&mhs_pernet.done);
	INIT_WORK(&mhs_pernet.work, mhs_pernet_work);
	queue_work(system_unbound_wq, &mhs_pernet.work);
	if (wait_for_completion_timeout(&mhs_pernet.done, 10 * HZ)) {
		/* wait until the work item has left the module's code */
		flush_work(&mhs_pernet.work);
		return mhs_pernet.err;
	}
	pr_warn("a network namespace is being deleted: services with mhs are refused until the deletion is done\n");
	return 0;
}

/* flush_work() cannot deadlock at module exit: the core loads no module that is
 * present.  After a failed init the work item may still wait only if the core
 * has a scheduler mhs already: then the core does not load this module.
 */
static inline void mhs_unregister_net(struct pernet_operations *ops)
{
	flush_work(&mhs_pernet.work);
	if (!mhs_pernet.err)
		unregister_pernet_subsys(ops);
}

static inline int mhs_net_registered(void)
{
	/* Pairs with the release in mhs_pernet_work() */
	return smp_load_acquire(&mhs_pernet.err);
}
#else
#define mhs_register_net		register_pernet_subsys
#define mhs_unregister_net	unregister_pernet_subsys
#define mhs_net_registered()	0
#endif

/* A packet that is forwarded has no time of reception */
#ifdef MHS_HAVE_CLEAR_TSTAMP
#define mhs_clear_tstamp	skb_clear_tstamp
#else
#define mhs_clear_tstamp(SKB)	((SKB)->tstamp = 0)
#endif

#endif /* _IP_VS_MHS_COMPAT_H */
