/* SPDX-License-Identifier: GPL-2.0-only */
/* What ip_vs_mhs_decide.h adds the rounds to, for user space */
#ifndef _UNIT_LINUX_SIPHASH_H
#define _UNIT_LINUX_SIPHASH_H

#include <linux/types.h>

typedef struct {
	u64 key[2];
} siphash_key_t;

static inline u64 rol64(u64 x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

#endif /* _UNIT_LINUX_SIPHASH_H */
