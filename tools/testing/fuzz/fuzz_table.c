// SPDX-License-Identifier: GPL-2.0-only
/* The table code: a fill of any servers, and any history of a slot word.
 *
 *	byte 0		number of servers, at most 32
 *	8 bytes each	weight and hash of a server, 4 bytes of either
 *	then		what happens to the word, a byte or two each
 */
#include <stdio.h>
#include <stdlib.h>

#include "ip_vs_mhs_decide.h"

#define SIZE		251U
#define MOST		32

#define WANT(condition)							\
do {									\
	if (!(condition)) {						\
		fprintf(stderr, "does not hold: %s\n", #condition);	\
		abort();						\
	}								\
} while (0)

static void fill(const u8 *data, u32 n)
{
	struct mhs_fill f = {
		.size = SIZE,
		.table = calloc(SIZE, sizeof(u16)),
		.head = calloc(SIZE, sizeof(u16)),
		.tail = calloc(SIZE, sizeof(u16)),
		.share = calloc(n ? n : 1, sizeof(*f.share)),
	};
	u32 i, raw[2], seen[MOST] = {}, empty = 0, max = 0, none = 0, got;
	u64 weights = 0;

	for (i = 0; i < n; i++) {
		memcpy(raw, data + 8 * i, 8);
		raw[0] = (raw[0] & 0x7fffffff) ? raw[0] & 0x7fffffff : 1;
		mhs_share_init(&f.share[i], raw[0],
			       raw[1] * 0x9e3779b97f4a7c15ULL, SIZE);
		WANT(f.share[i].pos < SIZE);
		WANT(f.share[i].skip && f.share[i].skip < SIZE);
		weights += raw[0];
		max = raw[0] > max ? raw[0] : max;
	}
	got = mhs_table_fill(&f, n);
	for (i = 0; i < SIZE; i++) {
		if (f.table[i] == MHS_FILL_NONE) {
			none++;
			continue;
		}
		WANT(f.table[i] < n);
		seen[f.table[i]]++;
	}
	WANT(none == (n ? 0 : SIZE));
	for (i = 0; i < n; i++) {
		u64 exact = (u64)f.share[i].weight * SIZE / weights;

		WANT(seen[i] == f.share[i].taken);
		empty += !seen[i];
		/* no more than what is due when the heaviest has its share */
		WANT(f.share[i].weight < max || seen[i] + n >= exact);
	}
	WANT(got == empty);
	free(f.table);
	free(f.head);
	free(f.tail);
	free(f.share);
}

static void history(const u8 *data, size_t size)
{
	u32 w = 0, next, old, cand, stage;

	for (; size > 1; data += 2, size -= 2) {
		u32 idx = data[1] & 7;

		old = mhs_slot_old(w);
		cand = mhs_slot_cand(w);
		stage = mhs_slot_stage(w);
		switch (data[0] & 3) {
		case 0:
			next = mhs_slot_change(w, idx, data[0] & 4,
					       data[0] & 8 ?
					       MHS_STAGE_PIN :
					       MHS_STAGE_HOLD);
			WANT(mhs_slot_cand(next) == idx);
			WANT(mhs_slot_stable(next) ||
			     mhs_slot_old(next) == old);
			WANT(!(data[0] & 4) || mhs_slot_stable(next));
			WANT(!stage || mhs_slot_stable(next) ||
			     mhs_slot_stage(next) == stage);
			break;
		case 1:
			next = mhs_slot_tick(w, data[1] & 7);
			WANT(mhs_slot_cand(next) == cand);
			WANT(mhs_slot_stable(next) ||
			     mhs_slot_old(next) == old);
			WANT(mhs_slot_stable(next) ||
			     mhs_slot_stage(next) - stage <= 1);
			/* merged: nothing is left of the old one */
			WANT(!stage || !mhs_slot_stable(next) ||
			     (next & ~MHS_TRACK) == cand);
			break;
		case 2:
			next = mhs_slot_change(w, cand, true,
					       MHS_STAGE_HOLD);
			WANT(mhs_slot_stable(next));
			WANT(mhs_slot_cand(next) == cand);
			break;
		default:
			next = w | MHS_TRACK_CUR;
		}
		WANT(mhs_slot_stable(next) ==
		     (mhs_slot_old(next) == mhs_slot_cand(next)));
		w = next;
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	u32 n;

	if (!size)
		return 0;
	n = data[0] % (MOST + 1);
	if (n > (size - 1) / 8)
		n = (size - 1) / 8;
	fill(data + 1, n);
	history(data + 1 + 8 * n, size - 1 - 8 * n);
	return 0;
}
