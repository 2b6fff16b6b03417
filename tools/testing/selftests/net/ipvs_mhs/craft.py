# SPDX-License-Identifier: GPL-2.0-only
"""Packets made by hand and the wire to a director, for tests without servers.

The test is the whole world around the director: it owns the other end of the
director's only link, so it is every client and every server.  A packet is
bytes, from the IP header on; addresses are packed.

"""
import os
import socket
import struct
import subprocess

import netlab
from netlab import (ICMP, ICMP6, PATIENCE, SCTP, TCP, UDP,  # noqa: F401
                    checksum, ip, pack as addr, setns, summed, until)

FIN, SYN, RST, ACK = 1, 2, 4, 16
IPIP, IPV6 = 4, 41
DIRECTOR = "02:00:00:00:01:00"  # see lib_lone.sh
SERVER = "02:00:00:00:00:{}"
VIP = {4: "10.9.0.1", 6: "fd09::1"}
CLIENT = {4: "10.1.0.2", 6: "fd01::2"}
ROUTER = {4: "10.1.0.1", 6: "fd01::1"}
REAL = {4: "10.2.0.{}:{}", 6: "[fd02::{}]:{}"}
LONG_MS = 3600000
ETH = {4: b"\x08\x00", 6: b"\x86\xdd"}
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


def tcp(src, dst, sport, dport, flags, ident=0, seq=None, data=b""):
    """The number is that of a flow's first or next segment, unless given."""
    if seq is None:
        seq = 1 if flags & SYN else 2
    return netlab.tcp(src, sport, dst, dport, flags, data, seq, ident)


def udp(src, dst, sport, dport, data=b"x", ident=0):
    return netlab.udp(src, sport, dst, dport, data, ident)


def sctp(src, dst, sport, dport, chunk):
    """A packet of one chunk."""
    return ip(src, dst, SCTP, struct.pack("!HHIIBBH", sport, dport, 1, 0, chunk,
                                          0, 20) + bytes(16))


def too_big(router, dst, quoted, ident=0, mtu=1400):
    """An ICMP error from a router about a packet."""
    kind, code = (2, 0) if len(dst) == 16 else (3, 4)
    return netlab.icmp(router, dst, kind, code, mtu, quoted, ident)


def echo(src, dst, seq):
    return netlab.icmp(src, dst, 128 if len(dst) == 16 else 8, 0,
                       0x6d68 << 16 | seq & 0xffff, b"")


def ports_of(packet):
    """(virtual port, client port, is it an answer of the director itself?)"""
    at = 40 if packet[0] >> 4 == 6 else 20
    proto = packet[6] if at == 40 else packet[9]
    own = None
    if proto in (ICMP, ICMP6):
        code = packet[at:at + 2]
        # of the director, or on its way to a server
        own = "refused" if code in (b"\3\3", b"\1\4") else None
        at += 8 + at
        swap = not own
    else:
        swap = packet[at + 13] & RST
        own = "reset" if swap else None
    a, b = packet[at:at + 2], packet[at + 2:at + 4]
    if swap:
        a, b = b, a
    return int.from_bytes(b, "big"), int.from_bytes(a, "big"), own


class Wire:
    """The outer end of the director's link, as a raw socket."""

    def __init__(self, dev, mac=DIRECTOR, listens=True):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                  socket.htons(3 if listens else 0))
        self.sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        if listens:
            for opt in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
                self.sock.setsockopt(socket.SOL_SOCKET, opt, 64 << 20)
        # otherwise a full buffer waits, so that no queue on the way drops
        self.sock.bind((dev, 0))
        self.sock.settimeout(10 * PATIENCE)
        self.head = bytes.fromhex(mac.replace(":", "")) + b"\2\0\0\0\0\1"
        self.ping = addr(CLIENT[4]), addr("10.2.0.10")
        self.seq = 0

    def send(self, packet):
        kind = ETH[6 if packet[0] >> 4 == 6 else 4]
        self.sock.send(self.head + kind + packet)

    def answers(self):
        """What has come, as (MAC address it is for, packet), when all that
        was sent is through: the answer to an echo comes last."""
        self.seq += 1
        self.send(echo(*self.ping, self.seq))
        mine = struct.pack("!HH", 0x6d68, self.seq)
        got = []
        while True:
            frame = self.sock.recv(65536)
            if frame[12:14] not in ETH.values() or len(frame) < 14 + 28:
                continue
            packet = frame[14:]
            if packet[6 if packet[0] >> 4 == 6 else 9] in (IPIP, IPV6):
                packet = packet[40 if packet[0] >> 4 == 6 else 20:]
            l4 = packet[40:] if packet[0] >> 4 == 6 else packet[20:]
            if l4[4:8] == mine and l4[0] in (0, 129):
                return got
            got.append((frame[:6].hex(":"), packet))

    def ask(self, packets):
        """packets: (virtual port, client port, packet), each pair of ports
        once; returns who got the packet, by the ports: a MAC address, the
        director's answer (reset, refused), or lost."""
        words = {}
        for vport, port, packet in packets:
            words[vport, port] = "lost"
            self.send(packet)
        for mac, packet in self.answers():
            packet += bytes(64)     # whatever came, there are ports to read
            vport, port, own = ports_of(packet)
            if (vport, port) in words:
                words[vport, port] = own or mac
        return words


def enter(namespace):
    """From now on in this network namespace; sockets stay where they are."""
    with open(namespace) as f:
        setns(f)


class Service:
    """A service of TCP, whose servers are 11, 12 and so on."""

    def __init__(self, family, port):
        self.family, self.port = family, port
        self.vip, self.client = addr(VIP[family]), addr(CLIENT[family])
        host = VIP[family] if family == 4 else f"[{VIP[family]}]"
        self.name = f"-t {host}:{port}"

    def real(self, what, n, more=""):
        """A line of ipvsadm for a server"""
        server = REAL[self.family].format(n, self.port)
        return f"{what} {self.name} -r {server} {more}"

    def segment(self, port, flags, **words):
        return tcp(self.client, self.vip, port, self.port, flags, **words)


def check(name, good, text=""):
    print(name, int(not good), text, sep="\t", flush=True)


def vs_sysctl(name, value):
    with open("/proc/sys/net/ipv4/vs/" + name, "w") as f:
        f.write(str(value))


def windows(hold_ms, pin_ms):
    vs_sysctl("mhs/hold_ms", hold_ms)
    vs_sysctl("mhs/pin_ms", pin_ms)


def ipvsadm(lines):
    """Whoever reads the file has mhs rebuild its tables, so they are new then."""
    subprocess.run(["ipvsadm", "-R"], input="\n".join(lines) + "\n",
                   text=True, check=True)
    if os.path.exists("/proc/net/ip_vs_mhs"):
        mhs_state()


def mhs_state():
    """/proc/net/ip_vs_mhs: rows as dictionaries, by protocol and service."""
    with open("/proc/net/ip_vs_mhs") as f:
        names, *rows = (line.split() for line in f)
    return {" ".join(row[:2]): dict(zip(names, row)) for row in rows}


def stable(row):
    return row["State"] == "stable"


def rebuilt(row):
    return row["State"] in ("stable", "transition")


def pinning(row):
    return row["Hold"] == "0"


def merged(row):
    return stable(row) and row["Gone"] == "0"


def wait(test, what):
    if not until(test):
        raise SystemExit(f"waited too long for {what}")


def wait_all(test):
    """Until that holds of each service of mhs."""
    wait(lambda: all(map(test, mhs_state().values())), test.__name__)
