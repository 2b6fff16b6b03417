/* SPDX-License-Identifier: GPL-2.0-only */
/* One round of SipHash (Aumasson and Bernstein, 2012) by the kernel's names */
#ifndef _UNIT_LINUX_SIPHASH_H
#define _UNIT_LINUX_SIPHASH_H

#include <linux/types.h>

typedef struct {
	u64 key[2];
} siphash_key_t;

/* they spell "somepseudorandomlygeneratedbytes" */
#define SIPHASH_CONST_0	0x736f6d6570736575ULL
#define SIPHASH_CONST_1	0x646f72616e646f6dULL
#define SIPHASH_CONST_2	0x6c7967656e657261ULL
#define SIPHASH_CONST_3	0x7465646279746573ULL

static inline u64 sip_rotate(u64 x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

#define SIPHASH_PERMUTATION(a, b, c, d)		\
do {						\
	(a) += (b);				\
	(c) += (d);				\
	(b) = sip_rotate(b, 13) ^ (a);		\
	(d) = sip_rotate(d, 16) ^ (c);		\
	(a) = sip_rotate(a, 32);		\
	(c) += (b);				\
	(a) += (d);				\
	(b) = sip_rotate(b, 17) ^ (c);		\
	(d) = sip_rotate(d, 21) ^ (a);		\
	(c) = sip_rotate(c, 32);		\
} while (0)

#endif /* _UNIT_LINUX_SIPHASH_H */
