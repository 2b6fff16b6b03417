/* SPDX-License-Identifier: GPL-2.0-only */
/* The slot word's functions as a set, and wrong variants of that set. */
#ifndef _UNIT_SLOTS_H
#define _UNIT_SLOTS_H

#include "ip_vs_mhs_decide.h"

/**
 * struct slot_ops - everything that makes one word out of another
 * @change: mhs_slot_change()
 * @cut: ends a transition now
 * @tick: mhs_slot_tick()
 */
struct slot_ops {
	u32 (*change)(u32 w, u32 idx, bool at_once, u32 first_stage);
	u32 (*cut)(u32 w);
	u32 (*tick)(u32 w, u32 ticks);
};

extern const struct slot_ops slot_real;

/* Each is wrong in the one way its name says */
extern const struct slot_ops slot_restarts_clock;
extern const struct slot_ops slot_forgets_old;
extern const struct slot_ops slot_undo_waits;
extern const struct slot_ops slot_always_at_once;
extern const struct slot_ops slot_holds_empty;
extern const struct slot_ops slot_loses_track;
extern const struct slot_ops slot_track_one_tick;
extern const struct slot_ops slot_short_hold;
extern const struct slot_ops slot_short_pin;
extern const struct slot_ops slot_never_merges;
extern const struct slot_ops slot_stage_overflows;

#endif /* _UNIT_SLOTS_H */
