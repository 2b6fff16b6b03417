#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of a flow when a stranger, who sees nothing of it, sends a packet
with its addresses and ports; what becomes of flows when a server is said to be
dead; in each state of an entry, for mhs, mh and rr.

Servers A and B share a service.  The flows are those of A, of which each cell has
one of its own.

usage: strangers.py FAMILY NAMESPACE FILE

Prints NAME<tab>0 or 1<tab>TEXT for each check, and adds the tables to the file.
"""
import itertools
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, FIN, RST, SYN  # noqa: E402
from matrix import KNOBS, MACS, grid  # noqa: E402

FIRST, SENT, FAR = 1000, 2, 0x90000000  # numbers: first, bytes sent, a stranger's
OPEN = 1000             # bytes in a SYN of Fast Open
CLAIM_S = 0.9           # for so long, and a little more, unclear packets are dropped
SCHEDS = {"mhs": "mhs", "mh": "mh -b mh-port,mh-fallback", "rr": "rr"}
# packets of a stranger: flags and number
KINDS = {
    "SYN": [(SYN, FAR)], "ACK": [(ACK, FAR)], "FIN": [(FIN | ACK, FAR)],
    "RST": [(RST, FAR)], "SYN+ACK": [(SYN | ACK, FAR)], "none": [(0, FAR)],
    "2 SYNs": [(SYN, FAR), (SYN, FAR + (1 << 24))],
    "FIN, SYN": [(FIN | ACK, FAR), (SYN, FAR)],
    "RST, SYN": [(RST, FAR), (SYN, FAR)],
    "own SYN": [(SYN, FIRST)], "own SYN, silent": [(SYN, FIRST)],
    "SYN, its ACK": [(SYN, FAR), (ACK, FAR + 1)],
}
# of the flow, when the stranger comes
STATES = ("no entry", "no entry, held", "open", "half-closed", "handshake",
          "Fast Open", "no entry, pin", "pinned", "open, merged",
          "half-closed, merged", "pinned, merged", "pinned, half-closed")
# (state, kind) that are worse than with mh, see "Attacks" in the page
LIMITS = {(s, k) for s in STATES for k in ("SYN, its ACK", "own SYN, silent")
          if s not in ("no entry", "open", "open, merged")}
# what a new client sends, after its SYN with so many bytes: numbers and bytes
CLIENTS = {
    "ACK, data": (0, [(1, 0), (1, 500), (501, 500)]),
    "ACK lost": (0, [(1, 500), (501, 500)]),
    "ACK and first data lost": (0, [(501, 500), (1, 500), (501, 500)]),
    "second data first": (0, [(501, 500), (1, 0), (1, 500), (501, 500)]),
    "Fast Open": (OPEN, [(1 + OPEN, 0), (1 + OPEN, 500)]),
    "Fast Open, data refused": (OPEN, [(1, 0), (1, OPEN)]),
}
BEFORE = {"": [], "forged SYN": [(SYN, FAR)], "forged ACK": [(ACK, FAR)]}
# what is said of A, and what becomes of its flows
WAYS = {
    "weight 0": ([("-e", "-g -w 0")], 0), "deleted": ([("-d", "")], 0),
    "weight 0, then deleted": ([("-e", "-g -w 0"), ("-d", "")], 0),
    "-x 1": ([("-e", "-g -w 1 -x 1")], 0),
    # last: the core's flush may run as late as in the next row
    "deleted, expire_nodest_conn=1": ([("-d", "")], 1),
}
VARIANTS = {
    "direct routing": ("-g", "", {}), "IPIP": ("-i", "", {}),
    "conntrack": ("-g", "", {"conntrack": 1}),
    "masquerading": ("-m", "", {}),
    "masquerading, conntrack": ("-m", "", {"conntrack": 1}),
    "thresholds, flag-1": ("-g", " -b flag-1", {}),
    "after -p": ("-g", "", {}), "secure_tcp=3": ("-g", "", {"secure_tcp": 3}),
}


def check(name, bad):
    craft.check(name, not bad, "; ".join(bad[:6]))


class Flow:
    def __init__(self, port):
        self.port, self.seq, self.server = port, FIRST, None


class Lab(craft.Service):
    """One service after another"""

    def __init__(self, family, director):
        super().__init__(family, 5000)
        self.wire = craft.Wire("dr")
        craft.enter(director)
        self.ports = None

    def make(self, sched, method, more, limit=""):
        super().__init__(self.family, self.port + 1)
        self.ports = itertools.count(20000)
        craft.windows(0, 100)
        craft.ipvsadm([f"-A {self.name} -s {SCHEDS[sched]}{more}"] +
                      [self.real("-a", n, f"{method} -w 1{limit}")
                       for n in (11, 12)])
        craft.wait_all(craft.stable)
        craft.windows(craft.LONG_MS, craft.LONG_MS)

    def new(self, n):
        return [Flow(next(self.ports)) for _ in range(n)]

    def send(self, packets):
        """packets: (flow, flags, number, data); returns who got them"""
        got = self.wire.ask(
            (self.port, f.port, self.segment(f.port, flags, seq=seq & 0xffffffff,
                                             data=data))
            for f, flags, seq, data in packets)
        macs = [got[self.port, f.port] for f, *_ in packets]
        return [MACS.get(mac, mac) for mac in macs]

    def say(self, flows, flags, data=b"", count=0):
        """The flows' own next packet: who got it."""
        flows = list(flows)
        got = self.send([(f, flags, f.seq, data) for f in flows])
        for f in flows:
            f.seq += count
        return dict(zip(flows, got))

    def begin(self, want, n):
        """That many flows of the server @want, all of which have sent a little."""
        found = []
        while len(found) < n:
            flows = self.new(3 * n)
            got = self.say(flows, SYN, count=1)
            self.say(flows, ACK)
            found += [f for f in flows if got[f] == want]
        for f in found:
            f.server = want
        silent = [f for f, kind in zip(found, KINDS) if "silent" in kind]
        self.say([f for f in found if f not in silent], ACK, b"x" * SENT, SENT)
        return found[:n]

    def strange(self, cells):
        """cells: {(state, kind): flow}; returns {(state, kind): kept or how not}"""
        for step in range(2):
            self.send([(f, *KINDS[kind][step], b"")
                       for (_, kind), f in cells.items()
                       if len(KINDS[kind]) > step])
        words = {}
        for more in False, True:
            left = {c: f for c, f in cells.items()
                    if words.get(c, "lost") == "lost"}
            if more and left:
                # a dropped packet is sent again, when it is clear whose it is
                time.sleep(1.1)     # why: the client's time
            got = self.say(left.values(), ACK, b"x")
            for c, f in left.items():
                words[c] = "kept" if got[f] == f.server else got[f]
        return {c: "moved" if w in ("A", "B") else w for c, w in words.items()}

    def rows(self, flows, states):
        """The cells of states, of which each has flows by a name."""
        return {(state, kind): f for state, name in states.items()
                for kind, f in zip(KINDS, flows[name])}

    def table(self, sched, variant):
        method, more, sysctls = VARIANTS[variant]
        for name, value in sysctls.items():
            craft.vs_sysctl(name, value)
        self.make(sched, method, more if sched == "mhs" else "",
                  " -x 5000" if more else "")
        if variant == "after -p":
            edit = f"-E {self.name} -s {SCHEDS[sched]}"
            craft.ipvsadm([edit + " -p 300"])
            craft.ipvsadm([edit])
        pools = {}
        for stateless, names in enumerate((
                ("entry", "half", "entry later", "half later"),
                ("stable", "plain", "pin", "pinned", "pinned later",
                 "pinned half"))):
            craft.vs_sysctl("mhs/stateless", stateless)
            for name in names:
                pools[name] = self.begin("A", len(KINDS))
        for name in "half", "half later":
            self.say(pools[name], FIN | ACK, count=1)
        out = self.strange(self.rows(pools, {"no entry": "stable"}))
        craft.ipvsadm([self.real("-e", 11, f"{method} -w 0")])
        craft.wait_all(craft.rebuilt)
        pools.update(self.handshakes())
        out.update(self.strange(self.rows(pools, {
            "no entry, held": "plain", "open": "entry", "half-closed": "half",
            "handshake": "handshake", "Fast Open": "Fast Open"})))
        if sched == "mhs":
            craft.vs_sysctl("mhs/hold_ms", 0)
            craft.wait_all(craft.pinning)
        for name in "pinned", "pinned later", "pinned half":
            self.say(pools[name], ACK)
        self.say(pools["pinned half"], FIN | ACK, count=1)
        out.update(self.strange(self.rows(pools, {
            "no entry, pin": "pin", "pinned": "pinned",
            "pinned, half-closed": "pinned half"})))
        if sched == "mhs":
            craft.vs_sysctl("mhs/pin_ms", 100)
            craft.wait_all(craft.stable)
        out.update(self.strange(self.rows(pools, {
            "open, merged": "entry later", "half-closed, merged": "half later",
            "pinned, merged": "pinned later"})))
        craft.ipvsadm(["-C"])
        for name in sysctls:
            craft.vs_sysctl(name, 0)
        return out

    def handshakes(self):
        """New flows, between SYN and ACK; the own SYN is a repeat."""
        pools = {}
        for name, size in ("handshake", 0), ("Fast Open", OPEN):
            pools[name] = self.new(len(KINDS))
            got = self.say(pools[name], SYN, b"x" * size, 1 + size)
            for f in got:
                f.server = got[f]
        return pools

    def claim(self, flow, before, size, packets):
        """What claims cost a new client with the flow's port; how long it took."""
        start, flow.seq = time.monotonic(), 7 * FIRST
        for flags, seq in before:
            self.send([(flow, flags, seq, b"")])
        server, *got = [
            self.send([(flow, flags, flow.seq + n, b"x" * length)])[0]
            for flags, n, length in
            [(SYN, 0, size), *((ACK, *packet) for packet in packets)]]
        return ("broken" if server != "B" or set(got) - {"B", "lost"} else
                f"{got.count('lost')} lost" if "lost" in got else
                "served"), time.monotonic() - start

    def clients(self, sched):
        """New clients while A drains, in the pin phase: what claims cost them."""
        self.make(sched, "-g", "")
        flows = self.begin("A", 3 * len(BEFORE) * len(CLIENTS))
        craft.ipvsadm([self.real("-e", 11, "-g -w 0")])
        craft.vs_sysctl("mhs/hold_ms", 0)
        if sched == "mhs":
            craft.wait_all(craft.pinning)
        out = {}
        for before, case in itertools.product(BEFORE, CLIENTS):
            took = CLAIM_S
            while took >= CLAIM_S:      # the machine stood still: another flow
                flow = flows.pop()
                if sched != "mhs":
                    flow, = self.new(1)    # no entry either
                out[before, case], took = self.claim(flow, BEFORE[before],
                                                     *CLIENTS[case])
        craft.ipvsadm(["-C"])
        return out

    def ways(self):
        """Who gets older and new flows, when A is said to be dead."""
        out = {}
        for (way, (commands, expire)), sched in itertools.product(
                WAYS.items(), SCHEDS):
            craft.vs_sysctl("expire_nodest_conn", expire)
            self.make(sched, "-g", " -b flag-1" if sched == "mhs" else "")
            older = self.begin("A", 12)
            craft.ipvsadm([self.real(what, 11, more) for what, more in commands])
            words = [{*self.say(older, ACK).values()},
                     {*self.say(self.new(40), SYN).values()}]
            craft.windows(0, craft.LONG_MS)
            if sched == "mhs":
                craft.wait_all(craft.pinning)
            self.say(older, ACK)
            craft.windows(0, 100)
            if sched == "mhs":
                craft.wait_all(craft.merged)
            words.insert(1, {*self.say(older, ACK).values()})
            for column, who in zip(("older", "later", "new"), words):
                out[sched, way, column] = ", ".join(sorted(who))
            craft.ipvsadm(["-C"])
        craft.vs_sysctl("expire_nodest_conn", 0)
        return out


def main():
    family, director, path = sys.argv[1:]
    lab, ip = Lab(int(family), director), f"IPv{family}"
    for name in KNOBS:
        craft.vs_sysctl(name, int(name == "conn_reuse_mode"))   # the defaults
    first, *_ = VARIANTS
    ways = lab.ways()
    clients, theirs = ({s: f(s) for s in SCHEDS} for f in (
        lab.clients, lambda s: lab.table(s, first)))
    for variant in VARIANTS:
        if lab.family == 6 and variant not in (first, "IPIP"):
            continue
        mhs = theirs["mhs"] if variant == first else lab.table("mhs", variant)
        bad = [f"{s} x {k}: {mhs[s, k]}" for s, k in mhs
               if mhs[s, k] != "kept" and (s, k) not in LIMITS and "kept" in
               (theirs["mh"][s, k], theirs["rr"][s, k])]
        check(f"{ip} {variant}: a stranger's packet is never worse than with mh "
              "and rr", bad)
    check(f"{ip}: with mh and rr new clients are served", [
        f"{s}: {b} {c}" for s in ("mh", "rr") for b, c in clients[s]
        if clients[s][b, c] != "served"])
    check(f"{ip}: with mhs new clients are served", [
        f"{b} {c}" for b, c in clients["mhs"] if clients["mhs"][b, c] == "broken"])
    check(f"{ip}: new flows never go to a server of weight 0 or a deleted one", [
        way for way in WAYS if "A" in ways["mhs", way, "new"] and "-x" not in way])

    def cell(state, kind):
        words = [theirs[s][state, kind] for s in SCHEDS]
        return words[0] if len({*words}) == 1 else "/".join(
            dict.fromkeys(words) if words[1] == words[2] else words)

    columns = [(s, c) for s in SCHEDS for c in ("older", "later", "new")]
    with open(path, "a") as f:
        f.write(
            grid(["said", *map(": ".join, columns)],
                 [[way, *(ways[s, way, c] for s, c in columns)] for way in WAYS]) +
            grid(["state", *KINDS], [[s, *(cell(s, k) for k in KINDS)]
                                     for s in STATES]) +
            grid(["client sends", *(b or "alone" for b in BEFORE)],
                 [[c, *(clients["mhs"][b, c] for b in BEFORE)] for c in CLIENTS]))


if __name__ == "__main__":
    main()
