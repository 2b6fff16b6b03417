// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: the scheduler's side of the lane, a module of its
 * own: its sysctls and file in /proc, and the decision of which records do not tell.
 * Contract, locks and lifetimes: ip_vs_mhs_lane.h.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/seq_file.h>

#include "ip_vs_mhs_ctl.h"

/* The order is that of enum mhs_lane_why */
static const char * const api_names[] = {
	"Forwarded", "Off", "Mark", "Conntrack", "Backup", "Frame", "Service",
	"Address", "Entry", "Decision", "Method", "Route", "Neighbour", "Mtu",
	"Device",
};

/* Guards what follows, and writes of both sysctls in all namespaces */
static DEFINE_MUTEX(api_lock);
/* From the first use to the end of this module, which holds the lane's until then */
static const struct mhs_lane_module *api_lane;
static int (*api_ready)(void);	/* NULL before the first namespaces are, and after */

static bool api_has_entry(const struct mhs_lane_packet *p)
{
	struct ip_vs_conn_param param;
	struct ip_vs_conn *cp;

	ip_vs_conn_fill_param(p->mhs->ipvs, p->mhs->af, p->transport, p->saddr,
			      p->sport, p->daddr, p->dport, &param);
	cp = ip_vs_conn_in_get(&param);
	if (!cp)
		return false;
	__ip_vs_conn_put(cp);
	return true;
}

/* The lane calls this: see struct mhs_lane_module */
static enum mhs_lane_why api_decide(struct mhs_lane_packet *p)
{
	unsigned int at = (p->mhs->af == AF_INET6 ? sizeof(struct ipv6hdr) :
						    sizeof(struct iphdr)) +
			  sizeof(struct udphdr);
	struct mhs_question q;

	if (p->transport == IPPROTO_UDP && mhs_packet_is_quic(p->dport))
		p->facts = p->len >= at + sizeof(struct mhs_quic) ?
			   mhs_quic_facts(p->ip + at, p->len - at) :
			   MHS_PKT_CONNLESS;
	mhs_packet_question(&q, p->mhs, p->saddr, p->sport, p->transport,
			    p->dport, p->facts);
	if (p->transport == IPPROTO_UDP && rcu_access_pointer(p->mhs->ids)) {
		p->server = mhs_packet_by_id(&q, p->ip + at,
					     min_t(u32, p->len,
						   MHS_LANE_HEADER_BYTES) - at);
		p->verdict = mhs_verdict(MHS_FORWARD, MHS_CNT_BY_ID, 0);
		if (p->server)
			return MHS_LANE_NO_REASON;
	}
	if (mhs_decide_looks(q.w, q.facts) && api_has_entry(p))
		return MHS_LANE_ENTRY;
	p->verdict = mhs_packet_decide(&q);
	if (q.facts & MHS_PKT_NO_ID)
		p->verdict |= MHS_NO_ID;
	p->server = q.server;
	if (mhs_verdict_act(p->verdict) != MHS_FORWARD ||
	    p->verdict & MHS_CUTS)	/* only the hook cuts slots */
		return MHS_LANE_DECISION;
	return MHS_LANE_NO_REASON;
}

static int api_load(void)
{
	const struct mhs_lane_module *lane;

	/* Frames look for what the init of each namespace makes */
	if (!api_ready || api_ready())
		return -EAGAIN;
	lane = symbol_request(ip_vs_mhs_lane);
	if (!lane) {
		pr_err("no lane: the module ip_vs_mhs_lane is not installed for this kernel\n");
		return -EOPNOTSUPP;
	}
	if (lane->structs != MHS_STRUCTS) {
		symbol_put(ip_vs_mhs_lane);
		pr_err("no lane: the loaded ip_vs_mhs_lane is of another version than ip_vs_mhs: detach its programs, modprobe -r ip_vs_mhs_lane, and try again\n");
		return -ENOEXEC;
	}
	lane->attach(mhs_svc_net_id, api_decide);
	api_lane = lane;
	return 0;
}

/* Have the namespace its part of the lane */
static int api_open(struct mhs_net *mn)
{
	int err = 0;

	lockdep_assert_held(&api_lock);
	if (rcu_access_pointer(mn->lane_net))
		return 0;
	if (!api_lane)
		err = api_load();
	return err ? err : api_lane->net_init(mn);
}

/* Read or write net.ipv4.vs.mhs.lane */
int mhs_api_sysctl(MHS_CTL_TABLE *table, int write, void *buffer, size_t *lenp,
		   loff_t *ppos)
{
	struct mhs_net *mn = container_of(table->data, struct mhs_net, lane);
	unsigned int lane = READ_ONCE(mn->lane);
	struct ctl_table value = *table;
	int err;

	value.data = &lane;
	err = proc_douintvec_minmax(&value, write, buffer, lenp, ppos);
	if (err || !write)
		return err;
	mutex_lock(&api_lock);
	err = lane ? api_open(mn) : 0;
	if (!err)
		WRITE_ONCE(mn->lane, lane);
	mutex_unlock(&api_lock);
	mhs_lane_changed(&mn->generation);
	return err;
}

/* Read or write net.ipv4.vs.mhs.ingress.  Takes RTNL. */
int mhs_api_ingress(MHS_CTL_TABLE *table, int write, void *buffer, size_t *lenp,
		    loff_t *ppos)
{
	struct mhs_net *mn = table->data;
	struct mhs_lane_net *lane_net;
	char text[512] = "";
	int err;

	if (!*lenp)
		return 0;
	mutex_lock(&api_lock);
	lane_net = rcu_dereference_protected(mn->lane_net,
					     lockdep_is_held(&api_lock));
	if (lane_net)
		api_lane->devices(lane_net, text, sizeof(text));
	err = mhs_list_line(text, sizeof(text), write, buffer, lenp, ppos);
	if (!err && write && *text)
		err = api_open(mn);
	lane_net = rcu_dereference_protected(mn->lane_net,
					     lockdep_is_held(&api_lock));
	if (!err && write && lane_net)
		err = api_lane->set_devices(lane_net, text);
	mutex_unlock(&api_lock);
	return err;
}

/* /proc/net/ip_vs_mhs_lane: what became of the frames that a lane saw */
int mhs_api_show(struct seq_file *seq, void *v)
{
	struct mhs_net *mn = mhs_net(seq_file_single_net(seq));
	unsigned long n[MHS_LANE_MAX] = {};
	const struct mhs_lane_net *lane_net;
	const struct mhs *mhs;
	int cpu, i;

	BUILD_BUG_ON(ARRAY_SIZE(api_names) != MHS_LANE_MAX);

	mutex_lock(&mn->lock);
	n[MHS_LANE_NO_REASON] = mn->lane_gone;
	list_for_each_entry(mhs, &mn->list, net_list)
		n[MHS_LANE_NO_REASON] += mhs_svc_counted(mhs, MHS_LANE_COUNTS);
	mutex_unlock(&mn->lock);
	rcu_read_lock();
	lane_net = rcu_dereference(mn->lane_net);
	for_each_possible_cpu(cpu)
		for (i = 1; lane_net && i < MHS_LANE_MAX; i++)
			n[i] += READ_ONCE(per_cpu_ptr(lane_net->stats, cpu)[i]);
	rcu_read_unlock();
	for (i = 0; i < MHS_LANE_MAX; i++)
		seq_printf(seq, "%s %lu\n", api_names[i], n[i]);
	return 0;
}

/* A namespace ends.  Its sysctls and its file in /proc are gone */
void mhs_api_net_exit(struct mhs_net *mn)
{
	if (rcu_access_pointer(mn->lane_net))
		api_lane->net_exit(mn);
}

/* From now on a lane may begin, if @ready(): 0 when each namespace has its struct
 * mhs_net
 */
void mhs_api_init(int (*ready)(void))
{
	mutex_lock(&api_lock);
	api_ready = ready;
	mutex_unlock(&api_lock);
}

/* This module goes: from now on all frames go up */
void mhs_api_close(void)
{
	mutex_lock(&api_lock);
	api_ready = NULL;
	if (api_lane)
		api_lane->attach(0, NULL);
	mutex_unlock(&api_lock);
}

/* No namespace has a part of the lane any more */
void mhs_api_put(void)
{
	if (api_lane)
		symbol_put(ip_vs_mhs_lane);
}
