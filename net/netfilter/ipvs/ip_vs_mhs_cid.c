// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: QUIC by connection ID, and the lists of
 * services in the sysctls quic_ids and second_chance.
 *
 * A Handshake or 1-RTT packet with an ID that names a server goes there,
 * whatever the tables say.  The packet neither follows nor makes an entry, with
 * stateless=0 neither.
 *
 * An ID may be forged: it chooses among the servers of the service, those of
 * weight 0 and deleted ones that are held included, and does nothing else.  A
 * server whose flows need entries is never named.
 *
 * mhs.cid points into the array of net.lists[], and leads to the other
 * configurations of the service, by which servers change their key.  A service that
 * goes has left its hash table before, so no packet finds it.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include "ip_vs_mhs_pkt.h"

/* Longest text of a sysctl, and most services that it can name */
#define CID_TEXT_BYTES		4096
#define CID_MAX			256

/* The first octet of an ID says which configuration made it, but for 7: none */
#define CID_BITS_SHIFT		5
#define CID_ALL			0x7f

/* What a sysctl says */
struct mhs_list {
	char			text[CID_TEXT_BYTES];
	u32			n;
	struct mhs_cid		cid[CID_MAX];
	struct rcu_head		rcu;
};

/* What names a server in an ID: the last octets of its address */
static __be32 cid_of(const struct ip_vs_dest *dest)
{
	return dest->af == AF_INET6 ? dest->addr.ip6[3] : dest->addr.ip;
}

/* Under RCU or mhs.lock: the server, listed or gone, that alone has the ID, or NULL */
struct mhs_server *mhs_cid_server(const struct mhs *mhs, __be32 id)
{
	const union nf_inet_addr addr = { .ip = id };
	struct mhs_server *s, *found = NULL;
	const struct ip_vs_dest *dest;

	hash_for_each_possible_rcu(mhs->by_dest, s, node,
				   mhs_dest_key(mhs, AF_INET, &addr, mhs->port),
				   lockdep_is_held(&mhs->lock)) {
		dest = s->dest;
		if (cid_of(dest) != id ||
		    (!mhs->fwmark && dest->port != mhs->port))
			continue;
		if (found)
			return NULL;
		found = s;
	}
	return found;
}

/**
 * mhs_cid_ask() - let the connection ID of a packet name the server
 * @q: from mhs_ask_begin(), about UDP to a QUIC port; gets %MHS_PKT_UNNAMED if
 *	the ID names no server
 * @h: the QUIC packet
 * @bytes: number of bytes that are readable
 *
 * Context: softirq or process, under RCU.
 * Return: the server, which has a carrier, or NULL: by address and port.
 */
struct mhs_server *mhs_cid_ask(struct mhs_ask *q, const u8 *h,
			       unsigned int bytes)
{
	const struct mhs_cid *cid = rcu_dereference(q->mhs->cid);
	__be32 id[MHS_QUIC_BLOCK / sizeof(__be32)];
	struct mhs_server *s = NULL;
	unsigned int at;

	if (!cid || q->facts & MHS_PKT_CONNLESS)
		return NULL;
	at = mhs_quic_id(h, bytes, MHS_QUIC_PLAIN);
	if (!at)
		return NULL;
	while (cid && !(cid->bits & BIT(h[at - 1] >> CID_BITS_SHIFT)))
		cid = cid->next;
	if (cid && !cid->keyed) {
		memcpy(id, h + at, sizeof(*id));
		s = mhs_cid_server(q->mhs, *id);
	} else if (cid && mhs_quic_id(h, bytes, MHS_QUIC_BLOCK)) {
		aes_decrypt(&cid->key, (u8 *)id, h + at);
		s = mhs_cid_server(q->mhs, *id);
	}
	if (!s)
		q->facts |= MHS_PKT_UNNAMED;
	return mhs_decide_names(mhs_ask_facts(s, false)) ? s : NULL;
}

/* The first of a service in a list, or NULL */
static struct mhs_cid *cid_find(struct mhs_list *l, u16 af,
				const union nf_inet_addr *addr, __be16 port)
{
	u32 i;

	for (i = 0; l && i < l->n; i++)
		if (l->cid[i].af == af && l->cid[i].port == port &&
		    ip_vs_addr_equal(af, &l->cid[i].addr, addr))
			return &l->cid[i];
	return NULL;
}

/* Warn if another server has the ID of @s */
void mhs_cid_check(struct mhs_server *s)
{
	struct mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	if (rcu_access_pointer(mhs->cid) &&
	    s->dest->port == mhs->port && !mhs_cid_server(mhs, cid_of(s->dest)))
		mhs_svc_warn_once(mhs, MHS_WARN_CID,
				  "the addresses of two servers end in the same four octets, so a QUIC connection ID names neither: their packets go by address and port");
}

/* Follow the sysctls: when one changes, and when the service comes */
void mhs_cid_attach(struct mhs *mhs)
{
	bool quic = mhs->protocol == IPPROTO_UDP;
	const struct mhs_cid *cid = NULL;
	struct mhs_server *s;

	lockdep_assert_held(&mhs->net->lock);
	if (!mhs->fwmark && (quic || mhs->protocol == IPPROTO_TCP))
		cid = cid_find(mhs->net->lists[quic], mhs->af, &mhs->addr,
			       mhs->port);
	rcu_assign_pointer(mhs->cid, quic ? cid : NULL);
	WRITE_ONCE(mhs->chance, !quic && cid);
	mutex_lock(&mhs->lock);
	list_for_each_entry(s, &mhs->listed, list)
		mhs_cid_check(s);
	mutex_unlock(&mhs->lock);
}

/* Parse [N:]KEY, or N: for plain IDs; N: the first three bits of these IDs */
static int cid_key(struct mhs_cid *cid, const char *text)
{
	u8 raw[16];
	int err = -EINVAL;

	if (*text >= '0' && *text <= '6' && text[1] == ':') {
		cid->bits = BIT(*text - '0');
		text += 2;
		if (!*text)
			return 0;
	}
	if (strlen(text) == 2 * sizeof(raw) && !hex2bin(raw, text, sizeof(raw)))
		err = mhs_aes_prepare(&cid->key, raw, sizeof(raw));
	memzero_explicit(raw, sizeof(raw));
	cid->keyed = true;
	return err;
}

/* May the service stand in the list once more?  For other IDs */
static bool cid_chain(struct mhs_cid *former, struct mhs_cid *cid)
{
	for (; former; former = former->next) {
		if (former->bits & cid->bits)
			return false;
		if (!former->next) {
			former->next = cid;
			break;
		}
	}
	return true;
}

/* Parse and change ADDRESS:PORT or [ADDRESS]:PORT: the family, or -EINVAL */
static int cid_service(struct net *net, char *word, union nf_inet_addr *addr,
		       __be16 *to)
{
	char *port = strrchr(word, ':');
	bool six = *word == '[';
	int af;

	/* A leading 0 would begin an octal or hexadecimal number */
	if (!port || port == word || port[1] == '0' || (six && port[-1] != ']'))
		return -EINVAL;
	port[six ? -1 : 0] = 0;
	af = mhs_svc_endpoint(net, word + six, port + 1, addr, to);
	return af == (six ? AF_INET6 : AF_INET) ? af : -EINVAL;
}

/* Parse the words of the text: ADDRESS:PORT, or with @quic ADDRESS:PORT=[N:]KEY */
static int cid_parse(struct net *net, struct mhs_list *l, bool quic)
{
	const char *text = skip_spaces(l->text);
	char word[96], *key;
	int af, err, n;

	for (; *text; text = skip_spaces(text + n)) {
		struct mhs_cid *cid = &l->cid[l->n];

		if (sscanf(text, "%95s%n", word, &n) != 1 ||
		    l->n == CID_MAX || strlen(word) == sizeof(word) - 1)
			return -EINVAL;
		key = quic ? strchr(word, '=') : NULL;
		if (key)
			*key++ = 0;
		af = cid_service(net, word, &cid->addr, &cid->port);
		if (af < 0 || (quic && !mhs_proto_is_quic(cid->port)))
			return -EINVAL;
		cid->bits = CID_ALL;
		err = key ? cid_key(cid, key) : 0;
		if (err)
			return err;
		if (!cid_chain(cid_find(l, af, &cid->addr, cid->port), cid))
			return -EINVAL;
		cid->af = af;
		l->n++;
	}
	return 0;
}

static void cid_rcu_free(struct rcu_head *head)
{
	struct mhs_list *l = container_of(head, struct mhs_list, rcu);

	kvfree_sensitive(l, sizeof(*l));
}

/* Replace a list; NULL: no service */
static void cid_replace(struct mhs_net *mn, bool quic, struct mhs_list *l)
{
	struct mhs *mhs;

	mutex_lock(&mn->lock);
	swap(mn->lists[quic], l);
	list_for_each_entry(mhs, &mn->list, net_list) {
		mhs_cid_attach(mhs);
		cond_resched();
	}
	mutex_unlock(&mn->lock);
	/* Packets may use it; unregister_pernet_subsys() waits for callbacks */
	if (l)
		call_rcu(&l->rcu, cid_rcu_free);
}

/* Read or write second_chance, or quic_ids (extra1 is not NULL).  Takes
 * net.lock and mhs.lock.  Nothing has changed after an error: -EINVAL, -ENOMEM,
 * or -EOPNOTSUPP for a key if the kernel has no AES.
 */
int mhs_cid_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
		   size_t *lenp, loff_t *ppos)
{
	struct mhs_net *mn = table->data;
	bool quic = table->extra1;
	struct mhs_list *l;
	char none[1] = "";
	int err;

	if (!write) {
		mutex_lock(&mn->lock);
		l = mn->lists[quic];
		err = mhs_svc_line(l ? l->text : none, CID_TEXT_BYTES,
				   write, buffer, lenp, ppos);
		mutex_unlock(&mn->lock);
		return err;
	}
	if (!*lenp)
		return 0;
	l = kvzalloc_obj(*l, GFP_KERNEL_ACCOUNT);
	if (!l)
		return -ENOMEM;
	err = mhs_svc_line(l->text, CID_TEXT_BYTES, write, buffer, lenp, ppos);
	if (!err)
		err = cid_parse(mn->net, l, quic);
	if (err || !l->n) {
		kvfree_sensitive(l, sizeof(*l));
		l = NULL;
	}
	if (!err)
		cid_replace(mn, quic, l);
	return err;
}

/* The namespace goes, and its sysctls have gone; services may be left */
void mhs_cid_exit(struct mhs_net *mn)
{
	cid_replace(mn, true, NULL);
	cid_replace(mn, false, NULL);
}
