# SPDX-License-Identifier: GPL-2.0-only
"""Who owns, and owned, each slot: the sets of servers of a service, and the tables
that mhs_table, the module's own code, makes of them."""

import time
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

    @classmethod
    def of_list(cls, fields):
        servers, until = fields
        return cls(tuple(Server(*server) for server in servers), until)


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
    had = [s.servers for s in present(sets)]
    new = [servers for servers in lists if servers not in had]
    if had and not new and sets[0].until is not None:
        new = had[:1]       # so that the first one is never a former one
        sets = [s._replace(until=now) if s == ServerSet(new[0]) else s
                for s in sets]
    sets = [*map(ServerSet, new), *sets]
    former = [s for s in sets if s.until is not None and s.until + END_S > now]
    former = former[:max(_SETS - len(present(sets)), 0)]
    return [s for s in sets if s.until is None or s in former]


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

    words: list       # of each slot
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
    tables = [filler.table(s.servers) for s in sets]
    away = filler.table([server for server in sets[0].servers
                         if server.address != me])
    addresses = sorted({server.address for s in sets for server in s.servers})
    numbers = {address: number for number, address in enumerate(addresses)}
    known = {}
    words = []
    for owners in zip(away.slots, *(t.slots for t in tables)):
        if owners not in known:
            known[owners] = _word(owners[1:], owners[0], me, dead, numbers)
        words.append(known[owners])
    return Circles(words, addresses, tables[0].fingerprint)
