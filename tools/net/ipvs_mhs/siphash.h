/* SPDX-License-Identifier: GPL-2.0-only */
/* SipHash-2-4 of whole 64-bit words, as the kernel's siphash_1u64() and
 * siphash_3u64() compute it.
 */
#ifndef _MHS_SIPHASH_H
#define _MHS_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash_words(const uint64_t key[2], const uint64_t *words, size_t n);

#endif /* _MHS_SIPHASH_H */
