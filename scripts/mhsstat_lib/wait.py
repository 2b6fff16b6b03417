# SPDX-License-Identifier: GPL-2.0-only
"""Block until services are there and settled, or stable, deleted servers
forgotten, a server drained, or until every flow has an entry.

A server is drained when in each service that has it its weight is 0, the service
is stable and the server has no entry: flows without an entry go by the table, which
names it no more, and its older flows have had an entry since they were pinned.
Where that is not so, or not known, nobody is told that it is: Host.unseen().
"""

from ipvs_mhs_tool import EXIT_OK, ToolError, UsageError, quoted

from . import servers
from .address import spelled, told
from .compare import Director, differences
from .proc import left_ms, name_of
from .progress import Progress, until
from .rules import Host
from .snapshot import NotThere, as_json, read_services, select
from .stateful import Stateful
from .text import duration, percent, state


def having(word, names):
    """[(service, server)] of all services that have the server, of any
    scheduler; of those of @names only, if there are names."""
    name = spelled(*told(word))
    found = [(service, server) for those in servers.of_this_host(names).values()
             for service in those for server in service.servers
             if server.name == name]
    if not found:
        raise ToolError(f"{', '.join(names) or 'this network namespace'}: no "
                        f"server {name}; it must be in the list, with weight "
                        "0, until it is drained")
    return found


def _weightless(word, names):
    """The same, if the weight is 0 in each."""
    found = having(word, names)
    weights = [f"{service.name}: server {server.name} has weight "
               f"{server.weight}" for service, server in found if server.weight]
    if weights:
        raise ToolError("; ".join(weights) + ": set it to 0 first ('mhsstat "
                        "drain' does, and keeps all else of the server), or "
                        "name the service that you mean")
    return found


def two_families(names, rows, host):
    """Marks with a service of each family, one of which has merged no slot for long
    enough: no row of /proc says whose it is."""
    found = {name: [row.get("pinned_ms") for row in rows if name_of(row) == name]
             for name in names}
    return [f"{name}: services of IPv4 and of IPv6 have this mark, and which of them has "
            "changed with too short a pin time, or not since it began, is not told: give "
            "each a mark of its own"
            for name, times in found.items() if len(times) > 1 and any(
                ms is not None and ms < host.idle(name) for ms in times)]


def ended(names):
    """Which flows count as that."""
    host = Host(True)
    return "a flow counts as ended when it was silent for " \
           f"{duration(max(map(host.idle, names)))}, a half-closed one of TCP for " \
           f"{duration(host.fin_ms)} ('ipvsadm -L --timeout')"


def rests_on(names, words):
    """What the word drained rests on."""
    addresses = {told(word)[0] for word in words}
    others = sorted({f"{service.name}: {server.name}"
                     for name, those in servers.of_this_host().items()
                     for service in those for server in service.servers
                     if server.address in addresses and (
                         name not in names or server.weight)})
    return f"no entry is left here, and {ended(names)}; other directors know their own " \
           "flows" + ("; not asked, on the same host: " + ", ".join(others)
                      if others else "")


class Pending:
    """Looks until services are stable, servers drained or forgotten."""

    def __init__(self):
        self._asked = False

    def _refuse_unseen(self, asked, rows):
        """What makes the absence of entries prove less than it should, at the
        first look and at the last: times may have changed meanwhile."""
        host, ours = Host(True), {name_of(row) for row in rows}
        reasons = two_families(asked, rows, host) or [
            text for row in rows if name_of(row) in asked
            for text in host.unseen(asked[name_of(row)], row)] + [
            text for name, service in asked.items() if name not in ours
            for text in host.comes_back(service)]
        if reasons:
            raise ToolError("; ".join(dict.fromkeys(reasons)))
        self._asked = True

    def _drained(self, options):
        """({name: service} of those to ask, [what to say of each server])"""
        asked, found = {}, []
        for word in options.drained:
            pairs = _weightless(word, options.service)
            entries = sum(s.active + s.inactive for _, s in pairs)
            if entries:
                name = pairs[0][1].name
                found.append((name, f"{name}: {entries} connection(s) left" +
                              (f" in {len(pairs)} services"
                               if len(pairs) > 1 else "")))
            asked.update((service.name, service) for service, _ in pairs)
        return asked, found

    def look(self, options):
        """(what kind of thing, what to say) for each that is not yet so, and
        how long the last one takes in ms, if that is known."""
        # the weights before the states, and these before the entries: what is stable
        # without the server has pinned its flows
        for word in options.drained:
            _weightless(word, options.service)
        services = select(read_services(options.service), options.service)
        found, left = [], []
        if options.drained:
            asked, left = self._drained(options)
            services = [s for s in services
                        if options.service or name_of(s) in asked]
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
                found.append(("gone", f"{name_of(s)}: {s['gone_servers']} "
                              "deleted server(s) still held"))
        found += left
        if options.drained and not (found and self._asked):
            self._refuse_unseen(asked, services)
        return found, max((left_ms(s) or 0 for s in services), default=0)


class Settled:
    """The same for --settled: the services may not even be there, and one without
    a server serves nobody."""

    def __init__(self, options):
        self._peer = options.equal_to and Director.of_file(options.equal_to)
        self._refuse_peer()

    def _refuse_peer(self):
        """If what it said proves nothing, or does not any more."""
        if self._peer and (unknown := self._peer.unknown() or
                           ([] if self._peer.services else ["which services it has"])):
            raise ToolError(f"--equal-to: unknown is {'; '.join(unknown)}; run "
                            "'mhsstat show --json' there now")

    def _expected(self, services, options):
        """What --servers and --equal-to find."""
        document = as_json(services, live=True)
        for s in document["services"]:
            real = s["real_servers"]
            n = s["servers"] if real is None else sum(
                one["weight"] > 0 for one in real)
            if n < options.servers:
                yield ("servers", f"{name_of(s)}: {n} of {options.servers} "
                       "servers get new flows")
        if self._peer:
            self._refuse_peer()
            here = Director("this host", document)
            if here.namespace and here.namespace == self._peer.namespace:
                raise ToolError(f"--equal-to: {self._peer.name} is this director itself")
            others = (here.services | self._peer.services).keys() - \
                set(options.service or self._peer.services)
            for line in differences(here, self._peer):
                if not line.startswith(tuple(f"{name}: " for name in others)):
                    yield "differs", line

    def rests_on(self):
        """What equality rests on."""
        return f"{self._peer.name} said so {self._peer.age()}; its connections that " \
               f"have an entry ({self._peer.entries()}) break when they come here"

    def look(self, options):
        try:
            services = select(read_services(options.service), options.service)
        except NotThere as error:
            return [("missing", str(error))], 0
        found = [("settling", f"{name_of(s)}: {state(s)}" +
                  ("" if s.get("servers", 1) else ", without a server"))
                 for s in services
                 if s["state"] == "settling" or not s.get("servers", 1)]
        if not found and (self._peer or options.servers):
            found += self._expected(services, options)
        return found, 0


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
    if not options.settled and (options.servers or options.equal_to):
        raise UsageError("--servers and --equal-to go with --settled")
    progress = Progress(options.quiet)
    settled = options.settled and Settled(options)
    look, end_word = (
        (settled.look, "settled") if settled else
        (Stateful(progress.warn).look, "every flow that lives has an entry")
        if options.stateful else (Pending().look, "stable"))
    status = until(look, options, progress, end_word)
    if status == EXIT_OK and options.equal_to and not options.quiet:
        progress.warn(settled.rests_on())
    if status == EXIT_OK and options.stateful and not options.quiet:
        progress.warn(ended(options.service or ["TCP"]))
    if status == EXIT_OK and options.drained:
        names = set()
        for word in options.drained:
            places = having(word, options.service)
            names |= {service.name for service, _ in places}
            print(f"{spelled(*told(word))} is drained: " + "; ".join(
                quoted(server.deletion()) for _, server in places))
        if not options.quiet:
            progress.warn(rests_on(names, options.drained))
    return status
