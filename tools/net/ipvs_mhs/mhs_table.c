// SPDX-License-Identifier: GPL-2.0-only
/* Compute the lookup table that ip_vs_mhs makes of a set of servers.
 *
 * The hash key comes on standard input, where nobody else sees it, and then a
 * line for each server:
 *
 *	ADDRESS PORT WEIGHT
 *
 * and the table goes to standard output: the fingerprint, as CandidatePrint in
 * /proc/net/ip_vs_mhs shows it, and then for each slot the number of its
 * server's line, from 0, or -1 if it has none.
 *
 * Hashes, order of servers, fill and fingerprint are the kernel's own text;
 * random.sh compares the result with the kernel's.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ip_vs_mhs_table.h"

#define KEY_DIGITS	32

struct server {
	int		af;
	union nf_inet_addr addr;
	unsigned int	port;
	unsigned int	weight;
	int		line;
};

static void die(const char *what)
{
	fprintf(stderr, "mhs_table: %s\n", what);
	exit(1);
}

static void *get(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		die("out of memory");
	return p;
}

static void parse_key(void)
{
	char text[KEY_DIGITS + 2];
	u8 raw[KEY_DIGITS / 2];
	unsigned int i;

	if (!fgets(text, sizeof(text), stdin) ||
	    strspn(text, "0123456789abcdefABCDEF") != KEY_DIGITS ||
	    text[KEY_DIGITS] != '\n')
		die("the first line is not a key of 32 hexadecimal digits");
	for (i = 0; i < sizeof(raw); i++)
		if (sscanf(text + 2 * i, "%2hhx", &raw[i]) != 1)
			die("the key cannot be read");
	mhs_hash_set_key(raw);
}

static void parse_server(struct server *s, int line)
{
	char text[256], addr[64];
	unsigned int weight;

	if (!fgets(text, sizeof(text), stdin))
		die("a line is missing");
	if (sscanf(text, "%63s %u %u", addr, &s->port, &weight) != 3 ||
	    s->port > 65535 || weight > INT_MAX)
		die("a line of the input is not ADDRESS PORT WEIGHT");
	s->weight = weight;
	s->line = line;
	s->af = strchr(addr, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(s->af, addr, &s->addr) != 1)
		die("a line of the input begins with no address");
}

static int compare(const void *left, const void *right)
{
	const struct server *a = left, *b = right;

	return mhs_table_order(a->af, &a->addr, htons(a->port),
			       b->af, &b->addr, htons(b->port));
}

int main(int argc, char **argv)
{
	struct mhs_fill fill = {};
	uint64_t *ids, print = 0;
	struct server *servers;
	long size, n, i;
	u32 in = 0, slot;

	if (argc != 3) {
		fprintf(stderr, "usage: mhs_table SLOTS SERVERS\n");
		return 2;
	}
	size = atol(argv[1]);
	if (size < 0 || size > INT_MAX || !mhs_table_size_valid(size))
		die("SLOTS: not a size that a table can have");
	parse_key();
	n = atol(argv[2]);
	if (n < 0 || n > (long)MHS_IDX_MAX)
		die("SERVERS: more than a service can have");

	servers = get(n, sizeof(*servers));
	for (i = 0; i < n; i++)
		parse_server(&servers[i], i);
	qsort(servers, n, sizeof(*servers), compare);
	for (i = 1; i < n; i++)
		if (!compare(&servers[i - 1], &servers[i]))
			die("a server stands there twice");

	fill.size = size;
	fill.table = get(size, sizeof(*fill.table));
	fill.head = get(size, sizeof(*fill.head));
	fill.tail = get(size, sizeof(*fill.tail));
	fill.share = get(n, sizeof(*fill.share));
	ids = get(n, sizeof(*ids));
	for (i = 0; i < n; i++) {
		/* a server of weight 0 is in no table */
		if (!servers[i].weight)
			continue;
		servers[in] = servers[i];
		ids[in] = mhs_hash_server(&mhs_hash_key,
					  servers[in].af,
					  &servers[in].addr,
					  htons(servers[in].port));
		mhs_share_init(&fill.share[in], servers[in].weight,
			       ids[in], size);
		in++;
	}
	mhs_table_fill(&fill, in);

	for (slot = 0; slot < fill.size; slot++)
		print = mhs_table_fingerprint(print, in ?
					ids[fill.table[slot]] : 0);
	printf("%016" PRIx64 "\n", print);
	for (slot = 0; slot < fill.size; slot++)
		printf("%d\n", in ? servers[fill.table[slot]].line : -1);
	exit(fflush(stdout) ? 1 : 0);
}
