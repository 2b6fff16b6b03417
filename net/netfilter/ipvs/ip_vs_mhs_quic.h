/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: facts of a QUIC header, MHS_PKT_*.
 *
 * Pure.  The caller has checked the length of the header.
 */
#ifndef _IP_VS_MHS_QUIC_H
#define _IP_VS_MHS_QUIC_H

#include <linux/types.h>

#include "ip_vs_mhs_decide.h"

/* RFC 8999: the long header; RFC 9000, 9369: the type of an Initial */
#define MHS_QUIC_LONG_HEADER	0x80
#define MHS_QUIC_TYPE_SHIFT	4
#define MHS_QUIC_TYPE_MASK	0x3
#define MHS_QUIC_V1		0x00000001
#define MHS_QUIC_V1_INITIAL	0
#define MHS_QUIC_V2		0x6b3343cf
#define MHS_QUIC_V2_INITIAL	1

/* The start of a QUIC packet with a long header */
struct ip_vs_mhs_quic {
	u8	flags;
	__be32	version;
} __packed;

/* A packet of an unknown version begins no flow here: whichever server gets the
 * packet answers with Version Negotiation.
 */
static inline u32 ip_vs_mhs_quic_facts(const struct ip_vs_mhs_quic *h)
{
	u8 type;

	if (!(h->flags & MHS_QUIC_LONG_HEADER))
		return 0;
	type = h->flags >> MHS_QUIC_TYPE_SHIFT & MHS_QUIC_TYPE_MASK;
	switch (ntohl(h->version)) {
	case MHS_QUIC_V1:
		return type == MHS_QUIC_V1_INITIAL ? MHS_PKT_FRESH : 0;
	case MHS_QUIC_V2:
		return type == MHS_QUIC_V2_INITIAL ? MHS_PKT_FRESH : 0;
	}
	return 0;
}

#endif /* _IP_VS_MHS_QUIC_H */
