// SPDX-License-Identifier: GPL-2.0-only
/* Properties of the fill of mh's table.  FILL has the functions of a kernel tree
 * that fill it, cut out of it.  The control is a model of the fill before.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;

/* Of the table as it is; what looks at slots asks for it at each step */
#define IP_VS_MH_TAB_SIZE	(steps++, size)
#define MOST			131071
#define EXPORT_SYMBOL_GPL(x)
#define max(a, b)		((a) > (b) ? (a) : (b))
#define div_u64(a, b)		((a) / (u32)(b))
#define cond_resched()

struct ip_vs_dest;

static u32 size = 4093;
static u64 steps;

#include FILL

static struct ip_vs_mh_share share[MOST];
static u32 table[2 * MOST], weight[MOST];
static int slots[MOST], tests, before;
static double error;

/* Another list for each, by numbers that look like chance */
static void prepare(int n)
{
	int i;

	memset(share, 0, sizeof(share));
	memset(table, 0, sizeof(table));
	steps = 0;
	for (i = 0; i < n; i++) {
		share[i].weight = weight[i];
		share[i].perm = (i + 1) * 2654435761U % size;
		share[i].skip = (i + 7) * 2246822519U % (size - 1) + 1;
	}
}

static void fill(int n)
{
	int i;

	prepare(n);
	ip_vs_mh_fill(share, n, table, table + size);
	memset(slots, 0, sizeof(slots));
	for (i = 0; i < (int)size; i++)
		slots[table[i] - 1]++;
}

static u32 gcd(u32 a, u32 b)
{
	return b ? gcd(b, a % b) : a;
}

/* As before: turns of weight / gcd, shifted to half of the table's bits */
static void fill_before(int n)
{
	u32 g = 0, most = 0, turns, shift = 0, t, c;
	int i, filled = 0;

	prepare(n);
	memset(slots, 0, sizeof(slots));
	for (i = 0; i < n; i++) {
		g = gcd(weight[i], g);
		most = max(most, weight[i]);
	}
	/* bits of the table's index in the configuration, halved */
	while (most / g >> shift >= 1U << (size > 4093 ? 8 : 6))
		shift++;
	for (;;) {
		for (i = 0; i < n; i++) {
			turns = weight[i] / g >> shift;
			for (t = 0; t < max(turns, 1); t++) {
				c = ip_vs_mh_claim(&share[i], table);
				table[c] = i + 1;
				slots[i]++;
				if (++filled == (int)size)
					return;
			}
		}
	}
}

/* The largest difference from the exact share */
static double worst(int n)
{
	double sum = 0, most = 0;
	int i;

	for (i = 0; i < n; i++)
		sum += weight[i];
	for (i = 0; i < n; i++) {
		error = slots[i] - size * weight[i] / sum;
		most = max(most, error < 0 ? -error : error);
	}
	return most;
}

static int least(int n)
{
	int i, few = slots[0];

	for (i = 0; i < n; i++)
		few = slots[i] < few ? slots[i] : few;
	return few;
}

static void say(int ok, const char *what)
{
	printf("%sok %d %s\n", ok ? "" : "not ", ++tests, what);
}

static void two(u32 a, u32 b)
{
	weight[0] = a;
	weight[1] = b;
	if (before)
		fill_before(2);
	else
		fill(2);
	printf("# %u:%u has %d:%d\n", a, b, slots[0], slots[1]);
}

int main(void)
{
	static u32 old[MOST];
	int i, n, same = 1, found = 1, moved = 0;
	u64 steps_before;

	puts("KTAP version 1\n1..12");
	for (n = 1; n <= (int)size; n = n * 3 + 1) {
		for (i = 0; i < n; i++)
			weight[i] = 5;
		fill_before(n);
		memcpy(old, table, sizeof(old));
		fill(n);
		same &= !memcmp(old, table, size * sizeof(*old));
	}
	say(same, "equal weights give the table that they gave before");
	for (n = 0; n < 100; n++)
		weight[n] = n + 1;
	fill_before(n);
	memcpy(old, table, sizeof(old));
	error = worst(n);
	printf("# 1 to 100: worst %.1f before\n", error);
	say(error > 30, "control: before, 1 to 100 are far from their shares");
	fill(n);
	printf("# 1 to 100: worst %.2f\n", worst(n));
	say(worst(n) < 1, "1 to 100 are within one slot of their shares");
	for (i = 0; i < (int)size; i++)
		moved += old[i] != table[i];
	printf("# 1 to 100: %d of %u slots move at an update\n", moved, size);
	say(moved > 1, "limit: with other weights it is another table");
	before = 1;
	two(1000, 1);
	two(10000, 1);
	say(slots[1] == 102, "control: before, 10000:1 was 3991:102");
	before = 0;
	two(1000, 1);
	say(slots[1] == 4, "1000:1");
	two(10000, 1);
	say(slots[1] == 1, "10000:1: the small one has a slot");
	two(0x7fffffff, 1);
	say(slots[1] == 1, "the largest weight of all: the other has a slot");
	for (n = 0; n < (int)size; n++)
		weight[n] = n ? 1 : 0x7fffffff;
	fill(n);
	say(least(n) == 1, "as many dests as slots: each has one");
	srand(1);
	for (i = 0; i < 300 && found; i++) {
		int m = rand() % 1000 + 1;

		for (n = 0; n < m; n++)
			weight[n] = rand() % (1 << rand() % 30) + 1;
		fill(m);
		found = least(m) >= 1;
	}
	say(found, "300 sets of chance: each dest has a slot");
	for (n = 0; n < 2000; n++)
		weight[n] = n ? 10 : 100000;
	fill(n);
	printf("# 100000 and 1999 times 10: %d slots for %.0f\n", slots[0],
	       size * 1e5 / (1e5 + 19990));
	say(worst(n) > 1000, "limit: shares of less than a slot are rounded up");
	size = MOST;
	for (n = 0; n < 1000; n++)
		weight[n] = n + 1;
	fill_before(n);
	steps_before = steps;
	fill(n);
	printf("# %u slots, 1 to 1000: %llu steps before, %llu now\n", size,
	       (unsigned long long)steps_before, (unsigned long long)steps);
	say(steps < 2 * steps_before, "it takes not twice as long as before");
	return 0;
}
