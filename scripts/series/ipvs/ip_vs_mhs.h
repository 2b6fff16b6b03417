/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: types, locks, lifetimes, readers.
 *
 *	ip_vs_mhs_ctl.h		the control path
 *	ip_vs_mhs_pkt.h		the packet path
 *	ip_vs_mhs_decide.h	where a packet goes
 *	ip_vs_mhs_table.h	the slot word
 *
 * Words
 * -----
 *
 *	server	a dest, of a service or deleted
 *	entry	connection entry, struct ip_vs_conn
 *	carrier	the entry of a server by which the core sends packets that have
 *		none (ip_vs_carrier_update())
 *	slot	a place in the lookup table: stable, or unstable in hold or pin
 *
 * Locks, in the order in which they are taken
 * -------------------------------------------
 *
 *	netns_ipvs.service_mutex	held by the core in every callback but
 *					select() and schedule()
 *	mhs_net.lock			list of services, role of the sync daemon
 *	mhs.build_lock			who rebuilds or walks the slots
 *	ip_vs_mhs_scratch.lock		a scratch space: rebuild, walk
 *	mhs.lock			servers and clocks of a service
 *	one of:
 *	mhs.recount_lock		the count of connections
 *	ip_vs_dest.dst_lock		ip_vs_dest_keep()
 *
 *	operation			locks; A > B: B is taken while A is held
 *	------------------------------------------------------------------
 *	select()			RCU; a packet that needs a connection may
 *					take recount_lock, about 20 times a second
 *	schedule()			RCU
 *	init_service			net; mhs
 *	done_service			net; mhs > dst_lock
 *	add_dest, upd_dest, del_dest	mhs > dst_lock
 *	upd_service			mhs
 *	work of a service		build > scratch > mhs; build > mhs > dst_lock
 *	work of a namespace, /proc	net > mhs
 *
 *	done_service() waits for the work of its service, and the exit of a
 *	namespace for the work of that namespace, both without these locks.
 *
 * Who writes what
 * ---------------
 *
 *	slots[]		packets and control, by compare-and-exchange: no packet
 *			sees half a change, control overwrites no packet's mark
 *	servers[]	control, under mhs.lock; packets read under RCU
 *	server.state, addr_only, was_stateless, dirty, svc
 *			control, under mhs.lock, WRITE_ONCE; packets READ_ONCE
 *	phase		control, under mhs.lock; the first packet of a young
 *			service sets WOKEN, both by compare-and-exchange
 *	counters	packets and control, this_cpu_inc
 *	budget		packets that need a connection: made atomically, the
 *			rest under recount_lock; work of the service: recount_at
 *
 * Lifetimes
 * ---------
 *
 *	server	add_dest lists it with an index of its own; del_dest moves it to
 *		mhs.gone and keeps the ip_vs_dest (ip_vs_dest_keep()).  When no
 *		slot names it and hold + pin have passed, or the service ends:
 *		out of servers[], then by RCU its reference to the ip_vs_dest is
 *		put and its index becomes free.  A packet may use the server of
 *		an index that it read in a slot word until it leaves RCU.
 *	service	init_service to done_service, then until the last server's RCU
 *		callback; the core waits for users of sched_data, or frees the
 *		ip_vs_service by RCU.
 *	namespace  struct ip_vs_mhs_net outlives every pernet exit.
 */
#ifndef _IP_VS_MHS_H
#define _IP_VS_MHS_H

#include <linux/bitmap.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <net/ip_vs.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "ip_vs_mhs_decide.h"

/* ipvsadm's flag-3.  Its flag-1 is MHS_SVC_FALLBACK; its flag-2 makes mh hash
 * the port, which mhs always does.
 */
#define MHS_SVC_F_ADDR_ONLY	IP_VS_SVC_F_SCHED3

struct ip_vs_mhs_counters {
	unsigned long		n[MHS_CNT_MAX];
};

/**
 * enum ip_vs_mhs_phase - what is known of a service's set of servers
 * @MHS_SETTLED: the set is complete: a change makes slots unstable
 * @MHS_SETTLING: servers come one by one: the table changes at once, and
 *	packets of older flows are dropped until the table is final
 * @MHS_YOUNG: the set seems complete and no packet has come yet: a change harms
 *	no flow, and unless a server leaves, the service settles again
 * @MHS_WOKEN: a packet has come to a young service; packets treat the service
 *	as settled, and control sets MHS_SETTLED before the next change
 */
enum ip_vs_mhs_phase {
	MHS_SETTLED,
	MHS_SETTLING,
	MHS_YOUNG,
	MHS_WOKEN,
};

struct ip_vs_mhs;

/* A real server */
struct ip_vs_mhs_server {
	struct ip_vs_dest	*dest;		/* holds a reference */
	u32			state;		/* MHS_SRV_* */
	u16			idx;		/* in slots[] and servers[] */
	int			weight;		/* at the last refresh */
	u64			id;		/* keyed hash of its address */
	unsigned long		gone_until;	/* jiffies, after del_dest */
	bool			named;		/* by a slot in the last walk */
	struct list_head	list;		/* in mhs.listed or mhs.gone */
	struct ip_vs_mhs	*mhs;		/* holds a reference */
	struct rcu_head		rcu;
};

struct ip_vs_mhs_servers {
	struct rcu_head		rcu;
	u32			max;
	struct ip_vs_mhs_server __rcu *s[];
};

/* What the last walk found: slots by phase, and the first and the last stage of
 * unstable slots
 */
struct ip_vs_mhs_census {
	u32			hold;
	u32			pin;
	u32			stage_min;
	u32			stage_max;
};

/* How many connections packets may make */
struct ip_vs_mhs_budget {
	atomic_t		made;		/* since the last count */
	int			left;		/* at the last count */
	unsigned int		of;		/* limit at the last count */
	unsigned long		recount_at;	/* jiffies, at the earliest */
};

/* A virtual service */
struct ip_vs_mhs {
	/* read by every packet */
	struct netns_ipvs	*ipvs;
	struct ip_vs_mhs_net	*net;
	u16			af;
	u16			protocol;
	u32			fwmark;
	u32			phase;		/* enum ip_vs_mhs_phase */
	bool			addr_only;	/* client hash without port */
	bool			was_stateless;	/* flows may lack a connection */
	u32			size;		/* of slots[] */
	u32			*slots;		/* the lookup table */
	struct ip_vs_mhs_servers __rcu *servers;	/* by index */
	struct ip_vs_service	*svc;		/* NULL before first server */
	struct ip_vs_mhs_counters __percpu *cnt;
#ifdef MHS_SERIES_XDP
	u32			local_generation; /* see lane_is_local() */
#endif

#ifdef MHS_SERIES_QUIC
	/* written by packets that need connections; [1] is for QUIC */
	struct ip_vs_mhs_budget	budget[2] ____cacheline_aligned_in_smp;
#else
	/* written by packets that need connections */
	struct ip_vs_mhs_budget	budget[1] ____cacheline_aligned_in_smp;
#endif
	spinlock_t		recount_lock;	/* guards budget: one counts */

	/* whoever rebuilds or walks; no callback */
	struct mutex		build_lock ____cacheline_aligned_in_smp;
	/* control; lock guards what follows, unless a comment says otherwise */
	struct mutex		lock;
	union nf_inet_addr	addr;		/* of the service */
	__be16			port;
	struct list_head	net_list;	/* mhs_net.list, its lock */
	struct list_head	listed;		/* not deleted, by address */
	struct list_head	gone;		/* deleted, perhaps in use */
	u32			n_listed;
	u32			n_empty;	/* got no slot in a rebuild */
	/* indexes taken; atomic, because RCU callbacks clear bits */
	DECLARE_BITMAP(idx_map, MHS_IDX_MAX + 1);
	struct ip_vs_mhs_census	census;
	bool			dirty;		/* a rebuild is due */
	bool			use_all;	/* first, by the rebuild */
	u32			changes;	/* of servers, so far */
	unsigned long		dirty_since;	/* jiffies, if dirty */
	bool			missing;	/* a server: the work retries */
	bool			all_tracked;	/* since the last track tick */
	u8			warned;		/* MHS_WARN_* */
	u16			retry;		/* jiffies, doubles; 0: none */
	u32			entry_ms;	/* longest timeout seen */
	unsigned long		retry_at;	/* jiffies */
	unsigned long		changed;	/* jiffies, servers */
	unsigned long		gap;		/* longest between changes */
	unsigned long		settle_by;	/* jiffies, at the latest */
	bool			stateful;	/* sysctl stateless was 0 */
	unsigned long		stateful_since;	/* packets get entries */
	unsigned long		refused;	/* entries, at the last look */
	unsigned long		build_at;	/* jiffies, not before */
	u32			build_us;	/* length of the last rebuild */
	unsigned long		hold_tick;	/* jiffies of the last tick */
	unsigned long		pin_tick;	/* the same */
	unsigned long		used_tick;	/* jiffies of the last look */
	unsigned long		used_period;	/* between looks, jiffies */
	u8			used_looks;	/* in a row with traffic */
	unsigned long		requests;	/* counted at the last look */
	unsigned long		track_tick;	/* jiffies of the last tick */
	struct delayed_work	work;
	refcount_t		refcnt;		/* see above, atomic */
	struct rcu_head		rcu;
};

#define MHS_WARN_PERSISTENT	0x1
#define MHS_WARN_EMPTY		0x2
#define MHS_WARN_FLAGS		0x4
#define MHS_WARN_FULL		0x8

/* A network namespace */
struct ip_vs_mhs_net {
	struct net		*net;
	/* limits and times */
	unsigned int		hold_ms;
	unsigned int		pin_ms;		/* 0: the core's timeouts */
	unsigned int		max_entries;	/* of a service */
#ifdef MHS_SERIES_QUIC
	unsigned int		max_quic_entries;
#endif
	unsigned int		stateless;
#ifdef MHS_SERIES_PROC
	struct ctl_table	*table;		/* sysctls of the above */
	struct ctl_table_header	*header;
#endif
#ifdef MHS_SERIES_XDP
	struct ip_vs_mhs_lane_stats __percpu *lane; /* of XDP programs */
#endif
	struct mutex		lock;		/* guards the rest */
	struct list_head	list;		/* of services */
	unsigned long		changed;	/* jiffies, any server; READ_ONCE */
	bool			backup;		/* sync daemon; READ_ONCE */
	bool			was_stateful;
	struct delayed_work	work;
};

extern unsigned int ip_vs_mhs_net_id;

#ifdef MHS_SERIES_XDP
#ifdef CONFIG_IP_VS_MHS_XDP
int ip_vs_mhs_xdp_register(void);
#else
static inline int ip_vs_mhs_xdp_register(void)
{
	return 0;
}
#endif

#endif
static inline struct ip_vs_mhs_net *ip_vs_mhs_net(const struct net *net)
{
	return net_generic(net, ip_vs_mhs_net_id);
}

void ip_vs_mhs_svc_warn_once(struct ip_vs_mhs *mhs, u8 bit, const char *what);

/* The server of an index read in a slot word, NULL for MHS_IDX_NONE.
 * Called under RCU, after an acquire read of the word.  The acquire pairs with
 * the full barrier of the compare-and-exchange that wrote the word: control
 * had published an array with room for the index before.
 */
static inline struct ip_vs_mhs_server *
ip_vs_mhs_server(const struct ip_vs_mhs *mhs, u32 idx)
{
	const struct ip_vs_mhs_servers *servers = rcu_dereference(mhs->servers);

	return idx ? rcu_dereference(servers->s[idx]) : NULL;
}

/* Flags of the service; 0 before the first server */
static inline unsigned int ip_vs_mhs_flags(const struct ip_vs_mhs *mhs)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);

	return svc ? READ_ONCE(svc->flags) : 0;
}

/* Are the flows of a deleted server cut at once? */
static inline bool ip_vs_mhs_cutting(struct netns_ipvs *ipvs)
{
	/* a sysctl: any value that it had will do */
	return data_race(sysctl_expire_nodest_conn(ipvs));
}

/* Has the namespace connections? */
static inline bool ip_vs_mhs_has_entries(const struct ip_vs_mhs *mhs)
{
	return atomic_read(&mhs->ipvs->conn_count);
}

/* Number of connections of a server */
static inline u32 ip_vs_mhs_dest_entries(const struct ip_vs_dest *dest)
{
	return max(atomic_read(&dest->totalconns), 0);
}

static inline void ip_vs_mhs_count(const struct ip_vs_mhs *mhs,
				   enum ip_vs_mhs_cnt i)
{
	this_cpu_inc(mhs->cnt->n[i]);
}

/* Count a verdict that is carried out */
static inline void ip_vs_mhs_count_verdict(const struct ip_vs_mhs *mhs, u32 v)
{
	enum ip_vs_mhs_cnt count = ip_vs_mhs_verdict_count(v);

	if (likely(count != MHS_CNT_MAX))
		ip_vs_mhs_count(mhs, count);
}

static inline u32 ip_vs_mhs_slot_read(const u32 *slot)
{
	/* Pairs with the compare-and-exchange in slots_walk(): a reader that
	 * sees an index sees its server, see ip_vs_mhs_server().
	 */
	return smp_load_acquire(slot);
}

/* Set the current "used" mark in a stable slot before the packet is sent: a
 * rebuild changes unused slots at once.  Returns the word that decides where
 * the packet goes: control may have changed the word since @w was read.
 */
static inline u32 ip_vs_mhs_slot_use(u32 *slot, u32 w)
{
	while (ip_vs_mhs_slot_needs_use(w)) {
		if (try_cmpxchg(slot, &w, w | MHS_USED_CUR))
			break;
		/* a failed try_cmpxchg() is no acquire */
		w = ip_vs_mhs_slot_read(slot);
	}
	return w;
}

/* Set the current "tracked" mark before a connection is made: in a slot without
 * the mark no packet looks for its connection.
 */
static inline void ip_vs_mhs_slot_track(u32 *slot)
{
	u32 w = READ_ONCE(*slot);

	while (!(w & MHS_TRACK_CUR) &&
	       !try_cmpxchg(slot, &w, w | MHS_TRACK_CUR))
		;
}

#endif /* _IP_VS_MHS_H */
