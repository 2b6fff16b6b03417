// SPDX-License-Identifier: GPL-2.0-only
/* The second chance of servers: a packet that comes to a server without a socket
 * for its flow is sent on to the server that had the flow's slot before.
 *
 * The program is for the ingress of devices, by tc.  `real_server chance` loads
 * and attaches the program and writes its maps.  User space computes who owned
 * a slot, from the same tables as the director's.
 *
 *	TCP packet, or ICMP error, to a service
 *	  |-- SYN ---------------------------------------------> stays
 *	  |-- nobody listens here -----------------------------> stays
 *	  |-- a socket, a half-open one, a cookie of the flow -> stays
 *	  |-- every other owner of the slot was asked ---------> stays: a reset
 *	  '-- else ---------------------------> the next owner, in a GRE tunnel
 *
 * All owners of a slot form one circle, by their addresses.  The key of
 * the GRE header counts the owners that were asked: with as many as there are
 * other owners, the circle is closed.  A server that is none of them does not count
 * if the packet came to it first; what another server sent on counts always, so
 * that no packet goes round for ever between servers that disagree.
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
typedef struct {
	u64	key[2];
} siphash_key_t;

#define ntohl bpf_ntohl

static __always_inline u64 rol64(u64 x, u32 bits)
{
	return x << bits | x >> (64 - bits);
}

#include "ip_vs_mhs_hash.h"

#define AF_INET		2
#define AF_INET6	10
#define IP_OFFSET	0x1fff	/* fragment offset, of struct iphdr.frag_off */

/* linux/icmp.h needs headers of the C library.  Types of ICMP errors: */
#define ICMP_DEST_UNREACH	3
#define ICMP_TIME_EXCEEDED	11
#define ICMP_PARAMETERPROB	12
#define ICMPV6_ERROR_FIRST	1
#define ICMPV6_ERROR_LAST	4

#define ICMP_BYTES	8	/* what an error quotes stands behind them */

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

/* The maps; scripts/real_server_lib/chance_map.py writes the same shapes */

#define NSEC_PER_SEC	1000000000
#define SERVICES	1024	/* more than servers have */

struct service {
	union nf_inet_addr addr;	/* zeros behind an IPv4 address */
	__be16		port;
	u16		family;
};

/* One service: an array of rows, replaced as a whole
 *
 *	row 0			the key of the hash
 *	row 1			enum meta
 *	rows from 2		four slots each: the number of the next owner, how
 *				many other owners there are, and STRANGER if this
 *				server is none of them
 *	behind them		the addresses of the servers
 *
 * AWAY: the next owner is a guess, who had the slot while this server was away
 */
struct row {
	u32	w[4];
};

enum meta {
	META_SLOTS,
	META_AWAY_UNTIL,	/* seconds since boot: end of all guesses */
	META_IFINDEX,		/* of the tunnel device */
	META_FLAGS,
};

#define FLAG_ADDR_ONLY	1	/* the port is not hashed */
#define FLAG_SERVERS_6	2	/* the servers' addresses are IPv6 */

#define STRANGER	0x80000000
#define OTHERS_SHIFT	24
#define OTHERS_MASK	0x7f
#define AWAY		0x800000
#define OWNER_MASK	0x7fffff

struct table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);	/* tables differ in size */
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct row));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, SERVICES);
	__uint(key_size, sizeof(struct service));
	__uint(value_size, sizeof(u32));
	__array(values, struct table);
} chance_services SEC(".maps");

enum count {
	COUNT_KEPT,
	COUNT_SENT_ON,
	COUNT_REFUSED,
	COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, u32);
	__type(value, u64);
} chance_counts SEC(".maps");

/* The GRE key of a packet sent on: these three bytes, then how many owners were
 * asked, and one more
 */
#define GRE_KEY		0x6d687300
#define GRE_KEY_MASK	0xffffff00

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

/* The word of the packet's slot, 0 without other owners */
static __always_inline u32 slot_word(void *table, const struct row *meta,
				     const struct packet *p)
{
	u32 slots = meta->w[META_SLOTS], at = 0, slot;
	const struct row *row;
	siphash_key_t key;
	u16 port;

	row = bpf_map_lookup_elem(table, &at);
	if (!row)
		return 0;
	__builtin_memcpy(&key, row, sizeof(key));
	port = meta->w[META_FLAGS] & FLAG_ADDR_ONLY ? 0 : p->client_port;
	slot = (sip_client(&key, p->service.family == AF_INET6, &p->client,
			   port) >> 32) * slots >> 32;
	at = 2 + slot / 4;
	row = bpf_map_lookup_elem(table, &at);
	return row ? row->w[slot & 3] : 0;
}

/* Send the packet to the next owner of its slot, or leave it to the stack */
static __always_inline int send_on(struct __sk_buff *skb, const struct packet *p,
				   void *table, u32 asked, int stays)
{
	struct bpf_tunnel_key to = {};
	u64 flags = BPF_F_ZERO_CSUM_TX;
	const struct row *meta, *address;
	u32 word, at = 1;

	meta = bpf_map_lookup_elem(table, &at);
	if (!meta)
		return stays;
	word = slot_word(table, meta, p);
	if ((asked ? asked - 1 : 0) >= (word >> OTHERS_SHIFT & OTHERS_MASK) ||
	    (word & AWAY &&
	     bpf_ktime_get_ns() / NSEC_PER_SEC >= meta->w[META_AWAY_UNTIL]))
		goto refuse;
	if (!asked)
		asked = word & STRANGER ? 0 : 1;
	at = 2 + (meta->w[META_SLOTS] + 3) / 4 + (word & OWNER_MASK);
	address = bpf_map_lookup_elem(table, &at);
	if (!address)
		goto refuse;
	to.tunnel_id = GRE_KEY | (asked + 1);
	to.tunnel_ttl = 64;
	if (meta->w[META_FLAGS] & FLAG_SERVERS_6) {
		flags |= BPF_F_TUNINFO_IPV6;
		__builtin_memcpy(to.remote_ipv6, address, sizeof(*address));
	} else {
		to.remote_ipv4 = bpf_ntohl(address->w[0]);
	}
	if (bpf_skb_set_tunnel_key(skb, &to, TUNNEL_KEY_SIZE, flags))
		goto refuse;
	count(COUNT_SENT_ON);
	return bpf_redirect(meta->w[META_IFINDEX], 0);
refuse:
	count(COUNT_REFUSED);
	return stays;
}

/* How many owners were asked before, and one more; 0: no server sent this on */
static __always_inline u32 asked_before(struct __sk_buff *skb)
{
	struct bpf_tunnel_key from = {};

	if (bpf_skb_get_tunnel_key(skb, &from, TUNNEL_KEY_SIZE, 0) &&
	    bpf_skb_get_tunnel_key(skb, &from, TUNNEL_KEY_SIZE,
				   BPF_F_TUNINFO_IPV6))
		return 0;
	return (from.tunnel_id & GRE_KEY_MASK) == GRE_KEY ?
	       from.tunnel_id & ~GRE_KEY_MASK : 0;
}

/* TC_ACT_UNSPEC: other filters of the device go on.  TC_ACT_OK ends them for a
 * packet of a service that another server sent on; behind this program the tunnel
 * device has a filter that drops everything else.
 */
SEC("classifier")
int mhs_chance(struct __sk_buff *skb)
{
	struct packet p = {};
	struct bpf_sock *sk;
	void *table;
	u32 asked;
	bool here;
	int stays;

	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!parse4(skb, &p))
			return TC_ACT_UNSPEC;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!parse6(skb, &p))
			return TC_ACT_UNSPEC;
	} else {
		return TC_ACT_UNSPEC;
	}
	table = bpf_map_lookup_elem(&chance_services, &p.service);
	if (!table)
		return TC_ACT_UNSPEC;
	asked = asked_before(skb);
	stays = asked ? TC_ACT_OK : TC_ACT_UNSPEC;
	if (!p.error && p.th.syn && !p.th.ack)
		return stays;
	sk = lookup(skb, &p);
	if (!sk)
		return stays;
	here = is_here(sk, &p);
	bpf_sk_release(sk);
	if (here) {
		count(COUNT_KEPT);
		return stays;
	}
	return send_on(skb, &p, table, asked, stays);
}

/* The helpers that read sockets are for programs under this license only */
char _license[] SEC("license") = "GPL";
