/* SPDX-License-Identifier: GPL-2.0-only */
/* A model of a service: a few slots, indexes, one flow, one packet under way and
 * another's that cuts a slot, control and the work, time and grace periods.
 *
 * What becomes of a slot word and where a packet goes is decided by the very
 * ip_vs_mhs_decide.c, compiled here with a hold of one tick and a pin of two instead
 * of three and ten.  (test_explore.c has the full numbers, for
 * one slot and one flow.)
 * All that is restated is in protocol.c, protocol_servers.c and, of the packet
 * path, in protocol_packet.c.  Not there: flows that leave the entry of another,
 * servers all of whose flows need one, plain UDP, masquerading, settling,
 * the sync daemon.
 *
 * Assumed: a flow sends more often than once a pin time; its entry lives for as
 * long at least; a packet is on its way and a walk goes on for less than a tick;
 * the work and a grace period are late by less than two.
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
#define ENTRY_TIME	PIN_TIME	/* time_entry_ms() */

enum server_state {
	FREE,			/* the index may be taken */
	LISTED,
	DRAINED,		/* listed, weight 0 */
	GONE,			/* deleted; slots may name it */
	DEAD,			/* out of servers[], its grace period runs */
};

enum packet_step {
	NOT_THERE,
	WORD_KNOWN,		/* the word by which it goes */
	SERVER_KNOWN,
	ENTRY_FOUND,
	TO_CUT,			/* a new flow: no entry, the old server gone */
};

/* Another's packet in that step: the old server as it saw it */
enum cutter {
	CUTS_GONE = 1,
	CUTS_LISTED,		/* in wrong variants */
};

enum { BY_PACKET = 1, BY_CUTTER = 2 };

/* What the last walk found: struct mhs_census */
enum { HOLDING = 1, PINNING = 2, LAST = 4 };

/* What the operator does; from READD on to a server that is known */
enum command {
	EXPIRE, ADD, WITHDRAW, READD, DELETE, WEIGHT
};

#define COMMANDS	(WEIGHT + 1)

/* Bytes and words only: compared as memory */
struct protocol {
	u32 word[SLOTS];
	u32 judged;		/* word of slot walk_at, 0xffffffff: not yet */
	u32 packet_word;
	u8 packet;		/* enum packet_step */
	u8 packet_slot, packet_server, packet_new;
	u8 packet_cut;		/* another has cut the slot as it knows it */
	u8 cutter;		/* enum cutter, 0: none */
	u8 cut_slot, cut_old, cut_cand;
	u8 flow_slot, owner;	/* owner 0: no flow */
	u8 entry, idle;		/* time since it sent */
	u8 away;		/* time since its slot left its server */
	u8 lapses;		/* which was deleted since */
	u8 unpinned;		/* for want of an entry */
	u8 walking, walk_at, building, ticks;
	u8 target[SLOTS];	/* the table */
	u8 census, counted;	/* by the last walk, so far by this one */
	u8 first, named, cut, expire;
	struct {
		u8 state, left;	/* time for which it is held when deleted */
		u8 named;	/* by a slot, in the last walk */
		u8 blocked;	/* packets under way may use it */
	} server[SERVERS + 1];
	u8 hold_due, pin_due, track_due; /* time to the next tick */
	u8 dirty, missing, waiting, late;
};

/* What must not be */
#define MISLED		"a flow went to another server"
#define LOST		"a flow had no server"
#define FORGOTTEN	"a server was forgotten that a flow was to reach"
#define NOT_THE_TABLE	"a slot was not as the table says"
#define NAMELESS	"a slot named a server that is not there"
#define TAKEN_AWAY	"an index was free while a packet used it"

/* All at once would be too many states */
enum scope {
	FLOWS,		/* one slot and a flow; no expire_nodest_conn */
	MARKED,		/* the same with the clock of the tracked marks, but
			 * every entry can be made
			 */
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
	bool cuts_listed;	/* a packet cuts slots of any old server */
	bool cuts_unseen;	/* a packet cuts what a slot has become */
	bool hasty_marks;	/* marks age faster than entries */
	bool marks_once;	/* a packet of an entry leaves no mark */
};

extern const struct model protocol_model;

/* The events that properties speak of */
bool protocol_is_control(u32 event);
bool protocol_is_readd(u32 event, u32 idx);
#define PROTOCOL_TIME	0

struct protocol protocol_start(void);

/* Between the files */
static inline bool protocol_has_flow(const struct rules *r)
{
	return r->scope == FLOWS || r->scope == MARKED;
}

/* Is the server in servers[]? */
static inline bool protocol_reachable(const struct protocol *s, u32 idx)
{
	return s->server[idx].state >= LISTED && s->server[idx].state <= GONE;
}

/* The flow */
bool protocol_owed(const struct protocol *s);
void protocol_flow_forget(struct protocol *s);
void protocol_flow_tidy(struct protocol *s);

/* A packet comes to @slot, unless one is on its way, and goes on; @room: an entry
 * can be made.  The same for another's that cuts.  False when it cannot be; what
 * is wrong with it goes to @fault.
 */
bool protocol_packet_begins(const struct rules *r, struct protocol *s, u32 slot);
bool protocol_packet_step(const struct rules *r, struct protocol *s, bool room,
			  const char **fault);
bool protocol_cutter_begins(const struct rules *r, struct protocol *s, u32 slot);
bool protocol_cutter_cuts(const struct rules *r, struct protocol *s);

/* Servers: what is wrong with it, or whether it can be */
const char *protocol_index_free(struct protocol *s, u32 idx);
const char *protocol_release(const struct rules *r, struct protocol *s, u32 idx);
bool protocol_second_try(const struct rules *r, struct protocol *s);
bool protocol_control(const struct rules *r, struct protocol *s,
		      enum command command, u32 idx);

#endif /* _UNIT_PROTOCOL_H */
