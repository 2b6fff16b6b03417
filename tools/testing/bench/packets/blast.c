// SPDX-License-Identifier: GPL-2.0-only
/*
 * blast: packets of many flows into a device, as fast as the kernel takes them,
 * and how long that took.
 *
 * usage: blast DEVICE MAC KIND ADDRESS FIRST FLOWS PACKETS
 *
 * KIND is ack, syn or udp; MAC and ADDRESS (IPv4 or IPv6, port 80) of the
 * receiver.  Packets go round FLOWS flows in an order that no cache foresees,
 * beginning with flow FIRST: flow i has its own address and port.  On stdout:
 * nanoseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "packet.h"

/* steps from flow to flow, a prime that divides no sensible number of them */
#define STRIDE		611953

int main(int argc, char **argv)
{
	uint64_t first, flows, packets, done, at = 0;
	struct timespec begin, end;
	struct sender sender;
	struct packet p;

	if (argc != 8) {
		fprintf(stderr, "usage: blast DEVICE MAC ack|syn|udp ADDRESS "
			"FIRST FLOWS PACKETS\n");
		return 2;
	}
	packet_make(&p, argv[2], argv[3], argv[4]);
	first = strtoull(argv[5], NULL, 10);
	flows = strtoull(argv[6], NULL, 10);
	packets = strtoull(argv[7], NULL, 10);
	sender_open(&sender, argv[1]);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (done = 0; done < packets; done++) {
		sender_put(&sender, &p, first + at);
		at = (at + STRIDE) % flows;
	}
	sender_send(&sender);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%lld\n", (end.tv_sec - begin.tv_sec) * 1000000000LL +
	       end.tv_nsec - begin.tv_nsec);
	return 0;
}
