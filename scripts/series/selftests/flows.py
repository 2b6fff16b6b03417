#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""flows.py serve NAME ADDRESS PORT...: answer every request by NAME, over TCP
    and UDP at any address, over SCTP at this one
flows.py blast ADDRESS PORT: send datagrams until killed
flows.py method N ADDRESS PORT SERVER: edit a server of a UDP service of mhs to
    forwarding method N, any number: netlink takes the same, ipvsadm does not
flows.py client: do what the lines of stdin say, answer each by one line"""

import collections
import selectors
import socket
import struct
import sys

TIMEOUT = 5
IP_VS_SO_SET_EDITDEST = 1161

# Requests: QUIC's packets by their first bytes, the form, the type and the
# version, which IPVS reads
REQUESTS = {
    "hi": b"hi\n",
    "initial": b"\xc0\0\0\0\1",
    "0rtt": b"\xd0\0\0\0\1",
    "handshake": b"\xe0\0\0\0\1",
    "initial2": b"\xd0\x6b\x33\x43\xcf",
    "handshake2": b"\xf0\x6b\x33\x43\xcf",
    "unknown": b"\xc0\x0a\x0a\x0a\x0a",
    "short": b"\x40\0\0\0\1",
}


def method(number, address, port, server):
    port = socket.htons(int(port))
    service = struct.pack("@H2x4sH2xI16sIII", socket.IPPROTO_UDP,
                          socket.inet_aton(address), port, 0, b"mhs", 0, 0,
                          0xffffffff)
    dest = struct.pack("@4sH2xIiII", socket.inet_aton(server), port,
                       int(number), 1, 0, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW,
                       socket.IPPROTO_RAW) as sock:
        sock.setsockopt(socket.IPPROTO_IP, IP_VS_SO_SET_EDITDEST,
                        service + dest)


def listeners(address, port):
    """The sockets of a server, and what they are"""
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        sock = socket.socket(socket.AF_INET6, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # UDP: the address that was asked must answer
        if kind == socket.SOCK_DGRAM:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        sock.bind(("::", port))
        yield sock, "udp" if kind == socket.SOCK_DGRAM else "accept"
    # an association has all addresses that its socket is bound to
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM,
                         socket.IPPROTO_SCTP)
    sock.bind((address, port))
    yield sock, "accept"


def serve(name, address, *ports):
    selector = selectors.DefaultSelector()
    for port in ports:
        for sock, what in listeners(address, int(port)):
            if what == "accept":
                sock.listen(1000)
            selector.register(sock, selectors.EVENT_READ, what)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            if key.data == "accept":
                selector.register(sock.accept()[0], selectors.EVENT_READ)
                continue
            if key.data == "udp":
                _, ancillary, _, peer = sock.recvmsg(2048, 256)
                sock.sendmsg([name], ancillary, 0, peer)
                continue
            try:
                data = sock.recv(2048)
                if data == b"long\n":
                    sock.setblocking(True)
                    sock.sendall(name + b"x" * 100000)
                elif data == b"PASV\r\n":
                    # as FTP: the data connection comes to this port, too
                    address, port = sock.getsockname()[:2]
                    where = [*address.removeprefix("::ffff:").split("."), "0",
                             str(port)]
                    sock.sendall(b"227 Entering Passive Mode (%s)\r\n" %
                                 ",".join(where).encode())
                elif data:
                    sock.sendall(name)
            except OSError:
                data = b""
            if not data:
                selector.unregister(sock)
                sock.close()


class Client:
    def __init__(self):
        self.flows = []

    @staticmethod
    def ask(sock, request=REQUESTS["hi"], size=2):
        sock.sendall(request)
        answer = b""
        while len(answer) < size:
            data = sock.recv(65536)
            if not data:
                raise OSError("closed")
            answer += data
        return answer[:2].decode()

    @staticmethod
    def report(counts):
        return " ".join(f"{name}={n}" for name, n in sorted(counts.items()))

    def open(self, kind, protocol, address, port, n, request="hi"):
        """Open n flows and keep them; count them by server."""
        counts = collections.Counter()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for _ in range(int(n)):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(TIMEOUT)
                sock.connect((address, int(port)))
                name = self.ask(sock, REQUESTS[request])
                self.flows.append((sock, name))
            except OSError:
                name = "failed"
                sock.close()
            counts[name] += 1
        return self.report(counts)

    def tcp(self, *where):
        return self.open(socket.SOCK_STREAM, socket.IPPROTO_TCP, *where)

    def udp(self, *where):
        return self.open(socket.SOCK_DGRAM, socket.IPPROTO_UDP, *where)

    def sctp(self, *where):
        return self.open(socket.SOCK_STREAM, socket.IPPROTO_SCTP, *where)

    def pasv(self, address, port):
        """Open an FTP connection; ask where the data connection is to go"""
        sock = socket.create_connection((address, int(port)), TIMEOUT)
        self.flows.append((sock, ""))
        sock.sendall(b"PASV\r\n")
        return sock.recv(200).decode().strip()

    def check(self, request="hi"):
        """Ask on every flow: its server must be the same."""
        counts = collections.Counter(alive=0, moved=0, dead=0)
        for sock, name in self.flows:
            try:
                counts["alive" if self.ask(sock, REQUESTS[request]) == name
                       else "moved"] += 1
            except OSError as error:
                if not counts["dead"]:
                    print(f"# a flow to {name}: {error!r}", file=sys.stderr)
                counts["dead"] += 1
        return self.report(counts)

    def close(self):
        for sock, _ in self.flows:
            sock.close()
        self.flows = []
        return "closed"

    def long(self):
        """A long answer on every connection, for path MTU discovery"""
        counts = collections.Counter(whole=0, short=0)
        for sock, name in self.flows:
            try:
                self.ask(sock, b"long\n", 100002)
                counts["whole"] += 1
            except OSError:
                counts["short"] += 1
        return self.report(counts)

    def synack(self, address, port, n):
        """A lone SYN with ACK from each of n ports, of flows that are not"""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, int(port)))
            pair = (socket.inet_aton(sock.getsockname()[0]) +
                    socket.inet_aton(address))
        with socket.socket(socket.AF_INET, socket.SOCK_RAW,
                           socket.IPPROTO_TCP) as sock:
            for i in range(int(n)):
                head = struct.pack("!HHIIBBHHH", 20000 + i, int(port), 1, 1,
                                   0x50, 0x12, 1024, 0, 0)
                data = pair + struct.pack("!HH", socket.IPPROTO_TCP, 20) + head
                total = sum(struct.unpack("!16H", data))
                total = (total & 0xffff) + (total >> 16)
                total = ~(total + (total >> 16)) & 0xffff
                sock.sendto(head[:16] + struct.pack("!H", total) + head[18:],
                            (address, 0))
        return "sent"

    def blast(self, address, port, n):
        """Datagrams from n ports, whose answers nobody waits for"""
        for i in range(int(n)):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                try:
                    sock.bind(("", 20000 + i % 40000))
                    sock.sendto(b"hi\n", (address, int(port)))
                except OSError:
                    pass
        return "sent"


def main():
    if sys.argv[1] == "serve":
        serve(sys.argv[2].encode(), *sys.argv[3:])
    if sys.argv[1] == "method":
        method(*sys.argv[2:])
        return
    client = Client()
    while sys.argv[1] == "blast":
        client.blast(sys.argv[2], sys.argv[3], 40000)
    for line in sys.stdin:
        words = line.split()
        print(getattr(client, words[0])(*words[1:]), flush=True)


if __name__ == "__main__":
    main()
