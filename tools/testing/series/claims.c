// SPDX-License-Identifier: GPL-2.0-only
/* Do the claims of the module and those of the posting agree?  scripts/series_tests.py
 * compiles the functions of both, which it takes out of their sources, with this.
 *
 *	claims
 *
 * SYNs and packets at random meet both.  A packet that the posting refuses is one
 * that the module refuses, or drops within a second (OF_EITHER), which is the only
 * difference; there the claim of the posting ends.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;

#define HZ		250
#define TRIES		300000
#define STEPS		6
#define noinline
#define likely(x)	(x)
#define unlikely(x)	(x)
#define READ_ONCE(x)	(x)
#define WRITE_ONCE(x, v) ((x) = (v))
#define smp_load_acquire(p) (*(p))
#define smp_store_release(p, v) (*(p) = (v))

#define IP_VS_CONN_F_NFCT	1
#define IP_VS_CONN_F_SEQ_MASK	2
#define MHS_PKT_NEW		1
#define MHS_PKT_ANSWERS		2

struct tcphdr {
	u32 seq;
	u16 doff;
	bool syn, rst;
};

struct sk_buff {
	u32 len;
	struct tcphdr th;
};

struct ip_vs_iphdr {
	u32 len;
	u8 protocol;
};

struct ip_vs_seq {
	u32 init_seq, delta, previous_delta;
};

struct ip_vs_conn {
	struct ip_vs_seq in_seq, out_seq;	/* the module's */
	bool claim;				/* the posting's */
	u32 claim_seq[2];
	u16 claim_data[2];
	void *app;
	u32 flags;
	u8 protocol;
};

struct mhs_packet {
	struct sk_buff *skb;
	struct ip_vs_iphdr iph;
	u32 facts;
};

static unsigned long jiffies;

#define skb_header_pointer(skb, offset, size, buffer) \
	((void)(offset), (void)(buffer), (void *)&(skb)->th)
#define ip_vs_conn_uses_old_conntrack(cp, skb) false
#define entry_clear_nfct(cp) ((void)(cp))

#include MODULE
#include POSTING

static u32 below(u32 n)
{
	return (u32)random() % n;
}

/* A number near one of those before, or any; before[0] counts them */
static u32 number(const u32 *before)
{
	static const u32 more[] = { 0, 1, 2, 101, 1401, 60000, 70000, -1U };

	if (!before[0] || !below(8))
		return (u32)random() * 2 + below(2);
	return before[1 + below(before[0])] + more[below(8)];
}

static void packet(struct mhs_packet *p, bool syn, u32 *numbers)
{
	static const u32 bytes[] = { 0, 0, 100, 1400 };
	u32 seq = number(numbers);

	p->facts = syn ? MHS_PKT_NEW : 0;
	p->skb->th = (struct tcphdr){
		.seq = htonl(seq), .doff = 5 + below(3), .syn = syn,
		.rst = !syn && !below(8) };
	p->skb->len = p->iph.len + 4 * p->skb->th.doff + bytes[below(4)];
	if (syn)
		numbers[++numbers[0]] = seq;
}

/* What happened to claims, as both see it */
static unsigned int held, ended, refused, dropped;

/* False if they differ; the claim is @over, if they refuse the packet */
static bool step(struct mhs_packet *p, struct ip_vs_conn *module,
		 struct ip_vs_conn *posting, unsigned long began, bool *over)
{
	bool was = posting->claim;
	bool holds = !was || ip_vs_claim_holds(posting, p->skb, &p->iph, false);
	enum whose whose = entry_whose(p, module);

	*over = !holds;
	dropped += whose == OF_EITHER;
	refused += whose == OF_OLDER;
	held += was && holds;
	ended += was && !posting->claim;
	return holds == (whose == OF_ENTRY) && whose != OF_NEWER &&
	       posting->claim == !!module->in_seq.delta &&
	       (whose != OF_EITHER || jiffies - began < HZ + 4);
}

int main(void)
{
	static const u32 passed[] = { 0, 0, 1, HZ / 2, 2 * HZ, 20 * HZ };
	struct sk_buff skb;
	struct mhs_packet p = { .skb = &skb, .iph = { 20, IPPROTO_TCP } };
	bool over;
	u32 try, i;

	for (try = 0; try < TRIES; try++) {
		struct ip_vs_conn module = { .protocol = IPPROTO_TCP };
		struct ip_vs_conn posting = module;
		u32 numbers[STEPS + 2] = { 0 };
		unsigned long began = jiffies += 1000 + below(1000);

		packet(&p, true, numbers);
		claim_begin(&p, &module);
		posting.claim = true;
		ip_vs_claim_holds(&posting, &skb, &p.iph, true);
		for (i = 0, over = false; i < STEPS && !over; i++) {
			jiffies += passed[below(6)];
			packet(&p, !below(3), numbers);
			if (!step(&p, &module, &posting, began, &over)) {
				printf("they differ: try %u, step %u\n", try, i);
				return 1;
			}
		}
	}
	printf("held %u, ended %u, refused %u, dropped %u\n", held, ended,
	       refused, dropped);
	return !(held && ended && refused && dropped);
}
