// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler, its lane: the module, its part of a namespace, and
 * what makes records old: notifiers, which run under RTNL, in softirqs, or under locks
 * of the kernel's tables.
 *
 * A namespace has its part from the first 1 or name on, as the pernet init of the
 * scheduler must not take RTNL: while a core with one service mutex loads the
 * scheduler, RTNL may wait for that mutex, see ip_vs_dst_event().
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/fib_notifier.h>
#include <net/neighbour.h>
#include <net/netevent.h>

#include "ip_vs_mhs_lane_ask.h"

/* The hook of @dev; without one NULL, or for NULL one that is free */
static struct nf_hook_ops *main_hook(struct mhs_lane_net *lane_net,
				     const struct net_device *dev)
{
	int i;

	ASSERT_RTNL();
	for (i = 0; i < MHS_INGRESS_DEVICES; i++)
		if (lane_net->ingress[i].dev == dev)
			return &lane_net->ingress[i];
	return NULL;
}

static void main_hook_del(struct mhs_lane_net *lane_net, struct nf_hook_ops *ops)
{
	nf_unregister_net_hook(lane_net->mn->net, ops);
	ops->dev = NULL;
}

static int main_hook_add(struct mhs_lane_net *lane_net, struct net_device *dev)
{
	struct nf_hook_ops *ops = main_hook(lane_net, NULL);
	int err;

	*ops = (struct nf_hook_ops){
		.hook		= mhs_lane_ingress_hook,
		.dev		= dev,
		.priv		= lane_net,
		.pf		= NFPROTO_NETDEV,
		.hooknum	= NF_NETDEV_INGRESS,
		/* before those of nftables */
		.priority	= INT_MIN,
	};
	err = nf_register_net_hook(lane_net->mn->net, ops);
	if (err)
		ops->dev = NULL;
	return err;
}

static int main_set_devices(struct mhs_lane_net *lane_net, char *text)
{
	struct net_device *devs[MHS_INGRESS_DEVICES], *dev;
	int i, k, n = 0, err = 0;
	char *name;

	rtnl_lock();
	while (!err && (name = strsep(&text, " ,\t"))) {
		if (!*name)
			continue;
		dev = __dev_get_by_name(lane_net->mn->net, name);
		if (n == MHS_INGRESS_DEVICES)
			err = -E2BIG;
		else if (!dev)
			err = -ENODEV;
		else if (dev->flags & IFF_LOOPBACK)
			err = -EINVAL;
		else
			devs[n++] = dev;
	}
	/* A hook that goes drops what waits in NFQUEUE: not those that stay */
	for (i = 0; i < MHS_INGRESS_DEVICES && !err; i++) {
		for (k = 0; k < n && devs[k] != lane_net->ingress[i].dev; k++)
			;
		if (k == n && lane_net->ingress[i].dev)
			main_hook_del(lane_net, &lane_net->ingress[i]);
	}
	for (i = 0; i < n && !err; i++)
		if (!main_hook(lane_net, devs[i]))
			err = main_hook_add(lane_net, devs[i]);
	rtnl_unlock();
	return err;
}

static void main_devices(struct mhs_lane_net *lane_net, char *text, size_t size)
{
	const struct net_device *dev;
	int i, len = 0;

	rtnl_lock();
	for (i = 0; i < MHS_INGRESS_DEVICES; i++) {
		dev = lane_net->ingress[i].dev;
		if (dev)
			len += scnprintf(text + len, size - len, "%s%s",
					 len ? " " : "", dev->name);
	}
	rtnl_unlock();
}

static int main_device_event(struct notifier_block *nb, unsigned long event,
			     void *info)
{
	struct mhs_lane_net *lane_net = container_of(nb, typeof(*lane_net), devices_nb);
	struct nf_hook_ops *ops;

	/* the end of a device, or its way to another namespace */
	if (event == NETDEV_UNREGISTER) {
		ops = main_hook(lane_net, netdev_notifier_info_to_dev(info));
		if (ops)
			main_hook_del(lane_net, ops);
	}
	mhs_lane_changed(&lane_net->mn->generation);
	return NOTIFY_DONE;
}

static int main_route_event(struct notifier_block *nb, unsigned long event,
			    void *info)
{
	struct mhs_lane_net *lane_net = container_of(nb, typeof(*lane_net), routes_nb);

	mhs_lane_changed(&lane_net->mn->generation);
	return NOTIFY_DONE;
}

/* Neighbours of all namespaces */
static int main_neighbour_event(struct notifier_block *nb, unsigned long event,
				void *info)
{
	struct mhs_lane_net *lane_net = container_of(nb, typeof(*lane_net), neighbours_nb);
	const struct neighbour *neigh = info;

	if (event == NETEVENT_REDIRECT)
		mhs_lane_changed(&lane_net->mn->generation);
	else if (event == NETEVENT_NEIGH_UPDATE &&
		 net_eq(dev_net(neigh->dev), lane_net->mn->net))
		mhs_lane_changed(&lane_net->next_hops[hash_ptr(neigh, MHS_LANE_HOP_BITS)]);
	return NOTIFY_DONE;
}

static int main_net_init(struct mhs_net *mn)
{
	struct mhs_lane_net *lane_net = kvzalloc_obj(*lane_net, GFP_KERNEL_ACCOUNT);
	int err = -ENOMEM;

	if (!lane_net)
		return err;
	lane_net->mn = mn;
	lane_net->stats = __alloc_percpu_gfp(MHS_LANE_MAX * sizeof(long),
					     sizeof(long), GFP_KERNEL_ACCOUNT);
	if (!lane_net->stats)
		goto free;
	lane_net->devices_nb.notifier_call = main_device_event;
	lane_net->neighbours_nb.notifier_call = main_neighbour_event;
	lane_net->routes_nb.notifier_call = main_route_event;
	err = register_netdevice_notifier_net(mn->net, &lane_net->devices_nb);
	if (err)
		goto free;
	/* Fails for a block that is registered only */
	register_netevent_notifier(&lane_net->neighbours_nb);
	/* If it fails, only time tells of the one change that rt_genid_*() do
	 * not count: a route of IPv6 was deleted
	 */
	register_fib_notifier(mn->net, &lane_net->routes_nb, NULL, NULL);
	/* No record is made before: of what nobody reports */
	rcu_assign_pointer(mn->lane_net, lane_net);
	return 0;
free:
	free_percpu(lane_net->stats);
	kvfree(lane_net);
	return err;
}

static void main_net_exit(struct mhs_net *mn)
{
	/* The namespace's exit is the only one who writes, or reads without RCU */
	struct mhs_lane_net *lane_net = rcu_dereference_protected(mn->lane_net, true);

	/* -ENOENT if its registration failed */
	unregister_fib_notifier(mn->net, &lane_net->routes_nb);
	unregister_netevent_notifier(&lane_net->neighbours_nb);
	/* This tells the end of each device, which takes the hook along */
	unregister_netdevice_notifier_net(mn->net, &lane_net->devices_nb);
	RCU_INIT_POINTER(mn->lane_net, NULL);
	/* Frames use @lane_net, in hooks also @mn, which may be freed without a
	 * grace period
	 */
	synchronize_net();
	free_percpu(lane_net->stats);
	kvfree(lane_net);
}

static void main_attach(unsigned int net_id,
			enum mhs_lane_why (*decide)(struct mhs_lane_packet *p))
{
	if (net_id)
		mhs_lane_record_decide = decide;
	/* Pairs with the acquire in xdp_lane() */
	smp_store_release(&mhs_lane_xdp_net_id, net_id);
	if (!net_id)
		synchronize_rcu();
}

const struct mhs_lane_module ip_vs_mhs_lane = {
	.structs	= MHS_STRUCTS,
	.attach		= main_attach,
	.net_init	= main_net_init,
	.net_exit	= main_net_exit,
	.devices	= main_devices,
	.set_devices	= main_set_devices,
};
EXPORT_SYMBOL_GPL(ip_vs_mhs_lane);

/* Without the kfunc the ingress hook works */
static int __init main_init(void)
{
	int err = mhs_lane_xdp_register();

	if (err == -ENOENT)
		pr_info("no XDP lane: the module has no BTF of this kernel: install dwarves and bpftool, and build the module again\n");
	else if (err)
		pr_info("no XDP lane: this kernel lets no module serve XDP programs (error %d)\n",
			err);
	return 0;
}

/* Nobody is inside: the scheduler and each attached program held the module */
static void __exit main_exit(void)
{
}

module_init(main_init);
module_exit(main_exit);
MODULE_DESCRIPTION("IPVS stateless Maglev scheduler: the lane before the IP stack");
MODULE_LICENSE("GPL");
MODULE_INFO(structs, __stringify(MHS_STRUCTS));
#ifdef MHS_VERSION
MODULE_VERSION(MHS_VERSION);
#endif
