/* SPDX-License-Identifier: GPL-2.0-only */
/* A suite is a table of checks.  A check gets the code to try as its
 * argument, so that its controls are the same check with a wrong variant of
 * that code: a control passes when the check fails for the reason expected.
 */
#ifndef _UNIT_H
#define _UNIT_H

#include <linux/types.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/**
 * struct unit_test - one line of the KTAP report
 * @name: stable and unique in its suite
 * @check: returns true, or unit_fail() with what is needed to reproduce it
 * @arg: the code to check
 * @caught: NULL, or @arg is wrong on purpose: what @check has to say about it,
 *	among other things
 */
struct unit_test {
	const char	*name;
	bool		(*check)(const void *arg);
	const void	*arg;
	const char	*caught;
};

int unit_main(const struct unit_test *tests, u32 nr, int argc, char **argv);

bool unit_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void unit_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *unit_alloc(size_t nr, size_t size);

/* One generator per trial, so a trial can be repeated without the others */
struct rng {
	u64 state;
};

struct rng unit_rng(u64 trial);
u64 rng_next(struct rng *r);
u32 rng_below(struct rng *r, u32 limit);

/* SipHash with @c rounds a word and @d at the end; SipHash-2-4 is the one */
u64 siphash(u32 c, u32 d, const u64 key[2], const void *data, size_t len);

#endif /* _UNIT_H */
