// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the packet path.
 *
 * The hook stands in front of the core's own.  It sends the packets of
 * flows that need no connection entry and passes the rest to the core,
 * which then finds the entry or makes one with the server that
 * ip_vs_mhs_schedule() names:
 *
 *	packet to a service of ours
 *	  |
 *	  |-- tracked slot, and it has an entry --------> core (or, server
 *	  |                                               deleted: carrier)
 *	  |-- the table is not final: new flow ---------> core, entry
 *	  |                           older flow -------> dropped, sent again
 *	  |-- stable slot ------------------------------> carrier, candidate
 *	  |-- unstable slot, new flow ------------------> core, entry, candidate
 *	  |                  older flow, hold ----------> carrier, old server
 *	  |                  older flow, pin -----------> entry, old server, core
 *	  '-- no server --------------------------------> core
 *
 * On the way of a stable slot nothing is allocated, locked or written but
 * the CPU's own counters; the first packet of a slot in a pin time sets its
 * "used" mark.
 *
 * A flow that was sent without an entry is never handed to the core while
 * there is a server for it: the core would pass a packet in mid-flow to the
 * local stack, which resets the connection.  Stepping aside, for the sake of
 * persistence, a threshold, masquerading or a mark, is for new flows only.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>

#include "ip_vs_mhs.h"

/* Slots to look at for another server before all servers are searched */
#define MHS_FALLBACK_PROBES	32

/* One packet on its way */
struct mhs_packet {
	struct sk_buff		*skb;
	struct ip_vs_iphdr	iph;
	__be16			cport;
	bool			fresh;	/* begins a flow */
	bool			ends;	/* RST or FIN: makes no entry */
};

static u32 *mhs_slot(const struct ip_vs_mhs *mhs, u64 hash)
{
	return &mhs->slots[(hash >> 32) * mhs->size >> 32];
}

static u64 mhs_flow_hash(const struct ip_vs_mhs *mhs,
			 const union nf_inet_addr *caddr, __be16 cport)
{
	return ip_vs_mhs_hash_addr(mhs->af, caddr,
				   READ_ONCE(mhs->addr_only) ? 0 : cport);
}

/* Count a packet where ipvsadm looks; like the core only for a server that
 * is in the list, whose service therefore stands.
 */
static void mhs_stats(const struct ip_vs_mhs *mhs, struct ip_vs_dest *dest,
		      const struct sk_buff *skb, bool pkt, bool conn)
{
	struct ip_vs_cpu_stats *s[3];
	int i;

	if (!ip_vs_mhs_dest_listed(dest))
		return;

	local_bh_disable();
	s[0] = this_cpu_ptr(dest->stats.cpustats);
	s[1] = this_cpu_ptr(rcu_dereference(dest->svc)->stats.cpustats);
	s[2] = ip_vs_mhs_total_stats(mhs->ipvs);
	for (i = 0; i < ARRAY_SIZE(s); i++) {
		u64_stats_update_begin(&s[i]->syncp);
		if (pkt) {
			u64_stats_inc(&s[i]->cnt.inpkts);
			u64_stats_add(&s[i]->cnt.inbytes, skb->len);
		}
		if (conn)
			u64_stats_inc(&s[i]->cnt.conns);
		u64_stats_update_end(&s[i]->syncp);
	}
	local_bh_enable();
}

/* May the service have one more entry?  Entries die without a word to us, so
 * they are counted anew when those made since the last count could exceed
 * the limit, at most some 20 times a second.
 */
static bool mhs_may_track(struct ip_vs_mhs *mhs)
{
	unsigned int max = READ_ONCE(mhs->net->max_entries);
	struct ip_vs_mhs_servers *servers;
	u64 n = 0;
	u32 i;

	if (atomic_read(&mhs->made) >= READ_ONCE(mhs->room) ||
	    READ_ONCE(mhs->room_of) != max) {
		if (time_before(jiffies, READ_ONCE(mhs->recount_at)) ||
		    !spin_trylock_bh(&mhs->recount_lock))
			return false;
		servers = rcu_dereference(mhs->servers);
		for (i = 0; i < servers->max; i++) {
			const struct ip_vs_mhs_server *s;

			s = rcu_dereference(servers->s[i]);
			if (s)
				n += ip_vs_mhs_dest_entries(s->dest);
		}
		n = min_t(u64, n, max);
		atomic_set(&mhs->made, 0);
		WRITE_ONCE(mhs->room, max - n);
		WRITE_ONCE(mhs->room_of, max);
		WRITE_ONCE(mhs->recount_at, jiffies + HZ / 20 + 1);
		spin_unlock_bh(&mhs->recount_lock);
	}
	return atomic_inc_return(&mhs->made) <= READ_ONCE(mhs->room);
}

/* Make an entry that leads to @dest, where the core will find it */
static bool mhs_make_entry(struct ip_vs_mhs *mhs, struct mhs_packet *p,
			   u32 *slot, struct ip_vs_dest *dest)
{
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	/* Before the entry exists: a packet that could find it looks for it */
	ip_vs_mhs_slot_track(slot);
	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, mhs->protocol,
			      &p->iph.saddr, p->cport, &mhs->addr, mhs->port,
			      &param);
	cp = ip_vs_conn_new(&param, dest->af, &dest->addr,
			    dest->port ? dest->port : mhs->port, 0, dest,
			    p->skb->mark);
	if (!cp) {
		ip_vs_mhs_count(mhs, MHS_CNT_NOMEM);
		return false;
	}
	ip_vs_conn_put(cp);
	return true;
}

static unsigned int mhs_xmit(struct ip_vs_mhs *mhs, struct ip_vs_conn *carrier,
			     struct mhs_packet *p, enum ip_vs_mhs_cnt kind)
{
	ip_vs_mhs_count(mhs, kind);
	mhs_stats(mhs, carrier->dest, p->skb, true, p->fresh);
	return carrier->packet_xmit(p->skb, carrier, mhs->pp, &p->iph);
}

/* A new flow that gets an entry from the core.  Persistence may take the
 * server from a template and never ask schedule(): the slot is marked here.
 */
static unsigned int mhs_to_core(u32 *slot)
{
	ip_vs_mhs_slot_track(slot);
	return NF_ACCEPT;
}

/* Can @s take a new flow? */
static bool mhs_usable(const struct ip_vs_mhs_server *s)
{
	return s && READ_ONCE(s->state) & MHS_SRV_IN &&
	       !(s->dest->flags & IP_VS_DEST_F_OVERLOAD);
}

/* Another server than the slot's: along the table, which is the same on every
 * director.  While the table waits for a rebuild, any.
 */
static struct ip_vs_mhs_server *mhs_fallback(const struct ip_vs_mhs *mhs,
					     const u32 *slot)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs_server *s;
	u32 pos = slot - mhs->slots;
	u32 i, w;

	for (i = 0; i < MHS_FALLBACK_PROBES; i++) {
		if (++pos == mhs->size)
			pos = 0;
		w = smp_load_acquire(&mhs->slots[pos]);	/* see mhs_in() */
		s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_cand(w));
		if (mhs_usable(s))
			return s;
	}
	if (!READ_ONCE(mhs->dirty))
		return NULL;
	servers = rcu_dereference(mhs->servers);
	for (i = 0; i < servers->max; i++) {
		s = rcu_dereference(servers->s[i]);
		if (mhs_usable(s))
			return s;
	}
	return NULL;
}

/* The server of a new flow.  A server that is out of service but still in
 * the table, because the rebuild is a moment away, is passed over; one that
 * is full only with the fallback flag, as with mh.
 */
static struct ip_vs_mhs_server *mhs_pick(const struct ip_vs_mhs *mhs,
					 const u32 *slot, u32 idx,
					 unsigned int flags)
{
	struct ip_vs_mhs_server *s = ip_vs_mhs_server(mhs, idx);

	if (mhs_usable(s))
		return s;
	if (s && READ_ONCE(s->state) & MHS_SRV_IN &&
	    !(flags & MHS_SVC_F_FALLBACK))
		return NULL;
	return mhs_fallback(mhs, slot);
}

/* A new flow of a client whose earlier one, with the same port, has left an
 * entry that leads to a server out of service: end that entry and decide
 * anew.  The new entry is found first, the old one expires at once.
 */
static unsigned int mhs_redecide(struct ip_vs_mhs *mhs, struct mhs_packet *p,
				 u32 *slot, struct ip_vs_conn *cp)
{
	u32 w = smp_load_acquire(slot);	/* see mhs_in() */
	struct ip_vs_service *svc = READ_ONCE(mhs->svc);
	struct ip_vs_mhs_server *s = NULL;

	if (svc)
		s = mhs_pick(mhs, slot, ip_vs_mhs_slot_cand(w), svc->flags);
	if (s && mhs_may_track(mhs) && mhs_make_entry(mhs, p, slot, s->dest)) {
		mod_timer_pending(&cp->timer, jiffies);
		ip_vs_mhs_count(mhs, MHS_CNT_NEW);
		mhs_stats(mhs, s->dest, p->skb, false, true);
	}
	__ip_vs_conn_put(cp);
	return NF_ACCEPT;
}

/* The server of @dest: as a rule the slot names it */
static struct ip_vs_mhs_server *mhs_server_of(const struct ip_vs_mhs *mhs,
					      const u32 *slot,
					      const struct ip_vs_dest *dest)
{
	u32 w = smp_load_acquire(slot);	/* see mhs_in() */
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs_server *s;
	u32 i;

	s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	if (s && s->dest == dest)
		return s;
	s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_cand(w));
	if (s && s->dest == dest)
		return s;
	servers = rcu_dereference(mhs->servers);
	for (i = 0; i < servers->max; i++) {
		s = rcu_dereference(servers->s[i]);
		if (s && s->dest == dest)
			return s;
	}
	return NULL;
}

/* The packet has an entry, with a reference that is ours */
static unsigned int mhs_in_entry(struct ip_vs_mhs *mhs, struct mhs_packet *p,
				 u32 *slot, struct ip_vs_conn *cp)
{
	struct ip_vs_dest *dest = cp->dest;
	struct ip_vs_proto_data *pd;
	struct ip_vs_mhs_server *s;
	struct ip_vs_conn *carrier;
	unsigned int verdict;
	bool listed;

	ip_vs_mhs_slot_track(slot);
	ip_vs_mhs_count(mhs, MHS_CNT_TRACKED);
	if (!dest)
		goto core;

	listed = ip_vs_mhs_dest_listed(dest);
	if (p->fresh && !cp->control && !dest->vfwmark &&
	    (listed ? !atomic_read(&dest->weight) &&
		      cp->state != IP_VS_TCP_S_ESTABLISHED : true))
		return mhs_redecide(mhs, p, slot, cp);

	if (listed || sysctl_expire_nodest_conn(mhs->ipvs) ||
	    IP_VS_FWD_METHOD(cp) == IP_VS_CONN_F_MASQ)
		goto core;

	/* The core drops packets to a deleted server.  While its older flows
	 * are held, those that have an entry go on like those that have none.
	 */
	s = mhs_server_of(mhs, slot, dest);
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (!carrier)
		goto core;
	pd = ip_vs_proto_data_get(mhs->ipvs, mhs->protocol);
	if (pd)
		ip_vs_mhs_set_state(cp, p->skb, pd, p->iph.len);
	verdict = carrier->packet_xmit(p->skb, carrier, mhs->pp, &p->iph);
	ip_vs_conn_put(cp);	/* restarts its timer */
	return verdict;
core:
	__ip_vs_conn_put(cp);
	return NF_ACCEPT;
}

/* A new flow in an unstable slot gets an entry.  The core would make it too,
 * but drop the packet if it cannot.  Without one, above the limit or for want
 * of memory, the flow goes where its next packets will go.
 */
static unsigned int mhs_in_new(struct ip_vs_mhs *mhs, struct mhs_packet *p,
			       u32 *slot, u32 w)
{
	u32 idx = ip_vs_mhs_slot_cand(w);
	struct ip_vs_conn *carrier;
	struct ip_vs_mhs_server *s;

	s = idx ? mhs_pick(mhs, slot, idx, READ_ONCE(mhs->svc)->flags) : NULL;
	if (!s)
		return NF_ACCEPT;	/* the core says so to the client */
	ip_vs_mhs_count(mhs, MHS_CNT_CAND);
	if (!mhs_may_track(mhs)) {
		ip_vs_mhs_count(mhs, MHS_CNT_CAPPED);
	} else if (mhs_make_entry(mhs, p, slot, s->dest)) {
		ip_vs_mhs_count(mhs, MHS_CNT_NEW);
		mhs_stats(mhs, s->dest, p->skb, false, true);
		return NF_ACCEPT;
	}
	s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	if (!s || READ_ONCE(s->state) & MHS_SRV_GONE)
		s = ip_vs_mhs_server(mhs, idx);
	carrier = s ? rcu_dereference(s->carrier) : NULL;
	if (!carrier)
		return mhs_to_core(slot);
	return mhs_xmit(mhs, carrier, p, MHS_CNT_OLD);
}

/* Pin an older flow: the slot is about to merge */
static bool mhs_pin(struct ip_vs_mhs *mhs, struct mhs_packet *p, u32 *slot,
		    struct ip_vs_mhs_server *s)
{
	if (p->ends || READ_ONCE(s->state) & (MHS_SRV_GONE | MHS_SRV_MASQ))
		return false;
	if (!mhs_may_track(mhs)) {
		ip_vs_mhs_count(mhs, MHS_CNT_CAPPED);
		return false;
	}
	if (!mhs_make_entry(mhs, p, slot, s->dest))
		return false;
	ip_vs_mhs_count(mhs, MHS_CNT_PINNED);
	return true;
}

/* The packet has no entry: go by the table */
static unsigned int mhs_in_table(struct ip_vs_mhs *mhs, struct mhs_packet *p,
				 u32 *slot, u32 w)
{
	struct ip_vs_mhs_server *s;
	struct ip_vs_conn *carrier;
	bool stable;
	u32 state;

	/* "Used" is written before the packet is sent; when control changed
	 * the word meanwhile, the packet goes by what it is now.
	 */
	while (ip_vs_mhs_slot_needs_use(w)) {
		if (try_cmpxchg(slot, &w, w | MHS_USED_CUR))
			break;
		/* A failed exchange promises no barrier; see mhs_in() */
		w = smp_load_acquire(slot);
	}
	stable = ip_vs_mhs_slot_stable(w);
	if (!stable && p->fresh)
		return mhs_in_new(mhs, p, slot, w);

	s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	if (!s)
		return NF_ACCEPT;
	state = READ_ONCE(s->state);
	carrier = rcu_dereference(s->carrier);
	if (p->fresh && (!carrier || !(state & MHS_SRV_IN) ||
			 state & MHS_SRV_TRACKED))
		return mhs_to_core(slot);
	if (ip_vs_mhs_slot_pinning(w) && mhs_pin(mhs, p, slot, s))
		return NF_ACCEPT;
	if (!carrier)
		/* Masquerading: its flows have entries or are nobody's.  No
		 * memory for a carrier: the peer sends again a moment later.
		 */
		return state & MHS_SRV_MASQ ? NF_ACCEPT : NF_DROP;
	return mhs_xmit(mhs, carrier, p,
			stable ? MHS_CNT_STATELESS : MHS_CNT_OLD);
}

/* May the packet's mark belong to a service by firewall mark, which the core
 * asks first?  Where the core does not count them, our number of services and
 * the core's differ for a moment while a service comes or goes: only when
 * they agreed in two looks, a second apart, is nobody else's there.
 */
static bool mhs_mark_unsure(const struct ip_vs_mhs *mhs,
			    const struct sk_buff *skb)
{
	struct ip_vs_mhs_net *mn = mhs->net;

	if (likely(!(skb->mark & ~ip_vs_mhs_mark_ignore)))
		return false;
	if (READ_ONCE(mn->foreign))
		return true;
	if (!ip_vs_mhs_foreign(mhs->ipvs, READ_ONCE(mn->services)))
		return false;
	WRITE_ONCE(mn->foreign, true);
	return true;
}

static unsigned int mhs_in(struct ip_vs_mhs *mhs, struct mhs_packet *p)
{
	bool unsure = mhs_mark_unsure(mhs, p->skb);
	struct ip_vs_service *svc;
	bool settling, persistent;
	struct ip_vs_conn *cp;
	u32 *slot, w;

	/* Pairs with the release in settle_end(): who sees the service settled
	 * sees its final table.
	 */
	settling = smp_load_acquire(&mhs->settling);
	svc = READ_ONCE(mhs->svc);
	persistent = svc && svc->flags & IP_VS_SVC_F_PERSISTENT;
	slot = mhs_slot(mhs, mhs_flow_hash(mhs, &p->iph.saddr, p->cport));
	/* Pairs with the compare-and-exchange in mhs_walk(): who sees an index
	 * sees its server, see ip_vs_mhs_server().
	 */
	w = smp_load_acquire(slot);

	if (ip_vs_mhs_slot_tracked(w) || settling || persistent || unsure ||
	    READ_ONCE(mhs->ipvs->sync_state) & IP_VS_STATE_BACKUP) {
		cp = ip_vs_conn_in_get_proto(mhs->ipvs, mhs->af, p->skb,
					     &p->iph);
		if (cp)
			return mhs_in_entry(mhs, p, slot, cp);
	}
	if (p->fresh && (settling || persistent || unsure))
		return mhs_to_core(slot);
	if (persistent && !READ_ONCE(mhs->was_stateless))
		return NF_ACCEPT;
	if (settling) {
		ip_vs_mhs_count(mhs, MHS_CNT_UNSETTLED);
		return NF_DROP;
	}
	return mhs_in_table(mhs, p, slot, w);
}

/* A packet that this host sends may be the reply of a server of its own to a
 * flow with an entry.
 */
static bool mhs_local_reply(struct netns_ipvs *ipvs, int af,
			    struct mhs_packet *p)
{
	struct ip_vs_conn *cp;

	if (p->skb->dev && !(p->skb->dev->flags & IFF_LOOPBACK))
		return false;
	p->iph.hdr_flags ^= IP_VS_HDR_INVERSE;
	cp = ip_vs_conn_in_get_proto(ipvs, af, p->skb, &p->iph);
	p->iph.hdr_flags ^= IP_VS_HDR_INVERSE;
	if (!cp)
		return false;
	__ip_vs_conn_put(cp);
	return true;
}

/* The core's gates first, in its order: a packet taken here never meets them */
static unsigned int ip_vs_mhs_hook(void *priv, struct sk_buff *skb,
				   const struct nf_hook_state *state)
{
	struct netns_ipvs *ipvs = net_ipvs(state->net);
	struct mhs_packet p = { .skb = skb };
	const struct tcphdr *th;
	struct ip_vs_mhs *mhs;
	struct tcphdr _th;
	struct sock *sk;

	if (skb->ipvs_property)
		return NF_ACCEPT;
	if ((skb->pkt_type != PACKET_HOST && state->hook != NF_INET_LOCAL_OUT) ||
	    !skb_dst(skb))
		return NF_ACCEPT;
	if (sysctl_backup_only(ipvs) || !READ_ONCE(ipvs->enable))
		return NF_ACCEPT;
	if (state->pf == NFPROTO_IPV4) {
		if (ip_hdr(skb)->protocol != IPPROTO_TCP ||
		    ip_is_fragment(ip_hdr(skb)))
			return NF_ACCEPT;
		sk = skb_to_full_sk(skb);
		if (unlikely(sk && state->hook == NF_INET_LOCAL_OUT &&
			     sk->sk_family == PF_INET &&
			     ip_vs_mhs_nodefrag(sk)))
			return NF_ACCEPT;
	}
	if (!ip_vs_fill_iph_skb(state->pf, skb, false, &p.iph) ||
	    p.iph.protocol != IPPROTO_TCP || p.iph.fragoffs)
		return NF_ACCEPT;
	if (state->pf == NFPROTO_IPV6 && p.iph.flags & IP6_FH_F_FRAG)
		return NF_ACCEPT;

	th = skb_header_pointer(skb, p.iph.len, sizeof(_th), &_th);
	if (!th || th->source == FTPDATA)
		return NF_ACCEPT;
	mhs = ip_vs_mhs_find(ipvs, state->pf, IPPROTO_TCP, &p.iph.daddr,
			     th->dest);
	if (!mhs)
		return NF_ACCEPT;

	p.cport = th->source;
	p.ends = th->rst || th->fin;
	p.fresh = th->syn && !th->ack && !p.ends;
	if (th->syn && mhs_local_reply(ipvs, state->pf, &p))
		return NF_ACCEPT;
	return mhs_in(mhs, &p);
}

/**
 * ip_vs_mhs_schedule() - name the server for a new entry
 * @svc: the service
 * @skb: a packet that the core makes an entry for
 * @iph: its header, or for an ICMP error that of the packet it quotes
 *
 * An ICMP error is about a flow that is under way, so it belongs to the old
 * server of an unstable slot.
 *
 * Context: softirq or process, under RCU; called by the core.
 * Return: the server, NULL when there is none.
 */
struct ip_vs_dest *ip_vs_mhs_schedule(struct ip_vs_service *svc,
				      const struct sk_buff *skb,
				      struct ip_vs_iphdr *iph)
{
	struct ip_vs_mhs *mhs = svc->sched_data;
	const union nf_inet_addr *caddr;
	struct ip_vs_mhs_server *s;
	__be16 _ports[2], *ports;
	bool inverse;
	u32 *slot, w;

	ports = frag_safe_skb_hp(skb, iph->len, sizeof(_ports), _ports);
	if (!ports)
		return NULL;
	inverse = ip_vs_iph_inverse(iph);
	caddr = inverse ? &iph->daddr : &iph->saddr;
	slot = mhs_slot(mhs, mhs_flow_hash(mhs, caddr, ports[inverse]));
	w = smp_load_acquire(slot);	/* see mhs_in() */

	if (ip_vs_iph_icmp(iph))
		s = ip_vs_mhs_server(mhs, ip_vs_mhs_slot_old(w));
	else
		s = mhs_pick(mhs, slot, ip_vs_mhs_slot_cand(w), svc->flags);
	if (!s) {
		ip_vs_scheduler_err(svc, "no destination available");
		return NULL;
	}
	ip_vs_mhs_slot_track(slot);
	ip_vs_mhs_count(mhs, MHS_CNT_NEW);
	return s->dest;
}

/* LOCAL_IN: before the core at NF_IP_PRI_NAT_SRC - 2 and - 1.  LOCAL_OUT:
 * NAT stands at NF_IP_PRI_NAT_DST, the core at + 1 and + 2, and of two hooks
 * of one priority the younger goes first: these are registered after the
 * core's, which come with the first service of the family.
 */
const struct nf_hook_ops ip_vs_mhs_ops4[2] = {
	{
		.hook		= ip_vs_mhs_hook,
		.pf		= NFPROTO_IPV4,
		.hooknum	= NF_INET_LOCAL_IN,
		.priority	= NF_IP_PRI_NAT_SRC - 3,
	},
	{
		.hook		= ip_vs_mhs_hook,
		.pf		= NFPROTO_IPV4,
		.hooknum	= NF_INET_LOCAL_OUT,
		.priority	= NF_IP_PRI_NAT_DST + 1,
	},
};

const struct nf_hook_ops ip_vs_mhs_ops6[2] = {
	{
		.hook		= ip_vs_mhs_hook,
		.pf		= NFPROTO_IPV6,
		.hooknum	= NF_INET_LOCAL_IN,
		.priority	= NF_IP6_PRI_NAT_SRC - 3,
	},
	{
		.hook		= ip_vs_mhs_hook,
		.pf		= NFPROTO_IPV6,
		.hooknum	= NF_INET_LOCAL_OUT,
		.priority	= NF_IP6_PRI_NAT_DST + 1,
	},
};
