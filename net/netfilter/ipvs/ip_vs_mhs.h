/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: what its files share.
 *
 *	ip_vs_mhs_ctl.h		the files of the control path, from the top down
 *	ip_vs_mhs_pkt.h		those of the packet path
 *	ip_vs_mhs_decide.h	where does a packet go?
 *	ip_vs_mhs_table.h	the slot word
 *
 * Locks, in the order in which they are taken
 * -------------------------------------------
 *
 *	the core's service mutex	held in every scheduler callback but
 *					schedule(); global up to 6.12, one a
 *					namespace in 7.2: two namespaces may
 *					be in our callbacks at once
 *	mhs_net.lock			services and hooks of a namespace
 *	mhs.lock			servers, slots and clocks of a service
 *	ip_vs_mhs_scratch.lock		one of two scratch spaces, a rebuild
 *	mhs_net.forward_lock		registration of the FORWARD hooks
 *	ip_vs_mhs_hash.lock		writers of the table of services
 *
 *	operation			locks
 *	---------------------------------------------------------------
 *	packet, schedule()		none (RCU); an entry to be made may wait
 *					for recount_lock, 20 times a second
 *	init_service, done_service	net.lock, in it forward; then mhs.lock, in
 *					it forward; then hash
 *	add_dest, upd_dest, del_dest	mhs.lock; in it forward or scratch
 *	work of a service		the same
 *	work of a namespace		net.lock, mhs.lock
 *	read of /proc			net.lock, mhs.lock
 *
 *	done_service() and the exit of a namespace wait for works, so they
 *	hold no lock then that the work takes.
 *
 * Who writes what
 * ---------------
 *
 *	slots[]		packets and control, both by compare-and-exchange
 *			only, so a packet never sees half a change and control
 *			never overrides what a packet has just written
 *	servers[]	control, under mhs.lock; packets read under RCU; so is
 *			by_dest
 *	server.carrier	control, under mhs.lock; packets read under RCU; so is
 *			server.via
 *	server.state	control, under mhs.lock, WRITE_ONCE; packets READ_ONCE
 *	counters	the packet's own CPU
 *	budget		packets that are about to make an entry
 *	phase		control, under mhs.lock; the first packet of a young
 *			service: both by compare-and-exchange, so either the
 *			change or the packet is first
 *
 * The life of a server
 * --------------------
 *
 *	add_dest	-> LISTED, in mhs.servers, index taken
 *	del_dest	-> GONE, in mhs.gone: slots may name it as old, entries
 *			   may lead to it; it gets no new flow
 *	add_dest again	-> LISTED, same index: it is the same server
 *	no slot names it, and its time (hold + pin) is over or its flows are
 *	to be cut	-> out of servers[], by_dest and pairs, call_rcu():
 *			   the carrier and the server's reference to the
 *			   ip_vs_dest are put, and only then the index may be
 *			   taken again
 *
 *	A packet that reads an index in a slot word may use servers[index]
 *	until it leaves its RCU section: the index goes out of every word
 *	first, out of servers[] second and is free a grace period later.
 *
 * The life of a carrier
 * ---------------------
 *
 *	An unhashed struct ip_vs_conn with one reference, ours.  It freezes
 *	the forwarding method and the conntrack flag, so a change of either
 *	makes a new one and the old one is put by call_rcu().  It holds its
 *	ip_vs_dest, and netns_ipvs.conn_count counts it: the exit of a
 *	namespace waits for it, hence it is released by RCU alone, never by a
 *	timer or work that somebody may have cancelled.
 *
 * The life of a service
 * ---------------------
 *
 *	init_service	publishes it in the namespace's hash table, settling,
 *			without the core's ip_vs_service: where creation fails
 *			later, the core frees that one with no grace period
 *	first add_dest	mhs.svc is set: packets may use it from here on; before
 *			that they are the core's
 *	phases		see enum ip_vs_mhs_phase
 *	done_service	out of the hash table, hooks down with the last one,
 *			work cancelled, servers released by call_rcu()
 *	last reference	each server holds one (its RCU callback frees its
 *			index) and so does the service until a grace period
 *			after done_service: freed when all are gone
 *
 *	The per-namespace struct is memory of the namespace itself: it stays
 *	until every exit has run, so packets, whose hooks carry it, and
 *	done_service() may use it although our own exit runs before the
 *	core's.  Its table of services comes with the first service, leaves its
 *	struct with the last one, and is freed with the last reference to a
 *	service: each holds it.
 */
#ifndef _IP_VS_MHS_H
#define _IP_VS_MHS_H

#include <linux/bitmap.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/netfilter.h>
#include <linux/refcount.h>
#include <linux/rhashtable-types.h>
#include <linux/siphash.h>
#include <linux/workqueue.h>
#include <net/netns/generic.h>

#include "ip_vs_mhs_compat.h"
#include "ip_vs_mhs_decide.h"

/* flag-3 of ipvsadm; flag-1 is MHS_SVC_FALLBACK; flag-2, port hashing, is what
 * mhs does
 */
#define MHS_SVC_F_ADDR_ONLY	IP_VS_SVC_F_SCHED3

struct ip_vs_mhs_counters {
	unsigned long		n[MHS_CNT_MAX];
};

/**
 * enum ip_vs_mhs_phase - what is known of a service's set of servers
 * @MHS_SETTLED: the set is complete: a change opens a transition
 * @MHS_SETTLING: servers come one by one: the table changes at once and packets
 *	of older flows wait for the final one
 * @MHS_YOUNG: the set is complete as far as known, and no packet has come yet: a
 *	change harms no flow
 * @MHS_WOKEN: a packet has come to a young service; packets go as in a settled
 *	one, which control makes of it before the next change
 */
enum ip_vs_mhs_phase {
	MHS_SETTLED,
	MHS_SETTLING,
	MHS_YOUNG,
	MHS_WOKEN,
};

struct ip_vs_mhs;

/**
 * struct ip_vs_mhs_pair - where a masquerading server is, for its replies
 * @mn: the namespace
 * @addr: the server's address
 * @port: its port
 * @af: its address family
 * @protocol: of the service
 * @zero: stands where padding would: every byte is compared
 */
struct ip_vs_mhs_pair {
	const struct ip_vs_mhs_net *mn;
	union nf_inet_addr	addr;
	__be16			port;
	u8			af;
	u8			protocol;
	u32			zero;
};

/**
 * struct ip_vs_mhs_server - a real server of one service
 * @carrier: sends packets without an entry; NULL if all flows have one
 * @via: sends ICMP errors to a masquerading server as they are
 * @node: in mhs.by_dest
 * @pair_node: in the table of pairs, if it owns its pair
 * @pair: its pair
 * @owns_pair: it does
 * @keeps_entries: masquerading, its flows have entries for good
 * @dest: the core's server, with a reference of ours
 * @state: MHS_SRV_*
 * @idx: its index in slot words and in servers[]
 * @weight: as the last table knows it
 * @id: keyed hash of address and port, its place in the permutation
 * @gone_until: jiffies, when a deleted server may be forgotten
 * @named: a slot named the deleted server in the last walk
 * @list: in mhs.servers, sorted by address, or in mhs.gone
 * @mhs: its service, with a reference
 * @rcu: for the release
 */
struct ip_vs_mhs_server {
	struct ip_vs_conn __rcu	*carrier;
	struct ip_vs_conn __rcu	*via;
	struct ip_vs_dest	*dest;
	struct hlist_node	node;
	struct rhash_head	pair_node;
	struct ip_vs_mhs_pair	pair;
	u32			state;
	u16			idx;

	bool			owns_pair;
	bool			keeps_entries;
	int			weight;
	u64			id;
	unsigned long		gone_until;
	bool			named;
	struct list_head	list;
	struct ip_vs_mhs	*mhs;
	struct rcu_head		rcu;
};

/* There may be thousands of servers, and packets ask */
#define MHS_DEST_BITS		8

struct ip_vs_mhs_servers {
	struct rcu_head		rcu;
	u32			max;
	struct ip_vs_mhs_server __rcu *s[];
};

/* Slots by phase, and the first and the last stage that unstable ones are in,
 * as the last walk found them
 */
struct ip_vs_mhs_census {
	u32			hold;
	u32			pin;
	u32			tracked;
	u32			stage_min;
	u32			stage_max;
};

/* How many entries packets may make */
struct ip_vs_mhs_budget {
	atomic_t		made;		/* since the last count */
	int			left;		/* at that time */
	unsigned int		of;		/* the limit then */
	unsigned long		recount_at;	/* jiffies, at the earliest */
};

/**
 * struct ip_vs_mhs - a virtual service
 * @node: in the hash table of services
 * @ipvs: its namespace
 * @addr: copy of the key, its virtual address
 * @fwmark: the same, its firewall mark or 0
 * @af: the same, its address family
 * @protocol: the same
 * @port: the same
 * @phase: enum ip_vs_mhs_phase
 * @addr_only: hash without the port, latched when the service has settled
 * @was_stateless: flows without an entry may exist
 * @size: number of slots
 * @slots: the lookup table
 * @servers: by index
 * @svc: the core's service, NULL before the first server
 * @cnt: per-CPU counters
 * @budget: of entries for flows, and for those of QUIC
 * @recount_lock: one CPU counts
 * @lock: see the table above; guards all that follows
 * @net: its namespace
 * @hash: the hash tables of that, with a reference
 * @net_list: in mhs_net.list
 * @listed: servers in the core's list, sorted by address
 * @gone: deleted servers that a slot or an entry may still name
 * @n_listed: number of servers in @listed
 * @n_empty: servers of the last table left without a slot
 * @idx_map: indexes taken; cleared in RCU callbacks, hence atomic
 * @census: slots by phase
 * @dirty: the servers have changed since the last rebuild
 * @missing: a server or carrier could not be made, or may not fit; try again
 * @retry: jiffies to that, longer each time; 0 before the first
 * @retry_at: jiffies of that
 * @hashed: in the hash table of services
 * @all_tracked: every slot was marked tracked since the last such tick
 * @warned: MHS_WARN_* said once
 * @entry_ms: longest life of an idle entry seen so far
 * @changed: jiffies of the last change of the set
 * @gap: the longest time in jiffies between two changes, while it settles
 * @settle_by: jiffies, when settling ends at the latest
 * @stateful: net.ipv4.vs.mhs.stateless was 0 in the last look
 * @stateful_since: jiffies since when no flow of that time has lacked an entry
 * @refused: entries that could not be made, at the last look
 * @built: jiffies when the last rebuild ended
 * @build_us: what it took
 * @hold_tick: jiffies of the last tick of the hold clock; same for the others
 * @pin_tick: of the pin clock
 * @used_tick: of the looks at the used marks
 * @used_period: jiffies from one to the next, at the last of them
 * @used_looks: those in a row with traffic since the marks aged
 * @requests: packets from clients at the last look
 * @track_tick: of the tracked marks
 * @work: rebuilds, ticks, second tries
 * @refcnt: see above
 * @rcu: for the release
 * @by_dest: servers by the core's struct; packets read under RCU
 */
struct ip_vs_mhs {
	/* read by every packet */
	struct hlist_node	node;
	struct netns_ipvs	*ipvs;
	union nf_inet_addr	addr;
	u32			fwmark;
	u16			af;
	u16			protocol;
	__be16			port;
	u32			phase;
	bool			addr_only;
	bool			was_stateless;
	u32			size;
	u32			*slots;
	struct ip_vs_mhs_servers __rcu *servers;
	struct ip_vs_service	*svc;
	struct ip_vs_mhs_counters __percpu *cnt;

	/* written by packets that make entries */
	struct ip_vs_mhs_budget	budget[2] ____cacheline_aligned_in_smp;
	spinlock_t		recount_lock;	/* one CPU counts */

	/* control */
	struct mutex		lock ____cacheline_aligned_in_smp;
	struct ip_vs_mhs_net	*net;
	struct ip_vs_mhs_hash	*hash;
	struct list_head	net_list;
	struct list_head	listed;
	struct list_head	gone;
	u32			n_listed;
	u32			n_empty;
	DECLARE_BITMAP(idx_map, MHS_IDX_MAX + 1);
	struct ip_vs_mhs_census	census;
	bool			dirty;
	bool			missing;
	bool			hashed;
	bool			all_tracked;
	u8			warned;
	u16			retry;
	u32			entry_ms;
	unsigned long		retry_at;
	unsigned long		changed;
	unsigned long		gap;
	unsigned long		settle_by;
	bool			stateful;
	unsigned long		stateful_since;
	unsigned long		refused;
	unsigned long		built;
	u32			build_us;
	unsigned long		hold_tick;
	unsigned long		pin_tick;
	unsigned long		used_tick;
	unsigned long		used_period;
	u8			used_looks;
	unsigned long		requests;
	unsigned long		track_tick;
	struct delayed_work	work;
	refcount_t		refcnt;
	struct rcu_head		rcu;
	DECLARE_HASHTABLE(by_dest, MHS_DEST_BITS);
};

#define MHS_WARN_PERSISTENT	0x1
#define MHS_WARN_EMPTY		0x2
#define MHS_WARN_FLAGS		0x4
#define MHS_WARN_FULL		0x8

/* 1,024 chains: 5,000 services make five to a chain */
#define MHS_HASH_BITS		10

/**
 * struct ip_vs_mhs_hash - what packets of a network namespace look up
 * @services: by address and port, or by firewall mark
 * @lock: for writers
 * @refcnt: services that hold it
 */
struct ip_vs_mhs_hash {
	DECLARE_HASHTABLE(services, MHS_HASH_BITS);
	spinlock_t		lock;	/* for writers */
	refcount_t		refcnt;
};

/* Hooks of a family */
#define MHS_HOOKS_IN	2	/* LOCAL_IN and LOCAL_OUT, with any service */
#define MHS_HOOKS	3	/* FORWARD is the last, and for few */

/**
 * struct ip_vs_mhs_net - a network namespace
 * @net: the namespace
 * @hash: written under @lock; NULL without a service
 * @hold_ms: sysctl, how long older flows stay without an entry
 * @pin_ms: sysctl, how long after that they get one; 0: as TCP's timeouts
 * @max_entries: sysctl, entries a service may have when mhs makes one
 * @max_quic_entries: sysctl, the same when it makes one for QUIC
 * @stateless: sysctl, may flows do without entries?
 * @masq_stateless: sysctl, may those of a new masquerading server?
 * @services: services of ours, for packets
 * @fwm_services: those by firewall mark
 * @pairs: servers in the table of pairs, by family
 * @carriers: carriers, those to be freed included; never more than there are
 * @foreign: a service by firewall mark may be another scheduler's
 * @backup: the sync daemon has the backup role
 * @forward_lock: guards @forward
 * @forward: services and servers that need the FORWARD hook, by family
 * @ops: the hooks, registered while somebody needs them
 * @lock: guards all that follows
 * @list: the services
 * @hooks: services that need the other hooks, by family
 * @work: see net_work()
 * @was_foreign: @foreign as the last look found it
 * @was_stateful: @stateless was 0 then
 * @conntrack: vs.conntrack as the last look found it
 * @warned_conntrack: said once that it makes state
 * @warned_xt_ipvs: said once what it does not find
 * @table: the sysctl table
 * @header: its registration
 */
struct ip_vs_mhs_net {
	struct net		*net;
	struct ip_vs_mhs_hash __rcu *hash;
	unsigned int		hold_ms;
	unsigned int		pin_ms;
	unsigned int		max_entries;
	unsigned int		max_quic_entries;
	unsigned int		stateless;
	unsigned int		masq_stateless;
	int			services;
	int			fwm_services;
	atomic_t		pairs[2];
	atomic_t		carriers;
	bool			foreign;
	bool			backup;

	struct mutex		forward_lock;	/* guards the next */
	u32			forward[2];
	struct nf_hook_ops	ops[2][MHS_HOOKS];
	struct mutex		lock;	/* guards the rest */
	struct list_head	list;
	u32			hooks[2];
	struct delayed_work	work;
	bool			was_foreign;
	bool			was_stateful;
	bool			conntrack;
	bool			warned_conntrack;
	bool			warned_xt_ipvs;
	struct ctl_table	*table;
	struct ctl_table_header	*header;
};

/* svc */
extern unsigned int ip_vs_mhs_svc_net_id;

struct ip_vs_mhs *ip_vs_mhs_svc_find(const struct ip_vs_mhs_net *mn, u16 af,
				     u16 protocol,
				     const union nf_inet_addr *addr,
				     __be16 port);
struct ip_vs_mhs *ip_vs_mhs_svc_find_mark(const struct ip_vs_mhs_net *mn, u16 af,
					  u32 fwmark);
struct ip_vs_mhs_server *ip_vs_mhs_svc_server(const struct ip_vs_mhs *mhs,
					      const struct ip_vs_dest *dest);
void ip_vs_mhs_svc_hash(struct ip_vs_mhs *mhs);
void ip_vs_mhs_svc_unhash(struct ip_vs_mhs *mhs);
void ip_vs_mhs_svc_warn_once(struct ip_vs_mhs *mhs, u8 bit, const char *what);
void ip_vs_mhs_svc_put(struct ip_vs_mhs *mhs);
void ip_vs_mhs_svc_put_rcu(struct ip_vs_mhs *mhs);

/* pair */
int ip_vs_mhs_pair_init(void);
void ip_vs_mhs_pair_exit(void);
struct ip_vs_mhs_server *ip_vs_mhs_pair_find(const struct ip_vs_mhs_net *mn,
					     u16 af, u16 protocol,
					     const union nf_inet_addr *addr,
					     __be16 port);
int ip_vs_mhs_pair_claim(struct ip_vs_mhs_server *s);
void ip_vs_mhs_pair_drop(struct ip_vs_mhs_server *s);

/* ask */
struct ip_vs_dest *ip_vs_mhs_ask_schedule(struct ip_vs_service *svc,
					  const struct sk_buff *skb,
					  struct ip_vs_iphdr *iph);

/* hook */
int ip_vs_mhs_hook_get(struct ip_vs_mhs_net *mn, const struct ip_vs_mhs *mhs);
void ip_vs_mhs_hook_put(struct ip_vs_mhs_net *mn, const struct ip_vs_mhs *mhs);
int ip_vs_mhs_hook_forward_get(struct ip_vs_mhs_net *mn, bool v6);
void ip_vs_mhs_hook_forward_put(struct ip_vs_mhs_net *mn, bool v6);

/* Our part of a network namespace, valid until all exits of that have run.  Only
 * after ip_vs_mhs_net_ready().
 */
static inline struct ip_vs_mhs_net *ip_vs_mhs_net(const struct net *net)
{
	return net_generic(net, ip_vs_mhs_svc_net_id);
}

/* The server of an index read in a slot word, NULL for MHS_IDX_NONE.
 * Called under RCU after the word was read with acquire semantics, which
 * pairs with the full barrier of the compare-and-exchange that wrote it: the
 * array that has room for the index was published before.
 */
static inline struct ip_vs_mhs_server *
ip_vs_mhs_server(const struct ip_vs_mhs *mhs, u32 idx)
{
	const struct ip_vs_mhs_servers *servers = rcu_dereference(mhs->servers);

	return idx ? rcu_dereference(servers->s[idx]) : NULL;
}

/* The service's flags, which an edit changes under packets; none before the
 * first server
 */
static inline unsigned int ip_vs_mhs_flags(const struct ip_vs_mhs *mhs)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);

	return svc ? READ_ONCE(svc->flags) : 0;
}

/* Knobs of the core, which may change at any time */
static inline bool ip_vs_mhs_backup_only(struct netns_ipvs *ipvs)
{
	/* the core's helper does not mark its reads: any value had is right */
	return data_race(sysctl_backup_only(ipvs));
}

/* Are the flows of a deleted server cut at once? */
static inline bool ip_vs_mhs_cutting(struct netns_ipvs *ipvs)
{
	/* as above */
	return data_race(sysctl_expire_nodest_conn(ipvs));
}

static inline bool ip_vs_mhs_conntrack(struct netns_ipvs *ipvs)
{
	/* as above */
	return data_race(ip_vs_conntrack_enabled(ipvs));
}

/* Has the namespace connection entries?  The core counts carriers among them. */
static inline bool ip_vs_mhs_has_entries(const struct ip_vs_mhs_net *mn,
					 const struct netns_ipvs *ipvs)
{
	int carriers = atomic_read(&mn->carriers), n;

	/* Carriers come and go meanwhile: the smaller number is never too large.
	 * Pairs with the barrier in carrier_put().
	 */
	smp_rmb();
	n = atomic_read(&ipvs->conn_count);
	/* as above */
	smp_rmb();
	return n > min(carriers, atomic_read(&mn->carriers));
}

static inline void ip_vs_mhs_count(const struct ip_vs_mhs *mhs,
				   enum ip_vs_mhs_cnt i)
{
	this_cpu_inc(mhs->cnt->n[i]);
}

static inline u32 ip_vs_mhs_slot_read(const u32 *slot)
{
	/* Pairs with the compare-and-exchange in slots_walk(): who sees an index
	 * sees its server, see ip_vs_mhs_server().
	 */
	return smp_load_acquire(slot);
}

/* Set the current generation of used in a stable slot, before the packet is
 * sent.  When control changed the word meanwhile, the packet goes by what is
 * returned.
 */
static inline u32 ip_vs_mhs_slot_use(u32 *slot, u32 w)
{
	while (ip_vs_mhs_slot_needs_use(w)) {
		if (try_cmpxchg(slot, &w, w | MHS_USED_CUR))
			break;
		/* A failed exchange promises no barrier */
		w = ip_vs_mhs_slot_read(slot);
	}
	return w;
}

/* Set the current generation of tracked in a slot, before an entry is made */
static inline void ip_vs_mhs_slot_track(u32 *slot)
{
	u32 w = READ_ONCE(*slot);

	while (!(w & MHS_TRACK_CUR) &&
	       !try_cmpxchg(slot, &w, w | MHS_TRACK_CUR))
		;
}

#endif /* _IP_VS_MHS_H */
