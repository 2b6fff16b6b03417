/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: what the files of the packet path share.
 *
 *	ip_vs_mhs_chance.c	the second chance
 *	ip_vs_mhs_packet.c	the way of a packet, from the hook to the server
 *	ip_vs_mhs_icmp.c	what an ICMP error is about; tunnels
 *	ip_vs_mhs_entry.c	connection entries, and the server for one
 *	ip_vs_mhs_svc.c		the services of a namespace
 *	ip_vs_mhs_decide.c	where does a packet go? pure
 *	ip_vs_mhs_table.c	hashes, the word of one slot, table fill: pure
 *
 * A file calls only files below it in this list.  Packets run this code under RCU, in
 * softirq or process context; svc and chance have what the control path does there, too.
 */
#ifndef _IP_VS_MHS_PKT_H
#define _IP_VS_MHS_PKT_H

#include <linux/icmp.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>

#include "ip_vs_mhs.h"
#include "ip_vs_mhs_quic.h"

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
	bool			first;	/* perhaps the first of a direction */
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
struct mhs_error {
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
	unsigned int		overhead;	/* bytes of the tunnel's headers */
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
			    bool reply, struct mhs_error *e);
struct mhs *mhs_icmp_about(struct netns_ipvs *ipvs, const struct mhs_packet *p,
			   struct mhs_error *e);
bool mhs_icmp_tunnel(const struct mhs_packet *p, struct mhs_tunnel *t);
bool mhs_icmp_tunnel_error(struct netns_ipvs *ipvs, struct mhs_packet *p,
			   struct mhs_server *s, const struct mhs_tunnel *t,
			   unsigned int *nf);

/* entry */
struct mhs_server *mhs_entry_other(const struct mhs *mhs, const u32 *slot);
struct mhs_server *mhs_entry_server(const struct mhs *mhs,
				    const struct ip_vs_dest *dest);
bool mhs_entry_reserve(struct mhs *mhs, u32 limit, bool new_flow);
struct ip_vs_conn *mhs_entry_make(const struct mhs_question *q,
				  const struct mhs_packet *p,
				  struct ip_vs_dest *dest, enum mhs_cnt kind);
unsigned int mhs_entry_first(struct mhs *mhs, struct mhs_packet *p,
			     struct ip_vs_conn *cp, u32 stats);
bool mhs_entry_is_claim(const struct ip_vs_conn *cp);
bool mhs_entry_handle(struct mhs_question *q, struct mhs_packet *p,
		      unsigned int *nf);
struct ip_vs_dest *mhs_entry_schedule(struct ip_vs_service *svc,
				      const struct sk_buff *skb,
				      struct ip_vs_iphdr *iph);

/* A service in a list, of quic_ids perhaps with a key */
struct mhs_cid {
	u16			af;
	__be16			port;
	bool			keyed;
	u8			bits;	/* first bits of IDs, a bit each */
	struct mhs_cid		*next;	/* of the service, other bits */
	union nf_inet_addr	addr;
	MHS_AES_KEY		key;
};

/* Inline, as the lane, which calls no function of the scheduler, and more than one
 * file of the packet path use it; in the order in which a packet runs it
 */

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

/* The core sends AH and ESP by the entry of UDP from port 500 to port 500 */
#define MHS_IKE_PORT		htons(500)

static inline bool mhs_is_ipsec(u16 protocol)
{
	return protocol == IPPROTO_ESP || protocol == IPPROTO_AH;
}

/* No secret is needed: the administrator chooses all addresses and ports */
static __always_inline u32
mhs_svc_key(u16 af, const union nf_inet_addr *addr, __be16 port)
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

	hash_for_each_possible_rcu(mn->by_key, mhs, node,
				   mhs_svc_key(af, addr, port))
		if (mhs->port == port && mhs->af == af &&
		    ip_vs_addr_equal(af, &mhs->addr, addr) &&
		    mhs->protocol == protocol && !mhs->fwmark)
			return mhs;
	return NULL;
}

/* The same by mark */
static inline struct mhs *
mhs_svc_find_mark(const struct mhs_net *mn, u16 af, u32 fwmark)
{
	struct mhs *mhs;

	hash_for_each_possible_rcu(mn->by_key, mhs, node, fwmark)
		if (mhs->fwmark == fwmark && mhs->af == af)
			return mhs;
	return NULL;
}

static inline u32 *mhs_slot_of(const struct mhs *mhs, u64 hash)
{
	return &mhs->slots[(hash >> 32) * mhs->size >> 32];
}

static inline u32 *mhs_slot(const struct mhs *mhs,
			    const union nf_inet_addr *caddr, __be16 cport)
{
	if (READ_ONCE(mhs->addr_only))
		cport = 0;
	return mhs_slot_of(mhs, mhs_hash_client(&mhs->key, mhs->af,
						caddr, cport));
}

static inline u32 mhs_slot_read(const u32 *slot)
{
	/* Pairs with mhs_slots_walk(): who sees an index sees its server */
	return smp_load_acquire(slot);
}

/* Set the mark without which no packet in the slot looks for its entry */
static inline void mhs_slot_track(u32 *slot)
{
	u32 w = READ_ONCE(*slot);

	while (!(w & MHS_TRACK_CUR) &&
	       !try_cmpxchg(slot, &w, w | MHS_TRACK_CUR))
		;
}

/* Flags of the core's service, which ipvsadm may change; 0 before a server */
static inline mhs_facts_t mhs_flags(const struct mhs *mhs)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);

	return svc ? (__force mhs_facts_t)READ_ONCE(svc->flags) : 0;
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
	facts = READ_ONCE(s->state) | MHS_SRV_KNOWN;
	if (rcu_access_pointer(s->carrier))
		facts |= MHS_SRV_CARRIER;
	if (unlikely(facts & MHS_SRV_NEW_ENTRY) &&
	    time_before64(get_jiffies_64(), READ_ONCE(s->counts_until)))
		facts |= MHS_SRV_COUNTS;
	if (may_begin && READ_ONCE(s->dest->flags) & IP_VS_DEST_F_OVERLOAD)
		facts |= MHS_SRV_FULL;
	return facts;
}

static inline void mhs_count(const struct mhs *mhs, enum mhs_cnt i)
{
	this_cpu_inc(mhs->cnt->n[i]);
}

/* Count a verdict that is carried out */
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
	if (!mhs_dest_listed(dest))
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

#endif /* _IP_VS_MHS_PKT_H */
