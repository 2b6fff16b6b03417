// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler, its lane: at the ingress hook of devices, for
 * kernels and devices without that of XDP programs.
 */
#include <net/ip_tunnels.h>
#include <net/neighbour.h>

#include "ip_vs_mhs_lane_ask.h"

/* Make the packet what the core's transmitters make of it */
static void ingress_rewrite(const struct mhs_lane_packet *p,
			    struct sk_buff *skb)
{
	bool v6 = p->ethertype == htons(ETH_P_IPV6);

	if (v6)
		ipv6_hdr(skb)->hop_limit--;
	else
		ip_decrease_ttl(ip_hdr(skb));
	if (p->way.tunnel_hlen) {
		skb->transport_header = skb->network_header;
		skb_set_inner_ipproto(skb, v6 ? IPPROTO_IPV6 : IPPROTO_IPIP);
		skb_set_inner_mac_header(skb, skb_inner_network_offset(skb));
		skb_push(skb, p->way.tunnel_hlen);
		skb_reset_network_header(skb);
		mhs_lane_tunnel(p, skb_network_header(skb));
		skb->protocol = p->way.proto;
	}
	/* ip_rcv() would do that; on veth the socket is the sender's */
	skb_orphan(skb);
	memset(skb->cb, 0, sizeof(skb->cb));
	nf_reset_ct(skb);
	skb_dst_drop(skb);
	skb_forward_csum(skb);
	mhs_clear_tstamp(skb);
}

static enum mhs_lane_why ingress_ask(struct mhs_lane_packet *p, struct sk_buff *skb)
{
	enum mhs_lane_why why;
	int gso;

	if (skb->pkt_type != PACKET_HOST || skb_vlan_tag_present(skb) ||
	    skb_shared(skb) ||
	    !pskb_may_pull(skb, min_t(unsigned int, skb->len,
				      MHS_LANE_HEADER_BYTES)))
		return MHS_LANE_FRAME;
	p->ip = skb->data;
	p->bytes = skb->len;
	p->ethertype = skb->protocol;
	why = mhs_lane_record_ask(p, 0);
	if (why)
		return why;
	if (p->len > p->way.mtu &&
	    !(skb_is_gso(skb) && skb_gso_validate_network_len(skb, p->way.mtu)))
		return MHS_LANE_MTU;
	/* Room for headers: nothing may fail once the packet has been counted */
	gso = p->way.tunnel_hlen == sizeof(struct iphdr) ? SKB_GSO_IPXIP4 :
						     SKB_GSO_IPXIP6;
	if (pskb_trim_rcsum(skb, p->len) ||
	    skb_cow_head(skb, LL_RESERVED_SPACE(p->way.out) + p->way.tunnel_hlen) ||
	    skb_ensure_writable(skb, min_t(unsigned int, skb->len,
					   MHS_LANE_HEADER_BYTES)) ||
	    (p->way.tunnel_hlen && iptunnel_handle_offloads(skb, gso)))
		return MHS_LANE_DEVICE;
	return MHS_LANE_NO_REASON;
}

/* The hook of a device; @priv is the lane's part of the namespace */
unsigned int mhs_lane_ingress_hook(void *priv, struct sk_buff *skb,
				   const struct nf_hook_state *state)
{
	struct mhs_lane_packet p __uninitialized;
	enum mhs_lane_why why;

	p.lane_net = priv;
	p.mn = p.lane_net->mn;
	p.in = state->in;
	why = ingress_ask(&p, skb);
	mhs_lane_count(&p, why);
	if (why)
		return NF_ACCEPT;
	ingress_rewrite(&p, skb);
	skb->dev = p.way.out;
	/* The neighbour adds the Ethernet header */
	neigh_output(p.way.neigh, skb, false);
	return NF_STOLEN;
}
