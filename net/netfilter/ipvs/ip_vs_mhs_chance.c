// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the second chance, the director's half.
 *
 * A server without a socket for a TCP packet sends the packet back in GRE, by the
 * program chance.bpf.c, and the director asks the next server:
 *
 *	packet in GRE with our key, from a server of the service
 *	  |-- what chance_ask() has sent -----> the server answers; ends here
 *	  |-- a server is left to ask --------> by its carrier, as a first packet
 *	  |-- one that may be back is silent -> dropped, the client resends
 *	  '-- none is left -------------------> the stack here, which sends a reset
 *
 * Servers are asked in a fixed order, by chance_next(): who sent the packet back
 * tells who was asked, and nothing is remembered.  The outer source address may be
 * forged, as a connection ID may: it chooses a server for one packet.  Every
 * question decrements the TTL, which bounds what one packet can make when servers
 * change meanwhile.
 *
 * Only servers that answer are asked, as others would reset the flow.  Each second
 * mhs_chance_work() sends every server a packet of a flow that cannot be, from the
 * virtual address and port 0; with random numbers, so that nobody can answer in the
 * place of a server.  A slot moves without a transition only if both servers answer.
 *
 * server.answered: seconds, 0 if the server never answered; written here by packets
 * and under mhs.lock, read by READ_ONCE.  Hooks are registered while the sysctl
 * second_chance names a service, under net.lock.
 */
#include <linux/netfilter_ipv4.h>
#include <linux/seq_file.h>
#include <net/dst.h>
#include <net/gre.h>
#include <net/ip6_checksum.h>
#include <net/ip_tunnels.h>
#include <net/tcp.h>

#include "ip_vs_mhs.h"

#define CHANCE_KEY		0x6d687300	/* also in chance.bpf.c */

/* Seconds: a server answers for so long after its last answer, three polls */
#define CHANCE_FRESH		3
/* One that is silent for longer is dead: nobody waits for it */
#define CHANCE_FORGET		60
/* A table waits so long for the first answer of a new server */
#define CHANCE_FIRST		HZ
/* and asks for it so often meanwhile */
#define CHANCE_AGAIN		(HZ / 5)
/* Packets sent back that may search all servers, of a service, in a second */
#define CHANCE_RELAYS		10000

struct chance_gre {
	__be16	flags;
	__be16	protocol;
	__be32	key;
} __packed;

/* What was sent back */
struct chance_packet {
	struct mhs_packet	p;
	struct mhs_quote	e;
	struct mhs		*mhs;
	const union nf_inet_addr *client;
	__be16			cport;
	bool			error;
};

/* Not jiffies, which wrap: a server long dead would answer again */
static u32 chance_now(void)
{
	return ktime_get_seconds() ? : 1;
}

/* Does the server answer now? */
bool mhs_chance_answers(const struct mhs_server *s)
{
	u32 at = READ_ONCE(s->answered);

	/* another CPU's second may be the next one */
	return at && (s32)(chance_now() - at) <= CHANCE_FRESH;
}

/* Has it answered, and may it be back? */
static bool chance_waits(const struct mhs_server *s)
{
	u32 at = READ_ONCE(s->answered);

	return at && (s32)(chance_now() - at) < CHANCE_FORGET;
}

/* Are the flows of the server cut, or is it dead?  Then nobody asks it. */
bool mhs_chance_lost(const struct mhs_server *s)
{
	if (READ_ONCE(s->facts) & MHS_SRV_GONE && mhs_cutting(s->mhs->ipvs))
		return true;
	return READ_ONCE(s->missed) == MHS_MISSED_MAX && !mhs_chance_answers(s);
}

static void chance_count(struct mhs *mhs, enum mhs_chance_cnt i)
{
	atomic_long_inc(&mhs->chances[i]);
}

/* The server with that address, and the port that direct routing and IPIP leave */
static struct mhs_server *chance_sender(const struct mhs *mhs, u16 af,
					const union nf_inet_addr *from)
{
	struct mhs_server *s;

	hash_for_each_possible_rcu(mhs->by_dest, s, node,
				   mhs_dest_bucket(mhs, af, from, mhs->port))
		if (s->dest->af == af && s->dest->port == mhs->port &&
		    ip_vs_addr_equal(af, &s->dest->addr, from))
			return s;
	return NULL;
}

static bool chance_may_relay(struct mhs *mhs)
{
	unsigned long now = jiffies / HZ;

	/* Two packets may begin a second twice: the bound is one of many */
	if (READ_ONCE(mhs->relay_second) != now) {
		WRITE_ONCE(mhs->relay_second, now);
		atomic_set(&mhs->relays, 0);
	}
	return atomic_inc_return(&mhs->relays) <= CHANCE_RELAYS;
}

/* Whom to ask after @from: first the server that a packet of an older flow goes to,
 * then the other one of the slot, then all others by index.  NULL: none, and @drop
 * tells whether the client is to resend.
 */
static struct mhs_server *
chance_next(struct mhs *mhs, u32 w, const struct mhs_server *from, bool *drop)
{
	const struct mhs_servers *servers = rcu_dereference(mhs->servers);
	u32 first = mhs_slot_old(w), second = mhs_slot_spare(w), i = 0;
	struct mhs_server *s, *other = mhs_server_at(mhs, second);

	*drop = false;
	if (other && (other == from || mhs_chance_lost(other)))
		other = NULL;
	if (from->idx == first && other && mhs_chance_answers(other))
		return other;
	*drop = !chance_may_relay(mhs);
	if (*drop)
		return NULL;
	if (from->idx != first && from->idx != second)
		i = from->idx;
	while (++i < servers->max) {
		s = rcu_dereference(servers->s[i]);
		if (!s || i == first || i == second || mhs_chance_lost(s) ||
		    !mhs_chance_answers(s) || !rcu_access_pointer(s->carrier))
			continue;
		return s;
	}
	/* Without the program it has the flow, or its reset is right */
	if (other && !mhs_chance_answers(other))
		return other;
	for (i = 1; i < servers->max && !*drop; i++) {
		s = rcu_dereference(servers->s[i]);
		*drop = s && chance_waits(s) && !mhs_chance_answers(s) &&
			 !mhs_chance_lost(s);
	}
	return NULL;
}

/* Is it a whole packet?  Nobody has looked at its header yet. */
static bool chance_valid(struct sk_buff *skb)
{
	bool six = skb->protocol == htons(ETH_P_IPV6);
	u32 bytes, head = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!pskb_may_pull(skb, head))
		return false;
	if (six) {
		if (ipv6_hdr(skb)->version != 6)
			return false;
		bytes = head + ntohs(ipv6_hdr(skb)->payload_len);
		memset(IP6CB(skb), 0, sizeof(*IP6CB(skb)));
		IP6CB(skb)->nhoff = offsetof(struct ipv6hdr, nexthdr);
	} else {
		head = ip_hdr(skb)->ihl * 4;
		if (ip_hdr(skb)->version != 4 || head < sizeof(struct iphdr) ||
		    !pskb_may_pull(skb, head) ||
		    ip_fast_csum((u8 *)ip_hdr(skb), ip_hdr(skb)->ihl) ||
		    ip_is_fragment(ip_hdr(skb)))
			return false;
		bytes = ntohs(ip_hdr(skb)->tot_len);
		memset(IPCB(skb), 0, sizeof(*IPCB(skb)));
	}
	skb_set_transport_header(skb, head);
	return bytes >= head && skb->len >= bytes &&
	       !pskb_trim_rcsum(skb, bytes);
}

/* The transmitters and the stack want to know that the virtual address is local */
static bool chance_route(struct net *net, struct sk_buff *skb, u16 af)
{
	struct dst_entry *dst = NULL;
	struct flowi fl = {};

	if (af == AF_INET6)
		fl.u.ip6.daddr = ipv6_hdr(skb)->daddr;
	else
		fl.u.ip4.daddr = ip_hdr(skb)->daddr;
	if (nf_route(net, &dst, &fl, false, af))
		return false;
	skb_dst_drop(skb);
	skb_dst_set(skb, dst);
	return dst->dev->flags & IFF_LOOPBACK;
}

/* Find the service and the client */
static bool chance_parse(struct netns_ipvs *ipvs, struct chance_packet *c)
{
	struct mhs_packet *p = &c->p;
	u8 icmp = p->af == AF_INET6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;

	if (!ip_vs_fill_iph_skb(p->af, p->skb, false, &p->iph) ||
	    p->iph.fragoffs)
		return false;
	c->error = p->iph.protocol == icmp;
	if (c->error) {
		c->mhs = mhs_icmp_about(ipvs, p, &c->e);
		c->client = c->e.client;
		c->cport = c->e.cport;
		p->pd = c->e.pd;
	} else {
		p->pd = ip_vs_proto_data_get(ipvs, p->iph.protocol);
		if (p->iph.protocol != IPPROTO_TCP || !p->pd ||
		    !mhs_packet_transport(p))
			return false;
		c->mhs = mhs_svc_find(p->mn, p->af, IPPROTO_TCP, &p->iph.daddr,
				      p->dport);
		c->client = &p->iph.saddr;
		c->cport = p->sport;
	}
	return c->mhs && READ_ONCE(c->mhs->chance);
}

/* Is it what chance_ask() has sent to a server?  Then the server answers. */
static bool chance_answer(const struct chance_packet *c, u16 af,
			  const union nf_inet_addr *from)
{
	const struct tcphdr *th;
	struct mhs_server *s;
	struct tcphdr _th;

	if (c->error || c->p.sport ||
	    !ip_vs_addr_equal(c->p.af, &c->p.iph.saddr, &c->p.iph.daddr))
		return false;
	th = skb_header_pointer(c->p.skb, c->p.iph.len, sizeof(_th), &_th);
	s = th ? chance_sender(c->mhs, af, from) : NULL;
	if (s && ((u64)ntohl(th->seq) << 32 | ntohl(th->ack_seq)) ==
	    READ_ONCE(s->nonce))
		WRITE_ONCE(s->answered, chance_now());
	return true;
}

/* To the stack of this host, past the hooks of IPVS.  Not by NF_ACCEPT: the other
 * hooks of this packet are those of the outer header's family.
 */
static unsigned int chance_deliver(struct sk_buff *skb)
{
	skb->ipvs_property = 1;
	dst_input(skb);
	return NF_STOLEN;
}

/* A packet that a server has sent back; @from: the outer source */
static unsigned int chance_packet(struct netns_ipvs *ipvs,
				  struct chance_packet *c, u16 af,
				  const union nf_inet_addr *from)
{
	struct ip_vs_conn *carrier;
	struct mhs_server *s, *to;
	struct mhs *mhs;
	int nf;
	bool drop;
	u32 w;

	if (!chance_valid(c->p.skb) || !chance_parse(ipvs, c) ||
	    chance_answer(c, af, from))
		return NF_DROP;
	mhs = c->mhs;
	s = chance_sender(mhs, af, from);
	if (!s)
		return NF_DROP;
	chance_count(mhs, MHS_CHANCE_RETURNED);
	/* Before the slot is read, as in packet_question() */
	if (smp_load_acquire(&mhs->settling))
		return NF_DROP;
	w = mhs_slot_read(mhs_slot(mhs, c->client, c->cport));
	to = chance_next(mhs, w, s, &drop);
	carrier = to ? rcu_dereference(to->carrier) : NULL;
	if (drop || !chance_route(c->p.mn->net, c->p.skb, c->p.af)) {
		chance_count(mhs, MHS_CHANCE_DROPPED);
		return NF_DROP;
	}
	if (!carrier && c->error)
		return NF_DROP;
	chance_count(mhs, carrier ? MHS_CHANCE_ASKED : MHS_CHANCE_RESET);
	/* Nobody has the flow: the stack, which has no socket for it, resets it */
	if (!carrier)
		return chance_deliver(c->p.skb);
	nf = carrier->packet_xmit(c->p.skb, carrier, c->p.pd->pp,
				  c->error ? &c->e.quoted : &c->p.iph);
	/* the server is this host */
	return nf == NF_ACCEPT ? chance_deliver(c->p.skb) : nf;
}

static unsigned int chance_in(void *priv, struct sk_buff *skb,
			      const struct nf_hook_state *state)
{
	bool six = state->pf == NFPROTO_IPV6;
	struct chance_packet c = {};
	union nf_inet_addr from = {};
	const struct chance_gre *gre;
	struct chance_gre _gre;
	unsigned int at;

	if (six) {
		if (ipv6_hdr(skb)->nexthdr != IPPROTO_GRE)
			return NF_ACCEPT;
		at = sizeof(struct ipv6hdr);
		from.in6 = ipv6_hdr(skb)->saddr;
	} else {
		if (ip_hdr(skb)->protocol != IPPROTO_GRE)
			return NF_ACCEPT;
		at = ip_hdrlen(skb);
		from.ip = ip_hdr(skb)->saddr;
	}
	gre = skb_header_pointer(skb, at, sizeof(_gre), &_gre);
	if (!gre || gre->flags != GRE_KEY || gre->key != htonl(CHANCE_KEY))
		return NF_ACCEPT;
	if (gre->protocol == htons(ETH_P_IP))
		c.p.af = AF_INET;
	else if (gre->protocol == htons(ETH_P_IPV6))
		c.p.af = AF_INET6;
	else
		return NF_DROP;
	if (iptunnel_pull_header(skb, at + sizeof(*gre), gre->protocol, false))
		return NF_DROP;
	skb_reset_network_header(skb);
	c.p.skb = skb;
	c.p.mn = mhs_net(state->net);
	return chance_packet(net_ipvs(state->net), &c, six ? AF_INET6 : AF_INET,
			     &from);
}

/* A segment that no client has sent */
static struct sk_buff *chance_question(const struct mhs *mhs,
				       const struct mhs_server *s)
{
	bool six = mhs->af == AF_INET6;
	u32 head = six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	const u32 room = MAX_HEADER + 2 * sizeof(struct ipv6hdr);
	struct ipv6hdr *ip6;
	struct sk_buff *skb;
	struct tcphdr *th;
	struct iphdr *ip4;

	skb = alloc_skb(room + head + sizeof(*th), GFP_KERNEL);
	if (!skb)
		return NULL;
	skb_reserve(skb, room);
	skb_reset_network_header(skb);
	skb_put_zero(skb, head + sizeof(*th));
	skb_set_transport_header(skb, head);
	th = tcp_hdr(skb);
	th->dest = mhs->port;
	th->seq = htonl(s->nonce >> 32);
	th->ack_seq = htonl(s->nonce);
	th->doff = sizeof(*th) / 4;
	th->ack = 1;
	if (six) {
		ip6 = ipv6_hdr(skb);
		ip6->version = 6;
		ip6->payload_len = htons(sizeof(*th));
		ip6->nexthdr = IPPROTO_TCP;
		ip6->hop_limit = 64;
		ip6->saddr = mhs->addr.in6;
		ip6->daddr = mhs->addr.in6;
		skb->protocol = htons(ETH_P_IPV6);
		th->check = tcp_v6_check(sizeof(*th), &ip6->saddr, &ip6->daddr,
					 csum_partial(th, sizeof(*th), 0));
	} else {
		ip4 = ip_hdr(skb);
		ip4->version = 4;
		ip4->ihl = sizeof(*ip4) / 4;
		ip4->tot_len = htons(skb->len);
		ip4->ttl = 64;
		ip4->protocol = IPPROTO_TCP;
		ip4->saddr = mhs->addr.ip;
		ip4->daddr = mhs->addr.ip;
		ip_send_check(ip4);
		skb->protocol = htons(ETH_P_IP);
		th->check = tcp_v4_check(sizeof(*th), ip4->saddr, ip4->daddr,
					 csum_partial(th, sizeof(*th), 0));
	}
	return skb;
}

static void chance_ask(struct mhs *mhs, struct mhs_server *s)
{
	struct mhs_packet p = { .af = mhs->af };
	struct sk_buff *skb = chance_question(mhs, s);
	struct ip_vs_conn *carrier;
	int nf = NF_DROP;

	if (!skb)
		return;
	rcu_read_lock();
	carrier = rcu_dereference(s->carrier);
	p.pd = ip_vs_proto_data_get(mhs->ipvs, IPPROTO_TCP);
	if (carrier && p.pd &&
	    chance_route(mhs->mn->net, skb, mhs->af) &&
	    ip_vs_fill_iph_skb(mhs->af, skb, false, &p.iph))
		nf = carrier->packet_xmit(skb, carrier, p.pd->pp, &p.iph);
	if (nf != NF_STOLEN)
		kfree_skb(skb);
	rcu_read_unlock();
	/* there may be thousands of servers */
	cond_resched();
}

/* Ask all servers whether they answer, in each second.  Not in the queue of rebuilds:
 * one may take seconds, and then servers that answer would be silent.
 */
void mhs_chance_work(struct work_struct *work)
{
	struct mhs_net *mn = container_of(to_delayed_work(work),
					  struct mhs_net, chance_work);
	struct mhs *mhs = NULL;
	struct mhs_server *s;
	loff_t pos = 0;

	while ((mhs = mhs_svc_next(mn, mhs, pos++))) {
		if (!READ_ONCE(mhs->chance))
			continue;
		mutex_lock(&mhs->lock);
		list_for_each_entry(s, &mhs->listed, list)
			chance_ask(mhs, s);
		list_for_each_entry(s, &mhs->gone, list)
			chance_ask(mhs, s);
		mutex_unlock(&mhs->lock);
	}
	mutex_lock(&mn->lock);
	if (mn->chance_hooked)
		queue_delayed_work(system_long_wq, &mn->chance_work, HZ);
	mutex_unlock(&mn->lock);
}

/* A server comes, perhaps again: whether it answers is not known */
void mhs_chance_new(struct mhs_server *s)
{
	lockdep_assert_held(&s->mhs->lock);
	WRITE_ONCE(s->answered, 0);
	WRITE_ONCE(s->nonce, get_random_u64());
	s->asked_until = jiffies + CHANCE_FIRST;
	s->ask_at = jiffies;
	s->forgotten = false;
}

/* Shall the table wait for the first answer of a new server?  Asks for it.  Not for
 * longer after the change, either: jiffies wrap, and asked_until may be years old.
 */
bool mhs_chance_waits(struct mhs *mhs)
{
	struct mhs_server *s;
	bool waits = false;

	lockdep_assert_held(&mhs->lock);
	if (!READ_ONCE(mhs->chance) ||
	    READ_ONCE(mhs->settling) ||
	    time_after(jiffies, mhs->dirty_since + 2 * CHANCE_FIRST))
		return false;
	list_for_each_entry(s, &mhs->listed, list) {
		if (READ_ONCE(s->answered) || s->weight <= 0 ||
		    time_after(jiffies, s->asked_until))
			continue;
		waits = true;
		if (time_before(jiffies, s->ask_at))
			continue;
		s->ask_at = jiffies + CHANCE_AGAIN;
		chance_ask(mhs, s);
	}
	return waits;
}

/* Has the service the second chance?  Servers that answer send packets of flows that
 * they do not have back, so a slot moves at once from one to the other.
 */
bool mhs_chance_has(struct mhs *mhs)
{
	struct mhs_server *s;
	u32 method;

	lockdep_assert_held(&mhs->lock);
	if (!READ_ONCE(mhs->chance))
		return false;
	list_for_each_entry(s, &mhs->listed, list) {
		method = IP_VS_DFWD_METHOD(s->dest);
		if (method == IP_VS_CONN_F_DROUTE ||
		    (method == IP_VS_CONN_F_TUNNEL &&
		     READ_ONCE(s->dest->tun_type) ==
		     IP_VS_CONN_F_TUNNEL_TYPE_IPIP))
			continue;
		mhs_svc_warn_once(mhs, MHS_WARN_CHANCE,
				  "the second chance is for direct routing and IPIP: as one server has another method, the service goes without it");
		return false;
	}
	return true;
}

/* The word @n that comes after @w, with the server that had the slot before if the
 * slot is stable.  @lost: servers that nobody asks any more.
 */
u32 mhs_chance_former(u32 w, u32 n, const unsigned long *lost)
{
	u32 now = mhs_slot_cand(n), former = mhs_slot_old(w);

	if (!mhs_slot_stable(n))
		return n;
	if (former == now || test_bit(former, lost))
		former = mhs_slot_spare(w);
	if (former == now || test_bit(former, lost))
		former = MHS_IDX_NONE;
	return (n & ~(MHS_IDX_MAX << MHS_OTHER_SHIFT)) |
	       former << MHS_OTHER_SHIFT;
}

static void chance_show(struct seq_file *seq, const struct mhs *mhs,
			const struct mhs_server *s)
{
	int i;

	mhs_svc_endpoint(seq, mhs->af, &mhs->addr, mhs->port);
	seq_putc(seq, ' ');
	mhs_svc_endpoint(seq, s->dest->af, &s->dest->addr, s->dest->port);
	seq_puts(seq, mhs_chance_answers(s) ? " answers" :
		 READ_ONCE(s->answered) ? " silent" : " never");
	for (i = 0; i < MHS_CHANCE_MAX; i++)
		seq_printf(seq, " %ld", atomic_long_read(&mhs->chances[i]));
	seq_putc(seq, '\n');
}

/* A line for each listed server; the numbers are those of the service */
int mhs_chance_show(struct seq_file *seq, void *v)
{
	struct mhs_net *mn = mhs_net(seq_file_single_net(seq));
	struct mhs *mhs = NULL;
	struct mhs_server *s;
	loff_t pos = 0;

	seq_puts(seq, "Service Server State Returned Asked Reset Dropped\n");
	while ((mhs = mhs_svc_next(mn, mhs, pos++))) {
		mutex_lock(&mhs->lock);
		if (READ_ONCE(mhs->chance))
			list_for_each_entry(s, &mhs->listed, list)
				chance_show(seq, mhs, s);
		mutex_unlock(&mhs->lock);
	}
	return 0;
}

/* Behind the firewall, before the core's hooks */
#define CHANCE_OPS(PF)	{ .hook = chance_in, .pf = PF,			\
			  .hooknum = NF_INET_LOCAL_IN,			\
			  .priority = NF_IP_PRI_NAT_SRC - 3 }

static const struct nf_hook_ops chance_ops[] = {
	CHANCE_OPS(NFPROTO_IPV4), CHANCE_OPS(NFPROTO_IPV6),
};

/* Register or unregister the hooks, by the sysctl second_chance */
static int chance_hooks(struct mhs_net *mn)
{
	bool wanted = mn->lists[0];
	int err;

	lockdep_assert_held(&mn->lock);
	if (wanted == mn->chance_hooked)
		return 0;
	if (!wanted) {
		nf_unregister_net_hooks(mn->net, chance_ops,
					ARRAY_SIZE(chance_ops));
		mn->chance_hooked = false;
		/* Packets may be in the hooks; net_exit(), which waits for who
		 * writes the sysctl, may be about to free *mn
		 */
		synchronize_net();
		return 0;
	}
	err = nf_register_net_hooks(mn->net, chance_ops, ARRAY_SIZE(chance_ops));
	mn->chance_hooked = !err;
	if (!err)
		queue_delayed_work(system_long_wq, &mn->chance_work, 0);
	return err;
}

/* Follow the sysctl second_chance */
int mhs_chance_follow(struct mhs_net *mn)
{
	int err;

	mutex_lock(&mn->lock);
	err = chance_hooks(mn);
	mutex_unlock(&mn->lock);
	return err;
}

/* The namespace goes, or the module, which the sysctl does not hold as services do:
 * then *mn is freed as soon as this returns
 */
void mhs_chance_exit(struct mhs_net *mn)
{
	mhs_chance_follow(mn);
	cancel_delayed_work_sync(&mn->chance_work);
}
