#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs; runs in the machine, see packets.py.

    blast -> veth -> director -> dummy device, which takes every packet

One director each for plain routing, mh, and mhs in each state of a slot: all
are there at the same time, so that they are measured in turns.  A line of CSV
for each measurement: what all packets took together, in nanoseconds, which are
instructions where the machine counts them (run --icount).

what                the packets
generator           come for another MAC address and are dropped at once
route               are routed
mh established      of flows that have an entry, as with mh always
mh crowd            of the flows that have filled the connection table
mhs established     of flows without an entry in stable slots
mhs crowd           of as many flows as mh has entries
held                of older flows in unstable slots, held
unstable entry      of flows in unstable slots that have an entry
unstable crowd      of as many flows as mh has entries, with an entry each

and then, as what begins fills the tables that the others are looked up in:

generator, route    the same, to compare with
mh new              SYNs, an entry each
mhs new             SYNs in stable slots
unstable new        SYNs in unstable slots, an entry each
pin                 of older flows in unstable slots, an entry each

A measurement is of as many packets for each.  A case says with "unstable" which
of the directors with unstable slots it has: held, young, pin.
"""

import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from lab import (FAR, OTHER, VIP, Director, at_port,  # noqa: E402
                 dest, module, run)

WRONG_MAC = "02:00:00:00:00:fe"
LONG_MS = 3600000
CHUNK = 50000  # flows whose SYNs still have an entry when their ACKs come
METHODS = {"routing": "-g", "ipip": "-i"}
COLUMNS = ("method", "family", "protocol", "services", "servers", "live",
           "round", "what", "packets", "ns")


class Case:
    """Directors of one kind of service."""

    def __init__(self, case, options):
        self.options = options
        self.case = {"method": "routing", "family": 4, "protocol": "tcp",
                     "services": 1, "servers": 4, "live": 0,
                     "unstable": ["held", "young", "pin"], **case}
        self.n = self.case["servers"]
        names = self.names()
        self.at = {name: Director(name, self.n) for name in names}
        self.fresh = {name: 10000000 for name in names}
        self.made = {name: 0 for name in names}  # entries, if it makes any
        self.after = ""
        for name in names[1:]:
            self.serve(name, "mh" if name == "mh" else "mhs")
        for name in names[2:]:
            self.at[name].wait(State="stable")
            self.at[name].sysctl("net/ipv4/vs/mhs/hold_ms", LONG_MS)
            self.at[name].sysctl("net/ipv4/vs/mhs/pin_ms", LONG_MS)
        for name in names[3:]:
            self.replace(name)

    def names(self):
        """Of the directors."""
        return ["route", "mh", "mhs", *self.case["unstable"]]

    @property
    def family(self):
        return self.case["family"]

    def families(self):
        """The next lines of the caller for each family in turn."""
        for family in (4, 6):
            self.case["family"] = family
            yield

    def words(self, to=VIP):
        """How ipvsadm names the service."""
        return f"-{self.case['protocol'][0]} {at_port(to[self.family])}"

    def filled(self, service, scheduler, method, family):
        """A service as ipvsadm -R reads it."""
        return [f"-A {service} -s {scheduler}",
                *(f"-a {service} -r {dest(i, family)} {METHODS[method]} -w 1"
                  for i in range(self.n))]

    def serve(self, name, scheduler):
        at = self.at[name]
        self.lasting(name)
        if scheduler == "mh":
            scheduler = "mh -b mh-port,mh-fallback"
            at.sysctl("net/ipv4/vs/sloppy_tcp", 1)
        else:
            if self.n > 4:
                # On a slow machine they come in more than one go
                at.sysctl("net/ipv4/vs/mhs/hold_ms", 0)
                at.sysctl("net/ipv4/vs/mhs/pin_ms", 100)
        others = [f"-t {OTHER[4]}:{1000 + i}"
                  for i in range(self.case["services"] - 1)]
        lines = []
        for service in [*others, self.words()]:
            family = self.family if service == self.words() else 4
            lines += self.filled(service, scheduler, self.case["method"],
                                 family)
        at.ipvs(*lines)

    def lasting(self, name):
        """The timer of an established flow's entry never changes its place: a
        packet costs the same whenever it comes."""
        self.at[name].inside(run, "ipvsadm", "--set", "1000000", "120",
                             "1000000")

    def replace(self, name):
        """All servers are drained, others take over: no slot is stable.  A
        packet has come before: without one there is no transition."""
        at, how = self.at[name], METHODS[self.case["method"]]
        self.blast(name, "ack", 0, 1, 64)
        if name == "pin":
            at.sysctl("net/ipv4/vs/mhs/hold_ms", 0)
        at.sysctl("net/ipv4/vs/mhs/max_entries", 2000000)
        size = at.mhs()["Size"]
        at.ipvs(*(f"-a {self.words()} -r {dest(self.n + i, self.family)} "
                  f"{how} -w 1" for i in range(self.n)),
                *(f"-e {self.words()} -r {dest(i, self.family)} {how} -w 0"
                  for i in range(self.n)))
        at.wait(Stable=0, **{"Pin" if name == "pin" else "Hold": size})

    def blast(self, name, kind, first, flows, packets, done=0, to=VIP,
              lost=False):
        at = self.at[name]
        if self.case["protocol"] == "udp":
            kind = "udp"
        before = at.sent()
        took = int(run(self.options.blast, f"g-{name}",
                       WRONG_MAC if lost else at.mac, kind,
                       to[self.family], str(first),
                       str(flows), str(packets), str(done)))
        gone = at.sent() - before
        if gone != (0 if lost else packets):
            raise SystemExit(f"{self.case}: {packets} packets into {name}, "
                             f"{gone} left it")
        return took

    def begin(self, name, first, flows):
        """The first packets of flows: those that can have an entry do."""
        for done in range(0, flows, CHUNK):
            for kind in ("syn", "ack") if name == "young" else ("ack",):
                self.blast(name, kind, first, flows, min(CHUNK, flows - done),
                           done, to=FAR if name == "route" else VIP)

    def new(self, name, flows):
        """First of flows that are used once."""
        self.fresh[name] += flows
        self.made[name] += flows
        return self.fresh[name] - flows

    def warm(self, name):
        """The first packet to a server looks up the route to it.  Each has had
        one when this ends, and no entry is left of it."""
        at, flows = self.at[name], 20 * self.n
        at.inside(run, "ipvsadm", "--set", "1", "1", "1")
        self.begin(name, self.new(name, flows), flows)
        while at.entries():
            time.sleep(0.1)
        self.lasting(name)

    def flowing(self):
        """What does not change the tables."""
        flows, packets = self.options.flows, self.options.packets
        steps = {}
        for name, what in (("mh", "mh established"),
                           ("mhs", "mhs established"), ("held", "held"),
                           ("young", "unstable entry")):
            if name in self.at:
                steps[what] = lambda i, name=name: self.blast(
                    name, "ack", 0, flows, packets)
        live = self.case["live"]
        for name, what in (("mh", "mh crowd"), ("mhs", "mhs crowd"),
                           ("young", "unstable crowd")):
            if live and name in self.at:
                # flows that no round before has brought into the caches
                steps[what] = lambda i, name=name: self.blast(
                    name, "ack", 0, live, packets, done=i * packets)
        return steps

    def beginning(self):
        """What may make entries."""
        packets = self.options.packets
        steps = {}
        for name, what, kind in (("mh", "mh new", "syn"),
                                 ("mhs", "mhs new", "syn"),
                                 ("young", "unstable new", "syn"),
                                 ("pin", "pin", "ack")):
            if name in self.at:
                steps[what] = lambda i, name=name, kind=kind: self.blast(
                    name, kind, self.new(name, packets), packets, packets)
        return steps

    def measure(self):
        for name in self.at:
            if name != "route" and self.n > 4:
                self.warm(name)
            live = max(self.case["live"] * (name != "route"),
                       self.options.flows)
            began = time.monotonic()
            self.begin(name, 0, live)
            self.made[name] += live
            if self.case["live"]:
                print(f"# {live} flows through {name}: "
                      f"{time.monotonic() - began:.1f} s", flush=True)
        self.rounds(0, self.flowing())
        self.rounds(self.options.rounds, self.beginning())

    def rounds(self, first, steps):
        flows, packets = self.options.flows, self.options.packets
        steps = {
            "generator": lambda i: self.blast("route", "ack", 0, flows,
                                              packets, lost=True),
            "route": lambda i: self.blast("route", "ack", 0, flows, packets,
                                          to=FAR),
            **steps}
        for i in range(self.options.rounds):
            for what, step in steps.items():
                took = step(i)
                row = {**self.case, "round": first + i,
                       "what": what + self.after, "packets": packets,
                       "ns": took}
                print(",".join(str(row[c]) for c in COLUMNS), flush=True)

    def check(self):
        """What was measured is what it says."""
        # plain UDP has none in any phase
        made = self.made if self.case["protocol"] == "tcp" else {}
        rows = {name: at.mhs() for name, at in self.at.items()
                if name not in ("route", "mh")}
        wrong = [f"{name}: {row}" for name, row in rows.items()
                 for key, maker in (("NewEntries", "young"),
                                    ("PinnedEntries", "pin"))
                 if int(row[key]) != (made.get(name, 0)
                                      if name == maker else 0)]
        if wrong:
            raise SystemExit(f"{self.case}: not what was meant: "
                             + "; ".join(wrong))

    def remove(self):
        for at in self.at.values():
            at.remove()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blast", required=True)
    parser.add_argument("--cases", required=True, help="JSON: list of cases")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--packets", type=int, required=True)
    parser.add_argument("--modules", default="", help="ARGUMENTS of ip_vs")
    parser.add_argument("--table-size", type=int, default=65521)
    options = parser.parse_args()
    print(",".join(COLUMNS))
    return options


def main():
    options = arguments()
    with module(f"table_size={options.table_size}",
                ip_vs=options.modules.split()):
        for case in json.loads(options.cases):
            began = time.monotonic()
            measured = Case(case, options)
            measured.measure()
            measured.check()
            measured.remove()
            print(f"# {case} took {time.monotonic() - began:.1f} s",
                  flush=True)


if __name__ == "__main__":
    main()
