// SPDX-License-Identifier: GPL-2.0-only
/* The KUnit tests of the fill of mh's table in user space, at each table size, and
 * the figures of the posting.  FILL has the functions of a kernel tree that fill
 * it, cut out of it, TEST is the file of the tests.  "Before" is a model.
 */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
typedef uint32_t u32;

#define IP_VS_MH_TAB_SIZE	size
#define EXPORT_SYMBOL_GPL(x)
#define max(a, b)		((a) > (b) ? (a) : (b))
#define div_u64(a, b)		((a) / (u32)(b))
#define cond_resched()

struct kunit {
	void *priv;
};

struct kunit_case {
	void (*run)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	int (*init)(struct kunit *test);
	struct kunit_case *test_cases;
};

#define KUNIT_CASE(x)			{ x, #x }
#define kunit_test_suite(x)
#define kunit_kzalloc(test, n, gfp)	calloc(1, n)
#define kunit_kcalloc(test, n, s, gfp)	calloc(n, s)
#define KUNIT_EXPECT_TRUE(test, x)	(failed |= !(x))
#define KUNIT_ASSERT_NOT_NULL		KUNIT_EXPECT_TRUE
#define KUNIT_EXPECT_EQ(test, a, b)	KUNIT_EXPECT_TRUE(test, (a) == (b))
#define KUNIT_EXPECT_LE(test, a, b)	KUNIT_EXPECT_TRUE(test, (a) <= (b))
#define KUNIT_ASSERT_EQ			KUNIT_EXPECT_EQ

struct ip_vs_dest;

static u32 size;
static int failed;

#include FILL

static u32 gcd(u32 a, u32 b)
{
	return b ? gcd(b, a % b) : a;
}

/* As before: turns of weight / gcd, shifted to half of the table's bits */
static void fill_before(struct ip_vs_mh_share *share, u32 n, u32 *table,
			u32 *queue)
{
	u32 i, g = 0, most = 0, turns, shift = 0, k, filled = 0;

	(void)queue;
	for (i = 0; i < n; i++) {
		g = gcd(share[i].weight, g);
		most = max(most, share[i].weight);
	}
	/* bits of the table's index in the configuration, halved */
	while (most / g >> shift >= 1U << (size > 4093 ? 8 : 6))
		shift++;
	for (;;) {
		for (i = 0; i < n; i++) {
			turns = share[i].weight / g >> shift;
			for (k = 0; k < max(turns, 1); k++) {
				table[ip_vs_mh_claim(&share[i], table)] = i + 1;
				if (++filled == size)
					return;
			}
		}
	}
}

static void (*const fills[])(struct ip_vs_mh_share *, u32, u32 *, u32 *) = {
	fill_before, ip_vs_mh_fill
};
static int now = 1;

/* The tests run with either */
#define ip_vs_mh_fill	fills[now]
#include TEST

static void fill(struct mh_test *t, u32 n, int which)
{
	now = which;
	mh_test_fill(t, n);
}

/* The largest difference from the exact share */
static double worst(const struct mh_test *t, u32 n)
{
	double sum = 0, most = 0, error;
	u32 i;

	for (i = 0; i < n; i++)
		sum += t->weight[i];
	for (i = 0; i < n; i++) {
		error = t->slots[i] - size * t->weight[i] / sum;
		most = max(most, error < 0 ? -error : error);
	}
	return most;
}

static u32 moved(const struct mh_test *t, u32 but)
{
	u32 i, n = 0;

	for (i = 0; i < size; i++)
		n += t->other[i] != t->table[i] && t->other[i] != but + 1;
	return n;
}

static void keep(struct mh_test *t)
{
	memcpy(t->other, t->table, size * sizeof(u32));
}

/* Best of some, in microseconds */
static double time_of(struct mh_test *t, u32 n, int i)
{
	double best = 1e9, took;
	struct timespec a, b;
	int k;

	for (k = 0; k < 15; k++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		fill(t, n, i);
		clock_gettime(CLOCK_MONOTONIC, &b);
		took = (b.tv_sec - a.tv_sec) * 1e6 +
		       (b.tv_nsec - a.tv_nsec) / 1e3;
		best = took < best ? took : best;
	}
	return best;
}

static void set(struct mh_test *t, u32 n, u32 first, u32 step, u32 turn)
{
	u32 i;

	for (i = 0; i < n; i++)
		t->weight[i] = first + (i + turn) % n * step;
}

/* What @change moves, of @n dests, by the mean of as many places of it */
static void moves(struct mh_test *t, const char *what, u32 n, u32 step,
		  int removes)
{
	double sum[2] = { 0 };
	u32 i, k;

	for (i = 0; i < 2; i++) {
		for (k = 0; k < n; k++) {
			set(t, n, 100, step, k);
			fill(t, n, i);
			keep(t);
			t->weight[k] -= !removes;
			fill(t, n - removes, i);
			sum[i] += moved(t, removes ? n - 1 : n);
		}
	}
	printf("%s,slots moved,%.0f,%.0f\n", what, sum[0] / n, sum[1] / n);
}

static void once(struct mh_test *t, const char *what, u32 n)
{
	fill(t, n, 0);
	keep(t);
	fill(t, n, 1);
	printf("%s,slots moved by the update,0,%u\n", what, moved(t, n));
}

/* What moves of the others when dest @k of @n equal ones is removed, who come in
 * order
 */
static u32 gone(struct mh_test *t, u32 n, u32 k)
{
	u32 i, was, n_moved = 0;

	set(t, n, 1, 0, 0);
	fill(t, n, 1);
	keep(t);
	mh_test_prepare(t, n);
	memmove(&t->share[k], &t->share[k + 1], (n - 1 - k) * sizeof(*t->share));
	fills[1](t->share, n - 1, t->table, t->table + size);
	for (i = 0; i < size; i++) {
		was = t->table[i] + (t->table[i] > k);
		n_moved += t->other[i] != k + 1 && t->other[i] != was;
	}
	return n_moved;
}

static void figures(struct mh_test *t)
{
	double got[2];
	u32 i, k;

	moves(t, "one of 20 from 100 to 99", 20, 0, 0);
	moves(t, "100 to 233: one of 20 removed", 20, 7, 1);
	for (k = 1000; k <= 10000; k *= 10) {
		for (i = 0; i < 2; i++) {
			t->weight[0] = k;
			t->weight[1] = 1;
			fill(t, 2, i);
			got[i] = t->slots[1];
		}
		printf("%u and 1,slots of 1,%.0f,%.0f\n", k, got[0], got[1]);
	}
	for (i = 0; i < 2; i++) {
		set(t, 100, 1, 1, 0);
		fill(t, 100, i);
		got[i] = worst(t, 100);
	}
	printf("1 to 100,worst error,%.1f,%.1f\n", got[0], got[1]);
	once(t, "1 to 100", 100);
	set(t, 2, 2, -1, 0);
	once(t, "2 and 1", 2);
	for (k = 50; k; k = k == 50) {
		set(t, 50, 100, 0, 0);
		t->weight[49] = k;
		once(t, k == 50 ? "49 of 100 and 50" : "49 of 100 and 1", 50);
	}
	set(t, 2000, 10, 0, 0);
	t->weight[0] = 100000;
	fill(t, 2000, 1);
	printf("100000 and 1999 of 10,slots of 100000,,%u\n", t->slots[0]);
	for (k = 10; k <= 100; k *= 10)
		printf("%u equal: last/first/middle removed,slots moved,,%u/%u/%u\n",
		       k, gone(t, k, k - 1), gone(t, k, 0), gone(t, k, k / 2));
	set(t, 100, 1, 1, 0);
	printf("1 to 100,us,%.0f,%.0f\n", time_of(t, 100, 0),
	       time_of(t, 100, 1));
}

/* Which tests fail with a fill? */
static void run(int which)
{
	static const u32 sizes[] = { 251, 509, 1021, 2039, 4093, 8191, 16381,
				     32749, 65521, 131071 };
	struct kunit_case *c;
	struct kunit test;
	u32 i;

	for (c = mh_test_suite.test_cases; c->run; c++) {
		int bad = 0;

		for (i = 0; i < 10; i++) {
			size = sizes[i];
			now = which;
			failed = 0;
			mh_test_suite.init(&test);
			c->run(&test);
			bad += failed;
		}
		printf("%s %d\n", c->name, bad);
	}
}

int main(int argc, char **argv)
{
	struct kunit test;

	if (argc > 1) {
		run(atoi(argv[1]));
		return 0;
	}
	size = 131071;
	mh_test_suite.init(&test);
	size = 4093;
	figures(test.priv);
	size = 131071;
	set(test.priv, 1000, 1, 1, 0);
	printf("1 to 1000 in 131071,us,%.0f,%.0f\n",
	       time_of(test.priv, 1000, 0), time_of(test.priv, 1000, 1));
	return 0;
}
