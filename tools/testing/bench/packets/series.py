#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What the patch series costs packets of other schedulers; runs in the machine,
see series.py of the benchmarks.

Two builds of IPVS come as modules into one kernel, one after the other, with a
director for each scheduler in a network namespace of its own.  Lines of CSV are
those of guest.py: what the packets are, a colon, and the step.

step            what the kernel has
stock           IPVS without the series
series          IPVS with the series, no service of mhs
mhs elsewhere   and a service of mhs in another network namespace
mhs beside      and one, of another address, beside those of rr and mh

what            the packets
route           are routed by a namespace without a service
route past rr   are routed by the director of rr
local           are for the director of rr itself, which answers by RST
NAME            are of flows that have an entry, of the scheduler NAME; for mhs
                of flows without
NAME new        are SYNs of new flows

No bucket of a hash table holds two entries, which depends on random keys, so
packets cost the same each time.
"""

import collections
import contextlib
import os
import subprocess
import time

from guest import Case, arguments
from lab import FAR, OTHER, VIP, Director, Trace, dest, run

SETS = {"stock": (), "series": ("ip_vs_mhs",)}
COMMON = ("ip_vs", "ip_vs_rr", "ip_vs_mh")
OTHERS = ("rr", "mh")
STEPS = {"stock": {"stock": OTHERS},
         "series": {"series": OTHERS, "mhs elsewhere": (*OTHERS, "mhs"),
                    "mhs beside": OTHERS}}
LOCAL = {4: "10.2.0.1", 6: "fd02::1"}  # of the director, no service
# Of IPv6 the core hashes "port | port of the service": more flows of one client
# would share buckets whatever the key is
FLOWS = 16


class Series(Case):
    """What one kernel has in one step: a director for each scheduler."""

    def __init__(self, step, schedulers, options):
        super().__init__({}, options)
        self.step, self.after = step, f": {step}"
        self.fresh = collections.defaultdict(lambda: 10000000)
        self.made = collections.Counter()
        self.schedulers = schedulers
        for name in schedulers:
            self.add(name)

    def names(self):
        return ["route"]

    def add(self, name):
        """A director, its services, and flows that are not new."""
        self.at[name] = Director(name, self.n)
        self.at[name].sysctl("net/ipv4/vs/sloppy_tcp", 1)
        self.lasting(name)
        self.serve_all(name, name, VIP)
        for _ in self.families():
            self.blast(name, "ack", 0, FLOWS, 64)

    def serve_all(self, name, scheduler, to):
        for _ in self.families():
            words = self.words(to)
            # mh, too, looks at the port
            self.at[name].ipvs(f"-A {words} -s {scheduler} -b flag-2",
                               *(f"-a {words} -r {dest(i, self.family)} -g"
                                 for i in range(self.n)))
        if scheduler == "mhs":
            self.until(name, lambda at: all(row["State"] == "stable"
                                            for row in at.lines()))

    def until(self, name, holds, otherwise=None):
        """Wait; what is to be done otherwise is tried ever again."""
        at = self.at[name]
        for turn in range(300):
            if holds(at):
                return
            if otherwise:
                otherwise(at, turn)
            time.sleep(0.2)
        raise SystemExit(f"{name}: not what it should be:\n"
                         f"{at.read('/proc/net/ip_vs_status')}")

    def spread(self, name):
        """Other random keys until no bucket of the tables holds two."""
        def short(at):
            return not any(" len-" in line and " len-1:" not in line for line
                           in at.read("/proc/net/ip_vs_status").splitlines())

        def resize(at, turn):
            for table in "conn", "svc":
                at.sysctl(f"net/ipv4/vs/{table}_lfactor", -7 - turn % 2)

        self.until(name, short, resize)

    def traced(self):
        # not what IPVS has no part in
        if not self.tracing or self.tracing in ("generator", "route"):
            return contextlib.nullcontext()
        return Trace(self.options.trace).of(
            self.step, f"{self.tracing}, IPv{self.case['family']}")

    def old_flows(self):
        found = {
            what: lambda i, to=to: self.blast("rr", "ack", 0, FLOWS,
                                              self.options.packets, to=to)
            for what, to in (("route past rr", FAR), ("local", LOCAL))}
        for name in self.schedulers:
            found[name] = lambda i, name=name: self.blast(
                name, "ack", 0, FLOWS, self.options.packets)
        return found

    def new_flows(self):
        packets = self.options.packets
        return {f"{name} new": lambda i, name=name: self.blast(
            name, "syn", self.new(name, packets), packets, packets)
            for name in self.schedulers}

    def measure(self):
        for name in self.schedulers:
            self.spread(name)
        for flows in self.old_flows(), self.new_flows():
            for _ in self.families():
                self.rounds(0, flows)
        if "mhs" in self.at and self.at["mhs"].entries():
            raise SystemExit("flows of mhs have entries")


def load(directory, names, parameters):
    for name in names:
        path = f"{directory}/{name}.ko"
        needed = run("modinfo", "-F", "depends", path).strip().split(",")
        for other in needed:
            if other and other not in names:
                run("modprobe", other)
        run("insmod", path, *(parameters if name == "ip_vs" else ()))


def unload(names):
    for name in reversed(names):
        for _ in range(100):
            if not subprocess.run(["rmmod", name], check=False,
                                  capture_output=True).returncode:
                break
            time.sleep(0.2)
        else:
            raise SystemExit(f"{name} cannot be unloaded")


def main():
    options = arguments()
    if os.path.exists("/proc/net/ip_vs"):
        raise SystemExit("IPVS is there already")
    # what boots is over then; idle time takes none
    time.sleep(60)
    for modules, more in SETS.items():
        names = (*COMMON, *more)
        load(f"{options.sets}-{modules}", names, options.modules.split())
        for step, schedulers in STEPS[modules].items():
            measured = Series(step, schedulers, options)
            if step == "mhs beside":
                for name in OTHERS:
                    measured.serve_all(name, "mhs", OTHER)
            measured.measure()
            measured.remove()
        unload(names)


if __name__ == "__main__":
    main()
