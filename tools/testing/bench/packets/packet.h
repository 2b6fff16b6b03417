/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets of TCP and UDP clients, and the rings that carry them.
 *
 * The packets lie in a ring shared with the kernel, and one system call sends
 * all that are ready.  On one CPU they are received while they are sent: when
 * the call returns, all have gone their way.
 */
#ifndef _BENCH_PACKET_H
#define _BENCH_PACKET_H

#include <stddef.h>
#include <stdint.h>

#define FRAME		256	/* bytes, a power of two */
#define BURST		64	/* frames of a ring for sending, below every queue */
#define PORTS		50000	/* of one client address */
#define FIRST_PORT	10000
#define FIRST_CLIENT	(10U << 24 | 1 << 16 | 1 << 8)

struct packet {
	unsigned char	data[128];
	size_t		length;
	size_t		address, port;	/* where the client's are */
	size_t		ip_sum, sum;	/* checksums, 0: none */
	uint32_t	base_ip, base;	/* them without the client */
};

void die(const char *what);

/* All of it but the client's address and port; KIND is ack, syn, fin or udp */
void packet_make(struct packet *p, const char *mac, const char *kind,
		 const char *address);

struct sender {
	int		fd;
	unsigned char	*ring;
	int		at, ready;	/* next frame; frames to be sent */
};

void sender_open(struct sender *s, const char *device);

/* Put packet @p of client flow @flow into the ring; a full one is sent */
void sender_put(struct sender *s, const struct packet *p, uint64_t flow);

/* Send what has been put since the last time */
void sender_send(struct sender *s);

int packet_socket(const char *device);

#endif /* _BENCH_PACKET_H */
