// SPDX-License-Identifier: GPL-2.0-only
#ifdef MHS_SERIES_QUIC
/* IPVS stateless Maglev scheduler: does a packet begin or end a flow?
 *
 *		begins			ends
 *	TCP	SYN			RST, FIN
 *	SCTP	INIT			ABORT, SHUTDOWN and its answers
 *	QUIC	Initial, long header	-
 *	UDP	unknown			-
 *
 * QUIC is UDP to a port in the parameter quic_ports.
 */
#include <linux/moduleparam.h>
#else
/* IPVS stateless Maglev scheduler: does a packet begin or end a flow?
 *
 *		begins			ends
 *	TCP	SYN			RST, FIN
 *	SCTP	INIT			ABORT, SHUTDOWN and its answers
 *	UDP	unknown			-
 */
#endif
#include <linux/sctp.h>
#include <linux/tcp.h>
#ifdef MHS_SERIES_QUIC
#include <linux/udp.h>
#endif

#include "ip_vs_mhs_pkt.h"
#include "ip_vs_mhs_proto.h"
#ifdef MHS_SERIES_QUIC
#include "ip_vs_mhs_quic.h"

static unsigned short quic_ports[16] __read_mostly = { 443 };
static unsigned int quic_ports_n __read_mostly = 1;
module_param_array(quic_ports, ushort, &quic_ports_n, 0444);
MODULE_PARM_DESC(quic_ports, "UDP ports that are QUIC, at most 16 (default 443)");
#endif

static u32 tcp_facts(const struct sk_buff *skb, const struct ip_vs_iphdr *iph,
		     bool *opens)
{
	const struct tcphdr *th;
	struct tcphdr _th;

	th = skb_header_pointer(skb, iph->len, sizeof(_th), &_th);
	/* A short segment belongs to no flow */
	if (!th)
		return MHS_PKT_ENDS;
	*opens = th->syn;
	return ip_vs_mhs_proto_tcp_facts(th);
}

static u32 sctp_facts(const struct sk_buff *skb, const struct ip_vs_iphdr *iph)
{
	const struct sctp_chunkhdr *ch;
	struct sctp_chunkhdr _ch;

	ch = skb_header_pointer(skb, iph->len + sizeof(struct sctphdr),
				sizeof(_ch), &_ch);
	switch (ch ? ch->type : SCTP_CID_DATA) {
	case SCTP_CID_INIT:
		return MHS_PKT_FRESH;
	case SCTP_CID_ABORT:
	case SCTP_CID_SHUTDOWN:
	case SCTP_CID_SHUTDOWN_ACK:
	case SCTP_CID_SHUTDOWN_COMPLETE:
		return MHS_PKT_ENDS;
	}
	return 0;
}

#ifdef MHS_SERIES_QUIC
/**
 * ip_vs_mhs_proto_quic_facts() - what does the header of QUIC say of a packet?
 * @skb: the packet
 * @iph: its network header
 *
 * Context: any.
 * Return: MHS_PKT_*.
 */
u32 ip_vs_mhs_proto_quic_facts(const struct sk_buff *skb,
			       const struct ip_vs_iphdr *iph)
{
	const struct ip_vs_mhs_quic *h;
	struct ip_vs_mhs_quic _h;

	h = skb_header_pointer(skb, iph->len + sizeof(struct udphdr),
			       sizeof(_h), &_h);
	return h ? ip_vs_mhs_quic_facts(h) : 0;
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
	unsigned int i;

	if (ip_vs_mhs_flags(mhs) & IP_VS_SVC_F_ONEPACKET)
		return true;
	for (i = 0; i < quic_ports_n; i++)
		if (ntohs(port) == quic_ports[i])
			return false;
	return true;
}

#endif
/**
 * ip_vs_mhs_proto_facts() - what do the headers say of a packet?
 * @skb: the packet
 * @iph: its network header
 * @opens: set if the packet may be the first one of a direction
 *
 * Context: any.
 * Return: MHS_PKT_*.
 */
u32 ip_vs_mhs_proto_facts(const struct sk_buff *skb,
			  const struct ip_vs_iphdr *iph, bool *opens)
{
	*opens = iph->protocol != IPPROTO_TCP;
	switch (iph->protocol) {
	case IPPROTO_TCP:
		return tcp_facts(skb, iph, opens);
	case IPPROTO_SCTP:
		return sctp_facts(skb, iph);
	}
	/* plain UDP: the first packets of flows look like all others */
	return MHS_PKT_CONNLESS;
}
