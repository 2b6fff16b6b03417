// SPDX-License-Identifier: GPL-2.0
/* IPVS:	Stateless Maglev hashing scheduling module
 *
 * The algorithm with two tables is by Lev Pantiukhin (December 2023).
 *
 * A TCP packet that has no connection goes to the dest of its slot in the
 * lookup table.  When that changes, the slot is unstable for as long as a TCP
 * connection may be idle: a SYN goes to the new dest, the candidate, and gets a
 * connection; so does a packet of an older flow, to the old dest.  After that
 * time older flows have a connection or are over, and the slot is stable with
 * its candidate.
 *
 * Slots are changed under ipvs->service_mutex and by the work, by compare-and-
 * exchange.  No slot names a dest after del_dest(), and the core frees a dest
 * after a grace period only: neither slots nor packets hold references.
 */

#define pr_fmt(fmt) "IPVS: " fmt

#include <linux/module.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/sort.h>
#include <linux/unaligned.h>
#include <linux/workqueue.h>

#include <net/ip_vs.h>

#include "ip_vs_mh.h"

/* One word has a whole slot:
 *
 *	27    24 23         12 11          0
 *	+--------+------------+------------+
 *	| stage  |    old     | candidate  |
 *	+--------+------------+------------+
 *
 * old and candidate are indexes of dest[], 0 is none.  The stage of a stable
 * slot is 0; that of an unstable one grows with each tick, from 1 on.
 */
#define MHS_INDEX		0xfffU
#define MHS_OLD_SHIFT		12
#define MHS_STAGE_SHIFT		24

/* Ticks in the time of a transition, and one more: the first may be short */
#define MHS_TICKS		10

/* Servers of a new service come within this time, from the first one on */
#define MHS_SETTLE		(5 * HZ)

/* Older flows get as many connections, which age: with 320 bytes 2 * 80 MB */
#define MHS_MADE		262144

struct ip_vs_mhs_state {
	struct rcu_head			rcu_head;
	struct delayed_work		work;
	struct netns_ipvs		*ipvs;
	struct ip_vs_mh_share		*share;		/* scratch space */
	u32				shares;		/* its size */
	u32				*scratch;	/* of the fill */
	u32				last;		/* index given last */
	u32				indexed;	/* indexes in use */
	bool				again;		/* indexes are reused */
	bool				missing;	/* a dest has none */
	bool				settled;	/* set by the work */
	unsigned long			settles;	/* when, or 0 */
	atomic_t			made;		/* and not aged */
	u32				size;
	u32				*slot;
	struct ip_vs_dest __rcu		*dest[MHS_INDEX + 1];
};

/* All directors of a service must have the same */
static const siphash_key_t mhs_key = { { 0x6970767364737400ULL,
					 0x6d61676c65760000ULL } };

static u32 mhs_stage(u32 w)
{
	return w >> MHS_STAGE_SHIFT;
}

static u32 mhs_candidate(u32 w)
{
	return w & MHS_INDEX;
}

/* The dest of packets that begin no flow */
static u32 mhs_old(u32 w)
{
	return mhs_stage(w) ? w >> MHS_OLD_SHIFT & MHS_INDEX : mhs_candidate(w);
}

/* The word when the table says @index; @gone is deleted: its flows end */
static u32 mhs_change(u32 w, u32 index, u32 gone)
{
	u32 old = mhs_old(w);

	if (!old || old == index || old == gone)
		return index;
	return index | old << MHS_OLD_SHIFT |
	       (mhs_stage(w) ?: 1) << MHS_STAGE_SHIFT;
}

static u32 mhs_tick(u32 w)
{
	if (mhs_stage(w) > MHS_TICKS)
		return mhs_candidate(w);
	return mhs_stage(w) ? w + (1U << MHS_STAGE_SHIFT) : w;
}

/* The same on directors of either byte order */
static u64 mhs_hash(int af, const union nf_inet_addr *addr, __be16 port)
{
#ifdef CONFIG_IP_VS_IPV6
	if (af == AF_INET6)
		return siphash_3u64(get_unaligned_be64(&addr->ip6[0]),
				    get_unaligned_be64(&addr->ip6[2]),
				    ntohs(port), &mhs_key);
#endif
	return siphash_1u64((u64)ntohl(addr->ip) << 16 | ntohs(port), &mhs_key);
}

/* Idle connections live as long as this */
static unsigned long mhs_tick_time(struct netns_ipvs *ipvs)
{
	struct ip_vs_proto_data *pd = ip_vs_proto_data_get(ipvs, IPPROTO_TCP);
	int time = 15 * 60 * HZ;

	if (pd && pd->timeout_table)
		time = max(pd->timeout_table[IP_VS_TCP_S_ESTABLISHED],
			   pd->timeout_table[IP_VS_TCP_S_FIN_WAIT]);
	return time / MHS_TICKS + 1;
}

static void mhs_work(struct work_struct *work)
{
	struct ip_vs_mhs_state *s = container_of(to_delayed_work(work),
						 struct ip_vs_mhs_state, work);
	bool unstable = false;
	u32 i, w, next;

	/* Pairs with smp_load_acquire() in ip_vs_mhs_select(): packets that
	 * see this see all of the table
	 */
	smp_store_release(&s->settled, true);
	for (i = 0; i < s->size; i++) {
		w = READ_ONCE(s->slot[i]);
		do {
			next = mhs_tick(w);
		} while (next != w && !try_cmpxchg(&s->slot[i], &w, next));
		unstable |= mhs_stage(next);
	}
	/* Changes may go on for ever, but no connection does */
	atomic_sub(atomic_read(&s->made) / (unstable ? MHS_TICKS : 1),
		   &s->made);
	if (unstable)
		queue_delayed_work(system_dfl_long_wq, &s->work,
				   mhs_tick_time(s->ipvs));
}

/* In the order of all directors, however they were added */
static int mhs_compare(const void *a, const void *b)
{
	const struct ip_vs_dest *x = ((const struct ip_vs_mh_share *)a)->dest;
	const struct ip_vs_dest *y = ((const struct ip_vs_mh_share *)b)->dest;

	return memcmp(&x->addr, &y->addr, sizeof(x->addr)) ?:
	       memcmp(&x->port, &y->port, sizeof(x->port)) ?: x->af - y->af;
}

static u32 mhs_index(const struct ip_vs_mhs_state *s,
		     const struct ip_vs_dest *dest)
{
	u32 i;

	for (i = 1; i <= MHS_INDEX; i++)
		if (rcu_access_pointer(s->dest[i]) == dest)
			return i;
	return 0;
}

/* The lookup table for the dests as they are, into the slots.  @gone is the
 * index of a dest that was deleted.  This cannot fail.  Until the service is
 * settled no packet is sent by a slot, so all change at once.
 */
static void mhs_rebuild(struct ip_vs_mhs_state *s, u32 gone)
{
	struct ip_vs_mh_share *share = s->share;
	bool settled, unstable = false;
	u32 i, index, next, w, n = 0;

	/* or it would be while the slots change */
	if (!READ_ONCE(s->settled))
		cancel_delayed_work_sync(&s->work);
	settled = READ_ONCE(s->settled);
	for (i = 1; i <= MHS_INDEX; i++) {
		/* changed under the mutex that we are under */
		struct ip_vs_dest *dest = rcu_dereference_protected(s->dest[i],
								    1);
		int weight = dest ? atomic_read(&dest->weight) : 0;
		u64 hash;

		if (weight <= 0 || i == gone)
			continue;
		hash = mhs_hash(dest->af, &dest->addr, dest->port);
		share[n++] = (struct ip_vs_mh_share){
			.dest = dest,
			.index = i,
			.weight = weight,
			.perm = reciprocal_scale(hash >> 32, s->size),
			.skip = reciprocal_scale(hash, s->size - 1) + 1,
		};
	}
	sort(share, n, sizeof(*share), mhs_compare, NULL);
	memset(s->scratch, 0, array3_size(s->size, 2, sizeof(*s->scratch)));
	ip_vs_mh_fill(share, n, s->scratch, s->scratch + s->size);
	for (i = 0; i < s->size; i++) {
		index = n ? share[s->scratch[i] - 1].index : 0;
		w = READ_ONCE(s->slot[i]);
		do {
			next = settled ? mhs_change(w, index, gone) : index;
		} while (next != w && !try_cmpxchg(&s->slot[i], &w, next));
		unstable |= mhs_stage(next);
	}
	if (unstable)
		queue_delayed_work(system_dfl_long_wq, &s->work,
				   mhs_tick_time(s->ipvs));
	if (settled || !n) {
		s->settles = 0;
		return;
	}
	/* No change puts it off, but that no server is left */
	if (!s->settles)
		s->settles = (jiffies + MHS_SETTLE) | 1;
	queue_delayed_work(system_dfl_long_wq, &s->work,
			   max((long)(s->settles - jiffies), 0L));
}

/* Give @dest an index, and the scratch space room for it */
static int mhs_add(struct ip_vs_mhs_state *s, struct ip_vs_service *svc,
		   struct ip_vs_dest *dest)
{
	u32 i, n = s->indexed + 1;

	if (n > min(MHS_INDEX, s->size)) {
		IP_VS_ERR_RL("mhs: more than %u servers\n", n - 1);
		s->missing = true;
		return -ENOSPC;
	}
	if (n > s->shares) {
		struct ip_vs_mh_share *share;

		n = roundup_pow_of_two(n);
		share = kvrealloc(s->share, array_size(n, sizeof(*share)),
				  GFP_KERNEL);
		s->missing |= !share;
		if (!share)
			return -ENOMEM;
		s->share = share;
		s->shares = n;
	}
	/* Some index is free: there are at least as many as dests */
	i = s->last;
	do {
		if (++i > MHS_INDEX) {
			i = 1;
			s->again = true;
		}
	} while (rcu_access_pointer(s->dest[i]));
	s->last = i;
	/* A packet may still have the slot's word of a deleted dest */
	if (s->again)
		synchronize_rcu();
	rcu_assign_pointer(s->dest[i], dest);
	s->indexed++;
	ip_vs_dest_route_update(svc, dest);
	return 0;
}

/* A change; dests that had no room or memory for an index may get one now */
static int mhs_refresh(struct ip_vs_mhs_state *s, struct ip_vs_service *svc)
{
	bool missing = s->missing;
	struct ip_vs_dest *dest;

	s->missing = false;
	if (missing)
		list_for_each_entry(dest, &svc->destinations, n_list)
			if (!mhs_index(s, dest) && mhs_add(s, svc, dest))
				break;
	mhs_rebuild(s, 0);
	return 0;
}

static void mhs_free(struct rcu_head *head)
{
	struct ip_vs_mhs_state *s = container_of(head, struct ip_vs_mhs_state,
						 rcu_head);

	kvfree(s->share);
	kvfree(s->scratch);
	kvfree(s->slot);
	kvfree(s);
}

static int ip_vs_mhs_init_svc(struct ip_vs_service *svc)
{
	struct ip_vs_mhs_state *s;
	struct ip_vs_dest *dest;
	int ret = -ENOMEM;

	s = kvzalloc_obj(*s);
	if (!s)
		return -ENOMEM;
	INIT_DELAYED_WORK(&s->work, mhs_work);
	s->ipvs = svc->ipvs;
	s->size = ip_vs_mh_tab_size();
	s->slot = kvcalloc(s->size, sizeof(*s->slot), GFP_KERNEL);
	s->scratch = kvmalloc_array(s->size, 2 * sizeof(*s->scratch),
				    GFP_KERNEL);
	if (!s->slot || !s->scratch)
		goto err;
	list_for_each_entry(dest, &svc->destinations, n_list) {
		ret = mhs_add(s, svc, dest);
		if (ret)
			goto err;
	}
	mhs_rebuild(s, 0);
	svc->sched_data = s;
	return 0;

err:
	mhs_free(&s->rcu_head);
	return ret;
}

static void ip_vs_mhs_done_svc(struct ip_vs_service *svc)
{
	struct ip_vs_mhs_state *s = svc->sched_data;

	cancel_delayed_work_sync(&s->work);
	call_rcu(&s->rcu_head, mhs_free);
}

static int ip_vs_mhs_add_dest(struct ip_vs_service *svc,
			      struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_state *s = svc->sched_data;
	int ret = mhs_add(s, svc, dest);

	if (!ret)
		mhs_rebuild(s, 0);
	return ret;
}

static int ip_vs_mhs_del_dest(struct ip_vs_service *svc,
			      struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_state *s = svc->sched_data;
	u32 index = mhs_index(s, dest);

	if (index) {
		mhs_rebuild(s, index);
		RCU_INIT_POINTER(s->dest[index], NULL);
		s->indexed--;
	}
	return s->missing ? mhs_refresh(s, svc) : 0;
}

static int ip_vs_mhs_upd_dest(struct ip_vs_service *svc,
			      struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_state *s = svc->sched_data;

	if (mhs_index(s, dest))
		ip_vs_dest_route_update(svc, dest);
	return mhs_refresh(s, svc);
}

/* The TCP header, unless an ICMP error quotes it: it has the ports only */
static const struct tcphdr *mhs_tcp(const struct sk_buff *skb,
				    struct ip_vs_iphdr *iph, struct tcphdr *buf)
{
	if (iph->protocol != IPPROTO_TCP || ip_vs_iph_icmp(iph))
		return NULL;
	return skb_header_pointer(skb, iph->len, sizeof(*buf), buf);
}

/* The dest of a packet, and its slot, by the client's address and port */
static struct ip_vs_dest *
mhs_dest(struct ip_vs_service *svc, const struct sk_buff *skb,
	 struct ip_vs_iphdr *iph, bool begins, u32 *w)
{
	struct ip_vs_mhs_state *s = svc->sched_data;
	bool inverse = ip_vs_iph_inverse(iph);
	__be16 _ports[2], *ports;
	struct ip_vs_dest *dest;
	u64 hash;

	/* All protocols of IPVS that have ports have them here */
	ports = skb_header_pointer(skb, iph->len, sizeof(_ports), _ports);
	if (!ports)
		return NULL;
	hash = mhs_hash(svc->af, inverse ? &iph->daddr : &iph->saddr,
			ports[inverse]);
	*w = READ_ONCE(s->slot[reciprocal_scale(hash >> 32, s->size)]);
	if (!begins)
		return rcu_dereference(s->dest[mhs_old(*w)]);
	dest = rcu_dereference(s->dest[mhs_candidate(*w)]);
	return dest && dest->flags & IP_VS_DEST_F_OVERLOAD ? NULL : dest;
}

static enum ip_vs_select_verdict
ip_vs_mhs_select(struct ip_vs_service *svc, const struct sk_buff *skb,
		 struct ip_vs_iphdr *iph, struct ip_vs_dest **destp)
{
	struct ip_vs_mhs_state *s = svc->sched_data;
	const struct tcphdr *th;
	struct ip_vs_dest *dest;
	struct tcphdr _th;
	bool begins;
	u32 w;

	th = mhs_tcp(skb, iph, &_th);
	if (!th && !ip_vs_iph_icmp(iph))
		return IP_VS_SEL_AS_EVER;
	begins = th && th->syn;
	/* Another director's flow needs the whole table: it sends again */
	if (!smp_load_acquire(&s->settled))
		return th && !begins ? IP_VS_SEL_DROP : IP_VS_SEL_AS_EVER;
	dest = mhs_dest(svc, skb, iph, begins, &w);
	if (!dest)
		return IP_VS_SEL_AS_EVER;
	*destp = dest;
	/* whatever makes the connection: an older flow may live on */
	if (begins && mhs_stage(w))
		return IP_VS_SEL_CLAIM;
	/* A limit needs counting, and conntrack a connection */
	if (!rcu_access_pointer(dest->cp_route) ||
	    (begins && (READ_ONCE(dest->u_threshold) ||
			ip_vs_conntrack_enabled(svc->ipvs))))
		return IP_VS_SEL_AS_EVER;
	/* A FIN, too, or the last ACK would make a connection that lives long.
	 * Forged packets make these: half of conn_max is for others.
	 */
	if (!mhs_stage(w) || !th || th->rst || atomic_read(&s->made) >=
	    min(MHS_MADE, sysctl_conn_max(svc->ipvs) / 2))
		return IP_VS_SEL_FORWARD;
	atomic_inc(&s->made);
	return IP_VS_SEL_MAKE;
}

/* For what select() leaves: packets that begin, and those without cp_route */
static struct ip_vs_dest *
ip_vs_mhs_schedule(struct ip_vs_service *svc, const struct sk_buff *skb,
		   struct ip_vs_iphdr *iph)
{
	const struct tcphdr *th;
	struct ip_vs_dest *dest;
	struct tcphdr _th;
	u32 w;

	th = mhs_tcp(skb, iph, &_th);
	dest = mhs_dest(svc, skb, iph, !th || th->syn, &w);
	if (!dest)
		ip_vs_scheduler_err(svc, "no destination available");
	return dest;
}

static struct ip_vs_scheduler ip_vs_mhs_scheduler = {
	.name =			"mhs",
	.refcnt =		ATOMIC_INIT(0),
	.module =		THIS_MODULE,
	.n_list	 =		LIST_HEAD_INIT(ip_vs_mhs_scheduler.n_list),
	.init_service =		ip_vs_mhs_init_svc,
	.done_service =		ip_vs_mhs_done_svc,
	.add_dest =		ip_vs_mhs_add_dest,
	.del_dest =		ip_vs_mhs_del_dest,
	.upd_dest =		ip_vs_mhs_upd_dest,
	.select =		ip_vs_mhs_select,
	.schedule =		ip_vs_mhs_schedule,
};

static int __init ip_vs_mhs_init(void)
{
	return register_ip_vs_scheduler(&ip_vs_mhs_scheduler);
}

static void __exit ip_vs_mhs_cleanup(void)
{
	unregister_ip_vs_scheduler(&ip_vs_mhs_scheduler);
	rcu_barrier();
}

module_init(ip_vs_mhs_init);
module_exit(ip_vs_mhs_cleanup);
MODULE_DESCRIPTION("Stateless Maglev hashing ipvs scheduler");
MODULE_LICENSE("GPL");
MODULE_AUTHOR("@AUTHOR@");
