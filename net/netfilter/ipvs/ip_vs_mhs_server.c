// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: real servers and their carriers.
 *
 * A server knows its ip_vs_dest, its index in slot words and, unless all its
 * flows have entries, a carrier: an unhashed connection entry by which the
 * core's own transmitters send packets that have none.
 *
 * The core ignores what add_dest, upd_dest and del_dest return.  A removal
 * allocates nothing; what an addition or an update could not allocate is
 * tried again from the work (ip_vs_mhs_server_reconcile()).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/route.h>

#include "ip_vs_mhs_ctl.h"

/* First size of servers[]; it doubles */
#define MHS_SERVERS_MIN		16

/* Carriers */

static void carrier_put(struct ip_vs_conn *carrier)
{
	/* first: the number is never too large */
	atomic_dec(&ip_vs_mhs_net(carrier->ipvs->net)->carriers);
	/* Pairs with the barriers in ip_vs_mhs_has_entries() */
	smp_mb__after_atomic();
	/* see carrier_new(); nobody uses it any more */
	carrier->flags |= IP_VS_CONN_F_ONE_PACKET;
	ip_vs_conn_put(carrier);
}

static void carrier_rcu_put(struct rcu_head *head)
{
	/* A one-packet entry is freed without its rcu_head, so that is ours */
	carrier_put(container_of(head, struct ip_vs_conn, rcu_head));
}

/* ip_vs_conn_new() looks for a helper in an RCU list */
static struct ip_vs_conn *conn_new(const struct ip_vs_conn_param *param,
				   const struct ip_vs_dest *dest,
				       __be16 port, u32 flags,
				       struct ip_vs_dest *to)
{
	struct ip_vs_conn *cp;

	rcu_read_lock();
	cp = ip_vs_conn_new(param, dest->af, &dest->addr, port,
			    flags | IP_VS_CONN_F_ONE_PACKET |
			    IP_VS_CONN_F_TEMPLATE, to, 0);
	rcu_read_unlock();
	if (cp)
		atomic_inc(&ip_vs_mhs_net(cp->ipvs->net)->carriers);
	return cp;
}

static struct ip_vs_conn *carrier_new(struct ip_vs_mhs *mhs,
				      struct ip_vs_dest *dest)
{
	const union nf_inet_addr any = {};
	struct ip_vs_conn_param param;
	struct ip_vs_conn *carrier;

	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, mhs->protocol, &any, 0,
			      &mhs->addr, mhs->port, &param);
	/* A one-packet template is not hashed and counts for no server */
	carrier = conn_new(&param, dest,
			   dest->port ? dest->port : mhs->port, 0, dest);
	/* With vs.conntrack=1 the transmitter tells conntrack where replies
	 * come from, but not for one packet.  Without the flag the carrier
	 * must not be put, see carrier_put().
	 */
	if (carrier)
		carrier->flags &= ~IP_VS_CONN_F_ONE_PACKET;
	return carrier;
}

/* Sends a packet to the server's address and leaves it as it is */
static struct ip_vs_conn *via_new(struct ip_vs_mhs *mhs,
				  const struct ip_vs_dest *dest)
{
	const union nf_inet_addr any = {};
	struct ip_vs_conn_param param;

	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, mhs->protocol, &any, 0,
			      &mhs->addr, mhs->port, &param);
	return conn_new(&param, dest, 0, IP_VS_CONN_F_DROUTE, NULL);
}

static bool carrier_fits(const struct ip_vs_mhs *mhs,
			 const struct ip_vs_conn *carrier,
			 const struct ip_vs_dest *dest)
{
	bool nfct = ip_vs_mhs_conntrack(mhs->ipvs);

	return IP_VS_FWD_METHOD(carrier) == IP_VS_DFWD_METHOD(dest) &&
	       !!(carrier->flags & IP_VS_CONN_F_NFCT) == nfct;
}

static bool dest_is_local(const struct ip_vs_mhs *mhs,
			  const struct ip_vs_dest *dest)
{
	struct net *net = mhs->ipvs->net;

#ifdef CONFIG_IP_VS_IPV6
	/* an address that is still being checked for a twin is local, too */
	if (dest->af == AF_INET6)
		return ipv6_chk_addr_and_flags(net, &dest->addr.in6, NULL,
					       true, 0, 0);
#endif
	return inet_addr_type(net, dest->addr.ip) == RTN_LOCAL;
}

/* Shall the flows of a masquerading server have entries for good?  With a helper,
 * which needs state; where the way back is not known (ip_vs_mhs_nat.c); where the
 * administrator has not said that all packets of the server are the service's.
 * He decides for new servers: of others there may be flows without an entry.
 */
static bool masq_keeps_entries(const struct ip_vs_mhs *mhs,
			       const struct ip_vs_dest *dest)
{
	return !READ_ONCE(mhs->net->masq_stateless) || !mhs->port ||
	       mhs->fwmark || mhs->port == FTPPORT ||
	       mhs->protocol == IPPROTO_SCTP || dest->af != mhs->af ||
	       dest_is_local(mhs, dest);
}

/* Can a masquerading server do without?
 * Return: 0 if so, -EEXIST if not, or -ENOMEM.
 */
static int masq_claim(struct ip_vs_mhs_server *s)
{
	int err;

	if (s->keeps_entries)
		return -EEXIST;
	if (s->owns_pair)
		return 0;
	/* with the first owner of a namespace comes the FORWARD hook */
	err = ip_vs_mhs_hook_forward_get(s->mhs->net, s->mhs->af == AF_INET6);
	if (err)
		return err;
	err = ip_vs_mhs_pair_claim(s);
	if (err)
		ip_vs_mhs_hook_forward_put(s->mhs->net,
					   s->mhs->af == AF_INET6);
	/* also when the owner is gone: what it forwarded may come back to it */
	if (err == -EEXIST)
		s->keeps_entries = true;
	return err;
}

static void masq_release(struct ip_vs_mhs_server *s)
{
	if (!s->owns_pair)
		return;
	ip_vs_mhs_pair_drop(s);
	ip_vs_mhs_hook_forward_put(s->mhs->net, s->mhs->af == AF_INET6);
}

/* Would the carrier treat older flows in a way that their server does not
 * understand?
 */
static bool carrier_is_frozen(const struct ip_vs_mhs_server *s,
			      const struct ip_vs_conn *carrier)
{
	bool was = IP_VS_FWD_METHOD(carrier) == IP_VS_CONN_F_MASQ;
	bool is = IP_VS_DFWD_METHOD(s->dest) == IP_VS_CONN_F_MASQ;

	return was != is && READ_ONCE(s->mhs->phase) != MHS_SETTLING;
}

static void carrier_set(struct ip_vs_conn __rcu **place,
			struct ip_vs_conn *fresh, struct mutex *lock)
{
	struct ip_vs_conn *old;

	old = rcu_replace_pointer(*place, fresh, lockdep_is_held(lock));
	/* the exit of a namespace waits for it */
	if (old)
		ip_vs_mhs_call_rcu(&old->rcu_head, carrier_rcu_put);
}

/* Give the server a carrier that does what its ip_vs_dest says now */
static int server_carrier(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs *mhs = s->mhs;
	struct ip_vs_conn *carrier, *via = NULL;

	carrier = rcu_dereference_protected(s->carrier,
					    lockdep_is_held(&mhs->lock));
	if (carrier && carrier_fits(mhs, carrier, s->dest))
		return 0;
	carrier = carrier_new(mhs, s->dest);
	if (!carrier)
		return -ENOMEM;
	if (carrier->app) {
		/* a helper keeps state: one for all flows will not do */
		carrier_put(carrier);
		return -EOPNOTSUPP;
	}
	if (IP_VS_FWD_METHOD(carrier) == IP_VS_CONN_F_MASQ) {
		via = via_new(mhs, s->dest);
		if (!via) {
			carrier_put(carrier);
			return -ENOMEM;
		}
	}
	carrier_set(&s->via, via, &mhs->lock);
	carrier_set(&s->carrier, carrier, &mhs->lock);
	return 0;
}

/* What follows from the server's forwarding method.  Flows from before a
 * change to or from masquerading go on by the carrier from before, and only
 * they: new ones have entries from then on.
 */
static u32 server_method(struct ip_vs_mhs_server *s)
{
	bool masq = IP_VS_DFWD_METHOD(s->dest) == IP_VS_CONN_F_MASQ;
	struct ip_vs_mhs *mhs = s->mhs;
	struct ip_vs_conn *carrier;
	bool stateless;
	u32 state = 0;
	int err = 0;

	carrier = rcu_dereference_protected(s->carrier,
					    lockdep_is_held(&mhs->lock));
	if ((carrier && carrier_is_frozen(s, carrier)) ||
	    IP_VS_DFWD_METHOD(s->dest) == IP_VS_CONN_F_BYPASS)
		err = -EOPNOTSUPP;
	else if (masq)
		err = masq_claim(s);
	if (!err && mhs->hashed)
		err = server_carrier(s);
	if (err == -ENOMEM) {
		ip_vs_mhs_count(mhs, MHS_CNT_NOMEM);
		mhs->missing = true;
	}
	stateless = !err || err == -ENOMEM;
	carrier = rcu_dereference_protected(s->carrier,
					    lockdep_is_held(&mhs->lock));
	if (!stateless)
		state |= MHS_SRV_TRACKED |
			 (carrier ? MHS_SRV_FROZEN : MHS_SRV_STATEFUL);
	if (carrier && IP_VS_FWD_METHOD(carrier) == IP_VS_CONN_F_MASQ)
		state |= MHS_SRV_NAT;
	else if (!stateless || !masq)
		masq_release(s);
	return state;
}

/**
 * ip_vs_mhs_server_refresh() - make a server what its ip_vs_dest says
 * @s: the server
 *
 * Context: process, mhs.lock held.
 * Return: true if the table changes.
 */
bool ip_vs_mhs_server_refresh(struct ip_vs_mhs_server *s)
{
	int weight = atomic_read(&s->dest->weight);
	struct ip_vs_mhs *mhs = s->mhs;
	bool changed = weight != s->weight;
	u32 state = 0;

	lockdep_assert_held(&mhs->lock);
	if (weight > 0)
		state |= MHS_SRV_IN;
	if (READ_ONCE(s->dest->u_threshold))
		state |= MHS_SRV_TRACKED;
	/* The carrier first: packets look for one when the state says so */
	WRITE_ONCE(s->state, state | server_method(s));
	s->weight = weight;
	return changed;
}

/* Servers */

static void server_rcu_free(struct rcu_head *head)
{
	struct ip_vs_mhs_server *s = container_of(head,
						  struct ip_vs_mhs_server,
						  rcu);
	/* nobody can reach the server any more */
	struct ip_vs_conn *carrier = rcu_dereference_raw(s->carrier);
	struct ip_vs_conn *via = rcu_dereference_raw(s->via);
	struct ip_vs_mhs *mhs = s->mhs;

	/* The carriers last: once they are put, the namespace may go */
	ip_vs_dest_put_and_free(s->dest);
	if (via)
		carrier_put(via);
	if (carrier)
		carrier_put(carrier);
	clear_bit(s->idx, mhs->idx_map);
	kfree(s);
	ip_vs_mhs_svc_put(mhs);
}

static void server_release(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs *mhs = s->mhs;

	servers = rcu_dereference_protected(mhs->servers,
					    lockdep_is_held(&mhs->lock));
	RCU_INIT_POINTER(servers->s[s->idx], NULL);
	masq_release(s);
	hash_del_rcu(&s->node);
	list_del(&s->list);
	/* it puts the carriers, for which the exit of a namespace waits */
	ip_vs_mhs_call_rcu(&s->rcu, server_rcu_free);
}

static int server_order(const struct ip_vs_dest *a, const struct ip_vs_dest *b)
{
	return ip_vs_mhs_table_order(a->af, &a->addr, a->port,
				     b->af, &b->addr, b->port);
}

/* Keep the list sorted, whatever the order of commands: the table depends on
 * it.  Servers tend to come in order, so look from the end.
 */
static void server_list(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs_server *pos;

	list_for_each_entry_reverse(pos, &s->mhs->listed, list)
		if (server_order(pos->dest, s->dest) < 0)
			break;
	list_add(&s->list, &pos->list);
	s->mhs->n_listed++;
}

/**
 * ip_vs_mhs_server_find() - find a server that is in mhs.listed
 * @mhs: the service
 * @dest: the core's server
 *
 * Context: process, mhs.lock held.
 * Return: the server or NULL.
 */
struct ip_vs_mhs_server *ip_vs_mhs_server_find(const struct ip_vs_mhs *mhs,
					       const struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_server *s;

	lockdep_assert_held(&mhs->lock);
	s = ip_vs_mhs_svc_server(mhs, dest);
	return s && s->state & MHS_SRV_GONE ? NULL : s;
}

/**
 * ip_vs_mhs_server_grow() - make room for an index in servers[]
 * @mhs: the service
 * @idx: the index
 *
 * Context: process, mhs.lock held.
 * Return: 0 or -ENOMEM; the larger array is published.
 */
int ip_vs_mhs_server_grow(struct ip_vs_mhs *mhs, u32 idx)
{
	struct ip_vs_mhs_servers *old, *new;
	u32 max = MHS_SERVERS_MIN;

	old = rcu_dereference_protected(mhs->servers,
					lockdep_is_held(&mhs->lock));
	if (old && idx < old->max)
		return 0;
	while (max <= idx)
		max *= 2;
	new = kvzalloc(struct_size(new, s, max), GFP_KERNEL_ACCOUNT);
	if (!new)
		return -ENOMEM;
	new->max = max;
	if (old) {
		memcpy(new->s, old->s, old->max * sizeof(new->s[0]));
		rcu_assign_pointer(mhs->servers, new);
		kvfree_rcu(old, rcu);
	} else {
		RCU_INIT_POINTER(mhs->servers, new);
	}
	return 0;
}

/* Is an index free, or about to be after the grace period of its server?  Each
 * server that is known has one.
 */
static bool index_is_near(const struct ip_vs_mhs *mhs)
{
	u32 known = mhs->n_listed;
	struct ip_vs_mhs_server *s;

	list_for_each_entry(s, &mhs->gone, list)
		known++;
	return known < MHS_IDX_MAX;
}

/* Know the server @dest: new, or deleted a while ago and back.  The work may
 * have found it in the core's list before its add_dest came.
 */
static int server_add(struct ip_vs_mhs *mhs, struct ip_vs_dest *dest)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs_server *s;
	u32 idx;
	int err;

	lockdep_assert_held(&mhs->lock);
	/* Back out of the trash, or from before we were the scheduler */
	if (ip_vs_mhs_dest_entries(dest))
		ip_vs_mhs_slots_track_older(mhs);

	s = ip_vs_mhs_svc_server(mhs, dest);
	if (s) {
		if (s->state & MHS_SRV_GONE) {
			list_del(&s->list);
			server_list(s);
		}
		ip_vs_mhs_server_refresh(s);
		return 0;
	}

	idx = find_next_zero_bit(mhs->idx_map, MHS_IDX_MAX + 1, 1);
	if (idx > MHS_IDX_MAX) {
		if (!(mhs->warned & MHS_WARN_FULL))
			pr_warn_ratelimited("a service can have %u servers, deleted ones that older flows still use included: the surplus gets no flow\n",
					    MHS_IDX_MAX);
		mhs->warned |= MHS_WARN_FULL;
		/* nobody else would come back to it */
		mhs->missing |= index_is_near(mhs);
		return -ENOSPC;
	}
	err = ip_vs_mhs_server_grow(mhs, idx);
	if (err)
		return err;
	s = kzalloc_obj(*s, GFP_KERNEL_ACCOUNT);
	if (!s)
		return -ENOMEM;
	s->mhs = mhs;
	s->idx = idx;
	s->keeps_entries = masq_keeps_entries(mhs, dest);
	s->id = ip_vs_mhs_hash_server(dest->af, &dest->addr, dest->port);
	s->dest = dest;
	ip_vs_dest_hold(dest);
	refcount_inc(&mhs->refcnt);
	set_bit(idx, mhs->idx_map);
	server_list(s);
	ip_vs_mhs_server_refresh(s);

	/* No slot names it yet: that is the last step, in a rebuild */
	servers = rcu_dereference_protected(mhs->servers,
					    lockdep_is_held(&mhs->lock));
	rcu_assign_pointer(servers->s[idx], s);
	hash_add_rcu(mhs->by_dest, &s->node, (unsigned long)dest);
	return 0;
}

/**
 * ip_vs_mhs_server_add() - know a server that the core has listed
 * @mhs: the service
 * @dest: the core's server
 *
 * Context: process, mhs.lock held.
 * Return: 0, -ENOSPC when the service has too many, or -ENOMEM: then it is
 *	tried again from the work.
 */
int ip_vs_mhs_server_add(struct ip_vs_mhs *mhs, struct ip_vs_dest *dest)
{
	int err = server_add(mhs, dest);

	if (err == -ENOMEM) {
		ip_vs_mhs_count(mhs, MHS_CNT_NOMEM);
		mhs->missing = true;
		pr_warn_ratelimited("no memory for a server: the table stays as it is until there is\n");
	}
	return err;
}

/**
 * ip_vs_mhs_server_gone() - the core has deleted a server
 * @s: the server
 *
 * It gets no new flow from now on; older ones are held.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_server_gone(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	WRITE_ONCE(s->state, (s->state & MHS_SRV_METHOD) | MHS_SRV_GONE);
	s->gone_until = jiffies + msecs_to_jiffies(ip_vs_mhs_time_hold_ms(mhs)) +
			msecs_to_jiffies(ip_vs_mhs_time_pin_ms(mhs));
	s->named = true;
	list_move(&s->list, &mhs->gone);
	mhs->n_listed--;
}

/**
 * ip_vs_mhs_server_release_gone() - forget deleted servers
 * @mhs: the service
 * @all: those that are in use too, and those that are listed: the service ends
 *
 * A server goes whose time is over, or whose flows are to be cut, if the last walk
 * found no slot that names it.  A named one waits for the walk that merges its
 * last slot.
 *
 * Context: process, mhs.lock held.
 */
void ip_vs_mhs_server_release_gone(struct ip_vs_mhs *mhs, bool all)
{
	bool cutting = ip_vs_mhs_cutting(mhs->ipvs);
	struct ip_vs_mhs_server *s, *next;

	lockdep_assert_held(&mhs->lock);
	if (all)
		list_splice_init(&mhs->listed, &mhs->gone);
	list_for_each_entry_safe(s, next, &mhs->gone, list) {
		if (!all && (s->named || (!cutting &&
					  time_before(jiffies, s->gone_until))))
			continue;
		server_release(s);
		/* room for a server that found none */
		mhs->missing |= !!(mhs->warned & MHS_WARN_FULL);
	}
}

/**
 * ip_vs_mhs_server_reconcile() - make what an earlier callback had no memory for
 * @mhs: the service
 *
 * The callback for a server of the core's list may still be waiting for
 * mhs.lock: a del_dest removes again what was added here, an add_dest finds it.
 *
 * Context: process, mhs.lock held.
 * Return: true if the table changes; mhs.missing if something still is.
 */
bool ip_vs_mhs_server_reconcile(struct ip_vs_mhs *mhs)
{
	struct ip_vs_dest *dest, *found;
	struct ip_vs_mhs_server *s;
	bool changed = false;

	lockdep_assert_held(&mhs->lock);
	mhs->missing = false;
	if (!mhs->svc)
		return false;
	list_for_each_entry(s, &mhs->listed, list)
		changed |= ip_vs_mhs_server_refresh(s);
	do {
		found = NULL;
		rcu_read_lock();
		list_for_each_entry_rcu(dest, &mhs->svc->destinations, n_list)
			if (ip_vs_mhs_dest_listed(dest) &&
			    !ip_vs_mhs_server_find(mhs, dest)) {
				found = dest;
				ip_vs_dest_hold(found);
				break;
			}
		rcu_read_unlock();
		if (found) {
			int err = ip_vs_mhs_server_add(mhs, found);

			/* the core's own reference is still there */
			ip_vs_dest_put(found);
			if (err)
				break;
			changed = true;
		}
	} while (found);
	return changed;
}
