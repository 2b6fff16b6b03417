/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: its lane, a module of its own, and what that
 * and the scheduler have of each other.
 *
 *	ip_vs_mhs_lane_main.c	 module, namespaces; what makes records old
 *	ip_vs_mhs_lane_xdp.c	 the lane of XDP programs
 *	ip_vs_mhs_lane_ingress.c the lane at the ingress hook of devices
 *	ip_vs_mhs_lane_record.c	 makes the records
 *
 * A file calls only files below it in this list, and no file of the scheduler.
 *
 * Two modules
 * -----------
 *
 *	The scheduler takes struct mhs_lane_module by symbol_request() when a sysctl
 *	first asks for a lane, and holds the lane until its own module goes.  The lane
 *	holds nothing of the scheduler: an attached program holds the lane alone, and
 *	all frames go up while no scheduler has asked.  Each reads structs of the
 *	other's headers, of which MHS_STRUCTS is a checksum: they must be equal.
 *
 *	locks			api_lock of the scheduler, which all writes of both
 *				sysctls take, in all namespaces; then RTNL
 *	mhs_lane_xdp_net_id	written by attach(), under api_lock.  Frames acquire it,
 *				and see the decide() that was set before.  Between
 *				attach(0) and the end of the scheduler's namespaces a
 *				grace period passes
 *	mhs_net.lane_net	written once under api_lock, and by the exit of the
 *				namespace, which waits for a grace period before it
 *				frees the struct; by then both sysctls, the file in
 *				/proc, the notifiers and the hooks are gone.  Others
 *				read under RCU or api_lock
 *	lane_net.ingress	under RTNL; dev is NULL where no hook is; packets use
 *				none of it.  A device that goes takes its hook along
 *	server.record, mhs.local_generation, the rest of lane_net
 *				by packets, see below; the first two are freed with
 *				their owners, which packets find under RCU
 *
 *	Order of the end: services, which hold the scheduler; attach(0);
 *	mhs_net.lane_net of each namespace; the scheduler; programs; the lane.
 *
 * Records
 * -------
 *
 * A packet asks neither routes nor neighbours nor devices.  A server has a
 * record of the way to it, a service one of its address, a namespace one of
 * each device that receives.  A record holds while the namespace has the generation
 * in which it was made: the sum of counters that only grow, so that a change of any
 * makes another sum:
 *
 *	routes, rules, IPsec		the kernel's rt_genid_*(); what they do
 *					not count, the notifier of routes
 *	devices, redirects		their notifiers
 *	servers, services, sysctls	the scheduler, by mhs_lane_changed()
 *	next hop, in ways only		one of MHS_LANE_HOPS counters: a
 *					neighbour that changes ages few records
 *	all else, as the sync daemon	time, see mhs_lane_generation()
 *
 * A counter changes after what it counts, with a full barrier in between; who
 * makes a record reads the counters first, then, after a read barrier, what the
 * record says.  So a record made of old facts has an old generation.
 *
 * Packets make the records, without a lock.  Those of devices and services are
 * one word, true whoever writes last.  Who makes one of a way takes it by a
 * compare-and-exchange of the key that it saw before, else leaves it to others;
 * while the words change the key is MHS_LANE_WRITING, whose generation no namespace
 * has.  A reader compares the key before (acquire) and after (read barrier) it
 * copies the words.  No generation of a next hop comes again, so a copy between
 * two equal keys is of one record.
 *
 * The way names a neighbour and a device without a reference: both are freed a
 * grace period after the notifiers have told of their end, and who has compared
 * the generation under RCU uses them until the end of that section.
 */
#ifndef _IP_VS_MHS_LANE_H
#define _IP_VS_MHS_LANE_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/notifier.h>

/* Generations are odd; 0 before the first */
#define MHS_LANE_WRITING	2

/* Next hops share counters by a hash: 16 cache lines */
#define MHS_LANE_HOP_BITS	8
#define MHS_LANE_HOPS		BIT(MHS_LANE_HOP_BITS)

/* Devices share places by their index: each VLAN is one, too */
#define MHS_LANE_INS		64

struct mhs_lane_way {
	struct net_device	*out;
	/* 0 if out cannot send frames that come by another, or adds a tag */
	u32			ifindex;
	u16			mtu;		/* without the tunnel's header */
	u16			tunnel_hlen;	/* length of that header, or 0 */
	u64			eth8;		/* Ethernet header: 8 bytes */
	u32			eth4;		/* the next 4 */
	__be16			proto;		/* the Ethernet type */
	__be16			tci;		/* tag for XDP to put, or 0 */
	struct neighbour	*neigh;		/* the next hop */
};

/* The addresses of a tunnel's header, source first, as they follow each other
 * there, at any address.  Words, and no array: a packet keeps them in registers.
 */
struct mhs_lane_ends {
	u64			first;		/* both of IPv4 */
	u64			second, third, fourth;
} __packed;

struct mhs_lane_record {
	/* generation, and above it hop: next_hops[hop] counts for way.neigh */
	atomic64_t		key;
	struct mhs_lane_way way;
	struct mhs_lane_ends	ends;		/* with way.tunnel_hlen */
};

/* Is a device fit for a lane? */
#define MHS_LANE_FIT_IPV4	0x1U
#define MHS_LANE_FIT_IPV6	0x2U
#define MHS_LANE_FIT_XDP	0x4U	/* a program sees whole frames */

/* What is counted in @counter has changed: records of before are out of date */
static inline void mhs_lane_changed(atomic_t *counter)
{
	/* Pairs with the read barriers in mhs_lane_record_in(), _local() and
	 * _way(): who sees the new count sees the change.
	 */
	smp_mb__before_atomic();
	atomic_inc(counter);
}

/* What became of a frame that a lane saw: all but the first go up */
enum mhs_lane_why {
	MHS_LANE_NO_REASON,	/* to go up: forwarded in the end */
	MHS_LANE_OFF,		/* lane=0, or IPVS is off here */
	MHS_LANE_MARK,		/* a service by firewall mark exists */
	MHS_LANE_CONNTRACK,	/* vs.conntrack is 1 */
	MHS_LANE_BACKUP,	/* sync daemon's backup */
	MHS_LANE_FRAME,		/* not to this device, or not whole TCP or UDP */
	MHS_LANE_SERVICE,	/* to no service of mhs */
	MHS_LANE_ADDRESS,	/* source invalid, or destination not local */
	MHS_LANE_ENTRY,		/* has a connection entry */
	MHS_LANE_DECISION,	/* gets an entry, settles, or has no server */
	MHS_LANE_METHOD,	/* server by masquerading, GUE or GRE */
	MHS_LANE_ROUTE,		/* no route cached */
	MHS_LANE_NEIGHBOUR,	/* next hop not known to be alive, or local */
	MHS_LANE_MTU,		/* too long for the path */
	MHS_LANE_DEVICE,	/* receiving or output device unfit for a lane */
	MHS_LANE_MAX,
	MHS_LANE_UNTOLD = MHS_LANE_MAX	/* records do not tell: ask for all packets */
};

/* Devices that the sysctl ingress can name */
#define MHS_INGRESS_DEVICES	16

/* The lane's part of a namespace, from the first use to the end of struct mhs_net */
struct mhs_lane_net {
	/* By device and what a packet needs, MHS_LANE_FIT_*: the generation in which
	 * the namespace was open and the device fit, above it the device's index
	 */
	atomic64_t		in[MHS_LANE_INS][8];
	atomic_t		next_hops[MHS_LANE_HOPS];
	unsigned long __percpu	*stats;		/* frames, by enum mhs_lane_why */
	struct mhs_net		*mn;
	struct notifier_block	devices_nb;
	struct notifier_block	routes_nb;
	struct notifier_block	neighbours_nb;
	struct nf_hook_ops	ingress[MHS_INGRESS_DEVICES];
};

/* Bytes from the network header on that a lane reads at most */
#define MHS_LANE_HEADER_BYTES	(sizeof(struct ipv6hdr) + \
				 sizeof(struct udphdr) + MHS_QUIC_BYTES)

/* A packet in a lane.  The caller sets mn to bytes, and ethertype */
struct mhs_lane_packet {
	struct mhs_net			*mn;
	struct mhs_lane_net		*lane_net;	/* of mn */
	/* the receiver, as the stack sees it: a bond, the device of a VLAN */
	struct net_device		*in;
	/* network header; MHS_LANE_HEADER_BYTES are readable, or all bytes */
	const void			*ip;
	unsigned int			bytes;		/* from ip on */
	unsigned int			len;		/* by the header */
	u32				generation;	/* of mn, odd */
	__be16				ethertype;
	u8				transport;	/* IPPROTO_* */
	const union nf_inet_addr	*saddr;		/* in the packet */
	const union nf_inet_addr	*daddr;
	__be16				sport;
	__be16				dport;
	mhs_facts_t			facts;
	mhs_verdict_t			verdict;
	struct mhs			*mhs;
	struct mhs_server		*server;
	struct mhs_lane_way		way;
	struct mhs_lane_ends		ends;
	unsigned int			eth_hlen;	/* XDP: as received */
};

/* Packets of a service that lanes have forwarded, a mask of enum mhs_cnt */
#define MHS_LANE_COUNTS		(BIT(MHS_CNT_LANE) | BIT(MHS_CNT_LANE_STABLE))

/**
 * struct mhs_lane_module - what ip_vs_mhs_lane exports, by its name
 * @structs:	MHS_STRUCTS of its build; first in all versions
 * @attach:	from now on frames find the namespaces by @net_id, the ID of the
 *		scheduler's struct mhs_net; 0: none from now on, and none that did
 *		so before is left.  Frames call @decide of the scheduler under RCU where
 *		records do not tell: 0 and p->server, or why the packet goes up
 * @net_init:	set mhs_net.lane_net; 0, or an error which changes nothing
 * @net_exit:	remove it
 * @devices:	write the names of devices with a hook
 * @set_devices: give the devices named in @text a hook, and only these.  An error
 *		leaves all as it was, but one of nf_register_net_hook() a part
 *
 * The scheduler calls all but @net_exit with its api_lock held; they may take RTNL.
 */
struct mhs_lane_module {
	u32	structs;
	void	(*attach)(unsigned int net_id,
			  enum mhs_lane_why (*decide)(struct mhs_lane_packet *p));
	int	(*net_init)(struct mhs_net *mn);
	void	(*net_exit)(struct mhs_net *mn);
	void	(*devices)(struct mhs_lane_net *lane_net, char *text, size_t size);
	int	(*set_devices)(struct mhs_lane_net *lane_net, char *text);
};

extern const struct mhs_lane_module ip_vs_mhs_lane;

#endif /* _IP_VS_MHS_LANE_H */
