/* SPDX-License-Identifier: GPL-2.0-only */
/* What ip_vs_mhs_table.{h,c} need of the kernel, for user space. */
#ifndef _UNIT_LINUX_TYPES_H
#define _UNIT_LINUX_TYPES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

static inline u64 div_u64(u64 dividend, u32 divisor)
{
	return dividend / divisor;
}

#endif /* _UNIT_LINUX_TYPES_H */
