// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: does a packet begin a flow, or end one?
 *
 *		begins			ends
 *	TCP	SYN			RST, FIN
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

/**
 * ip_vs_mhs_tcp_ends() - does a segment end a flow, or belong to none?
 * @th: its header
 *
 * To none belongs what has none of the four flags.  Anybody may send either.
 *
 * Context: any.
 * Return: true if it makes no entry, and shortens the life of none of ours.
 */
bool ip_vs_mhs_tcp_ends(const struct tcphdr *th)
{
	return th->rst || th->fin || !(th->syn || th->ack);
}

static void parse_tcp(struct ip_vs_mhs_packet *p, const struct tcphdr *th)
{
	p->opens = th->syn;
	p->ends = ip_vs_mhs_tcp_ends(th);
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
