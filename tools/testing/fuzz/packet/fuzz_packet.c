// SPDX-License-Identifier: GPL-2.0-only
/* Any packet on any hook of the module: the packet path and what it calls of
 * the core, all of it as in a kernel.
 *
 *	bytes 0 to 8	struct setting
 *	then		the packet, from its network header
 *
 * What the IP layer checks before a hook is made good: the length of the
 * packet, that of its header, the checksum of that.
 */
#include <linux/netdevice.h>
#include <net/ip.h>
#include <net/netfilter/nf_conntrack.h>
#include <net/route.h>

#include "fuzz_packet.h"

static const struct nf_hook_ops *hook_ops(void)
{
	bool v6 = world.af == AF_INET6;
	const struct nf_hook_ops *ops = world.mn.ops[v6];

	world.mhs.hashed = true;
	WANT(!mhs_packet_hook(&world.mn, &world.mhs));
	while (ops->hooknum != world.hook)
		ops++;
	return ops;
}

/* Returns the length of the network header, 0 when there is none */
static unsigned int make_good(u8 *b, unsigned int len)
{
	struct iphdr *ih = (struct iphdr *)b;

	if (world.af == AF_INET6) {
		if (len < sizeof(struct ipv6hdr))
			return 0;
		b[0] = 0x60 | (b[0] & 15);
		b[4] = (len - sizeof(struct ipv6hdr)) >> 8;
		b[5] = len - sizeof(struct ipv6hdr);
		return sizeof(struct ipv6hdr);
	}
	if (len < sizeof(*ih))
		return 0;
	ih->version = 4;
	if (ih->ihl < 5 || ih->ihl * 4 > len)
		ih->ihl = 5;
	ih->tot_len = htons(len);
	ip_send_check(ih);
	return ih->ihl * 4;
}

/* The core may ask for a server of what was not taken */
static void ask(const struct sk_buff *skb)
{
	struct ip_vs_iphdr iph;
	struct ip_vs_dest *dest;

	if (!ip_vs_fill_iph_skb(world.af, skb, false, &iph) || iph.fragoffs)
		return;
	dest = mhs_entry_schedule(&world.svc, skb, &iph);
	WANT(!dest || (dest > world.dest && dest <= world.dest + SERVERS));
}

static void packet_arrive(struct sk_buff *skb, const u8 *b, unsigned int len,
			  unsigned int linear)
{
	static struct net_device dev;
	static struct rtable route = { .dst.dev = &dev };

	packet_new(skb, b, len, linear);
	skb->pkt_type = PACKET_HOST;
	skb->mark = world.is->path & PATH_MARK ? 1 : 0;
	skb->dev = world.is->answers & ANSWER_NO_DEVICE ? NULL : &dev;
	skb->_skb_refdst = (unsigned long)&route.dst;
}

static unsigned int hook(struct sk_buff *skb)
{
	struct nf_hook_state state = {
		.pf	= world.af == AF_INET6 ? NFPROTO_IPV6 : NFPROTO_IPV4,
		.hook	= world.hook,
		.net	= &world.net,
	};

	return hook_ops()->hook(&world.mn, skb, &state);
}

static void run(const struct setting *is, const u8 *b, unsigned int len,
		unsigned int linear, struct outcome *out)
{
	static struct nf_conn ct;
	struct sk_buff skb;

	memset(out, 0, sizeof(*out));
	world_set(is, out);
	packet_arrive(&skb, b, len, linear);
	if (is->slots & ENTRY_NFCT) {
		ct.status = is->slots & ENTRY_CONFIRMED ? IPS_CONFIRMED : 0;
		refcount_set(&ct.ct_general.use, 2);	/* ours, the packet's */
		nf_ct_set(&skb, &ct, IP_CT_NEW);
	}
	if (is->path & PATH_COMPLETE)
		skb.ip_summed = CHECKSUM_COMPLETE;
	if (is->path & PATH_PARTIAL)
		skb.ip_summed = CHECKSUM_PARTIAL;
	out->verdict = hook(&skb);
	out->cnt = world.cnt;
	memcpy(out->slots, world.slots, sizeof(out->slots));
	if (!out->taken) {
		WANT(skb.head);
		if (out->verdict == NF_ACCEPT)
			ask(&skb);
		packet_copy(&skb, out);
		packet_free(&skb);
		out->done = skb.ipvs_property;
	}
	out->tracked = skb_nfct(&skb);
	if (is->slots & ENTRY_NFCT)
		WANT(refcount_read(&ct.ct_general.use) == 1 + out->tracked);
	world_end();
	oracle(b, len, out);
}

/* Who got the packet, and how does it look? */
static void same_fate(const struct outcome *a, const struct outcome *b)
{
	WANT(a->verdict == b->verdict && a->taken == b->taken &&
	     a->done == b->done && a->server == b->server &&
	     a->by_entry == b->by_entry &&
	     a->told == b->told && a->tracked == b->tracked);
	WANT(a->len == b->len && !memcmp(a->bytes, b->bytes, a->len));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct outcome out, too;
	unsigned int len, header;
	struct setting is, as;
	u8 b[LONGEST];

	if (size < sizeof(is) || size > sizeof(is) + LONGEST)
		return 0;
	memcpy(&is, data, sizeof(is));
	len = size - sizeof(is);
	memcpy(b, data + sizeof(is), len);
	world_set(&is, &out);
	header = make_good(b, len);
	if (header && is.answers & ANSWER_SUMS)
		oracle_sum_right(b, len);
	world_end();
	if (!header)
		return 0;
	run(&is, b, len, min(len, header + is.linear), &out);
	/* where every flow is to have an entry, one that gets none goes as
	 * where none is to
	 */
	if (is.life & LIFE_STATEFUL && !out.made && !oracle_begins(b, len) &&
	    !oracle_id(b, len)) {
		as = is;
		as.life &= ~LIFE_STATEFUL;
		run(&as, b, len, min(len, header + is.linear), &too);
		same_fate(&out, &too);
	}
	/* the same wherever the linear part ends, given memory */
	run(&is, b, len, min(len, header + is.linear_too), &too);
	WANT(is.answers & ANSWER_NO_MEMORY ||
	     !memcmp(&out, &too, sizeof(out)));
	return 0;
}
