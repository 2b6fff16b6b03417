/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: SipHash over 64-bit words, and the hash of a
 * client, also for user space.
 * Whoever includes this file has the types and siphash_key_t.
 */
#ifndef _IP_VS_MHS_HASH_H
#define _IP_VS_MHS_HASH_H

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

/* The body of mhs_hash_client(); @port in host order */
static __always_inline u64 sip_client(const siphash_key_t *key, bool ip6,
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

#endif /* _IP_VS_MHS_HASH_H */
