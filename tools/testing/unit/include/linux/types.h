/* SPDX-License-Identifier: GPL-2.0-only */
/* What ip_vs_mhs_table.{h,c} and ip_vs_mhs_decide.{h,c} need of the kernel, for user space, besides the types of its user interface.
 */
#ifndef _UNIT_LINUX_TYPES_H
#define _UNIT_LINUX_TYPES_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include_next <linux/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#undef __always_inline
#define __always_inline	inline __attribute__((always_inline))
#define __read_mostly
#undef __bitwise
#define __bitwise
#define __force
#define likely(x)	(x)
#ifndef __packed
#define __packed	__attribute__((packed))
#endif

static inline u64 div_u64(u64 dividend, u32 divisor)
{
	return dividend / divisor;
}

#endif /* _UNIT_LINUX_TYPES_H */
