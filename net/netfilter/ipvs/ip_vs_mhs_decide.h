/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: where does a packet go?
 *
 * The decision uses no skb, IPVS type, lock or clock, so tests in user space
 * can check every case.  mhs_packet_decide() gathers the facts, mhs_decide() returns a
 * verdict, and the caller of mhs_packet_decide() carries it out:
 *
 *	packet to a service of mhs
 *	  |
 *	  |-- QUIC, the connection ID names a server ----> carrier, that server
 *	  |-- mhs_decide_looks(), entry found -----------> by the entry
 *	  |-- settling: new flow ------------------------> core, entry
 *	  |             older flow ----------------------> drop, client resends
 *	  |-- stable slot -------------------------------> carrier, candidate
 *	  |   its server out of service, new flow -------> as if unstable
 *	  |-- unstable slot, new flow -------------------> entry, candidate
 *	  |                  older flow, hold -----------> carrier, old server
 *	  |                  older flow, pin ------------> entry, old server
 *	  |                  plain UDP, hold ------------> carrier, old server
 *	  |                             else ------------> carrier, candidate
 *	  |                             that is to stay -> the same by an entry
 *	  '-- no server ---------------------------------> core
 *
 * The core passes a mid-flow packet without an entry to the local stack, which
 * resets the connection.  A flow without an entry thus never goes to the core
 * while the slot has a server for the flow.  Persistence and an upper threshold
 * affect new flows only.
 *
 * One 32-bit word holds a whole slot of the lookup table:
 *
 *	 31 30  29      26  25             13  12              0
 *	+-----+-----------+-----------------+-----------------+
 *	|track|   stage   |      other      |    candidate    |
 *	+-----+-----------+-----------------+-----------------+
 *
 * candidate	index of the server for new flows; 0 is "no server"
 * other	index of the old server, for older flows; in a stable slot, which has
 *		one server, the former one, if the service has the second chance, else 0
 * stage	0 stable, 1..4 hold, 5..15 pin
 * track	two ages of "flows of this slot may have an entry"
 *
 * A change back to the old server makes a slot stable at once, any other replaces
 * the candidate.
 *
 * A slot may enter its first stage between two ticks, so a phase has one stage
 * more than ticks to wait.  The hold phase lasts at most a third longer than the
 * hold time, the pin phase at most a tenth longer than the pin time.
 */
#ifndef _IP_VS_MHS_DECIDE_H
#define _IP_VS_MHS_DECIDE_H

#include "ip_vs_mhs_table.h"

#define MHS_OTHER_SHIFT		MHS_IDX_BITS
#define MHS_STAGE_SHIFT		(2 * MHS_IDX_BITS)
#define MHS_STAGE_MASK		0xfU
#define MHS_STAGE_STABLE	0U
#define MHS_STAGE_HOLD		1U	/* first stage of the hold phase */
#define MHS_STAGE_PIN		5U	/* first stage of the pin phase */
#define MHS_STAGE_LAST		15U	/* the next pin tick merges */
#define MHS_HOLD_TICKS		(MHS_STAGE_PIN - MHS_STAGE_HOLD - 1)
#define MHS_PIN_TICKS		(MHS_STAGE_LAST - MHS_STAGE_PIN)

#define MHS_TRACK_CUR		0x40000000U
#define MHS_TRACK_PREV		0x80000000U
#define MHS_TRACK		(MHS_TRACK_CUR | MHS_TRACK_PREV)

/* The clocks of a service, and BIT() of those that ticked, for mhs_slot_tick() */
enum { MHS_CLOCK_HOLD, MHS_CLOCK_PIN, MHS_CLOCK_TRACK, MHS_CLOCKS };
#define MHS_TICK_HOLD		1U
#define MHS_TICK_PIN		2U
#define MHS_TICK_TRACK		4U

static inline u32 mhs_slot_cand(u32 w)
{
	return w & MHS_IDX_MAX;
}

static inline u32 mhs_slot_stage(u32 w)
{
	return (w >> MHS_STAGE_SHIFT) & MHS_STAGE_MASK;
}

static inline bool mhs_slot_stable(u32 w)
{
	return mhs_slot_stage(w) == MHS_STAGE_STABLE;
}

static inline bool mhs_slot_pinning(u32 w)
{
	return mhs_slot_stage(w) >= MHS_STAGE_PIN;
}

static inline bool mhs_slot_holding(u32 w)
{
	return !mhs_slot_stable(w) && !mhs_slot_pinning(w);
}

/* The server of older flows; of all flows if the slot is stable */
static inline u32 mhs_slot_old(u32 w)
{
	return mhs_slot_stable(w) ? mhs_slot_cand(w) :
	       (w >> MHS_OTHER_SHIFT) & MHS_IDX_MAX;
}

/* The server of the slot that older flows do not go to */
static inline u32 mhs_slot_spare(u32 w)
{
	return mhs_slot_stable(w) ? (w >> MHS_OTHER_SHIFT) & MHS_IDX_MAX :
	       mhs_slot_cand(w);
}

static inline bool mhs_slot_tracked(u32 w)
{
	return w & MHS_TRACK;
}

u32 mhs_slot_change(u32 w, u32 idx, bool at_once, u32 first_stage);
u32 mhs_slot_tick(u32 w, u32 ticks);

/* Sparse tells them apart: facts of a server, those of a question, a verdict */
typedef u32 __bitwise mhs_srv_t;
typedef u32 __bitwise mhs_facts_t;
typedef u32 __bitwise mhs_verdict_t;

#define MHS_SRV(N)	((__force mhs_srv_t)(N))
#define MHS_FACT(N)	((__force mhs_facts_t)(N))
#define MHS_VERDICT(N)	((__force mhs_verdict_t)(N))

/* Facts of a server: what struct mhs_server.facts holds ... */
#define MHS_SRV_IN		MHS_SRV(0x1U)	/* listed, weight > 0: gets new flows */
#define MHS_SRV_GONE		MHS_SRV(0x2U)	/* deleted */
#define MHS_SRV_NEW_ENTRY	MHS_SRV(0x4U)	/* new flows need an entry */
#define MHS_SRV_ALL_ENTRY	MHS_SRV(0x8U)	/* all flows need entries: no carrier */
#define MHS_SRV_FROZEN		MHS_SRV(0x10U)	/* the carrier is for older flows */
#define MHS_SRV_METHOD		(MHS_SRV_ALL_ENTRY | MHS_SRV_FROZEN)
/* ... and what mhs_server_facts() adds; all 0 without a server */
#define MHS_SRV_EXISTS		MHS_SRV(0x100U)	/* there is a server */
#define MHS_SRV_CARRIER		MHS_SRV(0x200U)	/* the server has a carrier */
#define MHS_SRV_FULL		MHS_SRV(0x400U)	/* above the upper threshold */
#define MHS_SRV_PIN_OLDER		MHS_SRV(0x800U)	/* a new threshold: pin older flows */

/* Facts of the service: its flags, with the values of IP_VS_SVC_F_* ... */
#define MHS_SVC_PERSISTENT	MHS_FACT(0x1U)
#define MHS_SVC_ONE_PACKET	MHS_FACT(0x4U)
#define MHS_SVC_FALLBACK	MHS_FACT(0x8U)	/* flag-1: pass over full servers */
#define MHS_SVC_FLAGS		(MHS_SVC_PERSISTENT | MHS_SVC_ONE_PACKET | \
				 MHS_SVC_FALLBACK)
/* ... and the rest */
#define MHS_SVC_SETTLING	MHS_FACT(0x100U)	/* the table is not final yet */
#define MHS_SVC_BACKUP		MHS_FACT(0x200U)	/* the sync daemon adds entries */
#define MHS_SVC_STATEFUL	MHS_FACT(0x400U)	/* stateless=0: all flows get entries */
/* Facts of the packet */
#define MHS_PKT_NEW		MHS_FACT(0x10000U)	/* the first of a flow */
#define MHS_PKT_ENDS		MHS_FACT(0x20000U)	/* ends a flow, or has none */
#define MHS_PKT_CONNLESS	MHS_FACT(0x40000U)	/* UDP: no packet begins a flow */
#define MHS_PKT_ERROR		MHS_FACT(0x80000U)	/* ICMP error about a flow */
#define MHS_PKT_NO_PORT		MHS_FACT(0x100000U)	/* client port 0: no entry */
#define MHS_PKT_LEFT		MHS_FACT(0x200000U)	/* left an expiring entry */
#define MHS_PKT_NO_ID		MHS_FACT(0x400000U)	/* its connection ID names none */
#define MHS_PKT_STAYS		MHS_FACT(0x800000U)	/* UDP of the stay_ports */
#define MHS_PKT_ANSWERS		MHS_FACT(0x4000000U)	/* goes on with a handshake */
#define MHS_PKT_ODD		MHS_FACT(0x8000000U)	/* perhaps QUIC, perhaps not */
/* Facts of a second question, after an act that failed or MHS_SEARCH */
#define MHS_AGAIN_NO_ENTRY	MHS_FACT(0x1000000U)	/* limit, no memory, or a claim */
#define MHS_AGAIN_SEARCHED	MHS_FACT(0x2000000U)	/* candidate from a search */

/* Counters of a service; the order is that of the columns in /proc */
enum mhs_cnt {
	MHS_CNT_STABLE,		/* forwarded by a stable slot */
	MHS_CNT_OLD,		/* unstable slot: old server, no entry */
	MHS_CNT_CAND,		/* unstable slot or stateless=0: candidate */
	MHS_CNT_ENTRY,		/* had an entry; these four count requests */
	MHS_CNT_NEW,		/* entries made for new flows */
	MHS_CNT_PINNED,		/* entries made for older flows */
	MHS_CNT_CAPPED,		/* no entry: limit reached */
	MHS_CNT_NOMEM,		/* no memory for an entry or a server */
	MHS_CNT_UNSETTLED,	/* dropped: the table is not final yet */
	MHS_CNT_ICMP,		/* ICMP errors about flows without an entry */
	MHS_CNT_LANE,		/* forwarded by a lane; also counted above */
	MHS_CNT_LANE_STABLE,	/* STATELESS and LANE at once */
	MHS_CNT_BY_ID,		/* forwarded by a connection ID */
	MHS_CNT_NO_ID,		/* the ID names no server; also counted above */
	MHS_CNT_MAX
};

/* What is to be done with a packet; up to MHS_FORWARD an act is final */
enum mhs_act {
	MHS_CORE,	/* leave the packet to the core */
	MHS_DROP,	/* the client resends */
	MHS_FORWARD,	/* by the server's carrier */
	/* make an entry; on failure decide again, with MHS_AGAIN_NO_ENTRY */
	MHS_NEW,	/* for a new flow */
	MHS_PIN,	/* for an older one */
	MHS_SEARCH,	/* another server, then again with MHS_AGAIN_SEARCHED */
};

/* A verdict is one word: an act, what to count, and flags */
#define MHS_ACT			0x7U	/* enum mhs_act */
#define MHS_COUNT_SHIFT		4
#define MHS_COUNT		(0xfU << MHS_COUNT_SHIFT)
#define MHS_TO_CAND		MHS_VERDICT(0x100U)	/* to the candidate, not to old */
#define MHS_CONN		MHS_VERDICT(0x200U)	/* counts as a connection */
#define MHS_TRACKS		MHS_VERDICT(0x400U)	/* first set the tracked bit */
#define MHS_CUTS		MHS_VERDICT(0x800U)	/* first cut the slot, else drop */
#define MHS_NO_ID		MHS_VERDICT(0x1000U)	/* in a lane: to count */

static inline enum mhs_act mhs_verdict_act(mhs_verdict_t v)
{
	return (__force u32)v & MHS_ACT;
}

static inline enum mhs_cnt mhs_verdict_count(mhs_verdict_t v)
{
	return ((__force u32)v & MHS_COUNT) >> MHS_COUNT_SHIFT;
}

static inline mhs_verdict_t mhs_verdict(enum mhs_act act, enum mhs_cnt count,
					mhs_verdict_t flags)
{
	return (__force mhs_verdict_t)(act | (u32)count << MHS_COUNT_SHIFT) |
	       flags;
}

/* Must the caller look for an entry before the decision?  Where flows of the slot have
 * one, or others make entries: the core or the sync daemon.
 */
static inline bool mhs_decide_looks(u32 w, mhs_facts_t facts)
{
	return mhs_slot_tracked(w) ||
	       facts & (MHS_SVC_SETTLING | MHS_SVC_PERSISTENT | MHS_SVC_BACKUP);
}

static inline bool mhs_decide_takes(mhs_srv_t server)
{
	return (server & (MHS_SRV_IN | MHS_SRV_FULL)) == MHS_SRV_IN;
}

/* May another server take the flow?  If full, only by a flag, as in mh. */
static inline bool mhs_decide_searches(mhs_srv_t server, mhs_facts_t facts)
{
	return !(server & MHS_SRV_IN) || facts & MHS_SVC_FALLBACK;
}

/* May a connection ID, which makes no entry, name the server? */
static inline bool mhs_decide_by_id(mhs_srv_t server)
{
	return server & MHS_SRV_CARRIER &&
	       !(server & (MHS_SRV_NEW_ENTRY | MHS_SRV_METHOD));
}

/* Facts that need mhs_decide() in a stable slot, too */
#define MHS_FACTS_SLOW		(MHS_PKT_ERROR | MHS_SVC_ONE_PACKET | \
				 MHS_SVC_PERSISTENT | MHS_SVC_STATEFUL | \
				 MHS_SVC_SETTLING)

/* Does the packet, like almost all, just go to the server of its slot?  What
 * mhs_decide() would say then is MHS_FORWARD, MHS_CNT_STABLE.
 */
static inline bool mhs_decide_is_quick(u32 w, mhs_srv_t server,
				       mhs_facts_t facts)
{
	return server == (MHS_SRV_IN | MHS_SRV_EXISTS | MHS_SRV_CARRIER) &&
	       mhs_slot_stable(w) && !(facts & MHS_FACTS_SLOW);
}

mhs_verdict_t mhs_decide(u32 w, mhs_srv_t old, mhs_srv_t cand,
			 mhs_facts_t facts);

/* The state of SipHash (Aumasson and Bernstein, 2012); the callers choose the
 * numbers of rounds
 */
struct sip {
	u64	a, b, c, d;
};

/* The constants spell "somepseudorandomlygeneratedbytes" */
static __always_inline struct sip sip_begin(const siphash_key_t *key)
{
	return (struct sip){
		key->key[0] ^ 0x736f6d6570736575ULL,
		key->key[1] ^ 0x646f72616e646f6dULL,
		key->key[0] ^ 0x6c7967656e657261ULL,
		key->key[1] ^ 0x7465646279746573ULL,
	};
}

/* linux/siphash.h of older kernels lacks the round, as user space does */
static __always_inline void sip_round(struct sip *v)
{
	v->a += v->b;
	v->b = rol64(v->b, 13) ^ v->a;
	v->a = rol64(v->a, 32);
	v->c += v->d;
	v->d = rol64(v->d, 16) ^ v->c;
	v->a += v->d;
	v->d = rol64(v->d, 21) ^ v->a;
	v->c += v->b;
	v->b = rol64(v->b, 17) ^ v->c;
	v->c = rol64(v->c, 32);
}

/* @n is a compile-time constant, at most 4 */
static __always_inline void sip_rounds(struct sip *v, u32 n)
{
	sip_round(v);
	if (n > 1)
		sip_round(v);
	if (n > 2)
		sip_round(v);
	if (n > 3)
		sip_round(v);
}

static __always_inline void sip_word(struct sip *v, u32 rounds, u64 word)
{
	v->d ^= word;
	sip_rounds(v, rounds);
	v->a ^= word;
}

static __always_inline u64 sip_end(struct sip *v, u32 rounds)
{
	v->c ^= 0xff;
	sip_rounds(v, rounds);
	return v->a ^ v->b ^ v->c ^ v->d;
}

static __always_inline u64 ip6_high(const union nf_inet_addr *addr)
{
	return (u64)ntohl(addr->ip6[0]) << 32 | ntohl(addr->ip6[1]);
}

static __always_inline u64 ip6_low(const union nf_inet_addr *addr)
{
	return (u64)ntohl(addr->ip6[2]) << 32 | ntohl(addr->ip6[3]);
}

/* The hash of a client; @port, in host order, 0 hashes the address alone.  SipHash-1-3,
 * as every packet pays for it.  Directors must compute the same hash and no
 * fingerprint shows a difference, so the function must never change.
 */
static __always_inline u64
mhs_hash_client(const siphash_key_t *key, bool ip6,
		const union nf_inet_addr *addr, u16 port)
{
	struct sip v = sip_begin(key);

	if (ip6) {
		sip_word(&v, 1, ip6_high(addr));
		sip_word(&v, 1, ip6_low(addr));
		sip_word(&v, 1, 18ULL << 56 | port);
	} else {
		sip_word(&v, 1, 6ULL << 56 | (u64)ntohl(addr->ip) << 16 | port);
	}
	return sip_end(&v, 3);
}

/* Does a QUIC packet begin a flow, and where is its connection ID?  The caller has
 * checked the length of a header.
 */

/* RFC 8999: the long header; RFC 9000, 9369: the type of an Initial */
#define MHS_QUIC_LONG_HEADER	0x80
#define MHS_QUIC_FIXED_BIT	0x40
#define MHS_QUIC_TYPE_SHIFT	4
#define MHS_QUIC_TYPE_MASK	0x3
#define MHS_QUIC_V1		0x00000001
#define MHS_QUIC_V1_INITIAL	0
#define MHS_QUIC_V1_HANDSHAKE	2
#define MHS_QUIC_V2		0x6b3343cf
#define MHS_QUIC_V2_INITIAL	1
#define MHS_QUIC_V2_HANDSHAKE	3

/* The start of a QUIC packet with a long header */
struct mhs_quic {
	u8	flags;
	__be32	version;
} __packed;

#define MHS_QUIC_CID_MAX	20

/* Octets of an ID behind the first one: the server's and a nonce of 4 at least, or
 * both in one block.  mhs_quic_id() reads at most a long header, the length of an ID,
 * and these.
 */
#define MHS_QUIC_UNKEYED	8
#define MHS_QUIC_BLOCK		16
#define MHS_QUIC_BYTES		(sizeof(struct mhs_quic) + 2 + MHS_QUIC_BLOCK)

/* Has a long header that type, of version 1 or 2? */
static inline bool mhs_quic_is(const struct mhs_quic *h, u8 v1, u8 v2)
{
	u8 type = h->flags >> MHS_QUIC_TYPE_SHIFT & MHS_QUIC_TYPE_MASK;

	switch (ntohl(h->version)) {
	case MHS_QUIC_V1:
		return type == v1;
	case MHS_QUIC_V2:
		return type == v2;
	}
	return false;
}

/* Of a short header, 4 octets more and the 16 that its protection takes */
#define MHS_QUIC_MIN	21

/* The records of DTLS up to 1.2, the messages of WireGuard */
static inline bool mhs_quic_is_foreign(const struct mhs_quic *h)
{
	u32 next = ntohl(h->version);

	return h->flags < 5 ? h->flags && next < 0x100 :
	       h->flags >= 20 && h->flags <= 26 && next >> 24 == 0xfe;
}

/* What are @bytes of UDP to a QUIC port?  Long headers of an unknown version may
 * all begin a flow.  Who clears the fixed bit may send QUIC (RFC 9287).
 */
static inline mhs_facts_t mhs_quic_facts(const struct mhs_quic *h, unsigned int bytes)
{
	u32 version = ntohl(h->version);

	if (bytes < MHS_QUIC_MIN || mhs_quic_is_foreign(h))
		return MHS_PKT_CONNLESS;
	if (!(h->flags & MHS_QUIC_LONG_HEADER))
		return h->flags & MHS_QUIC_FIXED_BIT ? 0 : MHS_PKT_ODD;
	if (version == MHS_QUIC_V1 || version == MHS_QUIC_V2)
		return mhs_quic_is(h, MHS_QUIC_V1_INITIAL, MHS_QUIC_V2_INITIAL) ?
		       MHS_PKT_NEW : MHS_PKT_ANSWERS;
	return h->flags & MHS_QUIC_FIXED_BIT ? MHS_PKT_NEW : MHS_PKT_CONNLESS;
}

/* The offset of the @need octets after the first one of the destination
 * connection ID, if a server may have issued the ID (clients choose those of
 * Initial and 0-RTT packets), or 0.
 */
static inline unsigned int mhs_quic_id(const u8 *h, unsigned int bytes,
				       unsigned int need)
{
	const unsigned int head = sizeof(struct mhs_quic);
	unsigned int at = 1;

	if (bytes && *h & MHS_QUIC_LONG_HEADER) {
		if (bytes <= head || h[head] <= need ||
		    h[head] > MHS_QUIC_CID_MAX ||
		    !mhs_quic_is((const struct mhs_quic *)h,
				 MHS_QUIC_V1_HANDSHAKE, MHS_QUIC_V2_HANDSHAKE))
			return 0;
		at = head + 1;
	}
	return bytes > at + need ? at + 1 : 0;
}

#endif /* _IP_VS_MHS_DECIDE_H */
