// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the services of a namespace.
 *
 * The table of services, which packets look up, and what packets ask of one.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "ip_vs_mhs_pkt.h"

static unsigned int svc_mark_ignore __read_mostly;
module_param_named(mark_ignore, svc_mark_ignore, uint, 0644);
MODULE_PARM_DESC(mark_ignore, "bits of the packet mark that never mean a service by firewall mark (default 0)");

unsigned int ip_vs_mhs_svc_net_id __read_mostly;

/* The hash tables of a namespace, under RCU; NULL without a service */
static struct ip_vs_mhs_hash *
svc_hash(const struct ip_vs_mhs_net *mn)
{
	return rcu_dereference(mn->hash);
}

/* Key of the hash tables by address and port.  The administrator of the
 * namespace chooses what is in them: nothing for an adversary to aim at.
 */
static u32 svc_key_addr(u16 af, const union nf_inet_addr *addr,
			__be16 port)
{
	__be32 fold = addr->ip;

	if (af == AF_INET6)
		fold ^= addr->ip6[1] ^ addr->ip6[2] ^ addr->ip6[3];
	return hash_64((u64)(__force u32)fold << 16 | (__force u16)port, 32);
}

static u32 svc_key(const struct ip_vs_mhs *mhs)
{
	return mhs->fwmark ? mhs->fwmark :
	       svc_key_addr(mhs->af, &mhs->addr, mhs->port);
}

/**
 * ip_vs_mhs_svc_hash() - packets find the service from now on
 * @mhs: the service
 *
 * Context: process.
 */
void ip_vs_mhs_svc_hash(struct ip_vs_mhs *mhs)
{
	spin_lock(&mhs->hash->lock);
	hash_add_rcu(mhs->hash->services, &mhs->node, svc_key(mhs));
	spin_unlock(&mhs->hash->lock);
}

/**
 * ip_vs_mhs_svc_unhash() - no more packets find the service
 * @mhs: the service; not all have been hashed
 *
 * Packets that have found it may still use it for a grace period.
 *
 * Context: process.
 */
void ip_vs_mhs_svc_unhash(struct ip_vs_mhs *mhs)
{
	/* only its owner hashes it, neighbours in the chain come and go */
	if (hlist_unhashed_lockless(&mhs->node))
		return;
	spin_lock(&mhs->hash->lock);
	hash_del_rcu(&mhs->node);
	spin_unlock(&mhs->hash->lock);
}

/**
 * ip_vs_mhs_svc_find() - find the service a packet is for
 * @mn: the packet's namespace
 * @af: address family
 * @protocol: transport protocol
 * @addr: destination address
 * @port: destination port
 *
 * Context: any, under RCU.
 * Return: the service, without a reference, or NULL.
 */
struct ip_vs_mhs *ip_vs_mhs_svc_find(const struct ip_vs_mhs_net *mn, u16 af,
				     u16 protocol, const union nf_inet_addr *addr,
				 __be16 port)
{
	struct ip_vs_mhs_hash *hash = svc_hash(mn);
	struct ip_vs_mhs *mhs;

	if (!hash)
		return NULL;
	hash_for_each_possible_rcu(hash->services, mhs, node,
				   svc_key_addr(af, addr, port))
		if (mhs->port == port && mhs->af == af &&
		    ip_vs_addr_equal(af, &mhs->addr, addr) &&
		    mhs->protocol == protocol && !mhs->fwmark)
			return mhs;
	return NULL;
}

/**
 * ip_vs_mhs_svc_find_mark() - find the service of a firewall mark
 * @mn: the packet's namespace
 * @af: address family
 * @fwmark: its mark, not 0
 *
 * Context: any, under RCU.
 * Return: the service, without a reference, or NULL.
 */
struct ip_vs_mhs *ip_vs_mhs_svc_find_mark(const struct ip_vs_mhs_net *mn, u16 af,
					  u32 fwmark)
{
	struct ip_vs_mhs_hash *hash = svc_hash(mn);
	struct ip_vs_mhs *mhs;

	if (!hash)
		return NULL;
	hash_for_each_possible_rcu(hash->services, mhs, node, fwmark)
		if (mhs->fwmark == fwmark && mhs->af == af)
			return mhs;
	return NULL;
}

/**
 * ip_vs_mhs_svc_unsure() - may a service that is not ours own the mark?
 * @mhs: the service that the packet is for otherwise
 * @mark: the packet's mark
 *
 * The core asks services by firewall mark first.  Where it does not count
 * them, our number of services and the core's differ for a moment while a
 * service comes or goes: only when they agreed in two looks, a second apart,
 * is nobody else's there.
 *
 * Context: softirq or process, under RCU.
 * Return: true if the core has to decide.
 */
bool ip_vs_mhs_svc_unsure(const struct ip_vs_mhs *mhs, u32 mark)
{
	struct ip_vs_mhs_net *mn = mhs->net;

	if (likely(!(mark & ~READ_ONCE(svc_mark_ignore))) || mhs->fwmark)
		return false;
	if (READ_ONCE(mn->foreign))
		return true;
	if (!ip_vs_mhs_foreign(mhs->ipvs, READ_ONCE(mn->services),
			       READ_ONCE(mn->fwm_services)))
		return false;
	WRITE_ONCE(mn->foreign, true);
	return true;
}

/**
 * ip_vs_mhs_svc_server() - find the server of an ip_vs_dest
 * @mhs: the service
 * @dest: the core's server
 *
 * Context: any, under RCU, or process with mhs.lock held.
 * Return: the server, listed or gone, without a reference, or NULL.
 */
struct ip_vs_mhs_server *ip_vs_mhs_svc_server(const struct ip_vs_mhs *mhs,
					      const struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_server *s;

	hash_for_each_possible_rcu(mhs->by_dest, s, node, (unsigned long)dest,
				   lockdep_is_held(&mhs->lock))
		if (s->dest == dest)
			return s;
	return NULL;
}

static const char *svc_name(const struct ip_vs_mhs *mhs, char *buf, size_t len)
{
	if (mhs->fwmark)
		snprintf(buf, len, "FWM %u", mhs->fwmark);
	else if (mhs->af == AF_INET6)
		snprintf(buf, len, "[%pI6c]:%u", &mhs->addr.in6,
			 ntohs(mhs->port));
	else
		snprintf(buf, len, "%pI4:%u", &mhs->addr.ip,
			 ntohs(mhs->port));
	return buf;
}

/**
 * ip_vs_mhs_svc_warn_once() - say something about a service in the log
 * @mhs: the service
 * @bit: MHS_WARN_*, what is said once only
 * @what: the text
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_svc_warn_once(struct ip_vs_mhs *mhs, u8 bit, const char *what)
{
	char name[64];

	lockdep_assert_held(&mhs->lock);
	if (mhs->warned & bit)
		return;
	mhs->warned |= bit;
	pr_warn_ratelimited("%s: %s\n", svc_name(mhs, name, sizeof(name)), what);
}

/**
 * ip_vs_mhs_svc_put() - drop a reference to a service
 * @mhs: the service
 *
 * The last one goes a grace period after done_service(), or in the RCU
 * callback of the last server.
 *
 * Context: any but hard interrupt.
 */
void ip_vs_mhs_svc_put(struct ip_vs_mhs *mhs)
{
	if (!refcount_dec_and_test(&mhs->refcnt))
		return;
	if (mhs->hash && refcount_dec_and_test(&mhs->hash->refcnt))
		kvfree(mhs->hash);
	free_percpu(mhs->cnt);
	kvfree(mhs->slots);
	/* no reader is left, so nobody can change it either */
	kvfree(rcu_dereference_raw(mhs->servers));
	kfree(mhs);
}

static void svc_rcu_put(struct rcu_head *head)
{
	ip_vs_mhs_svc_put(container_of(head, struct ip_vs_mhs, rcu));
}

/**
 * ip_vs_mhs_svc_put_rcu() - drop a reference after a grace period
 * @mhs: the service
 *
 * Context: any; once for each service.
 */
void ip_vs_mhs_svc_put_rcu(struct ip_vs_mhs *mhs)
{
	call_rcu(&mhs->rcu, svc_rcu_put);
}
