// SPDX-License-Identifier: GPL-2.0-only
/* Packets of TCP and UDP clients, and the rings that carry them. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "packet.h"

#define DATA		(TPACKET_HDRLEN - sizeof(struct sockaddr_ll))
#define SERVICE_PORT	80

void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint32_t add(uint32_t sum, const void *data, size_t bytes)
{
	uint16_t word;

	for (; bytes; bytes -= 2, data = (char *)data + 2) {
		memcpy(&word, data, 2);
		sum += word;
	}
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

static void put16(struct packet *p, size_t at, uint16_t value)
{
	value = htons(value);
	memcpy(p->data + at, &value, 2);
}

static void base_sums(struct packet *p)
{
	size_t ip = ETH_HLEN, addresses = p->ip_sum ? 8 : 32;
	uint16_t rest[2] = {
		htons(p->length - p->port), htons(IPPROTO_TCP),
	};

	p->base_ip = add(0, p->data + ip, 20);
	p->base = add(0, p->data + p->port - addresses, addresses);
	p->base = add(p->base, rest, sizeof(rest));
	p->base = add(p->base, p->data + p->port, p->length - p->port);
}

void packet_make(struct packet *p, const char *mac, const char *kind,
		 const char *address)
{
	int v6 = !!strchr(address, ':'), udp = !strcmp(kind, "udp");
	size_t ip = ETH_HLEN, head = v6 ? 40 : 20, l4 = ip + head;
	size_t payload = udp ? 8 : 20;
	unsigned int m[6], i;

	memset(p, 0, sizeof(*p));
	if (sscanf(mac, "%x:%x:%x:%x:%x:%x", m, m + 1, m + 2, m + 3, m + 4,
		   m + 5) != 6)
		die("blast: MAC");
	for (i = 0; i < 6; i++)
		p->data[i] = m[i];
	p->data[6] = 2;
	put16(p, 12, v6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP);
	if (v6) {
		p->data[ip] = 0x60;
		put16(p, ip + 4, payload);
		p->data[ip + 6] = udp ? IPPROTO_UDP : IPPROTO_TCP;
		p->data[ip + 7] = 64;
		p->address = ip + 20;	/* the last four bytes of it */
		memcpy(p->data + ip + 8, "\xfd\x01", 2);
		if (inet_pton(AF_INET6, address, p->data + ip + 24) != 1)
			die("blast: ADDRESS");
	} else {
		p->data[ip] = 0x45;
		put16(p, ip + 2, head + payload);
		put16(p, ip + 6, 0x4000);	/* do not fragment */
		p->data[ip + 8] = 64;
		p->data[ip + 9] = udp ? IPPROTO_UDP : IPPROTO_TCP;
		p->address = ip + 12;
		p->ip_sum = ip + 10;
		if (inet_pton(AF_INET, address, p->data + ip + 16) != 1)
			die("blast: ADDRESS");
	}
	p->port = l4;
	put16(p, l4 + 2, SERVICE_PORT);
	if (udp) {
		put16(p, l4 + 4, payload);
	} else {
		p->sum = l4 + 16;
		/* mhs drops what goes on with no handshake of a SYN just seen */
		p->data[l4 + 7] = !!strcmp(kind, "syn");
		p->data[l4 + 12] = 5 << 4;
		p->data[l4 + 13] = !strcmp(kind, "syn") ? 0x02 :
				   !strcmp(kind, "fin") ? 0x11 : 0x10;
		put16(p, l4 + 14, 8192);
	}
	p->length = l4 + payload;
	base_sums(p);
}

int packet_socket(const char *device)
{
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(device),
	};
	int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1;

	if (fd < 0 || !at.sll_ifindex ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)))
		die(device);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)))
		die(device);
	return fd;
}

void sender_open(struct sender *s, const char *device)
{
	struct tpacket_req request = {
		.tp_block_size = BURST * FRAME, .tp_block_nr = 1,
		.tp_frame_size = FRAME, .tp_frame_nr = BURST,
	};

	memset(s, 0, sizeof(*s));
	s->fd = packet_socket(device);
	if (setsockopt(s->fd, SOL_PACKET, PACKET_TX_RING, &request,
		       sizeof(request)))
		die("PACKET_TX_RING");
	s->ring = mmap(NULL, BURST * FRAME, PROT_READ | PROT_WRITE, MAP_SHARED,
		       s->fd, 0);
	if (s->ring == MAP_FAILED)
		die("mmap");
}

void sender_put(struct sender *s, const struct packet *p, uint64_t flow)
{
	uint32_t address = htonl(FIRST_CLIENT + flow / PORTS);
	uint16_t port = htons(FIRST_PORT + flow % PORTS);
	unsigned char *frame = s->ring + s->at * FRAME;
	struct tpacket_hdr *header = (void *)frame;
	uint32_t more = add(0, &address, 4);
	uint16_t sum;

	frame += DATA;
	memcpy(frame, p->data, p->length);
	memcpy(frame + p->address, &address, 4);
	memcpy(frame + p->port, &port, 2);
	if (p->ip_sum) {
		sum = fold(p->base_ip + more);
		memcpy(frame + p->ip_sum, &sum, 2);
	}
	if (p->sum) {
		sum = fold(p->base + more + port);
		memcpy(frame + p->sum, &sum, 2);
	}
	header->tp_len = p->length;
	__atomic_store_n(&header->tp_status, TP_STATUS_SEND_REQUEST,
			 __ATOMIC_RELEASE);
	s->at = (s->at + 1) % BURST;
	if (++s->ready == BURST)
		sender_send(s);
}

void sender_send(struct sender *s)
{
	if (s->ready && send(s->fd, NULL, 0, 0) < 0)
		die("send");
	s->ready = 0;
	sched_yield();	/* to softirqs that were put off */
}
