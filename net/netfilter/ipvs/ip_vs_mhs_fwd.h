/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: what the module tells an XDP program.
 *
 * ip_vs_mhs_xdp.c includes this header, and a program the same text.
 */
#ifndef _IP_VS_MHS_FWD_H
#define _IP_VS_MHS_FWD_H

#include <linux/if_ether.h>
#include <linux/types.h>

/**
 * struct bpf_ipvs_mhs_fwd - how an XDP program sends a frame
 * @ifindex: device to redirect the frame to; 0: the receiving one, XDP_TX
 * @outer: length of the tunnel's header @head: 0, 20 or 40
 * @check: IPv4: checksum of the packet's header after the TTL has gone down
 * @eth: the new Ethernet header
 * @trim: bytes of padding to cut off before the tunnel's header is added
 * @head: the tunnel's header, struct iphdr or ipv6hdr, as bytes: the verifier
 *	takes structures that are nested at most four deep
 */
struct bpf_ipvs_mhs_fwd {
	__u32		ifindex;
	__u16		outer;
	__u16		check;
	struct ethhdr	eth;
	__u16		trim;
	__u8		head[40];
};

#endif /* _IP_VS_MHS_FWD_H */
