// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the lane at the ingress hook of devices.
 *
 * For kernels and devices without the lane of XDP programs.  The sysctl ingress
 * names the devices, and each has a netfilter hook, which runs before the IP
 * stack.  The hook decides as the lane of XDP programs does: ip_vs_mhs_lane_ask.h.
 *
 * Locks and lifetimes
 * -------------------
 *
 *	ip_vs_mhs_net.lane_lock		writes of the sysctl; RTNL is taken under it
 *	ip_vs_mhs_net.ingress		under RTNL: the sysctl and the notifier
 *	struct ingress_dev		freed by RCU after its hook has gone:
 *					packets may be in the hook
 *
 * A device that goes takes its hook along, by the notifier.  The notifier comes
 * with the first device, not with the namespace: while a core with one service
 * mutex loads the module, RTNL may wait for that mutex (ip_vs_dst_event()).
 */
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <net/ip_tunnels.h>
#include <net/neighbour.h>

#include "ip_vs_mhs_lane_ask.h"

/* Longest value of the sysctl, and how many devices it can name */
#define INGRESS_TEXT_BYTES	256
#define INGRESS_DEVICES		16

struct ingress_dev {
	struct list_head	list;		/* in ip_vs_mhs_net.ingress */
	struct nf_hook_ops	ops;
	struct rcu_head		rcu;
};

/* Make room for the tunnel's header and the Ethernet header.  Nothing may fail
 * once the packet has been counted.
 */
static bool ingress_prepare(const struct ip_vs_mhs_lane_packet *p,
			    struct sk_buff *skb)
{
	int gso = p->way.outer == sizeof(struct iphdr) ? SKB_GSO_IPXIP4 :
							 SKB_GSO_IPXIP6;

	if (skb_cow_head(skb, LL_RESERVED_SPACE(p->way.out) + p->way.outer) ||
	    skb_ensure_writable(skb, min_t(unsigned int, skb->len,
					   MHS_LANE_HEADER_BYTES)))
		return false;
	return !p->way.outer || !iptunnel_handle_offloads(skb, gso);
}

static void ingress_push(const struct ip_vs_mhs_lane_packet *p,
			 struct sk_buff *skb)
{
	skb->transport_header = skb->network_header;
	skb_set_inner_ipproto(skb, ip_vs_mhs_lane_inner(p->protocol ==
							htons(ETH_P_IPV6)));
	skb_set_inner_mac_header(skb, skb_inner_network_offset(skb));
	skb_push(skb, p->way.outer);
	skb_reset_network_header(skb);
	ip_vs_mhs_lane_tunnel(p, skb_network_header(skb));
	skb->protocol = p->way.proto;
}

/* Make the packet what the core's transmitters make of it */
static void ingress_rewrite(const struct ip_vs_mhs_lane_packet *p,
			    struct sk_buff *skb)
{
	if (p->protocol == htons(ETH_P_IPV6))
		ipv6_hdr(skb)->hop_limit--;
	else
		ip_decrease_ttl(ip_hdr(skb));
	if (p->way.outer)
		ingress_push(p, skb);
	/* ip_rcv() would do that; on veth the socket is the sender's */
	skb_orphan(skb);
	memset(skb->cb, 0, sizeof(skb->cb));
	nf_reset_ct(skb);
	skb_dst_drop(skb);
	skb_forward_csum(skb);
	skb->tstamp = 0;
}

static enum ip_vs_mhs_lane ingress_ask(struct ip_vs_mhs_lane_packet *p,
				       struct sk_buff *skb)
{
	enum ip_vs_mhs_lane why;

	if (skb->pkt_type != PACKET_HOST || skb_vlan_tag_present(skb) ||
	    skb_shared(skb) ||
	    !pskb_may_pull(skb, min_t(unsigned int, skb->len,
				      MHS_LANE_HEADER_BYTES)))
		return MHS_LANE_FRAME;
	p->ip = skb->data;
	p->bytes = skb->len;
	p->protocol = skb->protocol;
	why = ip_vs_mhs_lane_ask(p, 0);
	if (why)
		return why;
	if (p->len > p->way.mtu &&
	    !(skb_is_gso(skb) && skb_gso_validate_network_len(skb, p->way.mtu)))
		return MHS_LANE_MTU;
	if (pskb_trim_rcsum(skb, p->len) || !ingress_prepare(p, skb))
		return MHS_LANE_DEVICE;
	return MHS_LANE_FORWARDED;
}

/* The hook of a device; @priv is struct ip_vs_mhs_net of the namespace */
static unsigned int ingress_hook(void *priv, struct sk_buff *skb,
				 const struct nf_hook_state *state)
{
	struct ip_vs_mhs_lane_packet p __uninitialized;
	enum ip_vs_mhs_lane why;

	p.mn = priv;
	p.in = state->in;
	p.hash = rcu_dereference(p.mn->hash);
	/* Without services no packet is counted */
	if (!p.hash)
		return NF_ACCEPT;
	why = ingress_ask(&p, skb);
	ip_vs_mhs_lane_count(&p, why);
	if (why)
		return NF_ACCEPT;
	ingress_rewrite(&p, skb);
	skb->dev = p.way.out;
	/* The neighbour adds the Ethernet header */
	neigh_output(p.way.neigh, skb, false);
	return NF_STOLEN;
}

static void ingress_del(struct ip_vs_mhs_net *mn, struct ingress_dev *d)
{
	ASSERT_RTNL();
	nf_unregister_net_hook(mn->net, &d->ops);
	list_del(&d->list);
	kfree_rcu(d, rcu);
}

static int ingress_add(struct ip_vs_mhs_net *mn, struct net_device *dev,
		       struct list_head *to)
{
	struct ingress_dev *d;
	int err;

	ASSERT_RTNL();
	d = kzalloc_obj(*d, GFP_KERNEL_ACCOUNT);
	if (!d)
		return -ENOMEM;
	d->ops = (struct nf_hook_ops){
		.hook		= ingress_hook,
		.dev		= dev,
		.priv		= mn,
		.pf		= NFPROTO_NETDEV,
		.hooknum	= NF_NETDEV_INGRESS,
		/* before those of nftables */
		.priority	= INT_MIN,
	};
	err = nf_register_net_hook(mn->net, &d->ops);
	if (err)
		kfree(d);
	else
		list_add_tail(&d->list, to);
	return err;
}

/* A device that goes, or leaves the namespace, takes its hook along */
static int ingress_event(struct notifier_block *nb, unsigned long event,
			 void *info)
{
	struct ip_vs_mhs_net *mn =
		container_of(nb, struct ip_vs_mhs_net, ingress_nb);
	const struct net_device *dev = netdev_notifier_info_to_dev(info);
	struct ingress_dev *d, *next;

	if (event != NETDEV_UNREGISTER || !net_eq(dev_net(dev), mn->net))
		return NOTIFY_DONE;
	list_for_each_entry_safe(d, next, &mn->ingress, list)
		if (d->ops.dev == dev)
			ingress_del(mn, d);
	return NOTIFY_DONE;
}

static bool ingress_has(const struct list_head *devices,
			const struct net_device *dev)
{
	const struct ingress_dev *d;

	list_for_each_entry(d, devices, list)
		if (d->ops.dev == dev)
			return true;
	return false;
}

/* Give the devices named in @text a hook, and only these.  A wrong name or an
 * error changes nothing.
 */
static int ingress_set(struct ip_vs_mhs_net *mn, char *text)
{
	struct net_device *devs[INGRESS_DEVICES];
	struct ingress_dev *d, *next;
	LIST_HEAD(added);
	int i, n = 0, err = 0;
	char *name;

	ASSERT_RTNL();
	while ((name = strsep(&text, " ,\t\n"))) {
		if (!*name)
			continue;
		if (n == INGRESS_DEVICES)
			return -E2BIG;
		devs[n] = __dev_get_by_name(mn->net, name);
		if (!devs[n])
			return -ENODEV;
		if (devs[n]->flags & IFF_LOOPBACK)
			return -EINVAL;
		n++;
	}
	for (i = 0; i < n && !err; i++)
		if (!ingress_has(&mn->ingress, devs[i]) &&
		    !ingress_has(&added, devs[i]))
			err = ingress_add(mn, devs[i], &added);
	if (err) {
		list_for_each_entry_safe(d, next, &added, list)
			ingress_del(mn, d);
		return err;
	}
	list_for_each_entry_safe(d, next, &mn->ingress, list) {
		for (i = 0; i < n && devs[i] != d->ops.dev; i++)
			;
		if (i == n)
			ingress_del(mn, d);
	}
	list_splice_tail(&added, &mn->ingress);
	return 0;
}

static void ingress_show(const struct ip_vs_mhs_net *mn, char *text, size_t size)
{
	const struct ingress_dev *d;
	size_t len = 0;

	ASSERT_RTNL();
	*text = 0;
	list_for_each_entry(d, &mn->ingress, list)
		len += scnprintf(text + len, size - len, "%s%s",
				 len ? " " : "", d->ops.dev->name);
}

static int ingress_write(struct ip_vs_mhs_net *mn, char *text)
{
	int err;

	lockdep_assert_held(&mn->lane_lock);
	if (!mn->ingress_nb.notifier_call) {
		mn->ingress_nb.notifier_call = ingress_event;
		err = register_netdevice_notifier_net(mn->net, &mn->ingress_nb);
		if (err) {
			mn->ingress_nb.notifier_call = NULL;
			return err;
		}
	}
	rtnl_lock();
	err = ingress_set(mn, text);
	rtnl_unlock();
	return err;
}

/**
 * ip_vs_mhs_ingress_sysctl() - read or write net.ipv4.vs.mhs.ingress
 * @table: the sysctl; its data is struct ip_vs_mhs_net of the namespace
 * @write: true for a write
 * @buffer: what is written or read
 * @lenp: length of @buffer
 * @ppos: position in the file
 *
 * The names of devices, separated by blanks or commas.
 *
 * Context: process; takes RTNL.
 * Return: 0, -ENODEV for an unknown device, -EINVAL for a loopback device or a
 *	write at an offset, -E2BIG for too many, -ENOMEM or an error of
 *	nf_register_net_hook(); an error changes nothing.
 */
int ip_vs_mhs_ingress_sysctl(MHS_CTL_TABLE *table, int write,
			     void *buffer, size_t *lenp, loff_t *ppos)
{
	struct ip_vs_mhs_net *mn = table->data;
	char text[INGRESS_TEXT_BYTES];
	struct ctl_table copy = {
		.data	= text,
		.maxlen	= sizeof(text),
	};
	int err;

	if (!write) {
		rtnl_lock();
		ingress_show(mn, text, sizeof(text));
		rtnl_unlock();
		return proc_dostring(&copy, write, buffer, lenp, ppos);
	}
	/* The whole text at once: a part would name other devices */
	if (*ppos)
		return -EINVAL;
	if (*lenp >= sizeof(text))
		return -E2BIG;
	if (!*lenp)
		return 0;
	*text = 0;
	err = proc_dostring(&copy, write, buffer, lenp, ppos);
	if (err)
		return err;
	mutex_lock(&mn->lane_lock);
	err = ingress_write(mn, text);
	mutex_unlock(&mn->lane_lock);
	return err;
}

/**
 * ip_vs_mhs_ingress_init() - prepare the lane of a namespace
 * @mn: the namespace, zeroed
 *
 * Context: any.
 */
void ip_vs_mhs_ingress_init(struct ip_vs_mhs_net *mn)
{
	INIT_LIST_HEAD(&mn->ingress);
}

/**
 * ip_vs_mhs_ingress_exit() - remove the hooks of all devices of a namespace
 * @mn: the namespace, whose sysctl is gone
 *
 * Waits for packets in the hooks, as @mn may be freed without a grace period.
 *
 * Context: process; takes RTNL.
 */
void ip_vs_mhs_ingress_exit(struct ip_vs_mhs_net *mn)
{
	struct ingress_dev *d, *next;

	if (!mn->ingress_nb.notifier_call)
		return;
	rtnl_lock();
	list_for_each_entry_safe(d, next, &mn->ingress, list)
		ingress_del(mn, d);
	rtnl_unlock();
	unregister_netdevice_notifier_net(mn->net, &mn->ingress_nb);
	synchronize_net();
}
