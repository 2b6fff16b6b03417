/* SPDX-License-Identifier: GPL-2.0-only */
/* One round of SipHash (Aumasson and Bernstein, 2012) by the kernel's names, for
 * kernels whose linux/siphash.h lacks them (EL 9.2), and for user space.
 */
#ifndef _IP_VS_MHS_SIPHASH_H
#define _IP_VS_MHS_SIPHASH_H

/* The constants spell "somepseudorandomlygeneratedbytes" */
#define SIPHASH_CONST_0	0x736f6d6570736575ULL
#define SIPHASH_CONST_1	0x646f72616e646f6dULL
#define SIPHASH_CONST_2	0x6c7967656e657261ULL
#define SIPHASH_CONST_3	0x7465646279746573ULL

static __always_inline void ip_vs_mhs_sip_round(u64 *a, u64 *b, u64 *c, u64 *d)
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
	ip_vs_mhs_sip_round(&(A), &(B), &(C), &(D))

#endif /* _IP_VS_MHS_SIPHASH_H */
