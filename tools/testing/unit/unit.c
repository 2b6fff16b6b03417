// SPDX-License-Identifier: GPL-2.0-only
/* KTAP report, random numbers and SipHash for the unit tests.
 *
 *	PROGRAM [NAME]		all tests, or the one called NAME
 *	UNIT_SEED=0x...		other random numbers than the usual ones
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

static u64 seed = 0x6d68732d756e6974ULL;
static char why[512];

bool unit_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return false;
}

void unit_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("# ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
}

void *unit_alloc(size_t nr, size_t size)
{
	void *p = calloc(nr ? nr : 1, size);

	if (!p) {
		printf("Bail out! out of memory\n");
		exit(2);
	}
	return p;
}

static bool run(const struct unit_test *t, u32 nr)
{
	bool passed;

	why[0] = '\0';
	passed = t->check(t->arg);
	if (!t->caught) {
		if (!passed)
			unit_note("UNIT_SEED=%#llx: %s",
				  (unsigned long long)seed, why);
	} else if (passed) {
		unit_note("a wrong variant passed unnoticed");
		passed = false;
	} else {
		passed = strstr(why, t->caught);
		unit_note("caught%s: %s",
			  passed ? "" : " for another reason", why);
	}
	printf("%sok %u %s\n", passed ? "" : "not ", nr, t->name);
	return passed;
}

int unit_main(const struct unit_test *tests, u32 nr, int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;
	const char *wanted = getenv("UNIT_SEED");
	u32 i, planned = 0, done = 0;
	bool passed = true;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (wanted)
		seed = strtoull(wanted, NULL, 0);
	for (i = 0; i < nr; i++)
		planned += !only || !strcmp(only, tests[i].name);
	printf("KTAP version 1\n1..%u\n", planned);
	unit_note("UNIT_SEED=%#llx", (unsigned long long)seed);
	for (i = 0; i < nr; i++)
		if (!only || !strcmp(only, tests[i].name))
			passed &= run(&tests[i], ++done);
	return passed && planned ? 0 : 1;
}

/* splitmix64 */
u64 rng_next(struct rng *r)
{
	u64 z = r->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

struct rng unit_rng(u64 trial)
{
	struct rng r = { .state = seed ^ trial * 0xd1b54a32d192ed03ULL };

	rng_next(&r);
	return r;
}

u32 rng_below(struct rng *r, u32 limit)
{
	return (rng_next(r) >> 32) * limit >> 32;
}

static u64 rotl(u64 x, u32 n)
{
	return x << n | x >> (64 - n);
}

static void sip_rounds(u64 v[4], u32 n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] = rotl(v[0], 32) + v[3];
		v[2] += v[1];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[2] = rotl(v[2], 32);
	}
}

u64 siphash(u32 c, u32 d, const u64 key[2], const void *data, size_t len)
{
	const u8 *p = data;
	u64 v[4] = {
		key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL,
		key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL,
	};
	u64 word = 0;
	size_t i;

	/* little endian words; the last one ends with the length */
	for (i = 0; i <= (len | 7); i++) {
		u64 byte = i < len ? p[i] : i == (len | 7) ? len & 0xff : 0;

		word |= byte << i % 8 * 8;
		if (i % 8 != 7)
			continue;
		v[3] ^= word;
		sip_rounds(v, c);
		v[0] ^= word;
		word = 0;
	}
	v[2] ^= 0xff;
	sip_rounds(v, d);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
