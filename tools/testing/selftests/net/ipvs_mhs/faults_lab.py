# SPDX-License-Identifier: GPL-2.0-only
"""Servers, directors and flows of faults.py, and what can be done to them."""
import collections
import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time

from netlab import PATIENCE, netns, until

PORT = 81
LONG = 3600000
SIDES = ("mhs", "mh")
HOSTS = {"mhs": 1, "mh": 2}
SERVERS = [f"s{i}" for i in range(1, 7)]
SILENCE_S = 8 * PATIENCE    # flows that say nothing for so long are broken
# Two minutes a change corrects the first set of servers; it does for so long for
# sure, and not after the second time
EARLY_S = 110, 130


def sh(*lines, tool=("ip", "-batch", "-"), check=True):
    if lines:
        subprocess.run(tool, input="\n".join(lines) + "\n", text=True,
                       check=check, stdout=subprocess.DEVNULL)


def sysctl(**values):
    for name, value in values.items():
        with open("/proc/sys/net/" + name.replace("__", "/"), "w",
                  encoding="ascii") as file:
            file.write(str(value))


def say(text):
    print("#", 0, text, sep="\t", flush=True)


class Flow:
    """To a server of one side; without a name it could not be opened."""

    def __init__(self, net, vip, bind, wait_s):
        self.name = self.broken = ""
        with netns(net):
            self.sock = socket.socket(
                socket.AF_INET6 if ":" in vip else socket.AF_INET)
        self.sock.setblocking(False)
        self.text = f"{bind[0]}:{bind[1]}"
        self.bound = bind[0], str(bind[1])
        try:
            self.sock.bind(bind)
            self.sock.connect_ex((vip, PORT))
            self.wait(select.POLLOUT, wait_s)
            self.sock.send(b"?\n")
            self.wait(select.POLLIN, wait_s)
            self.name = self.sock.recv(64).decode().strip()
        except OSError as err:
            self.broken = errno.errorcode.get(err.errno, str(err))
        if not self.name:
            self.close()

    def wait(self, what, wait_s):
        poll = select.poll()
        poll.register(self.sock, what)
        if not poll.poll(1000 * wait_s):
            raise TimeoutError("timed out")

    def ask(self):
        try:
            self.sock.send(b"?\n")
        except OSError as err:
            self.broken = errno.errorcode.get(err.errno, str(err))

    def hear(self):
        try:
            data = self.sock.recv(4096).decode()
        except OSError as err:
            self.broken = errno.errorcode.get(err.errno, str(err))
            return
        if not data:
            self.broken = "closed"
        elif data.split("\n", maxsplit=1)[0] != self.name:
            self.broken = f"answered by {data.strip()}"

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                 b"\1\0\0\0\0\0\0\0")
        self.sock.close()


class Pair:
    """A flow of mhs and its twin of mh, on one server."""

    def __init__(self, flows, tables):
        self.flows = flows
        self.server = flows["mhs"].name
        # servers and weights whose tables lead its slot to this server
        self.tables = tables

    def close(self):
        for flow in self.flows.values():
            flow.close()


class Server:
    def __init__(self, lab, number):
        self.lab, self.name, self.host = lab, f"s{number}", 10 + number
        self.net = lab.net(self.name)
        self.process = None
        self.frozen = self.down = False

    def network(self):
        with netns(self.net):
            sysctl(ipv4__conf__all__arp_ignore=1, ipv4__conf__all__arp_announce=2)
        self.lab.attach(self.net, f"v{self.name}", self.host, (1, 2))
        for device in "tunl0", "ip6tnl0":
            sh(f"link set {device} up", tool=("ip", "-n", self.net, "-force",
                                              "-batch", "-"), check=False)
        subprocess.run(["ip", "-n", self.net, "-6", "tunnel", "change",
                        "ip6tnl0", "mode", "any"], check=False)

    @property
    def healthy(self):
        return self.process and not self.frozen and not self.down

    def start(self):
        if not self.process:
            with netns(self.net):
                self.process = subprocess.Popen(
                    [sys.executable, "-S", self.lab.flows_py, "serve",
                     "--name", self.name, "--port", str(PORT)])
            until(self.listens)

    def listens(self):
        with netns(self.net), socket.socket() as sock:
            return not sock.connect_ex((f"10.2.0.{self.host}", PORT))

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self, on):
        self.frozen = on
        if self.process:
            self.process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def link(self, up):
        """The port of the switch: addresses and routes stay."""
        self.down = not up
        sh(f"link set v{self.name} {'up' if up else 'down'}",
           tool=("ip", "-n", self.lab.net("rt"), "-batch", "-"))


class Director:
    """One of two, on both sides."""

    def __init__(self, lab, number):
        self.lab, self.number = lab, number
        self.made = 0
        self.nets = {}
        self.up = False
        self.listed, self.bad = {}, set()
        self.old = frozenset()
        self.warm = self.begun = False
        self.started = 0

    def host(self, side):
        return 30 + 10 * self.number + HOSTS[side]

    def boot(self):
        """A machine that knows nothing of before."""
        self.made += 1
        for side in SIDES:
            if side in self.nets:
                sh(f"link del v{side}{self.number}",
                   tool=("ip", "-n", self.lab.net("rt"), "-batch", "-"))
                sh(f"netns del {self.nets[side]}")
            net = self.nets[side] = self.lab.net(
                f"{side}{self.number}.{self.made}")
            sh(f"netns add {net}")
            with netns(net):
                sysctl(ipv4__conf__all__rp_filter=0, ipv4__ip_forward=1,
                       ipv4__conf__default__rp_filter=0,
                       ipv4__conf__all__send_redirects=0,
                       ipv4__icmp_ratemask=0, ipv6__icmp__ratemask=255,
                       ipv6__conf__all__accept_dad=0,
                       ipv6__conf__default__accept_dad=0,
                       ipv6__conf__all__forwarding=1)
            self.lab.attach(net, f"v{side}{self.number}", self.host(side),
                            (HOSTS[side],))
            with netns(net):
                sysctl(ipv4__vs__sloppy_tcp=int(side == "mh"),
                       ipv4__vs__expire_nodest_conn=int(self.lab.expire))
        self.windows(LONG, LONG)
        self.listed, self.bad = {}, set()
        self.up, self.warm, self.begun = True, False, False
        self.started = time.monotonic()

    def delete(self):
        for net in self.nets.values():
            sh(f"netns del {net}", check=False)

    def windows(self, hold, pin):
        with netns(self.nets["mhs"]):
            sysctl(ipv4__vs__mhs__hold_ms=hold, ipv4__vs__mhs__pin_ms=pin)

    def service(self, side):
        vip = self.lab.vip(side)
        return f"-t [{vip}]:{PORT}" if self.lab.v6 else f"-t {vip}:{PORT}"

    def real(self, server):
        host = 10 + int(server[1:])
        v6 = f"[fd02::{host:d}]" if self.lab.v6 else f"10.2.0.{host}"
        return f"-r {v6}:{PORT}"

    def rules(self, *lines):
        """Each line has {svc} and {how}; {sched} in that of the service."""
        for side in SIDES:
            with netns(self.nets[side]):
                sh(*[line.format(svc=self.service(side), how=self.lab.how,
                                 sched="mh -b mh-port" if side == "mh" else
                                 "mhs") for line in lines],
                   tool=("ipvsadm", "-R"))
        self.row()      # whoever reads has the tables rebuilt

    def row(self):
        with netns(self.nets["mhs"]), \
                open("/proc/net/ip_vs_mhs", encoding="ascii") as file:
            head, *rows = (line.split() for line in file)
        return dict(zip(head, rows[0])) if rows else {}

    def tables(self, flow):
        """That of now, and that of the old servers if its slot is stable."""
        head = f"TCP {self.lab.vip('mhs')} {PORT} "
        with netns(self.nets["mhs"]), \
                open("/proc/net/ip_vs_mhs_lookup", "r+b", buffering=0) as file:
            file.write((head + " ".join(flow.bound)).encode())
            stable = b"Phase stable" in file.read(4096)
        return {self.set, self.old} if stable else {self.set}

    @property
    def set(self):
        return frozenset((s, w) for s, w in self.listed.items() if w)

    def wanted(self):
        found = {}
        for server, weight in self.lab.conf.items():
            if server not in self.bad:
                found[server] = weight
            elif self.lab.inhibit:
                found[server] = 0
        return found

    def changed(self, was):
        """The set is another one.  Early that corrects the first set, but for a
        drain; a deletion does until a flow begins, another change until a packet
        comes.  What an early service does of both is not asked."""
        age = time.monotonic() - self.started
        drains = any(w and not self.listed.get(s, 1) for s, w in was.items())
        others = any(w and was.get(s) != w for s, w in self.listed.items())
        if age > EARLY_S[1]:
            return
        if drains or self.begun or (self.warm and others):
            self.started = -EARLY_S[1]
            if drains and (others or was.keys() - self.listed.keys()) and \
                    not self.begun:
                self.old = None
        elif age < EARLY_S[0]:
            self.old, self.started = self.set, time.monotonic()
        else:
            self.old = None

    def apply(self):
        """What the configuration and the checker say."""
        lines, want = [], self.wanted()
        for server in sorted(self.listed.keys() | want):
            line = f"{{svc}} {self.real(server)}"
            if server not in want:
                lines.append("-d " + line)
            elif server not in self.listed:
                lines.append(f"-a {line} {{how}} -w {want[server]}")
            elif want[server] != self.listed[server]:
                lines.append(f"-e {line} {{how}} -w {want[server]}")
        if lines:
            self.rules(*lines)
            was, self.listed = self.listed, want
            self.changed(was)

    def fill(self, rng, one_by_one=False):
        """The service as at a start, or when it is restored."""
        self.listed = self.wanted()
        lines = [f"-a {{svc}} {self.real(s)} {{how}} -w {w}"
                 for s, w in self.listed.items()]
        rng.shuffle(lines)
        head = "-A {svc} -s {sched}"
        if one_by_one:
            self.rules(head)
            for line in lines:
                self.rules(line)
        else:
            self.rules(head, *lines)
        self.settle()

    def settle(self):
        self.old, self.warm, self.begun = self.set, False, False
        self.started = time.monotonic()
        until(lambda: self.row().get("State") not in ("settling", "rebuilding"))


class Lab:
    def __init__(self, args):
        self.args = args
        self.v6 = self.inhibit = self.expire = False
        self.how, self.conf = "-g", {}
        self.flows_py = os.path.join(os.path.dirname(
            os.path.realpath(__file__)), "flows.py")
        self.counts = collections.Counter()
        self.events = collections.Counter()
        self.failures = []
        self.servers = {f"s{i}": Server(self, i) for i in range(1, 7)}
        for server in self.servers.values():
            server.network()
            server.start()
        sh(*[f"addr add 10.1.0.{100 + i}/24 dev eth0" for i in range(100)],
           *[f"addr add fd01::{100 + i}/64 dev eth0 nodad" for i in range(100)],
           tool=("ip", "-n", self.net("cl"), "-batch", "-"))
        self.directors = [Director(self, i) for i in range(2)]

    def net(self, name):
        return f"{name}-{self.args.suffix}"

    def vip(self, side):
        return f"fd09::{HOSTS[side]}" if self.v6 else f"10.9.0.{HOSTS[side]}"

    def attach(self, net, port, host, vips):
        """To the switch; a machine has the same MAC after it booted."""
        sh(f"link add {port} type veth peer name eth0 netns {net}",
           f"link set {port} master br0 up",
           tool=("ip", "-n", self.net("rt"), "-batch", "-"))
        sh("link set lo up",
           f"link set eth0 address 02:00:00:00:02:{host:02d}",
           f"addr add 10.2.0.{host}/24 dev eth0",
           f"addr add fd02::{host}/64 dev eth0 nodad",
           "link set eth0 up", "route add default via 10.2.0.1",
           "route add default via fd02::1",
           *[f"addr add 10.9.0.{vip}/32 dev lo" for vip in vips],
           *[f"addr add fd09::{vip}/128 dev lo nodad" for vip in vips],
           tool=("ip", "-n", net, "-batch", "-"))

    def route(self, director):
        sh(*[line for side in SIDES for line in (
            f"route replace 10.9.0.{HOSTS[side]}/32 via "
            f"10.2.0.{director.host(side)}",
            f"route replace fd09::{HOSTS[side]}/128 via "
            f"fd02::{director.host(side)}")],
           tool=("ip", "-n", self.net("rt"), "-batch", "-"))

    def end(self):
        for server in self.servers.values():
            server.kill()
        for director in self.directors:
            director.delete()
