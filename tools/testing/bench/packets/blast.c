// SPDX-License-Identifier: GPL-2.0-only
/*
 * blast: packets of many flows into a device, as fast as the kernel takes them,
 * and how long that took.
 *
 * usage: blast DEVICE MAC KIND ADDRESS FIRST FLOWS PACKETS DONE
 *
 * KIND is ack, syn or udp; MAC and ADDRESS (IPv4 or IPv6, port 80) of the
 * receiver.  Packets go round FLOWS flows in an order that no cache foresees,
 * beginning with flow FIRST: flow i has its own address and port.  DONE packets
 * have gone before, so that others than theirs are next.  On stdout:
 * nanoseconds, those of the median burst for all: on a host that does something
 * else too, most bursts are short enough not to be interrupted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "packet.h"

/* steps from flow to flow, a prime that divides no sensible number of them */
#define STRIDE		611953

static int by_size(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	uint64_t first, flows, packets, bursts, burst, sent, at;
	struct sender sender;
	struct packet p;
	long long *ns;
	int i;

	if (argc != 9) {
		fprintf(stderr, "usage: blast DEVICE MAC ack|syn|udp ADDRESS "
			"FIRST FLOWS PACKETS DONE\n");
		return 2;
	}
	packet_make(&p, argv[2], argv[3], argv[4]);
	first = strtoull(argv[5], NULL, 10);
	flows = strtoull(argv[6], NULL, 10);
	packets = strtoull(argv[7], NULL, 10);
	bursts = packets / BURST;
	ns = calloc(bursts, sizeof(*ns));
	if (!bursts || !flows || !ns) {
		fprintf(stderr, "blast: at least one flow and %d packets\n",
			BURST);
		return 2;
	}
	at = strtoull(argv[8], NULL, 10) % flows * STRIDE % flows;
	sender_open(&sender, argv[1]);
	for (burst = 0; burst < bursts; burst++) {
		ns[burst] = -now();
		/* the last one sends */
		for (i = 0; i < BURST; i++) {
			sender_put(&sender, &p, first + at);
			at = (at + STRIDE) % flows;
		}
		ns[burst] += now();
	}
	for (sent = bursts * BURST; sent < packets; sent++) {
		sender_put(&sender, &p, first + at);
		at = (at + STRIDE) % flows;
	}
	sender_send(&sender);
	qsort(ns, bursts, sizeof(*ns), by_size);
	printf("%lld\n", ns[bursts / 2] * (long long)packets / BURST);
	return 0;
}
