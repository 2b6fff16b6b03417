#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Send TCP segments that no socket makes: floods, stray RST and FIN; or with
--sctp packets of one chunk.

The sources are one of

    --count N           random addresses of 10.64.0.0/10, random ports
    --src A --ports F-L the ports F to L of one address, in order; more such
                        addresses are each for the --dst of the same place
    --pairs             lines "ADDRESS PORT" on standard input, for the --dst
                        of their family

--dports F-L: each in turn; --flags of F, S, R, P and A: all so, then all so, ...;
--sctp CHUNK; --gre FROM TO: as a server of the second chance sends it back.

Checksums are wrong on purpose unless --good: a director does not look at
them, and a server that drops the segment leaves the machine to the director.
Prints sent=N.
"""
import itertools
import struct
import sys

sys.dont_write_bytecode = True

import netlab  # noqa: E402
from netlab import pack as packed, span  # noqa: E402

IP_NODEFRAG = 22
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16}


def packet_of(args, src, sport, dst, dport, flags):
    """src, dst: packed addresses"""
    if args.sctp >= 0:
        return netlab.ip(src, dst, netlab.SCTP, struct.pack(
            "!HHIIBBH", sport, dport, 1, 0, args.sctp, 0, 4))
    # as after a SYN of the same source
    packet = netlab.tcp(src, sport, dst, dport, sum(FLAGS[f] for f in flags),
                        seq=1 if "S" in flags else 2)
    if not args.good:
        packet = packet[:-4] + bytes(4)
    if args.gre:
        packet = netlab.ip(*args.gre, 47, struct.pack(
            "!HHI", 0x2000, 0x86dd if len(src) == 16 else 0x0800,
            0x6d687300) + packet)
    return packet


def sources(args, src, pairs, size):
    """Packed address, of this size, and port of each segment."""
    if args.pairs:
        yield from (pair for pair in pairs if len(pair[0]) == size)
    elif src:
        for port in span(args.ports):
            yield packed(src), port
    else:
        import random   # takes long in emulation

        for _ in range(args.count):
            yield (struct.pack("!I", 0x0a400000 | random.getrandbits(22)),
                   random.randrange(1024, 65536))


def main():
    args = netlab.options(sys.argv[1:], {
        "dst": [], "dports": "80", "flags": ["S"], "sctp": -1, "gre": [],
        "good": False, "nodefrag": False, "src": [], "ports": "1024-65535",
        "pairs": False, "count": 0})
    pairs = [(packed(addr), int(port)) for addr, port in
             map(str.split, sys.stdin if args.pairs else ())]
    out, sent = netlab.Sender(), 0
    if args.nodefrag:
        out.socks[False].setsockopt(0, IP_NODEFRAG, 1)
    for dst, src in itertools.zip_longest(args.dst, args.src):
        to = packed(dst)
        for flags in args.flags:
            for addr, sport in sources(args, src, pairs, len(to)):
                for dport in span(args.dports):
                    try:
                        out(args.gre[1] if args.gre else dst,
                            packet_of(args, addr, sport, to, dport, flags))
                        sent += 1
                    except OSError:     # no buffers: not sent
                        pass
    print(f"sent={sent}")


main()
