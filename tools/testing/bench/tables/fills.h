/* SPDX-License-Identifier: GPL-2.0-only */
/* Fills to compare with that of ip_vs_mhs_table.c; each as struct recipe. */
#ifndef _BENCH_FILLS_H
#define _BENCH_FILLS_H

#include "tables.h"

/* mh: Maglev with weights as turns, servers in the order they came in */
extern const struct recipe fill_mh;

/* Rendezvous with bounded load: slots in order, each takes the server that
 * ranks first among those with room; room is the share of a server, rounded
 * up, and for fill_bounded_2 2 % more.
 */
extern const struct recipe fill_bounded_0;
extern const struct recipe fill_bounded_2;

/* Plain rendezvous: nothing moves without need, nothing bounds the load */
extern const struct recipe fill_rendezvous;

/* The same fills with the best ranks of each slot kept from table to table:
 * what one server that goes or comes back costs then, in milliseconds
 */
double bounded_kept_ms(const struct table *t, double more);

/* CPU time of this process */
double now_ms(void);

#endif /* _BENCH_FILLS_H */
