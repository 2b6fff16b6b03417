// SPDX-License-Identifier: GPL-2.0-only
/* XDP programs that do one thing: what each verdict costs by itself. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp_drop")
int drop(struct xdp_md *frame)
{
	return XDP_DROP;
}

SEC("xdp_pass")
int pass(struct xdp_md *frame)
{
	return XDP_PASS;
}

SEC("xdp_tx")
int tx(struct xdp_md *frame)
{
	return XDP_TX;
}

/* To the card that was made after this one */
SEC("xdp_redirect")
int redirect(struct xdp_md *frame)
{
	return bpf_redirect(frame->ingress_ifindex + 1, 0);
}

char _license[] SEC("license") = "GPL";
