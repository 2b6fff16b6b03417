// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: where does a packet go?
 *
 * Start with ip_vs_mhs_decide.h.
 */
#include "ip_vs_mhs_decide.h"

static u32 nothing(enum ip_vs_mhs_act act)
{
	return ip_vs_mhs_verdict(act, MHS_CNT_MAX, 0);
}

/* The candidate takes no new flow.  Without another server the core tells the
 * client.
 */
static u32 other(u32 cand, u32 facts)
{
	if (facts & MHS_ASK_SEARCHED || !ip_vs_mhs_decide_searches(cand, facts))
		return nothing(MHS_CORE);
	return nothing(MHS_SEARCH);
}

/* A new flow whose entry cannot be made goes where its next packets will go.  If
 * the old server is deleted, that is the candidate, and the slot changes to it:
 * without entries one of the two servers has to lose its flows, and the old one
 * may be dead.
 */
static u32 new_without(u32 old, u32 cand, u32 facts)
{
	bool cut = !(old & MHS_SRV_KNOWN) || old & MHS_SRV_GONE;
	u32 server = cut ? cand : old;

	if (!(server & MHS_SRV_CARRIER) || ip_vs_mhs_decide_needs_entry(server, facts) ||
	    (cut && facts & MHS_ASK_SEARCHED))
		return ip_vs_mhs_verdict_tracks();
	return ip_vs_mhs_verdict(MHS_FORWARD, MHS_CNT_MAX, MHS_BEGINS |
		       (cut ? MHS_TO_CAND | MHS_CUTS : 0));
}

static u32 new_flow(u32 w, u32 old, u32 cand, u32 facts)
{
	if (ip_vs_mhs_slot_cand(w) == MHS_IDX_NONE)
		return nothing(MHS_CORE);
	if (!ip_vs_mhs_decide_takes(cand))
		return other(cand, facts);
	if (facts & MHS_PKT_NO_PORT)
		return nothing(MHS_DROP);
	if (facts & MHS_ASK_NO_ENTRY)
		return new_without(old, cand, facts);
	return ip_vs_mhs_decide_new();
}

/* Plain UDP: nothing tells an older flow from a new one and a port for each query
 * makes every packet a flow, so there are no entries, unless all flows are to have
 * one.  While the slot is held the old server goes on as long as it is in service;
 * with one packet a flow every one is new.
 */
static u32 connectionless(u32 w, u32 old, u32 cand, u32 facts)
{
	bool one = facts & MHS_SVC_ONE_PACKET;
	bool stays = ip_vs_mhs_slot_holding(w) && !one && old & MHS_SRV_IN;
	/* a search may come to the old server, too */
	bool is_old = stays || (facts & MHS_ASK_SEARCHED &&
				!(cand & MHS_SRV_OTHER));
	enum ip_vs_mhs_cnt count = is_old ? MHS_CNT_OLD : MHS_CNT_CAND;
	u32 to = stays ? 0 : MHS_TO_CAND;
	u32 server = stays ? old : cand;

	if (!stays && !ip_vs_mhs_decide_takes(cand))
		return other(cand, facts);
	if (ip_vs_mhs_slot_stable(w))
		count = MHS_CNT_STATELESS;
	if (facts & MHS_PKT_ERROR)
		return ip_vs_mhs_verdict(MHS_FORWARD, MHS_CNT_MAX, to);
	/* With a table that is not final no flow is to stay */
	if (facts & MHS_SVC_STATEFUL && !one && !(facts & MHS_SVC_SETTLING) &&
	    ip_vs_mhs_decide_may_pin(server, facts))
		return ip_vs_mhs_verdict(MHS_PIN, MHS_CNT_MAX, to | MHS_BEGINS);
	if (server & MHS_SRV_CARRIER && !ip_vs_mhs_decide_needs_entry(server, facts) &&
	    !(server & MHS_SRV_NAT && server & MHS_SRV_OTHER))
		return ip_vs_mhs_verdict(MHS_FORWARD, count, to | (one ? MHS_BEGINS : 0));
	if (!(facts & MHS_PKT_LEFT))
		return ip_vs_mhs_verdict_tracks();
	/* The core would find the entry that was left; an entry for one packet
	 * cannot stand before it.
	 */
	if (one)
		return nothing(MHS_DROP);
	return ip_vs_mhs_verdict(MHS_REPLACE, MHS_CNT_MAX, to | MHS_BEGINS);
}

/* An ICMP error is about a flow that is under way */
static u32 error(u32 w, u32 old, u32 cand, u32 facts)
{
	if (facts & MHS_SVC_SETTLING)
		return nothing(MHS_CORE);
	if (facts & MHS_PKT_CONNLESS)
		return connectionless(w, old, cand, facts);
	return nothing(old & MHS_SRV_KNOWN ? MHS_FORWARD : MHS_CORE);
}

/* The service settles, or has persistence, or may not own the packet: does that
 * decide?  Plain UDP is not sent again, so while the service settles the table as
 * it stands must do for it.
 */
static bool by_service(u32 facts, u32 *v)
{
	*v = MHS_CORE | MHS_CNT_MAX << MHS_COUNT_SHIFT;
	if (facts & MHS_PKT_FRESH ||
	    (facts & MHS_PKT_CONNLESS &&
	     facts & (MHS_SVC_PERSISTENT | MHS_SVC_UNSURE))) {
		*v |= MHS_TRACKS;
		return true;
	}
	if (facts & MHS_SVC_PERSISTENT && !(facts & MHS_SVC_WAS_STATELESS))
		return true;
	if (facts & MHS_SVC_SETTLING && !(facts & MHS_PKT_CONNLESS)) {
		*v = MHS_DROP | MHS_CNT_UNSETTLED << MHS_COUNT_SHIFT;
		return true;
	}
	return false;
}

/**
 * ip_vs_mhs_decide() - where does a packet without an entry go?
 * @w: the word of its slot
 * @old: MHS_SRV_*, facts of the slot's old server, of its only one if it is stable
 * @cand: the same of the server for new flows
 * @facts: MHS_SVC_*, MHS_PKT_* and MHS_ASK_*
 *
 * Context: any.
 * Return: the verdict.
 */
u32 ip_vs_mhs_decide(u32 w, u32 old, u32 cand, u32 facts)
{
	u32 v;

	if (facts & MHS_PKT_ERROR)
		return error(w, old, cand, facts);
	if (facts & (MHS_SVC_SETTLING | MHS_SVC_PERSISTENT | MHS_SVC_UNSURE) &&
	    by_service(facts, &v))
		return v;
	if (facts & MHS_PKT_CONNLESS)
		return connectionless(w, old, cand, facts);
	if (facts & MHS_PKT_FRESH && (facts & MHS_SVC_STATEFUL ||
				      !ip_vs_mhs_slot_stable(w)))
		return new_flow(w, old, cand, facts);
	return ip_vs_mhs_decide_old(w, old, facts);
}
