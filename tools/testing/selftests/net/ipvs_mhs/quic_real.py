#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""HTTP/3 by aioquic: servers, and a client that moves in the middle of downloads.

usage: quic_real.py client PORT,... CERTIFICATE LOG SERVER...

The certificate's file has its key, too.  Each SERVER, NAMESPACE/ADDRESS/VIP or
NAMESPACE/ADDRESS/VIP/KEY, is a process at VIP whose connection IDs have that address,
with KEY encrypted.  It writes to LOG a line when it is ready, and NAME stray CLIENT PORT
for each packet of a connection that it does not know; NAME is the part of NAMESPACE before
the hyphen.  /name is answered by it; what is sent to /chunks, by a chunk for each octet.

The client is in the namespace of its caller.  It takes commands, one a line, on standard
input; each is answered by one line of key=value pairs:

    find PORT HOME AWAY N
                        from now on to the servers' PORT; asks them at N more ports of
                        each address: connections begin at a port of the first address
                        from which HOME answers, and move to those from which AWAY does
    spare               such ports for IPv4: home and away
    open NAME           begin connections, one of each family, and a download over each
    chunk NAME          ask for a chunk and wait for it
    ask NAME [4|6]      ask only
    rebind NAME [4|6]   from another port, as behind a NAT that forgot
    migrate NAME [4|6]  from the other address, with another connection ID
    end NAME            end the downloads; they succeed if all that was asked for came
    ended NAME          wait until these connections have ended

ok says how many of the two succeeded, servers which server has answered each, ports the
new ones.  A
connection ends when it hears nothing for some seconds.
"""
import asyncio
import ctypes
import os
import signal
import socket
import ssl
import sys
from pathlib import Path

sys.dont_write_bytecode = True
TOP = Path(__file__).resolve().parents[5]
sys.path.append(str(TOP / "examples/quic"))

from aioquic.asyncio.protocol import QuicConnectionProtocol  # noqa: E402
from aioquic.asyncio.server import QuicServer  # noqa: E402
from aioquic.h3.connection import H3_ALPN, H3Connection  # noqa: E402
from aioquic.h3.events import DataReceived, HeadersReceived  # noqa: E402
from aioquic.quic.configuration import QuicConfiguration  # noqa: E402
from aioquic.quic.connection import QuicConnection  # noqa: E402
from aioquic.quic.events import ConnectionTerminated  # noqa: E402
from aioquic.quic.events import ProtocolNegotiated  # noqa: E402

import mhs_ids  # noqa: E402
import netlab  # noqa: E402

# of the client: the virtual address, its own ones
FAMILIES = {"4": ("10.9.0.1", "10.1.0.2", "10.1.0.3"),
            "6": ("fd09::1", "fd01::2", "fd01::3")}
FIRST_PORT = 5000
CHUNK = 20000
WHO = b"@who"                       # as a short header begins
IDLE_S = 5 * netlab.PATIENCE        # a connection ends that hears nothing
PR_SET_PDEATHSIG = 1
WAIT_S = 20 * netlab.PATIENCE       # for hangs


def chunk(number):
    return bytes([number % 256]) * CHUNK


class Http(QuicConnectionProtocol):
    """A protocol that speaks HTTP/3; got() has its events."""
    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        elif isinstance(event, ConnectionTerminated):
            self.lost()
        if self.http:
            for part in self.http.handle_event(event):
                self.got(part)

    def lost(self):
        pass


class Responder(Http):
    name = None
    path, chunks = b"", 0

    def got(self, event):
        stream = event.stream_id
        if isinstance(event, HeadersReceived):
            self.path = dict(event.headers)[b":path"]
            self.http.send_headers(stream, [(b":status", b"200"),
                                            (b"server", self.name)])
            if self.path == b"/name":
                self.http.send_data(stream, self.name, True)
        elif self.path == b"/chunks":
            for _ in event.data:
                self.http.send_data(stream, chunk(self.chunks), False)
                self.chunks += 1
            if event.stream_ended:
                self.http.send_data(stream, b"", True)


class Server(QuicServer):
    log = None

    def datagram_received(self, data, addr):
        cid = data[1:1 + self._configuration.connection_id_length]
        if data == WHO:
            self._transport.sendto(Responder.name, addr)
        elif not data[0] & 0x80 and cid not in self._protocols:
            print(Responder.name.decode(), "stray", *addr[:2], file=self.log)
        super().datagram_received(data, addr)


async def serve(ports, certificate, name, address, vip, key=None):
    configuration = QuicConfiguration(
        alpn_protocols=H3_ALPN, is_client=False, idle_timeout=3600)
    configuration.load_cert_chain(certificate, certificate)
    mhs_ids.issue(configuration, address, key)
    Responder.name = name.encode()
    for port in ports.split(","):
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Server(configuration=configuration, create_protocol=Responder),
            local_addr=(vip, int(port)))
    print(name, "ready", file=Server.log)
    await asyncio.Event().wait()


def fork_servers(ports, certificate, log, *servers):
    # a line is one write
    Server.log = open(log, "a", buffering=1, encoding="ascii")
    for server in servers:
        namespace, *rest = server.split("/")
        if not os.fork():
            netlab.libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
            with netlab.netns(namespace):
                asyncio.run(serve(ports, certificate, namespace.split("-")[0], *rest))


class Connection(Http):
    server, asked, ended = "none", 0, False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.news, self.body = asyncio.Event(), bytearray()

    def got(self, event):
        if isinstance(event, HeadersReceived):
            self.server = dict(event.headers)[b"server"].decode()
        elif isinstance(event, DataReceived):
            self.body += event.data
            self.ended |= event.stream_ended
        self.news.set()

    def lost(self):
        self.http = None
        self.news.set()

    def request(self):
        self.stream = self._quic.get_next_available_stream_id()
        self.http.send_headers(self.stream, [
            (b":method", b"POST"), (b":scheme", b"https"),
            (b":authority", b"mhs"), (b":path", b"/chunks")])

    def send(self, data, last=False):
        if self.http:
            self.asked += len(data)
            self.http.send_data(self.stream, data, last)
            self.transmit()

    async def until(self, test):
        """Whether it comes true before the connection ends."""
        async def wait():
            while not test() and self.http:
                self.news.clear()
                await self.news.wait()
        try:
            await asyncio.wait_for(wait(), WAIT_S)
        except asyncio.TimeoutError:
            pass
        return test()

    async def bind(self, address, port):
        old = self._transport
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=(address, port))
        if old:
            old.close()


class Family:
    """Connections of one family, by name.  A command is the method of its name."""
    port = FIRST_PORT

    def __init__(self, vip, *addresses):
        self.family = socket.AF_INET6 if ":" in vip else socket.AF_INET
        self.vip, self.addresses = vip, addresses
        self.connections = {}

    async def find(self, port, home, away, number):
        ports = range(self.port, self.port + int(number))
        self.port = ports.stop
        self.peer = (self.vip, int(port), 0, 0)[:2 if self.family == socket.AF_INET
                                                else 4]
        answers = [list(zip(ports, self.answers(a, ports))) for a in self.addresses]
        self.homes = [p for p, name in answers[0] if name == home]
        self.away = [[p for p, name in pairs if name == away] for pairs in answers]
        return True

    def answers(self, address, ports):
        socks = [socket.socket(self.family, socket.SOCK_DGRAM) for _ in ports]
        for sock, port in zip(socks, ports):
            sock.settimeout(WAIT_S)
            sock.bind((address, port))
            sock.connect(self.peer)
            sock.send(WHO)
        for sock in socks:
            yield sock.recv(100).decode()
            sock.close()

    async def open(self, name):
        c = self.connections[name] = Connection(QuicConnection(
            configuration=QuicConfiguration(
                alpn_protocols=H3_ALPN, idle_timeout=IDLE_S,
                server_name="mhs", verify_mode=ssl.CERT_NONE)))
        await c.bind(self.addresses[0], self.homes[0])
        c.connect(self.peer)
        await asyncio.wait_for(c.wait_connected(), WAIT_S)
        c.request()
        return await self.chunk(name)

    async def ask(self, name):
        self.connections[name].send(b"x")
        return True

    async def chunk(self, name):
        c = self.connections[name]
        c.send(b"x")
        return await c.until(lambda: len(c.body) >= c.asked * CHUNK)

    def spare(self, n):
        self.away[n].append(self.away[n].pop(0))
        return self.away[n][-1]

    async def rebind(self, name, to=0):
        port = self.spare(to)
        await self.connections[name].bind(self.addresses[to], port)
        return port

    async def migrate(self, name):
        port = await self.rebind(name, 1)
        self.connections[name].change_connection_id()
        return port

    async def end(self, name):
        c = self.connections[name]
        c.send(b"", True)
        ok = await c.until(lambda: c.ended)
        c.close()
        c._transport.close()
        return ok and c.body == b"".join(map(chunk, range(c.asked)))

    async def ended(self, name):
        c = self.connections[name]
        return await c.until(lambda: not c.http)


async def answer(families, what, *words):
    """The line that says how many succeeded."""
    if what == "spare":
        f = families["4"]
        return f"home={f.homes.pop()} away={f.spare(0)}"
    which, words = ((words[-1], words[:-1]) if words[-1] in families else
                    ("46", words))
    of = [families[f] for f in which]
    results = await asyncio.gather(*(getattr(f, what)(*words) for f in of))
    servers = ",".join(f.connections[words[0]].server for f in of
                       if words[0] in f.connections)
    return (f"ok={sum(map(bool, results))} servers={servers} "
            f"ports={','.join(map(str, results))}")


async def run_client():
    families = {f: Family(*addresses) for f, addresses in FAMILIES.items()}
    loop = asyncio.get_running_loop()
    while True:
        words = (await loop.run_in_executor(None, sys.stdin.readline)).split()
        if not words or words[0] == "quit":
            break
        try:
            print(await answer(families, *words), flush=True)
        except (OSError, ValueError, IndexError, asyncio.TimeoutError) as err:
            print(f"ok=0 error={err!r}", flush=True)


fork_servers(*sys.argv[2:])
asyncio.run(run_client())
