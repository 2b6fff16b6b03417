#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Write the first inputs for the fuzzers, from packets as they are on a wire.

Usage: corpus.py DIRECTORY
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "selftests/net/ipvs_mhs"))

from netlab import tcp, udp  # noqa: E402

ADDRESSES = {4: ("10.1.0.2", "10.9.0.1"), 6: ("fd01::2", "fd09::1")}
QUIC_V1, QUIC_V2 = 1, 0x6b3343cf


def packets():
    """Name, number of the protocol in the fuzzer, and the packet."""
    for family, (src, dst) in ADDRESSES.items():
        for name, flags in (("syn", 2), ("ack", 16), ("rst", 4), ("fin", 17),
                            ("synack", 18)):
            yield f"tcp{family}-{name}", 0, tcp(src, 4000, dst, 80, flags)
        yield f"udp{family}", 1, udp(src, 4000, dst, 53, b"query")
        for name, first, version in (("v1", 0xc0, QUIC_V1),
                                     ("v2", 0xd0, QUIC_V2),
                                     ("short", 0x40, 0)):
            data = struct.pack("!BI", first, version) + bytes(16)
            yield f"quic{family}-{name}", 1, udp(src, 4000, dst, 443, data)
        head = tcp(src, 4000, dst, 80)[:40 if family == 6 else 20]
        for name, chunk in (("init", 1), ("data", 0), ("abort", 6)):
            yield (f"sctp{family}-{name}", 2, head +
                   struct.pack("!HHIIBBH", 4000, 80, 1, 0, chunk, 0, 20))


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    base = pathlib.Path(sys.argv[1])
    for part in ("proto", "table"):
        (base / part).mkdir(parents=True, exist_ok=True)
    for name, protocol, packet in packets():
        header = 40 if packet[0] >> 4 == 6 else 20
        for linear in (header, 255):
            (base / "proto" / f"{name}-{linear}").write_bytes(
                bytes((protocol, header, linear)) + packet)
    share = struct.Struct("<II")
    for name, weights in (("even", (1,) * 4), ("far", (1, 100, 2**31 - 1)),
                          ("none", ())):
        servers = b"".join(share.pack(w, 7 * i + 1)
                           for i, w in enumerate(weights))
        # a change, packets, and every tick there is
        (base / "table" / name).write_bytes(
            bytes((len(weights),)) + servers + bytes((0, 1, 3, 0, 0, 2)) +
            bytes((1, 3)) * 16)


main()
