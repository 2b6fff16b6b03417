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
mh new              SYNs, an entry each
mh crowd            of the flows that have filled the connection table
mhs established     of flows without an entry in stable slots
mhs new             SYNs in stable slots
mhs crowd           of as many flows as mh has entries
held                of older flows in unstable slots, held
unstable new        SYNs in unstable slots, an entry each
unstable entry      of flows that have this entry
pin                 of older flows in unstable slots, an entry each

With --trace the last round of packets is announced to the host: a file named
"ask" says "on" or "off", the case and what, and is gone when that is done.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from lab import FAR, VIP, Director, dest, module, run  # noqa: E402

WRONG_MAC = "02:00:00:00:00:fe"
LONG_MS = 3600000
METHODS = {"routing": "-g", "ipip": "-i", "masquerading": "-m"}
COLUMNS = ("method", "family", "protocol", "services", "servers", "live",
           "round", "what", "packets", "ns")


class Case:
    """Directors of one kind of service."""

    def __init__(self, case, options):
        self.options = options
        self.case = {"method": "routing", "family": 4, "protocol": "tcp",
                     "services": 1, "servers": 4, "live": 0, **case}
        self.family = self.case["family"]
        self.n = self.case["servers"]
        names = ["route", "mh", "mhs"]
        # slots are marked used by default only while the service is young
        if not self.case["live"] and self.case["services"] == 1 and \
                self.n == 4:
            names += ["held", "young", "pin"]
        self.at = {name: Director(name, self.n) for name in names}
        self.fresh = {name: 10000000 for name in names}
        self.tracing = ""
        for name in names[1:]:
            self.serve(name, "mh" if name == "mh" else "mhs")
        for name in names[2:]:
            self.at[name].wait(State="stable")
            self.at[name].sysctl("net/ipv4/vs/mhs/hold_ms", LONG_MS)
            self.at[name].sysctl("net/ipv4/vs/mhs/pin_ms", LONG_MS)
        for name in names[3:]:
            self.replace(name)

    def words(self):
        """How ipvsadm names the service."""
        address = f"[{VIP[6]}]" if self.family == 6 else VIP[4]
        return f"-{self.case['protocol'][0]} {address}:80"

    def serve(self, name, scheduler):
        at, how = self.at[name], METHODS[self.case["method"]]
        if scheduler == "mh":
            scheduler = "mh -b mh-port,mh-fallback"
            at.sysctl("net/ipv4/vs/sloppy_tcp", 1)
        elif self.n > 4:
            # On a slow machine they come in more than one go
            at.sysctl("net/ipv4/vs/mhs/hold_ms", 0)
            at.sysctl("net/ipv4/vs/mhs/pin_ms", 100)
        others = [f"-t 10.9.0.2:{1000 + i}"
                  for i in range(self.case["services"] - 1)]
        lines = []
        for service in [*others, self.words()]:
            family = self.family if service == self.words() else 4
            lines += [f"-A {service} -s {scheduler}",
                      *(f"-a {service} -r {dest(i, family)} {how} -w 1"
                        for i in range(self.n))]
        at.ipvs(*lines)

    def replace(self, name):
        """All servers are drained, others take over: no slot is stable."""
        at, how = self.at[name], METHODS[self.case["method"]]
        if name == "pin":
            at.sysctl("net/ipv4/vs/mhs/hold_ms", 0)
        at.sysctl("net/ipv4/vs/mhs/max_entries", 2000000)
        size = at.mhs()["Size"]
        at.ipvs(*(f"-a {self.words()} -r {dest(self.n + i, self.family)} "
                  f"{how} -w 1" for i in range(self.n)),
                *(f"-e {self.words()} -r {dest(i, self.family)} {how} -w 0"
                  for i in range(self.n)))
        at.wait(Stable=0, **{"Pin" if name == "pin" else "Hold": size})

    def blast(self, name, kind, first, flows, packets, done=0, far=False,
              lost=False):
        at = self.at[name]
        if self.case["protocol"] == "udp":
            kind = "udp"
        before = at.sent()
        with self.traced():
            took = int(run(self.options.blast, f"g-{name}",
                           WRONG_MAC if lost else at.mac, kind,
                           (FAR if far else VIP)[self.family], str(first),
                           str(flows), str(packets), str(done)))
        gone = at.sent() - before
        if gone != (0 if lost else packets):
            raise SystemExit(f"{self.case}: {packets} packets into {name}, "
                             f"{gone} left it")
        return took

    @contextlib.contextmanager
    def traced(self):
        """The host writes down which instructions are executed."""
        if not self.tracing:
            yield
            return
        # all modules of the case are there by now
        symbols = f"{self.options.trace}/{self.case['method']}.kallsyms"
        if not os.path.exists(symbols):
            shutil.copyfile("/proc/kallsyms", symbols)
        self.ask("on")
        yield
        self.ask("off")

    def ask(self, word):
        path = f"{self.options.trace}/ask"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"{word}/{self.case['method']}/{self.tracing}")
        os.rename(f"{path}.new", path)
        while os.path.exists(path):
            time.sleep(0.01)

    def new(self, name):
        """First of flows that are used once."""
        self.fresh[name] += self.options.new
        return self.fresh[name] - self.options.new

    def rounds(self):
        flows, packets, new = (self.options.flows, self.options.packets,
                               self.options.new)
        live = self.case["live"]
        # walks of long chains take their time
        crowd = {"mh": self.options.crowd, "mhs": packets}
        for name in self.at:  # the first packets of these flows
            self.blast(name, "ack", 0, flows, flows, far=name == "route")
        steps = {
            "generator": lambda: self.blast("route", "ack", 0, flows, packets,
                                            lost=True),
            "route": lambda: self.blast("route", "ack", 0, flows, packets,
                                        far=True),
        }
        for name in ("mh", "mhs"):
            steps[f"{name} established"] = lambda name=name: self.blast(
                name, "ack", 0, flows, packets)
            steps[f"{name} new"] = lambda name=name: self.blast(
                name, "syn", self.new(name), new, new)
        if "held" in self.at:
            self.blast("young", "syn", 0, flows, flows)
            steps["held"] = lambda: self.blast("held", "ack", 0, flows,
                                               packets)
            steps["unstable new"] = lambda: self.blast(
                "young", "syn", self.new("young"), new, new)
            steps["unstable entry"] = lambda: self.blast("young", "ack", 0,
                                                         flows, packets)
            steps["pin"] = lambda: self.blast("pin", "ack", self.new("pin"),
                                              new, new)
        if live:
            for name in ("mh", "mhs"):
                began = time.monotonic()
                self.blast(name, "ack", 0, live, live)
                print(f"# {live} flows through {name}: "
                      f"{time.monotonic() - began:.1f} s", flush=True)
                # flows that no round before has brought into the caches
                steps[f"{name} crowd"] = lambda name=name: self.blast(
                    name, "ack", 0, live, crowd[name], done=i * crowd[name])
        for i in range(self.options.rounds):
            for what, step in steps.items():
                if self.options.trace and i == self.options.rounds - 1:
                    self.tracing = what
                took = step()
                self.tracing = ""
                count = packets
                if what.endswith(" new") or what == "pin":
                    count = new
                elif what == "mh crowd":
                    count = crowd["mh"]
                row = {**self.case, "round": i, "what": what,
                       "packets": count, "ns": took}
                print(",".join(str(row[c]) for c in COLUMNS), flush=True)

    def check(self):
        """What was measured is what it says."""
        flows, rounds, new = (self.options.flows, self.options.rounds,
                              self.options.new)
        # plain UDP has none in any phase
        made = flows + rounds * new if self.case["protocol"] == "tcp" else 0
        rows = {name: at.mhs() for name, at in self.at.items()
                if name not in ("route", "mh")}
        wrong = [f"{name}: {rows[name]}" for name, key, want in (
            ("mhs", "NewEntries", 0), ("mhs", "PinnedEntries", 0),
            ("held", "NewEntries", 0), ("held", "PinnedEntries", 0),
            ("young", "NewEntries", made), ("pin", "PinnedEntries", made))
            if name in rows and int(rows[name][key]) != want]
        if wrong:
            raise SystemExit(f"{self.case}: not what was meant: "
                             + "; ".join(wrong))

    def remove(self):
        for at in self.at.values():
            at.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blast", required=True)
    parser.add_argument("--cases", required=True, help="JSON: list of cases")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--packets", type=int, required=True)
    parser.add_argument("--new", type=int, required=True)
    parser.add_argument("--crowd", type=int, default=1000,
                        help="packets through mh's crowded table")
    parser.add_argument("--modules", default="", help="ARGUMENTS of ip_vs")
    parser.add_argument("--table-size", type=int, default=65521)
    parser.add_argument("--trace", metavar="DIR", help="where to ask the host")
    options = parser.parse_args()
    print(",".join(COLUMNS))
    with module(f"table_size={options.table_size}",
                ip_vs=options.modules.split()):
        for case in json.loads(options.cases):
            began = time.monotonic()
            measured = Case(case, options)
            measured.rounds()
            measured.check()
            measured.remove()
            print(f"# {case} took {time.monotonic() - began:.1f} s",
                  flush=True)


if __name__ == "__main__":
    main()
