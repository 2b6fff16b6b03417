// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: sending without an entry.
 *
 * Statistics, requests by a carrier, and the translation of replies.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/ip.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/route.h>
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
#include <net/netfilter/nf_conntrack.h>
#endif

#include "ip_vs_mhs_pkt.h"

static __always_inline void xmit_stats_add(struct ip_vs_cpu_stats *s,
					   unsigned int bytes, u32 what)
{
	u64_stats_update_begin(&s->syncp);
	if (what & MHS_STAT_IN) {
		u64_stats_inc(&s->cnt.inpkts);
		u64_stats_add(&s->cnt.inbytes, bytes);
	}
	if (what & MHS_STAT_OUT) {
		u64_stats_inc(&s->cnt.outpkts);
		u64_stats_add(&s->cnt.outbytes, bytes);
	}
	if (what & MHS_STAT_CONN)
		u64_stats_inc(&s->cnt.conns);
	u64_stats_update_end(&s->syncp);
}

static __always_inline void xmit_stats(const struct ip_vs_mhs *mhs,
				       struct ip_vs_dest *dest,
				       unsigned int bytes, u32 what)
{
	xmit_stats_add(this_cpu_ptr(dest->stats.cpustats), bytes, what);
	xmit_stats_add(this_cpu_ptr(rcu_dereference(dest->svc)->stats.cpustats),
		       bytes, what);
	xmit_stats_add(ip_vs_mhs_total_stats(mhs->ipvs), bytes, what);
}

/* As in the core, count only for a listed server: the service of an unlisted
 * server may be freed.
 */
static __always_inline void xmit_count(const struct ip_vs_mhs *mhs,
				       struct ip_vs_dest *dest,
				       unsigned int bytes, u32 what)
{
	if (!ip_vs_mhs_dest_listed(dest))
		return;
	/* Constants for the common cases let the compiler drop branches */
	if (likely(what == MHS_STAT_IN))
		xmit_stats(mhs, dest, bytes, MHS_STAT_IN);
	else if (what == (MHS_STAT_IN | MHS_STAT_CONN))
		xmit_stats(mhs, dest, bytes, MHS_STAT_IN | MHS_STAT_CONN);
	else
		xmit_stats(mhs, dest, bytes, what);
}

/* Count where softirqs may be enabled */
static __always_inline void xmit_count_anywhere(const struct ip_vs_mhs *mhs,
						struct ip_vs_dest *dest,
						unsigned int bytes, u32 what)
{
	local_bh_disable();
	xmit_count(mhs, dest, bytes, what);
	local_bh_enable();
}

/**
 * ip_vs_mhs_xmit_stats_bh() - count a packet in the statistics of ipvsadm
 * @mhs: the service
 * @dest: the server
 * @bytes: length of the packet
 * @what: MHS_STAT_*
 *
 * Context: softirqs disabled, under RCU.
 */
void ip_vs_mhs_xmit_stats_bh(const struct ip_vs_mhs *mhs,
			     struct ip_vs_dest *dest, unsigned int bytes,
			     u32 what)
{
	xmit_count(mhs, dest, bytes, what);
}

/**
 * ip_vs_mhs_xmit_stats() - count a packet in the statistics of ipvsadm
 * @mhs: the service
 * @dest: the server
 * @bytes: length of the packet
 * @what: MHS_STAT_*
 *
 * Context: softirq or process, under RCU.
 */
void ip_vs_mhs_xmit_stats(const struct ip_vs_mhs *mhs, struct ip_vs_dest *dest,
			  unsigned int bytes, u32 what)
{
	xmit_count_anywhere(mhs, dest, bytes, what);
}

/* The header of a UDP packet without a checksum, else NULL.  The core's NAT
 * adds a checksum over the entry's client address, which is 0 in a carrier.
 */
static struct udphdr *xmit_unsummed(struct sk_buff *skb,
				    const struct ip_vs_iphdr *iph)
{
	struct udphdr *uh;

	if (iph->protocol != IPPROTO_UDP ||
	    skb->ip_summed == CHECKSUM_PARTIAL ||
	    skb_ensure_writable(skb, iph->len + sizeof(*uh)))
		return NULL;
	uh = (struct udphdr *)(skb->data + iph->len);
	return uh->check ? NULL : uh;
}

/* Add a missing UDP checksum before a masquerading carrier translates @skb */
static noinline void xmit_prepare(struct sk_buff *skb, u16 af,
				  const struct ip_vs_iphdr *iph)
{
	struct udphdr *uh = xmit_unsummed(skb, iph);
	unsigned int len;
	__wsum sum;

	if (likely(!uh))
		return;
	/* Omit bytes after the datagram; a UDP length of 0 (IPv6) means all */
	len = skb->len - iph->len;
	if (uh->len)
		len = min_t(unsigned int, len, ntohs(uh->len));
	sum = skb_checksum(skb, iph->len, len, 0);
	uh->check = af == AF_INET6 ?
		    csum_ipv6_magic(&iph->saddr.in6, &iph->daddr.in6, len,
				    IPPROTO_UDP, sum) :
		    csum_tcpudp_magic(iph->saddr.ip, iph->daddr.ip, len,
				      IPPROTO_UDP, sum);
	if (!uh->check)
		uh->check = CSUM_MANGLED_0;
}

/**
 * ip_vs_mhs_xmit() - send a packet to the server of a carrier
 * @mhs: the service
 * @carrier: the carrier
 * @p: the request
 * @stats: MHS_STAT_*
 *
 * Context: softirq or process, under RCU.
 * Return: the verdict of the hook.
 */
unsigned int ip_vs_mhs_xmit(const struct ip_vs_mhs *mhs,
			    struct ip_vs_conn *carrier,
			    struct ip_vs_mhs_packet *p, u32 stats)
{
	xmit_count_anywhere(mhs, carrier->dest, p->skb->len, stats);
	if (p->iph.protocol == IPPROTO_UDP &&
	    IP_VS_FWD_METHOD(carrier) == IP_VS_CONN_F_MASQ)
		xmit_prepare(p->skb, p->af, &p->iph);
	return carrier->packet_xmit(p->skb, carrier, p->pd->pp, &p->iph);
}

/* Route again, as the core does: policy routing may have another route for the
 * virtual address as source.
 */
static int xmit_reroute(const struct ip_vs_mhs *mhs, struct sk_buff *skb)
{
	const struct dst_entry *dst = skb_dst(skb);

	if (!READ_ONCE(mhs->ipvs->sysctl_snat_reroute))
		return 0;
	if (mhs->af == AF_INET6)
		return dst->dev && !(dst->dev->flags & IFF_LOOPBACK) ?
		       nf_ip6_route_me_harder(mhs->ipvs->net, skb->sk, skb) : 0;
	return skb_rtable(skb)->rt_flags & RTCF_LOCAL ? 0 :
	       ip_route_me_harder(mhs->ipvs->net, skb->sk, skb, RTN_LOCAL);
}

static bool xmit_is_new(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	enum ip_conntrack_info info;
	const struct nf_conn *ct = nf_ct_get(skb, &info);

	return ct && !nf_ct_is_confirmed(ct);
#else
	return false;
#endif
}

/**
 * ip_vs_mhs_xmit_back() - send a translated packet to the client
 * @s: the server
 * @carrier: the server's carrier
 * @skb: the packet
 *
 * Context: softirq or process, under RCU.
 * Return: NF_ACCEPT, or NF_DROP when there is no route.
 */
unsigned int ip_vs_mhs_xmit_back(const struct ip_vs_mhs_server *s,
				 const struct ip_vs_conn *carrier,
				 struct sk_buff *skb)
{
	if (xmit_reroute(s->mhs, skb))
		return NF_DROP;
	ip_vs_mhs_count(s->mhs, MHS_CNT_REPLY);
	ip_vs_mhs_xmit_stats(s->mhs, s->dest, skb->len, MHS_STAT_OUT);
	skb->ipvs_property = 1;
	/* If conntrack takes the reply for a new flow, the reply must not be
	 * tracked: the new conntrack would clash with the client's next packet.
	 */
	if (!(carrier->flags & IP_VS_CONN_F_NFCT) || xmit_is_new(skb))
		ip_vs_notrack(skb);
	return NF_ACCEPT;
}

/**
 * ip_vs_mhs_xmit_reply() - translate a reply and send it to the client
 * @p: the reply
 * @s: the server
 * @carrier: the server's carrier
 *
 * Context: softirq or process, under RCU.
 * Return: NF_ACCEPT, or NF_DROP when the translation fails or without a route.
 */
unsigned int ip_vs_mhs_xmit_reply(struct ip_vs_mhs_packet *p,
				  const struct ip_vs_mhs_server *s,
				  struct ip_vs_conn *carrier)
{
	struct udphdr *unsummed = xmit_unsummed(p->skb, &p->iph);
	const struct ip_vs_mhs *mhs = s->mhs;

	if (skb_ensure_writable(p->skb, p->iph.len) ||
	    !p->pd->pp->snat_handler(p->skb, p->pd->pp, carrier, &p->iph))
		return NF_DROP;
	if (unsummed)
		((struct udphdr *)(p->skb->data + p->iph.len))->check = 0;
	if (mhs->af == AF_INET6) {
		ipv6_hdr(p->skb)->saddr = mhs->addr.in6;
	} else {
		ip_hdr(p->skb)->saddr = mhs->addr.ip;
		ip_send_check(ip_hdr(p->skb));
	}
	return ip_vs_mhs_xmit_back(s, carrier, p->skb);
}
