// SPDX-License-Identifier: GPL-2.0-only
/* The fill of mh, to compare with that of ip_vs_mhs_table.c */
#include <stdlib.h>
#include <time.h>

#include "fills.h"

double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

static u32 count_empty(const struct mhs_fill *f, u32 n)
{
	u32 i, empty = 0;

	for (i = 0; i < n; i++)
		empty += !f->share[i].taken;
	return empty;
}

static u32 common_divisor(u32 a, u32 b)
{
	while (b) {
		u32 rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* As the documentation of mh describes it: a server claims as many slots in
 * a row as it has turns, weight over the common divisor, halved until the
 * highest is below 64.  A map of bits says what is taken.
 */
static u32 turns(struct mhs_fill *f, u32 n)
{
	u64 *taken = unit_alloc(f->size / 64 + 1, sizeof(*taken));
	u32 divisor = 0, highest = 0, halved = 0, filled = 0, i, turn;

	for (i = 0; i < n; i++) {
		divisor = common_divisor(f->share[i].weight, divisor);
		if (f->share[i].weight > highest)
			highest = f->share[i].weight;
	}
	while (n && highest / divisor >> halved >= 64)
		halved++;
	for (i = 0; n && filled < f->size; i = i + 1 == n ? 0 : i + 1) {
		struct mhs_share *s = &f->share[i];

		turn = s->weight / divisor >> halved;
		do {
			while (taken[s->pos / 64] >> s->pos % 64 & 1) {
				s->pos += s->skip;
				if (s->pos >= f->size)
					s->pos -= f->size;
			}
			taken[s->pos / 64] |= 1ULL << s->pos % 64;
			f->table[s->pos] = i;
			s->taken++;
		} while (++filled < f->size && turn-- > 1);
	}
	free(taken);
	return count_empty(f, n);
}

const struct recipe fill_mh = { NULL, turns };
