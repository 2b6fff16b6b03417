// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: /proc/net/ip_vs_mhs.
 *
 * A line of column names and a line for each service of the namespace, in
 * columns separated by blanks: scripts find a column by its name.  Columns keep
 * their names, and new columns are added at the end.  Documented in
 * Documentation/networking/ipvs-mhs.rst.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "ip_vs_mhs_ctl.h"

static const char * const proc_columns[] = {
	"Prot", "Address:Port", "State", "Servers", "Gone", "NoSlot", "Size",
	"Stable", "Hold", "Pin", "Tracked", "NextMergeMs", "Entries",
	"PktStateless", "PktOld", "PktCandidate", "PktTracked",
	"PktUnsettled", "NewEntries", "PinnedEntries", "Capped", "NoMemory",
	"BuildUs", "OldPrint", "CandidatePrint", "PktIcmp", "StableMs",
	"AddrOnly", "Stateful", "StatefulMs",
};

struct mhs_sum {
	u32			stable;
	u32			hold;
	u32			pin;
	u32			tracked;
	u64			old_print;
	u64			cand_print;
};

/* Count and fingerprint the slots, while packets may change their words */
static void proc_sum_slots(struct ip_vs_mhs *mhs, struct mhs_sum *sum)
{
	struct ip_vs_mhs_servers *servers;
	struct ip_vs_mhs_server *s;
	u32 i, w, idx[2];
	u64 id[2];
	int j;

	lockdep_assert_held(&mhs->lock);
	servers = rcu_dereference_protected(mhs->servers,
					    lockdep_is_held(&mhs->lock));
	for (i = 0; i < mhs->size; i++) {
		w = READ_ONCE(mhs->slots[i]);
		sum->stable += ip_vs_mhs_slot_stable(w);
		sum->hold += ip_vs_mhs_slot_holding(w);
		sum->pin += ip_vs_mhs_slot_pinning(w);
		sum->tracked += ip_vs_mhs_slot_tracked(w);

		idx[0] = ip_vs_mhs_slot_old(w);
		idx[1] = ip_vs_mhs_slot_cand(w);
		for (j = 0; j < 2; j++) {
			s = rcu_dereference_protected(servers->s[idx[j]],
						      lockdep_is_held(&mhs->lock));
			id[j] = s ? s->id : 0;
		}
		sum->old_print = ip_vs_mhs_table_print(sum->old_print, id[0]);
		sum->cand_print = ip_vs_mhs_table_print(sum->cand_print, id[1]);
		if (!(i & 4095))
			cond_resched();
	}
}

static void proc_show(struct seq_file *seq, struct ip_vs_mhs *mhs)
{
	unsigned long cnt[MHS_CNT_MAX] = {};
	struct ip_vs_mhs_server *s;
	struct mhs_sum sum = {};
	unsigned long now;
	u64 entries = 0;
	u32 gone = 0;
	int cpu, i;

	mutex_lock(&mhs->lock);
	proc_sum_slots(mhs, &sum);
	ip_vs_mhs_work_look_stateful(mhs);
	for_each_possible_cpu(cpu)
		for (i = 0; i < MHS_CNT_MAX; i++)
			cnt[i] += READ_ONCE(per_cpu_ptr(mhs->cnt, cpu)->n[i]);
	list_for_each_entry(s, &mhs->listed, list)
		entries += ip_vs_mhs_dest_entries(s->dest);
	list_for_each_entry(s, &mhs->gone, list) {
		entries += ip_vs_mhs_dest_entries(s->dest);
		gone++;
	}
	now = jiffies;

	if (mhs->fwmark)
		seq_printf(seq, "FWM %u", mhs->fwmark);
	else if (mhs->af == AF_INET6)
		seq_printf(seq, "%s [%pI6c]:%u", ip_vs_proto_name(mhs->protocol),
			   &mhs->addr.in6, ntohs(mhs->port));
	else
		seq_printf(seq, "%s %pI4:%u", ip_vs_proto_name(mhs->protocol),
			   &mhs->addr.ip, ntohs(mhs->port));
	seq_printf(seq, " %s %u %u %u %u %u %u %u %u %u %llu",
		   READ_ONCE(mhs->phase) == MHS_SETTLING ? "settling" :
		   mhs->dirty || mhs->missing ? "rebuilding" :
		   sum.hold || sum.pin ? "transition" : "stable",
		   mhs->n_listed, gone, mhs->n_empty, mhs->size, sum.stable,
		   sum.hold, sum.pin, sum.tracked,
		   ip_vs_mhs_time_merge_ms(mhs, mhs->census.stage_max, now), entries);
	seq_printf(seq, " %lu %lu %lu %lu %lu %lu %lu %lu %lu %u %016llx %016llx",
		   cnt[MHS_CNT_STATELESS], cnt[MHS_CNT_OLD], cnt[MHS_CNT_CAND],
		   cnt[MHS_CNT_TRACKED], cnt[MHS_CNT_UNSETTLED],
		   cnt[MHS_CNT_NEW], cnt[MHS_CNT_PINNED], cnt[MHS_CNT_CAPPED],
		   cnt[MHS_CNT_NOMEM], mhs->build_us, sum.old_print,
		   sum.cand_print);
	seq_printf(seq, " %lu %u %u %u %u\n", cnt[MHS_CNT_ICMP],
		   ip_vs_mhs_time_merge_ms(mhs, mhs->census.stage_min, now),
		   mhs->addr_only, mhs->stateful,
		   ip_vs_mhs_time_stateful_ms(mhs, now));
	mutex_unlock(&mhs->lock);
}

static void *proc_seq_start(struct seq_file *seq, loff_t *pos)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(seq_file_net(seq));

	mutex_lock(&mn->lock);
	return seq_list_start_head(&mn->list, *pos);
}

static void *proc_seq_next(struct seq_file *seq, void *v, loff_t *pos)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(seq_file_net(seq));

	return seq_list_next(v, &mn->list, pos);
}

static void proc_seq_stop(struct seq_file *seq, void *v)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(seq_file_net(seq));

	mutex_unlock(&mn->lock);
}

static int proc_seq_show(struct seq_file *seq, void *v)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(seq_file_net(seq));
	int i;

	if (v != &mn->list) {
		proc_show(seq, list_entry(v, struct ip_vs_mhs, net_list));
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(proc_columns); i++)
		seq_printf(seq, "%s%s", i ? " " : "", proc_columns[i]);
	seq_putc(seq, '\n');
	return 0;
}

const struct seq_operations ip_vs_mhs_proc_ops = {
	.start	= proc_seq_start,
	.next	= proc_seq_next,
	.stop	= proc_seq_stop,
	.show	= proc_seq_show,
};
