# SPDX-License-Identifier: GPL-2.0-only
"""Shapes of packets, odd, broken and nested ones of each kind, as lists of bytes
from the IP header on; and how they are spoiled further."""
import functools
import struct

import craft
import netlab
from craft import (ACK, FIN, ICMP, RST, SCTP, SYN, TCP, UDP, addr, checksum,
                   ip, summed, tcp, udp)

# by direct routing, IPIP, GUE, GRE
PORTS = (80, 81, 82, 83)
OWN = 84    # of servers, in no service
CHANGES = (0, 0, 0, 1, 1, 1, 2, 4)      # bytes of a packet
CLIENT, VIP, ROUTER, SERVER, DIRECTOR = (
    {family: addr(text) for family, text in texts.items()} for texts in (
        craft.CLIENT, craft.VIP, craft.ROUTER,
        {4: "10.2.0.12", 6: "fd02::12"}, {4: "10.2.0.10", 6: "fd02::10"}))


def l4s(src, dst, sport, dport, flags):
    """(protocol, payload): TCP, UDP and SCTP; spoiled() cuts and breaks them."""
    head = struct.pack("!HHIIBBHHH", sport, dport, 1, 1, 0x50, 0, 8192, 0, 0)
    for flag in flags:
        yield TCP, summed(src, dst, TCP, head[:13] + bytes([flag]) + head[14:],
                          16)
    yield TCP, head[:12] + b"\x80\x10" + head[14:] + b"\x02\0\x08\xff" * 3
    for length in (0, 12, 65535):
        yield UDP, head[:4] + struct.pack("!HH", length, 0) + b"data"
    for kind in (0, 1, 2, 6, 7, 8, 10, 14, 255):
        yield SCTP, head[:4] + bytes(8) + bytes([kind, 0, 0, 20]) + bytes(16)


def options4(packet, opts):
    """An IPv4 packet with options."""
    opts += bytes(-len(opts) % 4)
    head = bytearray(packet[:20])
    head[0] = 0x45 + len(opts) // 4
    head[2:4] = struct.pack("!H", len(packet) + len(opts))
    return bytes(head) + opts + packet[20:]


def fragments(packet, ident):
    """A packet in overlapping, tiny, lone and doubled fragments."""
    v6 = packet[0] >> 4 == 6
    body = packet[40:] if v6 else packet[20:]
    body += bytes(64 - len(body) % 64)
    for first, last, more in ((0, 8, 1), (8, 16, 1), (0, 16, 1), (8, 64, 0),
                              (0, 64, 0), (4096, 4160, 0), (65528, 65592, 1)):
        part = body[first:last] or body[:64]
        if v6:
            frag = struct.pack("!BBHI", packet[6], 0, first | more, ident)
            yield ip(packet[8:24], packet[24:40], 44, frag + part)
        else:
            yield ip(packet[12:16], packet[16:20], packet[9], part,
                     ident & 0xffff, more << 13 | first >> 3 & 0x1fff)


def tunnels(inner, family):
    """The inner packet as sent to servers, as a router would quote it."""
    out = DIRECTOR[family]
    for last in (11, 12, 13, 99):
        server = out[:-1] + bytes([last if family == 4 else
                                   int(str(last), 16)])
        yield ip(out, server, 4 if family == 4 else 41, inner)
        for flags in (0, 0x8000, 0x2000, 0xb000):
            yield ip(out, server, 47, struct.pack("!HH", flags, 0x0800) + inner)
        for first in (0, 1, 31, 0x20, 0x40):
            yield ip(out, server, UDP, struct.pack(
                "!HHHHBBH", 6080, 6080, 12 + len(inner), 0, first, 4, 0) +
                inner)


def errors(family, quoted, dst):
    """ICMP errors about a packet, cut at awkward places."""
    types = ((1, 4), (2, 0), (3, 0), (4, 1)) if family == 6 else (
        (3, 4), (3, 3), (4, 0), (5, 1), (11, 0), (12, 0))
    for kind, code in types:
        for size in (len(quoted), 0, 20, 24, 44):
            yield netlab.icmp(ROUTER[family], dst, kind, code, 1400,
                              quoted[:size])


def extensions(packet):
    """An IPv6 packet behind chains of extension headers."""
    src, dst, proto, body = packet[8:24], packet[24:40], packet[6], packet[40:]

    def chain(kinds, more=bytes(6), size=0):
        data, following = body, proto
        for kind in reversed(kinds):
            data = bytes([following, size]) + more + data
            following = kind
        return ip(src, dst, following, data)

    for kinds in ([0], [60], [43], [51], [50], [59], [135], [0, 43, 60],
                  [60] * 8, [60] * 40, [60, 0], [43, 44, 60], [44], [44, 44]):
        yield chain(kinds)
        yield chain(kinds, b"\1\4\0\0\0\0")
        yield chain(kinds, size=255)
    yield chain([0], b"\xc2\4\0\1\0\0")     # a jumbogram
    yield chain([43], b"\0\1\0\0\0\0")


@functools.cache
def shapes(family):
    """Lists of them, by kind."""
    c, v, s = CLIENT[family], VIP[family], SERVER[family]
    flags = [ACK, 0, SYN | FIN, SYN | RST, RST, FIN, 0xff, FIN | 0x28,
             SYN | ACK, SYN | FIN | RST | ACK, SYN, SYN | 0xc0]
    sound = [ip(c, v, proto, data) for n, port in enumerate(PORTS)
             for proto, data in l4s(c, v, 20000 + n, port, flags)
             if proto == TCP or port == PORTS[0]]
    replies = [ip(s, c, proto, data)
               for proto, data in l4s(s, c, OWN, 20007, flags)]
    plain = [tcp(c, v, 20010, p, ACK) for p in PORTS] + [udp(c, v, 20010, 80)]
    answer = [tcp(v, c, p, 20010, ACK) for p in PORTS]
    answer += [udp(v, c, 80, 20010), tcp(s, c, OWN, 20010, ACK)]
    split = [f for n, packet in enumerate(plain + answer[-1:])
             for f in fragments(packet, n)]
    if family == 6:
        odd = [e for packet in plain for e in extensions(packet)]
    else:
        odd = [options4(packet, opts) for packet in plain for opts in (
            b"\1", b"\0", b"\7\7\4\0\0\0\0", b"\7\1", b"\7\xff\4",
            b"\x44\x08\5\0\0\0\0\0", b"\x83\7\4\x0a\1\0\1",
            b"\x89\7\4\x0a\1\0\1", b"\x94\4\0\0", b"\1" * 40)]
    about = [e for quoted in answer for e in errors(family, quoted, v)]
    # about what a masquerading server got
    about += errors(family, tcp(c, s, 20010, OWN, ACK), c)
    inside = [e for packet in plain for quoted in tunnels(packet, family)
              for e in errors(family, quoted, DIRECTOR[family])]
    nested = [e for inner in errors(family, answer[0], v)
              for e in errors(family, inner, v)]
    others = [ip(c, v, proto, bytes(24)) for proto in (0, 4, 41, 47, 50, 136)]
    return [sound, replies, split, odd, about, inside, nested, others]


def repair(packet):
    """The checksums that a packet must pass to get far."""
    if packet[0] >> 4 == 4:
        end = (packet[0] & 15) * 4
        packet[10:12] = b"\0\0"
        packet[10:12] = struct.pack("!H", checksum(bytes(packet[:end])))
        if packet[9] == ICMP and len(packet) > end + 4:
            packet[end + 2:end + 4] = b"\0\0"
            packet[end + 2:end + 4] = struct.pack(
                "!H", checksum(bytes(packet[end:])))


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
