// SPDX-License-Identifier: GPL-2.0-only
/* The packet fuzzer: a service, its servers, and the answers of IPVS. */
#include <linux/netdevice.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>

#include "fuzz_packet.h"
#include "ip_vs_mhs.h"

struct world world;


static struct {
	struct mhs_servers	head;
	struct mhs_server		*s[SERVERS + 1];
} servers;

extern struct ip_vs_protocol ip_vs_protocol_tcp, ip_vs_protocol_udp,
			     ip_vs_protocol_sctp;

unsigned int world_method(unsigned int server)
{
	unsigned int method = world.is->methods >> 2 * (server - 1) & 3;

	return method == 3 ? METHOD_MASQ : method;
}

unsigned int world_state(unsigned int server)
{
	return world.is->states >> 2 * (server - 1) & 3;
}

/* A service begins with servers to come */
bool world_settles(void)
{
	return world.is->service & SERVICE_EMPTY ||
	       world.is->life & LIFE_SETTLING;
}

static union nf_inet_addr address(u8 net, u8 host)
{
	union nf_inet_addr a = {};

	if (world.af == AF_INET6) {
		a.ip6[0] = htonl(0xfd000000 | net << 16);
		a.ip6[3] = htonl(host);
	} else {
		a.ip = htonl(0x0a000000 | net << 16 | host);
	}
	return a;
}

/* Sending: the core's transmitters */

static int sent(struct sk_buff *skb, struct ip_vs_conn *cp)
{
	struct outcome *out = world.out;
	unsigned int i = cp - world.carrier;

	WANT(!out->server && !out->by_entry);
	if (cp == &world.entry || cp == &world.made) {
		out->by_entry = true;
		WANT(!(cp->flags & IP_VS_CONN_F_NFCT) && !cp->control);
	} else {
		WANT(i <= SERVERS);
		out->server = i;
	}
	packet_copy(skb, out);
	consume_skb(skb);
	return NF_STOLEN;
}

static int xmit_as_it_is(struct sk_buff *skb, struct ip_vs_conn *cp,
			 struct ip_vs_protocol *pp, struct ip_vs_iphdr *iph)
{
	return sent(skb, cp);
}

/* Entries */

static struct ip_vs_conn *entry_get(struct ip_vs_conn *cp, u8 answer)
{
	if (!(world.is->answers & answer))
		return NULL;
	refcount_inc(&cp->refcnt);
	return cp;
}

struct ip_vs_conn *ip_vs_conn_in_get_proto(struct netns_ipvs *ipvs, int af,
					   const struct sk_buff *skb,
					   const struct ip_vs_iphdr *iph)
{
	return entry_get(&world.entry, ANSWER_IN);
}

struct ip_vs_conn *ip_vs_conn_new(const struct ip_vs_conn_param *p,
				  int dest_af, const union nf_inet_addr *daddr,
				  __be16 dport, unsigned int flags,
				  struct ip_vs_dest *dest, __u32 fwmark)
{
	/* a packet that finds it has to look for it */
	WANT(mhs_slot_tracked(*mhs_slot(&world.mhs, p->caddr,
					p->cport)));
	world.out->made = world.is->answers & ANSWER_NEW;
	world.out->made_to = dest - world.dest;
	return entry_get(&world.made, ANSWER_NEW);
}

void ip_vs_conn_put(struct ip_vs_conn *cp)
{
	WANT(cp == &world.entry || cp == &world.made);
	__ip_vs_conn_put(cp);
}

void ip_vs_scheduler_err(struct ip_vs_service *svc, const char *msg)
{
}

int mod_timer_pending(struct timer_list *timer, unsigned long expires)
{
	WANT(timer == &world.entry.timer);
	world.out->left = true;
	return 0;
}

static void no_transition(struct ip_vs_conn *cp, int direction,
			  const struct sk_buff *skb,
			  struct ip_vs_proto_data *pd, unsigned int iph_len)
{
	WANT((cp == &world.entry || cp == &world.made) && skb->head);
}

struct ip_vs_proto_data *ip_vs_proto_data_get(struct netns_ipvs *ipvs,
					      unsigned short proto)
{
	static struct ip_vs_protocol pp[3];
	static struct ip_vs_proto_data pd[3] = {
		{ .pp = &pp[0] }, { .pp = &pp[1] }, { .pp = &pp[2] } };
	int i;

	if (!pp[0].protocol) {
		pp[0] = ip_vs_protocol_tcp;
		pp[1] = ip_vs_protocol_udp;
		pp[2] = ip_vs_protocol_sctp;
		for (i = 0; i < 3; i++)
			pp[i].state_transition = no_transition;
	}
	for (i = 0; i < 3; i++)
		if (pp[i].protocol == proto)
			return &pd[i];
	return NULL;
}

/* The service */

static void conn_set(struct ip_vs_conn *cp, unsigned int i,
		     unsigned int method)
{
	struct ip_vs_dest *dest = &world.dest[i];

	cp->af = world.af;
	cp->daf = world.af;
	cp->protocol = world.protocol;
	cp->ipvs = &world.ipvs;
	cp->vaddr = world.mhs.addr;
	cp->vport = world.mhs.port;
	cp->daddr = dest->addr;
	cp->dport = dest->port ? dest->port : world.mhs.port;
	cp->dest = dest;
	cp->flags = method;
	if (world.is->slots & ENTRY_NFCT)
		cp->flags |= IP_VS_CONN_F_NFCT;
	cp->packet_xmit = xmit_as_it_is;
	refcount_set(&cp->refcnt, 1);
}

static void server_set(unsigned int i)
{
	static const u8 methods[] = {
		[METHOD_MASQ]		= IP_VS_CONN_F_MASQ,
		[METHOD_TUNNEL]		= IP_VS_CONN_F_TUNNEL,
		[METHOD_DROUTE]		= IP_VS_CONN_F_DROUTE,
	};
	static const u32 states[] = {
		MHS_SRV_IN, 0, MHS_SRV_GONE, MHS_SRV_IN };
	static struct dst_ops ops = { .mtu = ipv4_mtu };
	static struct dst_entry dst = { .ops = &ops };
	static struct ip_vs_dest_dst known = { .dst_cache = &dst };
	unsigned int state = world_state(i), method = methods[world_method(i)];
	struct mhs_server *s = &world.server[i];
	struct ip_vs_dest *dest = &world.dest[i];

	dest->af = world.af;
	dest->addr = address(2, i);
	dest->port = world.mhs.fwmark ? 0 : world.mhs.port;
	dest->tun_type = world.is->methods >> 6;
	dest->cflags = state == STATE_GONE ? 0 : IP_VS_DEST_CF_AVAILABLE;
	dest->flags = state == STATE_OVERLOAD ? IP_VS_DEST_F_OVERLOAD : 0;
	dest->stats.cpustats = (void __percpu *)&world.stats;
	dest->svc = &world.svc;
	dest->vfwmark = world.mhs.fwmark;
	if (world.is->answers & ANSWER_MTU)
		dest->dest_dst = &known;
	atomic_set(&dest->weight, state != STATE_OUT);
	atomic_set(&dest->conn_flags, method);

	s->mhs = &world.mhs;
	s->dest = dest;
	s->idx = i;
	s->facts = states[state];
	servers.s[i] = s;
	hash_add(world.mhs.by_dest, &s->node,
		 mhs_dest_bucket(&world.mhs, dest->af, &dest->addr, dest->port));
	if (world_method(i) == METHOD_MASQ) {
		s->facts |= MHS_SRV_ALL_ENTRY | MHS_SRV_NEW_ENTRY;
		return;
	}
	conn_set(&world.carrier[i], i, method);
	s->carrier = &world.carrier[i];
}

static void slots_set(void)
{
	u8 is = world.is->slots;
	u32 w, i;

	for (i = 0; i < SLOTS; i++) {
		w = 1 + i % SERVERS;
		if (is & SLOTS_MODE)
			w = mhs_slot_change(w, 1 + (i + 1) % SERVERS,
					    false,
					    (is & SLOTS_MODE) == 2 ?
					    MHS_STAGE_PIN :
					    MHS_STAGE_HOLD);
		if ((is & SLOTS_MODE) == 3 && i & 1)
			w = 1 + i % SERVERS;
		if (is & SLOTS_NONE && !i)
			w = 0;
		if (is & SLOTS_TRACKED)
			w |= MHS_TRACK_CUR;
		world.slots[i] = w;
		world.slots_were[i] = w;
	}
}

void world_set(const struct setting *is, struct outcome *out)
{
	static const u16 protocols[] = {
		IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDP, IPPROTO_SCTP };
	static const u16 ports[] = { 80, 53, 443, 80 };
	/* Plain IDs, whatever their first three bits, but 7 */
	static const struct mhs_list_item item = { .bits = 0x7f };
	struct mhs *mhs = &world.mhs;
	u8 service = is->service;
	unsigned int i;

	memset(&world, 0, sizeof(world));
	world.is = is;
	world.out = out;
	world.af = is->path & PATH_IPV6 ? AF_INET6 : AF_INET;
	world.hook = is->path & PATH_OUT ? NF_INET_LOCAL_OUT : NF_INET_LOCAL_IN;
	world.kind = (is->path & PATH_KIND) >> 3;
	world.protocol = protocols[world.kind];
	world.net.ipvs = &world.ipvs;
	world.ipvs.net = &world.net;
	world.ipvs.enable = 1;
	world.ipvs.tot_stats.cpustats = (void __percpu *)&world.stats;
	world.mn.net = &world.net;
	world.mn.stateless = !(is->life & LIFE_STATEFUL);
	world.mn.max_entries = is->life & LIFE_FULL ? 0 : 10;
	world.mn.max_quic_entries = world.mn.max_entries;
	world.mn.max_total_entries = INT_MAX;

	mhs->ipvs = &world.ipvs;
	mhs->mn = &world.mn;
	mhs->af = world.af;
	mhs->addr = address(9, 1);
	mhs->protocol = world.protocol;
	mhs->port = htons(ports[world.kind]);
	mhs->fwmark = service & SERVICE_FWMARK ? 1 : 0;
	if (is->path & PATH_IDS && world.kind == KIND_QUIC && !mhs->fwmark)
		mhs->ids = &item;
	mhs->settling = world_settles();
	mhs->addr_only = service & SERVICE_ADDR_ONLY;
	mhs->size = SLOTS;
	mhs->slots = world.slots;
	mhs->servers = &servers.head;
	mhs->svc = service & SERVICE_EMPTY ? NULL : &world.svc;
	mhs->cnt = (void __percpu *)&world.cnt;
	servers.head.max = SERVERS + 1;
	world.svc.sched_data = mhs;
	world.svc.stats.cpustats = (void __percpu *)&world.stats;
	if (service & SERVICE_PERSISTENT)
		world.svc.flags |= IP_VS_SVC_F_PERSISTENT;
	if (service & SERVICE_ONEPACKET)
		world.svc.flags |= IP_VS_SVC_F_ONEPACKET;
	if (service & SERVICE_FALLBACK)
		world.svc.flags |= IP_VS_SVC_F_SCHED1;
	if (service & SERVICE_BACKUP)
		world.ipvs.sync_state = IP_VS_STATE_BACKUP;
	if (service & SERVICE_BACKUP_ONLY) {
		world.ipvs.sync_state = IP_VS_STATE_BACKUP;
		world.ipvs.sysctl_backup_only = 1;
	}
	hash_init(world.mn.by_addr);
	mhs_svc_publish(mhs);
	memset(servers.s, 0, sizeof(servers.s));
	for (i = 1; i <= SERVERS && mhs->svc; i++)
		server_set(i);
	if (mhs->svc)
		slots_set();

	conn_set(&world.entry, 1, IP_VS_CONN_F_DROUTE);
	conn_set(&world.made, 1, IP_VS_CONN_F_DROUTE);
	if (is->life & LIFE_ENDED)
		world.entry.state = IP_VS_TCP_S_CLOSE;
	if (is->slots & ENTRY_CONTROL)
		world.entry.control = &world.carrier[1];
	if (is->states & STATES_BINDING)
		world.entry.packet_xmit = NULL;
}

/* What was taken is given back */
void world_end(void)
{
	WANT(refcount_read(&world.entry.refcnt) == 1);
	WANT(refcount_read(&world.made.refcnt) == 1);
}
