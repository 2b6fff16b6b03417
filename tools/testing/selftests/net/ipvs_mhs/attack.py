#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Floods from random sources to the services of a director, kind after kind:
TCP segments with SYN, ACK, RST and FIN, plain UDP, QUIC; then malformed, truncated
and hostile packets of every kind, always the same ones for a seed.  With --seconds
a few of each, and of SCTP, in turn, as long as that; how many is printed.

Checksums of floods are wrong: a director does not look, and the servers drop them,
which leaves the machine to the director.

Options: --dev, which leads to the director, --mac and --director, its namespace, --vip
IPv4 IPv6, --phase, --kinds, --count packets of a kind to each address, --syns, the same
of SYNs, --packets, hostile ones, --seed, --cap, the most entries that a service may have.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import collections
import random
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
import hostile_shapes as hs  # noqa: E402
import netlab  # noqa: E402
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


def floods(kind, vips, count):
    """(service, packet) of a flood to each address, from random ones."""
    proto, port, *kinds = STORM[kind]
    make = {TCP: craft.tcp, UDP: craft.udp, SCTP: craft.sctp}[proto]
    for family, vip in vips.items():
        text = vip if family == 4 else f"[{vip}]"
        service = f"{'TCP' if proto == TCP else 'UDP'} {text}:{port}"
        dst = craft.addr(vip)
        for _ in range(count):
            source = random.getrandbits(32)
            for more in kinds:
                packet = make(NETS[family] + (source >> 16).to_bytes(2, "big"), dst,
                              source & 0x7fff | 0x8000, port, more)
                yield service, packet[:-1] + b"\xff"


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


def main():
    args = netlab.options(sys.argv[1:], {
        "dev": "", "mac": "", "director": "", "vip": [], "phase": "mh",
        "kinds": [*KINDS, HOSTILE], "count": 600, "syns": 0, "packets": 12000,
        "seed": "", "cap": 0, "seconds": 0.0})
    wire = craft.Wire(args.dev, args.mac, False)
    vips = dict(zip((4, 6), args.vip))
    if args.seconds:
        storm(wire, vips, args.seconds)
        return
    random.seed(args.phase + args.seed)
    craft.enter(args.director)
    for kind in args.kinds:
        before = from_flood()
        most, total, start = 0, 0, sent_by("eth0")
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
            craft.check(f"{name}: all forwarded", through >= total,
                        f"{through} of {total}")
        if args.phase == "mh":
            continue
        made = from_flood() - before
        if (args.phase, kind) in ENTRIES:
            # those of SYNs leave older flows the limit: half more
            cap = args.cap // 2 if kind.startswith("QUIC") else (
                args.cap * 3 // 2)
            craft.check(f"{name}: entries of a service", most <= cap,
                        f"{most}, at most {cap}, {made} made")
        else:
            craft.check(f"{name}: makes no entry", made <= 0, f"{made} made")


if __name__ == "__main__":
    main()
