#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Floods from random sources to the services of a director, kind after kind:
TCP segments with SYN, ACK, RST and FIN, plain UDP, QUIC; then malformed, truncated
and hostile packets of every kind, always the same ones for a seed.  With --seconds
a few of each, and of SCTP, in turn, as long as that; how many is printed.

Checksums of floods are wrong: a director does not look, and the servers drop them,
which leaves the machine to the director.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import argparse
import collections
import random
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
import hostile_shapes as hs  # noqa: E402
from craft import ACK, FIN, RST, SCTP, SYN, TCP, UDP  # noqa: E402

QUIC_INITIAL = b"\xc0\0\0\0\1" + bytes(20)
QUIC_LATER = b"\x40" + bytes(24)
# protocol, port, then flags or data of each packet of a source
KINDS = {
    "SYN": (TCP, 80, SYN),
    # the second packet makes a closing entry of an open one
    "ACK and FIN": (TCP, 80, ACK, FIN | ACK),
    "ACK": (TCP, 80, ACK), "RST": (TCP, 80, RST),
    "FIN": (TCP, 80, FIN | ACK), "UDP": (UDP, 53, b"query"),
    "QUIC Initial": (UDP, 443, QUIC_INITIAL), "QUIC": (UDP, 443, QUIC_LATER),
}
HOSTILE = "hostile"
# in a storm; of SCTP its first chunk
STORM = {**KINDS, "INIT": (SCTP, 80, 1), "DATA": (SCTP, 80, 0),
         "SHUTDOWN": (SCTP, 80, 7)}
BURST, PAUSE_S = 40, 0.02   # others want to work, too
# (phase, kind) in which a packet may make an entry
ENTRIES = {("hold", "SYN"), ("pin", "SYN"), ("pin", "ACK"),
           ("pin", "ACK and FIN"), ("pin", "QUIC"),
           ("hold", "QUIC Initial"), ("pin", "QUIC Initial"),
           ("hold", HOSTILE), ("pin", HOSTILE)}
NETS = {4: bytes([10, 64]), 6: b"\xfd\x99" + bytes(12)}
STEP = 200      # packets between two looks at the entries


class Flood:
    """Packets that differ in source address and port."""

    def __init__(self, family, dst, proto, port, more):
        self.net, self.to = NETS[family], (dst, port, more)
        self.make = {TCP: craft.tcp, UDP: craft.udp, SCTP: craft.sctp}[proto]

    def packet(self, source):
        """The low half of the source address, and the port."""
        dst, port, more = self.to
        packet = self.make(self.net + (source >> 16).to_bytes(2, "big"), dst,
                           source & 0x7fff | 0x8000, port, more)
        return packet[:-1] + b"\xff"


def floods(kind, vips, count):
    """(service, packet) of a flood, to each address."""
    proto, port, *packets = STORM[kind]
    for family, vip in vips.items():
        made = [Flood(family, craft.addr(vip), proto, port, more)
                for more in packets]
        text = vip if family == 4 else f"[{vip}]"
        service = f"{'TCP' if proto == TCP else 'UDP'} {text}:{port}"
        for _ in range(count):
            source = random.getrandbits(32)
            for flood in made:
                yield service, flood.packet(source)


def hostile(count):
    kinds = [kind for family in (4, 6) for kind in hs.shapes(family)]
    for n in range(count):
        yield None, hs.spoiled(random, random.choice(kinds[n % len(kinds)]))[:1400]


def storm(wire, vips, seconds):
    """A few of each kind in turn."""
    sent = collections.Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for kind in [*STORM, HOSTILE]:
            for _, packet in hostile(BURST) if kind == HOSTILE else \
                    floods(kind, vips, BURST):
                try:
                    wire.send(packet)
                except OSError:     # a queue is full
                    break
                sent[kind] += 1
            time.sleep(PAUSE_S)     # why: see there
    print(*(f"{k.replace(' ', '_')}={v}" for k, v in sent.items()))


def from_flood():
    """Entries of our sources."""
    with open("/proc/net/ip_vs_conn") as f:
        return sum(line[4:8] in ("0A40", "fd99") for line in f)


def sent_by(dev):
    with open("/proc/net/dev") as f:
        for line in f:
            if line.strip().startswith(dev + ":"):
                return int(line.split(":")[1].split()[9])


def check(name, good, text):
    print(name, int(not good), text, sep="\t", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", required=True, help="leads to the director")
    parser.add_argument("--mac", required=True, help="of the director")
    parser.add_argument("--director", help="its namespace")
    parser.add_argument("--vip", nargs=2, required=True, help="IPv4 and IPv6")
    parser.add_argument("--phase", default="mh",
                        choices=("stable", "hold", "pin", "mh"))
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, HOSTILE])
    parser.add_argument("--count", type=int, default=600,
                        help="packets of a kind to each address")
    parser.add_argument("--syns", type=int, help="the same, of SYNs")
    parser.add_argument("--packets", type=int, default=12000,
                        help="hostile ones")
    parser.add_argument("--seed", default="")
    parser.add_argument("--cap", type=int, default=0,
                        help="most entries a service may have")
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    wire = craft.Wire(args.dev, args.mac, None, None)
    vips = dict(zip((4, 6), args.vip))
    if args.seconds:
        storm(wire, vips, args.seconds)
        return
    random.seed(args.phase + args.seed)
    craft.enter(args.director)
    for kind in args.kinds:
        most, held, total, start = 0, from_flood(), 0, sent_by("eth0")
        for service, packet in hostile(args.packets) if kind == HOSTILE else \
                floods(kind, vips, args.syns if kind == "SYN" and args.syns
                       else args.count):
            wire.send(packet)
            total += 1
            if total % STEP == 0 and args.phase != "mh":
                rows = craft.mhs_state()
                most = max(most, *(int(row["Entries"]) for row in (
                    [rows[service]] if service else rows.values())))
        name = f"{args.phase}: {kind} flood"
        if kind != HOSTILE:
            craft.until(lambda: sent_by("eth0") - start >= total, 10)
            through = sent_by("eth0") - start
            check(f"{name}: all forwarded", through >= total,
                  f"{through} of {total}")
        if args.phase == "mh":
            continue
        made = from_flood() - held
        if (args.phase, kind) in ENTRIES:
            # those of SYNs leave older flows the limit: half more
            cap = args.cap // 2 if kind.startswith("QUIC") else (
                args.cap * 3 // 2)
            check(f"{name}: entries of a service", most <= cap,
                  f"{most}, at most {cap}, {made} made")
        else:
            check(f"{name}: makes no entry", made <= 0, f"{made} made")


if __name__ == "__main__":
    main()
