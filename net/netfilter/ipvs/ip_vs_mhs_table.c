// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: hashes and the table fill.
 *
 * The fill is Maglev (Eisenbud et al., NSDI 2016) with weights by credit: a server
 * begins with half a credit, earns weight / maxweight credits a round and takes a
 * slot for each whole credit.  So the k-th slot of a server is due in round
 *
 *	ceil((k - 1/2) * maxweight / weight)
 *
 * The half credit rounds shares to the nearest slot; rounded down, they would favour
 * heavy servers.  Servers wait in one queue per round, and one that takes a slot
 * moves to the end of the queue of its next round: one step per slot.
 *
 * The table depends only on the sorted set of servers, the table size and the hash
 * key, so directors agree without messages.
 */
#ifdef __KERNEL__
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/string.h>
#else
#define cond_resched()
#endif
#include <linux/siphash.h>

#include "ip_vs_mhs_decide.h"

/* The largest prime below each power of two from 2^8 to 2^19; mh has the sizes up
 * to 2^17
 */
static const u32 mhs_sizes[] = {
	251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139,
	524287,
};

bool mhs_table_size_valid(u32 size)
{
	u32 i;

	for (i = 0; i < sizeof(mhs_sizes) / sizeof(u32); i++)
		if (mhs_sizes[i] == size)
			return true;
	return false;
}

/* Default key: digits of pi, which are public and unrelated to any address */
siphash_key_t mhs_hash_key = {
	{ 0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL },
};

/* Set mhs_hash_key, before a service or a hash uses it; @raw: 16 bytes */
void mhs_hash_set_key(const u8 *raw)
{
	siphash_key_t *key = &mhs_hash_key;
	u32 i;

	*key = (siphash_key_t){};
	for (i = 0; i < sizeof(*key); i++)
		key->key[i / 8] |= (u64)raw[i] << 8 * (i % 8);
}

/* SipHash-2-4 over address and port, in one byte order, so directors of any
 * architecture agree
 */
u64 mhs_hash_server(const siphash_key_t *key, u16 af,
		    const union nf_inet_addr *addr, __be16 port)
{
	struct sip v = sip_begin(key);

	if (af == AF_INET6) {
		sip_word(&v, 2, ip6_high(addr));
		sip_word(&v, 2, ip6_low(addr));
		sip_word(&v, 2, ntohs(port));
		sip_word(&v, 2, 24ULL << 56);
	} else {
		sip_word(&v, 2, (u64)ntohl(addr->ip) << 16 | ntohs(port));
		sip_word(&v, 2, 8ULL << 56);
	}
	return sip_end(&v, 4);
}

/* Compare two servers for the order of the fill: less than 0 if a comes first */
int mhs_table_order(u16 af_a, const union nf_inet_addr *a, __be16 port_a,
		    u16 af_b, const union nf_inet_addr *b, __be16 port_b)
{
	int i, n = af_a == AF_INET6 ? 4 : 1;

	if (af_a != af_b)
		return af_a < af_b ? -1 : 1;
	for (i = 0; i < n; i++)
		if (a->ip6[i] != b->ip6[i])
			return ntohl(a->ip6[i]) < ntohl(b->ip6[i]) ? -1 : 1;
	return (int)ntohs(port_a) - (int)ntohs(port_b);
}

/* Prepare one server, with its mhs_hash_server(), for a fill */
void mhs_share_init(struct mhs_share *s, u32 weight, u64 hash, u32 size)
{
	s->weight = weight;
	s->pos = (hash >> 32) * size >> 32;
	s->skip = ((hash & 0xffffffffU) * (size - 1) >> 32) + 1;
	s->taken = 0;
	s->next = MHS_FILL_NONE;
}

/* The round in which the next slot of @s is due.  The product has at most 51
 * bits.  IPVS weights are of type int, so twice a weight fits into u32.
 */
static u64 share_due(const struct mhs_share *s, u32 max_weight)
{
	u64 credit = (u64)(2 * s->taken + 1) * max_weight;

	return div_u64(credit + 2 * s->weight - 1, 2 * s->weight);
}

/* Append server @i to the queue of its next round, if any round is left */
static void share_enqueue(struct mhs_fill *f, u32 i, u32 max_weight)
{
	u64 round = share_due(&f->share[i], max_weight);

	if (round > f->size)
		return;
	round--;
	f->share[i].next = MHS_FILL_NONE;
	if (f->head[round] == MHS_FILL_NONE)
		f->head[round] = i;
	else
		f->share[f->tail[round]].next = i;
	f->tail[round] = i;
}

/* Take the next free slot in the permutation of @s, for whom the caller marks it
 * as taken.  The loop reaches every slot, because size is a prime and
 * 0 < skip < size.
 */
static u32 share_take(struct mhs_fill *f, struct mhs_share *s)
{
	u32 pos = s->pos;

	while (f->table[pos] != MHS_FILL_NONE) {
		pos += s->skip;
		if (pos >= f->size)
			pos -= f->size;
	}
	s->pos = pos;
	s->taken++;
	return pos;
}

/* Compute a lookup table of @n servers, f->share[0..n-1]; returns how many are left
 * without a slot.  Takes milliseconds, with 8,191 servers whose addresses an adversary
 * has chosen a second.
 */
u32 mhs_table_fill(struct mhs_fill *f, u32 n)
{
	u32 max_weight = 0, filled = 0, empty = 0;
	u32 round, i, next;

	memset(f->table, 0xff, f->size * sizeof(*f->table));
	if (!n)
		return 0;
	memset(f->head, 0xff, f->size * sizeof(*f->head));
	for (i = 0; i < n; i++)
		if (f->share[i].weight > max_weight)
			max_weight = f->share[i].weight;
	for (i = 0; i < n; i++)
		share_enqueue(f, i, max_weight);

	/* The heaviest server takes a slot in every round, so size rounds suffice */
	for (round = 0; filled < f->size; round++) {
		for (i = f->head[round]; i != MHS_FILL_NONE; i = next) {
			struct mhs_share *s = &f->share[i];

			next = s->next;
			f->table[share_take(f, s)] = i;
			if (++filled == f->size)
				break;
			share_enqueue(f, i, max_weight);
		}
		cond_resched();
	}
	for (i = 0; i < n; i++)
		empty += !f->share[i].taken;
	return empty;
}

/* Add one slot to the fingerprint of a table, which is 0 before the first and
 * depends on their order; @id is the hash of the slot's server, 0 without one.
 */
u64 mhs_table_fingerprint(u64 print, u64 id)
{
	print = (print ^ id) * 0x9e3779b97f4a7c15ULL;
	return print ^ print >> 29;
}
