// SPDX-License-Identifier: GPL-2.0-only
/* The transport headers of any packet: ip_vs_mhs_proto.c.
 *
 *	byte 0		protocol
 *	byte 1		length of the network header, a multiple of 4
 *	byte 2		length of the linear part
 *	then		the packet
 */
#include <stdio.h>
#include <stdlib.h>

#include "ip_vs_mhs_pkt.h"

#define WANT(condition)							\
do {									\
	if (!(condition)) {						\
		fprintf(stderr, "does not hold: %s\n", #condition);	\
		abort();						\
	}								\
} while (0)

static u8 *part(const u8 *data, size_t len)
{
	u8 *p = malloc(len ? len : 1);

	if (!p)
		exit(2);
	memcpy(p, data, len);
	return p;
}

/* Nothing is read behind the end, and what is found lies before it */
static void id_found(const u8 *data, size_t len, unsigned int need)
{
	u8 *copy = part(data, len);
	unsigned int at = mhs_quic_id(copy, len, need);

	WANT(!at || (at >= 2 && at + need <= len));
	free(copy);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const u8 protocols[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_SCTP };
	struct mhs_packet p = {}, whole;
	struct sk_buff skb = {}, all = {};
	u8 *linear, *rest, *copy;
	bool known;

	id_found(data, size, 8);
	id_found(data, size, 16);
	if (size < 3)
		return 0;
	skb.len = size - 3;
	skb.linear = data[2] < skb.len ? data[2] : skb.len;
	linear = part(data + 3, skb.linear);
	rest = part(data + 3 + skb.linear, skb.len - skb.linear);
	skb.data = linear;
	skb.rest = rest;
	p.skb = &skb;
	p.iph.protocol = protocols[data[0] % 3];
	p.iph.len = data[1] & ~3U;
	whole = p;
	known = mhs_proto_parse(&p);

	/* It is the same wherever the linear part ends */
	copy = part(data + 3, skb.len);
	all.data = copy;
	all.linear = skb.len;
	all.len = skb.len;
	whole.skb = &all;
	WANT(mhs_proto_parse(&whole) == known);
	WANT(whole.facts == p.facts && whole.quic == p.quic && whole.sport == p.sport &&
	     whole.dport == p.dport && whole.opens == p.opens);

	WANT(p.facts != (MHS_PKT_FRESH | MHS_PKT_ENDS));
	WANT(known || (!p.facts && !p.quic));
	WANT(!(p.facts & MHS_PKT_FRESH) || p.opens);
	WANT(!p.quic || p.iph.protocol == IPPROTO_UDP);
	WANT(!known || skb.len >= p.iph.len + 4);
	free(linear);
	free(rest);
	free(copy);
	return 0;
}
