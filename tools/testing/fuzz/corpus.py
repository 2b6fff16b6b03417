#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The first inputs for the fuzzers, a directory in DIRECTORY for each.

Usage: corpus.py seeds DIRECTORY   write those with names, from packets as they
                                   are on a wire
       corpus.py all DIRECTORY     these, and what fuzzers found: corpus/*.hex
       corpus.py pack DIRECTORY    write corpus/*.hex from all that is there
                                   and that is no seed
"""
import hashlib
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "selftests/net/ipvs_mhs"))

from netlab import checksum, icmp, ip, tcp, udp  # noqa: E402

CORPUS = HERE / "corpus"
FUZZERS = "packet", "table"
HEAD = "# Inputs that a fuzzer found, one a line: make merge writes this file"
ADDRESSES = {4: ("10.1.0.2", "10.9.0.1"), 6: ("fd01::2", "fd09::1")}


def sctp(src, sport, dst, dport):
    """With a chunk of data; the fuzzer makes the checksum."""
    return ip(src, dst, 132, struct.pack("!HHIIBBH", sport, dport, 1, 0, 0, 0,
                                         4))


SERVERS = {4: ("10.2.0.1", "10.2.0.2", "10.2.0.3"),
           6: ("fd02::1", "fd02::2", "fd02::3")}
ROUTERS = {4: "10.1.0.77", 6: "fd01::77"}
RIGHT, FOUND, MADE = 0x40, 1, 4     # checksums are made right; entries
HOLD, PIN, TRACKED, NFCT, CONFIRMED = 1, 2, 4, 0x20, 0x40
GONE = 2        # the first server
SETTLING, ENDED, STATEFUL, FULL = 1, 2, 4, 8
EMPTY = 1       # no server
SERVICES = ((tcp, 80), (udp, 53), (udp, 443), (sctp, 80))
MARKED = 0x20   # the service is by firewall mark
IDS = 2         # QUIC servers issue connection IDs
MASQ, TUNNEL, DROUTE = 0, 0x15, 0x2a


def segment(make, *flow):
    return make(*flow, *([b"query"] if make is udp else []))


def errors(family, to, quoted):
    router = ROUTERS[family]
    for kind, code in ((2, 0), (1, 4)) if family == 6 else ((3, 4), (11, 0)):
        yield icmp(router, to, kind, code, 1400, quoted)


def tunnelled(packet, server):
    """The packet in each kind of tunnel: number of the kind, packet."""
    gue = struct.pack("!HHHHBBH", 6080, 6080, 12 + len(packet), 0, 0, 4, 0)
    director = "10.2.0.10"
    yield 0, ip(director, server, 4, packet)
    yield 1, ip(director, server, 17, gue + packet)
    yield 2, ip(director, server, 47, struct.pack("!HH", 0, 0x0800) + packet)
    yield 2, ip(director, server, 47, struct.pack(
        "!HHHH", 0x8000, 0x0800, checksum(packet), 0) + packet)


def extended(packet):
    """An IPv6 packet behind a routing header and a header of options."""
    return ip(packet[8:24], packet[24:40], 60, bytes([43, 0, 1, 4]) +
              bytes(4) + bytes([packet[6]]) + bytes(7) + packet[40:])


def paths():
    """Packets as the module sees them: name, service, methods of servers,
    packet."""
    for family, (client, vip) in ADDRESSES.items():
        for number, (make, port) in enumerate(SERVICES):
            name = f"{make.__name__}{port}-{family}"
            request = segment(make, client, 4000, vip, port)
            direct = segment(make, vip, port, client, 4000)
            yield f"request-{name}", number, MASQ, request
            yield f"routed-{name}", number, DROUTE, request
            for i, error in enumerate(errors(family, vip, direct)):
                yield f"error-{name}-{i}", number, DROUTE, error
                yield f"error-masq-{name}-{i}", number, MASQ, error
            if family == 4:
                # an error that quotes a fragment from the middle of a packet
                piece = ip(vip, client, direct[9], direct[20:], 0, 1)
                yield (f"piece-{name}", number, DROUTE,
                       next(errors(4, vip, piece)))
            for n, server in enumerate(SERVERS[family]):
                if family == 4:
                    for i, (kind, outer) in enumerate(
                            tunnelled(request, server)):
                        error = next(errors(4, "10.2.0.10", outer))
                        yield (f"tunnel-{name}-{n}-{i}", number,
                               TUNNEL | kind << 6, error)
            if family == 6:
                yield f"extended-{name}", number, DROUTE, extended(request)
                yield (f"extended-error-{name}", number, DROUTE,
                       next(errors(6, vip, extended(direct))))


def setting(path, methods, slots=0, service=0, states=0, answers=RIGHT,
            life=0):
    return bytes((path, methods, slots, service, states, answers, life, 8,
                  255))


def lives():
    """What the phase of a service and stateless=0 change: name, setting,
    packet."""
    for family, (client, vip) in ADDRESSES.items():
        for number, (make, port) in enumerate(SERVICES):
            name = f"{make.__name__}{port}-{family}"
            path = (family == 6) | number << 3
            request = segment(make, client, 4000, vip, port)
            yield (f"phase{SETTLING}-{name}",
                   setting(path, DROUTE, life=SETTLING), request)
            yield f"empty-{name}", setting(path, DROUTE, 0, EMPTY), request
            for life in (STATEFUL, STATEFUL | FULL, STATEFUL | SETTLING):
                yield (f"stateful{life}-{name}",
                       setting(path, DROUTE, 0, 0, 0, RIGHT | MADE, life),
                       request)
            yield f"output-{name}", setting(path | 4, DROUTE), request
            # in a transition; with the mark of a service; and to another
            # address of this host
            direct = segment(make, vip, port, client, 4000)
            for i, error in enumerate(errors(family, vip, direct)):
                yield f"older-error-{name}-{i}", setting(path, DROUTE, HOLD), error
                yield (f"marked-error-{name}-{i}",
                       setting(path | MARKED, DROUTE, 0, MARKED), error)
            yield (f"elsewhere-error-{name}", setting(path, DROUTE),
                   next(errors(family, SERVERS[family][0], direct)))
        path = family == 6
        for name, flags in (("syn", 2), ("synack", 18)):
            yield (f"opened-{name}-{family}",
                   setting(path, DROUTE, 0, 0, 0, RIGHT | MADE, STATEFUL),
                   tcp(client, 4000, vip, 80, flags))
        yield (f"last-{family}", setting(path, DROUTE, PIN, 0, 0, RIGHT | MADE),
               tcp(client, 4000, vip, 80))


def ids():
    """QUIC whose servers issue connection IDs: name, setting, packet."""
    for family, (client, vip) in ADDRESSES.items():
        path = (family == 6) | IDS | 2 << 3
        for server in 1, 2, 9:
            number = b"\7\0\0\0" if family == 6 else b"\7\x0a\2\0"
            number += bytes([server]) + bytes(4)
            for name, head in (
                    ("short", b"\x40"), ("handshake", b"\xe0\0\0\0\1\x09"),
                    ("handshake2", b"\xf0\x6b\x33\x43\xcf\x09"),
                    ("initial", b"\xc0\0\0\0\1\x09")):
                packet = udp(client, 4000, vip, 443, head + number)
                name = f"id-{name}-{server}-{family}"
                yield name, setting(path, DROUTE), packet
                yield f"{name}-masq", setting(path, MASQ), packet
                yield (f"{name}-stateful", setting(
                    path, DROUTE, 0, 0, 0, RIGHT | MADE, STATEFUL), packet)
                yield (f"{name}-{SETTLING}",
                       setting(path, DROUTE, life=SETTLING), packet)
                if family == 4:
                    for kind, outer in tunnelled(packet, SERVERS[4][2]):
                        yield (f"{name}-tunnel-{kind}",
                               setting(path, TUNNEL | kind << 6),
                               next(errors(4, "10.2.0.10", outer)))


def seeds():
    """The fuzzer, the name of the input, the input."""
    for name, service, methods, packet in paths():
        path = (packet[0] >> 4 == 6) | service << 3
        yield "packet", name, setting(path, methods) + packet
    for name, world, packet in (*lives(), *ids()):
        yield "packet", name, world + packet
    # a SYN that has the entry of a flow that has ended, at a deleted server, both with
    # conntrack entries
    for family, (client, vip) in ADDRESSES.items():
        for slots in (HOLD | TRACKED | NFCT,
                      HOLD | TRACKED | NFCT | CONFIRMED):
            yield ("packet", f"anew-{family}-{slots:x}",
                   setting(family == 6, DROUTE, slots, 0, GONE,
                           RIGHT | FOUND | MADE, ENDED) +
                   tcp(client, 4000, vip, 80, 2))
    share = struct.Struct("<II")
    for name, weights in (("even", (1,) * 4), ("far", (1, 100, 2**31 - 1)),
                          ("none", ())):
        servers = b"".join(share.pack(w, 7 * i + 1)
                           for i, w in enumerate(weights))
        # a change, packets, and every tick there is
        yield ("table", name,
               bytes((len(weights),)) + servers + bytes((0, 1, 3, 0, 0, 2)) +
               bytes((1, 3)) * 16)


def found():
    """The same of what fuzzers found."""
    for fuzzer in FUZZERS:
        for line in (CORPUS / f"{fuzzer}.hex").read_text().splitlines():
            if not line.startswith("#"):
                data = bytes.fromhex(line)
                yield fuzzer, hashlib.sha1(data).hexdigest(), data


def write(inputs, base):
    for fuzzer in FUZZERS:
        (base / fuzzer).mkdir(parents=True, exist_ok=True)
    for fuzzer, name, data in inputs:
        (base / fuzzer / name).write_bytes(data)


def pack(base):
    known = {(fuzzer, data) for fuzzer, _, data in seeds()}
    for fuzzer in FUZZERS:
        inputs = {path.read_bytes() for path in (base / fuzzer).iterdir()}
        lines = sorted((data.hex() for data in inputs
                        if (fuzzer, data) not in known),
                       key=lambda line: (len(line), line))
        (CORPUS / f"{fuzzer}.hex").write_text("".join(
            f"{line}\n" for line in (HEAD, *lines)))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("seeds", "all", "pack"):
        sys.exit(__doc__.strip())
    what, base = sys.argv[1], pathlib.Path(sys.argv[2])
    if what == "pack":
        pack(base)
        return
    write(seeds(), base)
    if what == "all":
        write(found(), base)


main()
