/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: prototypes of the control path.  No file of
 * the packet path includes this header.
 *
 *	ip_vs_mhs_main.c	module, parameters, names
 *	ip_vs_mhs_ctl.c		services, sysctls; namespaces: mhs_net_*
 *	ip_vs_mhs_proc.c	/proc/net/ip_vs_mhs
 *	ip_vs_mhs_api.c		for the lane, a module of its own
 *	ip_vs_mhs_change.c	a change of servers: mhs_work_*, mhs_settle_*
 *	ip_vs_mhs_server.c	real servers and their carriers
 *	ip_vs_mhs_rebuild.c	rebuilds and walks of all slots; mhs_time_*
 *	ip_vs_mhs_list.c	sysctls that are text: lists of services
 *
 * A file calls only files below it in this list and files of the packet path.
 */
#ifndef _IP_VS_MHS_CTL_H
#define _IP_VS_MHS_CTL_H

#include "ip_vs_mhs.h"

/* ctl */
extern const struct ip_vs_scheduler mhs_ctl_scheduler;
int mhs_net_register(void);
void mhs_net_unregister(void);
int mhs_net_ready(void);

/* proc */
extern const struct seq_operations mhs_proc_ops;
extern const struct seq_operations mhs_proc_lookup_ops;
extern const unsigned int mhs_proc_lookup_size;
int mhs_proc_lookup_write(struct file *file, char *text, size_t size);

/* api */
int mhs_api_sysctl(MHS_CTL_TABLE *table, int write, void *buffer, size_t *lenp,
		   loff_t *ppos);
int mhs_api_ingress(MHS_CTL_TABLE *table, int write, void *buffer, size_t *lenp,
		    loff_t *ppos);
int mhs_api_show(struct seq_file *seq, void *v);
void mhs_api_net_exit(struct mhs_net *mn);
void mhs_api_init(int (*ready)(void));
void mhs_api_close(void);
void mhs_api_put(void);

/* change */
int mhs_work_add_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest);
int mhs_work_upd_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest);
int mhs_work_del_dest(struct ip_vs_service *svc, struct ip_vs_dest *dest);
void mhs_work_refresh(struct mhs *mhs);
void mhs_work_note(struct mhs *mhs);
void mhs_work_build(struct mhs *mhs);
void mhs_work_poll_stateful(struct mhs *mhs);
u32 mhs_work_entries(const struct mhs *mhs);
void mhs_work(struct work_struct *work);
void mhs_settle_start(struct mhs *mhs, bool whole);

/* server */
bool mhs_server_drains(const struct mhs_server *s);
bool mhs_server_refresh(struct mhs_server *s);
struct mhs_server *mhs_server_find(const struct mhs *mhs,
				   const struct ip_vs_dest *dest);
int mhs_server_add(struct mhs *mhs, struct ip_vs_dest *dest);
void mhs_server_gone(struct mhs_server *s);
void mhs_server_release_gone(struct mhs *mhs, bool all);
bool mhs_server_dies(struct mhs_server *s);
bool mhs_server_reconcile(struct mhs *mhs);

/* rebuild */
extern unsigned int mhs_rebuild_size;
extern struct workqueue_struct *mhs_rebuild_wq;
int mhs_rebuild_init(void);
void mhs_rebuild_exit(void);
void mhs_rebuild_walk(struct mhs *mhs, const u16 *target, u32 ticks);
void mhs_rebuild_table(struct mhs *mhs);
void mhs_rebuild_track_all(struct mhs *mhs);

/* time */
unsigned int mhs_time_hold_ms(const struct mhs *mhs);
unsigned int mhs_time_pin_ms(const struct mhs *mhs);
unsigned long mhs_time_period(struct mhs *mhs, u32 clock);
unsigned int mhs_time_merge_ms(struct mhs *mhs, u32 stage, unsigned long now);

/* list */
int mhs_list_endpoint(struct net *net, const char *text, const char *port,
		      union nf_inet_addr *addr, __be16 *to);
int mhs_list_line(char *text, size_t size, int write, void *buffer,
		  size_t *lenp, loff_t *ppos);
int mhs_list_sysctl(MHS_CTL_TABLE *table, int write, void *buffer,
		    size_t *lenp, loff_t *ppos);
void mhs_list_attach(struct mhs *mhs);
void mhs_list_check(struct mhs_server *s);
void mhs_list_exit(struct mhs_net *mn);

/* Jiffies from @now to @then, 0 when @then is past */
static inline unsigned long mhs_time_between(unsigned long now,
					     unsigned long then)
{
	return max((long)(then - now), 0L);
}

/* Take the first index that is free, or -ENOSPC, -ENOMEM */
static inline int mhs_server_index(struct mhs *mhs)
{
	return ida_alloc_range(&mhs->indexes, 1, MHS_IDX_MAX, GFP_KERNEL);
}

/* Jiffies that must pass between two rebuilds: four times the last one's */
static inline unsigned long mhs_build_pause(const struct mhs *mhs)
{
	return usecs_to_jiffies(mhs->build_us * 4);
}

#endif /* _IP_VS_MHS_CTL_H */
