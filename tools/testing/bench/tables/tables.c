// SPDX-License-Identifier: GPL-2.0-only
/* What the fill of mhs and that of mh move, and how evenly they spread, with the
 * very ip_vs_mhs_table.c that the kernel compiles.
 *
 * usage: tables moved|build [SETS]
 *
 * moved: for every fill, size, number of servers and event a CSV line: slots
 * that change their server, slots that any fill with these shares has to
 * change, both in percent, and the highest load over the mean.  build: the
 * time a table takes.  Each cell is the median, lowest and highest of SETS
 * sets of servers.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fills.h"

enum event { REMOVE, REMOVE_TENTH, ADD, HALVE, EVENTS };

static const char * const events[] = {
	"remove 1", "remove 10 %", "add 1", "halve 1",
};

static const struct {
	const char		*name;
	const struct recipe	*recipe;
} fills[] = {
	{ "mh", &fill_mh },
	{ "mhs", &recipe_real },
};

static const u32 sizes[] = { 4093, 65521 };
static const u32 counts[] = { 10, 100, 1000 };

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ",median,lowest,highest" */
static void spread(double *v, u32 n)
{
	qsort(v, n, sizeof(*v), by_size);
	printf(",%.4f,%.4f,%.4f", v[n / 2], v[0], v[n - 1]);
}

static double imbalance(const struct table *t)
{
	double weights = 0, most = 0;
	u32 i;

	for (i = 0; i < t->n; i++)
		weights += t->fill.share[i].weight;
	for (i = 0; i < t->n; i++) {
		double load = t->fill.share[i].taken /
			      (t->size * (t->fill.share[i].weight / weights));

		most = load > most ? load : most;
	}
	return most;
}

/* The set after an event, in the order that the core's list has: what is new
 * comes first, what goes was anywhere
 */
static u32 apply(struct rng *r, struct server *to, const struct server *set,
		 u32 n, enum event event)
{
	u32 gone = event == REMOVE ? 1 : event == REMOVE_TENTH ? n / 10 : 0;
	u32 i, now = 0;

	if (event == ADD)
		to[now++] = set[n];
	for (i = 0; i < n; i++) {
		/* of n - i servers, gone go */
		if (rng_below(r, n - i) < gone) {
			gone--;
			continue;
		}
		to[now++] = set[i];
	}
	if (event == HALVE)
		to[rng_below(r, n)].weight /= 2;
	return now;
}

static void moved(u32 fill, u32 size, u32 n, u32 sets)
{
	double move[EVENTS][sets], floor[EVENTS][sets], after[EVENTS][sets];
	u32 set, e;

	for (set = 0; set < sets; set++) {
		struct rng r = unit_rng(set);
		struct server *s = servers_new(&r, n + 1, W_EQUAL);
		struct server *to = unit_alloc(n + 1, sizeof(*to));
		struct table *a = table_new(fills[fill].recipe, size, s, n);

		for (e = 0; e < EVENTS; e++) {
			u32 now = apply(&r, to, s, n, e);
			struct table *b = table_new(fills[fill].recipe, size,
						    to, now);

			move[e][set] = 100.0 * table_moved(a, b) / size;
			floor[e][set] = 100.0 * table_floor(a, b) / size;
			after[e][set] = imbalance(b);
			table_free(b);
		}
		table_free(a);
		free(to);
		free(s);
	}
	for (e = 0; e < EVENTS; e++) {
		printf("%s,%u,%u,%s", fills[fill].name, size, n, events[e]);
		spread(move[e], sets);
		spread(floor[e], sets);
		spread(after[e], sets);
		printf("\n");
	}
}

/* Without sorting and hashing: the kernel does that once for a server */
static double build_ms(struct table *t, const struct recipe *recipe)
{
	u64 *hash = unit_alloc(t->n, sizeof(*hash));
	double begin;
	u32 i;

	for (i = 0; i < t->n; i++)
		hash[i] = server_hash(&t->server[i]);
	begin = now_ms();
	for (i = 0; i < t->n; i++)
		mhs_share_init(&t->fill.share[i], t->server[i].weight,
			       hash[i], t->size);
	recipe->fill(&t->fill, t->n);
	begin = now_ms() - begin;
	free(hash);
	return begin;
}

static void build(u32 fill, u32 size, u32 n, u32 sets)
{
	double ms[sets];
	u32 set;

	for (set = 0; set < sets; set++) {
		struct rng r = unit_rng(set);
		struct server *s = servers_new(&r, n, W_EQUAL);
		struct table *t = table_new(fills[fill].recipe, size, s, n);

		ms[set] = build_ms(t, fills[fill].recipe);
		table_free(t);
		free(s);
	}
	printf("%s,%u,%u", fills[fill].name, size, n);
	spread(ms, sets);
	printf("\n");
}

int main(int argc, char **argv)
{
	bool time = argc > 1 && !strcmp(argv[1], "build");
	u32 sets = 15, f, s, c;

	if (argc < 2 || (!time && strcmp(argv[1], "moved"))) {
		fprintf(stderr, "usage: tables moved|build [SETS]\n");
		return 2;
	}
	if (argc > 2)
		sets = atoi(argv[2]);
	if (!sets) {
		fprintf(stderr, "tables: SETS is a number from 1\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("fill,size,servers,%s\n", time ? "ms,ms_low,ms_high" :
	       "event,moved,moved_low,moved_high,floor,floor_low,floor_high,"
	       "imbalance,imbalance_low,imbalance_high");
	for (s = 0; s < ARRAY_SIZE(sizes); s++)
		for (c = 0; c < ARRAY_SIZE(counts); c++)
			for (f = 0; f < ARRAY_SIZE(fills); f++)
				(time ? build : moved)(f, sizes[s], counts[c],
						       sets);
	return 0;
}
