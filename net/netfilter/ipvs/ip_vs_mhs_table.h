/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: hashes, the slot word and the table fill.
 *
 * Pure: the same source compiles in user space for property tests and a model.
 *
 * One 32-bit word holds a whole slot of the lookup table:
 *
 *	 31 30  29      26  25             13  12              0
 *	+-----+-----------+-----------------+-----------------+
 *	|track|   stage   |       old       |    candidate    |
 *	+-----+-----------+-----------------+-----------------+
 *
 * candidate	index of the server for new flows; 0 is "no server"
 * old		index of the server for older flows; in a stable slot, which has one
 *		server, the former one, if the service has the second chance, else 0
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
#ifndef _IP_VS_MHS_TABLE_H
#define _IP_VS_MHS_TABLE_H

#include <linux/types.h>
#include <linux/netfilter.h>
#include <linux/siphash.h>

extern siphash_key_t mhs_hash_key;	/* of both hashes */

void mhs_hash_set_key(const u8 *raw);
u64 mhs_hash_server(const siphash_key_t *key, u16 af,
		    const union nf_inet_addr *addr, __be16 port);
u64 mhs_hash_client(const siphash_key_t *key, u16 af,
		    const union nf_inet_addr *addr, __be16 port);

#define MHS_IDX_BITS		13
#define MHS_IDX_MAX		((1U << MHS_IDX_BITS) - 1)
#define MHS_IDX_NONE		0U

#define MHS_OLD_SHIFT		MHS_IDX_BITS
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
	       (w >> MHS_OLD_SHIFT) & MHS_IDX_MAX;
}

/* The server of the slot that older flows do not go to */
static inline u32 mhs_slot_other(u32 w)
{
	return mhs_slot_stable(w) ? (w >> MHS_OLD_SHIFT) & MHS_IDX_MAX :
	       mhs_slot_cand(w);
}

static inline bool mhs_slot_tracked(u32 w)
{
	return w & MHS_TRACK;
}

u32 mhs_slot_change(u32 w, u32 idx, bool at_once, u32 first_stage);
u32 mhs_slot_tick(u32 w, u32 ticks);

/* One server during a table fill */
struct mhs_share {
	u32	weight;	/* 1 to 2^31 - 1 */
	u32	pos;	/* the next slot of the server's permutation, or the last */
	u32	skip;	/* step of the permutation */
	u32	taken;	/* slots so far */
	u16	next;	/* in the queue of the same round */
};

/* Scratch space for one table fill */
struct mhs_fill {
	u32			size;	/* number of slots, a prime */
	u16			*table;	/* result: each slot's position in share */
	u16			*head;	/* first server due in each round */
	u16			*tail;	/* the last one */
	struct mhs_share	*share;	/* the servers, sorted by address */
};

#define MHS_FILL_NONE		0xffffU

bool mhs_table_size_valid(u32 size);
int mhs_table_order(u16 af_a, const union nf_inet_addr *a, __be16 port_a,
		    u16 af_b, const union nf_inet_addr *b, __be16 port_b);
void mhs_share_init(struct mhs_share *s, u32 weight, u64 hash, u32 size);
u32 mhs_table_fill(struct mhs_fill *f, u32 n);
u64 mhs_table_fingerprint(u64 print, u64 id);

#endif /* _IP_VS_MHS_TABLE_H */
