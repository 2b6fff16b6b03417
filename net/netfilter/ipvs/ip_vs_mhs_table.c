// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: hashes, the slot word and the table fill.
 *
 * The fill is Maglev (Eisenbud et al., NSDI 2016) with weights by credit:
 * a server begins with half a credit, in each round it earns weight / maxweight
 * of a slot and claims one for each whole credit, so the server with the
 * highest weight claims one slot a round and the k-th slot of a server falls
 * due in round
 *
 *	ceil((k - 1/2) * maxweight / weight)
 *
 * Half a credit rounds shares to the nearest slot.  From zero they would all be
 * rounded down, and the heavy servers would get what the light ones lose: with
 * 1,000 servers in 4093 slots 12 % too much for one that has half the weight.
 *
 * Walking every server in every round would cost slots * servers when one
 * weight dwarfs the others.  Servers wait in a queue per round instead, and
 * a claim puts its server at the end of the queue of its next round: one
 * step a slot, whatever the weights.
 *
 * The result depends on the sorted set of servers, the table size and the
 * hash key alone, so directors agree without talking to each other.
 */
#ifdef __KERNEL__
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/string.h>
#endif
#include <linux/siphash.h>

#include "ip_vs_mhs_table.h"

/* The ten sizes that mh and Cilium know: the largest prime below each power
 * of two from 2^8 to 2^17.
 */
static const u32 ip_vs_mhs_sizes[] = {
	251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071,
};

/**
 * ip_vs_mhs_table_size_valid() - is this a size a table can have?
 * @size: number of slots
 *
 * Context: any.
 * Return: true for one of the ten primes.
 */
bool ip_vs_mhs_table_size_valid(u32 size)
{
	u32 i;

	for (i = 0; i < sizeof(ip_vs_mhs_sizes) / sizeof(u32); i++)
		if (ip_vs_mhs_sizes[i] == size)
			return true;
	return false;
}

/* Digits of pi: no secret, but nothing that 10.0.0.1 could meet by chance */
static siphash_key_t table_key __read_mostly = {
	{ 0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL },
};

/**
 * ip_vs_mhs_hash_set_key() - set the key of both hashes
 * @raw: 16 bytes
 *
 * Context: before the first hash.
 */
void ip_vs_mhs_hash_set_key(const u8 *raw)
{
	u32 i;

	table_key = (siphash_key_t){};
	for (i = 0; i < sizeof(table_key); i++)
		table_key.key[i / 8] |= (u64)raw[i] << 8 * (i % 8);
}

/* SipHash of whole words, with as many rounds a word and at the end as given */
struct sip {
	u64	a, b, c, d;
};

static __always_inline struct sip sip_begin(void)
{
	return (struct sip){
		table_key.key[0] ^ SIPHASH_CONST_0,
		table_key.key[1] ^ SIPHASH_CONST_1,
		table_key.key[0] ^ SIPHASH_CONST_2,
		table_key.key[1] ^ SIPHASH_CONST_3,
	};
}

/* @n is a constant, 4 at most */
static __always_inline void sip_rounds(struct sip *v, u32 n)
{
	SIPHASH_PERMUTATION(v->a, v->b, v->c, v->d);
	if (n > 1)
		SIPHASH_PERMUTATION(v->a, v->b, v->c, v->d);
	if (n > 2)
		SIPHASH_PERMUTATION(v->a, v->b, v->c, v->d);
	if (n > 3)
		SIPHASH_PERMUTATION(v->a, v->b, v->c, v->d);
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

/**
 * ip_vs_mhs_hash_server() - keyed hash of a server
 * @af: address family
 * @addr: its address
 * @port: its port
 *
 * SipHash-2-4 over the fields, not over a sum of them, and in one byte order:
 * directors of any kind agree.
 *
 * Context: any.
 * Return: the hash.
 */
u64 ip_vs_mhs_hash_server(u16 af, const union nf_inet_addr *addr, __be16 port)
{
	struct sip v = sip_begin();

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

/**
 * ip_vs_mhs_hash_client() - keyed hash of a client
 * @af: address family
 * @addr: its address
 * @port: its port, 0 to hash the address alone
 *
 * SipHash-1-3, for every packet: half of the rounds of SipHash-2-4, as
 * hsiphash() does it on 64 bits where a hash is the place in a table and no
 * secret.  The message is the address and the port, in the last word below its
 * length in bytes: 6 or 18.  Directors of one fleet must agree on it, and no
 * fingerprint tells whether they do: it is not to change.
 *
 * Context: any.
 * Return: the hash.
 */
u64 ip_vs_mhs_hash_client(u16 af, const union nf_inet_addr *addr, __be16 port)
{
	struct sip v = sip_begin();

	if (af == AF_INET6) {
		sip_word(&v, 1, ip6_high(addr));
		sip_word(&v, 1, ip6_low(addr));
		sip_word(&v, 1, 18ULL << 56 | ntohs(port));
	} else {
		sip_word(&v, 1, 6ULL << 56 | (u64)ntohl(addr->ip) << 16 |
				ntohs(port));
	}
	return sip_end(&v, 3);
}

/**
 * ip_vs_mhs_table_order() - the order of servers in which a table is filled
 * @af_a: address family of one server
 * @a: its address
 * @port_a: its port
 * @af_b: the same of another
 * @b: its address
 * @port_b: its port
 *
 * Context: any.
 * Return: less than, equal to or more than 0, as the one comes before the other.
 */
int ip_vs_mhs_table_order(u16 af_a, const union nf_inet_addr *a, __be16 port_a,
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

/* A stable word that keeps the tracked marks of @w */
static u32 slot_stable(u32 w, u32 idx, u32 used)
{
	return (w & MHS_TRACK) | used | idx;
}

/**
 * ip_vs_mhs_slot_change() - the table says another server for this slot
 * @w: the word
 * @idx: server of the new table, MHS_IDX_NONE when there is none
 * @at_once: nobody can be harmed: the service settles or its older flows
 *	are to be cut
 * @first_stage: MHS_STAGE_HOLD, or MHS_STAGE_PIN when nothing is held
 *
 * A slot without a server or without a packet for a whole pin time has no
 * flow to lose.  A slot in transition keeps its clock.
 *
 * Context: any; the caller stores the result with compare-and-exchange.
 * Return: the new word, @w itself when nothing changes.
 */
u32 ip_vs_mhs_slot_change(u32 w, u32 idx, bool at_once, u32 first_stage)
{
	u32 old = ip_vs_mhs_slot_old(w);

	if (ip_vs_mhs_slot_stable(w)) {
		if (idx == old)
			return w;
		if (at_once || !(w & MHS_USED) || old == MHS_IDX_NONE)
			return slot_stable(w, idx, w & MHS_USED);
		return (w & MHS_TRACK) | first_stage << MHS_STAGE_SHIFT |
		       old << MHS_OLD_SHIFT | idx;
	}
	if (at_once || idx == old)
		return slot_stable(w, idx, MHS_USED);
	return (w & ~MHS_IDX_MAX) | idx;
}

/**
 * ip_vs_mhs_slot_tick() - move a slot on when clocks tick
 * @w: the word
 * @ticks: MHS_TICK_* of the clocks that ticked
 *
 * A merged slot counts as used: flows went through it to the very end.
 *
 * Context: any; the caller stores the result with compare-and-exchange.
 * Return: the new word, @w itself when nothing changes.
 */
u32 ip_vs_mhs_slot_tick(u32 w, u32 ticks)
{
	u32 stage = ip_vs_mhs_slot_stage(w);

	if (ticks & MHS_TICK_TRACK)
		w = (w & ~MHS_TRACK) |
		    (w & MHS_TRACK_CUR ? MHS_TRACK_PREV : 0);

	if (stage == MHS_STAGE_STABLE) {
		if (ticks & MHS_TICK_USED)
			w = (w & ~MHS_USED) |
			    (w & MHS_USED_CUR ? MHS_USED_PREV : 0);
		return w;
	}
	if (stage == MHS_STAGE_LAST && ticks & MHS_TICK_PIN)
		return slot_stable(w, ip_vs_mhs_slot_cand(w), MHS_USED);
	if (ticks & (stage < MHS_STAGE_PIN ? MHS_TICK_HOLD : MHS_TICK_PIN))
		w += 1U << MHS_STAGE_SHIFT;
	return w;
}

/**
 * ip_vs_mhs_share_init() - prepare one server for ip_vs_mhs_table_fill()
 * @s: the server's place in the scratch space
 * @weight: its weight, more than 0
 * @hash: keyed hash of its address and port
 * @size: slots of the table
 *
 * Context: any.
 */
void ip_vs_mhs_share_init(struct ip_vs_mhs_share *s, u32 weight, u64 hash,
			  u32 size)
{
	s->weight = weight;
	s->pos = (hash >> 32) * size >> 32;
	s->skip = ((hash & 0xffffffffU) * (size - 1) >> 32) + 1;
	s->claims = 0;
	s->next = MHS_FILL_NONE;
}

/* Round in which the next slot of @s falls due: at most 49 bits of product.
 * IPVS weights are of type int, so their double fits.
 */
static u64 share_due(const struct ip_vs_mhs_share *s, u32 max_weight)
{
	u64 credit = (u64)(2 * s->claims + 1) * max_weight;

	return div_u64(credit + 2 * s->weight - 1, 2 * s->weight);
}

/* Put server @i at the end of the queue of its next round, if it has one */
static void share_enqueue(struct ip_vs_mhs_fill *f, u32 i, u32 max_weight)
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

/* The next free slot of the permutation of @s: size is prime, skip is not 0
 * and less than size, so every slot is visited.
 */
static u32 share_claim(struct ip_vs_mhs_fill *f, struct ip_vs_mhs_share *s)
{
	u32 pos = s->pos;
	u32 slot;

	while (f->table[pos] != MHS_FILL_NONE) {
		pos += s->skip;
		if (pos >= f->size)
			pos -= f->size;
	}
	slot = pos;
	pos += s->skip;
	s->pos = pos >= f->size ? pos - f->size : pos;
	s->claims++;
	return slot;
}

/**
 * ip_vs_mhs_table_fill() - compute a lookup table
 * @f: scratch space; share[0..n-1] prepared by ip_vs_mhs_share_init()
 * @n: number of servers, at most MHS_IDX_MAX
 *
 * Context: any; some ln(size) probes of memory a slot, milliseconds in all, so
 *	process context is better.
 * Return: number of servers left without a slot.
 */
u32 ip_vs_mhs_table_fill(struct ip_vs_mhs_fill *f, u32 n)
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

	/* The heaviest server claims in every round: size rounds suffice */
	for (round = 0; filled < f->size; round++) {
		for (i = f->head[round]; i != MHS_FILL_NONE; i = next) {
			struct ip_vs_mhs_share *s = &f->share[i];

			next = s->next;
			f->table[share_claim(f, s)] = i;
			if (++filled == f->size)
				break;
			share_enqueue(f, i, max_weight);
		}
	}
	for (i = 0; i < n; i++)
		empty += !f->share[i].claims;
	return empty;
}

/**
 * ip_vs_mhs_table_print() - add one slot to the fingerprint of a table
 * @print: fingerprint so far, 0 to begin with
 * @id: hash of the slot's server, 0 when it has none
 *
 * Order matters, so two directors have the same fingerprint only if every
 * slot names the same server.
 *
 * Context: any.
 * Return: the fingerprint with this slot.
 */
u64 ip_vs_mhs_table_print(u64 print, u64 id)
{
	print = (print ^ id) * 0x9e3779b97f4a7c15ULL;
	return print ^ print >> 29;
}
