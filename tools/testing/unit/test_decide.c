// SPDX-License-Identifier: GPL-2.0-only
/* Where a packet goes: mhs_decide(), asked about every slot, kind of
 * server, packet and service.  Each rule says what must hold of all answers; its
 * controls ask a decision that has one fact wrong.
 */
#include "ip_vs_mhs_decide.h"
#include "unit.h"

#define OLD	1U
#define CAND	2U

typedef u32 (*decide_fn)(u32 w, u32 old, u32 cand, u32 facts);

/* One question and its answer */
struct answer {
	u32 w, old, cand, facts;
	u32 act, v;
	bool stable, takes;
	u32 server;		/* facts of the server that the answer names */
};

/* Says what is wrong with an answer, NULL if nothing is */
typedef const char *(*rule_fn)(const struct answer *a);

struct rule {
	rule_fn rule;
	decide_fn decide;
};

/* Slots: without a server, stable, held, pinned, to no server */
static const u32 words[] = {
	0,
	CAND,
	CAND | OLD << MHS_OTHER_SHIFT | MHS_STAGE_HOLD << MHS_STAGE_SHIFT,
	CAND | OLD << MHS_OTHER_SHIFT | MHS_STAGE_PIN << MHS_STAGE_SHIFT,
	OLD << MHS_OTHER_SHIFT | MHS_STAGE_PIN << MHS_STAGE_SHIFT,
};

#define KNOWN	MHS_SRV_EXISTS
#define SENDS	(MHS_SRV_EXISTS | MHS_SRV_CARRIER)

static const u32 servers[] = {
	0,
	SENDS | MHS_SRV_IN,
	SENDS | MHS_SRV_IN | MHS_SRV_FULL,
	SENDS | MHS_SRV_IN | MHS_SRV_NEW_ENTRY,
	SENDS | MHS_SRV_IN | MHS_SRV_NEW_ENTRY | MHS_SRV_PIN_OLDER,
	SENDS | MHS_SRV_IN | MHS_SRV_FROZEN | MHS_SRV_NEW_ENTRY,
	KNOWN | MHS_SRV_IN,
	KNOWN | MHS_SRV_IN | MHS_SRV_ALL_ENTRY | MHS_SRV_NEW_ENTRY,
	SENDS,
	KNOWN | MHS_SRV_ALL_ENTRY | MHS_SRV_NEW_ENTRY,
	SENDS | MHS_SRV_GONE,
	KNOWN | MHS_SRV_GONE | MHS_SRV_ALL_ENTRY,
};

static const u32 bits[] = {
	MHS_SVC_PERSISTENT, MHS_SVC_ONE_PACKET, MHS_SVC_FALLBACK,
	MHS_SVC_SETTLING, MHS_SVC_STATEFUL,
	MHS_PKT_NEW, MHS_PKT_ENDS, MHS_PKT_CONNLESS,
	MHS_PKT_ERROR, MHS_PKT_NO_PORT, MHS_PKT_LEFT, MHS_PKT_STAYS,
	MHS_AGAIN_NO_ENTRY, MHS_AGAIN_SEARCHED,
};

static bool has(const struct answer *a, u32 facts)
{
	return a->facts & facts;
}

/* No gate of the service stands before the table */
static bool plain_service(const struct answer *a)
{
	return !has(a, MHS_SVC_PERSISTENT | MHS_SVC_SETTLING);
}

/* A packet of a flow that began before, in a protocol that tells */
static bool older(const struct answer *a)
{
	return !has(a, MHS_PKT_NEW | MHS_PKT_CONNLESS | MHS_PKT_ERROR);
}

static bool makes_entry(const struct answer *a)
{
	return a->act == MHS_NEW || a->act == MHS_PIN;
}

static const char *sent_by_carrier(const struct answer *a)
{
	if (a->act != MHS_FORWARD || has(a, MHS_PKT_ERROR))
		return NULL;
	if (has(a, MHS_PKT_NEW | MHS_PKT_CONNLESS) && a->server & MHS_SRV_NEW_ENTRY)
		return "sent without an entry";
	return a->server & MHS_SRV_CARRIER ? NULL : "sent without a carrier";
}

static const char *stable_is_plain(const struct answer *a)
{
	u32 want = MHS_FORWARD | MHS_CNT_STABLE << MHS_COUNT_SHIFT;

	if (!a->stable || !plain_service(a) ||
	    has(a, MHS_SVC_STATEFUL | MHS_PKT_CONNLESS | MHS_PKT_ERROR) ||
	    a->old != (SENDS | MHS_SRV_IN))
		return NULL;
	if (has(a, MHS_PKT_NEW))
		want |= MHS_CONN;
	return a->v == want ? NULL : "a stable slot does more than forward";
}

/* Most packets have a short way, which is the lane's, but not with that fact of a
 * server
 */
static const char *short_is_the_same(const struct answer *a)
{
	if (mhs_decide_is_quick(a->w, a->old, a->facts) &&
	    (a->act != MHS_FORWARD ||
	     mhs_verdict_count(a->v) != MHS_CNT_STABLE || a->v & MHS_CUTS ||
	     !(a->v & MHS_CONN) != !has(a, MHS_PKT_NEW)))
		return "the short way differs from the long one";
	return mhs_decide(a->w, a->old | MHS_SRV_FULL, a->cand, a->facts) ==
	       a->v ? NULL : "the short way differs from the long one";
}

static const char *older_stay(const struct answer *a)
{
	if (!older(a) || a->stable)
		return NULL;
	return a->v & (MHS_TO_CAND | MHS_CUTS) ? "an older flow moved" : NULL;
}

/* Where a server could have it, the core would reset it */
static const char *older_not_reset(const struct answer *a)
{
	if (!older(a) || !plain_service(a) || a->act != MHS_CORE ||
	    !(a->old & MHS_SRV_EXISTS) || a->old & MHS_SRV_ALL_ENTRY)
		return NULL;
	return "an older flow went to the core";
}

static const char *pinned_in_time(const struct answer *a)
{
	if (!older(a) || !plain_service(a) || !(a->old & MHS_SRV_EXISTS) ||
	    a->old & (MHS_SRV_GONE | MHS_SRV_ALL_ENTRY | MHS_SRV_FROZEN) ||
	    has(a, MHS_PKT_ENDS | MHS_PKT_NO_PORT | MHS_AGAIN_NO_ENTRY) ||
	    !(mhs_slot_pinning(a->w) || has(a, MHS_SVC_STATEFUL) ||
	      a->old & MHS_SRV_PIN_OLDER))
		return NULL;
	return a->act == MHS_PIN ? NULL : "an older flow got no entry in time";
}

static const char *new_get_entries(const struct answer *a)
{
	if (!has(a, MHS_PKT_NEW) || a->act != MHS_FORWARD ||
	    has(a, MHS_PKT_ERROR | MHS_AGAIN_NO_ENTRY))
		return NULL;
	return a->stable && !has(a, MHS_SVC_STATEFUL) ? NULL :
	       "a new flow got no entry";
}

static const char *new_avoid_the_gone(const struct answer *a)
{
	if (!(a->v & MHS_CONN) || a->act < MHS_FORWARD)
		return NULL;
	return a->server & MHS_SRV_GONE ? "a flow began on a deleted server" :
	       NULL;
}

static const char *candidate_takes(const struct answer *a)
{
	/* plain UDP that left its entry may go to the old one */
	if (a->act != MHS_NEW || !(a->v & MHS_TO_CAND))
		return NULL;
	return a->takes ? NULL : "a flow began on a server that takes none";
}

static const char *ends_make_nothing(const struct answer *a)
{
	return older(a) && has(a, MHS_PKT_ENDS) && makes_entry(a) ?
	       "the end of a flow made an entry" : NULL;
}

static const char *asked_twice_at_most(const struct answer *a)
{
	if (has(a, MHS_AGAIN_NO_ENTRY) &&
	    (a->act == MHS_NEW || a->act == MHS_PIN))
		return "asked for an entry again";
	if (has(a, MHS_AGAIN_SEARCHED) && a->act == MHS_SEARCH)
		return "searched again";
	return NULL;
}

/* By where they go; and what begins a connection there */
static const char *packets_are_counted(const struct answer *a)
{
	bool sent = a->act == MHS_FORWARD && !has(a, MHS_PKT_ERROR);
	bool udp = has(a, MHS_PKT_CONNLESS), begins = has(a, MHS_PKT_NEW);
	u32 want = MHS_CNT_MAX;

	if (sent)
		want = a->stable ? MHS_CNT_STABLE :
		       a->v & MHS_TO_CAND ? MHS_CNT_CAND : MHS_CNT_OLD;
	else if (a->act == MHS_NEW && begins)
		want = MHS_CNT_CAND;
	else if (a->act == MHS_DROP && !begins && !udp && has(a, MHS_SVC_SETTLING))
		want = MHS_CNT_UNSETTLED;
	begins |= udp && (a->act == MHS_PIN || has(a, MHS_SVC_ONE_PACKET));
	begins = a->act == MHS_NEW || (begins && (sent || makes_entry(a)));
	return mhs_verdict_count(a->v) == want && begins == !!(a->v & MHS_CONN) ?
	       NULL : "a packet is in a wrong counter";
}

/* The core gets the flows whose entry it makes, and those that no server takes */
static const char *core_for_a_reason(const struct answer *a)
{
	bool flow = has(a, MHS_PKT_NEW | MHS_PKT_CONNLESS) && !has(a, MHS_PKT_ERROR);
	bool other = !has(a, MHS_AGAIN_SEARCHED) && !a->takes &&
		     (!(a->cand & MHS_SRV_IN) || has(a, MHS_SVC_FALLBACK)) &&
		     (a->w & MHS_IDX_MAX || !has(a, MHS_PKT_NEW));
	u32 old = a->old & MHS_SRV_EXISTS ? a->old : a->cand;

	if (has(a, MHS_SVC_PERSISTENT) && flow)
		return a->v & MHS_TRACKS ? NULL : "persistence was not asked";
	if (a->act == MHS_SEARCH)
		return other ? NULL : "a search for no reason";
	if (a->v & MHS_TRACKS)
		return a->act == MHS_CORE && flow && !has(a, MHS_PKT_LEFT) &&
		       (has(a, MHS_SVC_SETTLING | MHS_AGAIN_SEARCHED) ||
			~(old & a->cand) & MHS_SRV_CARRIER ||
			(old | a->cand) & MHS_SRV_NEW_ENTRY) ?
		       NULL : "an entry of the core for no reason";
	return a->act == MHS_CORE && flow && (a->takes || other) ?
	       "a server would take the flow" : NULL;
}

static const char *drops_for_a_reason(const struct answer *a)
{
	bool right = has(a, MHS_SVC_SETTLING) ||
		     !(a->old & (MHS_SRV_CARRIER | MHS_SRV_ALL_ENTRY));

	if (has(a, MHS_PKT_NEW))
		right = has(a, MHS_PKT_NO_PORT);
	else if (has(a, MHS_PKT_CONNLESS))
		right = has(a, MHS_PKT_LEFT) &&
			has(a, MHS_SVC_ONE_PACKET | MHS_AGAIN_NO_ENTRY);
	return a->act == MHS_DROP && !right ? "dropped for no reason" : NULL;
}

static const char *entries_for_a_reason(const struct answer *a)
{
	return makes_entry(a) &&
	       ((has(a, MHS_PKT_NO_PORT) && !has(a, MHS_PKT_LEFT)) ||
		(a->act == MHS_NEW && !has(a, MHS_PKT_NEW | MHS_PKT_LEFT)) ||
		(a->act == MHS_PIN && a->server & (MHS_SRV_GONE | MHS_SRV_METHOD))) ?
	       "an entry for no reason" : NULL;
}

static const char *cuts_the_gone_only(const struct answer *a)
{
	if (!(a->v & MHS_CUTS))
		return has(a, MHS_PKT_NEW) && a->act == MHS_FORWARD &&
		       a->v & MHS_TO_CAND ? "a slot was not cut" : NULL;
	return a->stable || (a->old & MHS_SRV_EXISTS && !(a->old & MHS_SRV_GONE)) ?
	       "a slot was cut whose old server is there" : NULL;
}

static const char *settling_waits(const struct answer *a)
{
	if (mhs_decide_looks(a->w, a->facts) == plain_service(a) ||
	    !mhs_decide_looks(a->w | MHS_TRACK_PREV, 0) || !mhs_decide_looks(0, MHS_SVC_BACKUP))
		return "an entry is looked for or not";
	if (!has(a, MHS_SVC_SETTLING) || has(a, MHS_PKT_CONNLESS | MHS_PKT_ERROR))
		return NULL;
	if (has(a, MHS_PKT_NEW))
		return a->act == MHS_CORE && a->v & MHS_TRACKS ? NULL :
		       "a new flow got no entry while the service settles";
	return a->act == MHS_DROP ? NULL :
	       "an older flow went on while the service settles";
}

static const char *errors_change_nothing(const struct answer *a)
{
	bool goes = a->old & MHS_SRV_EXISTS && !has(a, MHS_SVC_SETTLING);

	if (!has(a, MHS_PKT_ERROR))
		return NULL;
	return makes_entry(a) || a->v & (MHS_TRACKS | MHS_CUTS) ||
	       ((has(a, MHS_SVC_SETTLING) || !has(a, MHS_PKT_CONNLESS)) &&
		a->act != (goes ? MHS_FORWARD : MHS_CORE)) ?
	       "an ICMP error went wrong" : NULL;
}

/* Is the slot unstable, or will it be when the next rebuild has come? */
static bool in_change(const struct answer *a)
{
	return !a->stable || !(a->old & MHS_SRV_IN);
}

/* Plain UDP stays in the hold phase while its server takes more.  That which is to stay
 * does while its server is there, also before a rebuild has seen the weight of 0.
 */
static const char *udp_stays(const struct answer *a)
{
	bool old = a->w == words[2] && a->old & MHS_SRV_IN && !has(a, MHS_SVC_ONE_PACKET);
	bool went = a->act >= MHS_FORWARD && a->act != MHS_SEARCH;

	if (has(a, MHS_PKT_STAYS))
		old = (a->w == words[2] || (a->stable && in_change(a))) &&
		      (a->old & (KNOWN | MHS_SRV_GONE)) == KNOWN &&
		      (!(a->old & MHS_SRV_NEW_ENTRY) || a->old & MHS_SRV_PIN_OLDER);
	if (!has(a, MHS_PKT_CONNLESS) || (!went && (!plain_service(a) ||
	    (a->old & (SENDS | MHS_SRV_NEW_ENTRY)) != SENDS)))
		return NULL;
	return old == (went && !(a->v & MHS_TO_CAND)) ? NULL : "UDP that is to stay moved";
}

/* In a transition each such flow has an entry, or a second change would move it */
static const char *udp_is_pinned(const struct answer *a)
{
	if (!has(a, MHS_PKT_STAYS) || !in_change(a) || !plain_service(a) ||
	    has(a, MHS_PKT_ERROR | MHS_PKT_NO_PORT | MHS_AGAIN_NO_ENTRY))
		return NULL;
	return a->act == MHS_FORWARD && (a->server & ~MHS_SRV_IN) == SENDS ?
	       "UDP that is to stay got no entry" : NULL;
}

/* Otherwise UDP makes none */
static const char *udp_makes_none(const struct answer *a)
{
	if (!has(a, MHS_PKT_CONNLESS) || has(a, MHS_PKT_LEFT | MHS_SVC_STATEFUL) ||
	    (has(a, MHS_PKT_STAYS) && in_change(a)))
		return NULL;
	return makes_entry(a) ? "UDP made an entry" : NULL;
}

/* What may be no QUIC is plain UDP where the old server is deleted */
static const char *odd_is_plain(const struct answer *a)
{
	u32 udp = a->old & MHS_SRV_GONE ? MHS_PKT_CONNLESS : 0;

	return !older(a) ||
	       a->v == mhs_decide(a->w, a->old, a->cand, a->facts | udp) ? NULL :
	       "what may be new went to a deleted server, or another not to its own";
}

static bool ask(const struct rule *rule, u32 w, u32 old, u32 cand, u32 facts)
{
	struct answer a = {
		.w = w, .old = old, .cand = cand, .facts = facts,
	};
	const char *wrong;

	/* one server or none */
	if ((mhs_slot_stable(w) && old != cand) ||
	    (mhs_slot_cand(w) == MHS_IDX_NONE && cand))
		return true;
	a.v = rule->decide(w, old, cand, facts);
	a.act = mhs_verdict_act(a.v);
	a.stable = mhs_slot_stable(w);
	a.takes = cand & MHS_SRV_IN && !(cand & MHS_SRV_FULL);
	a.server = a.v & MHS_TO_CAND ? cand : old;
	wrong = rule->rule(&a);
	return !wrong || unit_fail("%s: word %08x, old %x, cand %x, facts %x: %x",
				   wrong, w, old, cand, facts, a.v);
}

/* Plain UDP begins nothing, and only what is fresh begins and does not end */
static bool possible(u32 facts)
{
	u32 kind = facts & (MHS_PKT_NEW | MHS_PKT_ENDS | MHS_PKT_CONNLESS);

	return !(kind & (kind - 1)) &&
	       !(facts & (MHS_PKT_LEFT | MHS_PKT_STAYS) &&
		 !(facts & MHS_PKT_CONNLESS)) &&
	       !(facts & MHS_PKT_STAYS && facts & MHS_SVC_ONE_PACKET) &&
	       !(facts & MHS_PKT_ERROR && kind & ~MHS_PKT_CONNLESS);
}

static u32 subset(u32 which)
{
	u32 i, facts = 0;

	for (i = 0; i < ARRAY_SIZE(bits); i++)
		facts |= which & 1U << i ? bits[i] : 0;
	return facts;
}

static bool every_case(const void *arg)
{
	u32 i, w, old, cand, facts;

	for (i = 0; i < 1U << ARRAY_SIZE(bits); i++) {
		facts = subset(i);
		if (!possible(facts))
			continue;
		for (w = 0; w < ARRAY_SIZE(words); w++)
			for (old = 0; old < ARRAY_SIZE(servers); old++)
				for (cand = 0; cand < ARRAY_SIZE(servers); cand++)
					if (!ask(arg, words[w], servers[old],
						 servers[cand], facts))
						return false;
	}
	return true;
}

/* Also with each bit of a fact to come: whoever adds one changes mhs_decide() alone */
static bool every_fact(const void *arg)
{
	u32 i, bit, facts;

	for (i = 0; i < 1U << ARRAY_SIZE(bits); i++)
		for (bit = 0; bit < 32; bit++) {
			facts = subset(i) | 1U << bit;
			if (mhs_decide_is_quick(CAND, SENDS | MHS_SRV_IN, facts) &&
			    possible(facts) &&
			    !ask(arg, CAND, SENDS | MHS_SRV_IN,
				 SENDS | MHS_SRV_IN, facts))
				return false;
		}
	return true;
}

/* Which servers a connection ID may name: none whose flows need entries */
static bool named_goes(const void *arg)
{
	bool (*const names)(u32 server) = *(bool (*const *)(u32))arg;
	u32 i, s;

	for (i = 0; i < ARRAY_SIZE(servers); i++) {
		s = servers[i];
		if (names(s) != (s == (SENDS | MHS_SRV_IN) || s == SENDS ||
				 s == (SENDS | MHS_SRV_IN | MHS_SRV_FULL) ||
				 s == (SENDS | MHS_SRV_GONE)))
			return unit_fail("named: %x", s);
	}
	return true;
}

static bool names_all(u32 server)
{
	return server & MHS_SRV_CARRIER;
}

static bool (*const names)(u32 server) = mhs_decide_by_id;
static bool (*const names_too_many)(u32 server) = names_all;

/* Wrong decisions: each has a fact wrong */
static u32 without_carrier(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old | MHS_SRV_CARRIER, cand, facts);
}

static u32 carrierless(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old & ~MHS_SRV_CARRIER, cand, facts);
}

static u32 swapped(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, cand, old, facts) ^
	       (facts & MHS_PKT_NEW ? 0 : MHS_TO_CAND);
}

static u32 listed(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old & ~MHS_SRV_GONE, cand & ~MHS_SRV_GONE,
			  facts);
}

static u32 all_gone(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old | MHS_SRV_GONE, cand, facts);
}

static u32 unknown(u32 w, u32 old, u32 cand, u32 facts)
{
	(void)old;
	return mhs_decide(w, 0, cand, facts);
}

static u32 empty_server(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand & ~MHS_SRV_FULL, facts);
}

static u32 never_ends(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts & ~MHS_PKT_ENDS);
}

static u32 always_ends(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts | MHS_PKT_ENDS);
}

static u32 forgets(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand,
			  facts & ~(MHS_AGAIN_NO_ENTRY | MHS_AGAIN_SEARCHED));
}

static u32 uncounted(u32 w, u32 old, u32 cand, u32 facts)
{
	u32 v = mhs_decide(w, old, cand, facts);

	return facts & MHS_AGAIN_NO_ENTRY ?
	       (v & ~MHS_COUNT) | MHS_CNT_MAX << MHS_COUNT_SHIFT : v;
}

static u32 settled(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts & ~MHS_SVC_SETTLING);
}

static u32 no_error(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts & ~MHS_PKT_ERROR);
}

static u32 no_memory(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts | MHS_AGAIN_NO_ENTRY);
}

static u32 leaves(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts & ~MHS_PKT_STAYS);
}

static u32 odd(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts | MHS_PKT_ODD);
}

static u32 stateful(u32 w, u32 old, u32 cand, u32 facts)
{
	return mhs_decide(w, old, cand, facts | MHS_SVC_STATEFUL);
}

/* A fact to come, of which the short way does not know */
static u32 fact_to_come(u32 w, u32 old, u32 cand, u32 facts)
{
	return facts & 0x8000U ? MHS_DROP : mhs_decide(w, old, cand, facts);
}

#define RULE(name, wrong, why)						\
	{ #name, every_case,						\
	  &(const struct rule){ name, mhs_decide }, NULL },		\
	{ "catches_" #wrong "_" #name, every_case,			\
	  &(const struct rule){ name, wrong }, why }

static const struct unit_test tests[] = {
	RULE(sent_by_carrier, without_carrier, "sent without a carrier"),
	RULE(stable_is_plain, stateful, "does more than forward"),
	RULE(short_is_the_same, stateful, "differs from the long one"),
	{ "quick_by_every_fact", every_fact,
	  &(const struct rule){ short_is_the_same, mhs_decide }, NULL },
	{ "catches_fact_to_come_quick_by_every_fact", every_fact,
	  &(const struct rule){ short_is_the_same, fact_to_come },
	  "differs from the long one" },
	RULE(older_stay, swapped, "an older flow moved"),
	RULE(older_not_reset, unknown, "an older flow went to the core"),
	RULE(pinned_in_time, always_ends, "got no entry in time"),
	RULE(new_get_entries, no_memory, "a new flow got no entry"),
	RULE(new_avoid_the_gone, listed, "began on a deleted server"),
	RULE(candidate_takes, empty_server, "a server that takes none"),
	RULE(ends_make_nothing, never_ends, "the end of a flow made an entry"),
	RULE(asked_twice_at_most, forgets, "again"),
	RULE(packets_are_counted, uncounted, "is in a wrong counter"),
	RULE(core_for_a_reason, carrierless, "for no reason"),
	RULE(drops_for_a_reason, carrierless, "dropped for no reason"),
	RULE(entries_for_a_reason, listed, "an entry for no reason"),
	RULE(cuts_the_gone_only, all_gone, "whose old server is there"),
	RULE(settling_waits, settled, "while the service settles"),
	RULE(udp_stays, leaves, "UDP that is to stay moved"),
	RULE(udp_is_pinned, leaves, "UDP that is to stay got no entry"),
	RULE(udp_makes_none, stateful, "UDP made an entry"),
	RULE(errors_change_nothing, no_error, "an ICMP error went wrong"),
	{ "odd_is_plain", every_case,
	  &(const struct rule){ odd_is_plain, odd }, NULL },
	{ "catches_even_odd_is_plain", every_case,
	  &(const struct rule){ odd_is_plain, mhs_decide }, "may be new" },
	{ "named_goes", named_goes, &names, NULL },
	{ "catches_names_all_named_goes", named_goes, &names_too_many, "named:" },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
