#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# One case fails.

echo "KTAP version 1"
echo "1..2"
echo "ok 1 good"
echo "not ok 2 bad"
exit 1
