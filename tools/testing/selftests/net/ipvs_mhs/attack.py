#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Floods from random sources to the services of a director, kind after kind:
TCP segments with SYN, ACK, RST and FIN, plain UDP, QUIC.

Their checksums are wrong: a director does not look, and the servers drop them,
which leaves the machine to the director.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import argparse
import random
import struct
import sys

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, FIN, RST, SYN, TCP, UDP  # noqa: E402

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
# (phase, kind) in which a packet may make an entry
ENTRIES = {("hold", "SYN"), ("pin", "SYN"), ("pin", "ACK"),
           ("pin", "ACK and FIN"), ("pin", "QUIC"),
           ("hold", "QUIC Initial"), ("pin", "QUIC Initial")}
NETS = {4: bytes([10, 64]), 6: b"\xfd\x99" + bytes(12)}
STEP = 200      # packets between two looks at the entries


class Flood:
    """Packets that differ in source address and port, made by patching one."""

    def __init__(self, family, dst, proto, port, more):
        self.family = family
        src = NETS[family] + b"\1\1"
        if proto == TCP:
            packet = craft.tcp(src, dst, 1, port, more)
        else:
            packet = craft.udp(src, dst, 1, port, more)
        at, l4 = (14, 20) if family == 4 else (22, 40)
        self.head = packet[:at]
        self.middle = packet[at + 2:l4]
        self.tail = packet[l4 + 2:]
        self.sum = ~int.from_bytes(packet[10:12], "big") & 0xffff

    def packet(self, source):
        """The low half of the source address, and the port."""
        low, port = source >> 16, source & 0x7fff | 0x8000
        head = self.head
        if self.family == 4:
            total = self.sum - 0x0101 + low
            while total >> 16 or total < 0:
                total = (total & 0xffff) + (total >> 16)
            head = head[:10] + struct.pack("!H", ~total & 0xffff) + head[12:]
        return b"".join((head, struct.pack("!H", low), self.middle,
                         struct.pack("!H", port), self.tail))


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", required=True, help="leads to the director")
    parser.add_argument("--mac", required=True, help="of the director")
    parser.add_argument("--director", required=True, help="its namespace")
    parser.add_argument("--vip", nargs=2, required=True, help="IPv4 and IPv6")
    parser.add_argument("--phase", required=True,
                        choices=("stable", "hold", "pin", "mh"))
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--count", type=int, default=600,
                        help="packets of a kind to each address")
    parser.add_argument("--syns", type=int, help="the same, of SYNs")
    parser.add_argument("--cap", type=int, default=0,
                        help="most entries a service may have")
    args = parser.parse_args()
    random.seed(args.phase)
    wire = craft.Wire(args.dev, args.mac, None, None)
    craft.enter(args.director)
    vips = {4: args.vip[0], 6: args.vip[1]}
    for kind in args.kinds:
        most, held = 0, from_flood()
        count = args.syns if kind == "SYN" and args.syns else args.count
        start = sent_by("eth0")
        for family, vip in vips.items():
            proto, port, *packets = KINDS[kind]
            floods = [Flood(family, craft.addr(vip), proto, port, more)
                      for more in packets]
            text = vip if family == 4 else f"[{vip}]"
            service = f"{'TCP' if proto == TCP else 'UDP'} {text}:{port}"
            for n in range(1, count + 1):
                source = random.getrandbits(32)
                for flood in floods:
                    wire.send(flood.packet(source))
                if n % STEP == 0 and args.phase != "mh":
                    now = craft.mhs_state()[service]
                    most = max(most, int(now["Entries"]))
        total = 2 * count * len(floods)
        craft.until(lambda: sent_by("eth0") - start >= total, 10)
        through = sent_by("eth0") - start
        name = f"{args.phase}: {kind} flood"
        print(f"{name}: all forwarded", int(through < total),
              f"{through} of {total}", sep="\t")
        if args.phase == "mh":
            continue
        made = from_flood() - held
        if (args.phase, kind) in ENTRIES:
            # those of SYNs leave older flows the limit: half more
            cap = args.cap // 2 if kind.startswith("QUIC") else (
                args.cap * 3 // 2)
            print(f"{name}: entries of a service", int(most > cap),
                  f"{most}, at most {cap}, {made} made", sep="\t")
        else:
            print(f"{name}: makes no entry", int(made > 0), f"{made} made",
                  sep="\t")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
