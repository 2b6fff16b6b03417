/* SPDX-License-Identifier: GPL-2.0-only */
/* Every state that a model can get into, breadth first: what is found wrong
 * comes with the shortest way to it.
 */
#ifndef _UNIT_SEARCH_H
#define _UNIT_SEARCH_H

#include <linux/types.h>

/**
 * struct model - what can happen
 * @size: bytes of a state; two states are the same if all of these are
 * @events: number of events
 * @most: more states than this are a failure
 * @least: fewer than this as well: the model would say nothing
 * @happen: make @event happen to the state; false when it cannot.  What is
 *	wrong with that goes to @fault
 * @name: what to call an event, in a buffer of its own
 */
struct model {
	u32		size;
	u32		events;
	u32		most;
	u32		least;
	bool		(*happen)(const void *arg, void *state, u32 event,
				  const char **fault);
	const char	*(*name)(u32 event);
};

/**
 * struct ending - something that has to come about as time goes on
 * @fault: what to say if it does not
 * @waits: does it still have to, in this state?
 * @which: passed to @waits
 * @allows: may the event happen meanwhile?
 */
struct ending {
	const char	*fault;
	bool		(*waits)(const void *state, u32 which);
	u32		which;
	bool		(*allows)(u32 event, u32 which);
};

struct search;

struct search *search_states(const struct model *model, const void *arg,
			     const void *start);
bool search_ends(const struct search *s, const struct ending *ending, u32 time);
const void *search_state(const struct search *s, u32 n);
u32 search_count(const struct search *s);
void search_free(struct search *s);

#endif /* _UNIT_SEARCH_H */
