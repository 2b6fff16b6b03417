// SPDX-License-Identifier: GPL-2.0-only
/* Lookup tables from sets of servers, as the kernel's glue makes them. */
#include <stdlib.h>

#include "tables.h"

const u32 table_sizes[12] = {
	251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139,
	524287,
};

/* One keyed hash of all the fields, never of a sum of them */
u64 server_hash(const struct server *s)
{
	static const u64 key[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };
	u8 bytes[20];

	memcpy(bytes, &s->af, 2);
	memcpy(bytes + 2, &s->port, 2);
	memcpy(bytes + 4, s->addr, 16);
	return siphash(2, 4, key, bytes, sizeof(bytes));
}

/* A server is its address and port, whatever its weight */
static bool same_server(const struct server *a, const struct server *b)
{
	return a->af == b->af && a->port == b->port &&
	       !memcmp(a->addr, b->addr, sizeof(a->addr));
}

struct table *table_new(const struct recipe *recipe, u32 size,
			const struct server *set, u32 n)
{
	struct table *t = unit_alloc(1, sizeof(*t));

	/* exact sizes, so that the sanitizer sees a step too far */
	t->size = size;
	t->server = unit_alloc(n, sizeof(*t->server));
	t->fill.size = size;
	t->fill.table = unit_alloc(size, sizeof(*t->fill.table));
	t->fill.head = unit_alloc(size, sizeof(*t->fill.head));
	t->fill.tail = unit_alloc(size, sizeof(*t->fill.tail));
	t->fill.share = unit_alloc(n, sizeof(*t->fill.share));
	memset(t->fill.table, 0xff, size * sizeof(*t->fill.table));
	table_refill(t, recipe, set, n);
	return t;
}

void table_free(struct table *t)
{
	free(t->fill.share);
	free(t->fill.tail);
	free(t->fill.head);
	free(t->fill.table);
	free(t->server);
	free(t);
}

void table_refill(struct table *t, const struct recipe *recipe,
		  const struct server *set, u32 n)
{
	u32 i;

	for (t->n = 0, i = 0; i < n; i++)
		if (set[i].weight)
			t->server[t->n++] = set[i];
	if (recipe->cmp)
		qsort(t->server, t->n, sizeof(*t->server), recipe->cmp);
	for (i = 0; i < t->n; i++)
		mhs_share_init(&t->fill.share[i], t->server[i].weight,
			       server_hash(&t->server[i]), t->size);
	t->empty = recipe->fill(&t->fill, t->n);
}

static const struct server *slot_server(const struct table *t, u32 slot)
{
	u32 i = t->fill.table[slot];

	return i < t->n ? &t->server[i] : NULL;
}

u64 table_print(const struct table *t)
{
	u64 print = 0;
	u32 i;

	for (i = 0; i < t->size; i++) {
		const struct server *s = slot_server(t, i);

		print = mhs_table_fingerprint(print, s ? server_hash(s) : 0);
	}
	return print;
}

/* Slots that name another server, whatever the tables' indexes are */
u32 table_moved(const struct table *a, const struct table *b)
{
	u32 i, moved = 0;

	for (i = 0; i < a->size; i++) {
		const struct server *s = slot_server(a, i);
		const struct server *t = slot_server(b, i);

		moved += s && t ? !same_server(s, t) : s != t;
	}
	return moved;
}

/* Slots that no table with the shares of @b could leave as they are in @a */
u32 table_floor(const struct table *a, const struct table *b)
{
	u32 i, tries, moved = 0, at = 0;

	for (i = 0; i < a->n; i++) {
		u32 had = a->fill.share[i].taken, has = 0;

		/* most often the next one, as both are sorted */
		for (tries = 0; tries < b->n; tries++, at++)
			if (same_server(&a->server[i], &b->server[at % b->n]))
				break;
		if (tries < b->n)
			has = b->fill.share[at % b->n].taken;
		moved += had > has ? had - has : 0;
	}
	return moved;
}

static u32 weight(struct rng *r, enum weights kind, u32 i)
{
	switch (kind) {
	case W_SMALL:
		return 1 + rng_below(r, 100);
	case W_WIDE:	/* every magnitude from 1 to 2^31 - 1 */
		return 0x7fffffff >> rng_below(r, 31);
	case W_GIANT:
		return i ? 1 : 0x7fffffff;
	default:
		return 100;
	}
}

/* Servers in random order: both families, several ports on an address */
struct server *servers_new(struct rng *r, u32 n, enum weights kind)
{
	struct server *set = unit_alloc(n, sizeof(*set));
	u32 net = rng_next(r), i;

	for (i = 0; i < n; i++) {
		u32 host = net + i / 3;

		set[i].af = i / 3 % 2 ? 10 : 2;
		memcpy(set[i].addr + (i / 3 % 2 ? 12 : 0), &host, 4);
		set[i].port = 80 + i % 3;
		set[i].weight = weight(r, kind, i);
	}
	servers_shuffle(r, set, n);
	return set;
}

void servers_shuffle(struct rng *r, struct server *set, u32 n)
{
	while (n > 1) {
		u32 i = rng_below(r, n--);
		struct server s = set[i];

		set[i] = set[n];
		set[n] = s;
	}
}
