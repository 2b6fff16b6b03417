# SPDX-License-Identifier: GPL-2.0-only
"""Who owns, and owned, each slot: the sets of servers of a service, and the tables
that mhs_table, the module's own code, makes of them."""

import bisect
import time
from typing import NamedTuple, Optional

from mhsstat_lib import table

from . import chance_map

# No flow is expected to be older than the change by which its server lost it
_END_S = 24 * 3600
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


def with_new(sets, servers):
    """The sets, newest first, when the service has these servers now."""
    now = time.time()
    servers = tuple(sorted(servers))
    if not sets or sets[0].servers != servers:
        sets = [ServerSet(servers),
                *(s._replace(until=now) if s.until is None else s
                  for s in sets)]
    return [s for s in sets if s.until is None or
            s.until + _END_S > now][:_SETS]


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


def _word(owners, me, dead, numbers):
    """The owners of a slot form a circle: whom this server asks next.

    They stand in the order of their addresses, not of the time: so servers that
    were told of a change go round with those that were not yet, for whom there is
    one step more."""
    circle = sorted(owner for owner in set(owners)
                    if owner and (owner == me or owner not in dead))
    others = len(circle) - (me in circle)
    if not others:
        return 0
    at = bisect.bisect(circle, me or "")
    return chance_map.word(numbers[circle[at % len(circle)]], others + 1,
                           me not in circle)


def circles_of(filler, sets, me, dead):
    """The Circles of this server.

    While it was away, without having been told of that, others owned its slots:
    those come last in its own circles."""
    tables = [filler.table(s.servers) for s in sets]
    tables.append(filler.table([server for server in sets[0].servers
                                if server.address != me]))
    addresses = sorted({server.address for s in sets for server in s.servers})
    numbers = {address: number for number, address in enumerate(addresses)}
    known = {}
    words = []
    for owners in zip(*(t.slots for t in tables)):
        if owners not in known:
            known[owners] = _word(owners if owners[0] == me else owners[:-1],
                                  me, dead, numbers)
        words.append(known[owners])
    return Circles(words, addresses, tables[0].fingerprint)
