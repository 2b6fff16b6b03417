// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: pairs.
 *
 * A pair is the address and the port of a server that masquerades without
 * entries.  Replies come from the pair, so the pair identifies the service.
 * Each pair has one owner, a server.  All namespaces share one rhashtable.
 */
#include <linux/rhashtable.h>

#include "ip_vs_mhs_pkt.h"

static const struct rhashtable_params mhs_pair_params = {
	.key_len		= sizeof(struct ip_vs_mhs_pair),
	.key_offset		= offsetof(struct ip_vs_mhs_server, pair),
	.head_offset		= offsetof(struct ip_vs_mhs_server, pair_node),
	.automatic_shrinking	= true,
};

static struct rhashtable mhs_pairs;

/**
 * ip_vs_mhs_pair_init() - allocate the table of pairs
 *
 * Context: process, at module load.
 * Return: 0 or -ENOMEM.
 */
int ip_vs_mhs_pair_init(void)
{
	return rhashtable_init(&mhs_pairs, &mhs_pair_params);
}

/**
 * ip_vs_mhs_pair_exit() - free the table of pairs
 *
 * Context: process, after the last service and after all packets in hooks.
 */
void ip_vs_mhs_pair_exit(void)
{
	rhashtable_destroy(&mhs_pairs);
}

static void pair_fill(struct ip_vs_mhs_pair *pair,
		      const struct ip_vs_mhs_net *mn, u16 af, u16 protocol,
		      const union nf_inet_addr *addr, __be16 port)
{
	*pair = (struct ip_vs_mhs_pair){
		.mn		= mn,
		.port		= port,
		.af		= af,
		.protocol	= protocol,
	};
	ip_vs_addr_copy(af, &pair->addr, addr);
}

/**
 * ip_vs_mhs_pair_find() - find the server that owns a pair
 * @mn: the namespace
 * @af: address family
 * @protocol: transport protocol
 * @addr: address of the pair
 * @port: port of the pair
 *
 * Context: any, under RCU.
 * Return: the server, without a reference, or NULL.
 */
struct ip_vs_mhs_server *ip_vs_mhs_pair_find(const struct ip_vs_mhs_net *mn,
					     u16 af, u16 protocol,
					     const union nf_inet_addr *addr,
					     __be16 port)
{
	struct ip_vs_mhs_pair pair;

	pair_fill(&pair, mn, af, protocol, addr, port);
	return rhashtable_lookup(&mhs_pairs, &pair, mhs_pair_params);
}

/**
 * ip_vs_mhs_pair_claim() - make a server the owner of its pair
 * @s: a masquerading server that does not own its pair
 *
 * Context: process, mhs.lock held.
 * Return: 0, -EEXIST when another server owns the pair, or -ENOMEM.
 */
int ip_vs_mhs_pair_claim(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs *mhs = s->mhs;
	int err;

	lockdep_assert_held(&mhs->lock);
	pair_fill(&s->pair, mhs->net, s->dest->af, mhs->protocol,
		  &s->dest->addr, s->dest->port ? s->dest->port : mhs->port);
	err = rhashtable_lookup_insert_fast(&mhs_pairs, &s->pair_node,
					    mhs_pair_params);
	/* -ENOMEM makes the work try again after any temporary error */
	if (err)
		return err == -EEXIST ? err : -ENOMEM;
	s->owns_pair = true;
	atomic_inc(&mhs->net->pairs[mhs->af == AF_INET6]);
	return 0;
}

/**
 * ip_vs_mhs_pair_drop() - take the pair from its owner
 * @s: the owner
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_pair_drop(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	s->owns_pair = false;
	rhashtable_remove_fast(&mhs_pairs, &s->pair_node, mhs_pair_params);
	atomic_dec(&mhs->net->pairs[mhs->af == AF_INET6]);
}
