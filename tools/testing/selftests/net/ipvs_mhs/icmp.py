#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""ICMP and ICMPv6 errors about flows, and where they arrive.

One process for the client and for what the servers and the directors see: its
arguments are their namespaces.  Takes commands, one a line, on standard input
and answers each by one line of key=value pairs:

    open PROTO N    open N flows of each family, tcp to port 80, udp to 53
    ask             ask on every flow which server has it now
    errors KIND     as if a router on the client's side could not deliver the
                    servers' packets of these flows: frag, port, ttl
    unknown         the same about a service that does not exist
    sender NAME     the next errors come from that namespace
    close, quit

flows, lost (no answer to open or ask), sent, and of the errors sent: right (at
the server of the flow), wrong (at another one), local (at a director's own
stack), missing (nowhere).
"""
import argparse
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


class Flow:
    def __init__(self, family, proto):
        self.vip, self.client, self.router = SIDES[family]
        self.v6 = family == socket.AF_INET6
        self.proto = proto
        self.vport = {netlab.TCP: 80, netlab.UDP: 53}[proto]
        self.sock = socket.socket(family, socket.SOCK_STREAM
                                  if proto == netlab.TCP else
                                  socket.SOCK_DGRAM)
        self.sock.settimeout(3 * netlab.PATIENCE)
        netlab.bind_fresh(self.sock, self.client)
        self.port = self.sock.getsockname()[1]
        self.server = None

    def ask(self):
        try:
            self.sock.send(b"?\n")
            self.server = self.sock.recv(100).decode().strip()
        except OSError:
            return False
        return True

    def quoted(self, stamp, vport=0):
        """The packet that could not be delivered, as much as is quoted: of
        the transport header in IPv4 the first 8 bytes."""
        ports = struct.pack("!HH", vport or self.vport, self.port)
        if self.proto == netlab.TCP:
            head = ports + struct.pack("!IIBBHHH", stamp, 1, 0x50, 0x10, 500,
                                       0, 0)
        else:
            head = ports + struct.pack("!HH", 1000, 0) + struct.pack("!I",
                                                                     stamp)
        return netlab.ip(self.vip, self.client, self.proto,
                         head if self.v6 or self.proto == netlab.UDP else
                         head[:8])

    def error(self, kind, quoted):
        number, code, info = KINDS[kind][self.v6]
        return netlab.icmp(self.router, self.vip, number, code, info, quoted)


class Lab:
    def __init__(self, args):
        self.send = netlab.Sender()
        self.ears = {}
        for name in args.servers + args.director:
            with netlab.netns(name):
                for ear in (socket.socket(socket.AF_INET, socket.SOCK_RAW,
                                          netlab.ICMP),
                            socket.socket(socket.AF_INET6, socket.SOCK_RAW,
                                          netlab.ICMP6)):
                    ear.setblocking(False)
                    ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF,
                                   1 << 20)
                    self.ears[ear] = name.split("-")[0]
        self.directors = {name.split("-")[0] for name in args.director}
        self.flows = []
        self.stamp = 0
        self.lost = 0
        self.clear()

    def clear(self):
        self.sent = self.right = self.wrong = self.local = 0

    def open(self, proto, n):
        number = {"tcp": netlab.TCP, "udp": netlab.UDP}[proto]
        for family, sides in SIDES.items():
            for _ in range(int(n)):
                flow = Flow(family, number)
                flow.sock.connect((sides[0], flow.vport))
                self.lost += not flow.ask()
                self.flows.append(flow)

    def ask(self):
        self.lost = sum(not flow.ask() for flow in self.flows)

    def collect(self, flows, quiet):
        """Count what arrives, until all have or nothing comes any more."""
        by_port = {(flow.v6, flow.port): flow for flow in flows}
        while by_port:
            ready = select.select(list(self.ears), [], [], quiet)[0]
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
                flow = by_port.get((v6, port))
                if not flow or stamp != self.stamp:
                    continue
                del by_port[v6, port]
                name = self.ears[ear]
                if name in self.directors:
                    self.local += 1
                elif name == flow.server:
                    self.right += 1
                else:
                    self.wrong += 1

    def errors(self, kind, vport=0):
        for i in range(0, len(self.flows), BURST):
            flows = self.flows[i:i + BURST]
            self.stamp += 1
            for flow in flows:
                self.send(flow.vip, flow.error(kind, flow.quoted(self.stamp,
                                                                 vport)))
                self.sent += 1
            self.collect(flows, netlab.PATIENCE)

    def sender(self, name):
        self.send = netlab.Sender(name)

    def unknown(self):
        self.errors("port", 7)

    def close(self):
        for flow in self.flows:
            flow.sock.close()
        self.flows = []

    def report(self):
        missing = self.sent - self.right - self.wrong - self.local
        print(f"flows={len(self.flows)} lost={self.lost} sent={self.sent} "
              f"right={self.right} wrong={self.wrong} local={self.local} "
              f"missing={missing}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    sub = parser.add_subparsers(dest="role", required=True)
    p = sub.add_parser("client")
    p.add_argument("--director", required=True, action="append")
    p.add_argument("servers", nargs="+")
    lab = Lab(parser.parse_args())
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        if word == "quit":
            break
        lab.clear()
        if word not in ("open", "ask", "errors", "sender", "unknown", "close"):
            sys.exit(f"icmp.py: no command {word!r}")
        getattr(lab, word)(*rest)
        lab.report()


if __name__ == "__main__":
    main()
