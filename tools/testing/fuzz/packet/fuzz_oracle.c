// SPDX-License-Identifier: GPL-2.0-only
/* The packet fuzzer: what has to come of a packet.
 *
 * Reads the packet as it came, in one piece, by rules of its own: where it may
 * be sent, what has to be different then, and whether its checksums are right,
 * which it computes in full.
 */
#include <linux/crc32c.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/sctp.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/gre.h>

#include "fuzz_packet.h"

/* A packet, or what an ICMP error quotes of one */
struct flow {
	bool		ok;		/* it can be read up to its ports */
	u8		protocol;
	unsigned int	at;		/* of the network header ... */
	unsigned int	l4;		/* ... and of the transport header */
	union nf_inet_addr src;
	union nf_inet_addr dst;
	__be16		sport;
	__be16		dport;
};

/* A checksum field, and is it right? */
struct sum {
	unsigned int	at;		/* 0: there is none */
	bool		right;
};

static u16 word(const u8 *p)
{
	return p[0] << 8 | p[1];
}

/* Sum of 16-bit words as they lie in memory, with a carry around */
u16 oracle_sum(const u8 *bytes, unsigned int len, u32 sum)
{
	u64 all = sum;
	unsigned int i;

	for (i = 0; i < len; i++)
		all += (u32)bytes[i] << (i & 1 ? 8 : 0);
	while (all >> 16)
		all = (all & 0xffff) + (all >> 16);
	return all;
}

static bool v6(void)
{
	return world.af == AF_INET6;
}

static bool ports_read(const u8 *b, unsigned int len, struct flow *f)
{
	if (f->protocol != IPPROTO_TCP && f->protocol != IPPROTO_UDP &&
	    f->protocol != IPPROTO_SCTP)
		return false;
	if (f->l4 + 4 > len)
		return false;
	memcpy(&f->sport, b + f->l4, 2);
	memcpy(&f->dport, b + f->l4 + 2, 2);
	return true;
}

/* The network header at @at; not of later fragments, nor, unless @part, of
 * first ones
 */
static bool net_read(const u8 *b, unsigned int len, unsigned int at,
		     bool part, struct flow *f)
{
	unsigned int next, size;
	u8 next_type;

	memset(f, 0, sizeof(*f));
	f->at = at;
	if (!v6()) {
		if (at + 20 > len || b[at] >> 4 != 4 || (b[at] & 15) < 5 ||
		    word(b + at + 6) & (part ? 0x1fff : 0x3fff))
			return false;
		f->protocol = b[at + 9];
		memcpy(&f->src, b + at + 12, 4);
		memcpy(&f->dst, b + at + 16, 4);
		f->l4 = at + (b[at] & 15) * 4;
		return f->l4 <= len;
	}
	if (at + 40 > len || b[at] >> 4 != 6)
		return false;
	memcpy(&f->src, b + at + 8, 16);
	memcpy(&f->dst, b + at + 24, 16);
	next_type = b[at + 6];
	for (next = at + 40; ; next += size) {
		switch (next_type) {
		case 0:
		case 43:
		case 60:
			size = next + 2 <= len ? 8 + b[next + 1] * 8 : 0;
			break;
		case 44:
			size = 8;
			if (!part || next + 8 > len || word(b + next + 2) & ~7)
				return false;
			break;
		case 51:
			size = next + 2 <= len ? 8 + b[next + 1] * 4 : 0;
			break;
		default:
			f->protocol = next_type;
			f->l4 = next;
			return true;
		}
		if (!size || next + size > len)
			return false;
		next_type = b[next];
	}
}

static bool icmp_is_error(const u8 *b, unsigned int len,
			  const struct flow *f)
{
	if (f->protocol != (v6() ? IPPROTO_ICMPV6 : IPPROTO_ICMP) ||
	    f->l4 + 8 > len)
		return false;
	if (v6())
		return b[f->l4] < 128;
	return b[f->l4] == 3 || b[f->l4] == 4 || b[f->l4] == 11;
}

/* What an error quotes at @at */
static void quote_read(const u8 *b, unsigned int len, unsigned int at,
		       struct flow *q)
{
	q->ok = net_read(b, len, at, true, q) && ports_read(b, len, q);
}

/* Where the packet inside a tunnel packet that is quoted at @at begins, 0 when
 * it is none to server @s
 */
static unsigned int tunnel_inside(const u8 *b, unsigned int len,
				  unsigned int at, unsigned int s)
{
	struct flow outer;
	unsigned int l4;

	if (v6() || !net_read(b, len, at, true, &outer) ||
	    outer.dst.ip != world.dest[s].addr.ip ||
	    world_method(s) != METHOD_TUNNEL)
		return 0;
	l4 = outer.l4;
	switch (world.dest[s].tun_type) {
	case IP_VS_CONN_F_TUNNEL_TYPE_IPIP:
		return outer.protocol == IPPROTO_IPIP ? l4 : 0;
	case IP_VS_CONN_F_TUNNEL_TYPE_GUE:
		if (outer.protocol != IPPROTO_UDP || l4 + 12 > len ||
		    b[l4 + 8] & 0xe0 || b[l4 + 9] != IPPROTO_IPIP)
			return 0;
		return l4 + 12 + (b[l4 + 8] & 31) * 4;
	case IP_VS_CONN_F_TUNNEL_TYPE_GRE:
		if (outer.protocol != IPPROTO_GRE || l4 + 4 > len ||
		    word(b + l4) & 0x7fff || word(b + l4 + 2) != 0x0800)
			return 0;
		return l4 + 4 + (b[l4] & 0x80 ? 4 : 0);
	}
	return 0;
}

/* Of what an error quotes the mark is not known */
static bool is_service(u8 protocol, const union nf_inet_addr *addr,
		       __be16 port, bool quoted)
{
	if (world.mhs.fwmark)
		return world.is->path & PATH_MARK && !quoted;
	return protocol == world.protocol &&
	       port == world.mhs.port &&
	       !memcmp(addr, &world.mhs.addr, v6() ? 16 : 4);
}

static u32 word_of(const union nf_inet_addr *client, __be16 port)
{
	u32 *slot = mhs_slot(&world.mhs, client, port);

	return world.slots_were[slot - world.slots];
}

static bool lone(const struct flow *f, bool quoted)
{
	__be16 vport = quoted ? f->sport : f->dport;

	return f->protocol == IPPROTO_UDP &&
	       (vport != htons(443) ||
		world.is->service & SERVICE_ONEPACKET);
}

static bool in_service(unsigned int server)
{
	unsigned int state = server ? world_state(server) : STATE_OUT;

	return state != STATE_OUT && state != STATE_GONE;
}

static bool quic_known(const u8 *quic)
{
	return !memcmp(quic + 1, "\0\0\0\1", 4) ||
	       !memcmp(quic + 1, "k3C\xcf", 4);
}

/* Is a request plain UDP, also by what it has of a QUIC header?  @odd: where the old
 * server is deleted more is.
 */
static bool lone_request(const u8 *b, unsigned int len, const struct flow *f,
			 bool odd)
{
	const u8 *quic = b + f->l4 + 8;

	if (lone(f, false) || f->protocol != IPPROTO_UDP)
		return lone(f, false);
	if (f->l4 + 8 + 21 > len ||
	    (*quic && *quic < 5 && !memcmp(quic + 1, "\0\0\0", 3)) ||
	    (*quic >= 20 && *quic <= 26 && quic[1] == 0xfe))
		return true;
	if (*quic & 0x80)
		return !quic_known(quic) && !(*quic & 0x40);
	return odd && !(*quic & 0x40) &&
	       mhs_slot_old(word_of(&f->src, f->sport)) &&
	       world_state(mhs_slot_old(word_of(&f->src, f->sport))) == STATE_GONE;
}

/* Does a packet begin a flow?  Plain UDP does not tell. */
static bool begins(const u8 *b, unsigned int len, const struct flow *f)
{
	const u8 *l4 = b + f->l4;

	if (f->protocol == IPPROTO_TCP)
		return (l4[13] & 0x17) == 2;
	if (f->protocol == IPPROTO_SCTP)
		return f->l4 + 16 <= len && l4[12] == SCTP_CID_INIT;
	if (lone_request(b, len, f, true) || !(l4[8] & 0x80))
		return false;
	return !quic_known(l4 + 8) ||
	       (l4[8] & 0x30) == (l4[9] ? 0x10 : 0);
}

/* Does it end one, or belong to none? */
static bool ends(const u8 *b, unsigned int len, const struct flow *f)
{
	const u8 *l4 = b + f->l4;

	if (f->protocol == IPPROTO_TCP)
		return l4[13] & 5 || !(l4[13] & 0x12);
	return f->protocol == IPPROTO_SCTP && f->l4 + 16 <= len &&
	       (l4[12] == SCTP_CID_ABORT || l4[12] == SCTP_CID_SHUTDOWN ||
		l4[12] == SCTP_CID_SHUTDOWN_ACK ||
		l4[12] == SCTP_CID_SHUTDOWN_COMPLETE);
}

#define ID_OF_NONE	(SERVERS + 1)

/* The server that the connection ID of a packet names; 0 without an ID */
static unsigned int id_read(const u8 *b, unsigned int len)
{
	unsigned int at, type, i;
	struct flow f;

	if (!world.mhs.ids || !net_read(b, len, 0, v6(), &f) ||
	    !ports_read(b, len, &f) ||
	    !is_service(f.protocol, &f.dst, f.dport, false) ||
	    lone_request(b, len, &f, false))
		return 0;
	at = f.l4 + 8;
	if (at >= len)
		return 0;
	if (b[at] & 0x80) {
		if (at + 6 > len || b[at + 5] < 9 || b[at + 5] > 20)
			return 0;
		type = b[at] >> 4 & 3;
		if (memcmp(b + at + 1, type == 2 ? "\0\0\0\1" : "k3C\xcf", 4) ||
		    type < 2)
			return 0;
		at += 5;
	}
	if (at + 10 > len)
		return 0;
	for (i = 1; i <= SERVERS && b[at + 1] < 7 << 5; i++)
		if (!memcmp(b + at + 2, (const u8 *)&world.dest[i].addr +
			    (v6() ? 12 : 0), 4))
			return world_method(i) == METHOD_MASQ ? 0 : i;
	return ID_OF_NONE;
}

/**
 * oracle_id() - the server that the connection ID of a packet names
 * @b: the packet
 * @len: its length
 *
 * Return: its number, 0 for none.
 */
unsigned int oracle_id(const u8 *b, unsigned int len)
{
	return id_read(b, len) % ID_OF_NONE;
}

/* May a new flow get server @s?  Another one when the candidate is full or out
 * of service.
 */
static bool named_new(unsigned int s, u32 w)
{
	unsigned int cand = mhs_slot_cand(w);

	return s == cand ||
	       (world_state(s) == 0 && (!cand || world_state(cand)));
}

/* Does the table name @s for this word?  @stands: the flow is under way */
static bool named(unsigned int s, u32 w, bool lone, bool stands)
{
	unsigned int old = mhs_slot_old(w);

	if (lone && mhs_slot_holding(w) &&
	    !(world.is->service & SERVICE_ONEPACKET) && in_service(old))
		return s == old;
	if (lone)
		return named_new(s, w);
	return s == old || (!stands && s == mhs_slot_cand(w));
}

/* Do packets and entries have conntrack entries? */
static bool tracked(u8 too)
{
	too |= ENTRY_NFCT;
	return (world.is->slots & too) == too;
}

/* Checksums */

static u32 pseudo(const struct flow *f, unsigned int size)
{
	u8 more[4] = { 0, f->protocol, size >> 8, size };

	return oracle_sum((const u8 *)&f->src, 16, 0) +
	       oracle_sum((const u8 *)&f->dst, 16, 0) + oracle_sum(more, 4, 0);
}

static struct sum sum_of(const u8 *b, unsigned int len, const struct flow *f,
			 int summed)
{
	unsigned int size = len - f->l4;
	struct sum sum = {};
	u8 copy[LONGEST];
	u32 crc;

	switch (f->protocol) {
	case IPPROTO_TCP:
		if (size < 20)
			return sum;
		sum.at = f->l4 + 16;
		break;
	case IPPROTO_UDP:
		if (size < 8 ||
		    (summed != CHECKSUM_PARTIAL && !word(b + f->l4 + 6)))
			return sum;
		sum.at = f->l4 + 6;
		/* there may be more than the datagram */
		if (summed != CHECKSUM_PARTIAL && word(b + f->l4 + 4) >= 8)
			size = min_t(u32, size, word(b + f->l4 + 4));
		break;
	case IPPROTO_SCTP:
		if (size < 12)
			return sum;
		sum.at = f->l4 + 8;
		memcpy(copy, b + f->l4, size);
		memset(copy + 8, 0, 4);
		crc = ~crc32c(~0U, copy, size);
		sum.right = !memcmp(&crc, b + sum.at, 4);
		return sum;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		sum.at = f->l4 + 2;
		break;
	}
	if (summed == CHECKSUM_PARTIAL)
		sum.right = oracle_sum(b + sum.at, 2, 0) % 0xffff ==
			    oracle_sum(NULL, 0, pseudo(f, size)) % 0xffff;
	else
		sum.right = oracle_sum(b + f->l4, size,
				       f->protocol == IPPROTO_ICMP ? 0 :
				       pseudo(f, size)) == 0xffff;
	return sum;
}

/* Make the checksum of a packet right, unless it has none */
void oracle_sum_right(u8 *b, unsigned int len)
{
	int summed = world.is->path & PATH_PARTIAL ? CHECKSUM_PARTIAL : 0;
	struct sum sum;
	struct flow f;
	u32 s;

	if (!net_read(b, len, 0, true, &f))
		return;
	sum = sum_of(b, len, &f, summed);
	if (!sum.at)
		return;
	memset(b + sum.at, 0, 2);
	if (f.protocol == IPPROTO_SCTP) {
		memset(b + sum.at, 0, 4);
		s = ~crc32c(~0U, b + f.l4, len - f.l4);
		memcpy(b + sum.at, &s, 4);
		return;
	}
	s = f.protocol == IPPROTO_ICMP ? 0 : pseudo(&f, len - f.l4);
	s = oracle_sum(b + f.l4, summed ? 0 : len - f.l4, s);
	if (!summed)
		s = s == 0xffff ? s : s ^ 0xffff;
	memcpy(b + sum.at, &s, 2);
}

/* Could the packet have an entry, if every flow is to have one? */
static bool may_have_entry(const u8 *b, unsigned int len,
			   const struct outcome *out, const struct flow *f)
{
	return world.is->answers & ANSWER_NEW &&
	       !(world.is->life & LIFE_FULL) && f->sport && !ends(b, len, f) &&
	       world_state(out->server) != STATE_GONE &&
	       !(lone(f, false) && world.is->service & SERVICE_ONEPACKET);
}

/* A request was sent without an entry */
static void check_by_table(const u8 *b, unsigned int len,
			   const struct outcome *out, const struct flow *f)
{
	unsigned int id = id_read(b, len);
	bool plain = lone_request(b, len, f, true);

	WANT(out->cnt.n[MHS_CNT_NO_ID] == (id == ID_OF_NONE));
	id %= ID_OF_NONE;
	WANT(out->cnt.n[MHS_CNT_BY_ID] == !!id);
	if (id) {
		WANT(out->server == id);
		return;
	}
	WANT(named(out->server, word_of(&f->src, f->sport), plain,
		   !begins(b, len, f)));
	WANT(plain || !world_settles());
	WANT(!(world.is->life & LIFE_STATEFUL) ||
	     world_settles() ||
	     !may_have_entry(b, len, out, f));
}

/* It went to a server by a carrier */
static void check_sent(const u8 *b, unsigned int len,
		       const struct outcome *out, const struct flow *f)
{
	struct flow q;

	WANT(out->len == len && !memcmp(out->bytes, b, len));
	if (icmp_is_error(b, len, f)) {
		WANT(!world_settles());
		WANT(world.hook == NF_INET_LOCAL_IN);
		quote_read(b, len, f->l4 + 8, &q);
		WANT(q.ok && is_service(q.protocol, &q.src, q.sport, true));
		WANT(!memcmp(&q.src, &f->dst, v6() ? 16 : 4));
		WANT(named(out->server, word_of(&q.dst, q.dport),
			   lone(&q, true), true));
		return;
	}
	WANT(ports_read(b, len, (struct flow *)f));
	WANT(is_service(f->protocol, &f->dst, f->dport, false));
	/* or its entry does, whose server is deleted, or a new flow leaves that, but
	 * no entry that another one controls
	 */
	if (!(world.is->answers & ANSWER_IN) || in_service(1) ||
	    !(begins(b, len, f) && !(world.is->slots & ENTRY_CONTROL) ?
	      in_service(out->server) :
	      out->server == 1 && world_state(1) == STATE_GONE))
		check_by_table(b, len, out, f);
}

/* A client was told: a router could not deliver a tunnel packet to a server */
static void check_told(const u8 *b, unsigned int len,
		       const struct outcome *out, const struct flow *f)
{
	unsigned int i, at = 0;
	struct flow q;

	WANT(icmp_is_error(b, len, f) && world.hook == NF_INET_LOCAL_IN);
	/* a service by mark is found by its server's address alone */
	if (!world.mhs.ids && !world.mhs.fwmark)
		WANT(!world_settles());
	WANT(sum_of(b, len, f, 0).right);
	WANT(out->told_type == b[f->l4] && out->told_code == b[f->l4 + 1]);
	for (i = 1; i <= SERVERS; i++) {
		at = tunnel_inside(b, len, f->l4 + 8, i);
		if (!at)
			continue;
		quote_read(b, len, at, &q);
		if (world.mhs.fwmark ||
		    (q.ok && is_service(q.protocol, &q.dst, q.dport, true) &&
		     (world.mhs.ids || named(i, word_of(&q.src, q.sport),
					     lone(&q, false), true))))
			break;
	}
	WANT(i <= SERVERS);
	WANT(out->len == len - at && !memcmp(out->bytes, b + at, out->len));
	if (out->told_type == ICMP_DEST_UNREACH &&
	    out->told_code == ICMP_FRAG_NEEDED)
		WANT(out->told_info <= 0xffff);
}

/* The module has made an entry */
static void check_made(const u8 *b, unsigned int len,
		       const struct outcome *out, struct flow *f)
{
	bool plain, first;
	u32 w;

	WANT(ports_read(b, len, f));
	WANT(!oracle_id(b, len));
	plain = lone_request(b, len, f, true);
	first = begins(b, len, f);
	w = word_of(&f->src, f->sport);
	if (out->left) {
		WANT(plain || first);
		/* the end of the former entry must not take the conntrack
		 * entry along that the packet has now
		 */
		if (!plain && tracked(0))
			WANT(!tracked(ENTRY_CONFIRMED) &&
			     !(world.entry.flags & IP_VS_CONN_F_NFCT));
	} else {
		WANT(f->sport && !(world.is->life & LIFE_FULL));
		WANT(!world_settles());
		WANT(world.is->life & LIFE_STATEFUL ||
		     (!plain && !mhs_slot_stable(w)) ||
		     (first && !in_service(mhs_slot_cand(w))));
	}
	WANT(!ends(b, len, f));
	WANT(!plain || !(world.is->service & SERVICE_ONEPACKET));
	WANT(first ? named_new(out->made_to, w) :
	     named(out->made_to, w, plain, true));
	WANT(first ? out->cnt.n[MHS_CNT_NEW] :
	     out->left || out->cnt.n[MHS_CNT_PINNED]);
}

/* Before the first server nothing is ours */
static void check_empty(const u8 *b, unsigned int len,
			const struct outcome *out)
{
	unsigned int i;

	WANT(out->verdict == NF_ACCEPT && out->len == len &&
	     !memcmp(out->bytes, b, len) && !out->done);
	WANT(out->tracked == tracked(0));
	WANT(!out->made && !out->left);
	for (i = 0; i < SLOTS; i++)
		WANT(!out->slots[i]);
	for (i = 0; i < MHS_CNT_MAX; i++)
		WANT(!out->cnt.n[i]);
}

bool oracle_begins(const u8 *b, unsigned int len)
{
	struct flow f;

	return net_read(b, len, 0, true, &f) && ports_read(b, len, &f) &&
	       (f.protocol != IPPROTO_TCP || f.l4 + 20 <= len) &&
	       begins(b, len, &f);
}

/**
 * oracle() - judge what came of a packet
 * @bytes: the packet as it came
 * @len: its length
 * @out: what came of it
 */
void oracle(const u8 *bytes, unsigned int len, const struct outcome *out)
{
	struct flow f;
	bool readable = net_read(bytes, len, 0, v6(), &f);

	WANT(out->taken == (out->verdict == NF_STOLEN));
	WANT(out->verdict == NF_ACCEPT || out->verdict == NF_DROP ||
	     out->verdict == NF_STOLEN);
	WANT(!out->server + !out->by_entry + !out->told >= 2);
	WANT(!out->left || !(world.is->slots & ENTRY_CONTROL));
	if (world.is->service & SERVICE_EMPTY) {
		check_empty(bytes, len, out);
		return;
	}
	if (out->made) {
		WANT(readable);
		check_made(bytes, len, out, &f);
	}
	if (out->server) {
		WANT(readable);
		check_sent(bytes, len, out, &f);
		return;
	}
	if (out->by_entry) {
		WANT(world.is->answers & (ANSWER_IN | ANSWER_NEW));
		WANT(!oracle_id(bytes, len));
	} else if (out->told) {
		WANT(readable);
		check_told(bytes, len, out, &f);
		return;
	} else if (out->verdict != NF_ACCEPT) {
		return;		/* nobody gets it */
	}
	/* what goes on is as it came */
	WANT(out->len == len && !memcmp(out->bytes, bytes, len));
	WANT(out->tracked == tracked(0));
}
