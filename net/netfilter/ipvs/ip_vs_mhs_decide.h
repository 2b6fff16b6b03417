/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: where does a packet go?
 *
 * The decision knows no skb, no IPVS type, no lock and no clock, so the same
 * text compiles in user space, where tests ask it about every case.  A door
 * (a netfilter hook, say) reads the packet, ip_vs_mhs_ask() gathers the facts,
 * ip_vs_mhs_decide() says what is to be done, and the door does it:
 *
 *	packet to a service of ours
 *	  |
 *	  |-- ip_vs_mhs_decide_looks(): has it an entry? -> by that entry
 *	  |-- settling: new flow ------------------------> core, entry
 *	  |             older flow ----------------------> dropped, sent again
 *	  |-- stable slot -------------------------------> carrier, candidate
 *	  |-- unstable slot, new flow -------------------> entry, candidate
 *	  |                  older flow, hold -----------> carrier, old server
 *	  |                  older flow, pin ------------> entry, old server
 *	  |                  plain UDP, hold ------------> carrier, old server
 *	  |                             else ------------> carrier, candidate
 *	  '-- no server ---------------------------------> core
 *
 * A flow that was sent without an entry never goes to the core while there is a
 * server for it: the core passes a packet in mid-flow to the local stack, which
 * resets the connection.  Persistence, a threshold or an unknown mark change the
 * way of new flows only.
 *
 * With net.ipv4.vs.mhs.stateless=0 each slot makes entries as an unstable one in
 * the pin phase does, for plain UDP too.
 */
#ifndef _IP_VS_MHS_DECIDE_H
#define _IP_VS_MHS_DECIDE_H

#include "ip_vs_mhs_table.h"

/* Facts of a server: what struct ip_vs_mhs_server.state holds ... */
#define MHS_SRV_IN		0x1U	/* listed, weight > 0: takes new flows */
#define MHS_SRV_GONE		0x2U	/* deleted */
#define MHS_SRV_TRACKED		0x4U	/* its new flows need an entry */
#define MHS_SRV_STATEFUL	0x8U	/* all its flows do: it has no carrier */
#define MHS_SRV_NAT		0x10U	/* its carrier masquerades */
#define MHS_SRV_FROZEN		0x20U	/* its carrier is for older flows only */
#define MHS_SRV_METHOD		(MHS_SRV_STATEFUL | MHS_SRV_NAT | MHS_SRV_FROZEN)
/* ... and what is known when it is asked for; without a server no fact */
#define MHS_SRV_KNOWN		0x100U	/* there is a server */
#define MHS_SRV_CARRIER		0x200U	/* it has a carrier */
#define MHS_SRV_FULL		0x400U	/* above its upper threshold */
#define MHS_SRV_OTHER		0x800U	/* found by a search: not of the slot */

/* Facts of the service: its flags, with the values of IP_VS_SVC_F_* ... */
#define MHS_SVC_PERSISTENT	0x1U
#define MHS_SVC_ONE_PACKET	0x4U
#define MHS_SVC_FALLBACK	0x8U	/* flag-1: another server for a full one */
#define MHS_SVC_FLAGS		(MHS_SVC_PERSISTENT | MHS_SVC_ONE_PACKET | \
				 MHS_SVC_FALLBACK)
/* ... and its state */
#define MHS_SVC_SETTLING	0x100U	/* its table is not final */
#define MHS_SVC_UNSURE		0x200U	/* another's mark may own the packet */
#define MHS_SVC_BACKUP		0x400U	/* the sync daemon brings entries */
#define MHS_SVC_STATEFUL	0x800U	/* every flow is to have an entry */
#define MHS_SVC_WAS_STATELESS	0x1000U	/* flows without an entry may exist */
/* Facts of the packet */
#define MHS_PKT_FRESH		0x10000U	/* begins a flow */
#define MHS_PKT_ENDS		0x20000U	/* ends one, or belongs to none */
#define MHS_PKT_CONNLESS	0x40000U	/* plain UDP: nothing tells */
#define MHS_PKT_ERROR		0x80000U	/* ICMP error about the flow */
#define MHS_PKT_NO_PORT		0x100000U	/* the core finds no such entry */
#define MHS_PKT_LOCAL		0x200000U	/* this host sends it */
#define MHS_PKT_LEFT		0x400000U	/* has left an entry, which expires */
/* Facts of a second question */
#define MHS_ASK_NO_ENTRY	0x1000000U	/* the limit or memory forbids */
#define MHS_ASK_SEARCHED	0x2000000U	/* the candidate is what a search found */

/* Counters of a service; the order is that of the columns in /proc */
enum ip_vs_mhs_cnt {
	MHS_CNT_STATELESS,	/* forwarded by a stable slot */
	MHS_CNT_OLD,		/* unstable slot, to the old server, no entry */
	MHS_CNT_CAND,		/* the same or stateless=0, new flow */
	MHS_CNT_TRACKED,	/* had a connection entry; so far: requests */
	MHS_CNT_NEW,		/* entries made for new flows */
	MHS_CNT_PINNED,		/* entries made for older flows */
	MHS_CNT_CAPPED,		/* no entry: max_entries reached */
	MHS_CNT_NOMEM,		/* no entry or carrier: no memory */
	MHS_CNT_UNSETTLED,	/* dropped: the table is not final yet */
	MHS_CNT_ICMP,		/* ICMP errors about flows without an entry */
	MHS_CNT_REPLY,		/* masquerading: replies translated */
	MHS_CNT_MAX
};

/**
 * enum ip_vs_mhs_act - what is to be done with a packet
 * @MHS_CORE: the core goes on with it
 * @MHS_DROP: drop it; its sender tries again
 * @MHS_FORWARD: send it by the carrier of the server
 * @MHS_NEW: make an entry for the new flow; if that fails, ask again with
 *	%MHS_ASK_NO_ENTRY
 * @MHS_PIN: make an entry for the older flow; if that fails, the same
 * @MHS_REPLACE: make an entry in the place of the one left, or drop the packet
 * @MHS_SEARCH: the candidate takes no new flow: look for another server, ask
 *	again with %MHS_ASK_SEARCHED
 */
enum ip_vs_mhs_act {
	MHS_CORE,
	MHS_DROP,
	MHS_FORWARD,
	MHS_NEW,
	MHS_PIN,
	MHS_REPLACE,
	MHS_SEARCH,
};

/* A verdict is one word: an act, what to count, and flags */
#define MHS_ACT			0x7U	/* enum ip_vs_mhs_act */
#define MHS_COUNT_SHIFT		4
#define MHS_COUNT		(0xfU << MHS_COUNT_SHIFT)
#define MHS_TO_CAND		0x100U	/* to the server for new flows */
#define MHS_BEGINS		0x200U	/* a flow begins, for the statistics */
#define MHS_BY_TABLE		0x400U	/* the slot's word decided: it is used */
#define MHS_TRACKS		0x800U	/* mark the slot tracked first */
#define MHS_CUTS		0x1000U	/* change the slot to its candidate
					 * first; drop if that cannot be
					 */
#define MHS_NOTES_FIN		0x2000U	/* remember the FIN, if it is one */

static inline u32 ip_vs_mhs_verdict_act(u32 v)
{
	return v & MHS_ACT;
}

/* MHS_CNT_MAX: nothing is counted */
static inline enum ip_vs_mhs_cnt ip_vs_mhs_verdict_count(u32 v)
{
	return (v & MHS_COUNT) >> MHS_COUNT_SHIFT;
}

static inline u32 ip_vs_mhs_verdict(enum ip_vs_mhs_act act,
				    enum ip_vs_mhs_cnt count, u32 flags)
{
	return act | (u32)count << MHS_COUNT_SHIFT | MHS_BY_TABLE | flags;
}

/* A new flow that gets an entry from the core.  Persistence may take the server
 * from a template and never ask schedule(), so the slot is marked here.
 */
static inline u32 ip_vs_mhs_verdict_tracks(void)
{
	return ip_vs_mhs_verdict(MHS_CORE, MHS_CNT_MAX, MHS_TRACKS);
}

/* Is an entry to be looked for before the decision? */
static inline bool ip_vs_mhs_decide_looks(u32 w, u32 facts)
{
	return ip_vs_mhs_slot_tracked(w) ||
	       facts & (MHS_SVC_SETTLING | MHS_SVC_PERSISTENT | MHS_SVC_UNSURE |
			MHS_SVC_BACKUP);
}

/* Does a server with these facts take a new flow? */
static inline bool ip_vs_mhs_decide_takes(u32 server)
{
	return (server & (MHS_SRV_IN | MHS_SRV_FULL)) == MHS_SRV_IN;
}

/* It does not: may another server?  One for a full server only with the fallback
 * flag, as with mh.
 */
static inline bool ip_vs_mhs_decide_searches(u32 server, u32 facts)
{
	return !(server & MHS_SRV_IN) || facts & MHS_SVC_FALLBACK;
}

/* Must a new flow have an entry?  The flows of this host to a masquerading server
 * must: their replies end here, where only an entry tells them from those of a
 * health check.
 */
static inline bool ip_vs_mhs_decide_needs_entry(u32 server, u32 facts)
{
	return server & MHS_SRV_TRACKED ||
	       (server & MHS_SRV_NAT && facts & MHS_PKT_LOCAL);
}

/* Older flows of some servers are held, then cut */
static inline bool ip_vs_mhs_decide_may_pin(u32 server, u32 facts)
{
	return !(facts & (MHS_PKT_NO_PORT | MHS_ASK_NO_ENTRY)) &&
	       !(server & (MHS_SRV_GONE | MHS_SRV_STATEFUL | MHS_SRV_FROZEN));
}

/* A packet of an older flow, or of a new one in a stable slot */
static inline u32 ip_vs_mhs_decide_old(u32 w, u32 old, u32 facts)
{
	u32 flags = 0;

	if (!(old & MHS_SRV_KNOWN))
		return ip_vs_mhs_verdict(MHS_CORE, MHS_CNT_MAX, 0);
	if (facts & MHS_PKT_FRESH) {
		if (!(old & MHS_SRV_CARRIER) || !(old & MHS_SRV_IN) ||
		    ip_vs_mhs_decide_needs_entry(old, facts))
			return ip_vs_mhs_verdict_tracks();
		flags = MHS_BEGINS;
	}
	if (facts & MHS_SVC_STATEFUL || ip_vs_mhs_slot_pinning(w)) {
		if (facts & MHS_PKT_ENDS)
			flags |= MHS_NOTES_FIN;
		else if (ip_vs_mhs_decide_may_pin(old, facts))
			return ip_vs_mhs_verdict(MHS_PIN, MHS_CNT_MAX, 0);
	}
	/* A flow that needs an entry has one or is nobody's.  Without memory for
	 * a carrier the packet is sent again a moment later.
	 */
	if (old & MHS_SRV_STATEFUL ||
	    (old & MHS_SRV_NAT && facts & MHS_PKT_LOCAL))
		return ip_vs_mhs_verdict(MHS_CORE, MHS_CNT_MAX, flags);
	if (!(old & MHS_SRV_CARRIER))
		return ip_vs_mhs_verdict(MHS_DROP, MHS_CNT_MAX, flags);
	return ip_vs_mhs_verdict(MHS_FORWARD, ip_vs_mhs_slot_stable(w) ?
				 MHS_CNT_STATELESS : MHS_CNT_OLD, flags);
}

/* A new flow in an unstable slot gets an entry.  The core would make it too, but
 * drop the packet if it cannot.
 */
static inline u32 ip_vs_mhs_decide_new(void)
{
	return ip_vs_mhs_verdict(MHS_NEW, MHS_CNT_CAND,
				 MHS_TO_CAND | MHS_BEGINS);
}

/* Most packets need the facts of one server and no mark in their slot.  For them
 * ip_vs_mhs_decide_quick() decides, which is compiled into the doors.
 */
static inline bool ip_vs_mhs_decide_is_quick(u32 w, u32 facts)
{
	return !(facts & (MHS_PKT_ERROR | MHS_PKT_CONNLESS | MHS_PKT_NO_PORT |
			  MHS_SVC_SETTLING | MHS_SVC_PERSISTENT |
			  MHS_SVC_UNSURE | MHS_SVC_STATEFUL |
			  MHS_ASK_NO_ENTRY)) &&
	       !ip_vs_mhs_slot_needs_use(w);
}

/* The index of that server */
static inline u32 ip_vs_mhs_decide_idx(u32 w, u32 facts)
{
	return ip_vs_mhs_slot_stable(w) || facts & MHS_PKT_FRESH ?
	       ip_vs_mhs_slot_cand(w) : ip_vs_mhs_slot_old(w);
}

/* The same as ip_vs_mhs_decide() says, or MHS_SEARCH: ask that */
static inline u32 ip_vs_mhs_decide_quick(u32 w, u32 server, u32 facts)
{
	/* what the compiler knows it leaves out */
	facts &= ~MHS_SVC_STATEFUL;
	if (ip_vs_mhs_slot_stable(w))
		return ip_vs_mhs_decide_old(MHS_USED_CUR, server, facts);
	if (!(facts & MHS_PKT_FRESH))
		return ip_vs_mhs_decide_old(w, server, facts);
	return ip_vs_mhs_decide_takes(server) ? ip_vs_mhs_decide_new() :
						MHS_SEARCH;
}

u32 ip_vs_mhs_decide(u32 w, u32 old, u32 cand, u32 facts);

#endif /* _IP_VS_MHS_DECIDE_H */
