// SPDX-License-Identifier: GPL-2.0-only
/* Ways to make a table: the one under test, a slow one that must give the
 * same, and wrong ones.
 */
#include <stdlib.h>

#include "tables.h"

static int cmp_server(const void *a, const void *b)
{
	const struct server *s = a, *t = b;
	int diff = memcmp(s->addr, t->addr, sizeof(s->addr));

	if (s->af != t->af)
		return s->af < t->af ? -1 : 1;
	return diff ? diff : (int)s->port - t->port;
}

static int cmp_real(const void *a, const void *b)
{
	const struct server *s = a, *t = b;

	return mhs_table_order(s->af, (const void *)s->addr, htons(s->port),
			       t->af, (const void *)t->addr, htons(t->port));
}

const struct recipe recipe_real = { cmp_real, mhs_table_fill };

const struct recipe recipe_unsorted = { NULL, mhs_table_fill };

/* Servers on one address stay in the order they came in, or in any other */
static int cmp_address(const void *a, const void *b)
{
	const struct server *s = a, *t = b;

	return memcmp(s->addr, t->addr, sizeof(s->addr));
}

const struct recipe recipe_sorted_by_address = {
	cmp_address, mhs_table_fill
};

/* Next slot of the permutation of share @i that nobody has */
static void claim(struct mhs_fill *f, u32 i)
{
	struct mhs_share *s = &f->share[i];

	while (f->table[s->pos] != MHS_FILL_NONE)
		s->pos = (s->pos + s->skip) % f->size;
	f->table[s->pos] = i;
	s->taken++;
}

static u32 count_empty(const struct mhs_fill *f, u32 n)
{
	u32 i, empty = 0;

	for (i = 0; i < n; i++)
		empty += !f->share[i].taken;
	return empty;
}

static u64 steps;

u64 reference_steps(void)
{
	u64 n = steps;

	steps = 0;
	return n;
}

/* The definition, word by word: all begin with half a credit, in each round
 * every server earns, and who has a whole credit claims; among those of one round, who claimed longest ago
 * is first.  @f->table may hold slots that are taken already.
 */
static u32 walk(struct mhs_fill *f, u32 n, u32 filled)
{
	u64 *credit = unit_alloc(n, sizeof(*credit));
	u32 *order = unit_alloc(n, sizeof(*order));
	u32 *later = unit_alloc(n, sizeof(*later));
	u32 max = 0, i;

	for (i = 0; i < n; i++) {
		order[i] = i;
		if (f->share[i].weight > max)
			max = f->share[i].weight;
	}
	for (i = 0; i < n; i++)
		credit[i] = max;
	while (n && filled < f->size) {
		u32 kept = 0, claimed = 0;

		for (i = 0; i < n; i++, steps++) {
			u32 server = order[i];

			credit[server] += 2ULL * f->share[server].weight;
			if (credit[server] < 2ULL * max || filled == f->size) {
				order[kept++] = server;
				continue;
			}
			credit[server] -= 2ULL * max;
			claim(f, server);
			filled++;
			later[claimed++] = server;
		}
		memcpy(order + kept, later, claimed * sizeof(*later));
	}
	free(later);
	free(order);
	free(credit);
	return count_empty(f, n);
}

static u32 fill_reference(struct mhs_fill *f, u32 n)
{
	memset(f->table, 0xff, f->size * sizeof(*f->table));
	return walk(f, n, 0);
}

const struct recipe recipe_reference = { cmp_server, fill_reference };

/* Keeps every second slot of the table before, to spare its flows */
static u32 fill_in_place(struct mhs_fill *f, u32 n)
{
	u32 i, filled = 0;

	for (i = 0; i < f->size; i++)
		if (i % 2 && f->table[i] < n)
			filled++;
		else
			f->table[i] = MHS_FILL_NONE;
	return walk(f, n, filled);
}

const struct recipe recipe_in_place = { cmp_server, fill_in_place };

static u32 gcd(u32 a, u32 b)
{
	return b ? gcd(b, a % b) : a;
}

/* Weights as turns: a server claims weight / gcd slots in a row, scaled down
 * to less than 64
 */
static u32 fill_turns(struct mhs_fill *f, u32 n)
{
	u32 divisor = 0, most = 0, shift = 0, filled = 0, i, turn;

	memset(f->table, 0xff, f->size * sizeof(*f->table));
	for (i = 0; i < n; i++) {
		divisor = gcd(f->share[i].weight, divisor);
		if (f->share[i].weight > most)
			most = f->share[i].weight;
	}
	while (n && most / divisor >> shift >= 64)
		shift++;
	for (i = 0; n && filled < f->size; i = (i + 1) % n) {
		u32 turns = f->share[i].weight / divisor >> shift;

		for (turn = 0; turn < (turns ? turns : 1); turn++) {
			if (filled == f->size)
				break;
			claim(f, i);
			filled++;
		}
	}
	return count_empty(f, n);
}

const struct recipe recipe_turns = { cmp_server, fill_turns };

/* Has eight bits for a weight */
static u32 fill_clamped(struct mhs_fill *f, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (f->share[i].weight > 255)
			f->share[i].weight = 255;
	return mhs_table_fill(f, n);
}

const struct recipe recipe_clamped = { cmp_server, fill_clamped };

static u32 fill_hole(struct mhs_fill *f, u32 n)
{
	u32 empty = mhs_table_fill(f, n);

	f->table[f->size - 1] = MHS_FILL_NONE;
	return empty;
}

const struct recipe recipe_hole = { cmp_server, fill_hole };

static u32 fill_miscount(struct mhs_fill *f, u32 n)
{
	mhs_table_fill(f, n);
	return 0;
}

const struct recipe recipe_miscount = { cmp_server, fill_miscount };
