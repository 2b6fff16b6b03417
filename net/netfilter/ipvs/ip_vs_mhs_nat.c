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
 * One pair belongs to one server, its owner (ip_vs_mhs_pair.c).  A second service
 * with the same pair keeps entries for it, and so do services by firewall mark,
 * whose virtual address is not known on the way back, those with a helper, and
 * servers on this host.  With masq_stateless=0 nobody comes to own a pair.
 *
 * Who sets masq_stateless=1 promises that nobody reaches the servers' own
 * addresses past the service and that servers begin no flow from its port: such
 * packets look the same.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/ip.h>
#include <linux/module.h>
#include <net/ip.h>

#include "ip_vs_mhs_pkt.h"

/**
 * ip_vs_mhs_nat_gather() - put the fragments of an IPv4 packet together
 * @ipvs: the namespace
 * @skb: a fragment
 *
 * Of the protocols of services, as the core does a moment later: without the
 * ports of the first fragment nobody can say whose the others are.
 *
 * Context: softirq or process, under RCU.
 * Return: true when the fragment was taken; false: go on with the packet.
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
 * ip_vs_mhs_nat_carrier() - the carrier by which to translate a reply
 * @p: the reply, or an ICMP error that quotes a request
 * @protocol: transport protocol of the reply
 * @addr: address of the server
 * @port: its port
 * @server: set to the server, without a reference, or NULL when no server of
 *	ours masquerades there
 *
 * Context: softirq or process, under RCU.
 * Return: the carrier, or NULL when there is no server, or no memory for its
 *	carrier yet.
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

/* May a flow of the slot that has no entry be with the server @s?  New flows of an
 * unstable slot have entries, and a slot that can give them none is cut.  Plain
 * UDP, which never has, may be with either server.
 */
static bool nat_names(const struct ip_vs_mhs_server *s, u32 w)
{
	const struct ip_vs_mhs *mhs = s->mhs;

	return ip_vs_mhs_slot_old(w) == s->idx ||
	       (ip_vs_mhs_slot_cand(w) == s->idx &&
		ip_vs_mhs_proto_connectionless(mhs, mhs->protocol, mhs->port));
}

/**
 * ip_vs_mhs_nat_ours() - is a reply one of a flow without an entry?
 * @s: the server that owns its pair
 * @slot: the client's slot
 * @pd: transport protocol
 * @skb: the packet
 * @iph: header of the reply, or of the request that an ICMP error quotes
 *
 * Any entry of the namespace may be that of the flow: of another service with the
 * same server, from before a change, from the sync daemon.
 *
 * Context: softirq or process, under RCU.
 * Return: true if it is ours to translate.
 */
bool ip_vs_mhs_nat_ours(const struct ip_vs_mhs_server *s, u32 *slot,
			struct ip_vs_proto_data *pd, struct sk_buff *skb,
			  const struct ip_vs_iphdr *iph)
{
	const struct ip_vs_mhs *mhs = s->mhs;
	struct ip_vs_conn *cp;
	bool ours;
	u32 w;

	/* The flow's requests may pass another director */
	w = ip_vs_mhs_slot_use(slot, ip_vs_mhs_slot_read(slot));
	ours = nat_names(s, w);
	if (ours ? !ip_vs_mhs_has_entries(mhs->net, mhs->ipvs) :
		   !ip_vs_mhs_slot_tracked(w))
		return ours;
	cp = pd->pp->conn_out_get(mhs->ipvs, mhs->af, skb, iph);
	if (!cp)
		return ours;
	/* replies alone may keep it alive */
	ip_vs_mhs_slot_track(slot);
	__ip_vs_conn_put(cp);
	return false;
}

/* A reply of an older flow while the table is not final yet, or while there is
 * no memory for the server's carrier: untranslated it would make the client
 * reset the flow.  It is sent again a moment later.
 */
static bool nat_too_early(const struct ip_vs_mhs_server *s,
			  const struct ip_vs_conn *carrier,
			    const struct ip_vs_mhs_packet *p, const u32 *slot)
{
	bool settling = ip_vs_mhs_settling(s->mhs), names;
	struct ip_vs_conn *cp;

	if (likely(carrier && !settling) || p->iph.protocol == IPPROTO_UDP)
		return false;
	/* with a helper a pair is claimed for a moment only */
	if (!carrier && READ_ONCE(s->state) & MHS_SRV_STATEFUL)
		return false;
	names = nat_names(s, ip_vs_mhs_slot_read(slot));
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
 * Return: NF_ACCEPT, with ipvs_property set if it is done with; NF_DROP when
 *	it cannot be translated, or not yet.
 */
unsigned int ip_vs_mhs_nat_reply(struct ip_vs_mhs_packet *p)
{
	struct ip_vs_conn *carrier;
	struct ip_vs_mhs_server *s;
	struct ip_vs_mhs *mhs;
	u32 *slot;

	/* no answer begins a flow */
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
