// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: ICMP errors about flows without an entry.
 *
 *	error about			quotes			goes to
 *	a server's packet to a client	virtual -> client	the server of the
 *								client's slot
 *	a tunnel packet to a server	outer header, then	the client; mhs
 *					client -> virtual	also updates the
 *								path MTU
 *
 * The core gets errors about flows with an entry and all that mhs does not
 * understand.  A quoted QUIC packet to a client holds no ID of the server: the error
 * may reach another one, and QUIC has to probe the path MTU (RFC 8899).
 *
 * The mark of the flow is unknown: the core takes errors about services by firewall
 * mark, but those about tunnels, whose outer header has the server's address.
 */
#include <linux/icmpv6.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/gre.h>
#include <net/gue.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/route.h>

#include "ip_vs_mhs.h"

static bool icmp_is_error(const struct mhs_packet *p)
{
	const u8 *type;
	u8 _type;

	type = skb_header_pointer(p->skb, p->iph.len, sizeof(_type), &_type);
	if (!type)
		return false;
	if (p->af == AF_INET6)
		return !(*type & ICMPV6_INFOMSG_MASK);
	return *type == ICMP_DEST_UNREACH || *type == ICMP_SOURCE_QUENCH ||
	       *type == ICMP_TIME_EXCEEDED;
}

/* The service of the packet quoted at @off, which went to a client if @reply */
struct mhs *mhs_icmp_quoted(struct netns_ipvs *ipvs,
			    const struct mhs_packet *p, unsigned int off,
			    bool reply, struct mhs_quote *e)
{
	const union nf_inet_addr *virtual;
	const __be16 *port;
	__be16 _port[2];

	/* Read lengths once only: a local sender may still write to the page */
	if (!ip_vs_fill_iph_skb_icmp(p->af, p->skb, off, reply, &e->quoted) ||
	    e->quoted.fragoffs)
		return NULL;
	if (p->af == AF_INET) {
		const struct iphdr *ih;
		struct iphdr _ih;

		ih = skb_header_pointer(p->skb, off, sizeof(_ih), &_ih);
		if (!ih || ih->version != 4 ||
		    e->quoted.len - off < sizeof(_ih) ||
		    ih->frag_off & htons(IP_OFFSET))
			return NULL;
	}
	e->client = reply ? &e->quoted.daddr : &e->quoted.saddr;
	virtual = reply ? &e->quoted.saddr : &e->quoted.daddr;
	e->pd = ip_vs_proto_data_get(ipvs, e->quoted.protocol);
	if (!e->pd)
		return NULL;
	if (mhs_is_ipsec(e->quoted.protocol)) {
		e->quoted.protocol = IPPROTO_UDP;
		e->cport = MHS_IKE_PORT;
		e->vport = MHS_IKE_PORT;
	} else {
		port = skb_header_pointer(p->skb, e->quoted.len, sizeof(_port),
					  _port);
		if (!port)
			return NULL;
		e->cport = port[reply];
		e->vport = port[!reply];
	}
	return mhs_svc_find(p->mn, p->af, e->quoted.protocol, virtual,
			    e->vport);
}

/* Length between both IPv4 headers of a tunnel packet; -1: not of IPVS */
static int icmp_tunnel_hlen(const struct sk_buff *skb, unsigned int off,
			    const struct iphdr *outer)
{
	union {
		struct {
			struct udphdr	udp;
			struct guehdr	gue;
		} __packed u;
		struct gre_base_hdr gre;
	} _h, *h;

	switch (outer->protocol) {
	case IPPROTO_IPIP:
		return 0;
	case IPPROTO_UDP:
		h = skb_header_pointer(skb, off, sizeof(_h.u), &_h);
		if (!h || h->u.gue.version || h->u.gue.control ||
		    h->u.gue.proto_ctype != IPPROTO_IPIP)
			return -1;
		return sizeof(_h.u) + (h->u.gue.hlen << 2);
	case IPPROTO_GRE:
		h = skb_header_pointer(skb, off, sizeof(_h.gre), &_h);
		if (!h || h->gre.flags & ~GRE_CSUM ||
		    h->gre.protocol != htons(ETH_P_IP))
			return -1;
		return sizeof(_h.gre) + (h->gre.flags & GRE_CSUM ? 4 : 0);
	default:
		return -1;
	}
}

/* Does @carrier send to @s by a tunnel with the outer header @outer? */
static bool icmp_tunnel_of(const struct mhs_server *s,
			   const struct ip_vs_conn *carrier,
			   const struct iphdr *outer)
{
	static const u8 protocol[] = {
		[IP_VS_CONN_F_TUNNEL_TYPE_IPIP]	= IPPROTO_IPIP,
		[IP_VS_CONN_F_TUNNEL_TYPE_GUE]	= IPPROTO_UDP,
		[IP_VS_CONN_F_TUNNEL_TYPE_GRE]	= IPPROTO_GRE,
	};
	u16 type = READ_ONCE(s->dest->tun_type);

	return IP_VS_FWD_METHOD(carrier) == IP_VS_CONN_F_TUNNEL &&
	       type < ARRAY_SIZE(protocol) &&
	       protocol[type] == outer->protocol &&
	       s->dest->af == AF_INET && s->dest->addr.ip == outer->daddr;
}

/* Is it an error about a tunnel packet of IPVS over IPv4?  Then fill @t. */
bool mhs_icmp_parse_tunnel(const struct mhs_packet *p, struct mhs_tunnel *t)
{
	unsigned int off = p->iph.len + sizeof(t->icmp);
	const struct icmphdr *ih;
	const struct iphdr *outer;
	struct icmphdr _ih;
	struct iphdr _outer;
	int hlen;

	if (!icmp_is_error(p))
		return false;
	outer = skb_header_pointer(p->skb, off, sizeof(_outer), &_outer);
	ih = skb_header_pointer(p->skb, p->iph.len, sizeof(_ih), &_ih);
	if (!outer || !ih)
		return false;
	/* Copies, also for the checks: a local sender may still write to the page */
	t->icmp = *ih;
	t->outer = *outer;
	/* The error is for this host: so was the sender of the quoted packet */
	if (t->outer.version != 4 || t->outer.ihl < 5 ||
	    t->outer.saddr != p->iph.daddr.ip ||
	    t->outer.frag_off & htons(IP_OFFSET))
		return false;
	hlen = icmp_tunnel_hlen(p->skb, off + t->outer.ihl * 4, &t->outer);
	if (hlen < 0)
		return false;
	t->tunnel_hlen = t->outer.ihl * 4 + hlen;
	t->inner = off + t->tunnel_hlen;
	return true;
}

/* Update the path MTU and send the client an error; always consume the skb */
static unsigned int icmp_tunnel_done(struct netns_ipvs *ipvs,
				     struct mhs_packet *p,
				     const struct mhs_server *s,
				     const struct mhs_tunnel *t)
{
	unsigned int outer = p->iph.len + sizeof(t->icmp), off = t->inner;
	const struct ip_vs_dest_dst *dest_dst;
	u8 type = t->icmp.type, code = t->icmp.code;
	__be32 info = t->icmp.un.gateway;
	struct sk_buff *skb = p->skb;
	u32 mtu;

	if (type == ICMP_DEST_UNREACH && code == ICMP_FRAG_NEEDED) {
		mtu = ntohs(t->icmp.un.frag.mtu);
		if (!pskb_pull(skb, outer))
			goto out;
		off -= outer;
		skb_reset_network_header(skb);
		if (!pskb_may_pull(skb, sizeof(struct iphdr)))
			goto out;
		ipv4_update_pmtu(skb, ipvs->net, mtu, 0, 0);
		if (!(t->outer.frag_off & htons(IP_DF)))
			goto out;
		/* dest_dst picks up the new path MTU on its next use */
		dest_dst = rcu_dereference(s->dest->dest_dst);
		if (dest_dst && (!mtu || mtu > dst_mtu(dest_dst->dst_cache)))
			mtu = dst_mtu(dest_dst->dst_cache);
		if (mtu > 68 + t->tunnel_hlen)
			mtu -= t->tunnel_hlen;
		info = htonl(mtu);
	}
	if (!pskb_pull(skb, off))
		goto out;
	skb_reset_network_header(skb);
	memset(&IPCB(skb)->opt, 0, sizeof(IPCB(skb)->opt));
	if (!pskb_may_pull(skb, sizeof(struct iphdr)) ||
	    !pskb_may_pull(skb, ip_hdrlen(skb)) || ip_hdr(skb)->ihl < 5)
		goto out;
	skb_set_transport_header(skb, ip_hdrlen(skb));
	icmp_send(skb, type, code, info);
out:
	consume_skb(skb);
	return NF_STOLEN;
}

/* Handle an error about a packet to @s; false if @s has another tunnel */
bool mhs_icmp_tunnel_error(struct netns_ipvs *ipvs, struct mhs_packet *p,
			   struct mhs_server *s, const struct mhs_tunnel *t,
			   unsigned int *nf)
{
	const struct ip_vs_conn *carrier = rcu_dereference(s->carrier);

	if (!carrier || !icmp_tunnel_of(s, carrier, &t->outer))
		return false;
	*nf = NF_DROP;
	if (!csum_fold(skb_checksum(p->skb, p->iph.len,
				    p->skb->len - p->iph.len, 0))) {
		mhs_count(s->mhs, MHS_CNT_ICMP);
		*nf = icmp_tunnel_done(ipvs, p, s, t);
	}
	return true;
}

/* The service that sent what an ICMP error to this host quotes, or NULL */
struct mhs *mhs_icmp_about(struct netns_ipvs *ipvs, const struct mhs_packet *p,
			   struct mhs_quote *e)
{
	struct mhs *mhs;

	BUILD_BUG_ON(sizeof(struct icmp6hdr) != sizeof(struct icmphdr));
	if (!icmp_is_error(p))
		return NULL;
	mhs = mhs_icmp_quoted(ipvs, p, p->iph.len + sizeof(struct icmphdr), true, e);
	/* The sender of the quoted packet is the one to be told */
	return mhs && ip_vs_addr_equal(p->af, &p->iph.daddr, &e->quoted.saddr) ?
	       mhs : NULL;
}
