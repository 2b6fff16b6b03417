#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Thresholds, the fallback flag and the address flag, on two directors; what
new flows meet when no more entries can be made or no server is left.

Server 1 of four has an upper threshold of 10 and a lower one of 5.

usage: limits.py FAMILY NAMESPACE NAMESPACE

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import collections
import contextlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import craft  # noqa: E402
from craft import ACK, LONG_MS, RST, SYN, addr, check, windows  # noqa: E402

CLIENTS = {4: "10.1.0.{}", 6: "fd01::{}"}
FULL = craft.SERVER.format(11)
UPPER, LOWER = 10, 5
FIRST = 20000
CROWD = 60
ROUTER = "02:00:00:00:00:01"
BEHIND = "10.3.0.1"       # whose packets have the mark 9
SYN_RECV_S = 60      # an entry of the core lives so long


def counts(got):
    return str(collections.Counter(got.values()))


class Director(craft.Service):
    def __init__(self, dev, family, namespace):
        super().__init__(family, None)
        self.wire, self.ns = craft.Wire(dev), namespace
        self.ip = f"IPv{family}"

    def make(self, port, sched, limit="", servers=range(11, 15)):
        """On a port of its own: entries outlive their service, and count."""
        craft.enter(self.ns)
        super().__init__(self.family, port)
        craft.ipvsadm(
            [f"-A {self.name} -s {sched}"] +
            [self.real("-a", n, f"-g -w 1{limit if n == 11 else ''}")
             for n in servers])
        craft.wait_all(craft.stable)

    def edit(self, sched):
        craft.ipvsadm([f"-E {self.name} -s {sched}"])

    def clear(self):
        craft.ipvsadm(["-C"])

    def send(self, ports, flags, client=2):
        """{port: who got it}"""
        self.client = addr(CLIENTS[self.family].format(client))
        answers = self.wire.ask([(self.port, p, self.segment(p, flags))
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
    name, limit = f"{one.ip} -x {UPPER}", f" -x {UPPER} -y {LOWER}"
    ports = range(FIRST, FIRST + 80)
    one.make(80, "mhs", limit)
    got = one.send(ports, SYN)
    one.send([p for p in ports if ":" in got[p]], ACK)
    full = [p for p in ports if got[p] == FULL]
    refused = [p for p in ports if got[p] == "refused"]
    check(f"{name}: that many flows, counted, of no other server",
          [len(full), 0, 0, 0] == one.count() == [UPPER, 0, 0, 0],
          f"{len(full)} {one.count()}")
    check(f"{name}: the surplus is refused", len(refused) > 3 and
          len(full) + len(refused) < 40, f"{len(refused)} of {len(ports)}")
    more = one.send(ports, ACK)
    check(f"{name}: flows go on", all(more[p] == got[p] for p in ports
                                      if p not in refused))

    one.edit("mhs -b flag-1")
    again = one.send(refused, SYN)
    others = {*again.values()}
    check(f"{name} flag-1: no flow is refused, several servers help, the limit "
          "holds", len(others) > 1 and FULL not in others and
          all(":" in w for w in others) and one.count()[0] == UPPER,
          f"{counts(again)} {one.count()}")
    more = one.send(ports, ACK)
    check(f"{name} flag-1: flows go on", all(
        more[p] == again.get(p, got[p]) for p in ports))

    two.make(80, "mhs -b flag-1", limit)
    two.send(full, SYN)
    check(f"{name} flag-1: the other director picks the same",
          two.send(refused, SYN) == again, f"{len(refused)} flows")
    moved = two.send([p for p in ports if p not in full + refused], ACK)
    check(f"{name} flag-1: flows without an entry change director",
          all(got[p] == w for p, w in moved.items()), f"{len(moved)} flows")
    two.clear()

    craft.enter(one.ns)
    one.edit("mhs")
    new = one.send(range(FIRST + 100, FIRST + 140), SYN)
    check(f"{name} flag-1 off: refused again", "refused" in new.values())
    # those that end give way, down to the lower threshold
    one.send(full[:6], RST)
    craft.until(lambda: one.count()[0] < LOWER, 60)
    new = one.send(range(FIRST + 200, FIRST + 240), SYN)
    check(f"{name}: below -y {LOWER} the server takes flows again",
          FULL in new.values(), counts(new))
    one.clear()

    one.make(81, "mh -b mh-port", limit)
    mh = one.send(range(FIRST + 300, FIRST + 380), SYN)
    count = one.count()
    check(f"control: {name} mh refuses too, and has an entry for each flow",
          "refused" in mh.values() and count[0] == UPPER and
          sum(count) + list(mh.values()).count("refused") == 80, str(count))
    one.clear()


def edited(one):
    """A threshold that an edit brings counts the flows that are open already."""
    name = f"{one.ip} 50 open, then -x 60, then 60 tries"
    craft.enter(one.ns)
    older, newer = range(FIRST, FIRST + 50), range(FIRST + 50, FIRST + 110)
    # for so long a new threshold has entries made for flows that are open
    craft.vs_sysctl("mhs/pin_ms", LONG_MS)
    for port, sched, limit, want in (
            (93, "mh -b mh-port", " -x 60", (60, 50)),
            (94, "mhs", " -x 60", (60, 50)), (95, "mhs", "", (110, 0))):
        one.make(port, sched, servers=[11])
        one.send(older, SYN)
        one.send(older, ACK)
        craft.ipvsadm([one.real("-e", 11, f"-g -w 1{limit}")])
        got = [*one.send(older, ACK).values(), *one.send(newer, SYN).values()]
        check(f"{name}: {sched}" if limit else
              f"control: {name}: mhs without -x",
              (got.count(FULL), got.count("refused")) == want,
              str(collections.Counter(got)))
        one.clear()
    craft.vs_sysctl("mhs/pin_ms", 100)


def by_address(one, two):
    """Address only"""
    ports = range(FIRST + 400, FIRST + 420)
    seen = []
    for director in one, two:
        director.make(83, "mhs -b flag-3")
        seen.append([director.send(ports, SYN, c) for c in range(2, 12)])
        entries = sum(director.count())
        director.clear()
    servers = [{*got.values()} for got in seen[0]]
    check(f"{one.ip} flag-3: one server for a client, several for several, no entry",
          all(len(s) == 1 for s in servers) and len(set.union(*servers)) > 2
          and not entries, f"{servers}, {entries} entries")
    check(f"{one.ip} flag-3: the other director agrees", seen[0] == seen[1])


def crowd(one):
    """All servers but one are full."""
    last = 10 + CROWD
    for port, sched in (84, "mhs -b flag-1"), (85, "mh -b mh-port,mh-fallback"):
        one.make(port, sched)
        craft.ipvsadm([one.real("-e" if n < 15 else "-a", n, "-g -w 1" +
                                " -x 1" * (n < last))
                       for n in range(11, last + 1)])
        craft.wait_all(craft.stable)
        port = FIRST
        while one.count()[:-1] != [1] * (CROWD - 1) and port < FIRST + 8000:
            one.send(range(port, port + 200), SYN)
            port += 200
        new = one.send(range(port, port + 200), SYN)
        check(f"{one.ip} flag-1, all full but one of {CROWD}: {sched} sends all "
              "there", {*new.values()} == {craft.SERVER.format(last)}, counts(new))
        one.clear()


@contextlib.contextmanager
def without_room(one, port, flows, change, others="-g -w 1"):
    """Flows, then a change of servers, and no entry can be made; the ports of server
    1's flows."""
    one.make(port, "mhs")
    craft.ipvsadm([one.real("-e", n, others) for n in range(12, 15)])
    craft.wait_all(craft.stable)
    windows(LONG_MS, LONG_MS)
    got = one.send(range(FIRST, FIRST + flows), SYN)
    craft.vs_sysctl("mhs/max_entries", 0)
    craft.ipvsadm([one.real(*change)])
    yield [p for p in got if got[p] == FULL]
    craft.vs_sysctl("mhs/max_entries", 262144)
    windows(0, 100)
    one.clear()


def no_room(one):
    """A server is deleted, its flows are held, no entry can be made."""
    name = f"{one.ip} no room for entries"
    with without_room(one, 86, 160, ("-d", 11)) as held:
        more = one.send(held, ACK)
        check(f"{name}: flows of a deleted server are held",
              {*more.values()} == {FULL}, f"{len(held)} flows")
        new = one.send(held[::2], SYN)
        check(f"{name}: new ones go to others and stay there",
              FULL not in new.values() and all(":" in w for w in new.values()) and
              one.send(new, ACK) == new, counts(new))
        few = held[1::2]
        more = one.send(few, ACK)
        check(f"{name}: those of other slots are held still",
              list(more.values()).count(FULL) >= len(more) - 4, counts(more))
        check(f"{name}: no entry", sum(one.count()) == 0)
        craft.vs_sysctl("mhs/max_entries", 262144)

        # the same slots again, with an entry, and then no server at all
        one.send(few, SYN)
        check(f"{name}: then there is", sum(one.count()) > 0, str(one.count()))
        craft.ipvsadm([one.real("-d", n) for n in range(12, 15)])
        begun = time.monotonic()
        refused = craft.until(lambda: {*one.send(few, SYN).values()} ==
                              {"refused"})
        check(f"{one.ip} no server left: new flows are refused",
              refused and time.monotonic() - begun < SYN_RECV_S / 2,
              f"{time.monotonic() - begun:.1f} s")


def no_cut(one):
    """The same, but those servers' flows need entries, limit or not: nothing
    is gained by cutting the flows of the deleted one."""
    name = f"{one.ip} no room, others with thresholds"
    with without_room(one, 90, 1200, ("-d", 11), "-g -w 1 -x 5000") as held:
        new = one.send(held[::2], SYN)
        check(f"{name}: new flows have entries",
              FULL not in new.values() and one.send(new, ACK) == new)
        more = one.send(held[1::2], ACK)
        check(f"{name}: all others are held", {*more.values()} == {FULL},
              counts(more))


def old_counts(one):
    """An old server's flows are counted: a new one does not go there unseen."""
    with without_room(one, 91, 80, ("-e", 11, "-g -w 0 -x 5000")) as moves:
        new = one.send(moves, SYN)
        check(f"{one.ip} no room, the old server has a threshold: new flows go to "
              "others and stay there", FULL not in new.values() and
              one.send(moves, ACK) == new, counts(new))


def port_zero(one):
    """No flow is pinned by an entry that the core never finds."""
    def send(port):
        for client in range(2, 60):
            one.send([port], ACK, client)
        return sum(one.count())

    one.make(92, "mhs")
    windows(0, LONG_MS)
    send(0)
    send(1)
    craft.ipvsadm([one.real("-e", 11, "-g -w 0")])
    entries = send(0), send(1)
    check(f"{one.ip} a client's port 0: no entry, but of port 1", entries[0] == 0 <
          entries[1], str(entries))
    windows(0, 100)
    one.clear()


def bypass(one):
    """A transparent service without a server: the core sends its flows on."""
    def weigh(mode, weight):
        craft.ipvsadm([f"{mode} -f 9 -r 10.2.0.{n} -g -w {weight}" for n in (11, 12)])
        craft.wait_all(craft.stable)

    craft.enter(one.ns)
    craft.vs_sysctl("cache_bypass", 1)
    one.port, one.vip = 88, addr(BEHIND)
    for first, sched in (FIRST + 500, "mhs"), (FIRST + 600, "mh"):
        craft.ipvsadm([f"-A -f 9 -s {sched}"])
        weigh("-a", 1)
        weigh("-e", 0)
        got = one.send(range(first, first + 40), SYN)
        weigh("-e", 1)
        check(f"cache_bypass with {sched}: flows go past the servers, and on",
              {*got.values()} == {ROUTER} and one.send(got, ACK) == got, counts(got))
        one.clear()
    craft.vs_sysctl("cache_bypass", 0)


def main():
    family, *names = sys.argv[1:]
    one, two = (Director(dev, int(family), name)
                for dev, name in zip(("dr", "d2"), names))
    thresholds(one, two)
    edited(one)
    by_address(one, two)
    for test in crowd, no_room, no_cut, old_counts, port_zero:
        test(one)
    if one.family == 4:
        bypass(one)


if __name__ == "__main__":
    main()
