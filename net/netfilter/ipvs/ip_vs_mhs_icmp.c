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
 * mark, but those about tunnels, whose outer header names the server.
 */
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/gre.h>
#include <net/gue.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/route.h>

#include "ip_vs_mhs_pkt.h"

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
static struct mhs *icmp_quoted(struct netns_ipvs *ipvs,
			       const struct mhs_packet *p, unsigned int off,
			       bool reply, struct mhs_error *e)
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
	return mhs_svc_find(p->net, p->af, e->quoted.protocol, virtual,
			    e->vport);
}

/* The server of a flow without an entry; NULL leaves the error to the core */
static struct mhs_server *
icmp_server(struct mhs *mhs, const struct mhs_packet *p,
	    const struct mhs_error *e)
{
	mhs_facts_t facts = MHS_PKT_ERROR;
	struct ip_vs_conn *cp;
	struct mhs_ask q;
	bool claim;

	/* Also if untracked: a service by firewall mark may own the flow */
	cp = e->pd->pp->conn_in_get(mhs->ipvs, p->af, p->skb, &e->quoted);
	if (cp) {
		/* no data flows in a handshake: about an older flow */
		claim = mhs_entry_is_claim(cp);
		__ip_vs_conn_put(cp);
		if (!claim)
			return NULL;
	}
	if (e->quoted.protocol == IPPROTO_UDP)
		facts |= mhs_proto_udp_facts(mhs, e->vport, 0);
	mhs_ask_begin(&q, mhs, e->client, e->cport, facts);
	return mhs_verdict_act(mhs_ask(&q)) == MHS_FORWARD ? q.server : NULL;
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

/* Update the path MTU and send the client an error; always consume the skb */
static unsigned int icmp_tunnel_done(struct netns_ipvs *ipvs,
				     struct mhs_packet *p,
				     const struct mhs_server *s,
				     const struct icmphdr *ih, bool df,
				     unsigned int off, unsigned int overhead)
{
	const struct ip_vs_dest_dst *dest_dst;
	unsigned int outer = p->iph.len + sizeof(*ih);
	struct sk_buff *skb = p->skb;
	u8 type = ih->type, code = ih->code;
	__be32 info = ih->un.gateway;
	u32 mtu;

	if (type == ICMP_DEST_UNREACH && code == ICMP_FRAG_NEEDED) {
		mtu = ntohs(ih->un.frag.mtu);
		if (!pskb_pull(skb, outer))
			goto out;
		off -= outer;
		skb_reset_network_header(skb);
		if (!pskb_may_pull(skb, sizeof(struct iphdr)))
			goto out;
		ipv4_update_pmtu(skb, ipvs->net, mtu, 0, 0);
		if (!df)
			goto out;
		/* dest_dst picks up the new path MTU on its next use */
		dest_dst = rcu_dereference(s->dest->dest_dst);
		if (dest_dst && (!mtu || mtu > dst_mtu(dest_dst->dst_cache)))
			mtu = dst_mtu(dest_dst->dst_cache);
		if (mtu > 68 + overhead)
			mtu -= overhead;
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

/* The server with the address @addr of a service by firewall mark.  The walk is as
 * long as there are services, and errors may be forged: one walk a jiffy.
 */
static struct mhs_server *icmp_marked(struct mhs_net *mn, __be32 addr)
{
	u32 now = jiffies;
	struct mhs_server *s;
	struct mhs *mhs;
	int i;

	if (!READ_ONCE(mn->fwm_services) || READ_ONCE(mn->marked_at) == now)
		return NULL;
	WRITE_ONCE(mn->marked_at, now);
	hash_for_each_rcu(mn->by_key, i, mhs, node) {
		s = mhs->fwmark ? mhs_cid_server(mhs, addr) : NULL;
		if (s)
			return s;
	}
	return NULL;
}

/* Is it a router's error about a tunnel packet to a server?  Then handle it. */
static bool icmp_tunnel(struct netns_ipvs *ipvs, struct mhs_packet *p,
			unsigned int *verdict)
{
	unsigned int off = p->iph.len + sizeof(struct icmphdr), hlen;
	const struct icmphdr *ih;
	const struct iphdr *outer;
	struct ip_vs_conn *carrier;
	struct mhs_server *s;
	struct icmphdr _ih;
	struct iphdr _outer;
	struct mhs_error e;
	struct mhs *mhs;
	int thlen;

	outer = skb_header_pointer(p->skb, off, sizeof(_outer), &_outer);
	ih = skb_header_pointer(p->skb, p->iph.len, sizeof(_ih), &_ih);
	if (!outer || !ih || outer->version != 4 || outer->ihl < 5 ||
	    outer->frag_off & htons(IP_OFFSET))
		return false;
	hlen = outer->ihl * 4;
	thlen = icmp_tunnel_hlen(p->skb, off + hlen, outer);
	if (thlen < 0)
		return false;
	mhs = icmp_quoted(ipvs, p, off + hlen + thlen, false, &e);
	s = mhs ? icmp_server(mhs, p, &e) :
		  icmp_marked(p->net, outer->daddr);
	/* A connection ID may have named another one, whose ID is its address */
	if (mhs && rcu_access_pointer(mhs->cid) &&
	    (!s || s->dest->addr.ip != outer->daddr))
		s = mhs_cid_server(mhs, outer->daddr);
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (!carrier || !icmp_tunnel_of(s, carrier, outer))
		return false;
	*verdict = NF_DROP;
	if (!csum_fold(skb_checksum(p->skb, p->iph.len,
				    p->skb->len - p->iph.len, 0))) {
		mhs_count(s->mhs, MHS_CNT_ICMP);
		*verdict = icmp_tunnel_done(ipvs, p, s, ih,
					    outer->frag_off & htons(IP_DF),
					    off + hlen + thlen, hlen + thlen);
	}
	return true;
}

/* The service that sent what an ICMP error to this host quotes, or NULL */
struct mhs *mhs_icmp_about(struct netns_ipvs *ipvs, const struct mhs_packet *p,
			   struct mhs_error *e)
{
	struct mhs *mhs;

	BUILD_BUG_ON(sizeof(struct icmp6hdr) != sizeof(struct icmphdr));
	if (!icmp_is_error(p))
		return NULL;
	mhs = icmp_quoted(ipvs, p, p->iph.len + sizeof(struct icmphdr), true, e);
	/* The sender of the quoted packet is the one to be told */
	return mhs && ip_vs_addr_equal(p->af, &p->iph.daddr, &e->quoted.saddr) ?
	       mhs : NULL;
}

/* Handle ICMP to this host, not a fragment; NF_ACCEPT leaves it to the core */
unsigned int mhs_icmp(struct netns_ipvs *ipvs, struct mhs_packet *p)
{
	struct ip_vs_conn *carrier;
	struct mhs_server *s;
	unsigned int verdict;
	struct mhs_error e;
	struct mhs *mhs;

	if (p->af == AF_INET && icmp_is_error(p) &&
	    icmp_tunnel(ipvs, p, &verdict))
		return verdict;
	mhs = mhs_icmp_about(ipvs, p, &e);
	if (!mhs)
		return NF_ACCEPT;
	s = icmp_server(mhs, p, &e);
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (!carrier)
		return NF_ACCEPT;
	mhs_count(mhs, MHS_CNT_ICMP);
	mhs_xmit_stats(mhs, s->dest, p->skb->len, MHS_STAT_IN);
	return carrier->packet_xmit(p->skb, carrier, e.pd->pp, &e.quoted);
}
