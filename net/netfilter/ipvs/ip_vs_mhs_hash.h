/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: SipHash over 64-bit words, and the hash of a
 * client, for the module, for user space and for the BPF program of servers
 * (tools/net/ipvs_mhs/chance.bpf.c).
 *
 * Whoever includes this file has the types and siphash_key_t.
 */
#ifndef _IP_VS_MHS_HASH_H
#define _IP_VS_MHS_HASH_H

#ifndef MHS_HAVE_SIPHASH_ROUND
/* One round of SipHash (Aumasson and Bernstein, 2012) by the kernel's names, for
 * kernels whose linux/siphash.h lacks them (EL 9.2), and for user space.  The
 * constants spell "somepseudorandomlygeneratedbytes".
 */
#define SIPHASH_CONST_0	0x736f6d6570736575ULL
#define SIPHASH_CONST_1	0x646f72616e646f6dULL
#define SIPHASH_CONST_2	0x6c7967656e657261ULL
#define SIPHASH_CONST_3	0x7465646279746573ULL

static __always_inline void mhs_sip_round(u64 *a, u64 *b, u64 *c, u64 *d)
{
	*a += *b;
	*c += *d;
	*b = rol64(*b, 13) ^ *a;
	*d = rol64(*d, 16) ^ *c;
	*a = rol64(*a, 32);
	*c += *b;
	*a += *d;
	*b = rol64(*b, 17) ^ *c;
	*d = rol64(*d, 21) ^ *a;
	*c = rol64(*c, 32);
}

#define SIPHASH_PERMUTATION(A, B, C, D) \
	mhs_sip_round(&(A), &(B), &(C), &(D))
#endif

/* The state of SipHash; the callers choose the numbers of rounds */
struct sip {
	u64	a, b, c, d;
};

static __always_inline struct sip sip_begin(const siphash_key_t *key)
{
	return (struct sip){
		key->key[0] ^ SIPHASH_CONST_0,
		key->key[1] ^ SIPHASH_CONST_1,
		key->key[0] ^ SIPHASH_CONST_2,
		key->key[1] ^ SIPHASH_CONST_3,
	};
}

/* @n is a compile-time constant, at most 4 */
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
