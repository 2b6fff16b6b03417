// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: masquerading without entries.
 *
 * The carrier of a masquerading server translates requests with the core's own
 * transmitter.  A reply comes from a pair (server address, port), and the pair
 * identifies the service:
 *
 *	reply from the pair of an mhs server to a client
 *	  |
 *	  |-- entry found ------------------------------> core
 *	  |-- the client's slot names the server -------> translated by mhs
 *	  '-- else: no flow of mhs ---------------------> core
 *
 * Each pair has one owner (ip_vs_mhs_pair.c).  Entries remain for a second
 * server with the same pair and for the servers in masq_keeps_entries(), such
 * as those of a service by mark, whose virtual address a reply does not reveal.
 *
 * With masq_stateless=1 the administrator promises that nobody reaches a server
 * address directly and that servers begin no flow from the port of a pair: mhs
 * would translate such packets, too.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/ip.h>
#include <net/ip.h>

#include "ip_vs_mhs_pkt.h"

/**
 * ip_vs_mhs_nat_gather() - reassemble an IPv4 packet
 * @ipvs: the namespace
 * @skb: a fragment
 *
 * Later fragments have no ports, so mhs could not find their flow.  As in the
 * core, only the protocols of services are reassembled.
 *
 * Context: softirq or process, under RCU.
 * Return: true if ip_defrag() took the fragment; false: go on with @skb.
 */
bool ip_vs_mhs_nat_gather(struct netns_ipvs *ipvs, struct sk_buff *skb)
{
	int err;

	switch (ip_hdr(skb)->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_ICMP:
		break;
	default:
		return false;
	}
	local_bh_disable();
	err = ip_defrag(ipvs->net, skb, IP_DEFRAG_VS_FWD);
	local_bh_enable();
	if (err)
		return true;
	ip_send_check(ip_hdr(skb));
	return false;
}

/**
 * ip_vs_mhs_nat_carrier() - find the carrier that translates a reply
 * @p: the reply, or an ICMP error that quotes a request
 * @protocol: transport protocol of the reply
 * @addr: address of the server
 * @port: port of the server
 * @server: set to the server, without a reference, or NULL when no server of
 *	mhs masquerades there
 *
 * Context: softirq or process, under RCU.
 * Return: the carrier, or NULL without a server or without memory for the
 *	carrier so far.
 */
struct ip_vs_conn *ip_vs_mhs_nat_carrier(const struct ip_vs_mhs_packet *p,
					 u16 protocol,
					 const union nf_inet_addr *addr,
					 __be16 port,
					 struct ip_vs_mhs_server **server)
{
	struct ip_vs_conn *carrier;

	*server = ip_vs_mhs_pair_find(p->net, p->af, protocol, addr, port);
	carrier = *server ? rcu_dereference((*server)->carrier) : NULL;
	if (carrier && IP_VS_FWD_METHOD(carrier) != IP_VS_CONN_F_MASQ) {
		*server = NULL;
		return NULL;
	}
	return carrier;
}

/* May the slot with the word @w have flows without an entry on @s?  A new flow in
 * an unstable slot gets an entry, goes to the old server or cuts the slot, so only
 * plain UDP may be on the candidate, too.
 */
static bool nat_names(const struct ip_vs_mhs_server *s, u32 w)
{
	const struct ip_vs_mhs *mhs = s->mhs;

	return ip_vs_mhs_slot_old(w) == s->idx ||
	       (ip_vs_mhs_slot_cand(w) == s->idx &&
		ip_vs_mhs_proto_connectionless(mhs, mhs->protocol, mhs->port));
}

/**
 * ip_vs_mhs_nat_ours() - does a reply belong to a flow without an entry?
 * @s: the server that owns the pair
 * @slot: the client's slot
 * @pd: transport protocol
 * @skb: the packet
 * @iph: header of the reply, or of the request that an ICMP error quotes
 *
 * If the namespace has entries, the flow may have one even in an untracked
 * slot: of another service with the server, an older setup or the sync daemon.
 *
 * Context: softirq or process, under RCU.
 * Return: true if mhs has to translate the reply.
 */
bool ip_vs_mhs_nat_ours(const struct ip_vs_mhs_server *s, u32 *slot,
			struct ip_vs_proto_data *pd, struct sk_buff *skb,
			const struct ip_vs_iphdr *iph)
{
	const struct ip_vs_mhs *mhs = s->mhs;
	struct ip_vs_conn *cp;
	bool ours;
	u32 w;

	/* Mark the slot used: the flow's requests may pass another director */
	w = ip_vs_mhs_slot_use(slot, ip_vs_mhs_slot_read(slot));
	ours = nat_names(s, w);
	/* Look for an entry, unless there can be none */
	if (ours ? !ip_vs_mhs_has_entries(mhs) :
		   !ip_vs_mhs_slot_tracked(w))
		return ours;
	cp = pd->pp->conn_out_get(mhs->ipvs, mhs->af, skb, iph);
	if (!cp)
		return ours;
	/* Replies alone may keep the entry alive, so the mark must stay */
	ip_vs_mhs_slot_track(slot);
	__ip_vs_conn_put(cp);
	return false;
}

/* Must a reply be dropped, because the table is not final yet or the server's
 * carrier lacks memory?  The client would answer an untranslated reply with a
 * reset.  The server resends a dropped reply.
 */
static bool nat_too_early(const struct ip_vs_mhs_server *s,
			  const struct ip_vs_conn *carrier,
			  const struct ip_vs_mhs_packet *p, const u32 *slot)
{
	bool settling = ip_vs_mhs_settling(s->mhs), names;
	struct ip_vs_conn *cp;

	if (likely(carrier && !settling) || p->iph.protocol == IPPROTO_UDP)
		return false;
	/* server_method() takes the pair from a server with a helper at once */
	if (!carrier && READ_ONCE(s->state) & MHS_SRV_ALL_ENTRY)
		return false;
	names = nat_names(s, ip_vs_mhs_slot_read(slot));
	/* A named server with a carrier translates while the service settles.
	 * Without a carrier: a server that is not named has no flow here.
	 */
	if (settling ? carrier && names : !names)
		return false;
	cp = p->pd->pp->conn_out_get(s->mhs->ipvs, p->af, p->skb, &p->iph);
	if (cp)
		__ip_vs_conn_put(cp);
	return !cp;
}

/**
 * ip_vs_mhs_nat_reply() - translate a packet that a server sends to a client
 * @p: the packet, in FORWARD
 *
 * Context: softirq or process, under RCU.
 * Return: NF_ACCEPT, with ipvs_property set after a translation; NF_DROP when
 *	the packet cannot be translated, or not yet.
 */
unsigned int ip_vs_mhs_nat_reply(struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *carrier;
	struct ip_vs_mhs_server *s;
	struct ip_vs_mhs *mhs;
	u32 *slot;

	/* A SYN without ACK is no reply */
	if (p->iph.protocol == IPPROTO_TCP && p->facts & MHS_PKT_FRESH)
		return NF_ACCEPT;
	carrier = ip_vs_mhs_nat_carrier(p, p->iph.protocol, &p->iph.saddr,
					p->sport, &s);
	if (!s)
		return NF_ACCEPT;
	mhs = s->mhs;
	slot = ip_vs_mhs_slot(mhs, &p->iph.daddr, p->dport);
	if (nat_too_early(s, carrier, p, slot)) {
		ip_vs_mhs_count(mhs, carrier ? MHS_CNT_UNSETTLED :
					       MHS_CNT_NOMEM);
		return NF_DROP;
	}
	if (!carrier || !ip_vs_mhs_nat_ours(s, slot, p->pd, p->skb, &p->iph))
		return NF_ACCEPT;

	return ip_vs_mhs_xmit_reply(p, s, carrier);
}
