// SPDX-License-Identifier: GPL-2.0-only
/* Fills to compare with that of ip_vs_mhs_table.c. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "fills.h"

/* Ranks that a slot keeps: 24 bytes */
#define KEPT_RANKS	4

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

/* Rank of a server in a slot, the lowest is the best.  With equal weights the
 * logarithm would not change the order, so it is left out.
 */
static double rank(u64 id, u32 slot, u32 weight)
{
	u64 x = (id ^ slot * 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;
	double u;

	x = (x ^ x >> 32) * 0xc4ceb9fe1a85ec53ULL;
	u = ((x ^ x >> 29) >> 11) + 1;
	return weight ? -log(u / (1ULL << 53)) / weight : -u;
}

/* What rank() wants of the servers: no weight when all are equal */
struct ranked {
	u64	*id;
	u32	*weight;
	u32	*room;
};

static struct ranked ranked_new(const struct mhs_share *share, u32 n,
				u32 size, double more)
{
	struct ranked r = {
		.id = unit_alloc(n, sizeof(*r.id)),
		.weight = unit_alloc(n, sizeof(*r.weight)),
		.room = unit_alloc(n, sizeof(*r.room)),
	};
	bool equal = true;
	double sum = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		sum += share[i].weight;
		equal &= share[i].weight == share[0].weight;
	}
	for (i = 0; i < n; i++) {
		/* where share_init() starts and steps is a hash of the server */
		r.id[i] = (u64)share[i].pos << 32 | share[i].skip;
		r.weight[i] = equal ? 0 : share[i].weight;
		r.room[i] = more < 0 ? size :
			ceil(size * (share[i].weight / sum) * (1 + more));
	}
	return r;
}

static void ranked_free(struct ranked *r)
{
	free(r->id);
	free(r->weight);
	free(r->room);
}

/* The server with room that ranks first */
static u32 first_with_room(const struct ranked *r, u32 n, u32 slot)
{
	double least = INFINITY, d;
	u32 best = 0, i;

	for (i = 0; i < n; i++) {
		if (!r->room[i])
			continue;
		d = rank(r->id[i], slot, r->weight[i]);
		if (d < least) {
			least = d;
			best = i;
		}
	}
	return best;
}

static u32 bounded(struct mhs_fill *f, u32 n, double more)
{
	struct ranked r = ranked_new(f->share, n, f->size, more);
	u32 slot;

	for (slot = 0; n && slot < f->size; slot++) {
		u32 best = first_with_room(&r, n, slot);

		f->table[slot] = best;
		f->share[best].taken++;
		r.room[best]--;
	}
	ranked_free(&r);
	return count_empty(f, n);
}

static u32 bounded_0(struct mhs_fill *f, u32 n)
{
	return bounded(f, n, 0);
}

static u32 bounded_2(struct mhs_fill *f, u32 n)
{
	return bounded(f, n, 0.02);
}

static u32 rendezvous(struct mhs_fill *f, u32 n)
{
	return bounded(f, n, -1);
}

/* Ranks do not depend on the order of the servers, so none is needed */
const struct recipe fill_bounded_0 = { NULL, bounded_0 };
const struct recipe fill_bounded_2 = { NULL, bounded_2 };
const struct recipe fill_rendezvous = { NULL, rendezvous };

struct kept {
	u16	server[KEPT_RANKS];
	float	rank[KEPT_RANKS];
};

static void keep(struct kept *k, u32 server, double d)
{
	u32 i = KEPT_RANKS;

	if (d >= k->rank[KEPT_RANKS - 1])
		return;
	for (; i > 1 && d < k->rank[i - 2]; i--) {
		k->server[i - 1] = k->server[i - 2];
		k->rank[i - 1] = k->rank[i - 2];
	}
	k->server[i - 1] = server;
	k->rank[i - 1] = d;
}

static void keep_all(struct kept *k, const struct ranked *r, u32 n, u32 slot)
{
	u32 i;

	for (i = 0; i < KEPT_RANKS; i++)
		k->rank[i] = INFINITY;
	for (i = 0; i < n; i++)
		keep(k, i, rank(r->id[i], slot, r->weight[i]));
}

/**
 * bounded_kept_ms() - time of a change, with the best ranks of slots kept
 * @t: a table of a bounded fill
 * @more: its room beyond the share
 *
 * The last server goes: slots that rank it are ranked anew, then all slots are
 * given out again, by the kept ranks while one of them has room.
 */
double bounded_kept_ms(const struct table *t, double more)
{
	u32 n = t->n - 1, slot, i;
	struct kept *kept = unit_alloc(t->size, sizeof(*kept));
	struct mhs_share *share = unit_alloc(t->n, sizeof(*share));
	struct ranked all, r;
	double start;

	for (i = 0; i < t->n; i++)
		mhs_share_init(&share[i], t->server[i].weight,
			       server_hash(&t->server[i]), t->size);
	all = ranked_new(share, t->n, t->size, more);
	for (slot = 0; slot < t->size; slot++)
		keep_all(&kept[slot], &all, t->n, slot);
	start = now_ms();
	r = ranked_new(share, n, t->size, more);
	for (slot = 0; slot < t->size; slot++) {
		struct kept *k = &kept[slot];
		u32 best = n;

		for (i = 0; i < KEPT_RANKS; i++)
			if (k->server[i] == n)
				break;
		if (i < KEPT_RANKS)
			keep_all(k, &r, n, slot);
		for (i = 0; i < KEPT_RANKS && best == n; i++)
			if (r.room[k->server[i]])
				best = k->server[i];
		if (best == n)
			best = first_with_room(&r, n, slot);
		r.room[best]--;
	}
	start = now_ms() - start;
	ranked_free(&r);
	ranked_free(&all);
	free(share);
	free(kept);
	return start;
}
