#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Send many crafted TCP packets from --dev to --mac: of each of --keys source ports
from --sport on, --rounds times; with --syn SYN, not ACK.
"""
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
import netlab  # noqa: E402


def main():
    args = netlab.options(sys.argv[1:], {
        "dev": "", "mac": "", "src": "", "dst": "", "sport": 10000, "dport": 80,
        "keys": 1000, "rounds": 1, "syn": False})
    wire = craft.Wire(args.dev, args.mac, False)
    packets = [craft.tcp(craft.addr(args.src), craft.addr(args.dst), port,
                         args.dport, craft.SYN if args.syn else craft.ACK, seq=1)
               for port in range(args.sport, args.sport + args.keys)]
    start = time.monotonic()
    for _ in range(args.rounds):
        for packet in packets:
            wire.send(packet)
    print(f"sent={args.keys * args.rounds} "
          f"seconds={time.monotonic() - start:.1f}")


main()
