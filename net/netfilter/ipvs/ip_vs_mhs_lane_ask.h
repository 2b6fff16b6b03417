/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: packets before the IP stack.
 *
 * A lane forwards packets that the stack would forward without a connection
 * entry.  What a lane cannot forward exactly as the stack does "goes up", to
 * the stack: a lane resolves no route and no neighbour, makes no entry and
 * sends no ICMP.
 *
 * All packets of a device run through this file, which asks records only, see
 * ip_vs_mhs_lane.h.  The caller holds RCU until it has used the answer.
 */
#ifndef _IP_VS_MHS_LANE_ASK_H
#define _IP_VS_MHS_LANE_ASK_H

#include <linux/if_ether.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "ip_vs_mhs.h"

/* xdp */
extern unsigned int mhs_lane_xdp_net_id;	/* 0: no scheduler is there */

int mhs_lane_xdp_register(void);

/* ingress */
unsigned int mhs_lane_ingress_hook(void *priv, struct sk_buff *skb,
				   const struct nf_hook_state *state);

/* record */
extern enum mhs_lane_why (*mhs_lane_record_decide)(struct mhs_lane_packet *p);

enum mhs_lane_why mhs_lane_record_ask(struct mhs_lane_packet *p, u32 fit);
enum mhs_lane_why mhs_lane_record_in(struct mhs_lane_packet *p, u32 fit);
enum mhs_lane_why mhs_lane_record_local(const struct mhs_lane_packet *p);
enum mhs_lane_why mhs_lane_record_way(struct mhs_lane_packet *p);

static __always_inline unsigned int lane_ip_hlen(bool v6)
{
	return v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

static __always_inline u32 mhs_lane_generation(const struct mhs_net *mn)
{
	u32 n = atomic_read(&mn->generation) + rt_genid_ipv4(mn->net);
	u64 now = get_jiffies_64();

#if IS_ENABLED(CONFIG_IPV6)
	n += rt_genid_ipv6(mn->net);
#endif
	/* A new one each half second to second, for what nobody reports */
	n += now >> ilog2(HZ);
	return 2 * n + 1;
}

/* The generation, with the changes of a next hop */
static __always_inline u32
mhs_lane_generation_of(const struct mhs_lane_packet *p, u32 hop)
{
	return p->generation + 2 * atomic_read(&p->lane_net->next_hops[hop]);
}

/* Devices made one after the other have different places */
static __always_inline atomic64_t *mhs_lane_in(const struct mhs_lane_packet *p)
{
	return p->lane_net->in[(u32)p->in->ifindex % MHS_LANE_INS];
}

static __always_inline s64 mhs_lane_in_key(const struct mhs_lane_packet *p)
{
	return (u64)p->in->ifindex << 32 | p->generation;
}

/* Read addresses and ports as TCP has them; lane_parse_rest() checks that */
static __always_inline bool lane_parse(struct mhs_lane_packet *p, bool v6)
{
	const struct udphdr *ports = p->ip + lane_ip_hlen(v6);
	const struct ipv6hdr *ipv6 = p->ip;
	const struct iphdr *ipv4 = p->ip;
	const u8 *first = p->ip;

	/* also fragments, which lane_parse_rest() tells */
	if (unlikely(p->bytes < lane_ip_hlen(v6) + sizeof(*ports) ||
		     (v6 ? *first >> 4 != 6 : *first != 0x45)))
		return false;
	p->transport = v6 ? ipv6->nexthdr : ipv4->protocol;
	p->saddr = v6 ? (const void *)&ipv6->saddr : &ipv4->saddr;
	p->daddr = v6 ? (const void *)&ipv6->daddr : &ipv4->daddr;
	p->sport = ports->source;
	p->dport = ports->dest;
	return true;
}

/* The sum of a header without options, of 20 bits: ip_fast_csum() is a loop where
 * the length is constant, too
 */
static __always_inline u32 lane_sum(const struct iphdr *ih)
{
	const u32 *word = (const u32 *)ih;
	u64 sum = (u64)word[0] + word[1] + word[2] + word[3] + word[4];

	return (u32)(sum >> 16) + (u16)sum;
}

/* What only packets to a service need, and p->len.  Is it TCP or UDP in IP that
 * ip_rcv() accepts, not a fragment?
 */
static __always_inline bool lane_parse_rest(struct mhs_lane_packet *p, bool v6)
{
	unsigned int need = lane_ip_hlen(v6) + sizeof(struct udphdr);
	const struct ipv6hdr *ipv6 = p->ip;
	const struct iphdr *ipv4 = p->ip;

	p->len = v6 ? ntohs(ipv6->payload_len) + sizeof(*ipv6) :
		      ntohs(ipv4->tot_len);
	if (unlikely(v6 ? ipv6->hop_limit < 2 :
		     ipv4->frag_off & ~htons(IP_DF) || ipv4->ttl < 2 ||
		     lane_sum(ipv4) % 0xffff))
		return false;
	/* XDP trims only for a tunnel: what is no padding would leave, too */
	if (unlikely(p->len > p->bytes ||
		     (p->len != p->bytes && p->bytes > ETH_ZLEN - ETH_HLEN)))
		return false;
	p->facts = 0;
	if (likely(p->transport == IPPROTO_TCP)) {
		need = lane_ip_hlen(v6) + sizeof(struct tcphdr);
		p->facts = mhs_tcp_facts(p->ip + lane_ip_hlen(v6));
	} else if (p->transport != IPPROTO_UDP) {
		return false;
	}
	/* A client without a port may get no entry; the core gets active FTP */
	return likely(p->len >= need) && likely(p->sport) &&
	       likely(p->sport != FTPDATA);
}

/* Sources for which the stack drops a packet without asking its routes */
static __always_inline bool lane_is_source(const union nf_inet_addr *addr,
					   bool v6)
{
	if (v6)
		return (addr->ip6[0] | addr->ip6[1]) &&
		       !ipv6_addr_is_multicast(&addr->in6);
	return !ipv4_is_multicast(addr->ip) && !ipv4_is_lbcast(addr->ip) &&
	       !ipv4_is_loopback(addr->ip) && !ipv4_is_zeronet(addr->ip);
}

/* Decide as mhs_packet_decide() would, but only on TCP in stable slots; else false */
static __always_inline bool lane_decide(struct mhs_lane_packet *p,
					const struct ip_vs_service *svc, bool v6)
{
	struct mhs *mhs = p->mhs;
	u32 w;

	/* Pairs with the release in mhs_work() */
	if (unlikely(smp_load_acquire(&mhs->settling) ||
		     p->transport != IPPROTO_TCP ||
		     MHS_FACT(READ_ONCE(svc->flags)) & MHS_FACTS_SLOW ||
		     !READ_ONCE(p->mn->stateless)))
		return false;
	w = mhs_slot_read(mhs_slot_of(mhs, v6, p->saddr, p->sport));
	p->server = mhs_server_at(mhs, mhs_slot_cand(w));
	/* The way takes the carrier's place */
	if (unlikely(!p->server || mhs_slot_tracked(w) ||
		     !mhs_decide_is_quick(w, READ_ONCE(p->server->facts) |
					  MHS_SRV_EXISTS | MHS_SRV_CARRIER, 0)))
		return false;
	p->verdict = mhs_verdict(MHS_FORWARD, MHS_CNT_STABLE, 0);
	return true;
}

/* Copy a part of a record.  A reader sees by the generation whether others
 * wrote meanwhile.  data_race() copies the value of its expression: 0 is cheap.
 */
#define lane_copy(TO, FROM)	data_race(((TO) = (FROM), 0))

/* Copy the way; false if the record is out of date */
static __always_inline bool lane_way(struct mhs_lane_packet *p)
{
	const struct mhs_lane_record *r = &p->server->record;
	/* Pairs with the release in way_write() */
	u64 key = atomic64_read_acquire(&r->key);

	if (unlikely((u32)key != mhs_lane_generation_of(p, key >> 32)))
		return false;
	lane_copy(p->way, r->way);
	if (p->way.tunnel_hlen)
		lane_copy(p->ends.first, r->ends.first);
	if (p->way.tunnel_hlen > sizeof(struct iphdr))
		lane_copy(p->ends, r->ends);
	/* Pairs with the write barrier in way_write() */
	smp_rmb();
	return likely(atomic64_read(&r->key) == key);
}

/* The answer for @p, or MHS_LANE_UNTOLD if @records_only and records do not tell */
static __always_inline enum mhs_lane_why
lane_ask(struct mhs_lane_packet *p, bool v6, u32 fit, bool records_only)
{
	u16 af = v6 ? AF_INET6 : AF_INET;
	const struct ip_vs_service *svc;
	enum mhs_lane_why why;

	/* First what tells most packets of others */
	if (unlikely(!lane_parse(p, v6)))
		return MHS_LANE_FRAME;
	p->mhs = mhs_svc_find(p->mn, af, p->transport, p->daddr, p->dport);
	if (!p->mhs)
		return MHS_LANE_SERVICE;
	/* Pairs with mhs_work_add_dest(): whoever sees mhs->svc sees the service settling */
	svc = smp_load_acquire(&p->mhs->svc);
	if (unlikely(!svc))
		return MHS_LANE_SERVICE;
	/* Is the namespace open, and the device that received the packet fit? */
	p->generation = mhs_lane_generation(p->mn);
	if (unlikely(atomic64_read(&mhs_lane_in(p)[fit]) != mhs_lane_in_key(p))) {
		why = records_only ? MHS_LANE_UNTOLD : mhs_lane_record_in(p, fit);
		if (why)
			return why;
	}
	if (records_only && unlikely(p->transport != IPPROTO_TCP))
		return MHS_LANE_UNTOLD;
	if (unlikely(!lane_parse_rest(p, v6)))
		return MHS_LANE_FRAME;
	if (unlikely(ip_vs_addr_equal(af, p->saddr, p->daddr) ||
		     !lane_is_source(p->saddr, v6)))
		return MHS_LANE_ADDRESS;
	/* Without the address (VRRP backup, say) the stack would route */
	if (unlikely(READ_ONCE(p->mhs->local_generation) != p->generation)) {
		why = records_only ? MHS_LANE_UNTOLD : mhs_lane_record_local(p);
		if (why)
			return why;
	}
	if (unlikely(!lane_decide(p, svc, v6))) {
		why = records_only ? MHS_LANE_UNTOLD : mhs_lane_record_decide(p);
		if (why)
			return why;
	}
	if (likely(lane_way(p)))
		return MHS_LANE_NO_REASON;
	return records_only ? MHS_LANE_UNTOLD : mhs_lane_record_way(p);
}

/* Write the tunnel's header in front of the packet, which has its new TTL.  As
 * in the core the header has that TTL, the packet's DF, and without DF an
 * identification; the congestion mark stays.
 */
static __always_inline void
mhs_lane_tunnel(const struct mhs_lane_packet *p, void *at)
{
	const struct ipv6hdr *inner6 = at + p->way.tunnel_hlen;
	const struct iphdr *inner4 = at + p->way.tunnel_hlen;
	bool v6 = p->ethertype == htons(ETH_P_IPV6);
	u8 tos = v6 ? ipv6_get_dsfield(inner6) : inner4->tos;
	u8 ttl = v6 ? inner6->hop_limit : inner4->ttl;
	u8 inner = v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	struct ipv6hdr *ipv6 = at;
	struct iphdr *ipv4 = at;

	tos = INET_ECN_encapsulate(tos, tos);
	if (p->way.tunnel_hlen != sizeof(*ipv4)) {
		ip6_flow_hdr(ipv6, tos, 0);
		ipv6->payload_len = htons(p->len);
		ipv6->nexthdr = inner;
		ipv6->hop_limit = ttl;
		*(struct mhs_lane_ends *)&ipv6->saddr = p->ends;
		return;
	}
	/* version, header length, TOS */
	*(__be16 *)at = htons(0x4500 | tos);
	ipv4->tot_len = htons(p->len + sizeof(*ipv4));
	ipv4->frag_off = v6 ? 0 : inner4->frag_off;
	ipv4->ttl = ttl;
	ipv4->protocol = inner;
	((struct mhs_lane_ends *)&ipv4->saddr)->first = p->ends.first;
	ipv4->id = 0;
	if (!ipv4->frag_off)
		__ip_select_ident(p->mn->net, ipv4, 1);
	ipv4->check = 0;
	ipv4->check = csum_fold((__force __wsum)lane_sum(ipv4));
}

/* May a lane forward a packet, and how?  0, or why it goes up.  @fit: MHS_LANE_FIT_XDP
 * for a program, else 0.  The caller compares p->len with p->way.mtu, sees whether the
 * device can send, and always calls mhs_lane_count().  Inline: @p stays in registers.
 * MHS_LANE_UNTOLD means: call mhs_lane_record_ask(), which alone passes false for
 * @records_only.
 */
static __always_inline enum mhs_lane_why
mhs_lane_ask(struct mhs_lane_packet *p, u32 fit, bool records_only)
{
	if (likely(p->ethertype == htons(ETH_P_IP)))
		return lane_ask(p, false, fit | MHS_LANE_FIT_IPV4, records_only);
	if (IS_ENABLED(CONFIG_IP_VS_IPV6) && p->ethertype == htons(ETH_P_IPV6))
		return lane_ask(p, true, fit | MHS_LANE_FIT_IPV6, records_only);
	/* Frames of VLANs have an answer, but none here */
	if (records_only && p->ethertype == htons(ETH_P_8021Q))
		return MHS_LANE_UNTOLD;
	return MHS_LANE_FRAME;
}

/**
 * mhs_lane_count() - count a packet of a lane
 * @p: the packet; unless @why is set, as mhs_lane_record_ask() left it
 * @why: 0 if the packet is sent, else why it goes up
 *
 * One by a stable slot is counted once: who reads adds the count to others.
 */
static __always_inline void mhs_lane_count(const struct mhs_lane_packet *p,
					   enum mhs_lane_why why)
{
	if (unlikely(why)) {
		this_cpu_inc(p->lane_net->stats[why]);
		return;
	}
	if (likely(mhs_verdict_count(p->verdict) == MHS_CNT_STABLE)) {
		mhs_count(p->mhs, MHS_CNT_LANE_STABLE);
	} else {
		mhs_count_verdict(p->mhs, p->verdict);
		mhs_count(p->mhs, MHS_CNT_LANE);
	}
	if (unlikely(p->verdict & MHS_NO_ID))
		mhs_count(p->mhs, MHS_CNT_NO_ID);
	/* lane_decide() leaves MHS_CONN to the fact */
	if (unlikely(p->verdict & MHS_CONN || p->facts & MHS_PKT_NEW))
		mhs_xmit_stats_bh(p->mhs, p->server->dest, 0, MHS_STAT_CONN);
	mhs_xmit_stats_bh(p->mhs, p->server->dest, p->len, MHS_STAT_IN);
}

#endif /* _IP_VS_MHS_LANE_ASK_H */
