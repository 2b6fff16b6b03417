/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _IP_VS_MH_H
#define _IP_VS_MH_H

struct ip_vs_dest;

/* A dest while a Maglev table is filled */
struct ip_vs_mh_share {
	struct ip_vs_dest	*dest;
	u32			index;	/* for the caller */
	u32			weight;	/* more than 0 */
	u32			perm;	/* next slot of its preference list */
	u32			skip;
	u32			claims;	/* slots so far */
	u32			next;	/* dest in the same round */
};

u32 ip_vs_mh_tab_size(void);
void ip_vs_mh_fill(struct ip_vs_mh_share *share, u32 n, u32 *table, u32 *queue);

#endif
