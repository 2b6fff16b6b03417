// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: /proc/net/ip_vs_mhs and ip_vs_mhs_lookup */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "ip_vs_mhs_ctl.h"

/* Scripts find columns by name: names stay, new ones are added at the end */
static const char * const proc_columns[] = {
	"Prot", "Address:Port", "State", "Servers", "Gone", "NoSlot", "Size",
	"Stable", "Hold", "Pin", "Tracked", "NextMergeMs", "Entries",
	"PktStateless", "PktOld", "PktCandidate", "PktTracked",
	"PktUnsettled", "NewEntries", "PinnedEntries", "Capped", "NoMemory",
	"BuildUs", "OldPrint", "CandidatePrint", "PktIcmp",
	"StableMs", "AddrOnly", "Stateful", "StatefulMs", "PktLane",
	"QuicIds", "PktById", "PktNoId", "PinnedMs",
};

static int proc_show(struct seq_file *seq, struct mhs *mhs)
{
	u32 i, entries, tracked = 0, gone = 0, ids = 0;
	const struct mhs_census *sum = &mhs->census;
	unsigned long cnt[MHS_CNT_MAX];
	const struct mhs_list_item *item;
	struct mhs_server *s;
	unsigned long now, wait = 0;

	/* Packets set the bits and walks clear them: nobody has their number */
	for (i = 0; i < mhs->size; i++)
		tracked += mhs_slot_tracked(READ_ONCE(mhs->slots[i]));
	rcu_read_lock();
	item = rcu_dereference(mhs->ids);
	if (item)
		ids = 1 + item->keyed;
	rcu_read_unlock();
	mutex_lock(&mhs->lock);
	if (mhs->ended) {
		mutex_unlock(&mhs->lock);
		return SEQ_SKIP;
	}
	mhs_work_poll_stateful(mhs);
	for (i = 0; i < MHS_CNT_MAX; i++)
		cnt[i] = mhs_svc_counted(mhs, BIT(i));
	cnt[MHS_CNT_STABLE] += cnt[MHS_CNT_LANE_STABLE];
	cnt[MHS_CNT_LANE] += cnt[MHS_CNT_LANE_STABLE];
	entries = mhs_work_entries(mhs);
	list_for_each_entry(s, &mhs->gone, list)
		gone++;
	now = jiffies;
	/* Live flows send within a pin time, and each packet makes an entry */
	if (mhs->stateful)
		wait = mhs_time_between(now, mhs->stateful_since +
					msecs_to_jiffies(mhs_time_pin_ms(mhs)));

	if (mhs->fwmark) {
		seq_printf(seq, "FWM %u", mhs->fwmark);
	} else {
		seq_printf(seq, "%s ", ip_vs_proto_name(mhs->protocol));
		mhs_svc_endpoint(seq, mhs->af, &mhs->addr, mhs->port);
	}
	seq_printf(seq, " %s %u %u %u %u %u %u %u %u %u %u",
		   READ_ONCE(mhs->settling) ? "settling" :
		   mhs->dirty || mhs->retry ? "rebuilding" :
		   sum->hold || sum->pin ? "transition" : "stable",
		   mhs->n_listed, gone, mhs->n_empty, mhs->size,
		   mhs->size - sum->hold - sum->pin, sum->hold, sum->pin,
		   tracked, mhs_time_merge_ms(mhs, sum->stage_max, now), entries);
	seq_printf(seq, " %lu %lu %lu %lu %lu %lu %lu %lu %lu %u %016llx %016llx",
		   cnt[MHS_CNT_STABLE], cnt[MHS_CNT_OLD], cnt[MHS_CNT_CAND],
		   cnt[MHS_CNT_ENTRY], cnt[MHS_CNT_UNSETTLED],
		   cnt[MHS_CNT_NEW], cnt[MHS_CNT_PINNED], cnt[MHS_CNT_CAPPED],
		   cnt[MHS_CNT_NOMEM], mhs->build_us, sum->old_fingerprint,
		   sum->cand_fingerprint);
	if (mhs_svc_counted(mhs, MHS_NOT_MADE) != mhs->not_made_then)
		mhs->least_pin_ms = 0;
	seq_printf(seq, " %lu %u %u %u %u %lu %u %lu %lu %u\n", cnt[MHS_CNT_ICMP],
		   mhs_time_merge_ms(mhs, sum->stage_min, now),
		   READ_ONCE(mhs->addr_only), mhs->stateful,
		   jiffies_to_msecs(wait), cnt[MHS_CNT_LANE], ids,
		   cnt[MHS_CNT_BY_ID], cnt[MHS_CNT_NO_ID],
		   min(mhs->least_pin_ms, mhs_time_pin_ms(mhs)));
	mutex_unlock(&mhs->lock);
	return 0;
}

static void *proc_seq_start(struct seq_file *seq, loff_t *pos)
{
	struct mhs_net *mn = mhs_net(seq_file_net(seq));
	struct mhs *mhs = NULL;
	loff_t at = 0;

	if (*pos)
		return mhs_svc_next(mn, NULL, *pos - 1);
	/* Who reads sees what the last command made */
	while ((mhs = mhs_svc_next(mn, mhs, at++)))
		mhs_work_build(mhs);
	return SEQ_START_TOKEN;
}

static void *proc_seq_next(struct seq_file *seq, void *v, loff_t *pos)
{
	struct mhs_net *mn = mhs_net(seq_file_net(seq));

	return mhs_svc_next(mn, v == SEQ_START_TOKEN ? NULL : v, (*pos)++);
}

static void proc_seq_stop(struct seq_file *seq, void *v)
{
	if (!IS_ERR_OR_NULL(v) && v != SEQ_START_TOKEN)
		mhs_svc_put(v);
}

static int proc_seq_show(struct seq_file *seq, void *v)
{
	int i;

	if (v != SEQ_START_TOKEN)
		return proc_show(seq, v);
	for (i = 0; i < ARRAY_SIZE(proc_columns); i++)
		seq_printf(seq, "%s%s", i ? " " : "", proc_columns[i]);
	seq_putc(seq, '\n');
	return 0;
}

const struct seq_operations mhs_proc_ops = {
	.start	= proc_seq_start,
	.next	= proc_seq_next,
	.stop	= proc_seq_stop,
	.show	= proc_seq_show,
};

/* Which slot has a client in a service?  A writer asks with one line,
 *
 *	FWM 7 0 198.51.100.7 40000
 *	UDP 192.0.2.1 443 198.51.100.7 40000 070a000002deadbeef
 *
 * (service, client, connection ID), and a reader of the same open file gets the
 * answer.  seq_file.lock guards the question.
 */
struct mhs_lookup {
	struct seq_net_private	p;		/* must be first */
	u32			fwmark;
	u16			af;		/* 0: nothing was asked */
	u16			protocol;
	__be16			port;
	__be16			cport;
	union nf_inet_addr	addr;
	union nf_inet_addr	caddr;
	u8			quic[1 + MHS_QUIC_CID_MAX];	/* short header */
	u8			cid_len;	/* 0: no connection ID */
};

/* Take a question, which ends with a zero byte */
int mhs_proc_lookup_write(struct file *file, char *text, size_t size)
{
	struct seq_file *seq = file->private_data;
	struct mhs_lookup *asked = seq->private, q = {};
	struct net *net = seq_file_net(seq);
	char words[5][64], proto[5] = "";
	int af = -EINVAL, n;

	n = sscanf(text, "%4s %63s %63s %63s %63s %63s", proto, words[0],
		   words[1], words[2], words[3], words[4]);
	if (n == 6) {
		q.cid_len = strlen(words[4]) / 2;
		if (q.cid_len > MHS_QUIC_CID_MAX || strlen(words[4]) & 1 ||
		    hex2bin(q.quic + 1, words[4], q.cid_len))
			return -EINVAL;
	}
	if (n >= 5)
		af = mhs_list_endpoint(net, words[2], words[3], &q.caddr,
				       &q.cport);
	if (af < 0)
		return -EINVAL;
	if (!strcmp(proto, "FWM")) {
		if (kstrtou32(words[0], 10, &q.fwmark) || !q.fwmark)
			return -EINVAL;
	} else {
		q.protocol = !strcmp(proto, "TCP") ? IPPROTO_TCP :
			     !strcmp(proto, "UDP") ? IPPROTO_UDP :
			     !strcmp(proto, "SCTP") ? IPPROTO_SCTP : 0;
		if (!q.protocol || mhs_list_endpoint(net, words[0], words[1],
						     &q.addr, &q.port) != af)
			return -EINVAL;
	}
	q.af = af;
	mutex_lock(&seq->lock);
	q.p = asked->p;
	*asked = q;
	mutex_unlock(&seq->lock);
	return 0;
}

/* The service that was asked for, with a reference; its table is not due */
static void *lookup_start(struct seq_file *seq, loff_t *pos)
{
	struct mhs_net *mn = mhs_net(seq_file_net(seq));
	const struct mhs_lookup *q = seq->private;
	struct mhs *mhs;

	if (*pos || !q->af)
		return NULL;
	rcu_read_lock();
	mhs = q->fwmark ? mhs_svc_find_mark(mn, q->af, q->fwmark) :
			  mhs_svc_find(mn, q->af, q->protocol, &q->addr,
				       q->port);
	/* the service's own reference lasts for a grace period */
	if (mhs)
		refcount_inc(&mhs->refcnt);
	rcu_read_unlock();
	if (!mhs)
		return ERR_PTR(-ENOENT);
	mhs_work_build(mhs);
	return mhs;
}

static void *lookup_next(struct seq_file *seq, void *v, loff_t *pos)
{
	++*pos;
	mhs_svc_put(v);
	return NULL;
}

static void lookup_server(struct seq_file *seq, const char *name,
			  const struct mhs_server *s)
{
	seq_printf(seq, "%s ", name);
	if (s)
		mhs_svc_endpoint(seq, s->dest->af, &s->dest->addr, s->dest->port);
	else
		seq_putc(seq, '-');
	seq_putc(seq, '\n');
}

static int lookup_show(struct seq_file *seq, void *v)
{
	const struct mhs_lookup *q = seq->private;
	struct mhs_question ask = { .mhs = v };
	struct mhs *mhs = v;
	u32 *slot, w;

	rcu_read_lock();
	slot = mhs_slot(mhs, &q->caddr, q->cport);
	w = mhs_slot_read(slot);
	seq_printf(seq, "Slot %u\nPhase %s\nTracked %u\n",
		   (u32)(slot - mhs->slots),
		   READ_ONCE(mhs->settling) ? "settling" :
		   mhs_slot_stable(w) ? "stable" :
		   mhs_slot_holding(w) ? "hold" : "pin",
		   mhs_slot_tracked(w));
	lookup_server(seq, "Old", mhs_server_at(mhs, mhs_slot_old(w)));
	lookup_server(seq, "Candidate", mhs_server_at(mhs, mhs_slot_cand(w)));
	if (q->cid_len)
		lookup_server(seq, "ById",
			      mhs_packet_by_id(&ask, q->quic, 1 + q->cid_len));
	rcu_read_unlock();
	return 0;
}

const struct seq_operations mhs_proc_lookup_ops = {
	.start	= lookup_start,
	.next	= lookup_next,
	.stop	= proc_seq_stop,
	.show	= lookup_show,
};

const unsigned int mhs_proc_lookup_size = sizeof(struct mhs_lookup);
