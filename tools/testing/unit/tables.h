/* SPDX-License-Identifier: GPL-2.0-only */
/* Lookup tables from sets of servers, as the kernel's glue makes them, and
 * wrong ways to make them.
 */
#ifndef _UNIT_TABLES_H
#define _UNIT_TABLES_H

#include "ip_vs_mhs_table.h"
#include "unit.h"

struct server {
	u8	addr[16];
	u16	af;
	u16	port;
	u32	weight;		/* 0: listed, but not in the table */
};

/**
 * struct table - a filled table and what its servers got
 * @size: slots
 * @n: servers with a weight
 * @empty: what mhs_table_fill() returned
 * @server: servers with a weight, in the order they were filled
 * @fill: the scratch space, @fill.table is the result
 */
struct table {
	u32			size;
	u32			n;
	u32			empty;
	struct server		*server;
	struct mhs_fill	fill;
};

/**
 * struct recipe - one way to make a table
 * @cmp: order of the servers, NULL for the order they come in
 * @fill: mhs_table_fill()
 */
struct recipe {
	int (*cmp)(const void *a, const void *b);
	u32 (*fill)(struct mhs_fill *f, u32 n);
};

extern const struct recipe recipe_real;
extern const struct recipe recipe_reference;	/* right, but slow */

extern const struct recipe recipe_unsorted;
extern const struct recipe recipe_sorted_by_address;
extern const struct recipe recipe_turns;	/* as mh does */
extern const struct recipe recipe_in_place;
extern const struct recipe recipe_clamped;
extern const struct recipe recipe_hole;
extern const struct recipe recipe_miscount;

/* Steps that recipe_reference took since the last look */
u64 reference_steps(void);

struct table *table_new(const struct recipe *recipe, u32 size,
			const struct server *set, u32 n);
void table_free(struct table *t);

/* Make the table again in the same space, found as it is */
void table_refill(struct table *t, const struct recipe *recipe,
		  const struct server *set, u32 n);
u64 table_print(const struct table *t);
u32 table_moved(const struct table *a, const struct table *b);
u32 table_floor(const struct table *a, const struct table *b);
u64 server_hash(const struct server *s);

enum weights { W_EQUAL, W_SMALL, W_WIDE, W_GIANT, W_KINDS };

struct server *servers_new(struct rng *r, u32 n, enum weights kind);
void servers_shuffle(struct rng *r, struct server *set, u32 n);

extern const u32 table_sizes[12];

#endif /* _UNIT_TABLES_H */
