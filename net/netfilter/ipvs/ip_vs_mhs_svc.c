// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the services of a namespace */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/seq_file.h>

#include "ip_vs_mhs.h"

unsigned int mhs_svc_net_id __read_mostly;

/* Let packets find the service, which is attached */
void mhs_svc_publish(struct mhs *mhs)
{
	u32 key = mhs->fwmark ? mhs->fwmark :
		  mhs_svc_bucket(mhs->af, &mhs->addr, mhs->port);

	mutex_lock(&mhs->mn->lock);
	hash_add_rcu(mhs->mn->by_addr, &mhs->node, key);
	if (mhs->fwmark)
		hlist_add_head_rcu(&mhs->fwmark_node, &mhs->mn->by_fwmark);
	mutex_unlock(&mhs->mn->lock);
}

void mhs_svc_endpoint(struct seq_file *seq, u16 af,
		      const union nf_inet_addr *addr, __be16 port)
{
	seq_printf(seq, af == AF_INET6 ? "[%pI6c]:%u" : "%pI4:%u", addr,
		   ntohs(port));
}

void mhs_svc_warn_once(struct mhs *mhs, u8 bit, const char *what)
{
	static DEFINE_RATELIMIT_STATE(limit, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);
	char name[64];

	lockdep_assert_held(&mhs->lock);
	/* A warning that the limit suppresses comes at the next call */
	if (mhs->warned & bit || !__ratelimit(&limit))
		return;
	mhs->warned |= bit;
	if (mhs->fwmark)
		snprintf(name, sizeof(name), "FWM %u", mhs->fwmark);
	else
		snprintf(name, sizeof(name), mhs->af == AF_INET6 ?
			 "[%pI6c]:%u" : "%pI4:%u", &mhs->addr,
			 ntohs(mhs->port));
	pr_warn("%s: %s\n", name, what);
}

/* Add up counters of a service over all CPUs; @which: mask of enum mhs_cnt */
unsigned long mhs_svc_counted(const struct mhs *mhs, unsigned long which)
{
	unsigned long n = 0;
	int cpu, i;

	for_each_possible_cpu(cpu)
		for (i = 0; i < MHS_CNT_MAX; i++)
			if (which & BIT(i))
				n += READ_ONCE(per_cpu_ptr(mhs->cnt, cpu)->n[i]);
	return n;
}

/* Walk the services of a namespace: the one after @prev, whose reference is put; @pos
 * services come before it, if @prev is NULL or has gone.  Returns it with a reference,
 * or NULL.  Takes net.lock, which is free while the caller has a service.
 */
struct mhs *mhs_svc_next(struct mhs_net *mn, struct mhs *prev, loff_t pos)
{
	struct list_head *at;
	struct mhs *mhs;

	mutex_lock(&mn->lock);
	if (prev && !list_empty(&prev->net_list)) {
		at = prev->net_list.next;
	} else {
		/* Without @prev the next one comes one earlier */
		if (prev && pos)
			pos--;
		for (at = mn->list.next; at != &mn->list && pos; pos--)
			at = at->next;
	}
	mhs = at != &mn->list ? list_entry(at, struct mhs, net_list) : NULL;
	if (mhs)
		refcount_inc(&mhs->refcnt);
	mutex_unlock(&mn->lock);
	if (prev)
		mhs_svc_put(prev);
	return mhs;
}

/* Drop a reference: "The life of a service" in ip_vs_mhs.h says who has one */
void mhs_svc_put(struct mhs *mhs)
{
	if (!refcount_dec_and_test(&mhs->refcnt))
		return;
	free_percpu(mhs->cnt);
	kvfree(mhs->slots);
	/* The last reference is gone: no reader and no writer is left */
	kvfree(rcu_dereference_raw(mhs->servers));
	kfree(mhs);
}
