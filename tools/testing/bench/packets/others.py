#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What packets cost that are not for mhs; runs in the machine, see counts.py.

IPVS, the module and services come to one director, one after the other, and
after each step packets of both families are measured as in guest.py.  Lines of
CSV are those of guest.py: what the packets are, a colon, and the step.

step            what the director has
no IPVS         nothing: ip_vs is not loaded
IPVS with wlc   a service of wlc by direct routing
mhs loaded      ip_vs_mhs, too, and no service of it
service of mhs  one by direct routing

what            the packets
generator       come for another MAC address and are dropped at once
route           are for no service and are routed
wlc             of flows of the service of wlc, with an entry each
"""

import os
import time

from guest import Case, arguments
from lab import OTHER, VIP, module, run


class Others(Case):
    """One director, and what comes to it."""

    def names(self):
        return ["route"]

    def measure(self):
        flows = self.options.flows
        if os.path.exists("/proc/net/ip_vs"):
            raise SystemExit("IPVS is there already")
        # what boots and new devices do is over then; idle time takes none
        time.sleep(60)
        for _ in self.families():
            self.begin("route", 0, flows)
        self.step("no IPVS", {})
        run("modprobe", "ip_vs", *self.options.modules.split())
        self.add("wlc", "routing", OTHER)
        self.lasting("route")
        for _ in self.families():
            for kind in "syn", "ack":
                self.blast("route", kind, 0, flows, flows, to=OTHER)
        wlc = {"wlc": lambda i: self.blast("route", "ack", 0, flows,
                                           self.options.packets, to=OTHER)}
        self.step("IPVS with wlc", wlc)
        with module(f"table_size={self.options.table_size}"):
            self.step("mhs loaded", wlc)
            self.add("mhs", "routing", VIP)
            self.settle()
            self.step("service of mhs", wlc)

    def add(self, scheduler, method, to):
        for _ in self.families():
            self.at["route"].ipvs(*self.filled(self.words(to), scheduler,
                                               method, self.family))

    def settle(self):
        """Then no flow of mhs has an entry."""
        at, flows = self.at["route"], self.options.flows
        for _ in self.families():
            at.wait([self.family], State="stable")
            self.blast("route", "ack", 0, flows, flows)
        if at.entries() != 2 * flows:
            raise SystemExit(f"{at.entries()} entries, not only those of wlc")

    def step(self, name, steps):
        self.after = f": {name}"
        for _ in self.families():
            self.rounds(0, steps)


if __name__ == "__main__":
    Others({}, arguments()).measure()
