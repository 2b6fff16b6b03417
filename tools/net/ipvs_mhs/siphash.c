// SPDX-License-Identifier: GPL-2.0-only
/* SipHash-2-4 (Aumasson and Bernstein, 2012) of whole 64-bit words. */
#include "siphash.h"

static uint64_t rotate(uint64_t x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static void sip_rounds(uint64_t v[4], unsigned int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

uint64_t siphash_words(const uint64_t key[2], const uint64_t *words, size_t n)
{
	/* the constants spell "somepseudorandomlygeneratedbytes" */
	uint64_t v[4] = {
		key[0] ^ 0x736f6d6570736575ULL,
		key[1] ^ 0x646f72616e646f6dULL,
		key[0] ^ 0x6c7967656e657261ULL,
		key[1] ^ 0x7465646279746573ULL,
	};
	uint64_t word;
	size_t i;

	/* a last word with the length in bytes closes the message */
	for (i = 0; i <= n; i++) {
		word = i < n ? words[i] : (uint64_t)(n * 8) << 56;
		v[3] ^= word;
		sip_rounds(v, 2);
		v[0] ^= word;
	}
	v[2] ^= 0xff;
	sip_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
