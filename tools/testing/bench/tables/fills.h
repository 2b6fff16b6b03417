/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _BENCH_FILLS_H
#define _BENCH_FILLS_H

#include "tables.h"

/* mh: Maglev with weights as turns, servers in the order they came in */
extern const struct recipe fill_mh;

/* CPU time of this process */
double now_ms(void);

#endif /* _BENCH_FILLS_H */
