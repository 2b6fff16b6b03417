// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: real servers and their carriers.
 *
 * The core's transmitters need an entry: a packet without uses a carrier.
 *
 * The core ignores what callbacks return.  So a removal allocates nothing, and
 * the work retries what else could not be allocated (mhs_server_reconcile()).
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <net/arp.h>
#include <net/ndisc.h>

#include "ip_vs_mhs_ctl.h"

/* Between two probes whether a server is there */
#define MHS_PROBE_EVERY		HZ

/* Others that one probe looks at: thousands may be due, under mhs.lock */
#define MHS_PROBE_OTHERS	64

static void carrier_put(struct ip_vs_conn *carrier)
{
	/* With a full barrier, before conn_count falls, see settle_has_entries() */
	atomic_dec_return(&mhs_net(carrier->ipvs->net)->carriers);
	/* No packet uses it.  Without the flag the put would start a timer */
	carrier->flags |= IP_VS_CONN_F_ONE_PACKET;
	ip_vs_conn_put(carrier);
}

static void carrier_rcu_put(struct rcu_head *head)
{
	/* the core frees a one-packet entry without using rcu_head */
	carrier_put(container_of(head, struct ip_vs_conn, rcu_head));
}

/* A one-packet template: the core neither hashes nor counts it for overload */
static struct ip_vs_conn *carrier_new(struct mhs *mhs, struct ip_vs_dest *dest)
{
	const union nf_inet_addr any = {};
	struct ip_vs_conn_param param;
	struct ip_vs_conn *carrier;

	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, mhs->protocol, &any, 0,
			      &mhs->addr, mhs->port, &param);
	carrier = ip_vs_conn_new(&param, dest->af, &dest->addr,
				 dest->port ? dest->port : mhs->port,
				 IP_VS_CONN_F_ONE_PACKET |
				 IP_VS_CONN_F_TEMPLATE, dest, 0);
	if (!carrier)
		return NULL;
	/* With a full barrier, after conn_count has risen, see there */
	atomic_inc_return(&mhs->mn->carriers);
	/* With the flag conntrack would not learn where replies come from */
	carrier->flags &= ~IP_VS_CONN_F_ONE_PACKET;
	return carrier;
}

/* Make a carrier if none fits; false if the core cannot send by the method */
static bool server_carrier(struct mhs_server *s)
{
	u32 method = IP_VS_DFWD_METHOD(s->dest);
	struct ip_vs_conn *carrier;
	struct mhs *mhs = s->mhs;
	bool nfct;

	carrier = rcu_dereference_protected(s->carrier,
					    lockdep_is_held(&mhs->lock));
	nfct = mhs_conntrack(mhs->ipvs);
	if (carrier && IP_VS_FWD_METHOD(carrier) == method &&
	    !!(carrier->flags & IP_VS_CONN_F_NFCT) == nfct)
		return true;
	carrier = carrier_new(mhs, s->dest);
	if (!carrier) {
		mhs_count(mhs, MHS_CNT_NOMEM);
		mhs->retry = true;
		return true;
	}
	/* The core accepts methods for which it has no transmitter */
	if (!carrier->packet_xmit) {
		carrier_put(carrier);
		return false;
	}
	carrier = rcu_replace_pointer(s->carrier, carrier,
				      lockdep_is_held(&mhs->lock));
	if (carrier)
		call_rcu_hurry(&carrier->rcu_head, carrier_rcu_put);
	return true;
}

/* State flags and carrier by the server's forwarding method.  All flows to a
 * masquerading server have entries: only an entry knows where replies go.  The
 * carrier that it had sends older flows, which know it by other addresses.
 */
static mhs_srv_t server_method(struct mhs_server *s)
{
	u32 method = IP_VS_DFWD_METHOD(s->dest);

	if (method != IP_VS_CONN_F_MASQ && method != IP_VS_CONN_F_BYPASS &&
	    (!s->mhs->hashed || server_carrier(s)))
		return 0;
	return MHS_SRV_NEW_ENTRY | (rcu_access_pointer(s->carrier) ?
				    MHS_SRV_FROZEN : MHS_SRV_ALL_ENTRY);
}

/* Does a server leave that has slots, because its weight is 0 now? */
bool mhs_server_drains(const struct mhs_server *s)
{
	return s->weight > 0 && atomic_read(&s->dest->weight) <= 0;
}

/* Follow weight and flags of the ip_vs_dest; true if the weight has changed */
bool mhs_server_refresh(struct mhs_server *s)
{
	int weight = atomic_read(&s->dest->weight);
	struct mhs *mhs = s->mhs;
	bool changed = weight != s->weight;
	mhs_srv_t state = 0;

	lockdep_assert_held(&mhs->lock);
	if (weight > 0) {
		state |= MHS_SRV_IN;
		WRITE_ONCE(s->missed, 0);
	}
	if (!READ_ONCE(s->dest->u_threshold)) {
		WRITE_ONCE(s->pin_older_until, 0);
	} else {
		/* The core counts entries: older flows, which send within a pin
		 * time, get theirs, too; later packets may be forged
		 */
		if (!s->pin_older_until)
			WRITE_ONCE(s->pin_older_until, get_jiffies_64() +
				   msecs_to_jiffies(mhs_time_pin_ms(mhs)));
		state |= MHS_SRV_NEW_ENTRY;
	}
	/* A packet may see this and no carrier: mhs_server_facts() reads both */
	WRITE_ONCE(s->facts, state | server_method(s));
	mhs_lane_changed(&mhs->mn->generation);
	s->weight = weight;
	return changed;
}

static void server_rcu_free(struct rcu_head *head)
{
	struct mhs_server *s = container_of(head, struct mhs_server, rcu);
	/* rcu_dereference_raw(): after the grace period no reader is left */
	struct ip_vs_conn *carrier = rcu_dereference_raw(s->carrier);
	struct mhs *mhs = s->mhs;

	/* The ip_vs_dest first: after the carrier the namespace may go */
	ip_vs_dest_put_and_free(s->dest);
	if (carrier)
		carrier_put(carrier);
	ida_free(&mhs->indexes, s->idx);
	kfree(s);
	mhs_svc_put(mhs);
}

static void server_release(struct mhs_server *s)
{
	struct mhs_servers *servers;
	struct mhs *mhs = s->mhs;

	servers = rcu_dereference_protected(mhs->servers,
					    lockdep_is_held(&mhs->lock));
	RCU_INIT_POINTER(servers->s[s->idx], NULL);
	hash_del_rcu(&s->node);
	list_del(&s->list);
	/* the exit of a network namespace waits for the carrier */
	call_rcu_hurry(&s->rcu, server_rcu_free);
}

/* Keep mhs.listed sorted: the table depends on the order.  Servers tend to come in
 * order, so the search starts at the end.
 */
static void server_insert(struct mhs_server *s)
{
	const struct ip_vs_dest *a, *b = s->dest;
	struct mhs_server *pos;

	list_for_each_entry_reverse(pos, &s->mhs->listed, list) {
		a = pos->dest;
		if (mhs_table_order(a->af, &a->addr, a->port,
				    b->af, &b->addr, b->port) < 0)
			break;
	}
	list_add(&s->list, &pos->list);
	s->mhs->n_listed++;
}

/* The server of an ip_vs_dest in mhs.listed, or NULL */
struct mhs_server *mhs_server_find(const struct mhs *mhs,
				   const struct ip_vs_dest *dest)
{
	struct mhs_server *s;

	lockdep_assert_held(&mhs->lock);
	s = mhs_entry_server(mhs, dest);
	return s && s->facts & MHS_SRV_GONE ? NULL : s;
}

/* Make room for an index in servers[], which doubles; NULL without memory */
static struct mhs_servers *server_grow(struct mhs *mhs, u32 idx)
{
	u32 max = roundup_pow_of_two(idx + 1);
	struct mhs_servers *old, *new;

	old = rcu_dereference_protected(mhs->servers,
					lockdep_is_held(&mhs->lock));
	if (old && idx < old->max)
		return old;
	new = kvzalloc(struct_size(new, s, max), GFP_KERNEL_ACCOUNT);
	if (!new)
		return NULL;
	new->max = max;
	if (old)
		memcpy(new->s, old->s, old->max * sizeof(new->s[0]));
	rcu_assign_pointer(mhs->servers, new);
	kvfree_rcu(old, rcu);	/* takes NULL */
	return new;
}

/* Add the server @dest, list a deleted one again, or refresh one that the work
 * has added before add_dest got mhs.lock.  After -ENOMEM the work retries.
 */
int mhs_server_add(struct mhs *mhs, struct ip_vs_dest *dest)
{
	struct mhs_servers *servers;
	struct mhs_server *s;
	int idx;

	lockdep_assert_held(&mhs->lock);
	/* Entries from before a deletion, or of another scheduler.  Once for all
	 * servers that come together: there may be thousands.
	 */
	if (mhs_dest_entries(dest) && !mhs->all_tracked) {
		mhs_rebuild_track_all(mhs);
		mhs->all_tracked = !mhs->aging;
	}

	s = mhs_entry_server(mhs, dest);
	if (s) {
		if (s->facts & MHS_SRV_GONE) {
			list_del(&s->list);
			server_insert(s);
			mhs_chance_new(s);
		}
		mhs_server_refresh(s);
		return 0;
	}

	idx = mhs_server_index(mhs);
	if (idx == -ENOSPC) {
		mhs_svc_warn_once(mhs, MHS_WARN_FULL,
				  "a service can have 8191 servers, including deleted servers that still have flows: further servers get no flow until hold_ms + pin_ms after a deletion");
		mhs->lacks_index = true;
		return -ENOSPC;
	}
	if (idx < 0)
		goto no_memory;
	servers = server_grow(mhs, idx);
	if (!servers)
		goto free_index;
	s = kzalloc_obj(*s, GFP_KERNEL_ACCOUNT);
	if (!s)
		goto free_index;
	s->mhs = mhs;
	s->idx = idx;
	s->hash = mhs_hash_server(&mhs->key, dest->af, &dest->addr, dest->port);
	s->dest = dest;
	ip_vs_dest_hold(dest);
	refcount_inc(&mhs->refcnt);
	mhs_chance_new(s);
	server_insert(s);
	mhs_server_refresh(s);

	/* Published before a rebuild writes the index into a slot word */
	rcu_assign_pointer(servers->s[idx], s);
	hash_add_rcu(mhs->by_dest, &s->node,
		     mhs_dest_bucket(mhs, dest->af, &dest->addr, dest->port));
	mhs_list_check(s);
	return 0;

free_index:
	ida_free(&mhs->indexes, idx);
no_memory:
	mhs_count(mhs, MHS_CNT_NOMEM);
	mhs->retry = true;
	pr_warn_ratelimited("no memory for a server: the server gets no flow until a retry succeeds\n");
	return -ENOMEM;
}

void mhs_server_gone(struct mhs_server *s)
{
	struct mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	WRITE_ONCE(s->facts, (s->facts & MHS_SRV_METHOD) | MHS_SRV_GONE);
	s->gone_until = jiffies + msecs_to_jiffies(mhs_time_hold_ms(mhs)) +
			msecs_to_jiffies(mhs_time_pin_ms(mhs));
	s->in_slots = true;
	list_move(&s->list, &mhs->gone);
	mhs->n_listed--;
}

/* Release deleted servers that no slot had in the last walk, when hold + pin
 * are over or expire_nodest_conn cuts their flows; @all: the service ends
 */
void mhs_server_release_gone(struct mhs *mhs, bool all)
{
	bool cutting = mhs_cutting(mhs->ipvs);
	struct mhs_server *s, *next;

	lockdep_assert_held(&mhs->lock);
	if (all)
		list_splice_init(&mhs->listed, &mhs->gone);
	list_for_each_entry_safe(s, next, &mhs->gone, list) {
		if (all || (!s->in_slots &&
			    (cutting || time_after_eq(jiffies, s->gone_until))))
			server_release(s);
	}
}

/* The server as a neighbour on that link, or NULL */
static struct neighbour *server_neighbour(const struct ip_vs_dest *dest,
					  struct net_device *dev)
{
	return IS_ENABLED(CONFIG_IP_VS_IPV6) && dest->af == AF_INET6 ?
	       __ipv6_neigh_lookup_noref(dev, &dest->addr.in6) :
	       __ipv4_neigh_lookup_noref(dev, (__force u32)dest->addr.ip);
}

/* Does another server answer, while this one does not?  Asks both, on the link of
 * the other: the core keeps no route to a deleted one.  Under RCU, without softirqs.
 */
static bool server_outlived(const struct mhs_server *s)
{
	const struct ip_vs_dest_dst *route;
	const struct mhs_server *other;
	struct neighbour *n, *beside;
	struct net_device *dev;
	u32 looks = 0;

	list_for_each_entry(other, &s->mhs->listed, list) {
		route = rcu_dereference(other->dest->dest_dst);
		if (++looks > MHS_PROBE_OTHERS)
			break;
		if (other->weight <= 0 || !route)
			continue;
		dev = READ_ONCE(route->dst_cache->dev);
		n = server_neighbour(s->dest, dev);
		if (!n)
			continue;
		neigh_event_send(n, NULL);
		if (READ_ONCE(n->nud_state) & NUD_VALID)
			return false;
		beside = server_neighbour(other->dest, dev);
		if (beside && READ_ONCE(beside->nud_state) & NUD_VALID &&
		    beside->ops->solicit) {
			beside->ops->solicit(beside, NULL);
			return time_after(READ_ONCE(beside->confirmed),
					  jiffies - 3 * MHS_PROBE_EVERY);
		}
	}
	return false;
}

/* Is the server, if it gets no new flows, dead now?  Others have answered for some
 * time, and it has not.  In a transition the work asks every second.
 */
bool mhs_server_dies(struct mhs_server *s)
{
	lockdep_assert_held(&s->mhs->lock);
	if ((s->weight > 0 && !(s->facts & MHS_SRV_GONE)) ||
	    s->missed == MHS_MISSED_MAX || jiffies - s->probed < MHS_PROBE_EVERY)
		return false;
	s->probed = jiffies;
	rcu_read_lock();
	local_bh_disable();
	/* the second chance asks, too, and not only neighbours */
	WRITE_ONCE(s->missed, !mhs_chance_answers(s) && server_outlived(s) ?
			      s->missed + 1 : 0);
	local_bh_enable();
	rcu_read_unlock();
	return s->missed == MHS_MISSED_MAX;
}

/* Refresh every listed server and add the core's that are not known; true if a
 * rebuild is due, and mhs.retry if a retry is
 */
bool mhs_server_reconcile(struct mhs *mhs)
{
	struct ip_vs_dest *dest, *found;
	struct mhs_server *s;
	bool changed = false;
	int err;

	lockdep_assert_held(&mhs->lock);
	mhs->retry = false;
	mhs->lacks_index = false;
	list_for_each_entry(s, &mhs->listed, list)
		changed |= mhs_server_refresh(s);
	do {
		found = NULL;
		rcu_read_lock();
		list_for_each_entry_rcu(dest, &mhs->svc->destinations, n_list)
			if (mhs_dest_available(dest) &&
			    !mhs_server_find(mhs, dest)) {
				found = dest;
				ip_vs_dest_hold(found);
				break;
			}
		rcu_read_unlock();
		if (!found)
			break;
		err = mhs_server_add(mhs, found);
		changed |= !err;
		/* never the last: the core's trash keeps a deleted dest until
		 * only its own reference is left
		 */
		ip_vs_dest_put(found);
	} while (!err);
	return changed;
}
