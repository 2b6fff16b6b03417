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
(without the fixed bit) and runt (a long header cut short).  KIND@sN: with a
connection ID that names that server, see quic.sh, KIND@: the server that
answered the flow last; KIND@HEX: that ID; with --key it is a keyed one.  By ping only,
plain ones as IP fragments made by hand: reversed, the last one first; by spray
only: headless, without the first one.

After each command: flows, and of the last ping: lost (no answer), refused (an
ICMP error), moved (answered by another server than the time before), wrong
(the echo differs), and the number of flows of each server.

Options: serve: --ports P,P,... and --echo; of a client: --host A,A,..., which it takes
in turn, --port, --bind ADDRESS, which spray needs, --size of plain ones, --echo: compare
the answer, --key of connection IDs, 32 hexadecimal digits, --bits, the first three of
IDs, --timeout SECONDS without an answer
"""
import functools
import os
import select
import selectors
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import netlab  # noqa: E402

BURST = 32      # datagrams on their way, which every buffer holds
SPRAY_PORT = 1024
V1, V2 = 1, 0x6b3343cf
# what a load balancer can see of long headers, RFC 9000 17.2, RFC 9369: type, version,
# bytes
LONG = {
    "initial": (0, V1, 1200), "initial2": (1, V2, 1200),
    "0rtt": (1, V1, 300), "0rtt2": (2, V2, 300), "handshake": (2, V1, 300),
    "handshake2": (3, V2, 300), "retry2": (0, V2, 300),
}


def named(server, v6, key, bits):
    """The ID of the server sN, as it would issue it."""
    if server[0] != "s":
        return bytes.fromhex(server)
    address = netlab.pack(f"{'fd02::' if v6 else '10.2.0.'}1{server[1:]}")[-4:]
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


def datagram(kind, size, name=b""):
    if kind == "short":
        return bytes([0x40 | os.urandom(1)[0] & 0x3f]) + name + os.urandom(63)
    if kind == "greased":   # RFC 9287
        return b"\0" + name + b"g" * 63
    if kind == "runt":
        return b"\xc0\0\0"
    if kind not in LONG:
        return b"x" * size
    bits, version, size = LONG[kind]
    name = name or os.urandom(8)
    head = struct.pack("!BIB", 0xc0 | bits << 4, version, len(name)) + name + \
        b"\x08" + os.urandom(8) + bytes(size == 1200)     # no token
    rest = size - len(head) - 2
    return head + struct.pack("!H", 0x4000 | rest) + os.urandom(rest)


def serve(args):
    """The answer comes from the address that was asked: hence PKTINFO."""
    sel = selectors.DefaultSelector()
    for name in args.rest:
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


class Client(netlab.Client):
    counts = "lost", "refused", "moved", "wrong"

    def __init__(self, args):
        super().__init__(args.host, args.bind)
        self.args = args
        self.spray_port = SPRAY_PORT
        self.ident = 0
        self.send = netlab.Sender() if args.bind else None
        self.clear()

    def socket(self, i, address=None):
        sock = socket.socket(self.family, socket.SOCK_DGRAM)
        if address or self.source:
            self.bind(sock, address)
        sock.connect((self.hosts[i % len(self.hosts)], self.args.port))
        sock.setblocking(False)
        return sock

    def do_open(self, n):
        self.flows += [netlab.Flow(self.socket(i)) for i in range(n)]

    def do_move(self, address=None):
        for i, flow in enumerate(self.flows):
            flow.sock.close()
            flow.sock = self.socket(i, address)
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
        return datagram(kind, self.args.size, named(
            name or server, self.family == socket.AF_INET6, self.args.key,
            self.args.bits) if at else b"")

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

    def do_ping(self, kind="plain", timeout=None, new=False):
        self.clear()
        self.bursts([f for f in self.flows if not (new and f.server)], kind,
                    timeout or self.args.timeout)

    def bursts(self, flows, kind, timeout):
        for i in range(0, len(flows), BURST):
            self.burst(flows[i:i + BURST], kind, timeout)

    def do_stream(self):
        self.clear()
        while not select.select([0], [], [], 0.01)[0]:
            self.do_stop()
        return ""

    def do_stop(self):
        self.bursts(self.flows, "plain", self.args.timeout)

    def do_spray(self, n, kind="plain"):
        data = datagram(kind, self.args.size)
        for port in range(self.spray_port, self.spray_port + n):
            if kind == "headless":
                self.pieces(port, data, slice(1, None))
            else:
                self.send(self.args.host,
                          netlab.udp(self.args.bind, port, self.args.host,
                                     self.args.port, data))
        self.spray_port += n


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(netlab.options(sys.argv[2:], {"ports": "53", "echo": False}))
    Client(netlab.options(sys.argv[2:], {
        "host": "", "port": 53, "bind": "", "size": 32, "echo": False, "key": "",
        "bits": 0, "timeout": 12.0})).run()
