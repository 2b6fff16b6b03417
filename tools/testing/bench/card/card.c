// SPDX-License-Identifier: GPL-2.0-only
/* card: network cards without hardware, to count what a packet costs the host.
 *
 * A card does with a frame what the driver of a real one does: a page of a
 * page_pool, the XDP program, for what that passes an skb around the page and
 * GRO; XDP_TX, frames redirected to the card and skbs to be sent.  Instead of
 * the wire a card has frames that user space wrote before, and NAPI copies them
 * into the pages.  Nothing is ever on the wire: what is sent is counted, kept
 * to be looked at if somebody wants to, and freed at once.  What a real driver
 * does more, descriptors and completions, is the same for all frames.
 *
 * /proc/card/NAME/ (NAME is the one that the card was born with):
 *
 *   frames		write(): one more frame to be received; opening it with
 *			O_TRUNC takes away those that were there
 *   run		write N: receive the next N frames, round and round, in
 *			bursts of 64.  When write() returns, all have gone
 *			their way through this card.  read: "N NS", nanoseconds
 *			that the last N took
 *   counts		what became of frames: lines of NAME NUMBER
 *   keep		write N: from now on the last N frames sent are kept, of
 *			each way; 0 at first
 *   sent/WAY		read(): the oldest frame kept that was sent this way:
 *			xdp_tx, xdp_xmit (redirected to this card), start_xmit
 *			(by the stack).  End of file: there is none
 *
 * A test device: whoever loads it is root and alone.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bpf_trace.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/xdp.h>
#ifdef CARD_HAVE_PAGE_POOL_HELPERS
#include <net/page_pool/helpers.h>
#else
#include <net/page_pool.h>
#endif

#define BURST		64		/* frames between two looks at the clock */
#define COPIED_AT_ONCE	64		/* bytes: moves, no loop */
#define ROOM		(PAGE_SIZE - XDP_PACKET_HEADROOM - \
			 SKB_DATA_ALIGN(sizeof(struct skb_shared_info)))
#define MAX_CARDS	8

static unsigned int cards = 2;
module_param(cards, uint, 0444);
MODULE_PARM_DESC(cards, "How many there are, 1 to 8 (2)");

enum card_count {
	RECEIVED,
	/* what the program said, in the order of enum xdp_action */
	XDP_VERDICTS,
	NO_REDIRECT = XDP_VERDICTS + XDP_REDIRECT + 1,
	NO_PAGE,
	WAYS,
	SENT_XDP_TX = WAYS,
	SENT_XDP_XMIT,
	SENT_START_XMIT,
	COUNTS,
};

static const char * const card_count_names[COUNTS] = {
	[RECEIVED] = "received",
	[XDP_VERDICTS + XDP_ABORTED] = "xdp_aborted",
	[XDP_VERDICTS + XDP_DROP] = "xdp_drop",
	[XDP_VERDICTS + XDP_PASS] = "xdp_pass",
	[XDP_VERDICTS + XDP_TX] = "xdp_tx",
	[XDP_VERDICTS + XDP_REDIRECT] = "xdp_redirect",
	[NO_REDIRECT] = "redirect_failed",
	[NO_PAGE] = "no_page",
	[SENT_XDP_TX] = "sent_xdp_tx",
	[SENT_XDP_XMIT] = "sent_xdp_xmit",
	[SENT_START_XMIT] = "sent_start_xmit",
};

/* A frame to be received; its room is whole blocks of COPIED_AT_ONCE */
struct card_frame {
	struct list_head	list;
	unsigned int		length;
	u8			data[];
};

struct card {
	struct net_device	*dev;
	struct napi_struct	napi;
	struct page_pool	*pool;
	struct xdp_rxq_info	rxq;
	struct bpf_prog __rcu	*prog;

	/* of the poll while a burst runs */
	struct card_frame	*next;
	unsigned int		left;		/* of the burst */
	struct completion	over;

	struct mutex		lock;		/* one burst at a time; frames */
	struct list_head	frames;
	u64			ran, ns;	/* the last run */

	atomic64_t		counts[COUNTS];
	u32			keep;
	struct sk_buff_head	kept[COUNTS - WAYS];
	struct proc_dir_entry	*dir;
};

static struct card *card_all[MAX_CARDS];
static struct proc_dir_entry *card_dir;

static void card_count(struct card *card, enum card_count what, u64 number)
{
	if (number)
		atomic64_add(number, &card->counts[what]);
}

static void card_keep(struct card *card, enum card_count way, const void *data,
		      unsigned int length)
{
	struct sk_buff_head *kept = &card->kept[way - WAYS];
	struct sk_buff *skb;

	if (likely(!READ_ONCE(card->keep)))
		return;
	skb = alloc_skb(length, GFP_ATOMIC);
	if (!skb)
		return;
	skb_put_data(skb, data, length);
	skb_queue_tail(kept, skb);
	if (skb_queue_len_lockless(kept) > READ_ONCE(card->keep))
		kfree_skb(skb_dequeue(kept));
}

/* Sending */

static netdev_tx_t card_start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct card *card = netdev_priv(dev);

	card_count(card, SENT_START_XMIT, 1);
	/* linear, as the device has no other features */
	card_keep(card, SENT_START_XMIT, skb->data, skb->len);
	napi_consume_skb(skb, BURST);
	return NETDEV_TX_OK;
}

static int card_xdp_xmit(struct net_device *dev, int n,
			 struct xdp_frame **frames, u32 flags)
{
	struct card *card = netdev_priv(dev);
	struct xdp_frame_bulk bulk;
	int i;

	if (unlikely(flags & ~XDP_XMIT_FLAGS_MASK))
		return -EINVAL;
	if (unlikely(!netif_running(dev)))
		return -ENETDOWN;
	card_count(card, SENT_XDP_XMIT, n);
	xdp_frame_bulk_init(&bulk);
	rcu_read_lock();	/* xdp_return_frame_bulk() wants it */
	for (i = 0; i < n; i++) {
		card_keep(card, SENT_XDP_XMIT, frames[i]->data, frames[i]->len);
		xdp_return_frame_bulk(frames[i], &bulk);
	}
	xdp_flush_frame_bulk(&bulk);
	rcu_read_unlock();
	return n;
}

/* False: the page is still the caller's */
static bool card_xdp_tx(struct card *card, struct xdp_buff *xdp)
{
	struct xdp_frame *frame = xdp_convert_buff_to_frame(xdp);

	if (unlikely(!frame))
		return false;
	card_count(card, SENT_XDP_TX, 1);
	card_keep(card, SENT_XDP_TX, frame->data, frame->len);
	xdp_return_frame_rx_napi(frame);
	return true;
}

/* Receiving */

static void card_to_stack(struct card *card, struct xdp_buff *xdp)
{
	struct sk_buff *skb = napi_build_skb(xdp->data_hard_start, PAGE_SIZE);

	if (unlikely(!skb)) {
		page_pool_recycle_direct(card->pool, virt_to_page(xdp->data));
		return;
	}
	skb_reserve(skb, xdp->data - xdp->data_hard_start);
	__skb_put(skb, xdp->data_end - xdp->data);
	if (xdp->data != xdp->data_meta)
		skb_metadata_set(skb, xdp->data - xdp->data_meta);
	skb_mark_for_recycle(skb);
	skb_record_rx_queue(skb, 0);
	skb->protocol = eth_type_trans(skb, card->dev);
	if (card->dev->features & NETIF_F_RXCSUM)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	napi_gro_receive(&card->napi, skb);
}

/* What the program says of a frame, and the frame goes there */
static u32 card_receive(struct card *card, struct bpf_prog *prog,
			struct xdp_buff *xdp)
{
	u32 verdict = prog ? bpf_prog_run_xdp(prog, xdp) : XDP_PASS;

	switch (verdict) {
	case XDP_PASS:
		card_to_stack(card, xdp);
		return verdict;
	case XDP_TX:
		if (card_xdp_tx(card, xdp))
			return verdict;
		break;
	case XDP_REDIRECT:
		if (!xdp_do_redirect(card->dev, xdp, prog))
			return verdict;
		card_count(card, NO_REDIRECT, 1);
		break;
	default:
		bpf_warn_invalid_xdp_action(card->dev, prog, verdict);
		verdict = XDP_ABORTED;
		fallthrough;
	case XDP_ABORTED:
		trace_xdp_exception(card->dev, prog, verdict);
		break;
	case XDP_DROP:
		break;
	}
	page_pool_recycle_direct(card->pool, virt_to_page(xdp->data));
	return verdict;
}

/* The wire: cheap, and by the same number of instructions for each frame */
static void card_copy(u8 *to, const struct card_frame *frame)
{
	unsigned int at;

	for (at = 0; at < frame->length; at += COPIED_AT_ONCE)
		memcpy(to + at, frame->data + at, COPIED_AT_ONCE);
}

static int card_poll(struct napi_struct *napi, int budget)
{
	struct card *card = container_of(napi, struct card, napi);
	u64 verdicts[XDP_REDIRECT + 1] = {};
	struct bpf_prog *prog;
	struct xdp_buff xdp;
	struct page *page;
	int done, i;

	/* BH is off: that protects the program, too */
	prog = rcu_dereference_bh(card->prog);
	xdp_init_buff(&xdp, PAGE_SIZE, &card->rxq);
	for (done = 0; done < budget && card->left; done++, card->left--) {
		struct card_frame *frame = card->next;

		card->next = list_next_entry_circular(frame, &card->frames,
						      list);
		page = page_pool_dev_alloc_pages(card->pool);
		if (unlikely(!page)) {
			card_count(card, NO_PAGE, 1);
			continue;
		}
		xdp_prepare_buff(&xdp, page_address(page), XDP_PACKET_HEADROOM,
				 frame->length, true);
		card_copy(xdp.data, frame);
		verdicts[card_receive(card, prog, &xdp)]++;
	}
	card_count(card, RECEIVED, done);
	if (prog)
		for (i = 0; i < ARRAY_SIZE(verdicts); i++)
			card_count(card, XDP_VERDICTS + i, verdicts[i]);
	if (verdicts[XDP_REDIRECT])
		xdp_do_flush();
	if (done < budget && napi_complete_done(napi, done))
		complete(&card->over);
	return done;
}

/* The device */

static int card_open(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);
	struct page_pool_params params = {
		.pool_size = 4 * BURST,
		.nid = NUMA_NO_NODE,
#ifdef CARD_HAVE_PAGE_POOL_NAPI
		.napi = &card->napi,
#endif
	};
	int err;

	card->pool = page_pool_create(&params);
	if (IS_ERR(card->pool))
		return PTR_ERR(card->pool);
	err = xdp_rxq_info_reg(&card->rxq, dev, 0, card->napi.napi_id);
	if (err)
		goto err_pool;
	err = xdp_rxq_info_reg_mem_model(&card->rxq, MEM_TYPE_PAGE_POOL,
					 card->pool);
	if (err)
		goto err_rxq;
	napi_enable(&card->napi);
	netif_start_queue(dev);
	netif_carrier_on(dev);
	return 0;

err_rxq:
	xdp_rxq_info_unreg(&card->rxq);
err_pool:
	page_pool_destroy(card->pool);
	return err;
}

static int card_stop(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);

	/* napi_disable() would leave a burst half done */
	mutex_lock(&card->lock);
	netif_carrier_off(dev);
	netif_stop_queue(dev);
	napi_disable(&card->napi);
	mutex_unlock(&card->lock);
	xdp_rxq_info_unreg(&card->rxq);
	page_pool_destroy(card->pool);
	return 0;
}

static int card_bpf(struct net_device *dev, struct netdev_bpf *bpf)
{
	struct card *card = netdev_priv(dev);
	struct bpf_prog *old;

	switch (bpf->command) {
	case XDP_SETUP_PROG:
		old = rcu_replace_pointer(card->prog, bpf->prog,
					  lockdep_rtnl_is_held());
		if (old)
			bpf_prog_put(old);
		return 0;
	default:
		return -EINVAL;
	}
}

static void card_stats64(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct card *card = netdev_priv(dev);
	int way;

	stats->rx_packets = atomic64_read(&card->counts[RECEIVED]);
	for (way = WAYS; way < COUNTS; way++)
		stats->tx_packets += atomic64_read(&card->counts[way]);
}

static const struct net_device_ops card_netdev_ops = {
	.ndo_open		= card_open,
	.ndo_stop		= card_stop,
	.ndo_start_xmit		= card_start_xmit,
	.ndo_xdp_xmit		= card_xdp_xmit,
	.ndo_bpf		= card_bpf,
	.ndo_get_stats64	= card_stats64,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

static const struct ethtool_ops card_ethtool_ops = {
	.get_link		= ethtool_op_get_link,
};

/* The files */

static void *card_of(const struct file *file)
{
	return pde_data(file_inode(file));
}

static void card_forget_frames(struct card *card)
{
	struct card_frame *frame, *n;

	list_for_each_entry_safe(frame, n, &card->frames, list)
		kfree(frame);
	INIT_LIST_HEAD(&card->frames);
}

static int card_frames_open(struct inode *inode, struct file *file)
{
	struct card *card = pde_data(inode);

	if (file->f_flags & O_TRUNC) {
		mutex_lock(&card->lock);
		card_forget_frames(card);
		mutex_unlock(&card->lock);
	}
	return 0;
}

static ssize_t card_frames_write(struct file *file, const char __user *from,
				 size_t length, loff_t *at)
{
	struct card *card = card_of(file);
	struct card_frame *frame;

	if (length < ETH_HLEN || length > ROOM)
		return -EMSGSIZE;
	frame = kzalloc(struct_size(frame, data,
				    round_up(length, COPIED_AT_ONCE)),
			GFP_KERNEL);
	if (!frame)
		return -ENOMEM;
	if (copy_from_user(frame->data, from, length)) {
		kfree(frame);
		return -EFAULT;
	}
	frame->length = length;
	mutex_lock(&card->lock);
	if (list_empty(&card->frames))
		card->next = frame;
	list_add_tail(&frame->list, &card->frames);
	mutex_unlock(&card->lock);
	return length;
}

static const struct proc_ops card_frames_ops = {
	.proc_open	= card_frames_open,
	.proc_write	= card_frames_write,
};

static int card_burst(struct card *card, unsigned int frames)
{
	int err = 0;
	u64 began;

	mutex_lock(&card->lock);
	if (!netif_running(card->dev) || !netif_carrier_ok(card->dev)) {
		err = -ENETDOWN;
	} else if (list_empty(&card->frames)) {
		err = -ENODATA;
	} else {
		reinit_completion(&card->over);
		card->left = frames;
		began = ktime_get_ns();
		local_bh_disable();
		napi_schedule(&card->napi);
		local_bh_enable();	/* here the poll runs */
		wait_for_completion(&card->over);
		card->ns += ktime_get_ns() - began;
		card->ran += frames;
	}
	mutex_unlock(&card->lock);
	return err;
}

static ssize_t card_run_write(struct file *file, const char __user *from,
			      size_t length, loff_t *at)
{
	struct card *card = card_of(file);
	u64 left, burst;
	int err;

	err = kstrtou64_from_user(from, length, 0, &left);
	if (err)
		return err;
	card->ran = 0;
	card->ns = 0;
	for (; left; left -= burst) {
		burst = min_t(u64, left, BURST);
		err = card_burst(card, burst);
		if (err)
			return err;
		cond_resched();
		if (signal_pending(current))
			return -EINTR;
	}
	return length;
}

static ssize_t card_run_read(struct file *file, char __user *to, size_t length,
			     loff_t *at)
{
	struct card *card = card_of(file);
	char text[48];

	return simple_read_from_buffer(to, length, at, text,
				       scnprintf(text, sizeof(text),
						 "%llu %llu\n", card->ran,
						 card->ns));
}

static const struct proc_ops card_run_ops = {
	.proc_read	= card_run_read,
	.proc_write	= card_run_write,
};

static int card_counts_show(struct seq_file *file, void *unused)
{
	struct card *card = file->private;
	int i;

	for (i = 0; i < COUNTS; i++)
		seq_printf(file, "%s %lld\n", card_count_names[i],
			   atomic64_read(&card->counts[i]));
	return 0;
}

static ssize_t card_keep_write(struct file *file, const char __user *from,
			       size_t length, loff_t *at)
{
	struct card *card = card_of(file);
	u32 keep;
	int err;

	err = kstrtou32_from_user(from, length, 0, &keep);
	if (err)
		return err;
	WRITE_ONCE(card->keep, keep);
	return length;
}

static const struct proc_ops card_keep_ops = {
	.proc_write	= card_keep_write,
};

static ssize_t card_sent_read(struct file *file, char __user *to, size_t length,
			      loff_t *at)
{
	struct sk_buff *skb = skb_dequeue(card_of(file));
	ssize_t result = 0;

	if (!skb)
		return 0;
	if (skb->len > length)
		result = -EMSGSIZE;
	else if (copy_to_user(to, skb->data, skb->len))
		result = -EFAULT;
	else
		result = skb->len;
	kfree_skb(skb);
	return result;
}

static const struct proc_ops card_sent_ops = {
	.proc_read	= card_sent_read,
};

static int card_files(struct card *card)
{
	struct proc_dir_entry *sent;
	int i;

	card->dir = proc_mkdir(card->dev->name, card_dir);
	if (!card->dir)
		return -ENOMEM;
	sent = proc_mkdir("sent", card->dir);
	if (!sent ||
	    !proc_create_data("frames", 0200, card->dir, &card_frames_ops,
			      card) ||
	    !proc_create_data("run", 0600, card->dir, &card_run_ops, card) ||
	    !proc_create_data("keep", 0200, card->dir, &card_keep_ops, card) ||
	    !proc_create_single_data("counts", 0400, card->dir,
				     card_counts_show, card))
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(card->kept); i++)
		if (!proc_create_data(card_count_names[WAYS + i] +
				      strlen("sent_"), 0400, sent,
				      &card_sent_ops, &card->kept[i]))
			return -ENOMEM;
	return 0;
}

/* Cards */

static void card_remove(struct card *card)
{
	int i;

	proc_remove(card->dir);
	unregister_netdev(card->dev);
	netif_napi_del(&card->napi);
	card_forget_frames(card);
	for (i = 0; i < ARRAY_SIZE(card->kept); i++)
		skb_queue_purge(&card->kept[i]);
	free_netdev(card->dev);
}

static struct card *card_make(void)
{
	struct net_device *dev;
	struct card *card;
	int err, i;

	dev = alloc_netdev(sizeof(*card), "card%d", NET_NAME_ENUM, ether_setup);
	if (!dev)
		return ERR_PTR(-ENOMEM);
	card = netdev_priv(dev);
	card->dev = dev;
	mutex_init(&card->lock);
	init_completion(&card->over);
	INIT_LIST_HEAD(&card->frames);
	for (i = 0; i < ARRAY_SIZE(card->kept); i++)
		skb_queue_head_init(&card->kept[i]);

	eth_hw_addr_random(dev);
	dev->netdev_ops = &card_netdev_ops;
	dev->ethtool_ops = &card_ethtool_ops;
	dev->features = NETIF_F_RXCSUM;
	dev->hw_features = NETIF_F_RXCSUM;
	dev->max_mtu = ROOM - ETH_HLEN;
#ifdef CARD_HAVE_XDP_FEATURES
	dev->xdp_features = NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT |
			    NETDEV_XDP_ACT_NDO_XMIT;
#endif
	netif_napi_add(dev, &card->napi, card_poll);
	netif_carrier_off(dev);
	err = register_netdev(dev);
	if (err) {
		netif_napi_del(&card->napi);
		free_netdev(dev);
		return ERR_PTR(err);
	}
	err = card_files(card);
	if (err) {
		card_remove(card);
		return ERR_PTR(err);
	}
	return card;
}

static void card_exit(void)
{
	int i;

	for (i = 0; i < MAX_CARDS; i++)
		if (card_all[i])
			card_remove(card_all[i]);
	proc_remove(card_dir);
}

static int __init card_init(void)
{
	struct card *card;
	int i;

	if (!cards || cards > MAX_CARDS) {
		pr_err("cards=%u: there are 1 to %u\n", cards, MAX_CARDS);
		return -EINVAL;
	}
	card_dir = proc_mkdir(KBUILD_MODNAME, NULL);
	if (!card_dir)
		return -ENOMEM;
	for (i = 0; i < cards; i++) {
		card = card_make();
		if (IS_ERR(card)) {
			card_exit();
			return PTR_ERR(card);
		}
		card_all[i] = card;
	}
	return 0;
}

module_init(card_init);
module_exit(card_exit);
MODULE_DESCRIPTION("Network cards without hardware, for measurements");
MODULE_LICENSE("GPL");
