#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Send malformed, truncated and hostile packets to a director, always the same
ones for a seed, while flows that are in order go on.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import argparse
import mmap
import random
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
import hostile_shapes as hs  # noqa: E402

PACKET_TX_RING = 13
SOL_PACKET = 263
FRAME, DATA = 1024, 32      # of the ring; where a packet begins in its frame
FRAMES = 400
SEND_REQUEST = 1
FLOWS = 20
CHANGES = (0, 0, 0, 1, 1, 1, 2, 4)      # bytes of a packet
NEW = 50000     # first port of new flows


class Ring:
    """Packets in memory shared with the kernel: one call sends them all."""

    def __init__(self, dev):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sock.setsockopt(SOL_PACKET, PACKET_TX_RING, struct.pack(
            "IIII", mmap.PAGESIZE, FRAMES * FRAME // mmap.PAGESIZE, FRAME,
            FRAMES))
        self.sock.bind((dev, 0))
        self.ring = mmap.mmap(self.sock.fileno(), FRAMES * FRAME)
        self.at = 0

    def add(self, frame):
        at = self.at * FRAME
        self.ring[at + DATA:at + DATA + len(frame)] = frame
        self.ring[at:at + 12] = struct.pack("@LI", SEND_REQUEST, len(frame))
        self.at += 1
        if self.at == FRAMES:
            self.flush()

    def flush(self):
        self.sock.send(b"")
        self.at = 0


def repair(packet):
    """The checksums that a packet must pass to get far."""
    if packet[0] >> 4 == 4:
        end = (packet[0] & 15) * 4
        packet[10:12] = b"\0\0"
        packet[10:12] = struct.pack("!H", craft.checksum(bytes(packet[:end])))
        if packet[9] == craft.ICMP and len(packet) > end + 4:
            packet[end + 2:end + 4] = b"\0\0"
            packet[end + 2:end + 4] = struct.pack(
                "!H", craft.checksum(bytes(packet[end:])))


def spoiled(rng, packet):
    """A shape with some bytes changed, cut, or as it is."""
    packet = bytearray(packet)
    bits = rng.getrandbits(32)
    for _ in range(CHANGES[bits >> 29]):
        where = rng.getrandbits(16)
        # headers are what matters, the inner ones too
        packet[where % min(len(packet), 120)] = where >> 8
    if bits & 0x1c == 0:
        del packet[(bits >> 8) % len(packet) + 1:]
    if bits & 0xe0 == 0x20 and len(packet) > 6:     # a length that lies
        at = 2 if packet[0] >> 4 == 4 else 4
        packet[at:at + 2] = struct.pack("!H", bits >> 16)
    if bits & 0x700 and len(packet) >= 20:
        repair(packet)
    return packet


def begins(packet):
    """Would it be a sound SYN or INIT?  Looked for in crude ways."""
    size = len(packet)
    for at in (20, 40, 48) if packet[0] >> 4 == 6 else (
            (packet[0] & 15) * 4,):
        if size > at + 13 and packet[at + 13] & 0x17 == craft.SYN:
            return True
        if size > at + 12 and packet[at + 12] == 1:
            return True
    return False


class Flows:
    """Flows that are in order: each packet must reach the same server."""

    def __init__(self):
        self.servers = None
        self.next = NEW
        self.lost = self.moved = self.tried = 0

    def ask(self, ports, flags):
        # a socket of its own: it must not hear what came in between
        wire = craft.Wire("dr", craft.DIRECTOR, hs.CLIENT[4], hs.DIRECTOR[4])
        return [wire.ask([(80, p, craft.tcp(hs.CLIENT[f], hs.VIP[f], p, 80,
                                            flags)) for p in ports])
                for f in (4, 6)]

    def look(self):
        """Older flows, and two new ones."""
        old = self.ask(range(40000, 40000 + FLOWS), craft.ACK)
        if not self.servers:
            self.servers = old
        new = self.ask((self.next, self.next + 1), craft.SYN)
        self.next += 2
        for was, now in zip(self.servers, old):
            self.moved += sum(was[k] != now[k] for k in was)
        for answers in (*old, *new):
            self.tried += len(answers)
            self.lost += sum(":" not in w for w in answers.values())


def entries(director):
    table = subprocess.run(["nsenter", "--net=" + director, "cat",
                            "/proc/net/ip_vs_conn"], capture_output=True,
                           check=True).stdout
    return table.count(b"\n") - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--director", required=True, help="its namespace")
    parser.add_argument("--phase", required=True,
                        choices=("stable", "hold", "pin"))
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ring = Ring("dr")
    head = bytes.fromhex(craft.DIRECTOR.replace(":", "")) + b"\2\0\0\0\0\1"
    rng = random.Random(args.seed)
    kinds = [k for f in (4, 6) for k in hs.shapes(f, args.phase == "stable")]
    flows = Flows()
    flows.look()
    before = entries(args.director)
    start = time.monotonic()
    for n in range(args.count):
        shapes = kinds[n % len(kinds)]
        packet = spoiled(rng, shapes[rng.getrandbits(24) % len(shapes)])
        packet = packet[:FRAME - DATA - 14]
        if args.phase == "hold" and begins(packet):
            continue
        kind = craft.ETH[6 if packet[0] >> 4 == 6 else 4]
        ring.add(head + kind + packet)
        if n % 10000 == 9999:
            flows.look()
    ring.flush()
    flows.look()
    took = time.monotonic() - start
    total = sum(map(len, kinds))
    print("#", 0, f"{args.phase}: {args.count} packets of {total} shapes in "
          f"{took:.0f} s", sep="\t")
    made = entries(args.director) - before
    name = f"{args.phase}: hostile packets"
    if args.phase != "pin":
        # new flows that are in order have entries while slots are unstable
        due = 2 * (flows.next - NEW) if args.phase == "hold" else 0
        print(f"{name} make no entry", int(made > due),
              f"{made}, {due} due at most", sep="\t")
    print(f"{name}: no packet of a flow in order is lost", int(flows.lost > 0),
          f"{flows.lost} of {flows.tried}", sep="\t")
    print(f"{name}: none is moved", int(flows.moved > 0), f"{flows.moved}",
          sep="\t")


if __name__ == "__main__":
    main()
