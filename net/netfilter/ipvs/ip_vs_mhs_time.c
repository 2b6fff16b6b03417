// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: hold time, pin time, life of entries.
 *
 * The sysctls and the core's timeouts may change at any time: a function that
 * uses a time twice must read the time once.
 */
#include "ip_vs_mhs_ctl.h"

/* Pin time without a timeout table: that of the core's defaults for TCP */
#define MHS_PIN_MS		(15 * 60 * MSEC_PER_SEC)

/* Milliseconds of a timeout of the core in jiffies, which may overflow an int */
static unsigned int time_timeout_ms(int timeout)
{
	return jiffies_to_msecs(min_t(unsigned long, max(timeout, 0),
				      msecs_to_jiffies(INT_MAX / 2)));
}

/* Longest life of an idle entry of the service, by present and former timeouts */
static unsigned int time_entry_ms(struct mhs *mhs)
{
	static const u8 protocols[] = {
		IPPROTO_TCP, IPPROTO_UDP, IPPROTO_SCTP };
	struct ip_vs_proto_data *pd;
	int i, p;
	u32 ms;

	lockdep_assert_held(&mhs->lock);
	for (p = 0; p < ARRAY_SIZE(protocols); p++) {
		if (!mhs->fwmark && mhs->protocol != protocols[p])
			continue;
		pd = ip_vs_proto_data_get(mhs->ipvs, protocols[p]);
		if (!pd || !pd->timeout_table)
			continue;
		for (i = 0; i < pd->pp->num_states; i++) {
			ms = time_timeout_ms(READ_ONCE(pd->timeout_table[i]));
			mhs->entry_ms = max(mhs->entry_ms, ms);
		}
	}
	ms = mhs->entry_ms ? mhs->entry_ms : MHS_PIN_MS;
	/* a timer may be late by up to an eighth of its time, but is never early */
	return ms + ms / 7 + 2 * MSEC_PER_SEC;
}

/* How long a slot stays in pin: the sysctl pin_ms, or the core's timeout of an idle
 * flow, of TCP for a service by firewall mark, which has no protocol
 */
unsigned int mhs_time_pin_ms(const struct mhs *mhs)
{
	u16 protocol = mhs->fwmark ? IPPROTO_TCP : mhs->protocol;
	unsigned int ms = READ_ONCE(mhs->net->pin_ms);
	struct ip_vs_proto_data *pd;
	int t;

	if (ms)
		return ms;
	pd = ip_vs_proto_data_get(mhs->ipvs, protocol);
	if (!pd || !pd->timeout_table)
		return MHS_PIN_MS;
	if (pd->pp->protocol == IPPROTO_TCP)
		t = max(READ_ONCE(pd->timeout_table[IP_VS_TCP_S_ESTABLISHED]),
			READ_ONCE(pd->timeout_table[IP_VS_TCP_S_FIN_WAIT]));
	else if (pd->pp->protocol == IPPROTO_SCTP)
		t = READ_ONCE(pd->timeout_table[IP_VS_SCTP_S_ESTABLISHED]);
	else
		t = READ_ONCE(pd->timeout_table[IP_VS_UDP_S_NORMAL]);
	return t > 0 ? time_timeout_ms(t) : MHS_PIN_MS;
}

/* How long a slot stays in hold: the sysctl hold_ms, at most the pin time */
unsigned int mhs_time_hold_ms(const struct mhs *mhs)
{
	return min(READ_ONCE(mhs->net->hold_ms), mhs_time_pin_ms(mhs));
}

/* Jiffies between two ticks of a clock, 1 at least */
unsigned long mhs_time_period(struct mhs *mhs, u32 clock)
{
	unsigned int ms = clock == MHS_CLOCK_HOLD ?
		DIV_ROUND_UP(mhs_time_hold_ms(mhs), MHS_HOLD_TICKS) :
		clock == MHS_CLOCK_PIN ?
		DIV_ROUND_UP(mhs_time_pin_ms(mhs), MHS_PIN_TICKS) :
		time_entry_ms(mhs);

	return max(msecs_to_jiffies(ms), 1UL);
}

/* Time until every flow has an entry, after mhs_work_poll_stateful(); 0
 * also while the sysctl stateless is 1.  Live flows send within a pin time, and
 * each packet then makes an entry.
 */
unsigned int mhs_time_stateful_ms(const struct mhs *mhs, unsigned long now)
{
	unsigned int ms = mhs_time_pin_ms(mhs);
	unsigned long end;

	lockdep_assert_held(&mhs->lock);
	if (!mhs->stateful)
		return 0;
	end = mhs->stateful_since + msecs_to_jiffies(ms);
	return jiffies_to_msecs(mhs_time_between(now, end));
}

/* Upper bound of the time until a slot of @stage merges; times that are
 * compared need the same @now
 */
unsigned int mhs_time_merge_ms(struct mhs *mhs, u32 stage, unsigned long now)
{
	bool pins = stage >= MHS_STAGE_PIN;
	u32 clock = pins ? MHS_CLOCK_PIN : MHS_CLOCK_HOLD;
	u32 last = pins ? MHS_STAGE_LAST : MHS_STAGE_PIN - 1;
	unsigned long period, t;

	lockdep_assert_held(&mhs->lock);
	if (stage == MHS_STAGE_STABLE)
		return 0;
	period = mhs_time_period(mhs, clock);
	t = mhs_time_between(now, period + mhs->ticked[clock]);
	t += (last - stage) * period;
	if (pins)
		return jiffies_to_msecs(t);
	/* while slots are in pin, a new one waits for the next pin tick */
	if (mhs->census.pin)
		t += mhs_time_period(mhs, MHS_CLOCK_PIN);
	return jiffies_to_msecs(t) + mhs_time_pin_ms(mhs);
}
