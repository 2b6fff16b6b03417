// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: does a packet begin or end a flow?
 *
 *		begins			ends
 *	TCP	SYN			RST, FIN
 *	SCTP	INIT			ABORT, SHUTDOWN and its answers
 *	QUIC	Initial, by long	-
 *		header and version
 *	UDP	unknown (plain UDP),	-
 *		to a QUIC port, too
 */
#include <linux/moduleparam.h>
#include <linux/sctp.h>
#include <linux/udp.h>

#include "ip_vs_mhs_pkt.h"

static unsigned short quic_ports[16] __read_mostly = { 443 };
static unsigned int quic_ports_n __read_mostly = 1;
module_param_array(quic_ports, ushort, &quic_ports_n, 0444);
MODULE_PARM_DESC(quic_ports, "UDP ports that are QUIC, at most 16; 0: none (default 443)");

static unsigned short stay_ports[16] __read_mostly;
static unsigned int stay_ports_n __read_mostly;
module_param_array(stay_ports, ushort, &stay_ports_n, 0444);
MODULE_PARM_DESC(stay_ports, "UDP ports whose flows stay in a change, at most 16 (default none)");

static void parse_sctp(struct mhs_packet *p)
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
	case SCTP_CID_COOKIE_ECHO:
		p->facts = MHS_PKT_ANSWERS;
		break;
	case SCTP_CID_ABORT:
	case SCTP_CID_SHUTDOWN:
	case SCTP_CID_SHUTDOWN_ACK:
	case SCTP_CID_SHUTDOWN_COMPLETE:
		p->facts = MHS_PKT_ENDS;
		break;
	}
}

static bool proto_is_in(const unsigned short *ports, unsigned int n, __be16 port)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (ntohs(port) == ports[i])
			return true;
	return false;
}

bool mhs_proto_is_quic(__be16 port)
{
	return proto_is_in(quic_ports, quic_ports_n, port);
}

static void parse_quic(struct mhs_packet *p)
{
	unsigned int at = p->iph.len + sizeof(struct udphdr);
	const struct mhs_quic *h;
	struct mhs_quic _h;

	p->quic = true;
	h = skb_header_pointer(p->skb, at, sizeof(_h), &_h);
	p->facts = h ? mhs_quic_facts(h, p->skb->len - at) : MHS_PKT_CONNLESS;
}

/* Parse TCP, UDP or SCTP, but no later fragment; false if it is too short */
bool mhs_proto_parse(struct mhs_packet *p)
{
	const union {
		struct tcphdr	tcp;
		__be16		port[2];
	} *h;
	bool tcp = p->iph.protocol == IPPROTO_TCP;
	struct tcphdr _h;

	h = skb_header_pointer(p->skb, p->iph.len,
			       tcp ? sizeof(h->tcp) : sizeof(h->port), &_h);
	if (!h)
		return false;
	p->sport = h->port[0];
	p->dport = h->port[1];
	p->opens = true;
	if (tcp) {
		p->opens = h->tcp.syn;
		p->facts = mhs_proto_tcp_facts(&h->tcp);
	} else if (p->iph.protocol == IPPROTO_SCTP) {
		parse_sctp(p);
	} else if (mhs_proto_is_quic(p->dport)) {
		parse_quic(p);
	}
	return true;
}

/* Facts of UDP to a port, beside those of a QUIC header.  MHS_PKT_CONNLESS: the first
 * packets of flows look like all others.  With -o all is plain, and none stays.
 */
mhs_facts_t mhs_proto_udp_facts(const struct mhs *mhs, __be16 port, mhs_facts_t facts)
{
	bool stays = proto_is_in(stay_ports, stay_ports_n, port);

	if (mhs_flags(mhs) & MHS_SVC_ONE_PACKET)
		return MHS_PKT_CONNLESS;
	if (mhs_proto_is_quic(port) && !(facts & MHS_PKT_CONNLESS) &&
	    !(facts & MHS_PKT_ODD && stays))
		return 0;
	return stays ? MHS_PKT_CONNLESS | MHS_PKT_STAYS : MHS_PKT_CONNLESS;
}
