// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: packets before the IP stack, seldom asked;
 * /proc/net/ip_vs_mhs_lane.
 *
 * Overview: ip_vs_mhs_lane_ask.h.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/inetdevice.h>
#include <linux/seq_file.h>
#include <net/ip6_route.h>
#include <net/route.h>

#include "ip_vs_mhs_lane_svc.h"

/* The order is that of enum ip_vs_mhs_lane */
static const char * const lane_names[] = {
	"Forwarded", "Off", "Mark", "Conntrack", "Backup", "Frame", "Service",
	"Address", "Entry", "Decision", "Method", "Route", "Neighbour", "Mtu",
	"Device",
};

static bool lane_lookup_ipv6(struct net *net, const struct net_device *in,
			     const struct in6_addr *addr)
{
#if IS_ENABLED(CONFIG_IP_VS_IPV6)
	struct flowi6 fl6 = { .flowi6_iif = in->ifindex, .daddr = *addr };
	const struct rt6_info *rt;
	struct dst_entry *dst;
	bool local;

	/* of one device, and not for packets from outside */
	if (ipv6_addr_type(addr) & (IPV6_ADDR_LINKLOCAL | IPV6_ADDR_LOOPBACK))
		return false;
	dst = ip6_route_lookup(net, &fl6, NULL, 0);
	rt = container_of(dst, struct rt6_info, dst);
	local = !dst->error && rt->rt6i_flags & RTF_LOCAL;
	dst_release(dst);
	return local;
#else
	return false;
#endif
}

/**
 * ip_vs_mhs_lane_is_local() - ask the routes whether a virtual address is local
 * @mhs: the service
 * @in: the device that received the packet
 * @generation: if the address is local, packets believe so until the namespace
 *	has another generation
 *
 * Context: softirq, under RCU.
 * Return: true if the address is local.
 */
bool ip_vs_mhs_lane_is_local(struct ip_vs_mhs *mhs, const struct net_device *in,
			     u32 generation)
{
	struct net *net = mhs->net->net;

	if (mhs->af == AF_INET6) {
		if (!lane_lookup_ipv6(net, in, &mhs->addr.in6))
			return false;
	} else if (ipv4_is_loopback(mhs->addr.ip) ||
		   inet_addr_type_dev_table(net, in, mhs->addr.ip) !=
		   RTN_LOCAL) {
		return false;
	}
	WRITE_ONCE(mhs->local_generation, generation);
	return true;
}

/**
 * ip_vs_mhs_lane_has_entry() - has a flow a connection entry?
 * @mhs: the service
 * @transport: IPPROTO_*
 * @caddr: the client's address
 * @cport: the client's port
 * @vaddr: the virtual address
 * @vport: the virtual port
 *
 * Context: softirq, under RCU.
 * Return: true if the core has an entry for the flow.
 */
bool ip_vs_mhs_lane_has_entry(const struct ip_vs_mhs *mhs, u8 transport,
			      const union nf_inet_addr *caddr, __be16 cport,
			      const union nf_inet_addr *vaddr, __be16 vport)
{
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	ip_vs_conn_fill_param(mhs->ipvs, mhs->af, transport, caddr, cport,
			      vaddr, vport, &param);
	cp = ip_vs_conn_in_get(&param);
	if (!cp)
		return false;
	__ip_vs_conn_put(cp);
	return true;
}

/**
 * ip_vs_mhs_lane_show() - show what became of the frames that a lane saw
 * @seq: the file, of a namespace
 * @v: unused
 *
 * Context: process; takes net.lock.
 * Return: 0.
 */
int ip_vs_mhs_lane_show(struct seq_file *seq, void *v)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(seq_file_single_net(seq));
	struct ip_vs_mhs_lane_stats __percpu *stats;
	unsigned long n;
	int cpu, i;

	BUILD_BUG_ON(ARRAY_SIZE(lane_names) != MHS_LANE_MAX);

	mutex_lock(&mn->lock);
	stats = ip_vs_mhs_lane_stats(mn);
	for (i = 0; i < MHS_LANE_MAX; i++) {
		n = 0;
		for_each_possible_cpu(cpu)
			if (stats)
				n += READ_ONCE(per_cpu_ptr(stats, cpu)->n[i]);
		seq_printf(seq, "%s %lu\n", lane_names[i], n);
	}
	mutex_unlock(&mn->lock);
	return 0;
}
