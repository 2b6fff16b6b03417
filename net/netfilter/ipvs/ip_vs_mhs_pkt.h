/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: what the files of the packet path share.
 *
 *	ip_vs_mhs_pkt.c		the hooks; a request and what becomes of it
 *	ip_vs_mhs_proto.c	does it begin a flow? TCP, UDP, QUIC, SCTP
 *	ip_vs_mhs_sched.c	which server; schedule()
 *	ip_vs_mhs_entry.c	connection entries: made, or found
 *	ip_vs_mhs_nat.c		masquerading: the way back
 *	ip_vs_mhs_icmp.c	errors about flows that have no entry
 *
 * All of it runs under RCU, in softirq or process context.
 */
#ifndef _IP_VS_MHS_PKT_H
#define _IP_VS_MHS_PKT_H

#include <linux/netfilter.h>
#include <linux/skbuff.h>

#include "ip_vs_mhs.h"

/**
 * struct ip_vs_mhs_packet - one packet on its way
 * @iph: its network header; first, what follows starts as zeroes
 * @skb: the packet
 * @net: its namespace
 * @pd: its transport protocol, as the core knows it
 * @mark: its firewall mark
 * @af: address family
 * @hook: where it is, NF_INET_*
 * @sport: source port
 * @dport: destination port
 * @opens: may be the first packet of its direction
 * @fresh: begins a flow: SYN, INIT, QUIC Initial
 * @ends: ends one, or is in none: RST, FIN, ABORT, SHUTDOWN; makes no entry
 * @lone: see ip_vs_mhs_is_lone(); set when the service is known
 * @quic: QUIC, by its port
 * @left: plain UDP that has left an entry, which is about to expire
 */
struct ip_vs_mhs_packet {
	struct ip_vs_iphdr	iph;
	struct sk_buff		*skb;
	struct ip_vs_mhs_net	*net;
	struct ip_vs_proto_data	*pd;
	u32			mark;
	u8			af;
	u8			hook;
	__be16			sport;
	__be16			dport;
	bool			opens;
	bool			fresh;
	bool			ends;
	bool			lone;
	bool			quic;
	bool			left;
};

/* What to add to the statistics that ipvsadm shows */
#define MHS_STAT_IN		0x1U
#define MHS_STAT_OUT		0x2U
#define MHS_STAT_CONN		0x4U

/* proto */
bool ip_vs_mhs_is_lone(const struct ip_vs_mhs *mhs, u16 protocol, __be16 port);
bool ip_vs_mhs_parse(struct ip_vs_mhs_packet *p);
void ip_vs_mhs_note_fin(const struct ip_vs_mhs_packet *p);
bool ip_vs_mhs_is_last_ack(const struct ip_vs_mhs_packet *p);

/* sched */
void ip_vs_mhs_stats(const struct ip_vs_mhs *mhs, struct ip_vs_dest *dest,
		     const struct sk_buff *skb, u32 what);
struct ip_vs_mhs_server *ip_vs_mhs_pick(const struct ip_vs_mhs *mhs,
					const u32 *slot, u32 idx,
					unsigned int flags);
struct ip_vs_mhs_server *ip_vs_mhs_pick_lone(const struct ip_vs_mhs *mhs,
					     const u32 *slot, u32 w,
					     unsigned int flags);

/* entry */
bool ip_vs_mhs_may_track(struct ip_vs_mhs *mhs, bool quic);
struct ip_vs_conn *ip_vs_mhs_make_entry(struct ip_vs_mhs *mhs,
					struct ip_vs_mhs_packet *p, u32 *slot,
					struct ip_vs_dest *dest,
					enum ip_vs_mhs_cnt kind);
unsigned int ip_vs_mhs_entry_first(struct ip_vs_mhs *mhs,
				   struct ip_vs_mhs_packet *p,
				   struct ip_vs_conn *cp, u32 stats);
void ip_vs_mhs_entry_closes(struct ip_vs_conn *cp);
bool ip_vs_mhs_by_entry(struct ip_vs_mhs *mhs, struct ip_vs_mhs_packet *p,
			u32 *slot, bool ours, unsigned int *verdict);

/* pkt */
unsigned int ip_vs_mhs_send(struct ip_vs_conn *carrier,
			    struct ip_vs_mhs_packet *p);
struct ip_vs_mhs *ip_vs_mhs_service(const struct ip_vs_mhs_packet *p,
				    u16 protocol,
				    const union nf_inet_addr *addr,
				    __be16 port);
bool ip_vs_mhs_mark_unsure(const struct ip_vs_mhs *mhs, u32 mark);

/* pair */
struct ip_vs_mhs_server *ip_vs_mhs_pair_find(const struct ip_vs_mhs_net *mn,
					     u16 af, u16 protocol,
					     const union nf_inet_addr *addr,
					     __be16 port);

/* nat */
struct ip_vs_conn *ip_vs_mhs_reply_carrier(const struct ip_vs_mhs_packet *p,
					   u16 protocol,
					   const union nf_inet_addr *addr,
					   __be16 port,
					   struct ip_vs_mhs_server **server);
bool ip_vs_mhs_slot_names(const struct ip_vs_mhs_server *s, u32 w);
bool ip_vs_mhs_gather(struct netns_ipvs *ipvs, struct sk_buff *skb);
void ip_vs_mhs_request(struct sk_buff *skb, u16 af,
		       const struct ip_vs_iphdr *iph);
unsigned int ip_vs_mhs_reply(struct ip_vs_mhs_packet *p);
bool ip_vs_mhs_reply_ours(const struct ip_vs_mhs_server *s, u32 *slot,
			  struct ip_vs_proto_data *pd, struct sk_buff *skb,
			  const struct ip_vs_iphdr *iph);
unsigned int ip_vs_mhs_reply_done(const struct ip_vs_mhs_server *s,
				  const struct ip_vs_conn *carrier,
				  struct sk_buff *skb);

/* icmp */
unsigned int ip_vs_mhs_icmp(struct netns_ipvs *ipvs,
			    struct ip_vs_mhs_packet *p);

/* Are there masquerading servers whose replies we know? */
static inline bool ip_vs_mhs_pairs(const struct ip_vs_mhs_net *mn, u16 af)
{
	return atomic_read(&mn->pairs[af == AF_INET6]);
}

/* The slot of a client */
static inline u32 *ip_vs_mhs_slot(const struct ip_vs_mhs *mhs,
				  const union nf_inet_addr *caddr, __be16 cport)
{
	u64 hash = ip_vs_mhs_hash_client(mhs->af, caddr,
					 READ_ONCE(mhs->addr_only) ? 0 : cport);

	return &mhs->slots[(hash >> 32) * mhs->size >> 32];
}

/* Is the table of the service not final yet?  Asked by every packet before it
 * reads its slot, because the first one ends the youth of the service: after
 * that a change opens transitions.
 */
static inline bool ip_vs_mhs_settling(struct ip_vs_mhs *mhs)
{
	/* Pairs with the release in settle_end() and settle_young(): who sees
	 * the service settled sees its final table.
	 */
	u32 phase = smp_load_acquire(&mhs->phase);

	while (unlikely(phase == MHS_YOUNG)) {
		/* Pairs with the exchange in ip_vs_mhs_unsettle() */
		if (try_cmpxchg(&mhs->phase, &phase, MHS_WOKEN))
			break;
		/* A failed exchange promises no barrier */
		phase = smp_load_acquire(&mhs->phase);
	}
	return phase == MHS_SETTLING;
}

/* Is every flow to have an entry? */
static inline bool ip_vs_mhs_stateful(const struct ip_vs_mhs_packet *p)
{
	return unlikely(!READ_ONCE(p->net->stateless));
}

/* Must an entry be looked for, whatever the slot says? */
static inline bool ip_vs_mhs_backup(const struct netns_ipvs *ipvs)
{
	return READ_ONCE(ipvs->sync_state) & IP_VS_STATE_BACKUP;
}

/* Is it a packet of this host itself? */
static inline bool ip_vs_mhs_is_local(const struct ip_vs_mhs_packet *p)
{
	return p->hook == NF_INET_LOCAL_OUT;
}

#endif /* _IP_VS_MHS_PKT_H */
