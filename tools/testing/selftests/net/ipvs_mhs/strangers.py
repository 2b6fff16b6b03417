#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of a flow when a stranger, who sees nothing of it, sends a packet
with its addresses and ports; what becomes of flows when a server is said to be
dead; in each state of an entry, for mhs, mh and rr.

Servers A and B share a service.  The flows are those of A, of which each cell has
one of its own.

Prints NAME<tab>0 or 1<tab>TEXT for each check, and adds the tables to a file.
"""
import argparse
import itertools
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, FIN, RST, SYN  # noqa: E402
from matrix import CLIENT, MACS, REAL, VIP  # noqa: E402
from matrix_cells import KNOBS, grid  # noqa: E402

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
# what the flow itself has sent last, before the stranger comes
STATES = {
    "no entry": "plain", "no entry, held": "plain", "open": "entry",
    "half-closed": "half", "handshake": "new", "Fast Open": "data",
    "no entry, pin": "plain", "pinned": "pinned", "open, merged": "entry",
    "half-closed, merged": "half", "pinned, merged": "pinned",
    "pinned, half-closed": "pinned half",
}
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
    print(name, int(bool(bad)), "; ".join(bad[:6]), sep="\t", flush=True)


class Flow:
    def __init__(self, port):
        self.port, self.seq, self.server = port, FIRST, None


class Lab:
    def __init__(self, args):
        self.family = args.family
        self.wire = craft.Wire("dr", craft.DIRECTOR, craft.addr(CLIENT[4]),
                               craft.addr("10.2.0.10"))
        craft.enter(args.director)
        self.vports, self.ports = itertools.count(5000), None
        self.vport = self.method = None

    def real(self, what, n, more):
        server = REAL[self.family].format(n, self.vport)
        return f"{what} -t {self.name} -r {server} {more}"

    def make(self, sched, method, more, limit=""):
        self.vport, self.method = next(self.vports), method
        self.ports = itertools.count(20000)
        vip = VIP[self.family] if self.family == 4 else f"[{VIP[6]}]"
        self.name = f"{vip}:{self.vport}"
        self.times(0, 100)
        craft.ipvsadm([f"-A -t {self.name} -s {SCHEDS[sched]}{more}"] +
                      [self.real("-a", n, f"{method} -w 1{limit}")
                       for n in (11, 12)])
        self.wait(lambda row: row["State"] == "stable")
        self.times(3600000, 3600000)

    def times(self, hold_ms, pin_ms):
        craft.vs_sysctl("mhs/hold_ms", hold_ms)
        craft.vs_sysctl("mhs/pin_ms", pin_ms)

    def wait(self, test):
        if not craft.until(lambda: all(map(test, craft.mhs_state().values()))):
            raise SystemExit("strangers.py: waited too long")

    def send(self, packets):
        """packets: (flow, flags, number, data); returns who got them"""
        got = self.wire.ask(
            (self.vport, f.port, craft.tcp(
                craft.addr(CLIENT[self.family]), craft.addr(VIP[self.family]),
                f.port, self.vport, flags, seq=seq & 0xffffffff, data=data))
            for f, flags, seq, data in packets)
        return [MACS.get(got[self.vport, p[0].port], got[self.vport,
                         p[0].port]) for p in packets]

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
            flows = [Flow(next(self.ports)) for _ in range(3 * n)]
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

    def row(self, state, flows):
        return {(state, kind): f for kind, f in zip(KINDS, flows)}

    def table(self, sched, variant):
        method, more, sysctls = VARIANTS[variant]
        for name, value in sysctls.items():
            craft.vs_sysctl(name, value)
        self.make(sched, method, more if sched == "mhs" else "",
                  " -x 5000" if more else "")
        n, out = len(KINDS), {}
        if variant == "after -p":
            edit = f"-E -t {self.name} -s {SCHEDS[sched]}"
            craft.ipvsadm([edit + " -p 300"])
            craft.ipvsadm([edit])
        pools = {}
        craft.vs_sysctl("mhs/stateless", 0)
        for name in "entry", "half", "entry later", "half later":
            pools[name] = self.begin("A", n)
        craft.vs_sysctl("mhs/stateless", 1)
        for name in "stable", "plain", "pin", "pinned", "pinned later", \
                "pinned half":
            pools[name] = self.begin("A", n)
        for name in "half", "half later":
            self.say(pools[name], FIN | ACK, count=1)
        out.update(self.strange(self.row("no entry", pools["stable"])))
        craft.ipvsadm([self.real("-e", 11, f"{method} -w 0")])
        self.wait(lambda row: row["State"] in ("stable", "transition"))
        cells = {}
        for state, name in (("no entry, held", "plain"), ("open", "entry"),
                            ("half-closed", "half")):
            cells.update(self.row(state, pools[name]))
        out.update(self.strange({**cells, **self.handshakes()}))
        if sched == "mhs":
            craft.vs_sysctl("mhs/hold_ms", 0)
            self.wait(lambda row: row["Hold"] == "0")
        for name in "pinned", "pinned later", "pinned half":
            self.say(pools[name], ACK)
        self.say(pools["pinned half"], FIN | ACK, count=1)
        cells = {}
        for state, name in (("no entry, pin", "pin"), ("pinned", "pinned"),
                            ("pinned, half-closed", "pinned half")):
            cells.update(self.row(state, pools[name]))
        out.update(self.strange(cells))
        if sched == "mhs":
            craft.vs_sysctl("mhs/pin_ms", 100)
            self.wait(lambda row: row["State"] == "stable")
        cells = {}
        for state, name in (("open, merged", "entry later"),
                            ("half-closed, merged", "half later"),
                            ("pinned, merged", "pinned later")):
            cells.update(self.row(state, pools[name]))
        out.update(self.strange(cells))
        craft.ipvsadm(["-C"])
        for name in sysctls:
            craft.vs_sysctl(name, 0)
        return out

    def handshakes(self):
        """New flows, between SYN and ACK; the own SYN is a repeat."""
        cells = {}
        for state, size in ("handshake", 0), ("Fast Open", OPEN):
            flows = [Flow(next(self.ports)) for _ in KINDS]
            got = self.say(flows, SYN, b"x" * size, 1 + size)
            for f in flows:
                f.server = got[f]
            cells.update(self.row(state, flows))
        return cells

    def client(self, flow, before, size, packets):
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
            self.wait(lambda row: row["Hold"] == "0")
        out = {}
        for before, case in itertools.product(BEFORE, CLIENTS):
            took = CLAIM_S
            while took >= CLAIM_S:      # the machine stood still: another flow
                flow = flows.pop()
                if sched != "mhs":
                    flow = Flow(next(self.ports))   # no entry either
                out[before, case], took = self.client(flow, BEFORE[before],
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
                     {*self.say([Flow(next(self.ports)) for _ in range(40)],
                                SYN).values()}]
            self.times(0, 3600000)
            if sched == "mhs":
                self.wait(lambda row: row["Hold"] == "0")
            self.say(older, ACK)
            self.times(0, 100)
            if sched == "mhs":
                self.wait(lambda row: row["State"] == "stable" and
                          row["Gone"] == "0")
            words.insert(1, {*self.say(older, ACK).values()})
            for column, who in zip(("older", "later", "new"), words):
                out[sched, way, column] = ", ".join(sorted(who))
            craft.ipvsadm(["-C"])
        craft.vs_sysctl("expire_nodest_conn", 0)
        return out


TEXT = """
Dead in all ways
================

Who gets a flow of A when A is said to be dead: *older* at once, *later* after hold + pin,
*new* flows.  *weight 0* (``ipvsadm -e -w 0``) is what keepalived says with
``inhibit_on_failure`` and ldirectord with ``quiescent=yes``; *deleted* (``-d``) what both say
without, also when a sorry server takes over, and kube-router of UDP; *weight 0, then deleted*
kube-router of a pod that ends.  ``-x 1`` stands for a threshold below the number of flows,
with ``flag-1`` and ``mh-fallback``.  Where A stands in a cell and is dead, those flows hang.
B resets older flows of A.  keepalived.sh runs keepalived itself::

{ways}

A stranger's packets
====================

Somebody who sees nothing of a flow sends packets with its addresses and ports, and A drains.
*kept*: the flow's next packet reaches its server.  *moved*: the packet reaches the other one.
Behind a stroke stands what happens with ``mh`` and ``rr``, where that differs.  *open*: with an
entry since the SYN, *pinned*: since a later packet, *half-closed*: after the client's FIN.
*own SYN* is a repeat of the flow's own that comes late; *silent*, of a flow that has sent no
data.  Direct routing, IPIP, IPv4, IPv6, with conntrack, ``secure_tcp=3``, after ``-p``::

{strangers}

What claims cost new clients in the pin phase, without a stranger, and after his SYN or ACK from
the same port.  *lost*: packets that ``mhs`` drops, which the client sends again; ``mh`` and
``rr`` lose none::

{clients}
"""


def indented(head, rows):
    return "\n".join("\t" + line for line in grid(head, rows).split("\n"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--director", required=True, help="its namespace")
    parser.add_argument("--family", type=int, default=4, choices=(4, 6))
    parser.add_argument("--table", required=True, help="file to add to")
    args = parser.parse_args()
    lab, ip = Lab(args), f"IPv{args.family}"
    for name in KNOBS:
        craft.vs_sysctl(name, int(name == "conn_reuse_mode"))   # the defaults
    first, *_ = VARIANTS
    ways = lab.ways()
    clients, theirs = ({s: f(s) for s in SCHEDS} for f in (
        lab.clients, lambda s: lab.table(s, first)))
    for variant in VARIANTS:
        if args.family == 6 and variant not in (first, "IPIP"):
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

    with open(args.table, "a") as f:
        f.write(TEXT.format(
            ways=indented(["said", *(f"{s}: {c}" for s in SCHEDS for c in
                                     ("older", "later", "new"))],
                          [[way, *(ways[s, way, c] for s in SCHEDS for c in
                                   ("older", "later", "new"))] for way in WAYS]),
            strangers=indented(["state", *KINDS], [
                [s, *(cell(s, k) for k in KINDS)] for s in STATES]),
            clients=indented(["client sends", *(b or "alone" for b in BEFORE)], [
                [c, *(clients["mhs"][b, c] for b in BEFORE)] for c in CLIENTS])))


if __name__ == "__main__":
    main()
