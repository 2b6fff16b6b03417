#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# weight: 50
# The kernel dies.

echo "KTAP version 1"
echo "1..2"
echo "ok 1 good"
echo c >/proc/sysrq-trigger
sleep 10
