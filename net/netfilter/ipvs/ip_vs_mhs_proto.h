/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: facts of a TCP header, MHS_PKT_*.
 *
 * Pure.  The caller has checked the length of the header.
 */
#ifndef _IP_VS_MHS_PROTO_H
#define _IP_VS_MHS_PROTO_H

#include <linux/tcp.h>

#include "ip_vs_mhs_decide.h"

static __always_inline u32 ip_vs_mhs_proto_tcp_facts(const struct tcphdr *th)
{
	__be32 flags = tcp_flag_word(th) & (TCP_FLAG_SYN | TCP_FLAG_ACK |
					    TCP_FLAG_FIN | TCP_FLAG_RST);

	if (likely(flags == TCP_FLAG_ACK))
		return 0;
	/* A segment without any of the four flags belongs to no flow */
	if (!flags || flags & (TCP_FLAG_FIN | TCP_FLAG_RST))
		return MHS_PKT_ENDS;
	return flags == TCP_FLAG_SYN ? MHS_PKT_FRESH : 0;
}

#endif /* _IP_VS_MHS_PROTO_H */
