# SPDX-License-Identifier: GPL-2.0-only
"""What a change of servers would move, before it is made."""

import os
from collections import Counter, namedtuple

from ipvs_mhs_tool import EXIT_OK, EXIT_PROBLEM, ToolError, UsageError, run

from . import module, proc, servers
from .address import endpoint, spelled, told
from .rules import CUT, HANG, KEPT, MOVE, SENT, Host
from .snapshot import read_text
from .stateful import SYSCTLS, TOTAL, limits
from .text import Screen, duration, few, percent, table, wrap

_HIGHEST_WEIGHT = 2**31 - 1
_HERE = os.path.dirname(os.path.realpath(__file__))
# where it is installed, and where 'make tools' puts it
_PLACES = (f"{_HERE}/mhs_table",
           os.path.join(_HERE, "../../build/tools/mhs_table"))
# slots: the server of each slot, by name; None for no server
Table = namedtuple("Table", "fingerprint slots")


def _program(path):
    """mhs_table."""
    for place in (path,) if path else _PLACES:
        if os.access(place, os.X_OK):
            return place
    raise ToolError(f"{path or 'mhs_table'} is not there: build it with 'make "
                    "tools', or say where it is with --table-program")


def _table(program, size, key, those):
    """The table of servers."""
    # everybody may read the arguments of a process, hence the key is not among them
    done = run([program, str(size), str(len(those))], f"{key}\n" + "".join(
        f"{s.address} {s.port} {s.weight}\n" for s in those), check=False)
    if done.returncode:
        raise ToolError(done.stderr.strip() or
                        f"{program} failed ({done.returncode})")
    fingerprint, *slots = done.stdout.split()
    names = [s.name for s in those] + [None]
    return Table(fingerprint, [names[int(n)] for n in slots])


def _weighted(text, default=None):
    """'10.0.0.1:80=3' -> ('10.0.0.1:80', address, port, weight)."""
    where, equals, weight = text.partition("=")
    address, port = told(where)
    if not equals and default is not None:
        weight = str(default)
    if not (weight.isascii() and weight.isdigit() and
            int(weight) <= _HIGHEST_WEIGHT):
        raise UsageError(f"{text!r}: give a weight from 0 to "
                         f"{_HIGHEST_WEIGHT} behind a '='")
    return spelled(address, port), address, port, int(weight)


def _edited(before, options):
    """The servers after the change: --to, then --delete, --weight and --add."""
    if options.to:
        before = _service(options.to, options.service[0]).servers
    after = {s.name: s for s in before}
    for text in options.delete:
        name = spelled(*told(text))
        if after.pop(name, None) is None:
            raise ToolError(f"--delete {text}: the service has no such server")
    for text in options.weight:
        name, _, _, weight = _weighted(text)
        if name not in after:
            raise ToolError(f"--weight {text}: the service has no such server")
        after[name] = after[name]._replace(weight=weight)
    for text in options.add:
        name, address, port, weight = _weighted(text, 1)
        if name in after:
            raise ToolError(f"--add {text}: the service has that server; to "
                            f"change its weight give --weight {name}=N")
        after[name] = servers.Server((), address, port, weight)
    return list(after.values())


def _service(path, name):
    """The service, from a file or the kernel."""
    where = "standard input" if path == "-" else path or "this host"
    those = servers.parse(read_text(path), where).get(name, []) if path else \
        servers.of_this_host([name]).get(name, [])
    if not those:
        raise ToolError(f"{where}: there is no service {name} in it")
    if len(those) > 1:
        raise ToolError(f"{where}: there is more than one service {name}; give "
                        "a file with the one you mean to --from")
    return those[0]


def _key(options):
    """The hash key: told, or the module's, or the default."""
    if options.hash_key_file:
        return module.parse_key(read_text(options.hash_key_file),
                                options.hash_key_file)
    if options.hash_key is not None:
        try:
            return module.parse_key(options.hash_key, "--hash-key")
        except ToolError as error:
            raise UsageError(str(error)) from error
    key = module.parameter("hash_key")
    if key is None and module.parameter("table_size") is not None and \
            options.from_file is None:
        raise ToolError("the module's hash_key is for root: run mhsstat as "
                        "root, or give --hash-key-file")
    return module.parse_key("" if key in (None, *module.NO_KEY) else key,
                            "hash_key of the module")


def _kernel(options):
    """The service as the kernel shows it, None if it is not to be had, or if
    the plan is not about it."""
    if options.from_file is not None:
        return None
    try:
        services = proc.parse(read_text(proc.PROC_MHS))
    except ToolError:
        return None
    found = [s for s in services if proc.name_of(s) == options.service[0]]
    if len(found) != 1 or \
            options.table_size not in (None, found[0].get("table_size")):
        return None
    return {**found[0], "limits": room(found[0], services)}


def room(service, services):
    """{limit: how many entries more it allows} for a service."""
    entries = {TOTAL: sum(s.get("entries", 0) for s in services)}
    values = {**limits(service), TOTAL: module.parameter(TOTAL, SYSCTLS)}
    return {name: max(int(value) - entries.get(name, service.get("entries", 0)), 0)
            for name, value in values.items() if (value or "").isdigit()}


def _refuse_others(service, here):
    """The plan would not be true of another scheduler.  By names= services of mhs
    have other names."""
    ours = service.scheduler in ("mhs", *(module.parameter("names") or "").split(","))
    if ours and here and service.scheduler != "mhs":
        ours = service.name in map(proc.name_of, proc.parse(
            read_text(proc.PROC_MHS)))
    if not ours:
        raise ToolError(
            f"{service.name} has the scheduler {service.scheduler}, and a plan is "
            "for mhs: other schedulers move more clients, and connections to a "
            "server that is deleted hang or are cut at once")


def compute(options):
    """The plan, as 'plan --json' prints it."""
    if len(options.service) != 1:
        raise UsageError("say which service: -t, -u or --sctp-service with "
                         "ADDRESS:PORT, or -f with a mark, and only one")
    name = options.service[0]
    kernel = _kernel(options)
    here = options.from_file is None
    service = _service(options.from_file, name)
    _refuse_others(service, here)
    size = options.table_size or (kernel or {}).get("table_size") or \
        int(module.parameter("table_size") or module.DEFAULT_TABLE_SIZE)
    key = _key(options)
    program = _program(options.table_program)
    after = _edited(service.servers, options)
    sets = service.servers, after
    tables = [_table(program, size, key, s) for s in sets]
    words = Words(service, after, Host(here), kernel)
    return _result(words, size, key, sets, tables, kernel)


def _result(words, size, key, sets, tables, kernel):
    moves = Counter((a, b) for a, b in zip(tables[0].slots, tables[1].slots)
                    if a != b)
    shares = [Counter(t.slots) for t in tables]
    weights = [{s.name: s.weight for s in those} for those in sets]
    names = sorted(set(weights[0]) | set(weights[1]), key=lambda name: (
        endpoint(name)[0].version, *endpoint(name)))
    rows = [{
        "server": n,
        "weight_before": weights[0].get(n), "weight_after": weights[1].get(n),
        "slots_before": shares[0][n], "slots_after": shares[1][n],
        "slots_lost": sum(c for (a, _), c in moves.items() if a == n),
        "slots_gained": sum(c for (_, b), c in moves.items() if b == n),
    } for n in names]
    moved = sum(moves.values())
    return {
        "service": words.service.name, "table_size": size,
        "summary": words.summary(percent(moved, size) if moved else None),
        "refused": words.refused,
        "deleted": words.deleted,
        "hold_ms": words.hold_ms, "pin_ms": words.pin_ms,
        "room_for_entries": words.room and min(words.room.values()),
        "warnings": uneven(rows, size),
        "hash_key_print": module.key_print(key),
        "print_before": tables[0].fingerprint,
        "print_after": tables[1].fingerprint,
        "kernel_print": kernel and kernel.get("candidate_print"),
        "slots_moved": moved,
        "slots_moved_at_least": sum(
            max(shares[1][n] - shares[0][n], 0)
            for n in {*shares[0], *shares[1]}),
        "servers_without_slot": sum(1 for r in rows if r["weight_after"] and
                                    not r["slots_after"]),
        "servers": rows,
    }


# A server whose share of the table differs more from that of its weight is named
_UNEVEN = 0.05


def _remedy(slots_each):
    """What would keep a share of one slot in so many."""
    would = [s for s in module.SIZES if s * _UNEVEN >= slots_each]
    return (f"load the module with table_size={would[0]} on all directors, or "
            if would else "no table_size would do: ") + \
        "choose weights that differ less"


def uneven(rows, size):
    """What to say of weights that a table of @size slots cannot keep."""
    total = sum(r["weight_after"] or 0 for r in rows)
    found = []
    for r in rows:
        if r["weight_after"]:
            want = size * r["weight_after"] / total
            found.append((abs(r["slots_after"] / want - 1), want, r))
    worst, want, row = max(found, default=(0, 0, None), key=lambda f: f[0])
    if worst <= _UNEVEN:
        return []
    lines = [f"weights are kept to within a slot, and the table has {size}: "
             f"{row['server']} should have {want:.1f} slots and has "
             f"{row['slots_after']}, {100 * worst:.0f} % "
             f"{'less' if row['slots_after'] < want else 'more'}; "
             + _remedy(size / want)]
    none = [r["server"] for _, _, r in found if not r["slots_after"]]
    if none:
        lines.append(f"{len(none)} server(s) get no slot and no new "
                     f"connection: {', '.join(none[:8])}"
                     + (", ..." if len(none) > 8 else ""))
    return lines


class Words:
    """What the change does to connections, by the rules of the module."""

    def __init__(self, service, after, host, kernel):
        self.service, self._host = service, host
        self._now = {s.name: s for s in service.servers}
        self._then = {s.name: s for s in after}
        self.hold_ms = host.hold(service.name)
        self.pin_ms = host.pin(service.name)
        self.served = any(s.weight for s in service.servers)
        self.refused = not any(s.weight for s in after)
        state = kernel or {}
        self.room = state.get("limits")
        self._settling = state.get("state") == "settling"
        self._stateful = bool(state.get("stateful")) and \
            not state.get("stateful_ms")
        self.deleted = {
            name: host.deleted(service, server, state, self._stateful)
            for name, server in self._now.items() if name not in self._then}

    def _time(self, ms):
        return duration(ms) + ("" if self._host.here else " by default")

    def _new(self, share):
        """Of new connections."""
        if self.refused:
            return "New connections are refused: no server has a weight above 0"
        if not self.served:
            return "New connections, which are refused now, are served"
        if not share:
            return "No new connection goes to another server"
        if "ops" in self.service.flags:
            return f"{share} of the clients' packets go to another server " \
                   "than before, at once"
        return f"{share} of new connections go to another server than before" \
            + (", but those of clients that have a server by persistence"
               if self.service.persistent else "")

    def _old(self):
        """Of living connections to servers that are deleted, by fate."""
        by_fate = {}
        for name, fate in self.deleted.items():
            by_fate.setdefault(fate, []).append(name)
        last = ": 'mhsstat drain' deletes a server when it has none"
        for fate, words in (
                (CUT, "are cut at once (net.ipv4.vs.expire_nodest_conn is 1)"
                 + last),
                (HANG, "hang at once, as masquerading keeps no deleted server"
                 + last),
                (MOVE, "go to another server at once, as plain UDP" +
                 (last if self._host.stays(self.service) else "")),
                (SENT, "go on while these servers live, for hold and pin time at "
                 "most (net.ipv4.vs.mhs.second_chance)" + last),
                (KEPT, "are kept for hold and pin time, "
                 f"{self._time(self.hold_ms + self.pin_ms)}, then cut" + last)):
            if fate in by_fate:
                yield f"living connections to {', '.join(by_fate[fate])} {words}"

    def _rest(self, moves):
        """Of living connections to servers that stay."""
        plain = self._host.plain_udp(self.service)
        here = [s for s in self.service.servers if s.name in self._then]
        others = "other living" if self._breaks() else "living"
        if self._settling:
            yield "the service settles: packets of older connections are dropped " \
                  "until it has, and then go by the new table"
            return
        if not moves:
            yield f"{others} connections do not break"
            return
        if "ops" in self.service.flags:
            return
        # with an entry for each a flow of plain UDP stays, too
        without = not self._stateful and not all(s.method == "Masq" for s in here)
        plain = plain is not False and without
        if plain and self.service.name.startswith("UDP "):
            yield "plain UDP, which is not QUIC, goes to its new server after " \
                  f"the hold time, {self._time(self.hold_ms)}, and at once " \
                  "from a server that is deleted or gets the weight 0"
            return
        if without and self._host.stays(self.service):
            yield f"{others} connections that send something in the hold time, " \
                  f"{self._time(self.hold_ms)}, stay, the others go to their new " \
                  "server (stay_ports)"
            return
        if self._host.chance(self.service):
            yield f"{others} connections go on, as servers send their packets " \
                  "back (net.ipv4.vs.mhs.second_chance): 'mhsstat check' tells " \
                  "whether each can"
            return
        if not without:
            yield f"{others} connections do not break: each has an entry, but " \
                  "for those from before a change to masquerading"
            return
        yield f"{others} connections do not break, unless they send nothing in the " \
              f"pin time, {self._time(self.pin_ms)}, or have no entry then, because " \
              f"{self._limit()}"
        if plain:
            yield "plain UDP of the mark goes to its new server after the hold " \
                  f"time, {self._time(self.hold_ms)}" + (
                      " (that of stay_ports only if it is silent for that time)"
                      if self._host.stay_ports else "") + \
                  ", and at once from a server that is deleted"

    def _limit(self):
        """How many connections of unstable slots, older and new, get an entry."""
        if not self.room:
            return "max_entries or another limit is reached"
        name, most = min(self.room.items(), key=lambda limit: limit[1])
        return f"there is room for {'only ' * (most < 1000)}{most} entries " \
               f"(net.ipv4.vs.mhs.{name})"

    def _breaks(self):
        return {CUT, HANG, KEPT, MOVE} & set(self.deleted.values())

    def summary(self, share):
        """All of it; @share of new connections, None if none moves."""
        return "; ".join([self._new(share), *self._old(),
                          *self._rest(share and self.served)]) + "."


def _weight(value):
    return "-" if value is None else str(value)


def render(plan, room=Screen()):
    """The plan for people; servers that change come first where not all have room."""
    size, those = plan["table_size"], plan["servers"]
    if room.rows:
        those = sorted(those, key=lambda r: (
            r["weight_before"] == r["weight_after"],
            -r["slots_lost"] - r["slots_gained"]))
    rows = [("SERVER", "WEIGHT", "", "SLOTS", "", "SHARE", "", "LOSES",
             "GAINS")]
    for r in those:
        rows.append((
            r["server"], _weight(r["weight_before"]),
            "-> " + _weight(r["weight_after"]),
            str(r["slots_before"]), f"-> {r['slots_after']}",
            percent(r["slots_before"], size),
            "-> " + percent(r["slots_after"], size),
            str(r["slots_lost"]), str(r["slots_gained"])))
    lines = ["", *wrap(plan["summary"], room.width),
             f"{plan['slots_moved']} of {size} slots move "
             f"({percent(plan['slots_moved'], size)}); the least possible is "
             f"{plan['slots_moved_at_least']}",
             f"fingerprint {plan['print_before']} -> {plan['print_after']}"]
    lines += [line for text in plan["warnings"] for line in wrap(text, room.width)]
    whole = table(rows, left=(0, 2, 4, 6)).split("\n")
    if room.width and max(map(len, whole)) > room.width:
        whole = table([(*r[:3], *r[7:]) for r in rows], left=(0, 2)).split("\n")
    return "\n".join([*few(whole, room.rows and max(room.rows - len(lines), 5),
                           len(whole), "server(s)"), *lines])


def verdict(plan, warn):
    """Whether the plan is about the table the kernel has, and leaves a server
    for new connections; exit status."""
    if plan["kernel_print"] in (None, plan["print_before"]):
        return EXIT_PROBLEM if plan["refused"] else EXIT_OK
    warn(f"the kernel's candidate table has the fingerprint "
         f"{plan['kernel_print']}, not {plan['print_before']}: the plan is "
         "about another table; is the hash key or the table size another, or "
         "have the servers just changed?")
    return EXIT_PROBLEM
