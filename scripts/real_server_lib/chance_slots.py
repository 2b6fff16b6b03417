# SPDX-License-Identifier: GPL-2.0-only
"""Who owns, and owned, each slot: the sets of servers of a service, and the tables
that mhs_table, the module's own code, makes of them."""

import time
from array import array
from typing import NamedTuple, Optional

from mhsstat_lib import table

from . import chance_map

# No flow is expected to be older than the change by which its server lost it
END_S = 24 * 3600
# Each costs a table; more changes than that in a day forget the oldest owners
_SETS = 8


class Server(NamedTuple):
    """As mhs_table wants it."""

    address: str
    port: int
    weight: int

    @property
    def name(self):
        return self.address


class ServerSet(NamedTuple):
    """The servers of a service, until another set took their place."""

    servers: tuple            # of Server
    until: Optional[float] = None
    since: float = 0

    @classmethod
    def of_list(cls, fields):
        servers, *times = fields
        return cls(tuple(Server(*server) for server in servers), *times)


def in_service(lists):
    """Addresses of the servers that get new connections"""
    return {server.address for servers in lists for server in servers
            if server.weight}


def present(sets):
    """Those that no others have taken the place of"""
    return [s for s in sets if s.until is None]


def with_new(sets, *lists):
    """The sets, newest first, when the service has these servers now: by the lists of
    several directors, which may disagree."""
    now = time.time()
    lists = list(dict.fromkeys(tuple(sorted(servers)) for servers in lists))
    sets = [s if s.until is not None or s.servers in lists else
            s._replace(until=now) for s in sets]
    had = present(sets)
    new = [servers for servers in lists
           if servers not in [s.servers for s in had]]
    if had and not new and sets[0].until is not None:
        new = [had[0].servers]  # so that the first one is never a former one
        sets = [s._replace(until=now) if s == had[0] else s for s in sets]
    return _shortened([*(ServerSet(one, None, now) for one in new), *sets], now)


def _shortened(sets, now):
    """Without those that have ended, and without doubles of former ones: the circle has
    each owner where it came first.  Of too many the shortest ones go: few flows began in
    them."""
    ends, had = {}, []
    for s in sets:
        if s.until is not None and s.until + END_S > now:
            ends[s.servers] = max(s.until, ends.get(s.servers, 0))
    for s in reversed(sets):
        if s.until is None:
            had.append(s)
        elif s.servers in ends:
            had.append(s._replace(until=ends.pop(s.servers)))
    now_there = {s.servers for s in present(had)}
    others = sorted((s for s in had if s.servers not in now_there),
                    key=lambda s: s.until - s.since)
    gone = others[:max(len(now_there) + len(others) - _SETS, 0)]
    return [s for s in reversed(had) if s not in gone]


class Filler:
    """Makes tables as the director does."""

    def __init__(self, program, size, key):
        self._program = program
        self.size = size
        self.key = key

    def table(self, servers):
        return table.compute(table.find_program(self._program), self.size,
                             self.key, servers)


class Circles(NamedTuple):
    """Of one service."""

    words: array      # of each slot
    addresses: list   # of the servers, by their numbers in words
    fingerprint: str  # CandidatePrint of the director


def _circle(owners, me, dead):
    """The owners of a slot, newest first: each asks the next one, and the last one
    the first.

    Each stands where it came first, not where it came last: then a change puts new
    owners before the others and turns no two round.  So servers that were told of it
    go round with those that were not yet, for whom there is one step more."""
    first = dict.fromkeys(owner for owner in reversed(owners) if owner)
    return [owner for owner in reversed(first)
            if owner == me or owner not in dead]


def _word(owners, away, me, dead, numbers):
    """Whom this server asks next.  Without other owners that is who would have the
    slot @away from this server: while it was away, without having been told of that,
    others owned its slots."""
    circle = _circle(owners, me, dead)
    others = [owner for owner in circle if owner != me]
    if circle == [me] and away and away not in dead:
        return chance_map.word(numbers[away], 2, away=True)
    if not others:
        return 0
    at = circle.index(me) + 1 if me in circle else 0
    return chance_map.word(numbers[circle[at % len(circle)]], len(others) + 1,
                           me not in circle)


def circles_of(filler, sets, me, dead):
    """The Circles of this server."""
    known = {one: filler.table(one) for one in {s.servers for s in sets}}
    tables = [known[s.servers] for s in sets]
    away = filler.table([server for server in sets[0].servers
                         if server.address != me])
    addresses = sorted({server.address for s in sets for server in s.servers})
    numbers = {address: number for number, address in enumerate(addresses)}
    known = {}
    words = array("I")
    for owners in zip(away.slots, *(t.slots for t in tables)):
        if owners not in known:
            known[owners] = _word(owners[1:], owners[0], me, dead, numbers)
        words.append(known[owners])
    return Circles(words, addresses, tables[0].fingerprint)
