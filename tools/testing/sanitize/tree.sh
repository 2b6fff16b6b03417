#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
# What the bugs for uml-tree-debug spoil: the series' selftest of lifetimes, with
# the module of MHS_KO in the place of the kernel's own.

tree=${0%/*}/../../../build/kernel/$MHS_KERNEL/source
mount --bind "$MHS_KO" "$(modinfo -n ip_vs_mhs)" || exit
exec "$tree/tools/testing/selftests/net/ipvs_mhs/lifetime.sh"
