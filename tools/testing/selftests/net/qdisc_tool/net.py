# SPDX-License-Identifier: GPL-2.0-only
"""A small network of namespaces, servers that are restarted and clients that would notice,
what its counters say, and the naive recipes the tool is measured against.

        client ----------- router ----------- host (the machine's first
      10.2.0.2          10.2.0.1  10.1.0.2  10.1.0.1    namespace)
       fd02::2           fd02::1   fd01::2   fd01::1

The router is there because a packet held on a veth still belongs to the
socket at the other end, which then does not send it again.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import re
import select
import signal
import socket
import struct
import threading
import time

from lib import (WAIT_S, batch, check, child, defer, end_process, equal, read, run, set_up,
                 wait_for, write)
from qdisc_tool_lib.flower import bpf, load

PORT = 8080
HOST4, HOST6 = "10.1.0.1", "fd01::1"

_CLONE_NEWNET = 0x40000000
_SYN_RECEIVED = "03"
_HTTP_REQUEST = b"GET / HTTP/1.0\r\nHost: test\r\n\r\n"
# Longer than any hold here; a connection without an end by then has failed.
_GIVE_UP_S = 90
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def namespace(name):
    """Be in a namespace; sockets made there stay there."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    check(not _libc.setns(there, _CLONE_NEWNET), f"cannot enter {name}")
    try:
        yield
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)
        os.close(there)


def inside(name):
    return namespace(name) if name else contextlib.nullcontext()


# Programs that see what arrives before any filter does: their type, where they are
# attached, and how; XDP as every device can.
TCX, XDP = (3, 46, 0), (6, 37, 1 << 1)         # TCX: Linux 6.6
TCX_NEXT, TCX_DROP, XDP_DROP, XDP_PASS = -1, 2, 1, 2
_LINK_CREATE = 28


@contextlib.contextmanager
def bpf_program(device, where, answer):
    """One that gives each packet this answer."""
    kind, place, flags = where
    fds = [load(kind, ((0xB7, 0, 0, answer), (0x95, 0, 0, 0)))]
    try:
        fds.append(bpf(_LINK_CREATE, struct.pack(
            "=IIIIQQ", fds[0], socket.if_nametoindex(device), place, flags, 0, 0)))
        yield
    finally:
        for fd in reversed(fds):
            os.close(fd)


def tagged():
    """A VLAN between router and host, 10.5.0.2 and .1, until the test ends."""
    link = "link add link {} name tagged type vlan id 5"
    with namespace("router"):
        batch("ip", [link.format("host1"), "addr add 10.5.0.2/24 dev tagged",
                     "link set tagged up"])
    batch("ip", [link.format("host0"), "addr add 10.5.0.1/24 dev tagged", "link set tagged up"])
    defer(run, "ip link del tagged")


def network():
    """The three namespaces of the picture above."""
    run("ip link set lo up")
    for name in ("router", "client"):
        run(f"ip netns add {name}")
        defer(run, f"ip netns del {name}")
    # systemd's udev gives a device of the first namespace another address, a moment
    # late, unless it was given one: the router has learnt the first by then
    run("ip link add host0 address 02:00:00:00:00:01 numtxqueues 2 numrxqueues 2 type veth "
        "peer name host1 netns router")
    defer(run, "ip link del host0")
    run("ip -n router link add client1 type veth peer name client0 netns client")
    for where, device, number in (None, "host0", "1::1"), ("router", "host1", "1::2"), (
            "router", "client1", "2::1"), ("client", "client0", "2::2"):
        with inside(where):
            batch("ip", [f"addr add 10.{number.replace('::', '.0.')}/24 dev {device}",
                         f"addr add fd0{number}/64 dev {device} nodad", f"link set {device} up"])
    batch("ip", ["route add 10.2.0.0/24 via 10.1.0.2 dev host0 onlink",
                 "route add fd02::/64 via fd01::2 dev host0 onlink"])
    with namespace("router"):
        for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            write(f"/proc/sys/net/{path}", "1")
    with namespace("client"):
        batch("ip", ["link set lo up", "route add default via 10.2.0.1",
                     "route add default via fd02::1"])


def counters():
    """The TCP counters of this namespace, and softnet drops of the machine."""
    found = {"softnet": sum(int(line.split()[1], 16) for line in
                            read("/proc/net/softnet_stat").splitlines())}
    for path in ("snmp", "netstat"):
        lines = read(f"/proc/thread-self/net/{path}").splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            if names.startswith("Tcp"):
                found.update(zip(names.split()[1:], map(int, values.split()[1:])))
    return found


def growth(before, *names):
    """By how much counters() grew."""
    after = counters()
    return {name: after[name] - before[name] for name in names}


LOSSES = ("softnet", "ListenOverflows", "TCPReqQFullDrop")


def lost_nothing(before):
    """A SYN may be sent again because this machine is slow, so that is not counted;
    everything that can drop one is."""
    equal(growth(before, *LOSSES), dict.fromkeys(LOSSES, 0), "lost")


def plug_device(device):
    """That of the tool for a device."""
    return f"plug{socket.if_nametoindex(device)}"


def plug(device):
    """(packets waiting, packets dropped) of the queue that holds: the tool's,
    or that of a naive recipe."""
    with contextlib.suppress(OSError):
        socket.if_nametoindex(plug_device(device))
        device = plug_device(device)
    found = {qdisc["kind"]: (qdisc["qlen"], qdisc["drops"]) for qdisc in
             json.loads(run(f"tc -s -j qdisc show dev {device}"))}
    return found.get("netem") or found["plug"]


def plug_waiting(device):
    return plug(device)[0]


def naive_loopback(plug="limit 10000000", keys="protocol ip flower "
                   f"ip_proto tcp dst_port {PORT} tcp_flags 0x2/0x17"):
    """The recipe that is handed round, without the marks: prio, a plug in its
    last band, a filter for SYNs.  It is left open."""
    run("tc qdisc add dev lo root handle 1: prio bands 4")
    defer(run, "tc qdisc del dev lo root")
    batch("tc", [f"qdisc add dev lo parent 1:4 handle 40: plug {plug}",
                 "qdisc change dev lo handle 40: plug release_indefinite",
                 f"filter add dev lo parent 1: {keys} classid 1:4"])


def naive_plug(action):
    run(f"tc qdisc change dev lo handle 40: plug {action}")


def picture(device):
    """Everything tc shows of a device, without counters and the classes that
    fq_codel has for flows whose packets wait."""
    text = run(["tc", "-batch", "-"], input="".join(
        f"{what} show dev {device}{where}\n"
        for what, where in (("qdisc", ""), ("class", ""), ("filter", ""),
                            ("filter", " ingress"), ("filter", " egress"))))
    return re.sub(r"direct_packets_stat \d+| seed \d+|class (?:fq_codel|cake) .*\n", "", text)


def listen(port=PORT):
    """A listener for both families that accepts nobody."""
    server = socket.create_server(("::", port), family=socket.AF_INET6, backlog=4096,
                                  dualstack_ipv6=True)
    defer(server.close)
    return server


def echo(port=PORT + 1):
    """A server for both families that sends back what comes, in a process of its own."""
    async def answer(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve():
        await (await asyncio.start_server(answer, sock=server, backlog=4096)).serve_forever()
    server = listen(port)
    child(lambda: asyncio.run(serve()))
    server.close()


def connection(address, port, where=None):
    """A connection that is already there."""
    with inside(where):
        peer = socket.create_connection((address, port), timeout=WAIT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    defer(peer.close)
    return peer


def round_trip(peer):
    peer.sendall(b"x")
    check(peer.recv(1), "the connection was closed")


class Clients:
    """Connections begun together: how many are made, and how does each other fail?"""

    def __init__(self, address, count=1, port=PORT, where=None):
        """@count connections, from namespace @where."""
        self.made, self.errors, self._undecided = 0, [], set()
        self._poll, self._sockets = select.epoll(), {}
        with inside(where):
            for _ in range(count):
                self.begin(address, port)

    def begin(self, address, port):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        client = socket.socket(family, socket.SOCK_STREAM)
        client.setblocking(False)
        self._sockets[client.fileno()] = client
        self._undecided.add(client.fileno())
        client.connect_ex((address, port))
        self._poll.register(client.fileno(), select.EPOLLOUT)

    def take(self, wait_s=0.0):
        """Note what has been decided meanwhile."""
        for fd, _ in self._poll.poll(wait_s):
            self._poll.unregister(fd)
            self._undecided.remove(fd)
            error = self._sockets[fd].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self.errors += [os.strerror(error)] if error else []
            self.made += not error

    def finish(self, wait_s=WAIT_S):
        """Wait for all, for some time."""
        give_up = time.monotonic() + wait_s
        while self._undecided and time.monotonic() < give_up:
            self.take(0.05)
        self.take()                # after a pause of this machine
        self.errors += ["no answer"] * len(self._undecided)

    def succeed(self, wait_s=WAIT_S):
        """Wait for all; none may fail."""
        self.finish(wait_s)
        equal(self.errors, [], "errors")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Leave no TIME-WAIT behind."""
        for client in self._sockets.values():
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        self._poll.close()


def passes(address=HOST4, port=PORT, where="client", wait_s=1.0):
    """Whether a connection is made although a hold goes on."""
    with Clients(address, 1, port, where) as clients:
        clients.finish(wait_s)
        return bool(clients.made)


def neighbours_known():
    """Address resolution is not what is measured."""
    listen(PORT + 2)
    for address in (HOST4, HOST6):
        wait_for(lambda: passes(address, PORT + 2), f"a way to {address}")


def ready(device, *options):
    """It is set up, and somebody listens."""
    if device != "lo":
        neighbours_known()
    server = listen()
    set_up(device, "-p", str(PORT), *options)
    return server


def processes(name):
    """The processes of this name."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if read(f"/proc/{entry}/comm").strip() == name:
                found.append(int(entry))
    return found


def handshakes(port):
    """How many handshakes with @port wait for their last packet."""
    return sum(words[3] == _SYN_RECEIVED and words[1].endswith(f":{port:04X}")
               for family in ("tcp", "tcp6")
               for words in map(str.split, read(f"/proc/net/{family}").splitlines()))


class Child:
    """A process that runs self.main(); that returns a result when self.ending is true."""

    def __init__(self):
        self.pid, self.ending = 0, []
        self._result_fd, self._child_fd = os.pipe()

    def __enter__(self):
        def run():
            signal.signal(signal.SIGTERM, lambda *_: self.ending.append(True))
            os.write(self._child_fd, json.dumps(self.main()).encode())
        self.pid = child(run)
        os.close(self._child_fd)
        return self

    def __exit__(self, *_):
        end_process(self.pid)
        os.close(self._result_fd)

    def finish(self):
        """Let what is under way end; the result."""
        os.kill(self.pid, signal.SIGTERM)
        return json.loads(b"".join(iter(lambda: os.read(self._result_fd, 65536), b"")))


class Server(Child):
    """Sends a byte to whoever connects, or an answer of HTTP.  On SIGUSR1 it stops
    listening, for @gap_s, having served everybody who had got in."""

    def __init__(self, port, gap_s=2.0, answer=b"x"):
        super().__init__()
        self._port, self._gap_s, self._answer = port, gap_s, answer
        self._listener = self._listen()

    def _listen(self):
        listener = listen(self._port)
        listener.setblocking(False)
        return listener

    def __enter__(self):
        super().__enter__()
        self._listener.close()
        return self

    def _serve(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                peer, _ = self._listener.accept()
                with contextlib.suppress(OSError):
                    # what is not read would make its close a reset
                    self._answer == b"x" or peer.recv(65536)
                    peer.send(self._answer)
                peer.close()

    def main(self):
        asked = []
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
        while True:
            select.select([self._listener], [], [], 0.02)
            self._serve()
            if asked:
                asked.clear()
                self._listener.close()
                time.sleep(self._gap_s)    # why: nobody listens so long
                self._listener = self._listen()


class Load(Child):
    """@count clients that connect, wait for an answer and begin again."""

    def __init__(self, address, port, count, where=None, http=False):
        super().__init__()
        self._target = (address, port)
        self._count, self._where, self._http = count, where, http
        self._lock = threading.Lock()
        self._result = {"ok": 0, "failed": 0, "longest_ms": 0, "errors": {}}
        self._progress_fd, self._child_progress_fd = os.pipe()

    def wait_for_progress(self, count):
        """Wait until @count more connections have ended."""
        while count > 0:
            if not select.select([self._progress_fd], [], [], WAIT_S)[0]:
                raise AssertionError(f"no connection ended within {WAIT_S} s")
            count -= len(os.read(self._progress_fd, count))

    def __exit__(self, *_):
        super().__exit__()
        os.close(self._progress_fd)
        os.close(self._child_progress_fd)

    def main(self):
        os.set_blocking(self._child_progress_fd, False)
        clients = [threading.Thread(target=self._client) for _ in range(self._count)]
        with inside(self._where):
            for client in clients:
                client.start()
        for client in clients:
            client.join()
        return self._result

    def _client(self):
        while not self.ending:
            began = time.monotonic()
            try:
                with socket.create_connection(self._target, timeout=_GIVE_UP_S) as peer:
                    self._end(None if self._is_answered(peer) else "no answer but an end", began)
            except OSError as error:
                self._end(error.strerror or "no answer", began)

    def _is_answered(self, peer):
        got = b""
        if self._http:
            peer.sendall(_HTTP_REQUEST)
        while data := peer.recv(65536):
            got += data
        return b" 200 " in got[:20] if self._http else got == b"x"

    def _end(self, error, began):
        result = self._result
        with self._lock, contextlib.suppress(BlockingIOError):
            if error:
                result["failed"] += 1
                result["errors"][error] = result["errors"].get(error, 0) + 1
            else:
                result["ok"] += 1
                result["longest_ms"] = max(result["longest_ms"],
                                           round(1000 * (time.monotonic() - began)))
            os.write(self._child_progress_fd, b".")
