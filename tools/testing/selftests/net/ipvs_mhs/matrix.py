#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of flows when their server is drained or deleted, in every
combination of the sysctls that could matter, for mhs and for mh.

Each cell is a service of its own.  Its servers A and B begin even; then A gets
fifty times the weight of B, so that slots move to A and new flows there have an
entry; then A is drained or deleted, and packets show who serves which flow.

Prints NAME<tab>0 or 1<tab>TEXT for each check, and writes the table.
"""
import argparse
import itertools
import sys

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, FIN, SYN  # noqa: E402
from matrix_cells import (KNOBS, all_cells, expected, name_of,  # noqa: E402
                          write)

VIP = {4: "10.9.0.1", 6: "fd09::1"}
CLIENT = {4: "10.1.0.2", 6: "fd01::2"}
ROUTER = {4: "10.1.0.1", 6: "fd01::1"}
REAL = {4: "10.2.0.{}:{}", 6: "[fd02::{}]:{}"}
MACS = {"02:00:00:00:00:11": "A", "02:00:00:00:00:12": "B"}
PORTS = range(20000, 20024)     # of flows from before
FRESH = range(30000, 30012)     # of new flows
# What several packets of one kind come to: the first of these
WORDS = ("lost", "reset", "refused", "B", "A")


class Service:
    def __init__(self, number, family, sched, cell):
        self.family, self.sched, self.cell = family, sched, cell
        self.port = number
        self.vip = craft.addr(VIP[family])
        self.client = craft.addr(CLIENT[family])
        text = VIP[family] if family == 4 else f"[{VIP[family]}]"
        self.name = f"{text}:{self.port}"
        self.result = {}
        self.flows = {}     # kind: client ports

    def make(self):
        flag = "" if self.sched == "mhs" else " -b mh-port"
        yield f"-A -t {self.name} -s {self.sched}{flag}"
        for n in (11, 12):
            yield self.real("-a", n, " -g -w 1")

    def real(self, what, n, more=""):
        server = REAL[self.family].format(n, self.port)
        return f"{what} -t {self.name} -r {server}{more}"

    def event(self):
        if self.cell["event"] == "drain":
            return self.real("-e", 11, " -g -w 0")
        return self.real("-d", 11)

    def segment(self, port, flags):
        return craft.tcp(self.client, self.vip, port, self.port, flags)

    def ack(self, port):
        return self.segment(port, ACK)

    def syn(self, port):
        return self.segment(port, SYN)

    def error(self, port):
        """A router is said to have met the server's answer."""
        quoted = craft.tcp(self.vip, self.client, self.port, port, ACK)
        return craft.too_big(craft.addr(ROUTER[self.family]), self.vip, quoted)


class Run:
    def __init__(self, args):
        self.wire = craft.Wire("dr", craft.DIRECTOR, craft.addr(CLIENT[4]),
                               craft.addr("10.2.0.10"))
        craft.enter(args.director)
        self.args = args
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
            for column, kind, make in kinds:
                packets += [((svc, column), svc, port, make(svc, port))
                            for port in svc.flows[kind]]
        for (svc, column), words in self.probe(packets).items():
            svc.result[column] = min(words, key=WORDS.index)

    def begin(self, services):
        """Flows without an entry and with one, of A and of B."""
        first = {}
        for flags in (SYN, ACK):
            first = self.probe([((s, p), s, p, s.segment(p, flags))
                                for s in services for p in PORTS])
        craft.ipvsadm([s.real("-e", 11, " -g -w 50") for s in services])
        self.rebuilt()
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
            moved = [p for p in others[1:] if now[p] == {"A"}]
            svc.flows = {"entry": moved[:1], "ended": moved[1:2],
                         "quoted": moved[2:3], "of B": others[:1],
                         "plain": mine[:1], "erring": mine[1:2],
                         "reuse": mine[2:3], "new": FRESH}
        self.probe([((s, p), s, p, s.segment(p, FIN | ACK)) for s in services
                    for p in s.flows["ended"]])
        for svc in services:
            if not all(svc.flows.values()):
                raise SystemExit(f"{svc.name}: too few flows: {svc.flows}")

    def wait(self, what, test):
        if not craft.until(test):
            raise SystemExit(f"matrix.py: waited too long for a {what}")

    def all_mhs(self, test):
        return all(test(row) for row in craft.mhs_state().values())

    def rebuilt(self):
        self.wait("table", lambda: self.all_mhs(
            lambda row: row["State"] in ("stable", "transition")))

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
        for name, value in (("mhs/hold_ms", 0), ("mhs/pin_ms", 100),
                            ("expire_nodest_conn", expire)):
            craft.vs_sysctl(name, value)
        services = [Service(next(self.ports), family, sched, cell)
                    for sched in scheds for cell in all_cells(expire)]
        mhs = [s for s in services if s.sched == "mhs"]
        craft.ipvsadm([line for s in services for line in s.make()])
        self.wait("settled table", lambda: self.all_mhs(
            lambda row: row["State"] == "stable"))
        for name in ("mhs/hold_ms", "mhs/pin_ms"):
            craft.vs_sysctl(name, 3600000)
        self.begin(services)
        craft.ipvsadm([s.event() for s in services])
        self.rebuilt()
        self.wait("flush", lambda: self.flushed(services))
        self.each_cell(services, [
            ("plain", "plain", Service.ack), ("entry", "entry", Service.ack),
            ("of B", "of B", Service.ack), ("new", "new", Service.syn),
            ("reuse", "reuse", Service.syn),
            ("reuse entry", "ended", Service.syn),
            ("error", "erring", Service.error),
            ("error entry", "quoted", Service.error)])
        self.look_for_entries(mhs)
        if mhs:
            craft.vs_sysctl("mhs/hold_ms", 0)
            self.wait("pin phase", lambda: self.all_mhs(
                lambda row: row["Hold"] == "0"))
            self.each_cell(mhs, [("plain, pin", "plain", Service.ack)])
            self.look_for_entries(mhs)
            craft.vs_sysctl("mhs/pin_ms", 100)
            self.wait("merge", lambda: self.all_mhs(
                lambda row: row["State"] == "stable" and row["Gone"] == "0"))
            self.each_cell(mhs, [("plain, later", "plain", Service.ack),
                                 ("entry, later", "entry", Service.ack)])
        craft.ipvsadm(["-C"])
        return services


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--director", required=True, help="its namespace")
    parser.add_argument("--family", type=int, default=4, choices=(4, 6))
    parser.add_argument("--table", required=True, help="file to write")
    args = parser.parse_args()
    run = Run(args)
    alone, services = [], []
    # 1 comes last: the core's flush after -C may run as late as in the next round
    for expire in KNOBS["expire_nodest_conn"]:
        alone += run.round(args.family, ("mh",), expire)
        services += run.round(args.family, ("mh", "mhs"), expire)
    mh = [s for s in services if s.sched == "mh"]
    mhs = [s for s in services if s.sched == "mhs"]
    for svc in mhs:
        want = expected(svc.cell)
        bad = [f"{c}: want {want[c]}, got {svc.result[c]}" for c in want
               if svc.result[c] != want[c]]
        print(f"IPv{args.family} {name_of(svc.cell)}", int(bool(bad)),
              ", ".join(bad), sep="\t")
    bad = [f"{name_of(a.cell)}: {a.result} became {b.result}"
           for a, b in zip(alone, mh) if a.result != b.result]
    print(f"IPv{args.family} mh beside mhs is as it was alone",
          int(bool(bad)), "; ".join(bad[:3]), sep="\t")
    lost = sum(s.result["plain"] != "A" for s in mh)
    print(f"control: IPv{args.family} mh breaks flows of another director in "
          "every cell", int(lost != len(mh)), f"{lost} of {len(mh)}", sep="\t")
    write(args.table, mhs, mh)


if __name__ == "__main__":
    main()
