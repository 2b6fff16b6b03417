/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: does a QUIC packet begin a flow, and where is its
 * connection ID?  The caller has checked the length of a header.
 */
#ifndef _IP_VS_MHS_QUIC_H
#define _IP_VS_MHS_QUIC_H

#include "ip_vs_mhs_decide.h"

/* RFC 8999: the long header; RFC 9000, 9369: the type of an Initial */
#define MHS_QUIC_LONG_HEADER	0x80
#define MHS_QUIC_FIXED_BIT	0x40
#define MHS_QUIC_TYPE_SHIFT	4
#define MHS_QUIC_TYPE_MASK	0x3
#define MHS_QUIC_V1		0x00000001
#define MHS_QUIC_V1_INITIAL	0
#define MHS_QUIC_V1_HANDSHAKE	2
#define MHS_QUIC_V2		0x6b3343cf
#define MHS_QUIC_V2_INITIAL	1
#define MHS_QUIC_V2_HANDSHAKE	3

/* The start of a QUIC packet with a long header */
struct mhs_quic {
	u8	flags;
	__be32	version;
} __packed;

#define MHS_QUIC_CID_MAX	20

/* Octets of an ID behind the first one: the server's and a nonce of 4 at least, or
 * both in one block.  mhs_quic_id() reads at most a long header, the length of an ID,
 * and these.
 */
#define MHS_QUIC_PLAIN		8
#define MHS_QUIC_BLOCK		16
#define MHS_QUIC_BYTES		(sizeof(struct mhs_quic) + 2 + MHS_QUIC_BLOCK)

/* Has a long header that type, of version 1 or 2? */
static inline bool mhs_quic_is(const struct mhs_quic *h, u8 v1, u8 v2)
{
	u8 type = h->flags >> MHS_QUIC_TYPE_SHIFT & MHS_QUIC_TYPE_MASK;

	switch (ntohl(h->version)) {
	case MHS_QUIC_V1:
		return type == v1;
	case MHS_QUIC_V2:
		return type == v2;
	}
	return false;
}

/* Of a short header, 4 octets more and the 16 that its protection takes */
#define MHS_QUIC_MIN	21

/* The records of DTLS up to 1.2, the messages of WireGuard */
static inline bool mhs_quic_is_other(const struct mhs_quic *h)
{
	u32 next = ntohl(h->version);

	return h->flags < 5 ? h->flags && next < 0x100 :
	       h->flags >= 20 && h->flags <= 26 && next >> 24 == 0xfe;
}

/* What are @bytes of UDP to a QUIC port?  Long headers of an unknown version may
 * all begin a flow.  Who clears the fixed bit may send QUIC (RFC 9287).
 */
static inline mhs_facts_t mhs_quic_facts(const struct mhs_quic *h, unsigned int bytes)
{
	u32 version = ntohl(h->version);

	if (bytes < MHS_QUIC_MIN || mhs_quic_is_other(h))
		return MHS_PKT_CONNLESS;
	if (!(h->flags & MHS_QUIC_LONG_HEADER))
		return h->flags & MHS_QUIC_FIXED_BIT ? 0 : MHS_PKT_ODD;
	if (version == MHS_QUIC_V1 || version == MHS_QUIC_V2)
		return mhs_quic_is(h, MHS_QUIC_V1_INITIAL, MHS_QUIC_V2_INITIAL) ?
		       MHS_PKT_NEW : MHS_PKT_ANSWERS;
	return h->flags & MHS_QUIC_FIXED_BIT ? MHS_PKT_NEW : MHS_PKT_CONNLESS;
}

/* The offset of the @need octets after the first one of the destination
 * connection ID, if a server may have issued the ID (clients choose those of
 * Initial and 0-RTT packets), or 0.
 */
static inline unsigned int mhs_quic_id(const u8 *h, unsigned int bytes,
				       unsigned int need)
{
	const unsigned int head = sizeof(struct mhs_quic);
	unsigned int at = 1;

	if (bytes && *h & MHS_QUIC_LONG_HEADER) {
		if (bytes <= head || h[head] <= need ||
		    h[head] > MHS_QUIC_CID_MAX ||
		    !mhs_quic_is((const struct mhs_quic *)h,
				 MHS_QUIC_V1_HANDSHAKE, MHS_QUIC_V2_HANDSHAKE))
			return 0;
		at = head + 1;
	}
	return bytes > at + need ? at + 1 : 0;
}

#endif /* _IP_VS_MHS_QUIC_H */
