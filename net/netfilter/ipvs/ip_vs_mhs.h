/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: types, locks, lifetimes, and what the
 * files of the packet path share.
 *
 *	ip_vs_mhs_chance.c	the second chance
 *	ip_vs_mhs_packet.c	the way of a packet, from the hook to the server
 *	ip_vs_mhs_icmp.c	what an ICMP error is about; tunnels
 *	ip_vs_mhs_entry.c	connection entries, and the server for one
 *	ip_vs_mhs_svc.c		the services of a namespace
 *	ip_vs_mhs_decide.c	the word of one slot; where does a packet go? pure
 *	ip_vs_mhs_table.c	hashes, table fill: pure
 *
 * A file calls only files below it in this list.  Packets run this code under RCU, in
 * softirq or process context; svc and chance have what the control path does there, too.
 *
 *	struct mhs_net, a network namespace
 *	   | by_addr[], the hash of address and port, or of the mark
 *	struct mhs, a virtual service
 *	   | slots[], the hash of the client: a word, see ip_vs_mhs_decide.h,
 *	   |          with two indexes: candidate and old server
 *	   | servers[], the index                  by_dest[], the address
 *	struct mhs_server, a real server of the service
 *	   | carrier                               dest
 *	struct ip_vs_conn, sends its packets       struct ip_vs_dest, of the core
 *
 * Locks, in the order in which they are taken
 * -------------------------------------------
 *
 *	the core's service mutex	held in every scheduler callback but
 *					schedule(); one for all namespaces up
 *					to 6.12, one for each in 7.2
 *	mhs_net.lock			services and hooks of a namespace
 *	mhs.lock			servers and clocks of a service; short:
 *					callbacks wait with the core's mutex
 *	api_lock, then RTNL		lanes; taken without the locks above
 *
 *	operation			locks; A > B: B is taken while A is held
 *	------------------------------------------------------------------
 *	packet, schedule(), frame	RCU
 *	init_service			net > mhs; mhs; net
 *	done_service			net; mhs
 *	add_dest, upd_dest, del_dest,	mhs
 *	work of a service
 *	work of a namespace, write of	net > mhs
 *	quic_ids and second_chance
 *	read of /proc			net; mhs; of ip_vs_mhs_lookup RCU, too
 *
 *	Only the work of a service builds its table.  done_service() waits for
 *	that work, a reader of /proc for a rebuild, the exit of a namespace for
 *	the work of the namespace: all without the locks that works take.  With
 *	net.lock held only net_attach() looks at slots, of its own service.
 *
 * Who writes what
 * ---------------
 *
 *	slots[]		packets and control, by compare-and-exchange: no packet
 *			sees half a change, control overwrites no packet's bit
 *	servers[], by_dest, server.carrier
 *			control, under mhs.lock; packets read under RCU
 *	svc		control, under mhs.lock; packets acquire or READ_ONCE
 *	settling	control, under mhs.lock; packets acquire
 *	entries		packets that make an entry: made; net_work(): counted
 *	server.record, local_generation, net.lane_net, net.generation
 *			see ip_vs_mhs_lane.h
 *	ids		control, under net.lock; packets read under RCU
 *	net.fwmark_at, net.fwmark_looks
 *			packets, which may lose each other's count
 *	server.answered, relays, relay_second, chances
 *			packets that servers send back; server.answered and
 *			server.nonce also control, under mhs.lock
 *
 *	control writes by WRITE_ONCE, others read by READ_ONCE:
 *		under mhs.lock	server.facts, server.missed, dirty,
 *				server.pin_older_until
 *		under net.lock	chance, net.fwm_services, net.backup
 *		in a work	addr_only
 *		anywhere	net.changed_at
 *
 * The life of a server
 * --------------------
 *
 *	add_dest	-> mhs.listed, with an index of its own
 *	del_dest	-> mhs.gone, MHS_SRV_GONE: the server gets no new flow;
 *			   slots may have the server as old, with the second
 *			   chance also stable slots, until hold + pin have
 *			   passed; connection entries may lead there
 *	add_dest again	-> mhs.listed, same struct and same index
 *	no slot has the server, and hold + pin have passed since del_dest
 *	(also if no slot had the server then, after -w 0) or
 *	expire_nodest_conn cuts its flows; or the service ends
 *			-> out of servers[] and by_dest, call_rcu(): the callback
 *			   puts the ip_vs_dest and the carrier, and only then
 *			   frees the index for another server
 *
 *	A packet that reads an index in a slot word may use servers[index]
 *	until the packet leaves its RCU section: the index leaves every word
 *	first, servers[] second, indexes a grace period later.  At the end of a
 *	service the words keep their indexes: packets find NULL in servers[].
 *
 * The life of a carrier
 * ---------------------
 *
 *	A carrier is an unhashed struct ip_vs_conn of one server.  Its forwarding
 *	method and conntrack flag are fixed: a change of either makes a new
 *	carrier, and call_rcu() puts the old one; but a server that begins to
 *	masquerade keeps it, for older flows only (MHS_SRV_FROZEN).  A carrier
 *	holds the ip_vs_dest, and netns_ipvs.conn_count counts it: the exit of a
 *	namespace waits until all are put.  So RCU callbacks put what packets have
 *	seen: a timer or work might be cancelled before.
 *
 * The life of a service
 * ---------------------
 *
 *	init_service	adds the service to the namespace's hash table, settling
 *			and with mhs.svc NULL unless the core's ip_vs_service
 *			has servers: if its creation fails later, the core frees
 *			the ip_vs_service without a grace period
 *	first add_dest	sets mhs.svc: packets use the service from now on, until
 *			now the core handled them
 *	last reference	each server holds a reference until its RCU callback has
 *			freed its index, the service itself until a grace period
 *			after done_service, readers of /proc and works of the
 *			namespace while they look at the service: the last one
 *			to go frees the service
 *
 *	The network namespace owns struct mhs_net and frees the struct
 *	after every pernet exit has run: packets, whose hooks carry a pointer to
 *	it, and done_service() use the struct after our own exit.
 */
#ifndef _IP_VS_MHS_H
#define _IP_VS_MHS_H

#include <linux/bitmap.h>
#include <linux/hashtable.h>
#include <linux/icmp.h>
#include <linux/idr.h>
#include <linux/mutex.h>
#include <linux/netfilter.h>
#include <linux/refcount.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/netns/generic.h>

#include "ip_vs_mhs_compat.h"
#include "ip_vs_mhs_decide.h"
#include "ip_vs_mhs_lane.h"

/* ipvsadm's flag-3.  Its flag-1 is MHS_SVC_FALLBACK; its flag-2 makes mh hash
 * the port, which mhs always does.
 */
#define MHS_SVC_F_ADDR_ONLY	IP_VS_SVC_F_SCHED3

struct mhs_counters {
	unsigned long		n[MHS_CNT_MAX];
};

/* What is about to happen to a server, for settle_before_change() */
enum mhs_change {
	MHS_EDITED,	/* added or edited */
	MHS_DRAINED,	/* its weight becomes 0 */
	MHS_DELETED,
};

/* There are made + counted entries: who makes one adds to made, net_work() counts */
struct mhs_entries {
	atomic_t		made;
	u32			counted;
};

/* Probes that a server without new flows leaves unanswered, while others answer,
 * before it keeps no slot that another server can have
 */
#define MHS_MISSED_MAX		5

struct mhs_server {
	struct ip_vs_dest	*dest;		/* holds a reference */
	/* sends packets that have no connection entry, see above */
	struct ip_vs_conn __rcu	*carrier;
	mhs_srv_t		facts;		/* all but four, see mhs_server_facts() */
	/* the way but for neigh is in the same cache line; 32 bit align less */
	struct mhs_lane_record record;
	struct hlist_node	node;		/* in mhs.by_dest */
	u16			idx;		/* in slots[] and servers[] */
	int			weight;		/* at the last refresh */
	u64			hash;		/* keyed, of its address */
	/* jiffies_64: until then older flows get entries; 0: no threshold */
	u64			pin_older_until;
	unsigned long		gone_until;	/* jiffies, after del_dest */
	bool			in_slots;	/* a slot had it in the last walk */
	bool			forgotten;	/* gone_until is past */
	u8			missed;		/* probes, MHS_MISSED_MAX */
	unsigned long		probed;		/* at last, jiffies */
	struct list_head	list;		/* in mhs.listed or mhs.gone */
	struct mhs		*mhs;	/* holds a reference */
	/* second chance: see ip_vs_mhs_chance.c */
	u32			answered;	/* seconds, 0: never */
	unsigned long		asked_until;	/* the table waits, jiffies */
	unsigned long		ask_at;		/* meanwhile, not before */
	u64			nonce;		/* of questions */
	struct rcu_head		rcu;
};

/* What became of packets that servers sent back */
enum mhs_chance_cnt {
	MHS_CHANCE_RETURNED,	/* of these: */
	MHS_CHANCE_ASKED,	/* went to another server */
	MHS_CHANCE_RESET,	/* no server was left */
	MHS_CHANCE_DROPPED,	/* the client resends */
	MHS_CHANCE_MAX
};

/* 128 chains for perhaps thousands of servers; with more, struct mhs takes 4 KB */
#define MHS_DEST_BITS		7

struct mhs_servers {
	struct rcu_head		rcu;
	u32			max;
	struct mhs_server __rcu *s[];
};

/* What the last walk found: fingerprints of the tables, slots by phase, and the first
 * and the last stage of unstable slots
 */
struct mhs_census {
	u64			old_fingerprint;
	u64			cand_fingerprint;
	u32			hold;
	u32			pin;
	u32			stage_min;
	u32			stage_max;
};

struct mhs {
	/* read by every packet */
	struct hlist_node	node;		/* in mhs_net.by_addr */
	struct netns_ipvs	*ipvs;
	/* key, copied from the core's ip_vs_service */
	union nf_inet_addr	addr;
	u32			fwmark;		/* firewall mark or 0 */
	u16			af;
	u16			protocol;
	__be16			port;
	/* servers come one by one: plain UDP alone goes by the table */
	bool			settling;
	bool			addr_only;	/* client hash without port */
	u32			local_generation; /* the address is local */
	u32			size;		/* of slots[] */
	u32			*slots;		/* the lookup table */
	struct mhs_servers __rcu *servers;	/* by index */
	struct ip_vs_service	*svc;		/* NULL before first server */
	struct mhs_counters __percpu *cnt;
	siphash_key_t		key;
	const struct mhs_list_item __rcu *ids;	/* in the same cache line */

	struct mhs_entries	entries ____cacheline_aligned_in_smp;
	/* second chance, by packets that servers send back */
	atomic_t		relays;		/* in relay_second */
	unsigned long		relay_second;
	atomic_long_t		chances[MHS_CHANCE_MAX];

	/* control; lock guards what follows, unless a comment says otherwise */
	struct mutex		lock ____cacheline_aligned_in_smp;
	struct mhs_net		*mn;
	struct list_head	net_list;	/* mhs_net.list, its lock; then empty */
	struct hlist_node	fwmark_node;	/* mhs_net.by_fwmark, its lock */
	struct list_head	listed;		/* not deleted, by address */
	struct list_head	gone;		/* deleted, perhaps in use */
	u32			n_listed;
	u32			n_empty;	/* got no slot in a rebuild */
	struct ida		indexes;	/* taken; has its own lock */
	struct mhs_census	census;
	bool			dirty;		/* a rebuild is due */
	bool			chance;		/* second chance; mhs_net.lock */
	bool			ended;		/* nobody queues the work */
	bool			hurry;		/* a reader waits for a rebuild */
	u32			changes;	/* of servers, so far */
	unsigned long		dirty_since;	/* jiffies, if dirty */
	/* an allocation failed, or carriers may not fit: the work goes over all
	 * servers
	 */
	bool			retry;
	bool			lacks_index;	/* a server does */
	bool			hashed;		/* has a port or fwmark */
	bool			all_tracked;	/* each slot, since the last tick */
	bool			aging;		/* a walk ages tracked bits */
	u8			warned;		/* MHS_WARN_* */
	u32			entry_ms;	/* longest timeout seen */
	unsigned long		changed_at;	/* jiffies, servers */
	unsigned long		gap;		/* longest between changes */
	unsigned long		settle_by;	/* jiffies, at the latest */
	u64			early_until;	/* jiffies_64, see there */
	bool			stateful;	/* sysctl stateless was 0 */
	unsigned long		stateful_since;	/* packets get entries */
	unsigned long		not_made;	/* entries, at the last poll */
	unsigned long		build_at;	/* jiffies, not before */
	u32			build_us;	/* length of the last rebuild */
	unsigned long		ticked[MHS_CLOCKS]; /* jiffies, at last */
	/* what wait --drained rests on, see mhs_rebuild_table() */
	bool			drains;		/* a server has weight 0 */
	u32			least_pin_ms;	/* shortest pin time of slots since */
	unsigned long		not_made_then;	/* entries, when that began */
	struct delayed_work	work;
	refcount_t		refcnt;		/* see above, atomic */
	struct rcu_head		rcu;
	DECLARE_HASHTABLE(by_dest, MHS_DEST_BITS);	/* mhs_dest_bucket() */
};

#define MHS_NOT_MADE		(BIT(MHS_CNT_CAPPED) | BIT(MHS_CNT_NOMEM))

#define MHS_WARN_EMPTY		0x1
#define MHS_WARN_ADDR_ONLY		0x2
#define MHS_WARN_FULL		0x4
#define MHS_WARN_CHANCE		0x8
#define MHS_WARN_CID		0x10

/* 1,024 chains: 5,000 services make five to a chain */
#define MHS_SVC_BITS		10

#define MHS_HOOKS	2	/* of a family: LOCAL_IN, LOCAL_OUT */

/* A network namespace; arrays of two are by family: IPv4, IPv6 */
struct mhs_net {
	struct net		*net;
	/* sysctls, see Documentation/networking/ipvs-mhs.rst */
	unsigned int		hold_ms;
	unsigned int		pin_ms;		/* 0: the core's timeouts */
	unsigned int		max_entries;	/* of a service */
	unsigned int		max_quic_entries;
	unsigned int		max_total_entries; /* of all services */
	unsigned int		stateless;
	unsigned int		lane;
	int			fwm_services;	/* of mhs; read by packets */
	/* packet_error_fwmark() has looked at so many services in that jiffy */
	u32			fwmark_at;
	u32			fwmark_looks;
	/* never more than conn_count counts, those to be put included */
	atomic_t		carriers;
	atomic_t		generation;	/* see ip_vs_mhs_lane.h */
	struct mhs_lane_net __rcu *lane_net;	/* the same */
	/* services by address and port, or firewall mark; lock to write */
	DECLARE_HASHTABLE(by_addr, MHS_SVC_BITS);
	struct hlist_head	by_fwmark;	/* those by mark alone; the same */
	struct mhs_entries	entries;	/* of all services */
	bool			backup;		/* role of the sync daemon */
	unsigned long		changed_at;	/* jiffies, any server */

	struct mutex		lock;		/* guards what follows */
	struct nf_hook_ops	ops[2][MHS_HOOKS];
	struct list_head	list;		/* of services */
	/* sysctls second_chance, quic_ids; NULL: empty */
	struct mhs_list		*lists[2];
	u32			hooks[2];	/* users: hashed services */
	bool			chance_hooked;
	struct delayed_work	chance_work;	/* while it is true */
	struct delayed_work	work;		/* net_work() */
	bool			conntrack;	/* vs.conntrack, the same */
	unsigned long		lane_gone;	/* in lanes, of services that went */
	struct ctl_table	*table;		/* of init and exit */
	struct ctl_table_header	*header;	/* the same */
};

/* svc */
extern unsigned int mhs_svc_net_id;

/* What names a server in a connection ID: the last octets of its address */
static inline __be32 mhs_dest_id(u16 af, const union nf_inet_addr *addr)
{
	return af == AF_INET6 ? addr->ip6[3] : addr->ip;
}

/* The chain of a server in mhs.by_dest: that, and the port, unless the service is
 * for many
 */
static inline u32 mhs_dest_bucket(const struct mhs *mhs, u16 af,
				  const union nf_inet_addr *addr, __be16 port)
{
	return ntohl(mhs_dest_id(af, addr)) + (mhs->fwmark ? 0 : ntohs(port));
}

void mhs_svc_endpoint(struct seq_file *seq, u16 af,
		      const union nf_inet_addr *addr, __be16 port);
void mhs_svc_publish(struct mhs *mhs);
unsigned long mhs_svc_counted(const struct mhs *mhs, unsigned long which);
void mhs_svc_warn_once(struct mhs *mhs, u8 bit, const char *what);
struct mhs *mhs_svc_next(struct mhs_net *mn, struct mhs *prev, loff_t pos);
void mhs_svc_put(struct mhs *mhs);

/* Before mhs_net_ready() returns 0 there is no net_generic() slot to read */
static inline struct mhs_net *mhs_net(const struct net *net)
{
	return net_generic(net, mhs_svc_net_id);
}

/* data_race(): a sysctl of the core may change at any time; any value it had will do */
#define mhs_conntrack(ipvs)	data_race(ip_vs_conntrack_enabled(ipvs))
/* Are the flows of a deleted server cut at once? */
#define mhs_cutting(ipvs)	data_race(sysctl_expire_nodest_conn(ipvs))

/* One packet in a hook */
struct mhs_packet {
	struct ip_vs_iphdr	iph;
	struct sk_buff		*skb;
	struct mhs_net		*mn;
	struct ip_vs_proto_data	*pd;	/* of the core; NULL for ICMP */
	u8			af;
	__be16			sport;
	__be16			dport;
	mhs_facts_t		facts;	/* of the packet alone */
	struct ip_vs_proto_data	*ipsec;	/* AH or ESP, else NULL */
	bool			maybe_reply; /* of a server on this host */
	bool			quic;	/* to a QUIC port */
};

/* What mhs_packet_decide() is asked */
struct mhs_question {
	struct mhs		*mhs;
	struct mhs_server	*server;	/* of the verdict */
	u32			*slot;		/* the client's */
	u32			w;		/* word of the slot */
	mhs_facts_t		facts;
};

/* The packet that an ICMP error quotes */
struct mhs_quote {
	struct ip_vs_iphdr	quoted;
	struct ip_vs_proto_data	*pd;
	const union nf_inet_addr *client;	/* in quoted */
	__be16			cport;
	__be16			vport;
};

/* A router's error about a packet in a tunnel over IPv4 */
struct mhs_tunnel {
	struct icmphdr		icmp;
	struct iphdr		outer;
	unsigned int		tunnel_hlen;	/* bytes of the tunnel's headers */
	unsigned int		inner;		/* offset of the packet in it */
};

/* chance */
bool mhs_chance_answers(const struct mhs_server *s);
bool mhs_chance_lost(const struct mhs_server *s);
void mhs_chance_work(struct work_struct *work);
void mhs_chance_new(struct mhs_server *s);
bool mhs_chance_waits(struct mhs *mhs);
int mhs_chance_follow(struct mhs_net *mn);
void mhs_chance_exit(struct mhs_net *mn);
bool mhs_chance_has(struct mhs *mhs);
u32 mhs_chance_former(u32 w, u32 n, const unsigned long *lost);
int mhs_chance_show(struct seq_file *seq, void *v);

/* packet */
int mhs_packet_hook(struct mhs_net *mn, const struct mhs *mhs);
void mhs_packet_unhook(struct mhs_net *mn, const struct mhs *mhs);
bool mhs_packet_transport(struct mhs_packet *p);
bool mhs_packet_is_quic(__be16 port);
void mhs_packet_question(struct mhs_question *q, struct mhs *mhs,
			 const union nf_inet_addr *caddr, __be16 cport,
			 u16 protocol, __be16 vport, mhs_facts_t facts);
mhs_verdict_t mhs_packet_decide(struct mhs_question *q);
struct mhs_server *mhs_packet_by_id(struct mhs_question *q, const u8 *h,
				    unsigned int bytes);
struct mhs_server *mhs_packet_id_server(const struct mhs *mhs, __be32 id);

/* icmp */
struct mhs *mhs_icmp_quoted(struct netns_ipvs *ipvs,
			    const struct mhs_packet *p, unsigned int off,
			    bool reply, struct mhs_quote *e);
struct mhs *mhs_icmp_about(struct netns_ipvs *ipvs, const struct mhs_packet *p,
			   struct mhs_quote *e);
bool mhs_icmp_parse_tunnel(const struct mhs_packet *p, struct mhs_tunnel *t);
bool mhs_icmp_tunnel_error(struct netns_ipvs *ipvs, struct mhs_packet *p,
			   struct mhs_server *s, const struct mhs_tunnel *t,
			   unsigned int *nf);

/* entry */
struct mhs_server *mhs_entry_search(const struct mhs *mhs, const u32 *slot);
struct mhs_server *mhs_entry_server(const struct mhs *mhs,
				    const struct ip_vs_dest *dest);
bool mhs_entry_new(const struct mhs_question *q, struct mhs_packet *p,
		   mhs_verdict_t v, unsigned int *nf);
bool mhs_entry_is_claim(const struct ip_vs_conn *cp);
bool mhs_entry_handle(struct mhs_question *q, struct mhs_packet *p,
		      unsigned int *nf);
struct ip_vs_dest *mhs_entry_schedule(struct ip_vs_service *svc,
				      const struct sk_buff *skb,
				      struct ip_vs_iphdr *iph);

/* A service in a list, of quic_ids perhaps with a key */
struct mhs_list_item {
	u16			af;
	__be16			port;
	bool			keyed;
	u8			bits;	/* first bits of IDs, a bit each */
	struct mhs_list_item	*next;	/* of the service, other bits */
	union nf_inet_addr	addr;
	MHS_AES_KEY		key;
};

/* Inline, as the lane, which calls no function of the scheduler, and more than one
 * file of the packet path use it; in the order in which a packet runs it: what it is,
 * its service, slot and server, counters.  The hash of the client is in decide.h.
 */

/* The core sends AH and ESP by the entry of UDP from port 500 to port 500 */
#define MHS_IKE_PORT		htons(500)

static inline bool mhs_is_ipsec(u16 protocol)
{
	return protocol == IPPROTO_ESP || protocol == IPPROTO_AH;
}

/* Of the flags: a SYN alone begins a flow, and an ACK alone has no fact */
static __always_inline mhs_facts_t mhs_tcp_facts(const struct tcphdr *th)
{
	__be32 flags = tcp_flag_word(th) & (TCP_FLAG_SYN | TCP_FLAG_ACK |
					    TCP_FLAG_FIN | TCP_FLAG_RST);

	if (likely(flags == TCP_FLAG_ACK))
		return 0;
	/* A segment without any of the four flags belongs to no flow */
	if (!flags || flags & (TCP_FLAG_FIN | TCP_FLAG_RST))
		return MHS_PKT_ENDS;
	return flags == TCP_FLAG_SYN ? MHS_PKT_NEW : 0;
}

/* No secret is needed: the administrator chooses all addresses and ports */
static __always_inline u32
mhs_svc_bucket(u16 af, const union nf_inet_addr *addr, __be16 port)
{
	__be32 fold = addr->ip;

	if (af == AF_INET6)
		fold ^= addr->ip6[1] ^ addr->ip6[2] ^ addr->ip6[3];
	return (__force u32)fold * GOLDEN_RATIO_32 + (__force u16)port;
}

/* The service by address and port, without a reference, or NULL.  Under RCU. */
static __always_inline struct mhs *
mhs_svc_find(const struct mhs_net *mn, u16 af, u16 protocol,
	     const union nf_inet_addr *addr, __be16 port)
{
	struct mhs *mhs;

	hash_for_each_possible_rcu(mn->by_addr, mhs, node,
				   mhs_svc_bucket(af, addr, port))
		if (mhs->port == port && mhs->af == af &&
		    ip_vs_addr_equal(af, &mhs->addr, addr) &&
		    mhs->protocol == protocol && !mhs->fwmark)
			return mhs;
	return NULL;
}

static inline struct mhs *
mhs_svc_find_mark(const struct mhs_net *mn, u16 af, u32 fwmark)
{
	struct mhs *mhs;

	hash_for_each_possible_rcu(mn->by_addr, mhs, node, fwmark)
		if (mhs->fwmark == fwmark && mhs->af == af)
			return mhs;
	return NULL;
}

/* Flags of the core's service, which ipvsadm may change; 0 before a server */
static inline mhs_facts_t mhs_svc_flags(const struct mhs *mhs)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);

	return svc ? (__force mhs_facts_t)READ_ONCE(svc->flags) : 0;
}

static __always_inline u32 *
mhs_slot_of(const struct mhs *mhs, bool v6, const union nf_inet_addr *caddr,
	    __be16 cport)
{
	u64 hash = mhs_hash_client(&mhs->key, v6, caddr,
				   READ_ONCE(mhs->addr_only) ? 0 : ntohs(cport));

	return &mhs->slots[(hash >> 32) * mhs->size >> 32];
}

static inline u32 *mhs_slot(const struct mhs *mhs,
			    const union nf_inet_addr *caddr, __be16 cport)
{
	return mhs_slot_of(mhs, mhs->af == AF_INET6, caddr, cport);
}

static inline u32 mhs_slot_read(const u32 *slot)
{
	/* Pairs with mhs_rebuild_walk(): who sees an index sees its server */
	return smp_load_acquire(slot);
}

/* The server of an index, or NULL.  Under RCU, after mhs_slot_read(): control
 * had published an array with room for the index before the word was written.
 */
static inline struct mhs_server *mhs_server_at(const struct mhs *mhs, u32 idx)
{
	const struct mhs_servers *servers = rcu_dereference(mhs->servers);

	return idx ? rcu_dereference(servers->s[idx]) : NULL;
}

/* Facts of a server; only a packet that may begin a flow needs MHS_SRV_FULL */
static __always_inline mhs_srv_t
mhs_server_facts(const struct mhs_server *s, bool may_begin)
{
	mhs_srv_t facts;

	if (!s)
		return 0;
	facts = READ_ONCE(s->facts) | MHS_SRV_EXISTS;
	if (rcu_access_pointer(s->carrier))
		facts |= MHS_SRV_CARRIER;
	if (unlikely(facts & MHS_SRV_NEW_ENTRY) &&
	    time_before64(get_jiffies_64(), READ_ONCE(s->pin_older_until)))
		facts |= MHS_SRV_PIN_OLDER;
	if (may_begin && READ_ONCE(s->dest->flags) & IP_VS_DEST_F_OVERLOAD)
		facts |= MHS_SRV_FULL;
	return facts;
}

/* Set the bit without which no packet in the slot looks for its entry */
static inline void mhs_slot_track(u32 *slot)
{
	u32 w = READ_ONCE(*slot);

	while (!(w & MHS_TRACK_CUR) &&
	       !try_cmpxchg(slot, &w, w | MHS_TRACK_CUR))
		;
}

static inline void mhs_count(const struct mhs *mhs, enum mhs_cnt i)
{
	this_cpu_inc(mhs->cnt->n[i]);
}

static inline void mhs_count_verdict(const struct mhs *mhs, mhs_verdict_t v)
{
	enum mhs_cnt count = mhs_verdict_count(v);

	if (likely(count != MHS_CNT_MAX))
		mhs_count(mhs, count);
}

/* Statistics of ipvsadm to which a packet adds */
#define MHS_STAT_IN		0x1U
#define MHS_STAT_CONN		((__force u32)MHS_CONN)

static __always_inline void xmit_stats_add(struct ip_vs_cpu_stats *s,
					   unsigned int bytes, u32 what)
{
	u64_stats_update_begin(&s->syncp);
	if (what & MHS_STAT_IN) {
		u64_stats_inc(&s->cnt.inpkts);
		u64_stats_add(&s->cnt.inbytes, bytes);
	}
	if (what & MHS_STAT_CONN)
		u64_stats_inc(&s->cnt.conns);
	u64_stats_update_end(&s->syncp);
}

/* Count a packet where softirqs are disabled.  As in the core, only for a listed
 * server: the service of an unlisted server may be freed.
 */
static __always_inline void
mhs_xmit_stats_bh(const struct mhs *mhs, struct ip_vs_dest *dest,
		  unsigned int bytes, u32 what)
{
	if (!mhs_dest_available(dest))
		return;
	xmit_stats_add(this_cpu_ptr(dest->stats.cpustats), bytes, what);
	xmit_stats_add(this_cpu_ptr(rcu_dereference(dest->svc)->stats.cpustats),
		       bytes, what);
	xmit_stats_add(mhs_total_stats(mhs->ipvs), bytes, what);
}

static inline void mhs_xmit_stats(const struct mhs *mhs,
				  struct ip_vs_dest *dest,
				  unsigned int bytes, u32 what)
{
	local_bh_disable();
	/* A constant lets the compiler drop branches */
	if (likely(what == MHS_STAT_IN))
		mhs_xmit_stats_bh(mhs, dest, bytes, MHS_STAT_IN);
	else
		mhs_xmit_stats_bh(mhs, dest, bytes, what);
	local_bh_enable();
}

#endif /* _IP_VS_MHS_H */
