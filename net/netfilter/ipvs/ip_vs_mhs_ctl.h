/* SPDX-License-Identifier: GPL-2.0-only */
/* IPVS stateless Maglev scheduler: prototypes of the control path.  No file of
 * the packet path includes this header.
 *
 *	ip_vs_mhs_main.c	module, parameters, names
 *	ip_vs_mhs_ctl.c		callbacks of the core
 *	ip_vs_mhs_net.c		namespaces, sysctls
 *	ip_vs_mhs_proc.c	/proc/net/ip_vs_mhs
 *	ip_vs_mhs_work.c	changes, clocks, the work of a service
 *	ip_vs_mhs_settle.c	settling
 *	ip_vs_mhs_server.c	real servers and their carriers
 *	ip_vs_mhs_slots.c	rebuilds and walks of the slots
 *	ip_vs_mhs_time.c	hold time, pin time, life of entries
 *
 * A file calls only files below it in this list and files of the packet path.
 */
#ifndef _IP_VS_MHS_CTL_H
#define _IP_VS_MHS_CTL_H

#include "ip_vs_mhs.h"

/* ctl */
extern struct ip_vs_scheduler ip_vs_mhs_ctl_scheduler;

/* net */
int ip_vs_mhs_net_register(void);
void ip_vs_mhs_net_unregister(void);
int ip_vs_mhs_net_ready(void);
int ip_vs_mhs_net_attach(struct ip_vs_mhs *mhs);
void ip_vs_mhs_net_detach(struct ip_vs_mhs *mhs);

/* proc */
extern const struct seq_operations ip_vs_mhs_proc_ops;
extern const struct seq_operations ip_vs_mhs_proc_lookup_ops;
extern const unsigned int ip_vs_mhs_proc_lookup_size;

int ip_vs_mhs_proc_lookup_write(struct file *file, char *text, size_t size);

/* work */
void ip_vs_mhs_work_changed(struct ip_vs_mhs *mhs);
void ip_vs_mhs_work_build(struct ip_vs_mhs *mhs);
void ip_vs_mhs_work_poll_stateful(struct ip_vs_mhs *mhs);
u32 ip_vs_mhs_work_recount(struct ip_vs_mhs *mhs);
void ip_vs_mhs_work(struct work_struct *work);

/* settle */
void ip_vs_mhs_settle_on(struct ip_vs_mhs *mhs, unsigned long *delay);
void ip_vs_mhs_settle_flags(struct ip_vs_mhs *mhs);
void ip_vs_mhs_settle_start(struct ip_vs_mhs *mhs, bool whole);
void ip_vs_mhs_settle_before_change(struct ip_vs_mhs *mhs, bool leaves);
void ip_vs_mhs_settle_note_gap(struct ip_vs_mhs *mhs);

/* server */
bool ip_vs_mhs_server_leaves(const struct ip_vs_mhs_server *s);
bool ip_vs_mhs_server_refresh(struct ip_vs_mhs_server *s);
struct ip_vs_mhs_server *ip_vs_mhs_server_find(const struct ip_vs_mhs *mhs,
					       const struct ip_vs_dest *dest);
int ip_vs_mhs_server_add(struct ip_vs_mhs *mhs, struct ip_vs_dest *dest);
void ip_vs_mhs_server_gone(struct ip_vs_mhs_server *s);
void ip_vs_mhs_server_release_gone(struct ip_vs_mhs *mhs, bool all);
bool ip_vs_mhs_server_reconcile(struct ip_vs_mhs *mhs);

/* slots */
extern unsigned int ip_vs_mhs_slots_size;
extern struct workqueue_struct *ip_vs_mhs_slots_wq;

int ip_vs_mhs_slots_init(void);
void ip_vs_mhs_slots_exit(void);
void ip_vs_mhs_slots_walk(struct ip_vs_mhs *mhs, u32 ticks);
void ip_vs_mhs_slots_build(struct ip_vs_mhs *mhs);
void ip_vs_mhs_slots_track_all(struct ip_vs_mhs *mhs);
void ip_vs_mhs_slots_track_older(struct ip_vs_mhs *mhs);

/* time */
unsigned int ip_vs_mhs_time_hold_ms(const struct ip_vs_mhs *mhs);
unsigned int ip_vs_mhs_time_pin_ms(const struct ip_vs_mhs *mhs);
unsigned long ip_vs_mhs_time_period(struct ip_vs_mhs *mhs, u32 clock);
unsigned int ip_vs_mhs_time_merge_ms(struct ip_vs_mhs *mhs, u32 stage,
				     unsigned long now);
unsigned int ip_vs_mhs_time_stateful_ms(const struct ip_vs_mhs *mhs,
					unsigned long now);

/* Jiffies from @now to @then, 0 when @then is past */
static inline unsigned long ip_vs_mhs_time_between(unsigned long now,
						   unsigned long then)
{
	return max((long)(then - now), 0L);
}

/* Has the time @then come?  If not, it may be the next thing to do: *delay */
static inline bool ip_vs_mhs_time_due(unsigned long then, unsigned long *delay)
{
	unsigned long left = ip_vs_mhs_time_between(jiffies, then);

	*delay = min(*delay, left);
	return !left;
}

/* Run the work in @delay jiffies, whenever it would have run */
static inline void ip_vs_mhs_queue(struct ip_vs_mhs *mhs, unsigned long delay)
{
	mod_delayed_work(ip_vs_mhs_slots_wq, &mhs->work, delay);
}

/* Jiffies that must pass between two rebuilds: four times the last one's */
static inline unsigned long ip_vs_mhs_build_rest(const struct ip_vs_mhs *mhs)
{
	return usecs_to_jiffies(mhs->build_us * 4);
}

#endif /* _IP_VS_MHS_CTL_H */
