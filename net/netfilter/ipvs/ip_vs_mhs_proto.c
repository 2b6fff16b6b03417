// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: does a packet begin or end a flow?
 *
 *		begins			ends
 *	TCP	SYN			RST, FIN, the ACK that follows a FIN
 *	SCTP	INIT			ABORT, SHUTDOWN and its answers
 *	QUIC	Initial, by long	-
 *		header and version
 *	UDP	unknown (plain UDP)	-
 *
 * QUIC is UDP to a port in the module parameter quic_ports.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sctp.h>
#include <linux/udp.h>

#include "ip_vs_mhs_pkt.h"
#include "ip_vs_mhs_quic.h"

static unsigned short quic_ports[16] __read_mostly = { 443 };
static unsigned int quic_ports_n __read_mostly = 1;
module_param_array(quic_ports, ushort, &quic_ports_n, 0444);
MODULE_PARM_DESC(quic_ports, "UDP ports that are QUIC, at most 16 (default 443)");

static void parse_tcp(struct ip_vs_mhs_packet *p, const struct tcphdr *th)
{
	p->opens = th->syn;
	p->facts = ip_vs_mhs_proto_tcp_facts(th);
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
		p->facts = MHS_PKT_FRESH;
		break;
	case SCTP_CID_ABORT:
	case SCTP_CID_SHUTDOWN:
	case SCTP_CID_SHUTDOWN_ACK:
	case SCTP_CID_SHUTDOWN_COMPLETE:
		p->facts = MHS_PKT_ENDS;
		break;
	}
}

static bool quic_port(__be16 port)
{
	unsigned int i;

	for (i = 0; i < quic_ports_n; i++)
		if (ntohs(port) == quic_ports[i])
			return true;
	return false;
}

static void parse_quic(struct ip_vs_mhs_packet *p)
{
	const struct ip_vs_mhs_quic *h;
	struct ip_vs_mhs_quic _h;

	p->quic = true;
	h = skb_header_pointer(p->skb, p->iph.len + sizeof(struct udphdr),
			       sizeof(_h), &_h);
	if (h)
		p->facts = ip_vs_mhs_quic_facts(h);
}

/**
 * ip_vs_mhs_proto_parse() - parse the transport header
 * @p: the packet, with p->iph filled in; not a later fragment
 *
 * Context: any.
 * Return: false for a protocol without services or a packet that is too short.
 */
bool ip_vs_mhs_proto_parse(struct ip_vs_mhs_packet *p)
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

/* Recent FINs of clients in slots whose flows get entries, indexed by client
 * hash: the sequence number after the FIN, XORed with more bits of the hash.
 * After an overwritten FIN the entry of the last ACK lives longer than needed.
 */
#define MHS_FIN_BITS	14

static u32 proto_fins[1 << MHS_FIN_BITS];

/* The TCP header of @p, or NULL; sets @len to the length of the data, @fin to
 * the element of proto_fins[] and @mix to the hash bits XORed into the element
 */
static const struct tcphdr *proto_segment(const struct ip_vs_mhs_packet *p,
					  u64 hash, struct tcphdr *_th,
					  unsigned int *len, u32 **fin,
					  u32 *mix)
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
	/* with flag-3 the hash is that of all flows of the client */
	*fin = &proto_fins[(hash ^ (__force u16)p->sport) &
			   (ARRAY_SIZE(proto_fins) - 1)];
	*mix = hash >> MHS_FIN_BITS;
	return th;
}

/**
 * ip_vs_mhs_proto_note_fin() - remember the sequence number after a FIN
 * @p: a packet, perhaps a FIN
 * @hash: hash of the client
 *
 * Context: softirq or process.
 */
void ip_vs_mhs_proto_note_fin(const struct ip_vs_mhs_packet *p, u64 hash)
{
	const struct tcphdr *th;
	unsigned int len;
	struct tcphdr _th;
	u32 *fin, mix;

	th = proto_segment(p, hash, &_th, &len, &fin, &mix);
	if (th && th->fin)
		WRITE_ONCE(*fin, mix ^ (ntohl(th->seq) + len + 1));
}

/**
 * ip_vs_mhs_proto_is_last_ack() - is a packet an ACK after the client's FIN?
 * @p: a packet
 * @hash: hash of the client
 *
 * A client that has sent a FIN may still read, so more such ACKs may follow,
 * but without long pauses.
 *
 * Context: softirq or process.
 * Return: true for a TCP segment without data that follows the client's FIN.
 */
bool ip_vs_mhs_proto_is_last_ack(const struct ip_vs_mhs_packet *p, u64 hash)
{
	const struct tcphdr *th;
	unsigned int len;
	struct tcphdr _th;
	u32 *fin, mix;

	th = proto_segment(p, hash, &_th, &len, &fin, &mix);
	return th && !len && !th->syn &&
	       READ_ONCE(*fin) == (mix ^ ntohl(th->seq));
}

/**
 * ip_vs_mhs_proto_is_plain() - is UDP to a port plain UDP, not QUIC?
 * @mhs: the service
 * @port: the virtual port
 *
 * Context: any, under RCU.
 * Return: false for QUIC, unless each packet is a flow (-o).
 */
bool ip_vs_mhs_proto_is_plain(const struct ip_vs_mhs *mhs, __be16 port)
{
	return !quic_port(port) ||
	       ip_vs_mhs_flags(mhs) & IP_VS_SVC_F_ONEPACKET;
}
