/* SPDX-License-Identifier: GPL-2.0-only */
/* Parameters keep their defaults */
#define module_param_array(name, type, n, mode)	\
	struct fuzz_no_parameter
#define MODULE_PARM_DESC(name, text)		struct fuzz_no_parameter
