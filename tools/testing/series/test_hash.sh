#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
# The selftest of hashkey, in a kernel with the posting or, as a control, in one
# without; it says how long a packet takes with 20,000 connections.

# shellcheck source=../selftests/net/ipvs_mhs/lib.sh
. "${0%/*}/../selftests/net/ipvs_mhs/lib.sh"

top=$(cd "${0%/*}/../../.." && pwd)
net=tools/testing/selftests/net
tree=$top/build/kernel/$MHS_KERNEL/source
cp -r "$tree/$net"/{lib,lib.sh} "$work"
mkdir "$work/netfilter"
cp "$tree/$net/netfilter/lib.sh" \
	"$top/scripts/series/hashkey/tree/$net/netfilter/ipvs_hash.sh" \
	"$work/netfilter"
cd "$work/netfilter" || exit

plan 1
./ipvs_hash.sh >"$work/log" 2>&1
status=$?
sed 's/^/# /' "$work/log"
case $MHS_KERNEL in
uml-tree*) check "ipvs_hash.sh" 0 "$status" ;;
*) check "control: without the posting ipvs_hash.sh fails" 1 "$status" ;;
esac
