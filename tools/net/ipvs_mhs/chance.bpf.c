// SPDX-License-Identifier: GPL-2.0-only
/* The second chance, the servers' half: a TCP packet that comes to a server without
 * a socket for its flow goes back to the director, which asks the next server.
 *
 * The program is for the ingress of devices, by tc.  `real_server setup` loads and
 * attaches the program and writes its maps.
 *
 *	TCP packet, or ICMP error, to a service
 *	  |-- SYN ---------------------------------------------> stays
 *	  |-- a socket, a half-open one, a cookie of the flow -> stays
 *	  '-- else -----------> back, in GRE, to the director of the packet
 *
 * The director is known by the outer source address of IPIP, which the program
 * notes where the tunnel packet comes in, or by the source of the frame, whose
 * address ARP and neighbour advertisements tell.  Any director will do for a packet,
 * as all of them ask the same servers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
#define AF_INET		2
#define AF_INET6	10
#define IP_OFFSET	0x1fff	/* fragment offset, of struct iphdr.frag_off */

/* linux/icmp.h needs headers of the C library.  Types of ICMP errors: */
#define ICMP_DEST_UNREACH	3
#define ICMP_TIME_EXCEEDED	11
#define ICMP_PARAMETERPROB	12
#define ICMPV6_ERROR_FIRST	1
#define ICMPV6_ERROR_LAST	4
/* A neighbour tells its address, behind this and ICMP_BYTES: */
#define ICMPV6_ADVERTISEMENT	136

#define ICMP_BYTES	8	/* what an error quotes stands behind them */

/* linux/if_arp.h neither.  ARP of IPv4, up to the sender's address: */
struct arp {
	__be16		hardware;
	__be16		protocol;
	__u8		bytes;
	__u8		address_bytes;
	__be16		operation;
	__u8		mac[ETH_ALEN];
	__be32		addr;
} __attribute__((packed));

/* What stands in the kernel's sockets; libbpf finds the places */
struct tcp_request_sock {
	u32	rcv_isn;
	u32	snt_isn;
} __attribute__((preserve_access_index));

struct sock_common {
	u32	skc_tw_snd_nxt;
} __attribute__((preserve_access_index));

struct inet_timewait_sock {
	struct sock_common	__tw_common;
} __attribute__((preserve_access_index));

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} __attribute__((preserve_access_index));

#define tw_snd_nxt	tw_sk.__tw_common.skc_tw_snd_nxt

/* The maps; scripts/real_server_lib/chance.py writes the same shapes */

#define SERVICES	1024	/* more than servers have */
#define DIRECTORS	16	/* addresses of directors */

struct service {
	union nf_inet_addr addr;	/* zeros behind an IPv4 address */
	__be16		port;
	u16		family;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICES);
	__type(key, struct service);
	__type(value, u32);
} chance_services SEC(".maps");

struct mac {
	u16	w[ETH_ALEN / 2];
};

static __always_inline bool is_same(const struct mac *a, const struct mac *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2];
}

struct director {
	union nf_inet_addr addr;
	u32		family;		/* 0: no director */
	u32		ifindex;	/* of the GRE device */
	struct mac	mac;
	u16		pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DIRECTORS);
	__type(key, u32);
	__type(value, struct director);
} chance_directors SEC(".maps");

/* skb->tc_index of what comes out of a tunnel: TC_INDEX and the director */
#define TC_INDEX	0x6d00

enum count {
	COUNT_KEPT,
	COUNT_SENT_BACK,
	COUNT_FAILED,
	COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, u32);
	__type(value, u64);
} chance_counts SEC(".maps");

#define GRE_KEY		0x6d687300	/* also in ip_vs_mhs_chance.c */

/* Where the tunnel key ended before Linux 6.0; any kernel takes this size */
#define TUNNEL_KEY_SIZE	(offsetof(struct bpf_tunnel_key, tunnel_label) + \
			 sizeof(u32))

struct packet {
	struct service	service;
	union nf_inet_addr client;
	u16		client_port;	/* host order */
	bool		error;		/* ICMP error, @th is what it quotes */
	union {
		struct iphdr	ip4;
		struct ipv6hdr	ip6;
	};
	struct tcphdr	th;
};

static __always_inline void count(u32 what)
{
	u64 *n = bpf_map_lookup_elem(&chance_counts, &what);

	if (n)
		*n += 1;
}

/* More than all headers: 60 and 8 bytes of an error, 60 and 20 of what it quotes, and
 * those of the link
 */
#define HEADERS		256

/* Read from the network header on; false: the packet ends before.  A device may leave
 * the headers in pages, where they are not read before they are pulled.
 */
static __always_inline bool load(struct __sk_buff *skb, u32 at, void *to,
				 u32 bytes)
{
	if (!bpf_skb_load_bytes_relative(skb, at, to, bytes, BPF_HDR_START_NET))
		return true;
	return !bpf_skb_pull_data(skb, skb->len < HEADERS ? skb->len : HEADERS) &&
	       !bpf_skb_load_bytes_relative(skb, at, to, bytes,
					    BPF_HDR_START_NET);
}

/* The addresses and ports of the flow.  What an error quotes went the other way,
 * and of its TCP header only eight bytes need be there.
 */
static __always_inline bool parse_flow(struct __sk_buff *skb, struct packet *p,
				       u32 at)
{
	bool six = p->service.family == AF_INET6;
	void *server = &p->service.addr, *client = &p->client;

	if (!load(skb, at, &p->th, p->error ? 8 : sizeof(p->th)))
		return false;
	if (p->error) {
		server = &p->client;
		client = &p->service.addr;
	}
	if (six) {
		__builtin_memcpy(server, &p->ip6.daddr, sizeof(p->ip6.daddr));
		__builtin_memcpy(client, &p->ip6.saddr, sizeof(p->ip6.saddr));
	} else {
		__builtin_memcpy(server, &p->ip4.daddr, sizeof(p->ip4.daddr));
		__builtin_memcpy(client, &p->ip4.saddr, sizeof(p->ip4.saddr));
	}
	p->service.port = p->error ? p->th.source : p->th.dest;
	p->client_port = bpf_ntohs(p->error ? p->th.dest : p->th.source);
	return true;
}

/* A first fragment is taken for a whole packet; later ones have no ports */
static __always_inline u32 parse_ip4(struct __sk_buff *skb, struct packet *p,
				     u32 at)
{
	if (!load(skb, at, &p->ip4, sizeof(p->ip4)) ||
	    p->ip4.version != 4 || p->ip4.ihl < 5 ||
	    p->ip4.frag_off & bpf_htons(IP_OFFSET))
		return 0;
	return at + p->ip4.ihl * 4;
}

static __always_inline bool parse4(struct __sk_buff *skb, struct packet *p)
{
	__u8 type;
	u32 at;

	p->service.family = AF_INET;
	at = parse_ip4(skb, p, 0);
	if (!at)
		return false;
	if (p->ip4.protocol == IPPROTO_ICMP) {
		if (!load(skb, at, &type, sizeof(type)) ||
		    (type != ICMP_DEST_UNREACH && type != ICMP_TIME_EXCEEDED &&
		     type != ICMP_PARAMETERPROB))
			return false;
		p->error = true;
		at = parse_ip4(skb, p, at + ICMP_BYTES);
		if (!at)
			return false;
	}
	return p->ip4.protocol == IPPROTO_TCP && parse_flow(skb, p, at);
}

static __always_inline u32 parse_ip6(struct __sk_buff *skb, struct packet *p,
				     u32 at)
{
	if (!load(skb, at, &p->ip6, sizeof(p->ip6)) || p->ip6.version != 6)
		return 0;
	return at + sizeof(p->ip6);
}

static __always_inline bool parse6(struct __sk_buff *skb, struct packet *p)
{
	__u8 type;
	u32 at;

	p->service.family = AF_INET6;
	at = parse_ip6(skb, p, 0);
	if (!at)
		return false;
	if (p->ip6.nexthdr == IPPROTO_ICMPV6) {
		if (!load(skb, at, &type, sizeof(type)) ||
		    type < ICMPV6_ERROR_FIRST || type > ICMPV6_ERROR_LAST)
			return false;
		p->error = true;
		at = parse_ip6(skb, p, at + ICMP_BYTES);
		if (!at)
			return false;
	}
	return p->ip6.nexthdr == IPPROTO_TCP && parse_flow(skb, p, at);
}

/* A listener, or whatever socket the packet's addresses and ports have */
static __always_inline struct bpf_sock *lookup(struct __sk_buff *skb,
					       const struct packet *p)
{
	struct bpf_sock_tuple t;

	if (p->service.family == AF_INET6) {
		__builtin_memcpy(t.ipv6.saddr, &p->client, 16);
		__builtin_memcpy(t.ipv6.daddr, &p->service.addr, 16);
		t.ipv6.sport = bpf_htons(p->client_port);
		t.ipv6.dport = p->service.port;
		return bpf_skc_lookup_tcp(skb, &t, sizeof(t.ipv6),
					  BPF_F_CURRENT_NETNS, 0);
	}
	t.ipv4.saddr = p->client.ip;
	t.ipv4.daddr = p->service.addr.ip;
	t.ipv4.sport = bpf_htons(p->client_port);
	t.ipv4.dport = p->service.port;
	return bpf_skc_lookup_tcp(skb, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS,
				  0);
}

#ifndef CHANCE_WITHOUT_BTF

/* A half-open socket may come from a forged SYN.  Only the client of a real one
 * knows what the server sent, or what the SYN said.
 */
static __always_inline bool is_of_request(struct bpf_sock *sk,
					  const struct packet *p)
{
	struct tcp_request_sock *req = bpf_skc_to_tcp_request_sock(sk);

	if (!req)
		return false;
	if (p->error)
		return bpf_ntohl(p->th.seq) == req->snt_isn;
	if (p->th.ack)
		return bpf_ntohl(p->th.ack_seq) == req->snt_isn + 1;
	return p->th.rst && bpf_ntohl(p->th.seq) == req->rcv_isn + 1;
}

/* The client may use the ports of a flow that has ended again, on another server.
 * A packet of the former flow acknowledges the server's last byte.
 */
static __always_inline bool is_of_timewait(struct bpf_sock *sk,
					   const struct packet *p)
{
	struct tcp_timewait_sock *tw = bpf_skc_to_tcp_timewait_sock(sk);

	return tw && (p->error || !p->th.ack ||
		      bpf_ntohl(p->th.ack_seq) == tw->tw_snd_nxt);
}

#else /* only for tests: a forged SYN breaks flows */

#define is_of_request(sk, p)	true
#define is_of_timewait(sk, p)	true

#endif

static __always_inline bool has_cookie(struct bpf_sock *sk, struct packet *p)
{
	if (p->error || !p->th.ack || p->th.rst)
		return false;
	if (p->service.family == AF_INET6)
		return !bpf_tcp_check_syncookie(sk, &p->ip6, sizeof(p->ip6),
						&p->th, sizeof(p->th));
	return !bpf_tcp_check_syncookie(sk, &p->ip4, sizeof(p->ip4), &p->th,
					sizeof(p->th));
}

static __always_inline bool is_here(struct bpf_sock *sk, struct packet *p)
{
	switch (sk->state) {
	case BPF_TCP_LISTEN:
		return has_cookie(sk, p);
	case BPF_TCP_NEW_SYN_RECV:
		return is_of_request(sk, p);
	case BPF_TCP_TIME_WAIT:
		return is_of_timewait(sk, p);
	default:
		return true;
	}
}

/* The number of the director with the address, or DIRECTORS */
static __always_inline u32 find_director(u32 family,
					 const union nf_inet_addr *addr)
{
	const struct director *d;
	u32 i, at;

#pragma unroll
	for (i = 0; i < DIRECTORS; i++) {
		at = i;
		d = bpf_map_lookup_elem(&chance_directors, &at);
		if (!d || !d->family)
			break;
		if (d->family == family &&
		    d->addr.all[0] == addr->all[0] &&
		    d->addr.all[1] == addr->all[1] &&
		    d->addr.all[2] == addr->all[2] &&
		    d->addr.all[3] == addr->all[3])
			return i;
	}
	return DIRECTORS;
}

static __always_inline void load_source(struct __sk_buff *skb, struct mac *mac)
{
	bpf_skb_load_bytes_relative(skb, offsetof(struct ethhdr, h_source), mac,
				    sizeof(*mac), BPF_HDR_START_MAC);
}

/* Who sent the frame: the director with that address.  If none has it, any of the
 * family: what is sent to a director makes it tell its address.
 */
static __always_inline u32 director_of_frame(struct __sk_buff *skb, u32 family)
{
	u32 i, at, n = 0, any = DIRECTORS;
	const struct director *d;
	struct mac mac = {};

	load_source(skb, &mac);
#pragma unroll
	for (i = 0; i < DIRECTORS; i++) {
		at = i;
		d = bpf_map_lookup_elem(&chance_directors, &at);
		if (!d || !d->family)
			break;
		if (d->family != family)
			continue;
		if (is_same(&d->mac, &mac))
			return i;
		if (!(bpf_get_prandom_u32() % ++n))
			any = i;
	}
	return any;
}

/* If it is a director, it has that address */
static __always_inline void learn(u32 family, const union nf_inet_addr *from,
				  const struct mac *mac)
{
	u32 at = find_director(family, from);
	struct director *d = bpf_map_lookup_elem(&chance_directors, &at);

	if (d && !is_same(&d->mac, mac))
		d->mac = *mac;
}

/* A director needs to tell who it is before it sends a frame here */
static __always_inline void learn4(struct __sk_buff *skb)
{
	union nf_inet_addr from = {};
	struct arp arp;
	struct mac mac;

	if (bpf_skb_load_bytes_relative(skb, 0, &arp, sizeof(arp),
					BPF_HDR_START_NET))
		return;
	if (arp.protocol != bpf_htons(ETH_P_IP) || arp.bytes != ETH_ALEN)
		return;
	from.ip = arp.addr;
	__builtin_memcpy(&mac, arp.mac, sizeof(mac));
	learn(AF_INET, &from, &mac);
}

/* By IPv6 it asks in the name of another address, and tells when it is asked */
static __always_inline void learn6(struct __sk_buff *skb)
{
	const u32 at = sizeof(struct ipv6hdr);
	union nf_inet_addr from = {};
	struct mac mac = {};
	__u8 type;

	if (!load(skb, at, &type, sizeof(type)) || type != ICMPV6_ADVERTISEMENT ||
	    !load(skb, at + ICMP_BYTES, &from, sizeof(from)))
		return;
	load_source(skb, &mac);
	learn(AF_INET6, &from, &mac);
}

/* Note the director of a tunnel packet, which comes in again without its header */
static __always_inline void note(struct __sk_buff *skb, u32 family,
				 const void *addr, u32 bytes)
{
	union nf_inet_addr from = {};
	u32 at;

	__builtin_memcpy(&from, addr, bytes);
	at = find_director(family, &from);

	skb->tc_index = at < DIRECTORS ? TC_INDEX | at : 0;
}

static __always_inline int send_back(struct __sk_buff *skb,
				     const struct packet *p)
{
	struct bpf_tunnel_key to = {};
	u64 flags = BPF_F_ZERO_CSUM_TX;
	const struct director *d;
	u32 at = skb->tc_index;

	at = (at & 0xff00) == TC_INDEX ? at & 0xff :
	     director_of_frame(skb, p->service.family);
	d = bpf_map_lookup_elem(&chance_directors, &at);
	if (!d || !d->family)
		goto fail;
	to.tunnel_id = GRE_KEY;
	to.tunnel_ttl = 64;
	if (d->family == AF_INET6) {
		flags |= BPF_F_TUNINFO_IPV6;
		__builtin_memcpy(to.remote_ipv6, &d->addr, 16);
	} else {
		to.remote_ipv4 = bpf_ntohl(d->addr.ip);
	}
	if (bpf_skb_set_tunnel_key(skb, &to, TUNNEL_KEY_SIZE, flags))
		goto fail;
	count(COUNT_SENT_BACK);
	return bpf_redirect(d->ifindex, 0);
fail:
	count(COUNT_FAILED);
	return TC_ACT_UNSPEC;
}

/* TC_ACT_UNSPEC: other filters of the device go on */
SEC("classifier")
int mhs_chance(struct __sk_buff *skb)
{
	struct packet p = {};
	struct bpf_sock *sk;
	bool here;

	if (skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		learn4(skb);
	if (skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!parse4(skb, &p)) {
			if (p.ip4.protocol == IPPROTO_IPIP ||
			    p.ip4.protocol == IPPROTO_IPV6)
				note(skb, AF_INET, &p.ip4.saddr, 4);
			return TC_ACT_UNSPEC;
		}
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!parse6(skb, &p)) {
			if (p.ip6.nexthdr == IPPROTO_IPIP ||
			    p.ip6.nexthdr == IPPROTO_IPV6)
				note(skb, AF_INET6, &p.ip6.saddr, 16);
			/* of this link, and no other one */
			if (p.ip6.nexthdr == IPPROTO_ICMPV6 &&
			    p.ip6.hop_limit == 255)
				learn6(skb);
			return TC_ACT_UNSPEC;
		}
	} else {
		return TC_ACT_UNSPEC;
	}
	if (!bpf_map_lookup_elem(&chance_services, &p.service) ||
	    (!p.error && p.th.syn && !p.th.ack))
		return TC_ACT_UNSPEC;
	sk = lookup(skb, &p);
	if (sk) {
		here = is_here(sk, &p);
		bpf_sk_release(sk);
		if (here) {
			count(COUNT_KEPT);
			return TC_ACT_UNSPEC;
		}
	}
	return send_back(skb, &p);
}

/* The helpers that read sockets are for programs under this license only */
char _license[] SEC("license") = "GPL";
