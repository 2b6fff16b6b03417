#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Traffic of every kind to a director for some seconds: floods of TCP, UDP,
QUIC and SCTP from random sources, ICMP errors about their flows, and hostile
packets.  Prints the number of packets of each kind.
"""
import argparse
import itertools
import random
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
import hostile_shapes as hs  # noqa: E402
from attack import KINDS, Flood  # noqa: E402

BURST = 40
PAUSE = 0.02    # seconds after it: others want to work, too
# a common header without its ports, then a chunk
SCTP_CHUNKS = {"INIT": 1, "DATA": 0, "ABORT": 6, "SHUTDOWN": 7}


def sctp(family, chunk):
    src = hs.CLIENT[family][:-1] + bytes([random.getrandbits(8)])
    head = random.getrandbits(16).to_bytes(2, "big") + b"\0\x50" + bytes(8)
    return craft.ip(src, hs.VIP[family], craft.SCTP,
                    head + bytes([chunk, 0, 0, 20]) + bytes(16))


def error(family):
    """About the flow of a client to one of the services."""
    client = hs.CLIENT[family]
    quoted = craft.tcp(hs.VIP[family], client, 80,
                       random.randrange(1024, 65536), craft.ACK)
    return craft.too_big(hs.ROUTER[family], hs.VIP[family], quoted)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", required=True, help="leads to the director")
    parser.add_argument("--mac", required=True, help="of the director")
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    wire = craft.Wire(args.dev, args.mac, None, None)
    rng = random.Random()
    makers = {}
    for family in (4, 6):
        for kind, (proto, port, *packets) in KINDS.items():
            floods = itertools.cycle([Flood(family, hs.VIP[family], proto,
                                            port, more) for more in packets])
            makers[f"{kind}/{family}"] = (
                lambda f=floods: next(f).packet(rng.getrandbits(32)))
        for name, chunk in SCTP_CHUNKS.items():
            makers[f"SCTP {name}/{family}"] = (
                lambda f=family, c=chunk: sctp(f, c))
        makers[f"ICMP/{family}"] = lambda f=family: error(f)
        shapes = [p for kind in hs.shapes(family, True) for p in kind]
        makers[f"hostile/{family}"] = (
            lambda s=shapes: hs.spoiled(rng, rng.choice(s)))
    sent = dict.fromkeys(makers, 0)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for kind, make in makers.items():
            try:
                for _ in range(BURST):
                    wire.send(make())
                    sent[kind] += 1
            except OSError:     # a queue is full, or the packet is too long
                pass
            time.sleep(PAUSE)   # why: see there
    print(*(f"{k.replace(' ', '_')}={v}" for k, v in sent.items()))


if __name__ == "__main__":
    main()
