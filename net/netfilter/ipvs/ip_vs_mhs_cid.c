// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: QUIC by connection ID.
 *
 * A server may issue connection IDs that name the server, as in
 * draft-ietf-quic-load-balancers:
 *
 *	octet	0		any
 *		1 to 4		the last four octets of the server's address
 *		5 to 8, ...	a nonce
 *
 * With a key, octets 1 to 16 are one block of AES-128, and the nonce has 12 octets.
 *
 * A packet with such an ID goes to that server, wherever the packet comes from and
 * whatever the tables say.  The packet neither follows nor makes an entry, with
 * stateless=0 neither.  The sysctl quic_ids names the services whose servers do so.
 *
 *	packet			goes
 *	Initial, 0-RTT		by address and port
 *	Handshake, 1-RTT	by its ID if that names a server, else by address and
 *				port
 *
 * An ID is not secret and may be forged: it chooses among the servers of the
 * service, those of weight 0 and deleted ones that are held included, and does
 * nothing else.  A server whose flows need entries (masquerading, an upper
 * threshold) is never named.
 *
 * Locks and lifetimes
 * -------------------
 *
 *	ip_vs_mhs.by_id		the servers of a service with a QUIC port by what an
 *				ID names them: one of each, with the others in
 *				server.same_id.  Written under mhs.lock, read by
 *				packets under RCU.  No choice of addresses makes a
 *				search long
 *	ip_vs_mhs_net.ids	under net.lock
 *	ip_vs_mhs.cid		into the array of net.ids; written under net.lock,
 *				read by packets under RCU.  A service that goes has
 *				left its hash table before: no packet finds it.
 *				Who replaces net.ids has the former array freed
 *				after a grace period
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/sysctl.h>

#include "ip_vs_mhs_cid.h"
#include "ip_vs_mhs_quic.h"

/* Longest text of the sysctl, and most services that it can name */
#define CID_TEXT_BYTES		4096
#define CID_MAX			256

/* What the sysctl says */
struct ip_vs_mhs_ids {
	char			text[CID_TEXT_BYTES];
	u32			n;
	struct ip_vs_mhs_cid	cid[CID_MAX];
	struct rcu_head		rcu;
};

/* What names a server in an ID, as index: the last octets of its address */
static unsigned long cid_index(const struct ip_vs_dest *dest)
{
	return ntohl(dest->af == AF_INET6 ? dest->addr.ip6[3] : dest->addr.ip);
}

/* The server, listed or gone, that an ID names, without a reference; NULL if two
 * servers have the ID
 */
struct ip_vs_mhs_server *ip_vs_mhs_cid_server(const struct ip_vs_mhs *mhs,
					      __be32 id)
{
	struct ip_vs_mhs_server *s;

	s = xa_load((struct xarray *)&mhs->by_id, ntohl(id));
	return s && list_empty(&s->same_id) ? s : NULL;
}

/* Let IDs name a new server: 0 or -ENOMEM */
int ip_vs_mhs_cid_add(struct ip_vs_mhs_server *s)
{
	unsigned long at = cid_index(s->dest);
	struct ip_vs_mhs_server *other;
	struct ip_vs_mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	INIT_LIST_HEAD(&s->same_id);
	if (mhs->protocol != IPPROTO_UDP || mhs->fwmark ||
	    !ip_vs_mhs_proto_is_quic(mhs->port) || s->dest->port != mhs->port)
		return 0;
	other = xa_load(&mhs->by_id, at);
	if (!other)
		return xa_err(xa_store(&mhs->by_id, at, s, GFP_KERNEL));
	list_add_rcu(&s->same_id, &other->same_id);
	return 0;
}

void ip_vs_mhs_cid_del(struct ip_vs_mhs_server *s)
{
	unsigned long at = cid_index(s->dest);
	struct xarray *ids = &s->mhs->by_id;

	lockdep_assert_held(&s->mhs->lock);
	/* Neither needs memory */
	if (xa_load(ids, at) == s && list_empty(&s->same_id))
		xa_erase(ids, at);
	else if (xa_load(ids, at) == s)
		xa_store(ids, at, list_next_entry(s, same_id), 0);
	list_del_rcu(&s->same_id);
}

/**
 * ip_vs_mhs_cid_ask() - let the connection ID of a packet name the server
 * @q: a question from ip_vs_mhs_ask_begin(), about UDP to a QUIC port; the function
 *	sets %MHS_PKT_UNNAMED if the ID names no server
 * @h: the QUIC packet
 * @bytes: number of bytes that are readable
 *
 * Context: softirq or process, under RCU.
 * Return: the server, which has a carrier, or NULL: by address and port.
 */
struct ip_vs_mhs_server *ip_vs_mhs_cid_ask(struct ip_vs_mhs_ask *q, const u8 *h,
					   unsigned int bytes)
{
	const struct ip_vs_mhs_cid *cid = rcu_dereference(q->mhs->cid);
	__be32 id[MHS_QUIC_ID / sizeof(__be32)];
	struct ip_vs_mhs_server *s;
	unsigned int at;

	if (!cid || q->facts & (MHS_PKT_CONNLESS | MHS_SVC_UNSURE))
		return NULL;
	at = ip_vs_mhs_quic_id(h, bytes, cid->keyed ? sizeof(id) : sizeof(*id));
	if (!at)
		return NULL;
	if (cid->keyed)
		aes_decrypt(&cid->key, (u8 *)id, h + at);
	else
		memcpy(id, h + at, sizeof(*id));
	s = ip_vs_mhs_cid_server(q->mhs, *id);
	if (!s)
		q->facts |= MHS_PKT_UNNAMED;
	return ip_vs_mhs_decide_names(ip_vs_mhs_ask_facts(s, false)) ? s : NULL;
}

static const struct ip_vs_mhs_cid *
cid_find(const struct ip_vs_mhs_ids *ids, u16 af, const union nf_inet_addr *addr,
	 __be16 port)
{
	u32 i;

	for (i = 0; ids && i < ids->n; i++)
		if (ids->cid[i].af == af && ids->cid[i].port == port &&
		    ip_vs_addr_equal(af, &ids->cid[i].addr, addr))
			return &ids->cid[i];
	return NULL;
}

/* Warn if another server has the ID of @s */
void ip_vs_mhs_cid_check(struct ip_vs_mhs_server *s)
{
	struct ip_vs_mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	if (rcu_access_pointer(mhs->cid) && !list_empty(&s->same_id))
		ip_vs_mhs_svc_warn_once(mhs, MHS_WARN_CID,
					"the addresses of two servers end in the same four octets, so a QUIC connection ID names neither: their packets go by address and port");
}

/* Follow the sysctl: when it changes, and when the service comes */
void ip_vs_mhs_cid_attach(struct ip_vs_mhs *mhs)
{
	const struct ip_vs_mhs_cid *cid = NULL;
	struct ip_vs_mhs_server *s;

	lockdep_assert_held(&mhs->net->lock);
	if (mhs->protocol == IPPROTO_UDP && !mhs->fwmark)
		cid = cid_find(mhs->net->ids, mhs->af, &mhs->addr, mhs->port);
	rcu_assign_pointer(mhs->cid, cid);
	mutex_lock(&mhs->lock);
	list_for_each_entry(s, &mhs->listed, list)
		ip_vs_mhs_cid_check(s);
	mutex_unlock(&mhs->lock);
}

static int cid_key(struct ip_vs_mhs_cid *cid, const char *text)
{
	u8 raw[16];
	int err = -EINVAL;

	if (strlen(text) == 2 * sizeof(raw) && !hex2bin(raw, text, sizeof(raw)))
		err = mhs_aes_prepare(&cid->key, raw, sizeof(raw));
	memzero_explicit(raw, sizeof(raw));
	cid->keyed = true;
	return err;
}

/* Parse the words of the text, ADDRESS:PORT or ADDRESS:PORT=KEY */
static int cid_parse(struct net *net, struct ip_vs_mhs_ids *ids)
{
	const char *text = ids->text;
	char word[96], *key;
	int af, err, n;

	for (; sscanf(text, "%95s%n", word, &n) == 1; text += n) {
		struct ip_vs_mhs_cid *cid = &ids->cid[ids->n];

		if (ids->n == CID_MAX || strlen(word) == sizeof(word) - 1)
			return -EINVAL;
		key = strchr(word, '=');
		if (key)
			*key++ = 0;
		af = ip_vs_mhs_svc_parse(net, word, &cid->addr, &cid->port);
		if (af < 0 || !ip_vs_mhs_proto_is_quic(cid->port) ||
		    cid_find(ids, af, &cid->addr, cid->port))
			return -EINVAL;
		err = key ? cid_key(cid, key) : 0;
		if (err)
			return err;
		cid->af = af;
		ids->n++;
	}
	return 0;
}

static void cid_rcu_free(struct rcu_head *head)
{
	struct ip_vs_mhs_ids *ids = container_of(head, struct ip_vs_mhs_ids, rcu);

	kvfree_sensitive(ids, sizeof(*ids));
}

/* Replace what the sysctl says; NULL: nothing */
static void cid_replace(struct ip_vs_mhs_net *mn, struct ip_vs_mhs_ids *ids)
{
	struct ip_vs_mhs_ids *old;
	struct ip_vs_mhs *mhs;

	mutex_lock(&mn->lock);
	old = mn->ids;
	mn->ids = ids;
	list_for_each_entry(mhs, &mn->list, net_list) {
		ip_vs_mhs_cid_attach(mhs);
		cond_resched();
	}
	mutex_unlock(&mn->lock);
	/* Packets may use what services had.  The end of the module waits in
	 * unregister_pernet_subsys(), by rcu_barrier().
	 */
	if (old)
		call_rcu(&old->rcu, cid_rcu_free);
}

/**
 * ip_vs_mhs_cid_sysctl() - read or write net.ipv4.vs.mhs.quic_ids
 * @table: the sysctl; its data is struct ip_vs_mhs_net of the namespace
 * @write: true for a write, which is one whole list
 * @buffer: what is written or read
 * @lenp: length of @buffer
 * @ppos: position in the file
 *
 * Context: process; takes net.lock and mhs.lock.
 * Return: 0, -EINVAL for a word that is no service with a QUIC port, too many, more
 *	than a line or a write at an offset, -EOPNOTSUPP for a key that the kernel
 *	has no AES for, -ENOMEM; an error changes nothing.
 */
int ip_vs_mhs_cid_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
			 size_t *lenp, loff_t *ppos)
{
	struct ip_vs_mhs_net *mn = table->data;
	struct ip_vs_mhs_ids *ids;
	int err;

	ids = kvzalloc_obj(*ids, GFP_KERNEL_ACCOUNT);
	if (!ids)
		return -ENOMEM;
	if (!write) {
		mutex_lock(&mn->lock);
		if (mn->ids)
			strscpy(ids->text, mn->ids->text, CID_TEXT_BYTES);
		mutex_unlock(&mn->lock);
	}
	err = ip_vs_mhs_svc_line(ids->text, CID_TEXT_BYTES, write, buffer, lenp,
				 ppos);
	if (write && !err)
		err = cid_parse(mn->net, ids);
	if (write && !err) {
		cid_replace(mn, ids->n ? ids : NULL);
		if (ids->n)
			return 0;
	}
	kvfree_sensitive(ids, sizeof(*ids));
	return err;
}

/* The namespace goes, and its sysctl has gone; services may be left */
void ip_vs_mhs_cid_exit(struct ip_vs_mhs_net *mn)
{
	cid_replace(mn, NULL);
}
