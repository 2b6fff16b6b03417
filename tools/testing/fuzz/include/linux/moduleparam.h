/* SPDX-License-Identifier: GPL-2.0-only */
/* Parameters keep their defaults */
struct kparam_array {
	unsigned int max, elemsize, *num;
	const struct kernel_param_ops *ops;
	void *elem;
};

struct kernel_param {
	const struct kparam_array *arr;
};

struct kernel_param_ops {
	int (*set)(const char *text, const struct kernel_param *kp);
	int (*get)(char *text, const struct kernel_param *kp);
};

static const struct kernel_param_ops param_array_ops, param_ops_ushort;

#define module_param_cb(name, ops, arg, mode)	\
	static const void *const fuzz_##name[]	\
	__attribute__((unused)) = { ops, arg }
#define module_param_array(name, type, n, mode)	\
	struct fuzz_no_parameter
#define MODULE_PARM_DESC(name, text)		struct fuzz_no_parameter
