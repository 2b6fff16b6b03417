#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Thresholds, the fallback flag and the address flag, on two directors; what
new flows meet when no more entries can be made or no server is left.

Server 1 of four has an upper threshold of 10 and a lower one of 5.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import argparse
import collections
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, RST, SYN  # noqa: E402

VIP = {4: "10.9.0.1", 6: "[fd09::1]"}
REAL = {4: "10.2.0.{}:{}", 6: "[fd02::{}]:{}"}
CLIENT = {4: "10.1.0.{}", 6: "fd01::{}"}
FULL = "02:00:00:00:00:11"
UPPER, LOWER = 10, 5
FIRST = 20000
CROWD = 60
LAST = f"02:00:00:00:00:{10 + CROWD}"
ROUTER = "02:00:00:00:00:01"
BEHIND = "10.3.0.1"       # whose packets have the mark 9
LONG_MS = 3600000
SYN_RECV_S = 60      # an entry of the core lives so long


def check(name, good, text=""):
    print(name, int(not good), text, sep="\t", flush=True)


class Director:
    def __init__(self, dev, family):
        self.family = family
        self.vip = craft.addr(VIP[family].strip("[]"))
        self.service = self.port = None
        self.wire = craft.Wire(dev, craft.DIRECTOR,
                               craft.addr(CLIENT[family].format(2)),
                               self.vip)
        self.ns = None

    def make(self, port, sched, limit=True, servers=range(11, 15)):
        """On a port of its own: entries outlive their service, and count."""
        self.port = port
        self.service = f"-t {VIP[self.family]}:{port}"
        lines = [f"-A {self.service} -s {sched}"]
        for n in servers:
            more = f" -x {UPPER} -y {LOWER}" if limit and n == 11 else ""
            lines.append(self.real("-a", n, f"-g -w 1{more}"))
        craft.ipvsadm(lines)
        craft.until(stable)

    def real(self, mode, n, more=""):
        """A line of ipvsadm for server @n."""
        return f"{mode} {self.service} -r {REAL[self.family].format(n, self.port)} {more}"

    def edit(self, sched):
        craft.ipvsadm([f"-E {self.service} -s {sched}"])

    def clear(self):
        craft.ipvsadm(["-C"])

    def send(self, ports, flags, client=2):
        """{port: who got it}"""
        src = craft.addr(CLIENT[self.family].format(client))
        answers = self.wire.ask(
            [(self.port, p, craft.tcp(src, self.vip, p, self.port, flags))
             for p in ports])
        return {p: answers[self.port, p] for p in ports}

    def count(self):
        """Entries that ipvsadm shows of each server."""
        out = subprocess.run(["ipvsadm", "-Ln"], capture_output=True,
                             text=True, check=True).stdout
        return [int(a) + int(i) for a, i in
                re.findall(r"-> \S+ +Route +\d+ +(\d+) +(\d+)", out)]


def thresholds(one, two):
    """Without the fallback flag; older flows to compare with later."""
    name = f"IPv{one.family} -x {UPPER}"
    ports = range(FIRST, FIRST + 80)
    enter = lambda d: craft.enter(d.ns)
    enter(one)
    one.make(80, "mhs")
    got = one.send(ports, SYN)
    one.send([p for p in ports if ":" in got[p]], ACK)
    full = [p for p in ports if got[p] == FULL]
    refused = [p for p in ports if got[p] == "refused"]
    check(f"{name}: that many flows", len(full) == UPPER, f"{len(full)}")
    check(f"{name}: counted, of no other server",
          one.count() == [UPPER, 0, 0, 0], str(one.count()))
    check(f"{name}: the surplus is refused", len(refused) > 3 and
          len(full) + len(refused) < 40, f"{len(refused)} of {len(ports)}")
    more = one.send(ports, ACK)
    check(f"{name}: flows go on", all(more[p] == got[p] for p in ports
                                      if p not in refused))

    one.edit("mhs -b flag-1")
    again = one.send(refused, SYN)
    others = collections.Counter(again.values())
    check(f"{name} flag-1: no flow is refused", all(
        ":" in w and w != FULL for w in again.values()), str(dict(others)))
    check(f"{name} flag-1: several servers help", len(others) > 1)
    check(f"{name} flag-1: the limit holds", one.count()[0] == UPPER,
          str(one.count()))
    more = one.send(ports, ACK)
    check(f"{name} flag-1: flows go on", all(
        more[p] == again.get(p, got[p]) for p in ports))

    enter(two)
    two.make(80, "mhs -b flag-1")
    two.send(full, SYN)
    there = two.send(refused, SYN)
    check(f"{name} flag-1: the other director picks the same",
          there == again, f"{len(refused)} flows")
    moved = two.send([p for p in ports if p not in full + refused], ACK)
    check(f"{name} flag-1: flows without an entry change director",
          all(got[p] == w for p, w in moved.items()), f"{len(moved)} flows")
    two.clear()

    enter(one)
    one.edit("mhs")
    new = one.send(range(FIRST + 100, FIRST + 140), SYN)
    check(f"{name} flag-1 off: refused again", "refused" in new.values())
    # those that end give way, down to the lower threshold
    one.send(full[:6], RST)
    craft.until(lambda: one.count()[0] < LOWER, 60)
    new = one.send(range(FIRST + 200, FIRST + 240), SYN)
    check(f"{name}: below -y {LOWER} the server takes flows again",
          FULL in new.values(), f"{list(new.values()).count(FULL)}")
    one.clear()

    one.make(81, "mh -b mh-port")
    mh = one.send(range(FIRST + 300, FIRST + 380), SYN)
    count = one.count()
    check(f"control: {name} mh refuses too, and has an entry for each flow",
          "refused" in mh.values() and count[0] == UPPER and
          sum(count) + list(mh.values()).count("refused") == 80, str(count))
    one.clear()


def edited(one):
    """A threshold that an edit brings counts the flows that are open already."""
    name = f"IPv{one.family} 50 open, then -x 60, then 60 tries"
    craft.enter(one.ns)
    older, newer = range(FIRST, FIRST + 50), range(FIRST + 50, FIRST + 110)
    # for so long a new threshold has entries made for flows that are open
    craft.vs_sysctl("mhs/pin_ms", LONG_MS)
    for port, sched, limit in ((93, "mh -b mh-port", " -x 60"),
                               (94, "mhs", " -x 60"), (95, "mhs", "")):
        one.make(port, sched, limit=False, servers=[11])
        one.send(older, SYN)
        one.send(older, ACK)
        craft.ipvsadm([one.real("-e", 11, f"-g -w 1{limit}")])
        kept = one.send(older, ACK)
        got = [*kept.values(), *one.send(newer, SYN).values()]
        check(f"{name}: {sched}" if limit else
              f"control: {name}: mhs without -x",
              (got.count(FULL), got.count("refused")) ==
              ((60, 50) if limit else (110, 0)),
              str(collections.Counter(got)))
        one.clear()
    craft.vs_sysctl("mhs/pin_ms", 100)


def flags(one, two):
    """Address only, and the flag that is accepted and means nothing."""
    name = f"IPv{one.family}"
    ports = range(FIRST + 400, FIRST + 420)
    seen = {}
    for director, sched in ((one, "mhs -b flag-3"), (two, "mhs -b flag-3"),
                            (one, "mhs -b flag-2"), (two, "mhs")):
        craft.enter(director.ns)
        director.make(83, sched, limit=False)
        got = {(c, p): w for c in range(2, 12) for p, w in
               director.send(ports, SYN, c).items()}
        entries = sum(director.count())
        seen[director, sched] = got, entries
        director.clear()
    got, entries = seen[one, "mhs -b flag-3"]
    servers = [{w for (client, _), w in got.items() if client == c}
               for c in range(2, 12)]
    check(f"{name} flag-3: one server for a client",
          all(len(s) == 1 for s in servers))
    check(f"{name} flag-3: several for several clients",
          len(set.union(*servers)) > 2)
    check(f"{name} flag-3: no entries", entries == 0)
    check(f"{name} flag-3: the other director agrees",
          got == seen[two, "mhs -b flag-3"][0])
    check(f"{name} flag-2: nothing changes",
          seen[one, "mhs -b flag-2"] == seen[two, "mhs"])


def crowd(one):
    """All servers but one are full."""
    name = f"IPv{one.family} flag-1, all full but one of {CROWD}"
    craft.enter(one.ns)
    for sched in "mhs -b flag-1", "mh -b mh-port,mh-fallback":
        one.make(84 if sched.startswith("mhs") else 85, sched, limit=False)
        craft.ipvsadm([one.real("-e", n, "-g -w 1 -x 1") for n in
                       range(11, 15)] +
                      [one.real("-a", n, "-g -w 1 -x 1") for n in
                       range(15, 10 + CROWD)] +
                      [one.real("-a", 10 + CROWD, "-g -w 1")])
        craft.until(stable)
        port = FIRST
        while one.count()[:-1] != [1] * (CROWD - 1) and port < FIRST + 8000:
            one.send(range(port, port + 200), SYN)
            port += 200
        new = one.send(range(port, port + 200), SYN)
        check(f"{name}: {sched} sends all there",
              set(new.values()) == {LAST},
              str(collections.Counter(new.values())))
        one.clear()


def stable():
    return all(row["State"] == "stable" for row in craft.mhs_state().values())


def hold_without_room(one, ports):
    """Flows from these ports, then server 1 is deleted and no entry can be made;
    returns the ports of its flows."""
    craft.until(stable)
    times(LONG_MS, LONG_MS)
    got = one.send(ports, SYN)
    craft.vs_sysctl("mhs/max_entries", 0)
    craft.ipvsadm([one.real("-d", 11)])
    return [p for p in got if got[p] == FULL]


def times(hold_ms, pin_ms):
    craft.vs_sysctl("mhs/hold_ms", hold_ms)
    craft.vs_sysctl("mhs/pin_ms", pin_ms)


def no_room(one):
    """A server is deleted, its flows are held, no entry can be made."""
    name = f"IPv{one.family} no room for entries"
    craft.enter(one.ns)
    one.make(86, "mhs", limit=False)
    held = hold_without_room(one, range(FIRST, FIRST + 160))
    more = one.send(held, ACK)
    check(f"{name}: flows of a deleted server are held",
          set(more.values()) == {FULL}, f"{len(held)} flows")
    again = held[::2]
    new = one.send(again, SYN)
    check(f"{name}: new ones go to others", FULL not in new.values() and
          all(":" in w for w in new.values()))
    more = one.send(again, ACK)
    check(f"{name}: and stay there", more == new,
          f"{sum(more[p] != new[p] for p in new)} of {len(new)} moved")
    more = one.send(held[1::2], ACK)
    check(f"{name}: those of other slots are held still",
          list(more.values()).count(FULL) >= len(more) - 4,
          f"{list(more.values()).count(FULL)} of {len(more)}")
    check(f"{name}: no entry", sum(one.count()) == 0)
    craft.vs_sysctl("mhs/max_entries", 262144)

    # the same slots again, with an entry, and then no server at all
    few = held[1::2]
    one.send(few, SYN)
    check(f"{name}: then there is", sum(one.count()) > 0, str(one.count()))
    craft.ipvsadm([one.real("-d", n) for n in range(12, 15)])
    begun = time.monotonic()
    refused = craft.until(lambda: set(one.send(few, SYN).values()) ==
                          {"refused"})
    check(f"IPv{one.family} no server left: new flows are refused",
          refused and time.monotonic() - begun < SYN_RECV_S / 2,
          f"{time.monotonic() - begun:.1f} s")
    times(0, 100)
    one.clear()


def no_cut(one):
    """The same, but those servers' flows need entries, limit or not: nothing
    is gained by cutting the flows of the deleted one."""
    name = f"IPv{one.family} no room, others with thresholds"
    craft.enter(one.ns)
    one.make(90, "mhs", limit=False)
    craft.ipvsadm([one.real("-e", n, "-g -w 1 -x 5000")
                   for n in range(12, 15)])
    held = hold_without_room(one, range(FIRST, FIRST + 1200))
    new = one.send(held[::2], SYN)
    check(f"{name}: new flows have entries",
          FULL not in new.values() and one.send(new, ACK) == new)
    more = one.send(held[1::2], ACK)
    check(f"{name}: all others are held", set(more.values()) == {FULL},
          f"{list(more.values()).count(FULL)} of {len(more)}")
    craft.vs_sysctl("mhs/max_entries", 262144)
    times(0, 100)
    one.clear()


def old_counts(one):
    """An old server's flows are counted: a new one does not go there unseen."""
    name = f"IPv{one.family} no room, the old server has a threshold"
    craft.enter(one.ns)
    one.make(91, "mhs", limit=False)
    craft.until(stable)
    times(LONG_MS, LONG_MS)
    got = one.send(range(FIRST, FIRST + 80), SYN)
    moves = [p for p in got if got[p] == FULL]
    craft.vs_sysctl("mhs/max_entries", 0)
    craft.ipvsadm([one.real("-e", 11, "-g -w 0 -x 5000")])
    new = one.send(moves, SYN)
    check(f"{name}: new flows go to others", FULL not in new.values(),
          f"{list(new.values()).count(FULL)} of {len(new)} do not")
    check(f"{name}: and stay there", one.send(moves, ACK) == new)
    craft.vs_sysctl("mhs/max_entries", 262144)
    times(0, 100)
    one.clear()


def port_zero(one):
    """No flow is pinned by an entry that the core never finds."""
    name = f"IPv{one.family} a client's port 0"
    clients = range(2, 60)
    craft.enter(one.ns)
    one.make(92, "mhs", limit=False)
    craft.until(stable)
    times(0, LONG_MS)
    for port in 0, 1:
        for client in clients:
            one.send([port], ACK, client)
    craft.ipvsadm([one.real("-e", 11, "-g -w 0")])
    for client in clients:
        one.send([0], ACK, client)
    check(f"{name}: no entry", sum(one.count()) == 0, str(one.count()))
    for client in clients:
        one.send([1], ACK, client)
    check(f"{name}, control: port 1 has entries", sum(one.count()) > 0,
          str(one.count()))
    times(0, 100)
    one.clear()


def bypass(one):
    """A transparent service without a server: the core sends its flows on."""
    craft.enter(one.ns)
    one.vip = craft.addr(BEHIND)
    craft.vs_sysctl("cache_bypass", 1)
    one.port, one.service = 0, "-f 9"
    first = FIRST
    servers = [one.real("-a", n, "-g -w 1") for n in (11, 12)]
    for sched in "mhs", "mh":
        craft.ipvsadm([f"-A -f 9 -s {sched}"] + servers)
        craft.until(stable)
        craft.ipvsadm([s.replace("-a", "-e").replace("-w 1", "-w 0")
                       for s in servers])
        craft.until(stable)
        one.port = 88
        first += 100    # entries outlive their service
        got = one.send(range(first, first + 40), SYN)
        craft.ipvsadm([s.replace("-a", "-e") for s in servers])
        craft.until(stable)
        check(f"cache_bypass with {sched}: flows go past the servers, and on",
              set(got.values()) == {ROUTER} and one.send(got, ACK) == got,
              str(collections.Counter(got.values())))
        one.clear()
    craft.vs_sysctl("cache_bypass", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("director", nargs=2, help="namespaces")
    parser.add_argument("--family", type=int, choices=(4, 6), required=True)
    args = parser.parse_args()
    one, two = (Director(dev, args.family) for dev in ("dr", "d2"))
    one.ns, two.ns = args.director
    thresholds(one, two)
    edited(one)
    flags(one, two)
    crowd(one)
    no_room(one)
    no_cut(one)
    old_counts(one)
    port_zero(one)
    if args.family == 4:
        bypass(one)


if __name__ == "__main__":
    main()
