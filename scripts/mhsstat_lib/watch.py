# SPDX-License-Identifier: GPL-2.0-only
"""The live view: two lines for a service, and what deserves a look."""

import sys
import time

from ipvs_mhs_tool import EXIT_OK

from . import servers
from .proc import name_of
from .snapshot import read_services, select
from .text import (RED, Paint, bar, calm, few, percent, phases, remarks, screen,
                   state, state_colour, wrap)

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"
_MANY = 6       # servers named in a line
# what decided where a packet goes: each packet is counted by one of them
_BY_TABLE = ("packets_stateless", "packets_old", "packets_candidate")
_FORWARDED = (*_BY_TABLE, "packets_tracked")


def rates(before, now, seconds):
    """{field: number a second} of the counters; none for a service that was
    not there, or began anew."""
    if before is None or seconds <= 0:
        return {}
    fields = [f for f in now if (f.startswith("packets_") or
                                 f.endswith("_entries")) and f in before]
    if any(now[f] < before[f] for f in fields):
        return {}
    return {f: (now[f] - before[f]) / seconds for f in fields}


def _read_servers(names):
    """{service: {server: packets in}}"""
    return {name: {server.name: server.counts[1] for service in those
                   for server in service.servers}
            for name, those in servers.of_this_host(names).items()}


def server_rates(before, now, seconds):
    """[(server, packets a second)], the busiest first; a server that began anew
    has none."""
    found = [(name, (n - before[name]) / seconds) for name, n in now.items()
             if seconds > 0 and n >= before.get(name, n + 1)]
    return sorted(found, key=lambda server: (-server[1], server[0]))


def _counts(per_second):
    """Packets and entries a second."""
    if not per_second:
        return "packets/s -, entries/s -"
    packets = sum(per_second.get(f, 0) for f in _FORWARDED)
    words = [f"packets/s {packets:.0f}"]
    if packets:
        table = sum(per_second.get(f, 0) for f in _BY_TABLE)
        words[0] += f" ({percent(table, packets)} without an entry)"
    words.append("entries/s " + format(sum(
        per_second.get(f, 0) for f in ("new_entries", "pinned_entries")), ".0f"))
    return ", ".join(words + [
        f"{name}/s {per_second[f'packets_{field}']:.0f}"
        for field, name in (("lane", "lane"), ("icmp", "ICMP"),
                            ("unsettled", "dropped unsettled"))
        if per_second.get(f"packets_{field}")])


def _servers(found):
    """The busiest."""
    words = [f"{name} {rate:.0f}" for name, rate in found[:_MANY]]
    rest = found[_MANY:]
    if rest:
        words.append(f"{len(rest)} more {sum(rate for _, rate in rest):.0f}")
    return "  |  " + ", ".join(words) if words else ""


def block(service, per_second, servers=(), paint=Paint(False), width=None):
    """What is said of one service; @servers: packets a second of each."""
    signs = f"[{bar(service)}]"
    word = service["state"]
    first = "\n".join(wrap(
        f"{name_of(service)}  {state(service)}  {signs}  {phases(service)}, "
        f"entries {service.get('entries', '-')}", width))
    first = first.replace(word, paint(state_colour(word), word), 1)
    return "\n".join([
        first.replace(signs, f"[{paint.bar(signs)}]"),
        *wrap(f"  {_counts(per_second)}{_servers(servers)}", width),
        *(paint(RED, line) for note in remarks(service)
          for line in wrap(f"  {note}", width))])


def watch(options):
    """Until it is interrupted, or --count pictures were shown."""
    live = sys.stdout.isatty()
    at, before, served, shown = 0, {}, {}, 0
    while True:
        services = select(read_services(options.service), options.service)
        now, serving = time.monotonic(), _read_servers(options.service)
        room = screen(sys.stdout, options.all)
        if room.rows:
            services.sort(key=calm)
        picture = "\n".join(few((
            block(s, rates(before.get(name_of(s)), s, now - at), server_rates(
                served.get(name_of(s), {}), serving.get(name_of(s), {}), now - at
            ), room.paint, room.width)
            for s in services), room.rows, len(services), "service(s)"))
        print((_HOME_AND_CLEAR if live else "") + picture,
              end="\n" if live else "\n\n", flush=True)
        at, before, served = now, {name_of(s): s for s in services}, serving
        shown += 1
        if shown == options.count:
            return EXIT_OK
        time.sleep(options.interval_s)
