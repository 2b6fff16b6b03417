/* SPDX-License-Identifier: GPL-2.0-only */
/* A model of a service: a few slots, indexes, one flow, one packet under way,
 * control and the work, time and grace periods.
 *
 * What becomes of a slot word is decided by the very ip_vs_mhs_table.c, which
 * is compiled here with a hold of one tick and a pin of two instead of three
 * and ten.  (test_explore.c has the full numbers, for one slot and one flow.)
 * All that is restated is in protocol.c and, of the packet path, in
 * protocol_packet.c.
 *
 * Assumed: a flow sends more often than once a pin time; a packet is on its
 * way and a walk goes on for less than a tick; the work and a grace period are
 * late by less than two.
 */
#ifndef _UNIT_PROTOCOL_H
#define _UNIT_PROTOCOL_H

#include "search.h"
#include "slots.h"

#define SLOTS		2
#define SERVERS		2	/* indexes 1 .. 2; a server more has to wait */

/* Ticks are one unit of time apart */
#define HOLD_TIME	MHS_HOLD_TICKS
#define PIN_TIME	MHS_PIN_TICKS
#define HELD_TIME	(HOLD_TIME + PIN_TIME)

enum server_state {
	FREE,			/* the index may be taken */
	LISTED,
	DRAINED,		/* listed, weight 0 */
	GONE,			/* deleted; slots may name it */
	DEAD,			/* out of servers[], its grace period runs */
};

enum packet_step {
	NOT_THERE,
	WORD_READ,		/* "used" is to be set */
	WORD_KNOWN,		/* the word by which it goes */
	SERVER_KNOWN,
	ENTRY_FOUND,
};

/* Bytes and words only: compared as memory */
struct protocol {
	u32 word[SLOTS];
	u32 judged;		/* word of slot walk_at, 0xffffffff: not yet */
	u32 packet_word;
	u8 packet;		/* enum packet_step */
	u8 packet_slot, packet_server, packet_fresh;
	u8 flow_slot, owner;	/* owner 0: no flow */
	u8 entry, idle;		/* time since it sent */
	u8 away;		/* time since its slot left its server */
	u8 lapses;		/* which was deleted since */
	u8 walking, walk_at, building, ticks;
	u8 target[SLOTS], first, was_pin;
	u8 was_hold, named, cut, expire;
	struct {
		u8 state, left;	/* time for which it is held when deleted */
		u8 named;	/* by a slot, in the last walk */
		u8 blocked;	/* a packet under way may use it */
	} server[SERVERS + 1];
	u8 hold_due, pin_due, used_due; /* time to the next tick */
	u8 dirty, missing, waiting, late;
};

/* All at once would be too many states */
enum scope {
	FLOWS,		/* one slot and a flow; no expire_nodest_conn */
	INDEXES,	/* two slots; a packet may use what a word names */
	TIMES,		/* two slots; packets and walks take no time; a server
			 * more than there are indexes
			 */
};

/* The rules that controls break */
struct rules {
	const struct slot_ops *ops;
	enum scope scope;
	bool plain_store;	/* a walk stores without comparing */
	bool no_grace;		/* an index is free as soon as it is out */
	bool forgets_named;	/* forgets servers that slots still name */
	bool names_one_slot;	/* looks at the first slot only */
	bool impatient;		/* forgets servers that no slot names at once */
	bool restarts_hold;	/* each walk starts the clock of hold afresh */
	bool restarts_gone;	/* each rebuild grants the deleted more time */
	bool merges_unbuilt;	/* ticks although a rebuild is due */
	bool gives_up;		/* tries only once to find an index */
	bool reads_twice;	/* a packet goes by two reads of the word */
};

extern const struct model protocol_model;

/* The events that properties speak of */
bool protocol_is_control(u32 event);
bool protocol_is_readd(u32 event, u32 idx);
#define PROTOCOL_TIME	0

struct protocol protocol_start(void);

/* Between the two files: is the server in servers[]?  A packet comes to @slot,
 * unless another is on its way; it goes on, and what is wrong with that.
 */
static inline bool protocol_reachable(const struct protocol *s, u32 idx)
{
	return s->server[idx].state >= LISTED && s->server[idx].state <= GONE;
}

bool protocol_packet_begins(const struct rules *r, struct protocol *s, u32 slot);
const char *protocol_packet_step(const struct rules *r, struct protocol *s);

#endif /* _UNIT_PROTOCOL_H */
