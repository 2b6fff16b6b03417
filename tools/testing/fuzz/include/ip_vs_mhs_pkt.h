/* SPDX-License-Identifier: GPL-2.0-only */
/* What ip_vs_mhs_proto.c needs of the kernel, for user space.  A packet has a
 * linear part and a rest, each in memory of exactly its length, so that the
 * sanitizers see what is read beyond.
 */
#ifndef _FUZZ_PKT_H
#define _FUZZ_PKT_H

#include <arpa/inet.h>
#include <linux/types.h>

#include "ip_vs_mhs_decide.h"

#define __packed	__attribute__((packed))
#define READ_ONCE(x)	(x)
#define WRITE_ONCE(x, v)	((x) = (v))
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define IP_VS_SVC_F_ONEPACKET	0x0004

struct sk_buff {
	const u8 *data, *rest;
	unsigned int linear, len;
};

/* As the kernel: a pointer into the linear part, or a copy */
static inline const void *skb_header_pointer(const struct sk_buff *skb,
					     int off, int len, void *buffer)
{
	int i;

	if ((int)skb->linear - off >= len)
		return skb->data + off;
	if (off < 0 || (int)skb->len - off < len)
		return NULL;
	for (i = 0; i < len; i++)
		((u8 *)buffer)[i] = off + i < (int)skb->linear ?
				    skb->data[off + i] :
				    skb->rest[off + i - skb->linear];
	return buffer;
}

struct tcphdr {
	__be16 source, dest;
	u32 seq, ack_seq;
	u16 res1:4, doff:4, fin:1, syn:1, rst:1, psh:1, ack:1, urg:1, ece:1,
	    cwr:1;
	__be16 window, check, urg_ptr;
} __attribute__((packed, aligned(1)));

static inline __be32 tcp_flag_word(const struct tcphdr *th)
{
	__be32 word;

	memcpy(&word, (const u8 *)th + 12, sizeof(word));
	return word;
}

#define TCP_FLAG_FIN	htonl(0x00010000)
#define TCP_FLAG_SYN	htonl(0x00020000)
#define TCP_FLAG_RST	htonl(0x00040000)
#define TCP_FLAG_ACK	htonl(0x00100000)

#ifndef __always_inline
#define __always_inline	inline __attribute__((always_inline))
#endif
#define likely(x)	(x)

struct udphdr {
	__be16 source, dest, len, check;
};

struct sctphdr {
	__be16 source, dest;
	u32 vtag, checksum;
};

struct sctp_chunkhdr {
	u8 type, flags;
	__be16 length;
};

enum {
	SCTP_CID_INIT = 1, SCTP_CID_ABORT = 6, SCTP_CID_SHUTDOWN,
	SCTP_CID_SHUTDOWN_ACK, SCTP_CID_COOKIE_ECHO = 10,
	SCTP_CID_SHUTDOWN_COMPLETE = 14,
};

struct ip_vs_service {
	unsigned int flags;
};

struct mhs {
	struct ip_vs_service *svc;
};

struct mhs_packet {
	struct sk_buff *skb;
	struct {
		unsigned int len;
		u8 protocol;
		union nf_inet_addr saddr;
	} iph;
	u8 af;
	__be16 sport, dport;
	u32 facts;
	bool opens, quic;
};

static inline unsigned int mhs_flags(const struct mhs *mhs)
{
	return mhs->svc ? mhs->svc->flags : 0;
}

bool mhs_proto_parse(struct mhs_packet *p);

#include "ip_vs_mhs_proto.h"

#endif /* _FUZZ_PKT_H */
