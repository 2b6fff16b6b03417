// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the sysctls that are text, above all the lists of
 * services in quic_ids and second_chance.
 *
 * mhs.ids points into the array of net.lists[], and leads to the other
 * configurations of the service, by which servers change their key.  A service that
 * goes has left its hash table before, so no packet finds it.
 */
#include <linux/ctype.h>
#include <linux/inet.h>

#include "ip_vs_mhs_ctl.h"

/* Longest text of a sysctl, and most services that it can name */
#define LIST_TEXT_BYTES		4096
#define LIST_MAX		256

/* A bit for each value of the first three bits of an ID, but for 7 */
#define LIST_ALL_IDS		0x7f

struct mhs_list {
	char			text[LIST_TEXT_BYTES];
	u32			n;
	struct mhs_list_item	item[LIST_MAX];
};

/* Parse an address and a port: the family, or an error */
int mhs_list_endpoint(struct net *net, const char *text, const char *port,
		      union nf_inet_addr *addr, __be16 *to)
{
	struct sockaddr_storage ss;
	const struct sockaddr_in6 *in6 = (void *)&ss;
	const struct sockaddr_in *in = (void *)&ss;
	int err = inet_pton_with_scope(net, AF_UNSPEC, text, port, &ss);

	if (err)
		return err;
	/* Both have the port at the same place */
	*to = in->sin_port;
	if (ss.ss_family == AF_INET6)
		addr->in6 = in6->sin6_addr;
	else
		addr->ip = in->sin_addr.s_addr;
	return ss.ss_family;
}

/* Read or write a sysctl of one whole line, and lines of blanks */
int mhs_list_line(char *text, size_t size, int write, void *buffer,
		  size_t *lenp, loff_t *ppos)
{
	struct ctl_table line = { .data = text, .maxlen = size };
	const char *rest = buffer;
	int err;

	if (write && (*ppos || *lenp >= size))
		return -EINVAL;
	err = proc_dostring(&line, write, buffer, lenp, ppos);
	if (!write || err)
		return err;
	/* It takes no more than the first line; a zero byte is behind @buffer */
	rest = skip_spaces(rest + strlen(text));
	return *rest || rest + 1 < (char *)buffer + *lenp ? -EINVAL : 0;
}

/* The first of a service in a list, or NULL */
static struct mhs_list_item *
list_find_service(struct mhs_list *l, u16 af, const union nf_inet_addr *addr,
		  __be16 port)
{
	u32 i;

	for (i = 0; l && i < l->n; i++)
		if (l->item[i].af == af && l->item[i].port == port &&
		    ip_vs_addr_equal(af, &l->item[i].addr, addr))
			return &l->item[i];
	return NULL;
}

/* Warn if another server has the ID of @s */
void mhs_list_check(struct mhs_server *s)
{
	struct mhs *mhs = s->mhs;

	lockdep_assert_held(&mhs->lock);
	if (rcu_access_pointer(mhs->ids) && s->dest->port == mhs->port &&
	    !mhs_packet_id_server(mhs, mhs_dest_id(s->dest->af, &s->dest->addr)))
		mhs_svc_warn_once(mhs, MHS_WARN_CID,
				  "the addresses of two servers end in the same four octets, so a QUIC connection ID names neither: their packets go by address and port");
}

/* Follow the sysctls: when one changes, and when the service comes */
void mhs_list_attach(struct mhs *mhs)
{
	bool quic = mhs->protocol == IPPROTO_UDP;
	const struct mhs_list_item *item = NULL;
	struct mhs_server *s;

	lockdep_assert_held(&mhs->mn->lock);
	if (!mhs->fwmark && (quic || mhs->protocol == IPPROTO_TCP))
		item = list_find_service(mhs->mn->lists[quic], mhs->af,
					 &mhs->addr, mhs->port);
	rcu_assign_pointer(mhs->ids, quic ? item : NULL);
	WRITE_ONCE(mhs->chance, !quic && item);
	mutex_lock(&mhs->lock);
	list_for_each_entry(s, &mhs->listed, list)
		mhs_list_check(s);
	mutex_unlock(&mhs->lock);
}

/* Parse [N:]KEY, or N: for IDs as they are; N: the first three bits of these IDs */
static int list_key(struct mhs_list_item *item, const char *text)
{
	u8 raw[16];
	int err = -EINVAL;

	if (*text >= '0' && *text <= '6' && text[1] == ':') {
		item->bits = BIT(*text - '0');
		text += 2;
		if (!*text)
			return 0;
	}
	if (strlen(text) == 2 * sizeof(raw) && !hex2bin(raw, text, sizeof(raw)))
		err = mhs_aes_prepare(&item->key, raw, sizeof(raw));
	memzero_explicit(raw, sizeof(raw));
	item->keyed = true;
	return err;
}

/* Parse and change ADDRESS:PORT or [ADDRESS]:PORT: the family, or -EINVAL */
static int list_service(struct net *net, char *word, union nf_inet_addr *addr,
			__be16 *to)
{
	char *port = strrchr(word, ':');
	bool six = *word == '[';
	int af;

	/* A leading 0 would begin an octal or hexadecimal number, after a sign, too */
	if (!port || port == word || !isdigit(port[1]) || port[1] == '0' ||
	    (six && port[-1] != ']'))
		return -EINVAL;
	port[six ? -1 : 0] = 0;
	af = mhs_list_endpoint(net, word + six, port + 1, addr, to);
	return af == (six ? AF_INET6 : AF_INET) ? af : -EINVAL;
}

/* Parse a word of the text: ADDRESS:PORT, or with @quic ADDRESS:PORT=[N:]KEY */
static int list_word(struct net *net, struct mhs_list *l, char *word, bool quic)
{
	struct mhs_list_item *at, *item = &l->item[l->n];
	char *key = quic ? strchr(word, '=') : NULL;
	int af, err = 0;

	if (key)
		*key++ = 0;
	af = list_service(net, word, &item->addr, &item->port);
	if (af < 0 || (quic && !mhs_packet_is_quic(item->port)))
		return -EINVAL;
	item->bits = LIST_ALL_IDS;
	if (key)
		err = list_key(item, key);
	if (err)
		return err;
	/* Only for other IDs a service may stand there once more */
	at = list_find_service(l, af, &item->addr, item->port);
	for (; at; at = at->next) {
		if (at->bits & item->bits)
			return -EINVAL;
		if (!at->next) {
			at->next = item;
			break;
		}
	}
	item->af = af;
	l->n++;
	return 0;
}

static int list_parse(struct net *net, struct mhs_list *l, bool quic)
{
	const char *text = skip_spaces(l->text);
	int err = 0, n = 0;
	char word[96];

	for (; *text && !err; text = skip_spaces(text + n))
		if (sscanf(text, "%95s%n", word, &n) != 1 ||
		    l->n == LIST_MAX || strlen(word) == sizeof(word) - 1)
			err = -EINVAL;
		else
			err = list_word(net, l, word, quic);
	/* it may have a key */
	memzero_explicit(word, sizeof(word));
	return err;
}

/* Replace a list; NULL: no service */
static void list_change(struct mhs_net *mn, bool quic, struct mhs_list *l)
{
	struct mhs *mhs;

	mutex_lock(&mn->lock);
	swap(mn->lists[quic], l);
	list_for_each_entry(mhs, &mn->list, net_list) {
		mhs_list_attach(mhs);
		cond_resched();
	}
	mutex_unlock(&mn->lock);
	if (l) {
		/* packets may use it */
		synchronize_rcu();
		kvfree_sensitive(l, sizeof(*l));
	}
}

/* Read or write second_chance, or quic_ids (extra1 is not NULL).  Takes
 * net.lock and mhs.lock.  Nothing has changed after -EINVAL, and -EOPNOTSUPP for a
 * key if the kernel has no AES.  After -ENOMEM the list may be the new one: without
 * the hooks of the second chance no server answers, and its services go on by entries.
 */
int mhs_list_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
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
		err = mhs_list_line(l ? l->text : none, LIST_TEXT_BYTES,
				    write, buffer, lenp, ppos);
		mutex_unlock(&mn->lock);
		return err;
	}
	if (!*lenp)
		return 0;
	l = kvzalloc_obj(*l, GFP_KERNEL_ACCOUNT);
	if (!l)
		return -ENOMEM;
	err = mhs_list_line(l->text, LIST_TEXT_BYTES, write, buffer, lenp, ppos);
	if (!err)
		err = list_parse(mn->net, l, quic);
	if (err || !l->n) {
		kvfree_sensitive(l, sizeof(*l));
		l = NULL;
	}
	if (err)
		return err;
	list_change(mn, quic, l);
	return quic ? 0 : mhs_chance_follow(mn);
}

/* The namespace goes, and its sysctls have gone; services may be left */
void mhs_list_exit(struct mhs_net *mn)
{
	list_change(mn, true, NULL);
	list_change(mn, false, NULL);
	mhs_chance_exit(mn);
}
