// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of the fill of the lookup table, part of ip_vs_mh.c */

#include <kunit/test.h>

#define MH_SLOTS	((u32)IP_VS_MH_TAB_SIZE)

struct mh_test {
	struct ip_vs_mh_share	*share;
	u32			*weight;
	u32			*slots;		/* of each dest */
	u32			*table;		/* and the queue of the fill */
	u32			*other;
};

static int mh_test_init(struct kunit *test)
{
	struct mh_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, t);
	t->share = kunit_kcalloc(test, MH_SLOTS, sizeof(*t->share), GFP_KERNEL);
	t->weight = kunit_kcalloc(test, MH_SLOTS, sizeof(u32), GFP_KERNEL);
	t->slots = kunit_kcalloc(test, MH_SLOTS, sizeof(u32), GFP_KERNEL);
	t->table = kunit_kcalloc(test, MH_SLOTS, 2 * sizeof(u32), GFP_KERNEL);
	t->other = kunit_kcalloc(test, MH_SLOTS, sizeof(u32), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, t->share);
	KUNIT_ASSERT_NOT_NULL(test, t->weight);
	KUNIT_ASSERT_NOT_NULL(test, t->slots);
	KUNIT_ASSERT_NOT_NULL(test, t->table);
	KUNIT_ASSERT_NOT_NULL(test, t->other);
	test->priv = t;
	return 0;
}

/* Preference lists of @n dests, in place of hashes of their addresses */
static void mh_test_prepare(struct mh_test *t, u32 n)
{
	u32 i;

	memset(t->table, 0, 2 * MH_SLOTS * sizeof(u32));
	memset(t->slots, 0, MH_SLOTS * sizeof(u32));
	for (i = 0; i < n; i++)
		t->share[i] = (struct ip_vs_mh_share){
			.weight = t->weight[i],
			.perm = (i + 1) * 2654435761U % MH_SLOTS,
			.skip = (i + 7) * 2246822519U % (MH_SLOTS - 1) + 1,
		};
}

static void mh_test_fill(struct mh_test *t, u32 n)
{
	u32 i;

	mh_test_prepare(t, n);
	ip_vs_mh_fill(t->share, n, t->table, t->table + MH_SLOTS);
	for (i = 0; i < MH_SLOTS; i++)
		t->slots[t->table[i] - 1]++;
}

/* Every share is exact to a slot */
static void mh_test_exact(struct kunit *test)
{
	struct mh_test *t = test->priv;
	int i, n = 10, sum = 0, error;

	for (i = 0; i < n; i++)
		sum += t->weight[i] = i + 1;
	mh_test_fill(t, n);
	for (i = 0; i < n; i++) {
		error = t->slots[i] * sum - MH_SLOTS * t->weight[i];
		KUNIT_EXPECT_LE(test, abs(error), sum);
	}
}

/* Who has a weight has a slot, next to the largest weight there is, too */
static void mh_test_positive(struct kunit *test)
{
	struct mh_test *t = test->priv;
	u32 i;

	for (i = 0; i < MH_SLOTS; i++)
		t->weight[i] = i ? 1 : INT_MAX;
	mh_test_fill(t, 2);
	KUNIT_EXPECT_EQ(test, t->slots[1], 1);
	mh_test_fill(t, MH_SLOTS);
	for (i = 0; i < MH_SLOTS; i++)
		KUNIT_ASSERT_EQ(test, t->slots[i], 1);
}

/* With equal weights dests take turns */
static void mh_test_equal(struct kunit *test)
{
	struct mh_test *t = test->priv;
	u32 i, n = 7, slot;

	for (i = 0; i < n; i++)
		t->weight[i] = 5;
	mh_test_fill(t, n);
	memcpy(t->other, t->table, MH_SLOTS * sizeof(u32));
	mh_test_prepare(t, n);
	for (i = 0; i < MH_SLOTS; i++) {
		slot = ip_vs_mh_claim(&t->share[i % n], t->table);
		t->table[slot] = i % n + 1;
		KUNIT_ASSERT_EQ(test, t->other[slot], i % n + 1);
	}
}

/* A small change of a weight moves few slots */
static void mh_test_disruption(struct kunit *test)
{
	struct mh_test *t = test->priv;
	u32 i, n = 20, moved = 0;

	for (i = 0; i < n; i++)
		t->weight[i] = 100;
	mh_test_fill(t, n);
	memcpy(t->other, t->table, MH_SLOTS * sizeof(u32));
	t->weight[10] = 99;
	mh_test_fill(t, n);
	for (i = 0; i < MH_SLOTS; i++)
		moved += t->table[i] != t->other[i];
	KUNIT_EXPECT_LE(test, moved, MH_SLOTS / 50);
}

static struct kunit_case mh_test_cases[] = {
	KUNIT_CASE(mh_test_exact),
	KUNIT_CASE(mh_test_positive),
	KUNIT_CASE(mh_test_equal),
	KUNIT_CASE(mh_test_disruption),
	{}
};

static struct kunit_suite mh_test_suite = {
	.name = "ip_vs_mh",
	.init = mh_test_init,
	.test_cases = mh_test_cases,
};

kunit_test_suite(mh_test_suite);
