// SPDX-License-Identifier: GPL-2.0-only
/* Can a sender choose IPv6 connections that have the same hash?  HASHKEY is
 * ip_vs_conn_hashkey() of a kernel tree, cut out of it; what it feeds to siphash
 * is looked at, as siphash is taken to be perfect.
 *
 * hashkey ports PORT...: how many hashes have the connections of one client, from
 * its ports 32768 to 60999, to each of these ports of a service?
 * hashkey bits: where a sender chooses some of the fields, how many of the bits
 * that he chooses are lost?  With 0 lost, no two of his connections have one hash.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_IP_VS_IPV6
#define __force

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t __be16;

union nf_inet_addr {
	u32 all[4];
};

struct ip_vs_rht {
	int hash_key;
};

/* What the function takes; the words of an address are in its order */
struct fields {
	u32 addr[4], laddr[4], port, lport;
};

struct words {
	u64 w[4];
};

static struct words fed;

static int siphash_4u64(u64 a, u64 b, u64 c, u64 d, const int *key)
{
	(void)key;
	fed = (struct words){ { a, b, c, d } };
	return 0;
}

static int siphash_2u64(u64 a, u64 b, const int *key)
{
	return siphash_4u64(a, b, 0, 0, key);
}

#include HASHKEY

static struct words hash(const struct fields *f)
{
	union nf_inet_addr addr, laddr;
	struct ip_vs_rht table = { 0 };

	memcpy(&addr, f->addr, sizeof(addr));
	memcpy(&laddr, f->laddr, sizeof(laddr));
	ip_vs_conn_hashkey(&table, AF_INET6, 6, &addr, f->port, &laddr,
			   f->lport);
	return fed;
}

#define FIRST	32768
#define LAST	60999

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct words));
}

static int hashes(int service)
{
	static struct words seen[LAST - FIRST + 1];
	struct fields f = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, 0, htons(service) };
	int i, n = 1;

	for (i = 0; i <= LAST - FIRST; i++) {
		f.port = htons(FIRST + i);
		seen[i] = hash(&f);
	}
	qsort(seen, LAST - FIRST + 1, sizeof(*seen), compare);
	for (i = 1; i <= LAST - FIRST; i++)
		n += !!compare(&seen[i - 1], &seen[i]);
	return n;
}

static struct words sum(struct words a, struct words b)
{
	int i;

	for (i = 0; i < 4; i++)
		a.w[i] ^= b.w[i];
	return a;
}

/* What the chosen bits of @f change */
static struct words change(const struct fields *f)
{
	static const struct fields none;

	return sum(hash(f), hash(&none));
}

static int has(const struct words *a, int bit)
{
	return a->w[bit / 64] >> bit % 64 & 1;
}

/* Is it linear (exclusive or)? */
static int linear(const u32 *mask)
{
	union {
		struct fields f;
		u32 w[10];
	} x, y, z;
	struct words a, b;
	int i, j;

	for (i = 0; i < 1000; i++) {
		for (j = 0; j < 10; j++) {
			x.w[j] = ((u32)random() << 16 ^ random()) & mask[j];
			y.w[j] = ((u32)random() << 16 ^ random()) & mask[j];
			z.w[j] = x.w[j] ^ y.w[j];
		}
		a = sum(change(&x.f), change(&y.f));
		b = change(&z.f);
		if (compare(&a, &b))
			return 0;
	}
	return 1;
}

/* Of @chosen, those that are sums of others; -1 if it is not linear */
static int lost(const struct fields *chosen)
{
	struct words basis[256] = { 0 }, row;
	u32 mask[10];
	int i, bit, n = 0;

	memcpy(mask, chosen, sizeof(mask));
	if (!linear(mask))
		return -1;
	for (i = 0; i < 320; i++) {
		u32 one[10] = { 0 };
		struct fields f;

		if (!(mask[i / 32] >> i % 32 & 1))
			continue;
		one[i / 32] = 1U << i % 32;
		memcpy(&f, one, sizeof(f));
		row = change(&f);
		n++;
		for (bit = 0; bit < 256; bit++) {
			if (!has(&row, bit))
				continue;
			if (!has(&basis[bit], bit)) {
				basis[bit] = row;
				n--;
				break;
			}
			row = sum(row, basis[bit]);
		}
	}
	return n;
}

#define ALL	0xffffffffU
#define PORT	0xffffU

int main(int argc, char **argv)
{
	static const struct fields senders[] = {
		/* any client, forged ones, to a service */
		{ { ALL, ALL, ALL, ALL }, { 0 }, PORT, 0 },
		/* the same, to a service of all ports */
		{ { ALL, ALL, ALL, ALL }, { 0 }, PORT, PORT },
		/* a client with a /32 to a service by mark, of all addresses */
		{ { 0, ALL, ALL, ALL }, { ALL, ALL, ALL, ALL }, PORT, PORT },
		/* any client, by the hash of a real server's answers */
		{ { 0 }, { ALL, ALL, ALL, ALL }, 0, PORT },
		/* control: any client to a service of all addresses */
		{ { ALL, ALL, ALL, ALL }, { ALL, ALL, ALL, ALL }, PORT, PORT },
	};
	size_t i;

	if (argc > 1 && !strcmp(argv[1], "bits"))
		for (i = 0; i < sizeof(senders) / sizeof(*senders); i++)
			printf("%s%d", i ? " " : "", lost(&senders[i]));
	else
		for (i = 2; i < (size_t)argc; i++)
			printf("%s%d", i > 2 ? " " : "", hashes(atoi(argv[i])));
	putchar('\n');
	return 0;
}
