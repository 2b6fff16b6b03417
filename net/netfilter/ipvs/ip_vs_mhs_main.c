// SPDX-License-Identifier: GPL-2.0-only
/* IPVS stateless Maglev scheduler: parameters, sysctls, namespaces, module.
 *
 * mhs balances like mh, by consistent hashing, but keeps no connection entry
 * for a flow whose server does not change.  It has two lookup tables, old and
 * candidate.  A slot whose servers agree is stable: its packets are forwarded
 * by the table alone.  When the set of servers changes, the slots that move
 * are unstable for a bounded time: new flows go to the candidate and get an
 * entry, flows from before stay with the old server.  State is bounded by
 * change, not by load.
 *
 * Start with ip_vs_mhs.h: files, locks and lifetimes.  The packet path is
 * ip_vs_mhs_pkt.c, the control path ip_vs_mhs_ctl.c.
 */
#define pr_fmt(fmt) "IPVS: mhs: " fmt

#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "ip_vs_mhs.h"

#define MHS_HOLD_MS		(60 * MSEC_PER_SEC)
#define MHS_DAY_MS		(24 * 60 * 60 * MSEC_PER_SEC)

/* entries of some 300 bytes: 80 MB at most, for one service */
#define MHS_MAX_ENTRIES		262144

/* UDP comes from anywhere: a quarter of that */
#define MHS_MAX_QUIC_ENTRIES	65536

unsigned int ip_vs_mhs_size __read_mostly = 65521;
module_param_named(table_size, ip_vs_mhs_size, uint, 0444);
MODULE_PARM_DESC(table_size, "slots of a lookup table: 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521 (default) or 131071; the same on every director");

static char *hash_key = "";
module_param(hash_key, charp, 0400);
MODULE_PARM_DESC(hash_key, "key of the hash, 32 hexadecimal digits; the same on every director (default: a constant)");

unsigned int ip_vs_mhs_mark_ignore __read_mostly;
module_param_named(mark_ignore, ip_vs_mhs_mark_ignore, uint, 0644);
MODULE_PARM_DESC(mark_ignore, "bits of the packet mark that never mean a service by firewall mark (default 0)");

unsigned short ip_vs_mhs_quic_ports[MHS_QUIC_PORTS] __read_mostly = { 443 };
unsigned int ip_vs_mhs_quic_n __read_mostly = 1;
module_param_array_named(quic_ports, ip_vs_mhs_quic_ports, ushort,
			 &ip_vs_mhs_quic_n, 0444);
MODULE_PARM_DESC(quic_ports, "UDP ports that are QUIC, at most 16 (default 443)");

/* IPVS has fewer schedulers of its own */
#define MHS_NAMES		16

static char *mhs_names[MHS_NAMES];
static unsigned int mhs_names_n;
module_param_array_named(names, mhs_names, charp, &mhs_names_n, 0444);
MODULE_PARM_DESC(names, "schedulers to stand in for, for front ends that do not know mhs, which it is always: names=mhs,mh (default mhs)");

/* Digits of pi: no secret, but nothing that 10.0.0.1 could meet by chance */
static siphash_key_t mhs_key __read_mostly = {
	{ 0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL },
};

static unsigned int ip_vs_mhs_net_id __read_mostly;

/**
 * ip_vs_mhs_net() - our part of a network namespace
 * @net: the namespace
 *
 * Context: any.
 * Return: never NULL; valid until all exits of the namespace have run.  Only
 * after ip_vs_mhs_ready().
 */
struct ip_vs_mhs_net *ip_vs_mhs_net(struct net *net)
{
	return net_generic(net, ip_vs_mhs_net_id);
}

/**
 * ip_vs_mhs_ready() - may there be services?
 *
 * Context: any.
 * Return: 0 when ip_vs_mhs_net() works, -EAGAIN before, or why it never will.
 */
int ip_vs_mhs_ready(void)
{
	return ip_vs_mhs_net_registered();
}

/**
 * ip_vs_mhs_hash_server() - keyed hash of a server
 * @af: address family
 * @addr: its address
 * @port: its port
 *
 * Over the fields, not over a sum of them, and in one byte order: directors
 * of any kind agree.
 *
 * Context: any.
 * Return: the hash.
 */
u64 ip_vs_mhs_hash_server(u16 af, const union nf_inet_addr *addr, __be16 port)
{
	u64 hi, lo;

	if (af != AF_INET6)
		return siphash_1u64((u64)ntohl(addr->ip) << 16 | ntohs(port),
				    &mhs_key);
	hi = (u64)ntohl(addr->ip6[0]) << 32 | ntohl(addr->ip6[1]);
	lo = (u64)ntohl(addr->ip6[2]) << 32 | ntohl(addr->ip6[3]);
	return siphash_3u64(hi, lo, ntohs(port), &mhs_key);
}

struct mhs_sip {
	u64	a, b, c, d;
};

static __always_inline void mhs_sip_word(struct mhs_sip *v, u64 word)
{
	v->d ^= word;
	SIPHASH_PERMUTATION(v->a, v->b, v->c, v->d);
	v->a ^= word;
}

/**
 * ip_vs_mhs_hash_client() - keyed hash of a client
 * @af: address family
 * @addr: its address
 * @port: its port, 0 to hash the address alone
 *
 * SipHash-1-3, for every packet: half of the rounds of SipHash-2-4, as
 * hsiphash() does it on 64 bits where a hash is the place in a table and no
 * secret.  The message is the address and the port, in the last word below its
 * length in bytes: 6 or 18.  Directors of one fleet must agree on it, and no
 * fingerprint tells whether they do: it is not to change.
 *
 * Context: any.
 * Return: the hash.
 */
u64 ip_vs_mhs_hash_client(u16 af, const union nf_inet_addr *addr, __be16 port)
{
	struct mhs_sip v = {
		mhs_key.key[0] ^ SIPHASH_CONST_0,
		mhs_key.key[1] ^ SIPHASH_CONST_1,
		mhs_key.key[0] ^ SIPHASH_CONST_2,
		mhs_key.key[1] ^ SIPHASH_CONST_3,
	};

	if (af == AF_INET6) {
		mhs_sip_word(&v, (u64)ntohl(addr->ip6[0]) << 32 |
				 ntohl(addr->ip6[1]));
		mhs_sip_word(&v, (u64)ntohl(addr->ip6[2]) << 32 |
				 ntohl(addr->ip6[3]));
		mhs_sip_word(&v, 18ULL << 56 | ntohs(port));
	} else {
		mhs_sip_word(&v, 6ULL << 56 | (u64)ntohl(addr->ip) << 16 |
				 ntohs(port));
	}
	v.c ^= 0xff;
	SIPHASH_PERMUTATION(v.a, v.b, v.c, v.d);
	SIPHASH_PERMUTATION(v.a, v.b, v.c, v.d);
	SIPHASH_PERMUTATION(v.a, v.b, v.c, v.d);
	return v.a ^ v.b ^ v.c ^ v.d;
}

static int mhs_parse_key(void)
{
	u8 raw[16];
	int i;

	if (!*hash_key)
		return 0;
	if (strlen(hash_key) != 2 * sizeof(raw) ||
	    hex2bin(raw, hash_key, sizeof(raw))) {
		pr_err("hash_key: want 32 hexadecimal digits (0-9, a-f), or nothing for the default key\n");
		return -EINVAL;
	}
	mhs_key = (siphash_key_t){};
	for (i = 0; i < sizeof(raw); i++)
		mhs_key.key[i / 8] |= (u64)raw[i] << 8 * (i % 8);
	memzero_explicit(raw, sizeof(raw));
	return 0;
}

/* Sysctls, net.ipv4.vs.mhs.* of each namespace */

static const unsigned int mhs_day_ms = MHS_DAY_MS;
static const unsigned int mhs_int_max = INT_MAX;

static const struct ctl_table mhs_sysctls[] = {
	{
		.procname	= "hold_ms",
		.maxlen		= sizeof(unsigned int),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= (void *)&mhs_day_ms,
	}, {
		.procname	= "pin_ms",
		.maxlen		= sizeof(unsigned int),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= (void *)&mhs_day_ms,
	}, {
		.procname	= "max_entries",
		.maxlen		= sizeof(unsigned int),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= (void *)&mhs_int_max,
	}, {
		.procname	= "max_quic_entries",
		.maxlen		= sizeof(unsigned int),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= (void *)&mhs_int_max,
	}, {
		.procname	= "stateless",
		.maxlen		= sizeof(unsigned int),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE,
	}, {
		.procname	= "masq_stateless",
		.maxlen		= sizeof(unsigned int),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE,
	},
};

static int mhs_sysctl_init(struct ip_vs_mhs_net *mn)
{
	unsigned int i, n = ARRAY_SIZE(mhs_sysctls);

	if (!IS_ENABLED(CONFIG_SYSCTL))
		return 0;
	/* one more, zero: the end marker of kernels that need one */
	mn->table = kcalloc(n + 1, sizeof(*mn->table), GFP_KERNEL);
	if (!mn->table)
		return -ENOMEM;
	memcpy(mn->table, mhs_sysctls, sizeof(mhs_sysctls));
	mn->table[0].data = &mn->hold_ms;
	mn->table[1].data = &mn->pin_ms;
	mn->table[2].data = &mn->max_entries;
	mn->table[3].data = &mn->max_quic_entries;
	mn->table[4].data = &mn->stateless;
	mn->table[5].data = &mn->masq_stateless;
	/* Short times cost all namespaces: an unprivileged user has none, but
	 * may set the last two
	 */
	for (i = 0; i < n - 2 && mn->net->user_ns != &init_user_ns; i++)
		mn->table[i].mode = 0444;
	mn->header = ip_vs_mhs_register_sysctl(mn->net, "net/ipv4/vs/mhs",
					       mn->table, n);
	if (mn->header)
		return 0;
	kfree(mn->table);
	return -ENOMEM;
}

static void mhs_sysctl_exit(struct ip_vs_mhs_net *mn)
{
	if (mn->header)
		unregister_net_sysctl_table(mn->header);
	kfree(mn->table);
}

static int __net_init mhs_net_init(struct net *net)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(net);
	int err;

	mn->net = net;
	mn->hold_ms = MHS_HOLD_MS;
	mn->max_entries = MHS_MAX_ENTRIES;
	mn->max_quic_entries = MHS_MAX_QUIC_ENTRIES;
	mn->stateless = 1;
	mutex_init(&mn->forward_lock);
	mutex_init(&mn->lock);
	INIT_LIST_HEAD(&mn->list);
	INIT_DELAYED_WORK(&mn->work, ip_vs_mhs_net_work);
	err = mhs_sysctl_init(mn);
	if (err)
		return err;
	/* Reading it walks all slots: not for everybody */
	if (proc_create_net("ip_vs_mhs", 0440, net->proc_net,
			    &ip_vs_mhs_seq_ops,
			    sizeof(struct seq_net_private)) ||
	    !IS_ENABLED(CONFIG_PROC_FS))
		return 0;
	mhs_sysctl_exit(mn);
	return -ENOMEM;
}

/* Runs before the core deletes the namespace's services: done_service()
 * detaches them from *mn later.
 */
static void __net_exit mhs_net_exit(struct net *net)
{
	struct ip_vs_mhs_net *mn = ip_vs_mhs_net(net);

	remove_proc_entry("ip_vs_mhs", net->proc_net);
	mhs_sysctl_exit(mn);
	cancel_delayed_work_sync(&mn->work);
}

static struct pernet_operations mhs_net_ops = {
	.init	= mhs_net_init,
	.exit	= mhs_net_exit,
	.id	= &ip_vs_mhs_net_id,
	.size	= sizeof(struct ip_vs_mhs_net),
};

/* Names.  The core finds a scheduler by its name and links it into a list, so
 * each name has a struct of its own.
 */
static struct ip_vs_scheduler mhs_standins[MHS_NAMES];
static unsigned int mhs_standins_n;

/* "none" is what the core calls a service without a scheduler */
static int mhs_check_names(void)
{
	unsigned int i;

	for (i = 0; i < mhs_names_n; i++) {
		const char *name = mhs_names[i];
		size_t len = strlen(name);

		if (!len || len >= IP_VS_SCHEDNAME_MAXLEN ||
		    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != len ||
		    !strcmp(name, "none")) {
			pr_err("names: '%s' is no name of a scheduler: want 1 to %d of a-z, 0-9, _ and -, as in names=mhs,mh\n",
			       name, IP_VS_SCHEDNAME_MAXLEN - 1);
			return -EINVAL;
		}
	}
	return 0;
}

static bool mhs_named(const char *name)
{
	unsigned int i;

	if (!strcmp(name, ip_vs_mhs_scheduler.name))
		return true;
	for (i = 0; i < mhs_standins_n; i++)
		if (!strcmp(name, mhs_standins[i].name))
			return true;
	return false;
}

/* A name that is taken is no reason to fail: from the first registration on
 * somebody may be making a service of ours, for which nobody waits when the
 * start of a module fails.
 */
static void mhs_stand_in(char *name)
{
	struct ip_vs_scheduler *sched = &mhs_standins[mhs_standins_n];

	if (mhs_named(name))
		return;
	sched->name = name;
	INIT_LIST_HEAD(&sched->n_list);
	if (register_ip_vs_scheduler(sched)) {
		pr_warn("names: the kernel has a scheduler %s already, which stays: load ip_vs_mhs before ip_vs_%s\n",
			name, name);
		return;
	}
	mhs_standins_n++;
	pr_info("new services with the scheduler %s are mhs\n", name);
}

static int mhs_register(void)
{
	unsigned int i;
	int err;

	/* copied before it is in anybody's list */
	for (i = 0; i < mhs_names_n; i++)
		mhs_standins[i] = ip_vs_mhs_scheduler;
	err = register_ip_vs_scheduler(&ip_vs_mhs_scheduler);
	if (err)
		return err;
	/* no more failures */
	for (i = 0; i < mhs_names_n; i++)
		mhs_stand_in(mhs_names[i]);
	return 0;
}

static void mhs_unregister(void)
{
	while (mhs_standins_n)
		unregister_ip_vs_scheduler(&mhs_standins[--mhs_standins_n]);
	unregister_ip_vs_scheduler(&ip_vs_mhs_scheduler);
}

static int __init ip_vs_mhs_init(void)
{
	int err;

	if (!ip_vs_mhs_size_valid(ip_vs_mhs_size)) {
		pr_err("table_size=%u: want one of 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071\n",
		       ip_vs_mhs_size);
		return -EINVAL;
	}
	err = mhs_parse_key();
	if (err)
		return err;
	err = mhs_check_names();
	if (err)
		return err;
	err = ip_vs_mhs_scratch_init();
	if (err)
		return err;
	err = ip_vs_mhs_pair_init();
	if (err)
		goto exit_scratch;
	err = ip_vs_mhs_register_net(&mhs_net_ops);
	if (err)
		goto exit_pair;
	err = mhs_register();
	if (err)
		goto unregister_pernet;
	pr_info("stateless Maglev scheduler, %u slots\n", ip_vs_mhs_size);
	return 0;

unregister_pernet:
	ip_vs_mhs_unregister_net(&mhs_net_ops);
exit_pair:
	ip_vs_mhs_pair_exit();
exit_scratch:
	ip_vs_mhs_scratch_exit();
	return err;
}

static void __exit ip_vs_mhs_exit(void)
{
	mhs_unregister();
	/* Services hold the module, so none is left; but a packet may still be
	 * in a hook that was just removed, with its namespace's part of ours,
	 * and the RCU callbacks of services, servers and carriers are our code.
	 */
	synchronize_rcu();
	ip_vs_mhs_unregister_net(&mhs_net_ops);
	rcu_barrier();
	ip_vs_mhs_pair_exit();
	ip_vs_mhs_scratch_exit();
}

module_init(ip_vs_mhs_init);
module_exit(ip_vs_mhs_exit);
MODULE_DESCRIPTION("IPVS stateless Maglev scheduler");
MODULE_LICENSE("GPL");
