// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: does a packet begin a flow, or end one?
 *
 *		begins			ends
 *	TCP	SYN			RST, FIN, the ACK that follows a FIN
 *	SCTP	INIT			ABORT, SHUTDOWN and its answers
 *	QUIC	Initial, by long	-
 *		header and version
 *	UDP	nothing tells: lone	-
 *
 * QUIC is UDP to one of the ports that the parameter quic_ports names.
 */
#include <linux/module.h>
#include <linux/sctp.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "ip_vs_mhs_pkt.h"

/* RFC 8999: the long header; RFC 9000, 9369: the type of an Initial */
#define QUIC_LONG_HEADER	0x80
#define QUIC_TYPE_SHIFT		4
#define QUIC_TYPE_MASK		0x3
#define QUIC_V1			0x00000001
#define QUIC_V1_INITIAL		0
#define QUIC_V2			0x6b3343cf
#define QUIC_V2_INITIAL		1

struct quic_long_header {
	u8	flags;
	__be32	version;
} __packed;

static void parse_tcp(struct ip_vs_mhs_packet *p, const struct tcphdr *th)
{
	p->opens = th->syn;
	/* A segment without any of the four flags belongs to no flow */
	p->ends = th->rst || th->fin || !(th->syn || th->ack);
	p->fresh = th->syn && !th->ack && !p->ends;
}

static void parse_sctp(struct ip_vs_mhs_packet *p)
{
	const struct sctp_chunkhdr *ch;
	struct sctp_chunkhdr _ch;

	ch = skb_header_pointer(p->skb, p->iph.len + sizeof(struct sctphdr),
				sizeof(_ch), &_ch);
	if (!ch)
		return;
	switch (ch->type) {
	case SCTP_CID_INIT:
		p->fresh = true;
		break;
	case SCTP_CID_ABORT:
	case SCTP_CID_SHUTDOWN:
	case SCTP_CID_SHUTDOWN_ACK:
	case SCTP_CID_SHUTDOWN_COMPLETE:
		p->ends = true;
		break;
	}
}

static bool quic_port(__be16 port)
{
	unsigned int i;

	for (i = 0; i < ip_vs_mhs_quic_n; i++)
		if (ntohs(port) == ip_vs_mhs_quic_ports[i])
			return true;
	return false;
}

/* A version that we do not know is none of an older flow's business either:
 * its first packets are answered by any server, with the versions there are.
 */
static void parse_quic(struct ip_vs_mhs_packet *p)
{
	const struct quic_long_header *h;
	struct quic_long_header _h;
	u8 type;

	p->quic = true;
	h = skb_header_pointer(p->skb, p->iph.len + sizeof(struct udphdr),
			       sizeof(_h), &_h);
	if (!h || !(h->flags & QUIC_LONG_HEADER))
		return;
	type = h->flags >> QUIC_TYPE_SHIFT & QUIC_TYPE_MASK;
	switch (ntohl(h->version)) {
	case QUIC_V1:
		p->fresh = type == QUIC_V1_INITIAL;
		break;
	case QUIC_V2:
		p->fresh = type == QUIC_V2_INITIAL;
		break;
	}
}

/**
 * ip_vs_mhs_parse() - look at the transport header
 * @p: the packet, with its network header filled in; not a later fragment
 *
 * Context: any.
 * Return: false for a protocol that has no services or for a packet that is
 *	too short.
 */
bool ip_vs_mhs_parse(struct ip_vs_mhs_packet *p)
{
	union {
		struct tcphdr	tcp;
		__be16		port[2];
	} _h;
	const __be16 *port;
	unsigned int len;

	switch (p->iph.protocol) {
	case IPPROTO_TCP:
		len = sizeof(struct tcphdr);
		break;
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		len = sizeof(_h.port);
		break;
	default:
		return false;
	}
	port = skb_header_pointer(p->skb, p->iph.len, len, &_h);
	if (!port)
		return false;
	p->sport = port[0];
	p->dport = port[1];
	p->opens = true;
	if (p->iph.protocol == IPPROTO_TCP)
		parse_tcp(p, (const struct tcphdr *)port);
	else if (p->iph.protocol == IPPROTO_SCTP)
		parse_sctp(p);
	else if (quic_port(p->dport))
		parse_quic(p);
	return true;
}

/* The last FINs of clients in slots whose flows get entries, by flow: the number
 * of the segment that follows, mixed with the rest of the flow's hash.  A FIN that
 * another one has overwritten costs an entry.
 */
#define MHS_FIN_BITS	14

static u32 mhs_fins[1 << MHS_FIN_BITS];

/* Where it stands, and what stands there before the number is mixed in */
static u32 *mhs_fin(const struct ip_vs_mhs_packet *p, u32 *mix)
{
	u64 hash = ip_vs_mhs_hash_client(p->af, &p->iph.saddr, p->sport);

	*mix = hash >> MHS_FIN_BITS;
	return &mhs_fins[hash & (ARRAY_SIZE(mhs_fins) - 1)];
}

/* The header of a TCP segment, and the length of its data */
static const struct tcphdr *mhs_segment(const struct ip_vs_mhs_packet *p,
					struct tcphdr *_th, unsigned int *len)
{
	const struct tcphdr *th;
	unsigned int head;

	if (p->iph.protocol != IPPROTO_TCP)
		return NULL;
	th = skb_header_pointer(p->skb, p->iph.len, sizeof(*_th), _th);
	if (!th)
		return NULL;
	head = p->iph.len + 4 * th->doff;
	*len = p->skb->len > head ? p->skb->len - head : 0;
	return th;
}

/**
 * ip_vs_mhs_note_fin() - remember which segment will be the last of a flow
 * @p: a packet, perhaps a FIN
 *
 * Context: softirq or process.
 */
void ip_vs_mhs_note_fin(const struct ip_vs_mhs_packet *p)
{
	const struct tcphdr *th;
	unsigned int len;
	struct tcphdr _th;
	u32 mix, *fin;

	th = mhs_segment(p, &_th, &len);
	if (!th || !th->fin)
		return;
	fin = mhs_fin(p, &mix);
	WRITE_ONCE(*fin, mix ^ (ntohl(th->seq) + len + 1));
}

/**
 * ip_vs_mhs_is_last_ack() - does a packet only confirm the end of its flow?
 * @p: a packet
 *
 * A client that has sent its FIN may still be reading, so others may follow, but
 * not after a long time.
 *
 * Context: softirq or process.
 * Return: true for a TCP segment without data that follows the client's FIN.
 */
bool ip_vs_mhs_is_last_ack(const struct ip_vs_mhs_packet *p)
{
	const struct tcphdr *th;
	unsigned int len;
	struct tcphdr _th;
	u32 mix, *fin;

	th = mhs_segment(p, &_th, &len);
	if (!th || len || th->syn)
		return false;
	fin = mhs_fin(p, &mix);
	return READ_ONCE(*fin) == (mix ^ ntohl(th->seq));
}

/**
 * ip_vs_mhs_is_lone() - does nothing tell the first packet of a flow?
 * @mhs: the service
 * @protocol: transport protocol
 * @port: the virtual port
 *
 * So it is with UDP that is not QUIC.  With one packet a flow, every one is.
 *
 * Context: any, under RCU.
 * Return: true if packets stand alone, false for flows with a beginning.
 */
bool ip_vs_mhs_is_lone(const struct ip_vs_mhs *mhs, u16 protocol, __be16 port)
{
	const struct ip_vs_service *svc = READ_ONCE(mhs->svc);

	return protocol == IPPROTO_UDP &&
	       (!quic_port(port) ||
		(svc && READ_ONCE(svc->flags) & IP_VS_SVC_F_ONEPACKET));
}
