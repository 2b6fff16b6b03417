// SPDX-License-Identifier: GPL-2.0-only
/* The lane of XDP programs: forwards stable packets of mhs before the IP stack.
 *
 *	ip link set dev eth0 xdpdrv obj lane.bpf.o sec xdp
 *
 * The module decides and rewrites the frame, in the kfunc bpf_ipvs_mhs_lane(), and
 * this program sends it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

extern int bpf_ipvs_mhs_lane(struct xdp_md *ctx) __ksym;

SEC("xdp")
int mhs_lane(struct xdp_md *ctx)
{
	int where = bpf_ipvs_mhs_lane(ctx);

	if (where > 0)
		return bpf_redirect(where, 0);
	return where ? XDP_TX : XDP_PASS;
}

/* The kfunc is for programs under this license only */
char _license[] SEC("license") = "GPL";
