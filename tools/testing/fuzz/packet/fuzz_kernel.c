// SPDX-License-Identifier: GPL-2.0-only
/* The packet fuzzer: what a kernel has for the module.
 *
 * A packet has a linear part, which ends where poisoned memory begins, and a
 * rest.  Whatever may move the linear part does: the old one is freed.
 */
#include <linux/icmp.h>
#include <linux/netfilter_ipv6.h>
#include <linux/skbuff.h>
#include <net/checksum.h>
#include <net/icmp.h>
#include <net/ip6_checksum.h>
#include <net/route.h>

#include "fuzz_packet.h"

void __asan_poison_memory_region(const volatile void *p, size_t size);

#define GUARD	64	/* bytes nobody may touch */

DEFINE_PER_CPU(int, __preempt_count);
DEFINE_PER_CPU_READ_MOSTLY(unsigned long, this_cpu_off);
unsigned long volatile jiffies;

/* Packets */

static const u8 *rest;	/* of the only packet there is, up to its end */
static unsigned int rest_len;

static void packet_move(struct sk_buff *skb, unsigned int linear)
{
	unsigned int before = skb->head ? skb_headroom(skb) : 0;
	unsigned int end = ALIGN(before + linear + GUARD, 8);
	u8 *head = malloc(end + sizeof(struct skb_shared_info));

	if (skb->head)
		memcpy(head, skb->head, before + skb_headlen(skb));
	memset(head + end, 0, sizeof(struct skb_shared_info));
	free(skb->head);
	skb->head = head;
	skb->data = head + before;
	skb->end = end;
	skb_set_tail_pointer(skb, linear);
	__asan_poison_memory_region(skb_tail_pointer(skb),
				    end - before - linear);
}

void packet_new(struct sk_buff *skb, const u8 *bytes, unsigned int len,
		unsigned int linear)
{
	memset(skb, 0, sizeof(*skb));
	packet_move(skb, linear);
	memcpy(skb->data, bytes, linear);
	skb->len = len;
	skb->data_len = len - linear;
	rest = bytes + linear;
	rest_len = len - linear;
}

int skb_copy_bits(const struct sk_buff *skb, int offset, void *to, int len)
{
	const u8 *tail = rest + rest_len - skb->data_len;
	int linear = skb_headlen(skb), i;

	if (offset < 0 || len < 0 || offset > (int)skb->len - len)
		return -EFAULT;
	for (i = offset; i < offset + len; i++)
		((u8 *)to)[i - offset] = i < linear ? skb->data[i] :
						      tail[i - linear];
	return 0;
}

void packet_copy(const struct sk_buff *skb, struct outcome *out)
{
	out->len = skb->len;
	out->summed = skb->ip_summed;
	WANT(!skb_copy_bits(skb, 0, out->bytes, skb->len));
}

void packet_free(struct sk_buff *skb)
{
	WANT(skb->head);
	free(skb->head);
	skb->head = NULL;
}

void *__pskb_pull_tail(struct sk_buff *skb, int delta)
{
	unsigned int linear = skb_headlen(skb);
	u8 more[LONGEST];

	if (delta > (int)skb->data_len || world.is->answers & ANSWER_NO_MEMORY)
		return NULL;
	WANT(!skb_copy_bits(skb, linear, more, delta));
	packet_move(skb, linear + delta);
	memcpy(skb->data + linear, more, delta);
	skb->data_len -= delta;
	return skb_tail_pointer(skb);
}

int skb_ensure_writable(struct sk_buff *skb, unsigned int write_len)
{
	if (!pskb_may_pull(skb, write_len) ||
	    world.is->answers & ANSWER_NO_MEMORY)
		return -ENOMEM;
	packet_move(skb, skb_headlen(skb));
	return 0;
}

void consume_skb(struct sk_buff *skb)
{
	WANT(!world.out->taken);
	world.out->taken = true;
	packet_free(skb);
}

/* Checksums */

__wsum csum_partial(const void *buff, int len, __wsum sum)
{
	return (__force __wsum)oracle_sum(buff, len, (__force u32)sum);
}

__wsum skb_checksum(const struct sk_buff *skb, int offset, int len, __wsum sum)
{
	u8 bytes[LONGEST];

	WANT(!skb_copy_bits(skb, offset, bytes, len));
	return csum_partial(bytes, len, sum);
}

__wsum __skb_checksum(const struct sk_buff *skb, int offset, int len,
		      __wsum sum, const struct skb_checksum_ops *ops)
{
	u8 bytes[LONGEST];

	WANT(!skb_copy_bits(skb, offset, bytes, len));
	return ops->update(bytes, len, sum);
}

u32 crc32c(u32 crc, const void *data, unsigned int len)
{
	const u8 *byte = data;
	int i;

	while (len--) {
		crc ^= *byte++;
		for (i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return crc;
}

__sum16 csum_ipv6_magic(const struct in6_addr *saddr,
			const struct in6_addr *daddr, __u32 len, __u8 proto,
			__wsum sum)
{
	__be32 more[2] = { htonl(len), htonl(proto) };

	sum = csum_partial(saddr, 16, csum_partial(daddr, 16, sum));
	return csum_fold(csum_partial(more, 8, sum));
}

void ip_send_check(struct iphdr *ih)
{
	ih->check = 0;
	ih->check = csum_fold(csum_partial(ih, ih->ihl * 4, 0));
}

/* Routes, fragments, messages */

int ip_defrag(struct net *net, struct sk_buff *skb, u32 user)
{
	consume_skb(skb);
	return -EINPROGRESS;
}

void ipv4_update_pmtu(struct sk_buff *skb, struct net *net, u32 mtu, int oif,
		      u8 protocol)
{
	WANT(skb_headlen(skb) >= sizeof(struct iphdr));
}

unsigned int ipv4_mtu(const struct dst_entry *dst)
{
	return 1480;
}

void __icmp_send(struct sk_buff *skb, int type, int code, __be32 info,
		 const struct ip_options *opt)
{
	struct outcome *out = world.out;

	WANT(skb_network_header(skb) == skb->data);
	WANT(skb_headlen(skb) >= ip_hdrlen(skb));
	WANT(skb_transport_offset(skb) == ip_hdrlen(skb));
	out->told = true;
	out->told_type = type;
	out->told_code = code;
	out->told_info = ntohl(info);
	packet_copy(skb, out);
}

/* Locks: nobody else is here */

void _raw_spin_lock(raw_spinlock_t *lock) { }
void mutex_lock(struct mutex *lock) { }
void mutex_unlock(struct mutex *lock) { }
void _raw_spin_unlock(raw_spinlock_t *lock) { }
void _raw_spin_lock_bh(raw_spinlock_t *lock) { }
void _raw_spin_unlock_bh(raw_spinlock_t *lock) { }
int _raw_spin_trylock_bh(raw_spinlock_t *lock) { return 1; }
void __rcu_read_lock(void) { }
void __rcu_read_unlock(void) { }
void __local_bh_enable_ip(unsigned long ip, unsigned int cnt) { }

int nf_register_net_hooks(struct net *net, const struct nf_hook_ops *ops,
			  unsigned int n)
{
	return 0;
}
