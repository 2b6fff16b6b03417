// SPDX-License-Identifier: GPL-2.0-only
/* Servers and their indexes, and what the operator does.  Each rule names the
 * function of the module that it restates.
 */
#include "protocol.h"

static bool names(u32 w, u32 idx)
{
	return mhs_slot_cand(w) == idx || mhs_slot_old(w) == idx;
}

/* server_rcu_free() */
const char *protocol_index_free(struct protocol *s, u32 idx)
{
	memset(&s->server[idx], 0, sizeof(s->server[idx]));
	if ((s->packet && (s->packet_server == idx ||
			   (s->packet != ENTRY_FOUND &&
			    names(s->packet_word, idx)))) ||
	    (s->cutter && (s->cut_old == idx || s->cut_cand == idx)))
		return TAKEN_AWAY;
	return NULL;
}

/* server_release() */
const char *protocol_release(const struct rules *r, struct protocol *s, u32 idx)
{
	if (protocol_owed(s) && s->owner == idx)
		return FORGOTTEN;
	memset(&s->server[idx], 0, sizeof(s->server[idx]));
	s->server[idx].state = DEAD;
	s->server[idx].blocked = (s->packet ? BY_PACKET : 0) |
				 (s->cutter ? BY_CUTTER : 0);
	s->missing |= s->waiting;
	return r->no_grace ? protocol_index_free(s, idx) : NULL;
}

/* server_add() of a server that is not known: the lowest free index */
static bool server_add(struct protocol *s)
{
	u32 idx;

	for (idx = 1; idx <= SERVERS; idx++) {
		if (s->server[idx].state != FREE)
			continue;
		s->server[idx].state = LISTED;
		s->dirty = 1;
		return true;
	}
	return false;
}

/* server_add() found no index: is one free after a grace period? */
static bool release_is_near(const struct rules *r, const struct protocol *s)
{
	u32 i;

	for (i = 1; i <= SERVERS; i++)
		if (s->waiting && s->server[i].state == DEAD && !r->gives_up)
			return true;
	return false;
}

/* mhs_server_reconcile() */
bool protocol_second_try(const struct rules *r, struct protocol *s)
{
	if (!s->missing || s->walking)
		return false;
	if (s->waiting && server_add(s))
		s->waiting = 0;
	s->missing = release_is_near(r, s);
	return true;
}

/* mhs_work_add_dest() */
static bool add(const struct rules *r, struct protocol *s)
{
	if (s->waiting)
		return false;
	s->waiting = !server_add(s);
	if (s->waiting && r->scope != TIMES)
		return false;
	s->missing |= release_is_near(r, s);
	return true;
}

/* mhs_work_add_dest(), _upd_dest(), _del_dest(), and the sysctl.  All but that set
 * "dirty", and BUILD follows later.  What comes while the work walks is modelled
 * as coming after: a walk goes by what it knew when it began.
 */
bool protocol_control(const struct rules *r, struct protocol *s,
		      enum command command, u32 idx)
{
	u8 *state = &s->server[idx].state;

	if (s->walking)
		return false;
	switch (command) {
	case EXPIRE:
		if (protocol_has_flow(r))
			return false;
		s->expire ^= 1;
		return true;
	case ADD:
		return add(r, s);
	case WITHDRAW:
		if (!s->waiting)
			return false;
		s->waiting = 0;
		return true;
	case READD:
		if (*state != GONE)
			return false;
		*state = LISTED;
		s->server[idx].left = 0;
		s->server[idx].named = 0;
		break;
	case DELETE:
		/* mhs_server_gone() */
		if (*state != LISTED && *state != DRAINED)
			return false;
		*state = GONE;
		s->server[idx].left = HELD_TIME;
		s->server[idx].named = 1;
		break;
	case WEIGHT:
		if (*state != LISTED && *state != DRAINED)
			return false;
		*state = LISTED + DRAINED - *state;
		break;
	}
	s->dirty = 1;
	return true;
}
