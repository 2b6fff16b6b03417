/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: hashes and the table fill.
 *
 * Pure: the same source compiles in user space for property tests and a model.
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

#define MHS_IDX_BITS		13
#define MHS_IDX_MAX		((1U << MHS_IDX_BITS) - 1)
#define MHS_IDX_NONE		0U

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
