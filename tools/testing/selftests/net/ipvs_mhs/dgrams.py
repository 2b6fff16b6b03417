#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""UDP flows: servers that say their names, a client that keeps count.

serve   NAMESPACE...: in each, answer every datagram with the name, the part
        before the hyphen; --echo: and with the datagram
client  takes commands, one a line, on standard input; each is answered by one
        line of key=value pairs on standard output:

    open N          open N more flows: sockets with a port of their own
    ping [KIND [S]]     send a datagram of that kind on every flow, wait for
                    answers, at most S seconds for the next one
    new [KIND]      the same on the flows that no server has answered yet
    stream          up to 100 datagrams a second on every flow, each after the
                    answer to the last one, until stop, and once more then;
                    only stop answers, by the sum of all
    spray N [KIND]  send N datagrams from as many other ports; no answers
    where           only PORT=SERVER of each flow, as of the last ping
    move [ADDRESS]  all flows get another port, and that address
    close           close all flows
    quit

Kinds: plain, and the packets of QUIC: initial, 0rtt, handshake, the same of
version 2 and retry as initial2, 0rtt2, handshake2, retry2, then short, greased
(without the fixed bit), unknown (a version that nobody knows) and runt (a long
header cut short); dtls and wireguard, their first ones.  KIND@sN: with a
connection ID that names that server, see quic.sh, KIND@: the server that
answered the flow last; KIND@HEX: that ID; with --key it is a keyed one.  By ping only,
plain ones as IP fragments made by hand: reversed, the last one first; by spray
only: headless, without the first one.

After each command: flows, and of the last ping: lost (no answer), refused (an
ICMP error), moved (answered by another server than the time before), wrong
(the echo differs), and the number of flows of each server.
"""
import argparse
import collections
import functools
import ipaddress
import os
import re
import select
import selectors
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import netlab  # noqa: E402

# what else is sent to QUIC ports, by its first octets
OTHER = {"dtls": b"\x16\xfe\xfd" + bytes(10), "wireguard": b"\1\0\0\0"}
BURST = 32      # datagrams on their way, which every buffer holds
SPRAY_PORT = 1024


def long_header(kind, version, token, size, name):
    """RFC 9000 17.2, RFC 9369: what a load balancer can see of it."""
    head = struct.pack("!BI", 0xc0 | kind << 4, version)
    name = name or os.urandom(8)
    head += bytes([len(name)]) + name + b"\x08" + os.urandom(8)
    if token:
        head += b"\0"
    rest = size - len(head) - 2
    return head + struct.pack("!H", 0x4000 | rest) + os.urandom(rest)


def named(server, v6, key, bits):
    """The ID of the server sN, as it would issue it."""
    if not re.fullmatch(r"s\d", server):
        return bytes.fromhex(server)
    address = ipaddress.ip_address(
        f"{'fd02::' if v6 else '10.2.0.'}1{server[1:]}").packed[-4:]
    first = bytes([bits << 5 | os.urandom(1)[0] & 0x1f])
    return first + (encrypted(key, address) if key else
                    address + os.urandom(4))


@functools.lru_cache(None)
def encrypted(key, address):
    """One for each server: a process costs much."""
    return subprocess.run(
        ["openssl", "enc", "-aes-128-ecb", "-nopad", "-K", key],
        input=address + os.urandom(12), stdout=subprocess.PIPE,
        check=True).stdout


def datagram(kind, size, name=None):
    v1, v2 = 1, 0x6b3343cf
    if kind in ("plain", "reversed", "headless"):
        return b"x" * size
    if kind == "short":
        return bytes([0x40 | os.urandom(1)[0] & 0x3f]) + (
            name or b"") + os.urandom(63)
    if kind == "greased":   # RFC 9287
        return b"\0" + (name or b"") + b"g" * 63
    if kind in OTHER:
        return OTHER[kind] + os.urandom(120)
    if kind == "runt":
        return b"\xc0\0\0"
    return {
        "initial": lambda: long_header(0, v1, True, 1200, name),
        "initial2": lambda: long_header(1, v2, True, 1200, name),
        "0rtt": lambda: long_header(1, v1, False, 300, name),
        "0rtt2": lambda: long_header(2, v2, False, 300, name),
        "handshake": lambda: long_header(2, v1, False, 300, name),
        "handshake2": lambda: long_header(3, v2, False, 300, name),
        "retry2": lambda: long_header(0, v2, False, 300, name),
        "unknown": lambda: long_header(0, 0x0a0a0a0a, False, 1200, name),
    }[kind]()


def serve(args):
    """The answer comes from the address that was asked: hence PKTINFO."""
    sel = selectors.DefaultSelector()
    for name in args.namespaces:
        for port in args.ports.split(","):
            with netlab.netns(name):
                sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            sock.bind(("::", int(port)))
            sel.register(sock, selectors.EVENT_READ,
                         name.split("-")[0].encode() + b"\n")
    print("ready", flush=True)
    while True:
        for key, _ in sel.select():
            sock = key.fileobj
            data, anc, _, peer = sock.recvmsg(65536, 256)
            info = [(lvl, kind, struct.pack("16sI", value[:16], 0))
                    for lvl, kind, value in anc
                    if (lvl, kind) == (socket.IPPROTO_IPV6,
                                       socket.IPV6_PKTINFO)]
            try:
                sock.sendmsg([key.data, data if args.echo else b""], info, 0,
                             peer)
            except OSError:
                pass


class Flow:
    def __init__(self, sock):
        self.sock = sock
        self.server = self.sent = None


class Client:
    def __init__(self, args):
        self.args = args
        self.flows = []
        self.family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
        self.spray_port = SPRAY_PORT
        self.ident = 0
        self.send = netlab.Sender() if args.bind else None
        self.clear()

    def clear(self):
        self.lost = self.refused = self.moved = self.wrong = 0

    def socket(self, i, address):
        hosts = self.args.host.split(",")
        sock = socket.socket(self.family, socket.SOCK_DGRAM)
        if address:
            netlab.bind_fresh(sock, address)
        sock.connect((hosts[i % len(hosts)], self.args.port))
        sock.setblocking(False)
        return sock

    def do_open(self, n):
        self.flows += [Flow(self.socket(i, self.args.bind))
                       for i in range(int(n))]

    def do_move(self, address=None):
        for i, flow in enumerate(self.flows):
            flow.sock.close()
            flow.sock = self.socket(i, address or self.args.bind)
        self.clear()

    def answer(self, flow):
        try:
            name, _, echo = flow.sock.recv(65536).partition(b"\n")
        except ConnectionRefusedError:
            self.refused += 1
            return
        except OSError:
            self.lost += 1
            return
        server = name.decode()
        self.moved += flow.server not in (None, server)
        self.wrong += bool(self.args.echo) and echo != flow.sent
        flow.server = server

    def datagram(self, kind, server):
        kind, at, name = kind.partition("@")
        return datagram(kind, self.args.size, at and named(
            name or server, self.family == socket.AF_INET6, self.args.key,
            self.args.bits))

    def burst(self, flows, kind, timeout):
        sel = selectors.DefaultSelector()
        for flow in flows:
            flow.sent = self.datagram(kind, flow.server)
            try:
                if kind == "reversed":
                    self.pieces(flow.sock.getsockname()[1], flow.sent, slice(
                        None, None, -1))
                else:
                    flow.sock.send(flow.sent)
                sel.register(flow.sock, selectors.EVENT_READ, flow)
            except ConnectionRefusedError:
                self.refused += 1
            except OSError:
                self.lost += 1
        end = time.monotonic() + timeout
        while sel.get_map() and time.monotonic() < end:
            for key, _ in sel.select(0.2):
                end = time.monotonic() + timeout
                sel.unregister(key.fileobj)
                self.answer(key.data)
        self.lost += len(sel.get_map())
        sel.close()

    def pieces(self, port, data, which):
        packet = netlab.udp(self.args.bind, port, self.args.host,
                            self.args.port, data)
        self.ident += 1
        for piece in list(netlab.fragments(packet, 1024, self.ident))[which]:
            self.send(self.args.host, piece)

    def do_new(self, *words):
        self.do_ping(*words, new=True)

    def do_where(self):
        return " ".join(f"{f.sock.getsockname()[1]}={f.server or 'none'}"
                        for f in self.flows)

    def do_ping(self, kind="plain", timeout=None, new=False):
        self.clear()
        timeout = float(timeout or self.args.timeout)
        self.bursts([f for f in self.flows if not (new and f.server)], kind,
                    timeout)

    def bursts(self, flows, kind, timeout):
        for i in range(0, len(flows), BURST):
            self.burst(flows[i:i + BURST], kind, timeout)

    def stream(self, commands):
        self.clear()
        while not select.select([commands], [], [], 0.01)[0]:
            self.do_stop()

    def do_stop(self):
        self.bursts(self.flows, "plain", self.args.timeout)

    def do_spray(self, n, kind="plain"):
        data, n = datagram(kind, self.args.size), int(n)
        for port in range(self.spray_port, self.spray_port + n):
            if kind == "headless":
                self.pieces(port, data, slice(1, None))
            else:
                self.send(self.args.host,
                          netlab.udp(self.args.bind, port, self.args.host,
                                     self.args.port, data))
        self.spray_port += n

    def do_close(self):
        for flow in self.flows:
            flow.sock.close()
        self.flows = []
        self.clear()

    def report(self):
        servers = collections.Counter(f.server for f in self.flows
                                      if f.server)
        words = [f"{k}={getattr(self, k)}"
                 for k in ("lost", "refused", "moved", "wrong")]
        words += [f"{k}={v}" for k, v in sorted(servers.items())]
        return " ".join([f"flows={len(self.flows)}", *words])


def client(args):
    """A command is the method of its name; the report is the answer, if that has
    none."""
    c = Client(args)
    commands = open(0, "rb", buffering=0)   # select() sees what is not read
    while (line := commands.readline().decode()) and line != "quit\n":
        word, *rest = line.split()
        if word == "stream":
            c.stream(commands)
            continue
        print(getattr(c, "do_" + word)(*rest) or c.report(), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    sub = parser.add_subparsers(dest="role", required=True)
    p = sub.add_parser("serve")
    p.add_argument("--ports", default="53", help="P,P,...")
    p.add_argument("--echo", action="store_true")
    p.add_argument("namespaces", nargs="+")
    p = sub.add_parser("client")
    p.add_argument("--host", required=True, help="A,A,...: in turn")
    p.add_argument("--port", type=int, default=53)
    p.add_argument("--bind", help="source address; spray needs it")
    p.add_argument("--size", type=int, default=32, help="of plain ones")
    p.add_argument("--echo", action="store_true", help="compare the answer")
    p.add_argument("--key", help="of connection IDs, 32 hexadecimal digits")
    p.add_argument("--bits", type=int, default=0, help="the first three of IDs")
    p.add_argument("--timeout", type=float, default=12,
                   help="seconds without an answer")
    args = parser.parse_args()
    serve(args) if args.role == "serve" else client(args)


if __name__ == "__main__":
    main()
