/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the packet fuzzer share.
 *
 *	fuzz_packet.c	one input: the packet, the hook, what came of it
 *	fuzz_world.c	the service, its servers, the answers of IPVS
 *	fuzz_kernel.c	packet memory, checksums, locks
 *	fuzz_oracle.c	what has to come of a packet, by another way
 */
#ifndef _FUZZ_PACKET_H
#define _FUZZ_PACKET_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>

#include "ip_vs_mhs.h"

/* of the C library */
void abort(void) __noreturn;
int dprintf(int fd, const char *format, ...);
void *malloc(size_t size);
void free(void *p);

#define WANT(condition)							\
do {									\
	if (!(condition)) {						\
		dprintf(2, "does not hold: %s\n", #condition);		\
		abort();						\
	}								\
} while (0)

#define LONGEST		512	/* packet, in bytes */
#define SERVERS		3
#define SLOTS		7

/* What the input says of the world, one byte each */
struct setting {
	u8	path;		/* PATH_* */
	u8	methods;	/* two bits for each server; type of tunnels */
	u8	slots;		/* SLOTS_*, ENTRY_* */
	u8	service;	/* SERVICE_* */
	u8	states;		/* two bits for each server; STATES_* */
	u8	answers;	/* ANSWER_* */
	u8	life;		/* LIFE_* */
	u8	linear;		/* bytes in the linear part after the header */
	u8	linear_too;	/* the same when the packet comes once more */
};

#define PATH_IPV6		0x01
#define PATH_IDS		0x02	/* servers of QUIC issue connection IDs */
#define PATH_OUT		0x04	/* sent by this host */
#define PATH_KIND		0x18	/* TCP, UDP, QUIC, SCTP */
#define PATH_MARK		0x20
#define PATH_COMPLETE		0x40	/* checksums as a NIC leaves them ... */
#define PATH_PARTIAL		0x80	/* ... and as it takes them */

#define METHOD_MASQ		0	/* all flows have entries; 3, too */
#define METHOD_TUNNEL		1
#define METHOD_DROUTE		2

#define SLOTS_MODE		0x03	/* stable, hold, pin, all of it */
#define SLOTS_TRACKED		0x04
#define SLOTS_NONE		0x10	/* one slot without a server */
#define ENTRY_NFCT		0x20	/* entries have conntrack entries */
#define ENTRY_CONFIRMED		0x40	/* the packet's is known already */
#define ENTRY_CONTROL		0x80	/* another entry controls this one */

#define SERVICE_EMPTY		0x01	/* no server has come yet */
#define SERVICE_PERSISTENT	0x02
#define SERVICE_ONEPACKET	0x04
#define SERVICE_FALLBACK	0x08
#define SERVICE_BACKUP		0x10
#define SERVICE_FWMARK		0x20
#define SERVICE_ADDR_ONLY	0x40
#define SERVICE_BACKUP_ONLY	0x80

#define STATE_OUT		1	/* of service */
#define STATE_GONE		2
#define STATE_OVERLOAD		3
#define STATES_BINDING		0x80	/* the entry has no transmitter yet */

#define ANSWER_IN		0x01	/* the core finds an entry */
#define ANSWER_NEW		0x04	/* it makes one */
#define ANSWER_NO_MEMORY	0x08	/* it cannot unshare a packet */
#define ANSWER_MTU		0x20	/* a route to the server is known */
#define ANSWER_SUMS		0x40	/* the packet's checksum is right */
#define ANSWER_NO_DEVICE	0x80	/* it has not passed any yet */

#define LIFE_SETTLING		0x01
#define LIFE_ENDED		0x02	/* the flow of the entry has */
#define LIFE_STATEFUL		0x04	/* every flow is to have an entry ... */
#define LIFE_FULL		0x08	/* ... but there is no room for any */

enum kind { KIND_TCP, KIND_UDP, KIND_QUIC, KIND_SCTP };

/* What came of a packet */
struct outcome {
	unsigned int		verdict;
	bool			taken;		/* the packet is somebody else's */
	bool			done;		/* ipvs_property */
	unsigned int		server;		/* it was sent to, by index */
	bool			by_entry;	/* it was sent by an entry ... */
	bool			made;		/* ... made for it ... */
	unsigned int		made_to;	/* ... with that server */
	bool			left;		/* the entry it had has to end */
	bool			tracked;	/* it has a conntrack entry */
	bool			told;		/* icmp_send() */
	int			told_type;
	int			told_code;
	u32			told_info;
	unsigned int		told_at;	/* offset of the packet it is about */
	int			summed;		/* skb->ip_summed */
	u32			slots[SLOTS];	/* afterwards, like the next */
	struct mhs_counters cnt;
	unsigned int		len;
	u8			bytes[LONGEST];
};

struct world {
	const struct setting	*is;
	u16			af;
	unsigned int		hook;
	enum kind		kind;
	u16			protocol;
	struct net		net;
	struct netns_ipvs	ipvs;
	struct mhs_net	mn;
	struct ip_vs_service	svc;
	struct mhs	mhs;
	struct mhs_counters cnt;
	struct ip_vs_cpu_stats	stats;
	u32			slots[SLOTS];
	u32			slots_were[SLOTS];
	struct mhs_server	server[SERVERS + 1];	/* from 1 */
	struct ip_vs_dest	dest[SERVERS + 1];
	struct ip_vs_conn	carrier[SERVERS + 1];
	struct ip_vs_conn	entry;		/* the core finds it */
	struct ip_vs_conn	made;		/* the core makes it */
	struct outcome		*out;
};

extern struct world world;

/* world */
void world_set(const struct setting *is, struct outcome *out);
void world_end(void);
unsigned int world_method(unsigned int server);
unsigned int world_state(unsigned int server);
bool world_settles(void);

/* kernel */
void packet_new(struct sk_buff *skb, const u8 *bytes, unsigned int len,
		unsigned int linear);
void packet_copy(const struct sk_buff *skb, struct outcome *out);
void packet_free(struct sk_buff *skb);

/* oracle */
void oracle_sum_right(u8 *bytes, unsigned int len);
bool oracle_begins(const u8 *bytes, unsigned int len);
unsigned int oracle_id(const u8 *bytes, unsigned int len);
void oracle(const u8 *bytes, unsigned int len, const struct outcome *out);
u16 oracle_sum(const u8 *bytes, unsigned int len, u32 sum);

#endif /* _FUZZ_PACKET_H */
