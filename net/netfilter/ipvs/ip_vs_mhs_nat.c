// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: masquerading without entries.
 *
 * On the way in, the carrier of a masquerading server translates: its
 * transmitter is the core's own.  On the way back the packet comes from a
 * pair (server address, port), and the pair leads to the service:
 *
 *	from the pair of a server of ours, to a client
 *	  |
 *	  |-- it has an entry --------------------------> core
 *	  |-- the client's slot names the server --------> from the virtual
 *	  |                                                address, by us
 *	  '-- else: no flow of ours --------------------> core
 *
 * One pair belongs to one service, its owner.  A second service with the same
 * pair keeps entries for it, and so do services by firewall mark, whose
 * virtual address is not known on the way back, and those with a helper.
 *
 * A client may also talk to the server directly, not by the virtual address.
 * Its replies look the same.  When it does so from a slot that names the very
 * server, its first packet makes an entry that translates the server's address
 * into itself (ip_vs_mhs_direct()).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/hashtable.h>
#include <linux/ip.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/rculist.h>
#include <net/ip.h>
#include <net/route.h>

#include "ip_vs_mhs_pkt.h"

/* 1,024 chains, as for services */
static DEFINE_READ_MOSTLY_HASHTABLE(mhs_pairs, 10);
static DEFINE_SPINLOCK(mhs_pairs_lock);	/* guards writers */

static u32 pair_key(const struct netns_ipvs *ipvs, u16 af,
		    const union nf_inet_addr *addr, __be16 port)
{
	__be32 fold = addr->ip;

	if (af == AF_INET6)
		fold ^= addr->ip6[1] ^ addr->ip6[2] ^ addr->ip6[3];
	return jhash_3words((__force u32)fold, (__force u32)port,
			    (u32)((unsigned long)ipvs >> 8), 0);
}

static __be16 server_port(const struct ip_vs_mhs_server *s)
{
	return s->dest->port ? s->dest->port : s->mhs->port;
}

/**
 * ip_vs_mhs_pair_find() - the server that owns a pair
 * @ipvs: the namespace
 * @af: address family
 * @protocol: transport protocol
 * @addr: address of the server
 * @port: its port
 *
 * Context: any, under RCU.
 * Return: the server, without a reference, or NULL.
 */
struct ip_vs_mhs_server *ip_vs_mhs_pair_find(struct netns_ipvs *ipvs, u16 af,
					     u16 protocol,
					     const union nf_inet_addr *addr,
					     __be16 port)
{
	struct ip_vs_mhs_server *s;

	hash_for_each_possible_rcu(mhs_pairs, s, pair,
				   pair_key(ipvs, af, addr, port))
		if (server_port(s) == port && s->mhs->ipvs == ipvs &&
		    s->dest->af == af && s->mhs->protocol == protocol &&
		    ip_vs_addr_equal(af, &s->dest->addr, addr))
			return s;
	return NULL;
}

/**
 * ip_vs_mhs_pair_claim() - make a server the owner of its pair
 * @s: a masquerading server
 *
 * Context: process, mhs.lock held.
 * Return: false when another server owns it.
 */
bool ip_vs_mhs_pair_claim(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs_server *owner;
	struct ip_vs_mhs *mhs = s->mhs;
	__be16 port = server_port(s);

	lockdep_assert_held(&mhs->lock);
	if (!hlist_unhashed(&s->pair))
		return true;
	spin_lock_bh(&mhs_pairs_lock);
	rcu_read_lock();
	owner = ip_vs_mhs_pair_find(mhs->ipvs, s->dest->af, mhs->protocol,
				    &s->dest->addr, port);
	if (owner)
		/* from now on a reply may be another service's */
		WRITE_ONCE(owner->shared, true);
	rcu_read_unlock();
	if (!owner) {
		hash_add_rcu(mhs_pairs, &s->pair,
			     pair_key(mhs->ipvs, s->dest->af, &s->dest->addr,
				      port));
		WRITE_ONCE(mhs->net->pairs, mhs->net->pairs + 1);
	}
	spin_unlock_bh(&mhs_pairs_lock);
	return !owner;
}

/**
 * ip_vs_mhs_pair_drop() - the server is about to be forgotten
 * @s: the server
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_pair_drop(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs_net *mn = s->mhs->net;

	lockdep_assert_held(&s->mhs->lock);
	if (hlist_unhashed(&s->pair))
		return;
	spin_lock_bh(&mhs_pairs_lock);
	hash_del_rcu(&s->pair);
	WRITE_ONCE(mn->pairs, mn->pairs - 1);
	spin_unlock_bh(&mhs_pairs_lock);
}

/**
 * ip_vs_mhs_gather() - put the fragments of an IPv4 packet together
 * @ipvs: the namespace
 * @p: a fragment
 *
 * The core does the same a moment later: without the ports of the first one
 * nobody can say whose the others are.
 *
 * Context: softirq or process, under RCU.
 * Return: true when the fragment was taken; false: the packet is whole.
 */
bool ip_vs_mhs_gather(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
{
	int err;

	local_bh_disable();
	err = ip_defrag(ipvs->net, p->skb, IP_DEFRAG_VS_FWD);
	local_bh_enable();
	if (err)
		return true;
	ip_send_check(ip_hdr(p->skb));
	return false;
}

/* May an entry of another service, or of another kind of flow, own a packet
 * between @s and a client of this slot word?
 */
static bool reply_unsure(const struct ip_vs_mhs_server *s, u32 w)
{
	const struct ip_vs_mhs *mhs = s->mhs;

	return ip_vs_mhs_slot_tracked(w) || READ_ONCE(s->shared) ||
	       READ_ONCE(mhs->settling) || READ_ONCE(mhs->net->others) ||
	       ip_vs_mhs_others(mhs->ipvs, READ_ONCE(mhs->net->services)) ||
	       ip_vs_mhs_backup(mhs->ipvs);
}

/* Does the slot say that its older or its newer flows are those of @s? */
static bool slot_names(const struct ip_vs_mhs_server *s, u32 w)
{
	return ip_vs_mhs_slot_old(w) == s->idx ||
	       ip_vs_mhs_slot_cand(w) == s->idx;
}

/**
 * ip_vs_mhs_reply_ours() - is a reply one of a flow without an entry?
 * @s: the server that owns its pair
 * @w: the word of the client's slot
 * @pd: transport protocol
 * @skb: the packet
 * @iph: header of the reply, or of a reply or request that an ICMP error
 *	quotes
 *
 * Context: softirq or process, under RCU.
 * Return: true if it is ours to translate.
 */
bool ip_vs_mhs_reply_ours(const struct ip_vs_mhs_server *s, u32 w,
			  const struct ip_vs_proto_data *pd,
			  const struct sk_buff *skb,
			  const struct ip_vs_iphdr *iph)
{
	struct ip_vs_conn *cp;

	if (!slot_names(s, w))
		return false;
	if (!reply_unsure(s, w))
		return true;
	cp = pd->pp->conn_out_get(s->mhs->ipvs, s->mhs->af, skb, iph);
	if (!cp)
		return true;
	__ip_vs_conn_put(cp);
	return false;
}

/* As the core: policy routing may send what comes from the virtual address
 * another way.
 */
static int reply_reroute(const struct ip_vs_mhs *mhs, struct sk_buff *skb)
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

/**
 * ip_vs_mhs_reply_done() - send a translated reply on its way
 * @s: the server
 * @carrier: its carrier
 * @skb: the packet
 *
 * Context: softirq or process, under RCU.
 * Return: NF_ACCEPT, or NF_DROP when there is no route.
 */
unsigned int ip_vs_mhs_reply_done(const struct ip_vs_mhs_server *s,
				  const struct ip_vs_conn *carrier,
				  struct sk_buff *skb)
{
	if (reply_reroute(s->mhs, skb))
		return NF_DROP;
	ip_vs_mhs_count(s->mhs, MHS_CNT_REPLY);
	ip_vs_mhs_stats(s->mhs, s->dest, skb, MHS_STAT_OUT);
	skb->ipvs_property = 1;
	if (!(carrier->flags & IP_VS_CONN_F_NFCT))
		ip_vs_notrack(skb);
	return NF_ACCEPT;
}

/**
 * ip_vs_mhs_reply() - translate a packet that a server sends to a client
 * @ipvs: the namespace
 * @p: the packet, in FORWARD or LOCAL_OUT
 *
 * Context: softirq or process, under RCU.
 * Return: NF_ACCEPT, with ipvs_property set if it was translated; NF_DROP
 *	when it cannot be.
 */
unsigned int ip_vs_mhs_reply(struct netns_ipvs *ipvs,
			     struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *carrier;
	struct ip_vs_mhs_server *s;
	struct ip_vs_mhs *mhs;
	u32 w;

	s = ip_vs_mhs_pair_find(ipvs, p->af, p->iph.protocol,
				&p->iph.saddr, p->sport);
	if (!s)
		return NF_ACCEPT;
	mhs = s->mhs;
	carrier = rcu_dereference(s->carrier);
	if (!carrier || IP_VS_FWD_METHOD(carrier) != IP_VS_CONN_F_MASQ)
		return NF_ACCEPT;
	w = ip_vs_mhs_slot_read(ip_vs_mhs_slot(mhs, &p->iph.daddr, p->dport));
	if (!ip_vs_mhs_reply_ours(s, w, p->pd, p->skb, &p->iph))
		return NF_ACCEPT;

	if (skb_ensure_writable(p->skb, p->iph.len) ||
	    !p->pd->pp->snat_handler(p->skb, p->pd->pp, carrier, &p->iph))
		return NF_DROP;
	if (mhs->af == AF_INET6) {
		ipv6_hdr(p->skb)->saddr = mhs->addr.in6;
	} else {
		ip_hdr(p->skb)->saddr = mhs->addr.ip;
		ip_send_check(ip_hdr(p->skb));
	}
	return ip_vs_mhs_reply_done(s, carrier, p->skb);
}

/**
 * ip_vs_mhs_direct() - see a packet to a server's own address pass
 * @ipvs: the namespace
 * @p: the packet, in FORWARD or LOCAL_IN, no request of a service
 *
 * If the client's slot names the server, the replies would be translated:
 * make an entry that leaves them as they are.
 *
 * Context: softirq or process, under RCU.
 */
void ip_vs_mhs_direct(struct netns_ipvs *ipvs, struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn_param param;
	struct ip_vs_mhs_server *s;
	struct ip_vs_conn *cp;
	struct ip_vs_mhs *mhs;
	u32 *slot, w;

	s = ip_vs_mhs_pair_find(ipvs, p->af, p->iph.protocol,
				&p->iph.daddr, p->dport);
	if (!s)
		return;
	mhs = s->mhs;
	slot = ip_vs_mhs_slot(mhs, &p->iph.saddr, p->sport);
	w = ip_vs_mhs_slot_read(slot);
	if (!slot_names(s, w))
		return;
	if (ip_vs_mhs_slot_tracked(w)) {
		cp = ip_vs_conn_in_get_proto(ipvs, p->af, p->skb, &p->iph);
		if (cp) {
			ip_vs_mhs_slot_track(slot);
			ip_vs_mhs_set_state(cp, p->skb, p->pd, p->iph.len);
			ip_vs_conn_put(cp);	/* restarts its timer */
			return;
		}
	}
	if (p->ends)
		return;
	if (!ip_vs_mhs_may_track(mhs, p->iph.protocol == IPPROTO_UDP)) {
		ip_vs_mhs_count(mhs, MHS_CNT_CAPPED);
		return;
	}
	/* Before the entry exists: a packet that could find it looks for it */
	ip_vs_mhs_slot_track(slot);
	ip_vs_conn_fill_param(ipvs, p->af, p->iph.protocol, &p->iph.saddr,
			      p->sport, &p->iph.daddr, p->dport, &param);
	/* with the server, which counts it and so limits such entries too */
	cp = ip_vs_conn_new(&param, p->af, &p->iph.daddr, p->dport,
			    IP_VS_CONN_F_MASQ, s->dest, 0);
	if (!cp) {
		ip_vs_mhs_count(mhs, MHS_CNT_NOMEM);
		return;
	}
	ip_vs_mhs_count(mhs, MHS_CNT_DIRECT);
	ip_vs_mhs_set_state(cp, p->skb, p->pd, p->iph.len);
	ip_vs_conn_put(cp);
}
