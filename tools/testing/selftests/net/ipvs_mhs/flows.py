#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Many long TCP flows: servers that say their names, clients that keep count, in many
network namespaces from one process, which saves starting Python again.

server  answers every line with its name; "talk N S" with N times its name, one
        every S seconds; after "half" the end of a client does not end the flow
client  holds flows and takes commands, one a line, on standard input; each
        is answered by one line of key=value pairs on standard output:

    open N          open N more flows, one after another
    ping [S]        send a line on every flow and wait for the answers, at most
                    S seconds for the next one in place of --timeout
    bulk UP DOWN [S]    on one flow after another, send UP bytes and have the
                    server answer DOWN times at once; S as above
    hear N S        on every flow, have the server speak N times, every S
                    seconds, and say nothing meanwhile
    half            tell the servers that the clients will end and listen on
    where           only PORT=SERVER of each flow, as of the last ping
    fin             end the clients' side of every flow
    read            wait for a line of the server on every flow, see say of lab
    busy S          ping for S seconds, or until stop
    churn S         for S seconds, or until stop, open a flow, ask for a name,
                    let the server close it, and again; with --ports round
                    these source ports
    stop            end busy or churn, which then does not answer itself
    since T         count only those of churn begun T seconds after boot
    close           close all flows (FIN); reset: with a reset instead
    quit

lab     takes commands, one a line, answers each by one

    join NETNS...           directories in /proc that show the net of each
    set NETNS KEY=VALUE...  sysctls, a comma for a blank
    serve NETNS NAME [PORT] a server
    client NETNS PATH ARGUMENTS     a client, by the pipes PATH.in, PATH.out
    say                     servers send a line on each flow after "half"

After each command: flows, broken (reset, closed or silent), rst (reset or
closed of them), moved (answered by another server than before), failed (could
not be opened), refused (of them), slow (a lost SYN was sent again), stalled (a
SYN was sent again, but then nothing on this machine ran for half a second: it
need not be lost), and the number of flows of each server.  After churn (stop
churn) and since: done, failed, slow and stalled of the flows of churn and the
number that each server answered.

Options of clients: --host, --port, --sctp, --bind ADDRESS, --timeout SECONDS without
an answer, more where time is emulated, --impatient: no more, for flows that nobody
answers, --ports FIRST-LAST of churn, --pause SECONDS between its flows
"""
import collections
import errno
import os
import select
import selectors
import signal
import socket
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True

import netlab  # noqa: E402
from netlab import PATIENCE, counted, libc, setns, span  # noqa: E402

PR_SET_PDEATHSIG = 1
TOTAL_RETRANS = 100     # where tcp_info has it
LOOK_S, STALL_S = 0.1, 0.5      # how often connect() looks up; too late for it
OPTIONS = {
    "host": "",
    "port": 80,
    "sctp": False,      # instead of TCP
    "bind": "",         # source address
    "timeout": 5.0,     # seconds
    "impatient": False,
    "ports": "0",       # of churn, FIRST-LAST
    "pause": 0.0,       # seconds between two flows of churn
}


class Server:
    """Listens on any number of ports, each with its name."""

    def __init__(self):
        self.sel = selectors.DefaultSelector()
        self.unsent = {}    # by socket: what its buffer had no room for
        self.halves = {}    # names by socket whose client ends and listens on

    def listen(self, name, port):
        self.answer_at(socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=4096,
            dualstack_ipv6=True), name)

    def listen_sctp(self, name, addrs, port):
        """SCTP tells its peer all addresses of a socket: one is enough."""
        for addr in addrs:
            sock = socket.socket(socket.AF_INET6 if ":" in addr else
                                 socket.AF_INET, socket.SOCK_STREAM,
                                 socket.IPPROTO_SCTP)
            sock.bind((addr, port))
            sock.listen(4096)
            self.answer_at(sock, name)

    def answer_at(self, sock, name):
        sock.setblocking(False)
        answer = name.encode() + b"\n"
        self.sel.register(sock, selectors.EVENT_READ,
                          lambda sock: self.accept(sock, answer))

    def accept(self, lsock, answer):
        try:
            sock, _ = lsock.accept()
        except OSError:
            return
        sock.setblocking(False)
        self.sel.register(sock, selectors.EVENT_READ,
                          lambda sock: self.answer(sock, answer))

    def answer(self, sock, answer):
        try:
            data = sock.recv(4096)
            if data.startswith(b"talk "):
                _, times, pause = data.split()
                threading.Thread(target=self.talk, daemon=True, args=(
                    sock, answer, int(times), float(pause))).start()
                return
            if data == b"half\n":
                self.halves[sock] = answer
            if not data and sock in self.halves:
                self.sel.unregister(sock)
                return
            if data:
                self.send(sock, answer * data.count(b"\n"))
                if data != b"bye\n":
                    return
        except OSError:
            pass
        self.unsent.pop(sock, None)
        self.sel.unregister(sock)
        sock.close()

    def send(self, sock, data):
        """All of it, the rest when there is room."""
        data = self.unsent.pop(sock, b"") + data
        try:
            data = data[sock.send(data):]
        except BlockingIOError:
            pass
        events = selectors.EVENT_READ
        if data:
            self.unsent[sock] = data
            events |= selectors.EVENT_WRITE
        key = self.sel.get_key(sock)
        if events != key.events:
            self.sel.modify(sock, events, key.data)

    def room(self, sock):
        try:
            self.send(sock, b"")
        except OSError:
            pass            # who reads it next learns that

    def talk(self, sock, answer, times, pause):
        for _ in range(times):
            time.sleep(pause)   # why: the pace of lines
            try:
                sock.send(answer)
            except OSError:
                break

    def run(self):
        while True:
            for key, events in self.sel.select():
                if events & selectors.EVENT_READ:
                    key.data(key.fileobj)
                elif key.fileobj in self.unsent:
                    self.room(key.fileobj)


def enter(netns):
    with open(f"/run/netns/{netns}", "rb") as file:
        setns(file)


class Lab(Server):
    """Servers and clients in network namespaces."""

    def __init__(self):
        super().__init__()
        self.rest = b""
        self.first_port = netlab.PORTS[0]
        self.sel.register(0, selectors.EVENT_READ, self.commands)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def commands(self, fd):
        data = os.read(fd, 4096)
        if not data:
            sys.exit(0)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            name, *words = line.decode().split()
            try:
                answer = getattr(self, "do_" + name)(*words) or "ok"
            except OSError as err:
                answer = f"error: {err}"
            print(answer, flush=True)

    def do_join(self, *netns):
        """A thread stays in each."""
        return " ".join(map(self.join, netns))

    def join(self, netns):
        started = threading.Event()

        def stay():
            enter(netns)
            started.set()
            threading.Event().wait()

        thread = threading.Thread(target=stay, daemon=True)
        thread.start()
        started.wait()
        return f"/proc/{os.getpid()}/task/{thread.native_id}/net"

    def do_set(self, netns, *settings):
        enter(netns)
        for setting in settings:
            key, value = setting.split("=", 1)
            with open(f"/proc/sys/{key.replace('.', '/')}", "w",
                      encoding="ascii") as file:
                file.write(value.replace(",", " "))

    def do_say(self):
        for sock, answer in self.halves.items():
            try:
                sock.send(answer)
            except OSError:
                pass        # an earlier flow, which is over

    def do_serve(self, netns, name, port="80"):
        enter(netns)
        self.listen(name, int(port))

    def do_serve_sctp(self, netns, name, port, *addrs):
        enter(netns)
        self.listen_sctp(name, addrs, int(port))

    def do_client(self, netns, path, *args):
        for end in ("in", "out"):
            if os.path.exists(f"{path}.{end}"):
                os.unlink(f"{path}.{end}")
            os.mkfifo(f"{path}.{end}")
        # One after the other, each with ports of its own: the same in each run,
        # so no run is the first in which a server gets no flow
        self.first_port += 1500
        if os.fork() == 0:
            try:
                self.client(netns, path, args)
            finally:
                os._exit(0)

    def client(self, netns, path, args):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for key in list(self.sel.get_map().values()):
            if key.fd:
                key.fileobj.close()
        self.sel.close()
        enter(netns)
        os.dup2(os.open(f"{path}.in", os.O_RDONLY), 0)
        os.dup2(os.open(f"{path}.out", os.O_WRONLY), 1)
        Client(netlab.options(args, OPTIONS), self.first_port).run()


class Flow(netlab.Flow):
    broken = rst = False


def again(sock):
    """Was its SYN sent again?  SCTP does not tell."""
    if sock.proto == socket.IPPROTO_SCTP:
        return False
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[TOTAL_RETRANS:], sys.byteorder) > 0


class Connect:
    """connect() of a socket: how it went.

    A SYN is sent again after a second without an answer, so too when the whole
    machine stands still for that second.  This process looks up again and again
    meanwhile; the looks are late in the second case only."""

    def __init__(self, sock, address, timeout):
        self.sock = sock
        self.late_s = 0
        sock.setblocking(False)
        self.error = sock.connect_ex(address)
        if self.error == errno.EINPROGRESS:
            self.error = self.wait(timeout)
        sock.settimeout(timeout)
        sent = again(sock)
        self.stalled = sent and self.late_s > STALL_S
        self.slow = sent and not self.stalled

    def wait(self, timeout):
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        now = time.monotonic()
        end = now + timeout
        while True:
            ready = poll.poll(1000 * LOOK_S)
            last, now = now, time.monotonic()
            self.late_s = max(self.late_s, now - last - LOOK_S)
            if ready:
                return self.sock.getsockopt(socket.SOL_SOCKET,
                                            socket.SO_ERROR)
            if now > end:
                return errno.ETIMEDOUT


class Client(netlab.Client):
    counts = ("broken", "rst", "moved", "failed", "refused", "slow", "stalled")
    moved = failed = refused = slow = stalled = 0
    broken = property(lambda self: sum(f.broken for f in self.flows))
    rst = property(lambda self: sum(f.rst for f in self.flows))

    def __init__(self, args, first_port):
        super().__init__(args.host, args.bind, first_port)
        if not args.impatient:
            args.timeout *= PATIENCE
        self.args = args
        self.churned = []   # start, Connect or None, server

    def alive(self):
        return [flow for flow in self.flows if not flow.broken]

    def do_open(self, n):
        for i in range(n):
            sock = socket.socket(self.family, socket.SOCK_STREAM,
                                 socket.IPPROTO_SCTP if self.args.sctp else 0)
            self.bind(sock)
            went = Connect(sock, (self.hosts[i % len(self.hosts)],
                                  self.args.port), self.args.timeout)
            self.slow += went.slow
            self.stalled += went.stalled
            if went.error:
                self.failed += 1
                self.refused += went.error == errno.ECONNREFUSED
                sock.close()
                continue
            self.flows.append(Flow(sock))

    def do_ping(self, timeout=None):
        timeout = timeout or self.args.timeout
        sel = selectors.DefaultSelector()
        for flow in self.alive():
            try:
                flow.sock.setblocking(False)
                flow.sock.send(b"?\n")
                sel.register(flow.sock, selectors.EVENT_READ, flow)
            except OSError:
                flow.broken = flow.rst = True
        end = time.monotonic() + timeout
        while sel.get_map():
            ready = sel.select(0.2)
            # what has come while this process did not run is no silence
            if not ready and time.monotonic() >= end:
                break
            for key, _ in ready:
                end = time.monotonic() + timeout
                flow = key.data
                sel.unregister(flow.sock)
                try:
                    data = flow.sock.recv(4096)
                except OSError:
                    data = b""
                if not data:
                    flow.broken = flow.rst = True
                    continue
                server = data.decode().split("\n")[0]
                if flow.server not in (None, server):
                    self.moved += 1
                flow.server = server
        for key in list(sel.get_map().values()):
            key.data.broken = True
        sel.close()

    def take(self, flow, lines, wait):
        """So many lines of the server, the next one in wait() seconds at most."""
        while lines > 0 and not flow.broken:
            try:
                flow.sock.settimeout(wait())
                data = flow.sock.recv(65536)
            except OSError:
                data = b""
            flow.broken = not data
            lines -= data.count(b"\n")

    def tell(self, data):
        for flow in self.alive():
            try:
                flow.sock.settimeout(self.args.timeout)
                flow.sock.sendall(data)
            except OSError:
                flow.broken = True

    def do_hear(self, times, pause):
        """Each line is another packet of the server, no data of ours."""
        self.tell(f"talk {times} {pause}".encode())
        end = time.monotonic() + times * pause + self.args.timeout
        for flow in self.flows:
            # what is there already is read however late it is
            self.take(flow, times, lambda: max(0.01, end - time.monotonic()))

    def do_half(self):
        self.tell(b"half\n")
        self.do_read()

    def do_read(self):
        for flow in self.alive():
            self.take(flow, 1, lambda: self.args.timeout)

    def do_fin(self):
        for flow in self.alive():
            flow.sock.shutdown(socket.SHUT_WR)

    def do_bulk(self, up, down, timeout=None):
        timeout = timeout or self.args.timeout
        for flow in self.alive():
            flow.sock.settimeout(timeout)
            try:
                flow.sock.sendall(b"x" * up + b"\n" * down)
            except OSError:
                flow.broken = True
            self.take(flow, down, lambda: timeout)

    def working(self, end):
        """Neither out of time nor told to stop."""
        return (time.monotonic() < end and
                not select.select([0], [], [], 0)[0])

    def do_busy(self, seconds):
        end = time.monotonic() + seconds
        while self.working(end):
            self.do_ping()
            time.sleep(0.3)     # why: the pace of flows
        return None if time.monotonic() >= end else ""

    def churn_one(self, port):
        """When it began, how its connect() went, and the server that answered,
        None when there was none."""
        start = time.monotonic()
        went = server = None
        with socket.socket(self.family) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                if port:
                    sock.bind((self.args.bind or "", port))
                went = Connect(sock, (self.args.host, self.args.port),
                               self.args.timeout)
                if not went.error:
                    sock.send(b"bye\n")
                    data = b""
                    while chunk := sock.recv(4096):
                        data += chunk
                    server = data.decode().strip() or None
            except OSError:
                server = None
        return start, went, server

    def do_churn(self, seconds):
        ports = span(self.args.ports)
        end = time.monotonic() + seconds
        while self.working(end):
            self.churned.append(
                self.churn_one(ports[len(self.churned) % len(ports)]))
            time.sleep(self.args.pause)     # why: the pace of flows
        return self.do_since(0) if time.monotonic() >= end else ""

    def do_stop(self, what=""):
        return self.do_since(0) if what == "churn" else None

    def do_since(self, since):
        done = [c for c in self.churned if c[0] >= since]
        connects = [c[1] for c in done if c[1]]
        servers = collections.Counter(c[2] for c in done if c[2])
        return counted([("done", len(done)),
                        ("failed", sum(not c[2] for c in done)),
                        ("slow", sum(c.slow for c in connects)),
                        ("stalled", sum(c.stalled for c in connects)),
                        *sorted(servers.items())])

    def do_reset(self):
        for flow in self.flows:
            flow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                 struct.pack("ii", 1, 0))
        self.do_close()


if __name__ == "__main__":
    if sys.argv[1:] != ["lab"]:
        sys.exit(__doc__)
    Lab().run()
