#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 7200
# Servers, directors and programs die, freeze, reboot and return at random beside
# random changes of the servers.  The kernel's mh lives through the same beside mhs:
# each of its flows has a twin of mhs on the same server, and one that mh keeps and
# mhs breaks is a failure.  See faults.py.
# MHS_SEED: the same again, "SEED/EPISODE" that episode alone; MHS_FAULTS_S: seconds.

# shellcheck source=lib.sh
. "${0%/*}/lib.sh"

plan 5
modprobe -q -a ip_vs ip_vs_mh ipip ip6_tunnel
fresh_module
setup_net 0
setup_ns s1 s2 s3 s4 s5 s6
report python3 -S "$here/faults.py" --suffix "$$" \
	--seed "${MHS_SEED:-$RANDOM$RANDOM}" --seconds "${MHS_FAULTS_S:-60}"
