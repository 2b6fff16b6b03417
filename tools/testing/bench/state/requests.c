// SPDX-License-Identifier: GPL-2.0-only
/*
 * requests: the client's side of short TCP connections, and of long ones, at a
 * given rate, to several directors alike; who answers is seen at their sinks.
 *
 * usage: requests SECONDS RATE LONG DIRECTOR...
 *
 * DIRECTOR is IN,MAC,OUT,ADDRESS: device and MAC address of its way in, the
 * device behind its way out, the address of the service.  A connection is SYN,
 * ACK, request, ACK and, LIFE later, FIN and ACK; LONG connections last all the
 * time and send a packet in each PAUSE.  A connection is broken when a packet of
 * it comes to another server than the first or does not arrive.
 *
 * For each director a line: requests, packets, short connections that moved and
 * that lost a packet, long ones that did, and for each second but the first and
 * the last the median nanoseconds that the packets of a slot of time took, for
 * each request in it.  On standard error the seconds that all sending took: more
 * than SECONDS if the rate was not reached.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "packet.h"

#define SECOND		250	/* slots */
#define SLOT_NS		(1000000000LL / SECOND)
#define LIFE		25	/* slots */
#define PAUSE		125	/* slots */
#define SINK_FRAMES	8192
#define NO_SERVER	0xffff
#define PACKETS		6	/* of a short connection */

struct director {
	struct sender	sender;
	struct packet	syn, ack, fin;
	int		sink_fd;
	unsigned char	*sink;
	unsigned int	sink_at;
	uint16_t	*server;	/* by connection, and its packets */
	uint16_t	*sent, *got;
	unsigned char	*moved;
	uint64_t	packets;
	long long	*slot_ns;
};

static uint64_t flows;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *zeros(size_t number, size_t size)
{
	void *p = calloc(number, size);

	if (!p)
		die("requests");
	return p;
}

static void sink_open(struct director *d, const char *device)
{
	struct tpacket_req request = {
		.tp_block_size = 65536, .tp_frame_size = FRAME,
		.tp_frame_nr = SINK_FRAMES,
		.tp_block_nr = SINK_FRAMES * FRAME / 65536,
	};
	struct sockaddr_ll at = { .sll_family = AF_PACKET };
	socklen_t size = sizeof(at);

	d->sink_fd = packet_socket(device);
	if (getsockname(d->sink_fd, (struct sockaddr *)&at, &size))
		die(device);
	at.sll_protocol = htons(ETH_P_ALL);
	if (setsockopt(d->sink_fd, SOL_PACKET, PACKET_RX_RING, &request,
		       sizeof(request)) ||
	    bind(d->sink_fd, (struct sockaddr *)&at, sizeof(at)))
		die(device);
	d->sink = mmap(NULL, SINK_FRAMES * FRAME, PROT_READ | PROT_WRITE,
		       MAP_SHARED, d->sink_fd, 0);
	if (d->sink == MAP_FAILED)
		die(device);
}

static void director_open(struct director *d, char *text, size_t slots)
{
	char *in = strtok(text, ","), *mac = strtok(NULL, ",");
	char *out = strtok(NULL, ","), *address = strtok(NULL, ",");

	if (!address) {
		fprintf(stderr, "requests: DIRECTOR is IN,MAC,OUT,ADDRESS\n");
		exit(2);
	}
	packet_make(&d->syn, mac, "syn", address);
	packet_make(&d->ack, mac, "ack", address);
	packet_make(&d->fin, mac, "fin", address);
	sender_open(&d->sender, in);
	sink_open(d, out);
	d->server = zeros(flows, sizeof(*d->server));
	memset(d->server, 0xff, flows * sizeof(*d->server));
	d->sent = zeros(flows, sizeof(*d->sent));
	d->got = zeros(flows, sizeof(*d->got));
	d->moved = zeros(flows, 1);
	d->slot_ns = zeros(slots, sizeof(*d->slot_ns));
}

/* Read what has arrived at the sink */
static void sink_read(struct director *d)
{
	for (;; d->sink_at = (d->sink_at + 1) % SINK_FRAMES) {
		unsigned char *frame = d->sink + d->sink_at * FRAME;
		struct tpacket_hdr *header = (void *)frame;
		const unsigned char *data = frame + header->tp_mac;
		uint32_t address;
		uint16_t port, server;
		uint64_t flow;

		if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) &
		      TP_STATUS_USER))
			return;
		memcpy(&address, data + ETH_HLEN + 12, 4);
		memcpy(&port, data + ETH_HLEN + 20, 2);
		server = data[4] << 8 | data[5];
		flow = (uint64_t)(ntohl(address) - FIRST_CLIENT) * PORTS +
		       ntohs(port) - FIRST_PORT;
		if (data[12] == 8 && data[13] == 0 && flow < flows) {
			if (d->server[flow] == NO_SERVER)
				d->server[flow] = server;
			d->moved[flow] |= d->server[flow] != server;
			d->got[flow]++;
		}
		__atomic_store_n(&header->tp_status, TP_STATUS_KERNEL,
				 __ATOMIC_RELEASE);
	}
}

static void put(struct director *d, const struct packet *p, uint64_t flow)
{
	sender_put(&d->sender, p, flow);
	d->sent[flow]++;
	d->packets++;
}

/* What one slot of time brings: connections begun in slot s are those from
 * first + s * each
 */
static void one_slot(struct director *d, long slot, long slots, uint64_t longs,
		     uint64_t each)
{
	static const int ages[] = { 0, 1, 2, 3, LIFE, LIFE + 1 };
	long long begin = now();
	uint64_t i;
	int age;

	for (age = 0; age < PACKETS; age++) {
		long of = slot - ages[age];

		/* none that could not end */
		if (of < 0 || of >= slots - LIFE - 1)
			continue;
		for (i = 0; i < each; i++)
			put(d, age == 0 ? &d->syn : age == 4 ? &d->fin :
			    &d->ack, longs + of * each + i);
	}
	for (i = slot % PAUSE; i < longs; i += PAUSE)
		put(d, slot < PAUSE ? &d->syn : &d->ack, i);
	sender_send(&d->sender);
	d->slot_ns[slot] = now() - begin;
	sink_read(d);
}

static int by_size(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

static void report(struct director *d, long slots, uint64_t longs,
		   uint64_t each)
{
	uint64_t moved[2] = { 0, 0 }, lost[2] = { 0, 0 }, i;
	long at;

	for (i = 0; i < flows; i++) {
		moved[i < longs] += d->moved[i];
		lost[i < longs] += d->got[i] < d->sent[i];
	}
	printf("%lld %lld %lld %lld %lld %lld",
	       (long long)(flows - longs), (long long)d->packets,
	       (long long)moved[0], (long long)lost[0], (long long)moved[1],
	       (long long)lost[1]);
	/* seconds with everything in them */
	for (at = SECOND; at + 2 * SECOND <= slots; at += SECOND) {
		qsort(d->slot_ns + at, SECOND, sizeof(*d->slot_ns), by_size);
		printf(" %lld", d->slot_ns[at + SECOND / 2] * PACKETS /
		       (long long)(each * PACKETS + longs / PAUSE));
	}
	putchar('\n');
}

int main(int argc, char **argv)
{
	uint64_t longs, each;
	struct director *d;
	long long begin, took;
	long slots, slot;
	int n, i;

	if (argc < 5) {
		fprintf(stderr, "usage: requests SECONDS RATE LONG DIRECTOR...\n");
		return 2;
	}
	slots = atol(argv[1]) * SECOND;
	each = atol(argv[2]) / SECOND;
	longs = atol(argv[3]);
	if (slots < 3 * SECOND || !each || atol(argv[2]) % SECOND) {
		fprintf(stderr, "requests: at least 3 SECONDS, a RATE in steps of %d\n",
			SECOND);
		return 2;
	}
	n = argc - 4;
	flows = longs + (slots - LIFE - 1) * each;
	d = zeros(n, sizeof(*d));
	for (i = 0; i < n; i++)
		director_open(&d[i], argv[4 + i], slots);
	begin = now();
	for (slot = 0; slot < slots; slot++) {
		long long early = begin + slot * SLOT_NS - now();

		if (early > 0)
			usleep(early / 1000);
		/* in turns, so that none is always the first */
		for (i = 0; i < n; i++)
			one_slot(&d[(slot + i) % n], slot, slots, longs, each);
	}
	took = now() - begin;
	usleep(200000);
	for (i = 0; i < n; i++) {
		sink_read(&d[i]);
		report(&d[i], slots, longs, each);
	}
	fprintf(stderr, "%.2f\n", took / 1e9);
	return 0;
}
