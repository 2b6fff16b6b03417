#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Send many crafted TCP packets from a device, as fast as the kernel can.

The packets lie in a ring that is shared with the kernel: one system call
sends all of them, so the sender costs little even in emulation.
"""
import argparse
import mmap
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402

PACKET_TX_RING = 13
SOL_PACKET = 263
FRAME = 256             # bytes of a frame of the ring
DATA = 32               # where the packet begins in it: after tpacket_hdr
SEND_REQUEST = 1
BURST = 200


def frame(args, key):
    packet = craft.tcp(craft.addr(args.src), craft.addr(args.dst),
                       args.sport + key, args.dport,
                       craft.SYN if args.syn else craft.ACK, seq=1)
    return bytes.fromhex(args.mac.replace(":", "")) + b"\2\0\0\0\0\1" + \
        craft.ETH[packet[0] >> 4] + packet


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--mac", required=True, help="of the receiver")
    parser.add_argument("--src", required=True)
    parser.add_argument("--dst", required=True)
    parser.add_argument("--sport", type=int, default=10000, help="first one")
    parser.add_argument("--dport", type=int, default=80)
    parser.add_argument("--keys", type=int, default=1000, help="source ports")
    parser.add_argument("--rounds", type=int, default=1,
                        help="packets of each key")
    parser.add_argument("--syn", action="store_true", help="SYN, not ACK")
    args = parser.parse_args()

    per_block = mmap.PAGESIZE // FRAME
    if args.keys % per_block:
        parser.error(f"--keys: a multiple of {per_block}, got {args.keys}")

    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(SOL_PACKET, PACKET_TX_RING,
                    struct.pack("IIII", mmap.PAGESIZE, args.keys // per_block,
                                FRAME, args.keys))
    sock.bind((args.dev, 0))
    ring = mmap.mmap(sock.fileno(), args.keys * FRAME)
    # Every key has its frame: it may still be on its way when it is sent again
    sizes = []
    for key in range(args.keys):
        packet = frame(args, key)
        at = key * FRAME + DATA
        ring[at:at + len(packet)] = packet
        sizes.append(struct.pack("@LI", SEND_REQUEST, len(packet)))
    start = time.monotonic()
    for _ in range(args.rounds):
        for key, size in enumerate(sizes):
            ring[key * FRAME:key * FRAME + len(size)] = size
            # short bursts, which no queue on the way drops
            if key % BURST == BURST - 1:
                sock.send(b"")
        sock.send(b"")
    sent = args.keys * args.rounds
    print(f"sent={sent} seconds={time.monotonic() - start:.1f}")


if __name__ == "__main__":
    main()
