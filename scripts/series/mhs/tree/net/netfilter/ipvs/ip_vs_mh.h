/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _IP_VS_MH_H
#define _IP_VS_MH_H

#include <linux/types.h>

struct ip_vs_dest;

/**
 * struct ip_vs_mh_share - a dest while a Maglev table is filled
 * @dest: the dest
 * @index: for the caller
 * @weight: more than 0
 * @perm: next slot of its preference list, less than the number of slots
 * @skip: between two slots of the list, less than the number of slots, not 0
 * @claims: slots so far, 0 at first
 * @next: dest in the same round
 */
struct ip_vs_mh_share {
	struct ip_vs_dest	*dest;
	u32			index;
	u32			weight;
	u32			perm;
	u32			skip;
	u32			claims;
	u32			next;
};

u32 ip_vs_mh_tab_size(void);
void ip_vs_mh_fill(struct ip_vs_mh_share *share, u32 n, u32 *table, u32 *queue);

#endif
