// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: what makes the records of lanes old.
 *
 * The kernel's notifiers tell of devices, neighbours and routes: see
 * ip_vs_mhs_lane_way.h.  A namespace listens from the first lane=1 on, so nobody
 * pays who has no lane.
 *
 * The notifiers run under RTNL, in softirqs, or under locks of the kernel's tables:
 * they count, and do nothing else.
 */
#include <linux/hash.h>
#include <linux/netdevice.h>
#include <linux/sysctl.h>
#include <net/fib_notifier.h>
#include <net/neighbour.h>
#include <net/netevent.h>

#include "ip_vs_mhs_lane.h"

static struct ip_vs_mhs_net *watch_net(struct ip_vs_mhs_lane_net *ln)
{
	return container_of(ln, struct ip_vs_mhs_net, lane_net);
}

static int watch_devices(struct notifier_block *nb, unsigned long event,
			 void *info)
{
	struct ip_vs_mhs_lane_net *ln =
		container_of(nb, struct ip_vs_mhs_lane_net, devices_nb);

	ip_vs_mhs_lane_changed(&ln->generation);
	return NOTIFY_DONE;
}

static int watch_routes(struct notifier_block *nb, unsigned long event,
			void *info)
{
	struct ip_vs_mhs_lane_net *ln =
		container_of(nb, struct ip_vs_mhs_lane_net, routes_nb);

	ip_vs_mhs_lane_changed(&ln->generation);
	return NOTIFY_DONE;
}

/* Neighbours of all namespaces */
static int watch_neighbours(struct notifier_block *nb, unsigned long event,
			    void *info)
{
	struct ip_vs_mhs_lane_net *ln =
		container_of(nb, struct ip_vs_mhs_lane_net, neighbours_nb);
	const struct neighbour *neigh = info;
	u32 hop;

	if (event == NETEVENT_REDIRECT)
		ip_vs_mhs_lane_changed(&ln->generation);
	if (event != NETEVENT_NEIGH_UPDATE ||
	    !net_eq(dev_net(neigh->dev), watch_net(ln)->net))
		return NOTIFY_DONE;
	hop = hash_ptr(neigh, MHS_LANE_HOP_BITS);
	ip_vs_mhs_lane_changed(&ln->next_hops[hop]);
	return NOTIFY_DONE;
}

static int watch_begin(struct ip_vs_mhs_net *mn)
{
	struct ip_vs_mhs_lane_net *ln = &mn->lane_net;
	int err;

	lockdep_assert_held(&mn->lane_lock);
	if (ln->watches)
		return 0;
	ln->devices_nb.notifier_call = watch_devices;
	ln->neighbours_nb.notifier_call = watch_neighbours;
	ln->routes_nb.notifier_call = watch_routes;
	err = register_netdevice_notifier_net(mn->net, &ln->devices_nb);
	if (err)
		return err;
	err = register_netevent_notifier(&ln->neighbours_nb);
	if (err) {
		unregister_netdevice_notifier_net(mn->net, &ln->devices_nb);
		return err;
	}
	/* Fails where routes change all the time.  Then a route of IPv6 that was
	 * deleted, the only change that rt_genid_*() do not count, is noticed by
	 * time.
	 */
	ln->watches_routes = !register_fib_notifier(mn->net, &ln->routes_nb,
						    NULL, NULL);
	ln->watches = true;
	return 0;
}

/**
 * ip_vs_mhs_lane_watch_sysctl() - read or write net.ipv4.vs.mhs.lane
 * @table: the sysctl; its data is ip_vs_mhs_net.lane of the namespace
 * @write: true for a write
 * @buffer: what is written or read
 * @lenp: length of @buffer
 * @ppos: position in the file
 *
 * Context: process; takes RTNL.
 * Return: 0, an error of proc_douintvec_minmax() or of the registration of
 *	notifiers; an error changes nothing.
 */
int ip_vs_mhs_lane_watch_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
				size_t *lenp, loff_t *ppos)
{
	struct ip_vs_mhs_net *mn = container_of(table->data,
						struct ip_vs_mhs_net, lane);
	struct ctl_table copy = *table;
	unsigned int lane;
	int err;

	mutex_lock(&mn->lane_lock);
	lane = mn->lane;
	copy.data = &lane;
	err = proc_douintvec_minmax(&copy, write, buffer, lenp, ppos);
	if (!err && write) {
		if (lane)
			err = watch_begin(mn);
		if (!err) {
			WRITE_ONCE(mn->lane, lane);
			ip_vs_mhs_lane_changed(&mn->lane_net.generation);
		}
	}
	mutex_unlock(&mn->lane_lock);
	return err;
}

/**
 * ip_vs_mhs_lane_watch_exit() - listen to no notifier any more
 * @mn: the namespace, whose sysctl is gone
 *
 * Context: process; takes RTNL.
 */
void ip_vs_mhs_lane_watch_exit(struct ip_vs_mhs_net *mn)
{
	struct ip_vs_mhs_lane_net *ln = &mn->lane_net;

	if (!ln->watches)
		return;
	if (ln->watches_routes)
		unregister_fib_notifier(mn->net, &ln->routes_nb);
	unregister_netevent_notifier(&ln->neighbours_nb);
	unregister_netdevice_notifier_net(mn->net, &ln->devices_nb);
}
