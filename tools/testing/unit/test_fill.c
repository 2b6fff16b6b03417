// SPDX-License-Identifier: GPL-2.0-only
/* The table fill: complete, fair to the weights, a function of the set of
 * servers and of nothing else, and of bounded cost.
 */
#include <endian.h>
#include <stdlib.h>

#include "ip_vs_mhs_decide.h"
#include "tables.h"

static const u32 counts[] = { 1, 2, 3, 10, 100, 500, 1000, 8190 };

struct sip_rounds {
	u32 c, d;
};

static const struct sip_rounds sip24 = { 2, 4 }, sip13 = { 1, 3 };

/* The vectors that the authors of SipHash publish */
static bool sip(const void *arg)
{
	static const u64 key[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };
	static const struct { size_t len; u64 hash; } vectors[] = {
		{ 0, 0x726fdb47dd0e0e31 }, { 1, 0x74f839c593dc67fd },
		{ 15, 0xa129ca6149be45e5 },
	};
	const struct sip_rounds *r = arg;
	u8 data[15];
	u32 i;

	for (i = 0; i < sizeof(data); i++)
		data[i] = i;
	for (i = 0; i < ARRAY_SIZE(vectors); i++)
		if (siphash(r->c, r->d, key, data, vectors[i].len) !=
		    vectors[i].hash)
			return unit_fail("vector of %zu bytes",
					 vectors[i].len);
	return true;
}

/* The module's hashes are SipHash over the port and the address, in little-endian words.
 * Directors of all versions have to agree.
 */
static bool hashes(const void *arg)
{
	static const u64 pi[2] = { 0x243f6a8885a308d3, 0x13198a2e03707344 };
	u64 ip4 = htole64(0xcb007107ULL << 16 | 8443), ip6[3] = {
		htole64(0x20010db8aabbccdd), htole64(0x01020304cb007107), htole64(8443),
	};
	union nf_inet_addr four = { .ip = htonl(0xcb007107) }, six = { .ip6 = {
		htonl(0x20010db8), htonl(0xaabbccdd), htonl(0x01020304), four.ip } };
	siphash_key_t *k = &mhs_hash_key, was = *k;
	const struct sip_rounds *r = arg;

	mhs_hash_set_key((const u8 *)"\xd3\x08\xa3\x85\x88\x6a\x3f\x24"
			 "\x44\x73\x70\x03\x2e\x8a\x19\x13");
	return (!memcmp(k, pi, sizeof(pi)) && !memcmp(&was, pi, sizeof(pi)) &&
		mhs_hash_client(k, false, &four, 8443) == siphash(1, 3, pi, &ip4, 6) &&
		mhs_hash_client(k, true, &six, 8443) == siphash(1, 3, pi, ip6, 18) &&
		mhs_hash_server(k, AF_INET, &four, htons(8443)) ==
		siphash(r->c, r->d, pi, &ip4, 8) &&
		mhs_hash_server(k, AF_INET6, &six, htons(8443)) ==
		siphash(r->c, r->d, pi, ip6, 24)) || unit_fail("another hash");
}

struct any_size {
	bool (*valid)(u32 size);
};

static bool is_prime(u32 n)
{
	u32 i;

	for (i = 2; i * i <= n; i++)
		if (n % i == 0)
			return false;
	return n > 1;
}

/* Valid is the largest prime below each power of two from 2^8 to 2^19 */
static bool sizes(const void *arg)
{
	const struct any_size *a = arg;
	u32 size, power, want = 0;

	for (size = 1 << 20; size; size--) {
		power = !(size & (size - 1));
		if (power && size >= 256 && size <= 1 << 19)
			for (want = size - 1; !is_prime(want); )
				want--;
		if (a->valid(size) != (size == want))
			return unit_fail("size %u", size);
	}
	return !a->valid(0) && !a->valid(~0U);
}

static const struct any_size size_real = { mhs_table_size_valid };
static const struct any_size size_prime = { is_prime };

static bool shares_init(const void *arg)
{
	static const u64 hashes[] = {
		0, 1, 0xffffffff, 0x100000000, 0xffffffff00000000, ~0ULL,
	};
	u32 size, i;

	(void)arg;
	for (size = 0; size < ARRAY_SIZE(table_sizes); size++)
		for (i = 0; i < ARRAY_SIZE(hashes); i++) {
			struct mhs_share s;

			mhs_share_init(&s, 1, hashes[i],
				       table_sizes[size]);
			/* The largest hash has the last place, the widest skip */
			if (s.pos >= table_sizes[size] || !s.skip ||
			    s.skip >= table_sizes[size] || s.taken ||
			    (hashes[i] == ~0ULL &&
			     (s.pos + 1 != table_sizes[size] ||
			      s.skip + 1 != table_sizes[size])))
				return unit_fail("size %u hash %#llx",
						 table_sizes[size],
						 (unsigned long long)hashes[i]);
		}
	return true;
}

/* Every size with every number of servers and every kind of weights */
static bool all_tables(const struct recipe *recipe,
		       bool (*each)(const struct table *t))
{
	u32 s, n, kind, trial = 0;

	for (s = 0; s < ARRAY_SIZE(table_sizes); s++)
		for (n = 0; n < ARRAY_SIZE(counts); n++)
			for (kind = 0; kind < W_KINDS; kind++, trial++) {
				struct rng r = unit_rng(trial);
				struct server *set =
					servers_new(&r, counts[n], kind);
				struct table *t = table_new(recipe,
							    table_sizes[s],
							    set, counts[n]);
				bool passed = each(t);

				table_free(t);
				free(set);
				if (!passed)
					return false;
			}
	return true;
}

static bool complete_table(const struct table *t)
{
	u32 *taken = unit_alloc(t->n, sizeof(*taken));
	u32 i, empty = 0, holes = 0, wrong = 0;

	for (i = 0; i < t->size; i++)
		if (t->fill.table[i] < t->n)
			taken[t->fill.table[i]]++;
		else
			holes++;
	for (i = 0; i < t->n; i++) {
		empty += !taken[i];
		wrong += taken[i] != t->fill.share[i].taken;
	}
	free(taken);
	if (!holes && !wrong && empty == t->empty)
		return true;
	return unit_fail("size %u, %u servers: %u holes, %u wrong taken, %u without a slot and %u reported",
			 t->size, t->n, holes, wrong, empty, t->empty);
}

static bool complete(const void *arg)
{
	return all_tables(arg, complete_table);
}

/* There is a number of rounds by which every server has claimed what it
 * earned, or what it had earned a round before: the last round may be cut.
 */
static bool earned_table(const struct table *t)
{
	const struct mhs_share *s = t->fill.share;
	u32 max = 0, rounds = 0, tries, i, bad = 0;

	for (i = 0; i < t->n; i++) {
		if (s[i].weight > max)
			max = s[i].weight;
		if (s[i].taken > rounds)
			rounds = s[i].taken;
	}
	for (tries = 0; tries < 2; tries++, rounds++) {
		for (i = 0; i < t->n; i++) {
			u64 now = (2ULL * rounds * s[i].weight + max) /
				  (2ULL * max);
			u64 before = (2ULL * (rounds - 1) * s[i].weight + max) /
				     (2ULL * max);

			if (s[i].taken > now || s[i].taken < before)
				break;
		}
		if (i == t->n)
			return true;
		bad = i;
	}
	return unit_fail("size %u, %u servers: server %u of weight %u (most %u) has %u slots after %u rounds",
			 t->size, t->n, bad, s[bad].weight, max, s[bad].taken,
			 rounds - 1);
}

static bool earned(const void *arg)
{
	return all_tables(arg, earned_table);
}

/* With a slot a server on average nobody is 1 % and a slot off its share */
static bool fair_table(const struct table *t)
{
	double sum = 0;
	u32 i;

	if (t->size < t->n)
		return true;
	for (i = 0; i < t->n; i++)
		sum += t->server[i].weight;
	for (i = 0; i < t->n; i++) {
		double share = t->size * (t->server[i].weight / sum);
		u32 taken = t->fill.share[i].taken;

		if (taken > share * 1.01 + 1 || taken < share * 0.99 - 1)
			return unit_fail("size %u, %u servers: weight %u has %u slots, its share is %.1f",
					 t->size, t->n, t->server[i].weight,
					 taken, share);
	}
	return true;
}

static bool fair(const void *arg)
{
	return all_tables(arg, fair_table);
}

static bool one_to_hundred(const void *arg)
{
	u32 s;

	for (s = 6; s < ARRAY_SIZE(table_sizes); s++) {
		struct rng r = unit_rng(s);
		struct server *set = servers_new(&r, 2, W_EQUAL);
		struct table *t;
		double ratio;
		bool first;

		set[0].weight = 1;
		t = table_new(arg, table_sizes[s], set, 2);
		first = t->server[0].weight == 1;
		ratio = (double)t->fill.share[first].taken /
			t->fill.share[!first].taken;
		table_free(t);
		free(set);
		if (ratio < 99 || ratio > 101)
			return unit_fail("size %u: 1:%.2f", table_sizes[s],
					 ratio);
	}
	return true;
}

static bool same_bytes(const struct table *a, const struct table *b)
{
	return a->n == b->n && a->empty == b->empty &&
	       !memcmp(a->fill.table, b->fill.table,
		       a->size * sizeof(*a->fill.table)) &&
	       !memcmp(a->server, b->server, a->n * sizeof(*a->server));
}

/* A light server falls due in the last round, just before or just after it:
 * a step too far would be one for the sanitizer
 */
static bool last_round(const void *arg)
{
	u32 s, kind;

	for (s = 0; s < ARRAY_SIZE(table_sizes); s++)
		for (kind = 0; kind < 6; kind++) {
			u32 size = table_sizes[s];
			struct rng r = unit_rng(kind);
			struct server *set = servers_new(&r, 3, W_EQUAL);
			struct table *t;
			bool passed;

			set[0].weight = 2 * size - 1 + kind % 3;
			set[1].weight = 1;
			set[2].weight = kind < 3 ? 0 : 1;
			t = table_new(arg, size, set, 3);
			passed = complete_table(t) && earned_table(t);
			table_free(t);
			free(set);
			if (!passed)
				return false;
		}
	return true;
}

/* Two independent programs, one table */
static bool reference(const void *arg)
{
	u32 trial;

	for (trial = 0; trial < 300; trial++) {
		struct rng r = unit_rng(trial);
		u32 n = rng_below(&r, trial % 4 ? 40 : 400);
		u32 size = table_sizes[rng_below(&r, 3)];
		struct server *set = servers_new(&r, n, trial % 3);
		struct table *a = table_new(arg, size, set, n);
		struct table *b = table_new(&recipe_reference, size, set, n);
		bool same = same_bytes(a, b);

		table_free(b);
		table_free(a);
		free(set);
		if (!same)
			return unit_fail("trial %u: size %u, %u servers",
					 trial, size, n);
	}
	return true;
}

/* The order in which servers come is nothing to the table, and neither is
 * what the scratch space holds: here, the table of another set.
 */
static bool pure(const void *arg)
{
	u32 trial;

	for (trial = 0; trial < 200; trial++) {
		struct rng r = unit_rng(trial);
		u32 n = 2 + rng_below(&r, 300);
		u32 size = table_sizes[rng_below(&r, 6)];
		struct server *set = servers_new(&r, n, trial % W_KINDS);
		struct table *a = table_new(arg, size, set, n), *b;
		struct server *other = servers_new(&r, n, W_SMALL);
		bool shuffled, refilled;

		servers_shuffle(&r, set, n);
		b = table_new(arg, size, set, n);
		shuffled = same_bytes(a, b) && table_print(a) == table_print(b);
		table_refill(b, arg, other, n);
		memset(b->fill.head, rng_below(&r, 256), size * sizeof(u16));
		memset(b->fill.tail, rng_below(&r, 256), size * sizeof(u16));
		table_refill(b, arg, set, n);
		refilled = same_bytes(a, b);
		table_free(b);
		free(other);
		table_free(a);
		free(set);
		if (!shuffled || !refilled)
			return unit_fail("trial %u: size %u, %u servers: %s",
					 trial, size, n, shuffled ?
					 "scratch space matters" :
					 "order matters");
	}
	return true;
}

struct fingerprint {
	u64 (*print)(u64 print, u64 id);
};

static u64 add_up(u64 print, u64 id)
{
	return print + id;
}

static const struct fingerprint print_real = { mhs_table_fingerprint };
static const struct fingerprint print_sum = { add_up };

static u64 print_all(const struct fingerprint *f, const u64 *id, u32 n)
{
	u64 print = 0;
	u32 i;

	for (i = 0; i < n; i++)
		print = f->print(print, id[i]);
	return print;
}

/* One slot less, another server in a slot, or two slots that swap servers:
 * another fingerprint
 */
static bool prints(const void *arg)
{
	u64 id[251], print;
	u32 trial, a, b;

	for (trial = 0; trial < 5000; trial++) {
		struct rng r = unit_rng(trial);
		u64 saved;

		for (a = 0; a < ARRAY_SIZE(id); a++)
			id[a] = rng_below(&r, 20) ? rng_next(&r) : 0;
		print = print_all(arg, id, ARRAY_SIZE(id));
		a = rng_below(&r, ARRAY_SIZE(id));
		b = rng_below(&r, ARRAY_SIZE(id));
		saved = id[a];
		id[a] ^= 1ULL << rng_below(&r, 64);
		if (print_all(arg, id, ARRAY_SIZE(id)) == print)
			return unit_fail("trial %u: slot %u changed", trial, a);
		id[a] = id[b];
		id[b] = saved;
		if (saved != id[a] &&
		    print_all(arg, id, ARRAY_SIZE(id)) == print)
			return unit_fail("trial %u: slots %u and %u swapped",
					 trial, a, b);
	}
	return true;
}

static const struct unit_test tests[] = {
	{ "siphash", sip, &sip24, NULL },
	{ "siphash_catches_fewer_rounds", sip, &sip13, "vector of" },
	{ "hashes", hashes, &sip24, NULL },
	{ "hashes_catches_fewer_rounds", hashes, &sip13, "another hash" },
	{ "sizes", sizes, &size_real, NULL },
	{ "sizes_catches_any_prime", sizes, &size_prime, "size 1048573" },
	{ "shares_init", shares_init, NULL, NULL },
	{ "complete", complete, &recipe_real, NULL },
	{ "complete_catches_hole", complete, &recipe_hole, ": 1 holes" },
	{ "complete_catches_miscount", complete, &recipe_miscount,
	  ": 0 holes, 0 wrong taken, 1 without" },
	{ "earned", earned, &recipe_real, NULL },
	{ "earned_catches_turns", earned, &recipe_turns, "slots after" },
	{ "last_round", last_round, &recipe_real, NULL },
	{ "last_round_catches_miscount", last_round, &recipe_miscount,
	  ": 0 holes, 0 wrong taken, 1 without" },
	{ "fair", fair, &recipe_real, NULL },
	{ "fair_catches_turns", fair, &recipe_turns, "its share is" },
	{ "one_to_hundred", one_to_hundred, &recipe_real, NULL },
	{ "one_to_hundred_catches_turns", one_to_hundred, &recipe_turns,
	  ": 1:" },
	{ "reference", reference, &recipe_real, NULL },
	{ "reference_catches_turns", reference, &recipe_turns, "trial" },
	{ "reference_catches_clamp", reference, &recipe_clamped, "trial" },
	{ "pure", pure, &recipe_real, NULL },
	{ "pure_catches_unsorted", pure, &recipe_unsorted, "order matters" },
	{ "pure_catches_sorted_by_address", pure, &recipe_sorted_by_address,
	  "order matters" },
	{ "pure_catches_in_place", pure, &recipe_in_place,
	  "scratch space matters" },
	{ "fingerprint", prints, &print_real, NULL },
	{ "fingerprint_catches_sum", prints, &print_sum, "swapped" },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
