// SPDX-License-Identifier: GPL-2.0-only
/* hashkey PORT...: how many hashes have the connections of one IPv6 client, from
 * its ports 32768 to 60999, to each of these ports of a service?  HASHKEY is
 * ip_vs_conn_hashkey() of a kernel tree, cut out of it.  What it feeds to siphash
 * is counted: siphash is taken to be perfect.
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

#define FIRST	32768
#define LAST	60999

static u64 seen[LAST - FIRST + 1];
static int hashes;

static int count(u64 word)
{
	int i;

	for (i = 0; i < hashes; i++)
		if (seen[i] == word)
			return 0;
	seen[hashes++] = word;
	return 0;
}

/* One client and one service: the other words are always the same */
static int siphash_4u64(u64 a, u64 b, u64 c, u64 d, const int *key)
{
	(void)b, (void)c, (void)d, (void)key;
	return count(a);
}

static int siphash_2u64(u64 a, u64 b, const int *key)
{
	(void)b, (void)key;
	return count(a);
}

#include HASHKEY

int main(int argc, char **argv)
{
	union nf_inet_addr client = { { 1, 2, 3, 4 } }, service = { { 5, 6, 7, 8 } };
	struct ip_vs_rht table = { 0 };
	int i, port;

	for (i = 1; i < argc; i++) {
		hashes = 0;
		for (port = FIRST; port <= LAST; port++)
			ip_vs_conn_hashkey(&table, AF_INET6, 6, &client,
					   htons(port), &service,
					   htons(atoi(argv[i])));
		printf("%s%d", i > 1 ? " " : "", hashes);
	}
	putchar('\n');
	return 0;
}
