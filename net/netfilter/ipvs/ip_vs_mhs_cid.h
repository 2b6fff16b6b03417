/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: QUIC by connection ID, lists of services. */
#ifndef _IP_VS_MHS_CID_H
#define _IP_VS_MHS_CID_H

#include "ip_vs_mhs_pkt.h"

/* A service in a list, of quic_ids perhaps with a key */
struct ip_vs_mhs_cid {
	u16			af;
	__be16			port;
	bool			keyed;
	union nf_inet_addr	addr;
	MHS_AES_KEY		key;
};

/* Which IDs: 0 none, 1 plain, 2 keyed */
static inline unsigned int ip_vs_mhs_cid_kind(const struct ip_vs_mhs *mhs)
{
	const struct ip_vs_mhs_cid *cid;
	unsigned int kind = 0;

	rcu_read_lock();
	cid = rcu_dereference(mhs->cid);
	if (cid)
		kind = 1 + cid->keyed;
	rcu_read_unlock();
	return kind;
}

struct ip_vs_mhs_server *ip_vs_mhs_cid_ask(struct ip_vs_mhs_ask *q, const u8 *h,
					   unsigned int bytes);
struct ip_vs_mhs_server *ip_vs_mhs_cid_server(const struct ip_vs_mhs *mhs,
					      __be32 id);
int ip_vs_mhs_cid_add(struct ip_vs_mhs_server *s);
void ip_vs_mhs_cid_del(struct ip_vs_mhs_server *s);
void ip_vs_mhs_cid_attach(struct ip_vs_mhs *mhs);
void ip_vs_mhs_cid_check(struct ip_vs_mhs_server *s);
void ip_vs_mhs_cid_exit(struct ip_vs_mhs_net *mn);
int ip_vs_mhs_cid_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
			 size_t *lenp, loff_t *ppos);

#endif /* _IP_VS_MHS_CID_H */
