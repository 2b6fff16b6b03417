#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Faults beside changes, with mh as the control: see faults.sh.

      cl ---- rt ==== s1 .. s6      programs, each a process of its own
                 +==== mhs0, mhs1   directors of 10.9.0.1, fd09::1
                 +==== mh0, mh1     directors of 10.9.0.2, fd09::2, sloppy_tcp=1

An episode is a service, twins of flows and a dozen of random events.  Directors 0,
or 1, of both schedulers live through the same events at once, so a twin of mh says
what a flow with an entry would have met.  A health checker of each director deletes
dead servers, or sets their weight to 0, events later than they died: it is played
here, so that a seed replays it.

What nobody promises is not compared: flows of a server that has died; after a
failover a flow whose server the other director cannot know (its entry is on one
director: "Limits" of ipvs-mhs.rst); the flows of a deleted server after the merge,
or with expire_nodest_conn=1.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import argparse
import collections
import contextlib
import errno
import os
import random
import select
import selectors
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from faults_watch import Watch  # noqa: E402
from netlab import PATIENCE, netns, until  # noqa: E402

PORT = 81
LONG = 3600000
SIDES = ("mhs", "mh")
HOSTS = {"mhs": 1, "mh": 2}
SERVERS = [f"s{i}" for i in range(1, 7)]
PAIRS = 12          # when an episode begins
EVENTS = 14
SILENCE_S = 8 * PATIENCE    # flows that say nothing for so long are broken
QUIET_S = SILENCE_S / 4     # and of these what they meet is recorded, see Watch
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


class Flow:
    """To a server of one side; without a name it could not be opened."""

    def __init__(self, net, vip, bind, wait_s, watch=None):
        self.name = self.broken = ""
        self.watch = None
        with netns(net):
            self.sock = socket.socket(
                socket.AF_INET6 if ":" in vip else socket.AF_INET)
        self.sock.setblocking(False)
        self.text = f"{bind[0]}:{bind[1]}"
        self.bound = bind[0], str(bind[1])
        try:
            self.sock.bind(bind)
            self.sock.connect_ex((vip, PORT))
            self.wait(select.POLLOUT, wait_s, watch)
            self.sock.send(b"?\n")
            self.wait(select.POLLIN, wait_s, watch)
            self.name = self.sock.recv(64).decode().strip()
        except OSError as err:
            self.broken = errno.errorcode.get(err.errno, str(err))
        if not self.name:
            self.close()
        self.watched()

    def wait(self, what, wait_s, watch):
        poll = select.poll()
        poll.register(self.sock, what)
        quiet_s = min(QUIET_S, wait_s)
        if poll.poll(1000 * quiet_s):
            return
        if watch and wait_s > quiet_s:
            self.watch = watch(self)
            if poll.poll(1000 * (wait_s - quiet_s)):
                return
        raise TimeoutError("timed out")

    def ask(self):
        try:
            self.sock.send(b"?\n")
        except OSError as err:
            self.broken = errno.errorcode.get(err.errno, str(err))

    def watched(self):
        """It was late; MHS_TRACE shows why."""
        if self.watch and not self.broken:
            if os.environ.get("MHS_TRACE"):
                for line in ["late: " + self.text, *self.watch.report()]:
                    say("    " + line)
            self.watch.end()
            self.watch = None

    def hear(self):
        self.heard()
        self.watched()

    def heard(self):
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
        if self.watch:
            self.watch.end()
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
                    [sys.executable, "-IS", self.lab.flows_py, "serve",
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


class Episode:
    def __init__(self, lab, seed, number):
        self.lab, self.seed, self.number = lab, f"{seed}/{number}", number
        self.rng = random.Random(self.seed)
        self.directors, self.servers = lab.directors, lab.servers
        self.active = self.directors[0]
        self.pairs, self.log, self.due = [], [], []
        self.port = 34000 + number // 100 % 20 * 1500
        self.said = 0       # lines of the log
        self.begun = time.monotonic()

    def note(self, text):
        if os.environ.get("MHS_TRACE"):
            say(f"{time.monotonic() - self.begun:5.1f} {text}")
        self.log.append(f"{time.monotonic() - self.begun:5.1f} {text}")

    # Flows

    def open_flow(self, side, wait_s):
        host = 100 + self.number % 100
        self.port += 1
        bind = (f"fd01::{host}" if self.lab.v6 else f"10.1.0.{host}", self.port)
        return Flow(self.lab.net("cl"), self.lab.vip(side), bind, wait_s,
                    self.watch if side == "mhs" else None)

    def watch(self, flow):
        """It has no answer for some time: whatever else happens to it."""
        director = self.active.nets["mhs"]
        return Watch([self.lab.net("cl"), self.lab.net("rt"), director] +
                     [s.net for s in self.servers.values()], director,
                     flow.bound, self.lab.vip("mhs"), PORT)

    def all_healthy(self):
        return all(self.servers[s].healthy
                   for s, w in self.active.listed.items() if w)

    def open(self, number):
        """Pairs: flows of mh to other ports until one is on the same server."""
        lab, healthy = self.lab, self.all_healthy()
        wait_s = SILENCE_S if healthy else 0.3 * PATIENCE
        for _ in range(number):
            flow = self.open_flow("mhs", wait_s)
            self.active.warm = self.active.begun = True
            if not flow.name:
                lab.counts["not opened"] += 1
                twin = self.open_flow("mh", wait_s)
                if healthy and twin.name:
                    self.failure(f"a new flow, {flow.text}, is not served: "
                                 f"{flow.broken}; one of mh is", flow)
                twin.close()
                continue
            for _ in range(25 if healthy else 2):
                twin = self.open_flow("mh", wait_s)
                if twin.name == flow.name:
                    lab.counts["pairs"] += 1
                    self.pairs.append(Pair(
                        {"mhs": flow, "mh": twin}, self.active.tables(flow)))
                    break
                if twin.name:
                    twin.close()
            else:
                flow.close()
                lab.counts["without a twin"] += 1

    def drop(self, reason, test):
        keep = []
        for pair in self.pairs:
            if test(pair):
                pair.close()
                self.lab.counts[reason] += 1
            else:
                keep.append(pair)
        self.pairs = keep

    def reachable(self, pair):
        server = self.servers[pair.server]
        return server.healthy and pair.server in self.active.listed

    def ping(self):
        """Ask every flow whose server is there."""
        asked = [p for p in self.pairs if self.reachable(p)]
        if asked:
            self.active.warm = True
        with selectors.DefaultSelector() as sel:
            for pair in asked:
                for flow in pair.flows.values():
                    flow.ask()
                    if not flow.broken:
                        sel.register(flow.sock, selectors.EVENT_READ, flow)
            heard = time.monotonic()
            while sel.get_map():
                ready = sel.select(0.2)
                silent_s = time.monotonic() - heard
                left = [key.data for key in sel.get_map().values()]
                if not ready and silent_s > SILENCE_S:
                    break
                if silent_s > QUIET_S and not any(f.watch for f in left):
                    # one of mh only after all of mhs have answered
                    ours = [p.flows["mhs"] for p in asked
                            if p.flows["mhs"] in left]
                    for flow in ours[:1]:
                        flow.watch = self.watch(flow)
                for key, _ in ready:
                    heard = time.monotonic()
                    sel.unregister(key.fileobj)
                    key.data.hear()
            for key in list(sel.get_map().values()):
                key.data.broken = "silent"
        for pair in asked:
            self.judge(pair)

    def judge(self, pair):
        ours, theirs = (pair.flows[side].broken for side in SIDES)
        counts = self.lab.counts
        if not ours and not theirs:
            counts["answers"] += 1
            return
        counts["both broke" if ours and theirs else
               "mhs broke" if ours else "mh broke"] += 1
        if ours and not theirs:
            flow = pair.flows["mhs"]
            self.failure(f"{flow.text} on {pair.server}: {ours}; mh keeps its "
                         f"twin; opened with {sorted(map(sorted, pair.tables))}",
                         flow)
        self.pairs.remove(pair)
        pair.close()

    def failure(self, text, flow):
        self.lab.failures.append(f"MHS_SEED={self.seed}: {text}")
        if self.lab.args.control:
            return
        if self.said < len(self.log):
            row = self.active.row()
            self.log.append(" ".join(f"{k}={row.get(k)}" for k in (
                "State", "Servers", "Gone", "Hold", "Pin", "Entries")))
        if not self.said:
            say(f"MHS_SEED={self.seed}:")
        for line in self.log[self.said:]:
            say("  " + line)
        self.said = len(self.log)
        say("  FAILS " + text)
        watch = flow.watch or self.watch(flow)
        for line in watch.report():
            say("    " + line)

    # The operator

    def everywhere(self):
        for director in self.directors:
            if director.up:
                director.apply()

    def do_add(self, rng):
        free = [s for s in self.servers if s not in self.lab.conf]
        if not free:
            return False
        server = rng.choice(free)
        self.lab.conf[server] = rng.choice((1, 1, 1, 2, 3))
        self.note(f"add {server}, weight {self.lab.conf[server]}")
        self.everywhere()
        return True

    def do_delete(self, rng):
        if len(self.lab.conf) < 3:
            return False
        server = rng.choice(sorted(self.lab.conf))
        self.note(f"delete {server}")
        del self.lab.conf[server]
        self.everywhere()
        if self.lab.expire:
            self.drop("deleted", lambda p: p.server == server)
        return True

    def do_weight(self, rng):
        server = rng.choice(sorted(self.lab.conf))
        self.lab.conf[server] = rng.choice((0, 1, 1, 2, 3))
        self.note(f"weight of {server}: {self.lab.conf[server]}")
        self.everywhere()
        return True

    def edit(self, text, line):
        self.note(text)
        for director in self.directors:
            if director.up:
                director.rules(line)
        self.ping()

    def do_threshold(self, rng):
        """It comes, flows go on, it goes."""
        server = rng.choice(sorted(self.lab.conf))
        if any(server not in d.listed for d in self.directors if d.up):
            return False
        weight = self.active.listed[server]
        line = (f"-e {{svc}} {self.active.real(server)} {{how}} -w "
                f"{weight} -x ")
        if any(d.listed[server] != weight for d in self.directors if d.up):
            return False
        self.edit(f"{server} has a threshold", f"{line}1000")
        self.edit("none any more", f"{line}0")
        return True

    def do_persistence(self, _rng):
        self.edit("the service is persistent", "-E {svc} -s {sched} -p 60")
        self.edit("it is not any more", "-E {svc} -s {sched}")
        return True

    def do_restore(self, rng):
        """Deleted and made again, where no slot is in a transition: what a
        service knew of its old servers goes with it."""
        if not self.do_merge(rng):
            return False
        self.note("delete and restore the service")
        if self.lab.expire:     # the core deletes the entries meanwhile
            self.drop("deleted", lambda p: self.active.set not in p.tables)
        # what comes meanwhile meets the local stack: qdisc_tool would hold it
        with self.unplugged():
            for director in self.directors:
                if director.up:
                    director.rules("-D {svc}")
                    director.fill(rng)
        return True

    def quiet(self):
        """No flow has a segment on its way, which would meet no service."""
        return all(self.servers[p.server].healthy for p in self.pairs)

    def do_merge(self, _rng):
        """Hold and pin end; each flow sends meanwhile."""
        if self.lab.args.control or not self.quiet():
            return False
        self.note("the transition ends")
        self.drop("deleted", lambda p: p.server not in self.active.listed)
        for hold, pin, over in (0, LONG, self.pinned), (0, 100, self.merged):
            for director in self.directors:
                if director.up:
                    director.windows(hold, pin)
            until(lambda over=over: all(over(d) for d in self.directors if d.up))
            self.ping()
        for director in self.directors:
            if director.up:
                director.windows(LONG, LONG)
                director.old = director.set
        return True

    @staticmethod
    def pinned(director):
        return director.row().get("Hold") == "0"

    @staticmethod
    def merged(director):
        row = director.row()
        return row.get("State") == "stable" and row.get("Gone") == "0"

    # What happens to servers

    def lost(self, server):
        self.drop("server died", lambda p: p.server == server.name)

    def later(self, rng, what, server, on, most=3):
        """A director's checker notices, each at its own time."""
        for director in self.directors:
            self.due.append((rng.randint(0, most), what, director, server, on))

    def healthy_one(self, rng):
        """Not all of them."""
        well = [s for s in sorted(self.lab.conf) if self.servers[s].healthy]
        return self.servers[rng.choice(well)] if len(well) > 2 else None

    def do_kill(self, rng):
        server = self.healthy_one(rng)
        if not server:
            return False
        self.note(f"the program of {server.name} dies")
        server.kill()
        self.lost(server)
        self.later(rng, "notice", server, True)
        self.due.append((rng.randint(3, 6), "revive", None, server, False))
        return True

    def do_start_beside_dead(self, rng):
        """A director that starts while a server is dead, and takes over."""
        server, director = self.healthy_one(rng), self.other()
        if not server or not self.do_merge(rng):
            return False
        self.note(f"the program of {server.name} dies, both checkers notice")
        server.kill()
        self.lost(server)
        for each in self.directors:
            self.notice(each, server, True)
        self.do_merge(rng)
        self.open(4)
        director.boot()
        self.start(director, None, rng.random() < 0.3)
        if self.active is not director:
            self.switch()
        self.due.append((rng.randint(2, 4), "revive", None, server, False))
        return True

    def do_restart(self, rng):
        server = self.healthy_one(rng)
        if not server:
            return False
        self.note(f"the program of {server.name} restarts")
        server.kill()
        self.lost(server)
        self.open(1)
        server.start()
        return True

    def do_reboot(self, rng):
        server = self.healthy_one(rng)
        if not server:
            return False
        self.note(f"{server.name} reboots")
        server.link(False)
        server.kill()
        self.lost(server)
        self.later(rng, "notice", server, True)
        self.due.append((rng.randint(3, 6), "revive", None, server, False))
        return True

    def do_freeze(self, rng):
        """The program, or the cable: nothing is lost."""
        server = self.healthy_one(rng)
        if not server:
            return False
        cable = rng.random() < 0.5
        self.note(f"{server.name} freezes, {'cable' if cable else 'program'}")
        if cable:
            server.link(False)
        else:
            server.freeze(True)
        for pair in self.pairs:     # its flows send, and send again
            if pair.server == server.name:
                for flow in pair.flows.values():
                    flow.ask()
        if rng.random() < 0.5:
            self.later(rng, "notice", server, True, 1)
        self.due.append((rng.randint(1, 3), "thaw", None, server, False))
        return True

    def notice(self, director, server, bad):
        if not director.up or (server.name in director.bad) == bad or \
                server.healthy == bad:
            return
        self.note(f"checker {director.number}: {server.name} is "
                  f"{'dead' if bad else 'back'}")
        (director.bad.add if bad else director.bad.discard)(server.name)
        director.apply()
        if bad and self.lab.expire and not self.lab.inhibit:
            self.drop("deleted", lambda p: p.server == server.name)

    def revive(self, _director, server, _on):
        self.note(f"{server.name} is back")
        server.link(True)
        server.start()
        self.later(self.rng, "notice", server, False)

    def thaw(self, _director, server, _on):
        self.note(f"{server.name} goes on")
        server.freeze(False)
        server.link(True)
        self.later(self.rng, "notice", server, False)

    # What happens to directors

    def other(self):
        return self.directors[1 - self.active.number]

    def switch(self):
        director = self.other()
        self.note(f"director {director.number} takes over")
        self.drop("unknown to the other director",
                  lambda p: director.old not in p.tables)
        self.active = director
        self.lab.route(director)

    def do_failover(self, _rng):
        if not self.other().up:
            return False
        self.switch()
        return True

    def do_die(self, rng):
        """The active one, or the standby; it boots some events later."""
        director = rng.choice(self.directors)
        other = self.directors[1 - director.number]
        if not (director.up and other.up):
            return False
        self.note(f"director {director.number} dies")
        if director is self.active:
            self.switch()
        director.up = False
        director.boot()
        director.up = False
        self.due.append((rng.randint(0, 3), "start", director, None,
                         rng.random() < 0.5))
        return True

    def start(self, director, _server, alpha):
        """With "alpha" no server is there until its first check; without it
        all are, and the first check takes the dead ones away."""
        dead = {s for s in self.lab.conf if not self.servers[s].healthy}
        director.up = True
        director.bad = dead if alpha else set()
        self.note(f"director {director.number} starts, "
                  f"{'alpha' if alpha else 'without alpha'}, dead: "
                  f"{sorted(dead)}")
        director.fill(self.rng, one_by_one=alpha)
        for name in sorted(dead - director.bad):
            self.notice(director, self.servers[name], True)
        if self.rng.random() < 0.5:
            self.switch()

    def do_director_freezes(self, _rng):
        """Its cable, for a moment in which all flows send."""
        self.note(f"director {self.active.number} freezes and goes on")
        with self.unplugged():
            for pair in self.pairs:
                if self.reachable(pair):
                    for flow in pair.flows.values():
                        flow.ask()
            time.sleep(0.3)     # why: a freeze is a time
        self.ping()
        return True

    @contextlib.contextmanager
    def unplugged(self):
        """The active director."""
        ports = [f"v{side}{self.active.number}" for side in SIDES]
        tool = ("ip", "-n", self.lab.net("rt"), "-batch", "-")
        sh(*[f"link set {port} down" for port in ports], tool=tool)
        try:
            yield
        finally:
            sh(*[f"link set {port} up" for port in ports], tool=tool)

    # An episode

    DECK = ("add delete weight kill restart reboot freeze failover die "
            "add delete weight merge restore threshold persistence "
            "failover die freeze kill director_freezes merge "
            "start_beside_dead start_beside_dead").split()

    def run(self):
        lab, rng = self.lab, self.rng
        lab.v6 = rng.random() < 0.4
        lab.how = rng.choice(("-g", "-g", "-i"))
        lab.inhibit = rng.random() < 0.3
        lab.expire = rng.random() < 0.2
        lab.conf = {s: rng.choice((1, 1, 1, 2))
                    for s in rng.sample(SERVERS, 4)}
        self.note(f"{'IPv6' if lab.v6 else 'IPv4'} {lab.how} "
                  f"{'inhibit ' if lab.inhibit else ''}"
                  f"{'expire ' if lab.expire else ''}servers {lab.conf}")
        for director in self.directors:
            director.boot()
            director.fill(rng)
            if lab.args.control:
                director.windows(0, 1)
        # of a standby without packets a change of the first minute is a correction
        warm = rng.random() < 0.7
        for director in self.directors[::-1] if warm else self.directors[:1]:
            self.active = director
            lab.route(director)
            self.open(PAIRS if director.number == 0 else 2)
        deck = rng.sample(self.DECK, len(self.DECK))
        try:
            for index in range(EVENTS):
                self.step(deck, random.Random(f"{self.seed}/{index}"))
        finally:
            self.clean()

    def step(self, deck, rng):
        due, self.due = self.due, []
        for left, what, director, server, on in due:
            if left:
                self.due.append((left - 1, what, director, server, on))
            elif what != "start" or not director.up:    # it may run already
                getattr(self, what)(director, server, on)
        self.ping()
        while deck:
            name = deck.pop()
            if getattr(self, "do_" + name)(rng):
                self.lab.events[name] += 1
                break
        self.ping()
        self.open(2 if self.all_healthy() else 1)

    def clean(self):
        self.drop("kept to the end", lambda p: True)
        for server in self.servers.values():
            server.freeze(False)
            server.link(True)
            server.start()


def say(text):
    print("#", 0, text, sep="\t", flush=True)


def check(name, passed, text=""):
    print(name, int(not passed), text, sep="\t", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--suffix", required=True,
                        help="of the names of network namespaces")
    parser.add_argument("--seed", required=True,
                        help="of the random numbers, or SEED/EPISODE")
    parser.add_argument("--seconds", type=int, required=True)
    args = parser.parse_args()
    args.control = False
    seed, _, only = args.seed.partition("/")
    say(f"MHS_SEED={args.seed}")
    lab = Lab(args)
    numbers = iter([int(only)] if only else range(1 << 30))
    end = time.monotonic() + args.seconds
    episodes = 0
    try:
        for number in numbers:
            if episodes and time.monotonic() > end:
                break
            Episode(lab, seed, number).run()
            episodes += 1
        found, counts, events = lab.failures, lab.counts, lab.events
        lab.failures, lab.counts, lab.events = [], collections.Counter(), \
            collections.Counter()
        args.control = True
        for number in range(8):
            if not lab.failures:
                Episode(lab, seed, number).run()
    finally:
        lab.end()
    say(f"{episodes} episodes: " +
        ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    say("events: " + ", ".join(f"{k} {v}" for k, v in sorted(events.items())))
    check("mhs breaks no flow that mh keeps", not found,
          f"{len(found)} of {counts['pairs']}" if found else
          f"0 of {counts['pairs']}")
    check("flows were compared", counts["answers"] > 20 * episodes,
          f"{counts['answers']} answers of both")
    few = only or episodes < 10
    check("mh broke some that mhs kept", few or counts["mh broke"],
          counts["mh broke"])
    check("every event came", few or not set(Episode.DECK) - events.keys(),
          " ".join(set(Episode.DECK) - events.keys()))
    check("control: without a transition mhs breaks such flows",
          lab.failures, f"{len(lab.failures)}")


main()
