# SPDX-License-Identifier: GPL-2.0-only
"""Sockets in the namespaces of a test, clients that hold flows, and packets made by
hand.
"""
import collections
import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
import time
import types

CLONE_NEWNET = 0x40000000
TCP, UDP, ICMP, ICMP6, SCTP = 6, 17, 1, 58, 132

# Limits of waiting are for hangs: more patience where time is emulated
PATIENCE = 6 if os.environ.get("KSFT_MACHINE_SLOW") else 1
PORTS = range(34000, 65000)     # of clients; the kernel and tests take lower ones

libc = ctypes.CDLL(None, use_errno=True)


def setns(file):
    if libc.setns(file.fileno(), CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns " + file.name)


@contextlib.contextmanager
def netns(name):
    """What is opened in here belongs to that namespace, wherever it is used:
    one process can serve in all of them.  No name: the one we are in."""
    if not name:
        yield
        return
    with open("/proc/self/ns/net", "rb") as home, \
            open(f"/run/netns/{name}", "rb") as there:
        setns(there)
        try:
            yield
        finally:
            setns(home)


def span(text):
    """FIRST-LAST, or one number."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def until(test, wait_s=20):
    """Whether it comes true."""
    end = time.monotonic() + wait_s * PATIENCE
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)    # why: the pace of looks
    return True


class Flow:
    def __init__(self, sock):
        self.sock, self.server = sock, None


def counted(pairs):
    return " ".join(f"{key}={value}" for key, value in pairs)


def number(word):
    for kind in int, float:
        with contextlib.suppress(ValueError):
            return kind(word)
    return word


class Client:
    """Holds flows.  It takes commands, one a line, on standard input.  A command is
    the method of its name; the text that it returns is the answer, and if there is
    none the report, a line of key=value pairs."""
    counts = ()     # what is reported, beside flows and those of each server

    def __init__(self, host="", bind="", first_port=None):
        self.flows, self.source = [], bind
        self.hosts = host.split(",")
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # see flow_start of lib.sh
        self.next_port = (first_port or int(os.environ.get(
            "MHS_FIRST_PORT", PORTS[0]))) - PORTS[0]

    def run(self):
        # select() sees what is not read
        with open(0, "rb", buffering=0) as commands:
            while (line := commands.readline().decode()) not in ("", "quit\n"):
                name, *words = line.split()
                answer = getattr(self, "do_" + name)(*map(number, words))
                if answer != "":
                    print(answer or self.report(), flush=True)

    def clear(self):
        for name in self.counts:
            setattr(self, name, 0)

    def bind(self, sock, address=None):
        """To a port that no flow had before: the kernel, which shuffles its
        choice every ten seconds, may come to one whose entry is still there."""
        for _ in PORTS:
            port = PORTS[self.next_port % len(PORTS)]
            self.next_port += 1
            try:
                sock.bind((address or self.source, port))
                return
            except OSError as err:
                if err.errno != errno.EADDRINUSE:
                    raise

    def do_where(self):
        return counted((f.sock.getsockname()[1], f.server)
                       for f in self.flows) or " "

    def do_close(self):
        for flow in self.flows:
            flow.sock.close()
        self.flows = []

    def report(self):
        servers = collections.Counter(f.server for f in self.flows if f.server)
        return counted([("flows", len(self.flows)),
                        *((key, getattr(self, key)) for key in self.counts),
                        *sorted(servers.items())])


def options(words, known):
    """--KEY VALUE; --KEY of what is False in @known; --KEY VALUE... of what is a list
    there; the others are in rest.  argparse takes long to import in emulation."""
    args = types.SimpleNamespace(**known, rest=[])
    words = list(words)
    while words:
        word = words.pop(0)
        key = word.removeprefix("--")
        if key == word:
            args.rest.append(word)
        elif key not in known:
            sys.exit(f"no option {word}, there are --{' --'.join(known)}")
        elif known[key] is False:
            setattr(args, key, True)
        elif isinstance(known[key], list):
            setattr(args, key, [])
            while words and not words[0].startswith("--"):
                getattr(args, key).append(words.pop(0))
        else:
            setattr(args, key, type(known[key])(words.pop(0)))
    return args


def pack(addr):
    if isinstance(addr, (bytes, bytearray)):
        return addr
    return socket.inet_pton(socket.AF_INET6 if ":" in addr else
                            socket.AF_INET, addr)


def checksum(data):
    """Words of 16 bits added with their carries: a remainder by 65535."""
    number = int.from_bytes(data + b"\0" * (len(data) % 2), "big")
    return ~(number % 65535 or number and 65535) & 0xffff


def ip(src, dst, proto, payload, ident=0, frag=0x4000, ttl=64):
    """An IPv4 or IPv6 packet, by the addresses, which may be packed; frag is
    that of IPv4, ident the flow label of IPv6."""
    src, dst = pack(src), pack(dst)
    if len(src) == 16:
        return struct.pack("!IHBB", 6 << 28 | ident, len(payload), proto,
                           ttl) + src + dst + payload
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), ident,
                       frag, ttl, proto, 0, src, dst)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def summed(src, dst, proto, payload, at):
    """The payload with its checksum, which stands at this offset."""
    pseudo = pack(src) + pack(dst) + struct.pack("!II", len(payload), proto)
    return (payload[:at] + struct.pack("!H", checksum(pseudo + payload)) +
            payload[at + 2:])


def udp(src, sport, dst, dport, data, ident=0):
    seg = struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data
    return ip(src, dst, UDP, summed(src, dst, UDP, seg, 6), ident)


def fragments(packet, size, ident):
    """The same in pieces of @size bytes, a multiple of 8, without DF."""
    v6 = packet[0] >> 4 == 6
    hlen = 40 if v6 else 20
    proto = packet[6 if v6 else 9]
    addrs = packet[8:40] if v6 else packet[12:20]
    src, dst = addrs[:len(addrs) // 2], addrs[len(addrs) // 2:]
    for at in range(0, len(packet) - hlen, size):
        piece = packet[hlen + at:hlen + at + size]
        more = hlen + at + size < len(packet)
        if v6:
            yield ip(src, dst, 44, struct.pack("!BBHI", proto, 0, at | more,
                                               ident) + piece)
        else:
            yield ip(src, dst, proto, piece, ident & 0xffff,
                     at >> 3 | more << 13)


def tcp(src, sport, dst, dport, flags=0x10, data=b"", seq=1, ident=0, ack=1):
    seg = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 5 << 4, flags, 8192,
                      0, 0) + data
    return ip(src, dst, TCP, summed(src, dst, TCP, seg, 16), ident)


def icmp(src, dst, kind, code, info, quoted, ident=0):
    """An ICMP or ICMPv6 message; info is its second word."""
    msg = struct.pack("!BBHI", kind, code, 0, info) + quoted
    if len(pack(src)) == 16:
        return ip(src, dst, ICMP6, summed(src, dst, ICMP6, msg, 2), ident)
    return ip(src, dst, ICMP, msg[:2] + struct.pack("!H", checksum(msg)) +
              msg[4:], ident)


class Sender:
    """Sends whole packets, of any source, from a namespace."""

    def __init__(self, name=""):
        with netns(name):
            self.socks = {
                False: socket.socket(socket.AF_INET, socket.SOCK_RAW,
                                     socket.IPPROTO_RAW),
                True: socket.socket(socket.AF_INET6, socket.SOCK_RAW,
                                    socket.IPPROTO_RAW),
            }
        for sock in self.socks.values():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def __call__(self, dst, packet):
        v6 = packet[0] >> 4 == 6
        self.socks[v6].sendto(packet, (dst, 0))
