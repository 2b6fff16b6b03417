# SPDX-License-Identifier: GPL-2.0-only
"""The live view."""

import sys
import time

from .errors import EXIT_OK
from .proc import name_of
from .snapshot import read_services, select
from .text import bar, phases, remarks, state

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"
_PACKETS = ("stateless", "old", "candidate", "tracked", "icmp", "reply",
            "unsettled", "lane")
_ENTRIES = ("new", "pinned")


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


def _line(title, names, pattern, per_second, totals):
    words = [f"{name} {per_second[field]:.0f}" if field in per_second
             else f"{name} -"
             for name, field in ((n, pattern.format(n)) for n in names)
             if field in totals]
    return f"  {title:<11}{'  '.join(words)}"


def block(service, per_second):
    """What is said of one service."""
    return "\n".join([
        f"{name_of(service)}  {state(service)}",
        f"  [{bar(service)}]  {phases(service)}",
        f"  servers {service.get('servers', '-')}, "
        f"gone {service.get('gone_servers', '-')}, "
        f"entries {service.get('entries', '-')}",
        _line("packets/s", _PACKETS, "packets_{}", per_second, service),
        _line("entries/s", _ENTRIES, "{}_entries", per_second, service),
        *(f"  {note}" for note in remarks(service))])


def watch(options):
    """Until it is interrupted, or --count pictures were shown."""
    live = sys.stdout.isatty()
    last, last_at, shown = {}, None, 0
    while True:
        at = time.monotonic()
        services = select(read_services(), options.service)
        picture = "\n\n".join(
            block(s, rates(last.get(name_of(s)), s,
                           at - last_at if last_at is not None else 0))
            for s in services)
        print((_HOME_AND_CLEAR if live else "") + picture,
              end="\n" if live else "\n\n", flush=True)
        last, last_at = {name_of(s): s for s in services}, at
        shown += 1
        if shown == options.count:
            return EXIT_OK
        time.sleep(options.interval_s)
