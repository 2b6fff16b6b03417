#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""ipvs_mhs.py serve NAME: answer each request to port 80 by NAME
ipvs_mhs.py client: do what the lines of stdin say, answer each by one line"""

import collections
import contextlib
import select
import socket
import socketserver
import struct
import sys
import time

SYN = 2
TIMEOUT = 5


class Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 1000


class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            while self.request.recv(2048):
                self.request.sendall(sys.argv[2].encode())


def serve():
    with Server(("::", 80), Answer) as server:
        print("ready", flush=True)
        server.serve_forever()


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

    def forge(self, seq, flags=SYN):
        """A packet for each flow, a SYN if nothing is said"""
        def make(sock, source, target):
            return tcp(source[0], target[0], source[1], target[1], int(seq),
                       int(flags))

        return f"forged={self.raw(socket.IPPROTO_TCP, make)}"

    def send(self, address, first, count, *packets):
        """SEQ:FLAGS... of COUNT flows, from port FIRST on"""
        kind = (socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_RAW, socket.IPPROTO_TCP)
        with socket.socket(*kind) as raw:
            raw.connect((address, 0))
            source = raw.getsockname()[0]
            for port in range(int(first), int(first) + int(count)):
                for packet in packets:
                    seq, flags = map(int, packet.split(":"))
                    raw.send(tcp(source, address, port, 80, seq, flags))
        return "sent"

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
        serve()
    client = Client()
    for line in sys.stdin:
        words = line.split()
        print(getattr(client, words[0])(*words[1:]), flush=True)


if __name__ == "__main__":
    main()
