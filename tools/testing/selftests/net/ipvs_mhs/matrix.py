#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of flows when their server is drained or deleted, in every
combination of the sysctls that could matter, for mhs and for mh.

Each cell is a service of its own.  Its servers A and B begin even; then A gets
fifty times the weight of B, so that slots move to A and new flows there have an
entry; then A is drained or deleted, and packets show who serves which flow.

usage: matrix.py FAMILY NAMESPACE FILE

Prints NAME<tab>0 or 1<tab>TEXT for each check, and writes the tables to the file.
"""
import itertools
import sys

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, FIN, SYN  # noqa: E402

MACS = {craft.SERVER.format(11): "A", craft.SERVER.format(12): "B"}
PORTS = range(20000, 20024)     # of flows from before
FRESH = range(30000, 30012)     # of new flows
# What several packets of one kind come to: the first of these
WORDS = ("lost", "reset", "refused", "B", "A")
KNOBS = {"expire_nodest_conn": (0, 1), "conn_reuse_mode": (0, 1, 2),
         "sloppy_tcp": (0, 1), "schedule_icmp": (0, 1)}
SHORT = {"event": "event", "expire_nodest_conn": "expire",
         "conn_reuse_mode": "reuse", "sloppy_tcp": "sloppy",
         "schedule_icmp": "icmp"}
COLUMNS = ("plain", "plain, pin", "plain, later", "entry", "entry, later", "of B",
           "new", "reuse", "reuse entry", "error", "error entry")


def expected(cell):
    """What mhs promises, of whatever the other sysctls are."""
    want = dict.fromkeys(COLUMNS, "A")
    want.update(dict.fromkeys(("of B", "new", "reuse", "reuse entry"), "B"))
    if cell["event"] == "delete":
        want.update({"plain, later": "B", "entry, later": "lost"})
        if cell["expire_nodest_conn"]:
            want = dict.fromkeys(COLUMNS, "B")
    # is there an entry for the flow that had none, in hold and in pin?
    want["entries"] = [False, cell["event"] == "drain"]
    return want


def all_cells(expire):
    for values in itertools.product(("drain", "delete"), *KNOBS.values()):
        cell = dict(zip(SHORT, values))
        if cell["expire_nodest_conn"] == expire:
            yield cell


def name_of(cell):
    return " ".join(f"{SHORT[k]}={v}" for k, v in cell.items())


def merged(services):
    """(cell, result) with "any" where a sysctl makes no difference."""
    rows = [(s.cell, s.result) for s in services]
    values = {"event": ("drain", "delete"), **KNOBS}
    for knob in reversed(values):
        groups = {}
        for cell, result in rows:
            rest = tuple((k, v) for k, v in cell.items() if k != knob)
            groups.setdefault(rest, []).append((cell, result))
        rows = []
        for group in groups.values():
            if (len(group) == len(values[knob]) and
                    all(r == group[0][1] for _, r in group)):
                group = [({**group[0][0], knob: "any"}, group[0][1])]
            rows += group
    return rows


def table(services, columns):
    """Outcomes by column."""
    head = [*SHORT.values(), *columns]
    body = [[str(v) for v in cell.values()] +
            [result[c] for c in columns] for cell, result in merged(services)]
    body.sort(key=lambda row: (row[0] == "delete", row))
    return grid(head, body)


def grid(head, body):
    """A table with rules of =, as it stands in matrix.txt."""
    wide = [max(len(row[i]) for row in [head, *body])
            for i in range(len(head))]
    rule = "  ".join("=" * w for w in wide)
    lines = ["  ".join(t.ljust(w) for t, w in zip(row, wide)).rstrip()
             for row in [head, *body]]
    return "".join(f"\t{line}\n" for line in
                   (rule, lines[0], rule, *lines[1:], rule))


class Service(craft.Service):
    def __init__(self, number, family, sched, cell):
        super().__init__(family, number)
        self.sched, self.cell = sched, cell
        self.result = {}
        self.flows = {}     # kind: client ports

    def make(self):
        flag = "" if self.sched == "mhs" else " -b mh-port"
        yield f"-A {self.name} -s {self.sched}{flag}"
        for n in (11, 12):
            yield self.real("-a", n, "-g -w 1")

    def event(self):
        drain = self.cell["event"] == "drain"
        return self.real("-e", 11, "-g -w 0") if drain else self.real("-d", 11)

    def packet(self, port, flags):
        """A segment, or without flags an error"""
        return self.segment(port, flags) if flags else self.error(port)

    def error(self, port):
        """A router is said to have met the server's answer."""
        quoted = craft.tcp(self.vip, self.client, self.port, port, ACK)
        return craft.too_big(craft.addr(craft.ROUTER[self.family]), self.vip, quoted)


class Run:
    def __init__(self, director):
        self.wire = craft.Wire("dr")
        craft.enter(director)
        self.ports = itertools.count(1000)  # entries outlive their service

    def probe(self, packets):
        """packets: (key, service, client port, packet), each service and port
        once; returns {key: words}"""
        answers = self.wire.ask((svc.port, port, packet)
                                for _, svc, port, packet in packets)
        words = {}
        for key, svc, port, _ in packets:
            word = answers[svc.port, port]
            words.setdefault(key, set()).add(MACS.get(word, word))
        return words

    def record(self, services, kinds):
        packets = []
        for svc in services:
            for column, kind, flags in kinds:
                packets += [((svc, column), svc, port, svc.packet(port, flags))
                            for port in svc.flows[kind]]
        for (svc, column), words in self.probe(packets).items():
            svc.result[column] = min(words, key=WORDS.index)

    def begin(self, services):
        """Flows without an entry and with one, of A and of B."""
        first = {}
        for flags in (SYN, ACK):
            first = self.probe([((s, p), s, p, s.segment(p, flags))
                                for s in services for p in PORTS])
        craft.ipvsadm([s.real("-e", 11, "-g -w 50") for s in services])
        craft.wait_all(craft.rebuilt)
        for svc in services:
            mine = [p for p in PORTS if first[svc, p] == {"A"}]
            others = [p for p in PORTS if first[svc, p] == {"B"}]
            if svc.sched == "mh":
                svc.flows = {"entry": mine[:1], "ended": mine[1:2],
                             "quoted": mine[2:3], "of B": others[:1],
                             "plain": FRESH[:3], "erring": FRESH[3:6],
                             "new": FRESH[6:9], "reuse": FRESH[9:]}
                continue
            for flags in (SYN, ACK):
                now = self.probe([(p, svc, p, svc.segment(p, flags))
                                  for p in others[1:]])
            moved = [p for p in now if now[p] == {"A"}]
            svc.flows = {"entry": moved[:1], "ended": moved[1:2],
                         "quoted": moved[2:3], "of B": others[:1],
                         "plain": mine[:1], "erring": mine[1:2],
                         "reuse": mine[2:3], "new": FRESH}
        self.probe([((s, p), s, p, s.segment(p, FIN | ACK)) for s in services
                    for p in s.flows["ended"]])
        for svc in services:
            if not all(svc.flows.values()):
                raise SystemExit(f"{svc.name}: too few flows: {svc.flows}")

    def entries(self):
        """(virtual port, client port): does it lead to A?"""
        with open("/proc/net/ip_vs_conn") as f:
            next(f)
            words = [line.split() for line in f]
        return {(int(w[4], 16), int(w[2], 16)): w[5][-2:] in ("0B", "11")
                for w in words}

    def look_for_entries(self, services):
        entries = self.entries()
        for svc in services:
            svc.result.setdefault("entries", []).append(
                (svc.port, svc.flows["plain"][0]) in entries)

    def flushed(self, services):
        """The core expires entries of deleted servers by itself."""
        gone = {s.port for s in services if s.cell["event"] == "delete" and
                s.cell["expire_nodest_conn"]}
        return not any(to_a and port in gone
                       for (port, _), to_a in self.entries().items())

    def each_cell(self, services, kinds):
        cells = {}
        for svc in services:
            key = tuple(svc.cell[k] for k in KNOBS)
            cells.setdefault(key, []).append(svc)
        for key, members in cells.items():
            for name, value in zip(KNOBS, key):
                craft.vs_sysctl(name, value)
            self.record(members, kinds)

    def round(self, family, scheds, expire):
        # short, for a service whose second server comes when it has settled
        craft.windows(0, 100)
        craft.vs_sysctl("expire_nodest_conn", expire)
        services = [Service(next(self.ports), family, sched, cell)
                    for sched in scheds for cell in all_cells(expire)]
        mhs = [s for s in services if s.sched == "mhs"]
        craft.ipvsadm([line for s in services for line in s.make()])
        craft.wait_all(craft.stable)
        craft.windows(craft.LONG_MS, craft.LONG_MS)
        self.begin(services)
        craft.ipvsadm([s.event() for s in services])
        craft.wait_all(craft.rebuilt)
        craft.wait(lambda: self.flushed(services), "the core's flush")
        self.each_cell(services, [
            ("plain", "plain", ACK), ("entry", "entry", ACK), ("of B", "of B", ACK),
            ("new", "new", SYN), ("reuse", "reuse", SYN), ("reuse entry", "ended", SYN),
            ("error", "erring", 0), ("error entry", "quoted", 0)])
        self.look_for_entries(mhs)
        if mhs:
            craft.vs_sysctl("mhs/hold_ms", 0)
            craft.wait_all(craft.pinning)
            self.each_cell(mhs, [("plain, pin", "plain", ACK)])
            self.look_for_entries(mhs)
            craft.vs_sysctl("mhs/pin_ms", 100)
            craft.wait_all(craft.merged)
            self.each_cell(mhs, [("plain, later", "plain", ACK),
                                 ("entry, later", "entry", ACK)])
        craft.ipvsadm(["-C"])
        return services


def main():
    family, path = int(sys.argv[1]), sys.argv[3]
    run = Run(sys.argv[2])
    alone, services = [], []
    # 1 comes last: the core's flush after -C may run as late as in the next round
    for expire in KNOBS["expire_nodest_conn"]:
        alone += run.round(family, ("mh",), expire)
        services += run.round(family, ("mh", "mhs"), expire)
    mh = [s for s in services if s.sched == "mh"]
    mhs = [s for s in services if s.sched == "mhs"]
    for svc in mhs:
        want = expected(svc.cell)
        bad = [f"{c}: want {want[c]}, got {svc.result[c]}" for c in want
               if svc.result[c] != want[c]]
        craft.check(f"IPv{family} {name_of(svc.cell)}", not bad, ", ".join(bad))
    bad = [f"{name_of(a.cell)}: {a.result} became {b.result}"
           for a, b in zip(alone, mh) if a.result != b.result]
    craft.check(f"IPv{family} mh beside mhs is as it was alone", not bad,
                "; ".join(bad[:3]))
    lost = sum(s.result["plain"] != "A" for s in mh)
    craft.check(f"control: IPv{family} mh breaks flows of another director in "
                "every cell", lost == len(mh), f"{lost} of {len(mh)}")
    with open(path, "w") as f:
        f.write(table(mhs, COLUMNS) + table(mh, [c for c in COLUMNS
                                                 if c in mh[0].result]))


if __name__ == "__main__":
    main()
