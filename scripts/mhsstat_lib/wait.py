# SPDX-License-Identifier: GPL-2.0-only
"""Block until services are there and settled, or stable, deleted servers
forgotten, a server drained, or until every flow has an entry.

A server is drained when its weight is 0, the service is stable and the server
has no entry: flows without an entry go by the table, which names it no more,
and its older flows have had an entry since they were pinned.
"""

import sys
import time

from . import servers
from .address import spelled, told
from .errors import EXIT_OK, EXIT_TIMEOUT, NotThere, ToolError, UsageError
from .proc import left_ms, name_of
from .snapshot import read_services, read_text, select
from .stateful import Stateful
from .text import duration, percent, state

_REPORT_EVERY_S = 30


class Progress:
    """One line that is rewritten on a terminal; elsewhere one when something
    has changed, and now and then."""

    def __init__(self, quiet):
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._last = None
        self._at = 0
        self._warned = set()

    def say(self, key, text):
        if self._quiet:
            return
        now = time.monotonic()
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif key != self._last or now - self._at >= _REPORT_EVERY_S:
            print(f"mhsstat: {text}", file=sys.stderr, flush=True)
            self._at = now
        self._last = key

    def warn(self, text):
        """A line that stays, said once, with --quiet, too."""
        if text not in self._warned:
            self._warned.add(text)
            print(("\r\x1b[K" if self._live else "") + f"mhsstat: {text}",
                  file=sys.stderr, flush=True)

    def end(self):
        if self._live and self._last is not None:
            print(file=sys.stderr)


def _drained_servers(options, names):
    """The servers that --drained names, as the core knows them."""
    text = read_text(servers.PROC_IPVS)
    known = {}
    for service in servers.parse(text, servers.PROC_IPVS).items():
        if service[0] in names:
            for part in service[1]:
                known.update({s.name: s for s in part.servers})
    found = []
    for word in options.drained:
        name = spelled(*told(word))
        if name not in known:
            raise ToolError(f"{', '.join(names)}: no server {name}; it must be "
                            "in the list, with weight 0, until it is drained")
        if known[name].weight:
            raise ToolError(f"server {name} has weight {known[name].weight}: "
                            "set it to 0 first, with 'ipvsadm -e ... -w 0'")
        found.append(known[name])
    return found


def _unsettled(options):
    """The same for --settled: the services may not even be there, and one without
    a server serves nobody."""
    try:
        services = select(read_services(), options.service)
    except NotThere as error:
        return [("missing", str(error))], 0
    return [("settling", f"{name_of(s)}: {state(s)}" +
             ("" if s.get("servers", 1) else ", without a server"))
            for s in services
            if s["state"] == "settling" or not s.get("servers", 1)], 0


def _pending(options):
    """(what kind of thing, what to say) for each that is not yet so, and how
    long the last one takes in ms, if that is known."""
    services = select(read_services(), options.service)
    names = [name_of(s) for s in services]
    found = []
    for s in services:
        # One that never had a server is settling until it has.
        if not s.get("servers", 1) and not s.get("gone_servers"):
            continue
        if s["state"] != "stable":
            moving = s.get("hold_slots", 0) + s.get("pin_slots", 0)
            found.append((s["state"], f"{name_of(s)}: {state(s)}, "
                          f"{percent(moving, s.get('table_size'))} of the "
                          "slots unstable"))
        elif options.gone and s.get("gone_servers"):
            found.append(("gone", f"{name_of(s)}: {s['gone_servers']} deleted "
                          "server(s) still held"))
    if options.drained:
        for server in _drained_servers(options, names):
            entries = server.active + server.inactive
            if entries:
                found.append((server.name, f"{server.name}: {entries} "
                              "connection(s) left"))
    longest = max((left_ms(s) or 0 for s in services), default=0)
    return found, longest


def wait(options):
    """Until nothing is pending, or the time is over; exit status."""
    if options.settled and (options.gone or options.drained):
        raise UsageError("--settled does not go with --gone and --drained: a "
                         "service that begins has no server to wait for")
    if options.stateful and (options.settled or options.gone or
                             options.drained):
        raise UsageError("--stateful does not go with --settled, --gone and "
                         "--drained: wait for these first, in a command of "
                         "their own")
    progress = Progress(options.quiet)
    look, end_word = (
        (_unsettled, "settled") if options.settled else
        (Stateful(progress.warn).look, "every flow that lives has an entry")
        if options.stateful else (_pending, "stable"))
    end = None if options.timeout_s is None else \
        time.monotonic() + options.timeout_s
    try:
        while True:
            pending, longest_ms = look(options)
            if not pending:
                progress.say("over", end_word)
                return EXIT_OK
            progress.say([kind for kind, _ in pending],
                         "; ".join(words for _, words in pending))
            now = time.monotonic()
            if end is not None and now >= end:
                break
            time.sleep(min(options.interval_s,
                           end - now if end is not None else 3600))
    finally:
        progress.end()
    print(f"mhsstat: not over after {duration(int(options.timeout_s * 1000))}"
          + (f", at most {duration(longest_ms)} left" if longest_ms else ""),
          file=sys.stderr)
    return EXIT_TIMEOUT
