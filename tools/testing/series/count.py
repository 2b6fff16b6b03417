#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in instructions, with the postings and without; runs in a
machine that counts them:

    count.py BLAST >>count.csv

by "machine/run --append nokaslr --icount --exec", for the kernels qemu and
qemu-tree of build-kernel.  BLAST is compiled from bench/packets.  A line is the
least of five rounds, the sender included.

established     of a flow with a connection (mhs: without one)
new             a SYN that makes a connection (mhs: none)
miss            of no flow: the stack of the director answers
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))), "bench"))

from lab import OTHER, VIP, Director, at_port, dest, run  # noqa: E402

PACKETS = 7 * 64  # bursts of blast
with open("/proc/kallsyms", encoding="ascii") as symbols:
    PATCHED = "ip_vs_mhs" in symbols.read()


def blast(at, kind, address, first, packets=PACKETS):
    return int(run(sys.argv[1], f"g-{at.name}", at.mac, kind, address,
                   str(first), str(packets), str(packets), "0"))


def serve(at, address, scheduler):
    at.ipvs(f"-A -t {at_port(address)} -s {scheduler}",
            *(f"-a -t {at_port(address)} -r {dest(i, 4)} -g"
              for i in range(4)))


def stateless(at):
    """A packet of no flow leaves by the service of mhs: it is settled."""
    before = at.sent()
    blast(at, "ack", OTHER[4], 0, 64)
    return at.sent() > before


def measure(name, scheduler, address, at):
    steps = {"established": ("ack", 0), "new": ("syn", 10000),
             "miss": ("ack", 1000000)}
    if scheduler == "mhs":
        del steps["miss"]
    blast(at, "syn", address, 0)
    blast(at, "ack", address, 0)
    for what, (kind, first) in steps.items():
        took = [blast(at, kind, address, first + (what != "established") *
                      i * PACKETS) for i in range(6)]
        print(f"{'after' if PATCHED else 'before'},{name},{what},"
              f"{min(took[1:]) // PACKETS}", flush=True)


def main():
    for scheduler in "rr", "mh":
        at = Director(scheduler, 4)
        serve(at, VIP[4], scheduler)
        measure(scheduler, scheduler, VIP[4], at)
    if not PATCHED:
        return
    at = Director("beside", 4)
    serve(at, VIP[4], "rr")
    serve(at, OTHER[4], "mhs")
    while not stateless(at):
        time.sleep(0.1)
    measure("rr beside mhs", "rr", VIP[4], at)
    measure("mhs", "mhs", OTHER[4], at)


if __name__ == "__main__":
    main()
