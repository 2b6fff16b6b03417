#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Who answers ARP requests for an address?

usage: arp.py DEVICE ADDRESS FENCE...

Prints the hardware addresses, in their order.  Each FENCE is the address of one
host alone, which is asked for afterwards: a host that has answered for it had the
first request before, so that there is no answer to wait for.
"""

import os
import socket
import struct
import sys

ARP = 0x0806
REQUEST, REPLY = 1, 2
BODY = struct.Struct("!HHBBH6s4s6s4s")
PATIENCE = 6 if os.environ.get("KSFT_MACHINE_SLOW") else 1


def main(device, *addresses):
    asked = [socket.inet_aton(address) for address in addresses]
    waiting = set(asked[1:])
    answered = set()
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP))
    sock.bind((device, ARP))
    sock.settimeout(10 * PATIENCE)
    own = sock.getsockname()[4]
    for address in asked:
        # asked by nobody in particular, as before one has an address: no cache
        # of the others changes
        sock.send(b"\xff" * 6 + own + struct.pack("!H", ARP) + BODY.pack(
            1, 0x0800, 6, 4, REQUEST, own, bytes(4), bytes(6), address))
    while waiting:
        frame = sock.recv(2048)
        _, _, _, _, kind, sender, address, _, _ = BODY.unpack(frame[14:42])
        if kind == REPLY and address == asked[0]:
            answered.add(sender)
        elif kind == REPLY:
            waiting.discard(address)
    print("\n".join(sorted(sender.hex(":") for sender in answered)))


if __name__ == "__main__":
    main(*sys.argv[1:])
