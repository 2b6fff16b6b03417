// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the sysctls lane and ingress, and what makes
 * the records of lanes old.
 *
 * From the first 1 or name on the namespace listens to the kernel's notifiers of
 * devices, neighbours and routes.  These run under RTNL, in softirqs, or under locks
 * of the kernel's tables: they count, and a device that goes takes its hook along.
 *
 *	mhs_net.lane_lock	writes of both sysctls; RTNL is taken under it.
 *				net_init() must not take RTNL: while a core with
 *				one service mutex loads the module, RTNL may wait
 *				for that mutex, see ip_vs_dst_event()
 *	mhs_net.ingress		under RTNL; dev is NULL where no hook is.
 *				Packets use none of it
 */
#include <linux/hash.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/sysctl.h>
#include <net/fib_notifier.h>
#include <net/neighbour.h>
#include <net/netevent.h>

#include "ip_vs_mhs.h"

/* Longest text of the sysctl ingress */
#define WATCH_TEXT_BYTES	512

/* The hook of @dev; without one NULL, or for NULL one that is free */
static struct nf_hook_ops *watch_hook(struct mhs_net *mn,
				      const struct net_device *dev)
{
	int i;

	ASSERT_RTNL();
	for (i = 0; i < MHS_INGRESS_DEVICES; i++)
		if (mn->ingress[i].dev == dev)
			return &mn->ingress[i];
	return NULL;
}

static void watch_hook_del(struct mhs_net *mn, struct nf_hook_ops *ops)
{
	nf_unregister_net_hook(mn->net, ops);
	ops->dev = NULL;
}

static int watch_hook_add(struct mhs_net *mn, struct net_device *dev)
{
	struct nf_hook_ops *ops = watch_hook(mn, NULL);
	int err;

	*ops = (struct nf_hook_ops){
		.hook		= mhs_ingress_hook,
		.dev		= dev,
		.priv		= mn,
		.pf		= NFPROTO_NETDEV,
		.hooknum	= NF_NETDEV_INGRESS,
		/* before those of nftables */
		.priority	= INT_MIN,
	};
	err = nf_register_net_hook(mn->net, ops);
	if (err)
		ops->dev = NULL;
	return err;
}

static int watch_devices(struct notifier_block *nb, unsigned long event,
			 void *info)
{
	struct mhs_net *mn = container_of(nb, struct mhs_net, devices_nb);
	struct nf_hook_ops *ops;

	/* the end of a device, or its way to another namespace */
	if (event == NETDEV_UNREGISTER) {
		ops = watch_hook(mn, netdev_notifier_info_to_dev(info));
		if (ops)
			watch_hook_del(mn, ops);
	}
	mhs_lane_changed(&mn->lane_net.generation);
	return NOTIFY_DONE;
}

static int watch_routes(struct notifier_block *nb, unsigned long event,
			void *info)
{
	struct mhs_net *mn = container_of(nb, struct mhs_net, routes_nb);

	mhs_lane_changed(&mn->lane_net.generation);
	return NOTIFY_DONE;
}

/* Neighbours of all namespaces */
static int watch_neighbours(struct notifier_block *nb, unsigned long event,
			    void *info)
{
	struct mhs_net *mn = container_of(nb, struct mhs_net, neighbours_nb);
	const struct neighbour *neigh = info;
	u32 hop;

	if (event == NETEVENT_REDIRECT)
		mhs_lane_changed(&mn->lane_net.generation);
	if (event != NETEVENT_NEIGH_UPDATE ||
	    !net_eq(dev_net(neigh->dev), mn->net))
		return NOTIFY_DONE;
	hop = hash_ptr(neigh, MHS_LANE_HOP_BITS);
	mhs_lane_changed(&mn->lane_net.next_hops[hop]);
	return NOTIFY_DONE;
}

static int watch_begin(struct mhs_net *mn)
{
	int err;

	lockdep_assert_held(&mn->lane_lock);
	if (mn->watches)
		return 0;
	mn->devices_nb.notifier_call = watch_devices;
	mn->neighbours_nb.notifier_call = watch_neighbours;
	mn->routes_nb.notifier_call = watch_routes;
	err = register_netdevice_notifier_net(mn->net, &mn->devices_nb);
	if (err)
		return err;
	/* Fails for a block that is registered only */
	register_netevent_notifier(&mn->neighbours_nb);
	/* If it fails, only time tells of the one change that rt_genid_*() do
	 * not count: a route of IPv6 was deleted
	 */
	register_fib_notifier(mn->net, &mn->routes_nb, NULL, NULL);
	mn->watches = true;
	return 0;
}

/* Read or write net.ipv4.vs.mhs.lane.  Takes RTNL. */
int mhs_lane_watch_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
			  size_t *lenp, loff_t *ppos)
{
	struct mhs_net *mn = container_of(table->data, struct mhs_net, lane);
	struct ctl_table value = *table;
	unsigned int lane;
	int err;

	mutex_lock(&mn->lane_lock);
	lane = mn->lane;
	value.data = &lane;
	err = proc_douintvec_minmax(&value, write, buffer, lenp, ppos);
	if (err || !write)
		goto unlock;
	/* No record is made of what nobody reports */
	err = lane ? watch_begin(mn) : 0;
	if (!err)
		WRITE_ONCE(mn->lane, lane);
	mhs_lane_changed(&mn->lane_net.generation);
unlock:
	mutex_unlock(&mn->lane_lock);
	return err;
}

/* Give the devices named in @text a hook, and only these */
static int watch_set(struct mhs_net *mn, char *text)
{
	struct net_device *devs[MHS_INGRESS_DEVICES];
	int i, k, n = 0, err = 0;
	char *name;

	ASSERT_RTNL();
	while ((name = strsep(&text, " ,\t"))) {
		if (!*name)
			continue;
		if (n == MHS_INGRESS_DEVICES)
			return -E2BIG;
		devs[n] = __dev_get_by_name(mn->net, name);
		if (!devs[n])
			return -ENODEV;
		if (devs[n++]->flags & IFF_LOOPBACK)
			return -EINVAL;
	}
	/* A hook that goes drops what waits in NFQUEUE: not those that stay */
	for (i = 0; i < MHS_INGRESS_DEVICES; i++) {
		for (k = 0; k < n && devs[k] != mn->ingress[i].dev; k++)
			;
		if (k == n && mn->ingress[i].dev)
			watch_hook_del(mn, &mn->ingress[i]);
	}
	for (i = 0; i < n && !err; i++)
		if (!watch_hook(mn, devs[i]))
			err = watch_hook_add(mn, devs[i]);
	return err;
}

/* Read or write net.ipv4.vs.mhs.ingress.  Takes RTNL.  An error leaves all as
 * it was, but one of nf_register_net_hook() leaves a part.
 */
int mhs_lane_watch_ingress(MHS_CTL_TABLE *table, int write, void *buffer,
			   size_t *lenp, loff_t *ppos)
{
	struct mhs_net *mn = table->data;
	char text[WATCH_TEXT_BYTES] = "";
	const struct net_device *dev;
	int i, err, len = 0;

	if (!*lenp)
		return 0;
	rtnl_lock();
	for (i = 0; i < MHS_INGRESS_DEVICES; i++) {
		dev = mn->ingress[i].dev;
		if (dev)
			len += scnprintf(text + len, sizeof(text) - len, "%s%s",
					 len ? " " : "", dev->name);
	}
	rtnl_unlock();
	err = mhs_svc_line(text, sizeof(text), write, buffer, lenp, ppos);
	if (err || !write)
		return err;
	mutex_lock(&mn->lane_lock);
	err = *text ? watch_begin(mn) : 0;
	if (!err) {
		rtnl_lock();
		err = watch_set(mn, text);
		rtnl_unlock();
	}
	mutex_unlock(&mn->lane_lock);
	return err;
}

/* Remove all hooks and notifiers.  The sysctls are gone */
void mhs_lane_watch_exit(struct mhs_net *mn)
{
	if (!mn->watches)
		return;
	/* -ENOENT if its registration failed */
	unregister_fib_notifier(mn->net, &mn->routes_nb);
	unregister_netevent_notifier(&mn->neighbours_nb);
	/* This tells the end of each device, which takes the hook along */
	unregister_netdevice_notifier_net(mn->net, &mn->devices_nb);
	/* Packets in hooks use @mn, which may be freed without a grace period */
	synchronize_net();
}
