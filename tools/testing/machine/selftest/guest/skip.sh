#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Is skipped.

echo "KTAP version 1"
echo "1..0 # SKIP not today"
exit 4
