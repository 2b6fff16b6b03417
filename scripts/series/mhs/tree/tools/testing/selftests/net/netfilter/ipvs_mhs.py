#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""ipvs_mhs.py serve NAME: answer each request to port 80 by NAME
ipvs_mhs.py client: do what the lines of stdin say, answer each by one line"""

import collections
import select
import selectors
import socket
import struct
import sys
import time

TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, NO_WINDOW_PROBE = 19, 20, 21, -1
SEND = 2
SYN = 2
TIMEOUT = 5


def serve(name):
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("::", 80), family=socket.AF_INET6,
                                    backlog=1000, dualstack_ipv6=True)
    selector.register(listener, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            if sock is listener:
                selector.register(sock.accept()[0], selectors.EVENT_READ)
                continue
            try:
                data = sock.recv(2048)
                sock.sendall(name if data else b"")
            except OSError:
                data = b""
            if not data:
                selector.unregister(sock)
                sock.close()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return struct.pack("!H", ~total & 0xffff)


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else
                            socket.AF_INET, address)


def tcp(source, target, sport, dport, seq, flags):
    head = struct.pack("!HHIIBBHHH", sport, dport, seq, 0, 0x50, flags, 1024,
                       0, 0)
    pseudo = (packed(source) + packed(target) +
              struct.pack("!II", len(head), socket.IPPROTO_TCP))
    return head[:16] + checksum(pseudo + head) + head[18:]


def next_seq(sock):
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND)
    seq = sock.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, NO_WINDOW_PROBE)
    return seq & 0xffffffff


class Client:
    def __init__(self):
        self.flows = []

    def open(self, address, n):
        """Open n flows and keep them; count them by server"""
        counts = collections.Counter()
        for _ in range(int(n)):
            try:
                sock = socket.create_connection((address, 80), TIMEOUT)
                sock.sendall(b"hi")
                name = sock.recv(10).decode()
                self.flows.append((sock, name))
            except OSError:
                name = "failed"
            counts[name] += 1
        return " ".join(f"{name}={n}" for name, n in sorted(counts.items()))

    def check(self):
        """Ask on every flow: the same server answers"""
        waiting = {}
        for sock, name in self.flows:
            try:
                sock.sendall(b"hi")
                waiting[sock] = name
            except OSError:
                pass
        alive = 0
        end = time.monotonic() + TIMEOUT
        while waiting and (left := end - time.monotonic()) > 0:
            for sock in select.select(waiting, [], [], left)[0]:
                name = waiting.pop(sock)
                try:
                    alive += sock.recv(10).decode() == name
                except OSError:
                    pass
        return f"alive={alive} dead={len(self.flows) - alive}"

    def raw(self, protocol, make):
        """Send a packet about each flow that has not ended"""
        sent = 0
        for sock, _ in self.flows:
            kind = sock.family, socket.SOCK_RAW, protocol
            with socket.socket(*kind) as raw:
                try:
                    source, target = sock.getsockname(), sock.getpeername()
                    raw.sendto(make(sock, source, target), (target[0], 0))
                    sent += 1
                except OSError:
                    pass
        return sent

    def forge(self, number, flags=SYN):
        """A SYN for each flow, of this number or just before its own"""
        def make(sock, source, target):
            seq = next_seq(sock) - 1 if number == "own" else int(number)
            return tcp(source[0], target[0], source[1], target[1],
                       seq & 0xffffffff, int(flags))

        return f"forged={self.raw(socket.IPPROTO_TCP, make)}"

    def icmp(self):
        """A port or host unreachable about each flow, from the client"""
        def make(sock, source, target):
            quoted = struct.pack("!HHI", target[1], source[1], 0)
            if sock.family == socket.AF_INET6:
                head = (struct.pack("!IHBB", 6 << 28, 20, 6, 64) +
                        packed(target[0]) + packed(source[0]))
                return struct.pack("!BBHI", 1, 4, 0, 0) + head + quoted
            head = (struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) +
                    packed(target[0]) + packed(source[0]))
            head = head[:10] + checksum(head) + head[12:]
            error = struct.pack("!BBHI", 3, 3, 0, 0) + head + quoted
            return error[:2] + checksum(error) + error[4:]

        protocol = (socket.IPPROTO_ICMPV6 if self.flows[0][0].family ==
                    socket.AF_INET6 else socket.IPPROTO_ICMP)
        return f"sent={self.raw(protocol, make)}"

    def close(self):
        for sock, _ in self.flows:
            sock.close()
        self.flows = []
        return "closed"


def main():
    if sys.argv[1] == "serve":
        serve(sys.argv[2].encode())
    client = Client()
    for line in sys.stdin:
        words = line.split()
        print(getattr(client, words[0])(*words[1:]), flush=True)


if __name__ == "__main__":
    main()
