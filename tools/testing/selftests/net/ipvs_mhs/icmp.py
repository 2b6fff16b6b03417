#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""ICMP and ICMPv6 errors about flows, and where they arrive.

usage: icmp.py client N NAMESPACE...

One process for the client and for what the N directors and the servers see.  A client
as of netlab.py, with these commands:

    open PROTO N    open N flows of each family, tcp to port 80, udp to 53
    ask             ask on every flow which server has it now
    errors KIND     as if a router on the client's side could not deliver the
                    servers' packets of these flows: frag, port, ttl
    unknown         the same about a service that does not exist
    sender NAME     the next errors come from that namespace
    close, quit

lost: no answer to open or ask; of the errors sent: right (at the server of the flow),
wrong (at another one), local (at a director's own stack), missing (nowhere).
"""
import select
import socket
import struct
import sys

sys.dont_write_bytecode = True

import netlab  # noqa: E402

SIDES = {   # virtual address, client, router
    socket.AF_INET: ("10.9.0.1", "10.1.0.2", "10.1.0.77"),
    socket.AF_INET6: ("fd09::1", "fd01::2", "fd01::77"),
}
KINDS = {   # type and code, info, by family
    "frag": ((3, 4, 1400), (2, 0, 1400)),
    "port": ((3, 3, 0), (1, 4, 0)),
    "ttl": ((11, 0, 0), (3, 0, 0)),
}
BURST = 20      # on their way at a time, which every buffer holds


class Flow(netlab.Flow):
    def __init__(self, family, proto):
        super().__init__(socket.socket(family, socket.SOCK_STREAM if proto ==
                                       netlab.TCP else socket.SOCK_DGRAM))
        self.vip, self.client, self.router = SIDES[family]
        self.v6 = family == socket.AF_INET6
        self.proto = proto
        self.vport = {netlab.TCP: 80, netlab.UDP: 53}[proto]
        self.sock.settimeout(3 * netlab.PATIENCE)

    def ask(self):
        try:
            self.sock.send(b"?\n")
            self.server = self.sock.recv(100).decode().strip()
        except OSError:
            return False
        return True

    def error(self, kind, stamp, vport):
        """About a packet that could not be delivered, as much as is quoted: of
        the transport header in IPv4 the first 8 bytes."""
        number, code, info = KINDS[kind][self.v6]
        to = self.client, self.sock.getsockname()[1]
        if self.proto == netlab.TCP:
            packet = netlab.tcp(self.vip, vport or self.vport, *to, seq=stamp)
        else:
            packet = netlab.udp(self.vip, vport or self.vport, *to,
                                struct.pack("!I", stamp))
        if self.proto == netlab.TCP and not self.v6:
            packet = packet[:28]
        return netlab.icmp(self.router, self.vip, number, code, info, packet)


class Client(netlab.Client):
    counts = "lost", "right", "wrong", "local", "missing"

    def __init__(self, directors, namespaces):
        super().__init__()
        self.send = netlab.Sender()
        self.ears = {}
        for n, name in enumerate(namespaces):
            with netlab.netns(name):
                for ear in (socket.socket(socket.AF_INET, socket.SOCK_RAW,
                                          netlab.ICMP),
                            socket.socket(socket.AF_INET6, socket.SOCK_RAW,
                                          netlab.ICMP6)):
                    ear.setblocking(False)
                    ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF,
                                   1 << 20)
                    self.ears[ear] = "local" if n < directors else \
                        name.split("-")[0]
        self.stamp = 0
        self.clear()

    def do_open(self, proto, n):
        self.clear()
        number = {"tcp": netlab.TCP, "udp": netlab.UDP}[proto]
        for family, sides in SIDES.items():
            for _ in range(n):
                flow = Flow(family, number)
                self.bind(flow.sock, flow.client)
                flow.sock.connect((flow.vip, flow.vport))
                self.lost += not flow.ask()
                self.flows.append(flow)

    def do_ask(self):
        self.clear()
        self.lost = sum(not flow.ask() for flow in self.flows)

    def collect(self, flows):
        """Count what arrives, until all have or nothing comes any more."""
        by_port = {(flow.v6, flow.sock.getsockname()[1]): flow for flow in flows}
        while by_port:
            ready = select.select(list(self.ears), [], [], netlab.PATIENCE)[0]
            if not ready:
                break
            for ear in ready:
                data = ear.recv(2000)
                v6 = ear.family == socket.AF_INET6
                inner = data[8:] if v6 else data[28:]
                head = inner[40:] if v6 else inner[20:]
                if len(head) < 8:
                    continue
                port, stamp = (int.from_bytes(head[2:4], "big"),
                               int.from_bytes(head[-4:] if inner[6 if v6 else
                                              9] == netlab.UDP else head[4:8],
                                              "big"))
                if (v6, port) not in by_port or stamp != self.stamp:
                    continue
                flow = by_port.pop((v6, port))
                name = self.ears[ear]
                self.local += name == "local"
                self.right += name == flow.server
                self.wrong += name not in ("local", flow.server)
        self.missing += len(by_port)

    def do_errors(self, kind, vport=0):
        self.clear()
        for i in range(0, len(self.flows), BURST):
            flows = self.flows[i:i + BURST]
            self.stamp += 1
            for flow in flows:
                self.send(flow.vip, flow.error(kind, self.stamp, vport))
            self.collect(flows)

    def do_sender(self, name):
        self.send = netlab.Sender(name)

    def do_unknown(self):
        self.do_errors("port", 7)


if __name__ == "__main__":
    Client(int(sys.argv[2]), sys.argv[3:]).run()
