#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Send TCP segments that no socket makes: floods, stray RST and FIN; or with
--sctp packets of one chunk.

The sources are one of

    --net PREFIX        random addresses of it, random ports, until --count or
                        --seconds is reached
    --src A --ports F-L the ports F to L of one address, in order; more such
                        addresses are each for the --dst of the same place
    --pairs             lines "ADDRESS PORT" on standard input, for the --dst
                        of their family

Checksums are wrong on purpose unless --good: a director does not look at
them, and a server that drops the segment leaves the machine to the director.
Prints sent=N.
"""
import argparse
import itertools
import struct
import sys
import time

sys.dont_write_bytecode = True

import netlab  # noqa: E402
from netlab import pack as packed, span  # noqa: E402

IP_NODEFRAG = 22
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16}


class Sender:
    def __init__(self, args, dst):
        self.name, self.dst = dst, packed(dst)
        self.flags = self.sent = 0
        self.good, self.chunk, self.gre = args.good, args.sctp, args.gre
        self.out = netlab.Sender()
        if args.nodefrag:
            self.out.socks[False].setsockopt(0, IP_NODEFRAG, 1)

    def segment(self, src, sport, dport):
        if self.chunk is not None:
            return netlab.ip(src, self.dst, netlab.SCTP, struct.pack(
                "!HHIIBBH", sport, dport, 1, 0, self.chunk, 0, 4))
        # as after a SYN of the same source
        packet = netlab.tcp(src, sport, self.dst, dport, self.flags,
                            seq=1 if self.flags & FLAGS["S"] else 2)
        return packet if self.good else packet[:-4] + bytes(4)

    def send(self, src, sport, dport):
        """src: packed address"""
        packet, to = self.segment(src, sport, dport), self.name
        if self.gre:
            kind, to = 0x86dd if len(src) == 16 else 0x0800, self.gre[1]
            packet = netlab.ip(*self.gre, 47, struct.pack(
                "!HHI", 0x2000, kind, 0x6d687300) + packet)
        try:
            self.out(to, packet)
            self.sent += 1
        except OSError:     # no buffers: not sent
            pass


def sources(args, src, pairs, size):
    """Packed address, of this size, and port of each segment."""
    if args.pairs:
        yield from (pair for pair in pairs if len(pair[0]) == size)
    elif src:
        addr = packed(src)
        for port in span(args.ports):
            yield addr, port
    else:
        # these take long to import in emulation
        import ipaddress
        import random

        net = ipaddress.ip_network(args.net)
        base = int(net.network_address)
        mask = net.num_addresses - 1
        end = time.monotonic() + args.seconds
        n = 0
        while n < args.count and (n % 64 or time.monotonic() < end):
            addr = base | random.getrandbits(8 * size) & mask
            yield addr.to_bytes(size, "big"), random.randrange(1024, 65536)
            n += 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dst", nargs="+", required=True)
    parser.add_argument("--dports", default="80", help="F-L: each in turn")
    parser.add_argument("--flags", nargs="+", default=["S"],
                        help="of F, S, R, P and A: all so, then all so, ...")
    parser.add_argument("--sctp", type=int, metavar="CHUNK")
    parser.add_argument("--gre", nargs=2, metavar=("FROM", "TO"),
                        help="as a server of the second chance sends it back")
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--nodefrag", action="store_true")
    parser.add_argument("--net", default="10.64.0.0/10")
    parser.add_argument("--src", nargs="+", default=[])
    parser.add_argument("--ports", default="1024-65535")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--count", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=600)
    args = parser.parse_args()
    dports = span(args.dports)
    pairs = [(packed(addr), int(port)) for addr, port in
             map(str.split, sys.stdin if args.pairs else ())]
    sent = 0
    for dst, src in itertools.zip_longest(args.dst, args.src):
        sender = Sender(args, dst)
        for flags in args.flags:
            sender.flags = sum(FLAGS[f] for f in flags)
            for addr, sport in sources(args, src, pairs, len(sender.dst)):
                for dport in dports:
                    sender.send(addr, sport, dport)
        sent += sender.sent
    print(f"sent={sent}")


if __name__ == "__main__":
    main()
