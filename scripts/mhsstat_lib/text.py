# SPDX-License-Identifier: GPL-2.0-only
"""What people read: times, bars, tables, lines as wide as a terminal."""

import os
import re
from collections import namedtuple

from . import lane
from .proc import left_ms, name_of

_BAR_WIDTH = 40
_PHASES = (("stable_slots", "#", "stable"), ("hold_slots", "=", "hold"),
           ("pin_slots", "-", "pin"))


RED, _GREEN, _YELLOW, _CYAN = 31, 32, 33, 36
_STATES = {"stable": _GREEN, "transition": _YELLOW}
_SIGNS = {"#": _GREEN, "=": _YELLOW, "-": _CYAN}
_SEVERITIES = {"error": RED, "warning": _YELLOW}


def state_colour(word):
    return _STATES.get(word, RED)


def may_colour(stream, environment):
    """On a terminal that has colours, unless the user wants none."""
    return stream.isatty() and not environment.get("NO_COLOR") and \
        environment.get("TERM") != "dumb"


class Paint:
    """Text in colours, or as it is."""

    def __init__(self, colours):
        self._colours = colours

    def __call__(self, colour, text):
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text

    def bar(self, text):
        return "".join(self(_SIGNS[run[0]], run)
                       for run in re.findall(r"#+|=+|-+", text))


# what a terminal has room for; no limits, and no colours, elsewhere
Screen = namedtuple("Screen", "width rows paint", defaults=(None, None, Paint(False)))


def screen(stream, whole=False):
    """Of a stream; @whole: as many lines as there are."""
    if not stream.isatty():
        return Screen()
    try:
        width, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        width = lines = 0
    # the prompt and the count of what is not shown need a line each
    return Screen(width or 80, None if whole else max((lines or 24) - 2, 5),
                  Paint(may_colour(stream, os.environ)))


def few(parts, rows, count, what):
    """As many of the @count parts as fit, and how many more there are."""
    for n, part in enumerate(parts):
        height = part.count("\n") + 1
        if rows is not None and n and height > rows:
            yield f"... and {count - n} more {what}: --all"
            return
        rows = None if rows is None else rows - height
        yield part


def finding(severity, words, remedy, room=Screen(), kind=""):
    """What a check found; on a terminal the remedy has a line of its own, to be
    copied."""
    kind = f" [{kind}]" if kind else ""
    if room.width is None:
        return f"{severity}: {words}; remedy: {remedy}{kind}"
    text = "\n".join(wrap(f"{severity}: {words}{kind}", room.width))
    return text.replace(severity, room.paint(_SEVERITIES.get(severity, _CYAN),
                                             severity), 1) + \
        f"\n    remedy: {remedy}"


def wrap(line, width):
    """The lines in which it fits."""
    if width is None or len(line) <= width:
        return [line]
    import textwrap
    return textwrap.wrap(line, width, subsequent_indent="    ",
                         break_on_hyphens=False)


def fit(items, width):
    """In one line; where that is too short, the first ones and how many more."""
    text = "; ".join(items)
    for n in range(len(items) - 1, 0, -1):
        if width is None or len(text) <= width:
            break
        text = "; ".join(items[:n]) + f"; {len(items) - n} more"
    return text if width is None or len(text) <= width else \
        text[:width - 3] + "..."


def duration(ms):
    """'14 min 23 s'."""
    seconds = (ms + 999) // 1000
    parts = [(seconds // 3600, "h"), (seconds % 3600 // 60, "min"),
             (seconds % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{n} {unit}" for n, unit in parts[:2])


def state(service):
    """The state, and how long it lasts."""
    left = left_ms(service)
    if not left:
        return service["state"]
    return f"{service['state']}, at most {duration(left)} left"


def stateful(service):
    """How far a service is whose flows all get an entry."""
    left = service.get("stateful_ms")
    return "every flow that lives has an entry" if not left else \
        f"at most {duration(left)} until every flow that lives has an entry"


def percent(part, whole):
    return f"{100 * part / whole if whole else 0:.1f} %"


def bar(service):
    """Slots by phase; a phase that has a slot is seen."""
    size = service.get("table_size") or 1
    widths = []
    for field, _, _ in _PHASES:
        n = service.get(field, 0)
        widths.append(max(round(_BAR_WIDTH * n / size), 1 if n else 0))
    widths[widths.index(max(widths))] += _BAR_WIDTH - sum(widths)
    return "".join(sign * width
                   for (_, sign, _), width in zip(_PHASES, widths))


def phases(service):
    """The same in words."""
    return ", ".join(
        f"{name} {percent(service[field], service['table_size'])}"
        for field, _, name in _PHASES
        if field in service and service.get("table_size"))


def table(rows, left=(0,)):
    """Columns in line; those in @left begin at the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(
        cell.ljust(width) if i in left else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows)


def _cell(service, field):
    return str(service.get(field, "-"))


def forwarded(service):
    """Its packets, those of the lane among them."""
    return sum(service.get(f"packets_{kind}", 0)
               for kind in ("stateless", "old", "candidate", "tracked", "by_id"))


def lane_share(service):
    """The part of a service's packets that the lane forwarded."""
    if "packets_lane" not in service:
        return "-"
    packets = forwarded(service)
    # above max_entries packets are forwarded that no column counts
    return percent(service["packets_lane"],
                   max(packets, service["packets_lane"]))


# what a cell says of a column that may go first; then those that go next
_NOTHING = {"LEFT": "-", "GONE": "0", "STABLE": "100.0 %", "HOLD": "0.0 %",
            "PIN": "0.0 %", "LANE": "0.0 %"}
_LAST = ("STATELESS", "LANE", "GONE", "SERVERS", "ENTRIES", "PIN", "HOLD",
         "STABLE", "LEFT")


def _narrow(rows, width):
    """(the table in that width, names of columns that had no room)"""
    names, without = list(rows[0]), []

    def lines():
        return table([[row[rows[0].index(n)] for n in names] for row in rows],
                     left=(0, 1))

    def fits():
        return width is None or max(map(len, lines().split("\n"))) <= width
    if not fits():
        names = [n for i, n in enumerate(names) if not all(
            row[i] in ("-", _NOTHING.get(n)) for row in rows[1:])]
    for name in _LAST:
        if name in names and not fits():
            names.remove(name)
            without.append(name)
    return "\n".join(line[:width] for line in lines().split("\n")), without


def calm(service):
    """Is there nothing to see?"""
    return service["state"] == "stable" and not service.get("gone_servers") and \
        not remarks(service)


def show(services, frames=None, room=Screen()):
    """A line for each service, and what deserves a look; @frames are those that
    the lane saw.  Where there is little room there are fewer columns, and the
    services come first of which something is to be said."""
    more = 0
    if room.rows and len(services) + 1 > room.rows:
        services = sorted(services, key=calm)
        keep = max(room.rows - 1 - min(
            sum(len(remarks(s)) for s in services[:room.rows]), room.rows // 2), 1)
        services, rest = services[:keep], services[keep:]
        more = len(rest)
    rows = [("SERVICE", "STATE", "LEFT", "SERVERS", "GONE", "STABLE", "HOLD",
             "PIN", "ENTRIES", "STATELESS", "LANE")]
    for s in services:
        left = left_ms(s)
        rows.append((
            name_of(s), s["state"],
            "-" if not left else duration(left),
            _cell(s, "servers"), _cell(s, "gone_servers"),
            *(percent(s[f], s.get("table_size")) if f in s else "-"
              for f, _, _ in _PHASES),
            _cell(s, "entries"), _cell(s, "packets_stateless"),
            lane_share(s)))
    lines, without = _narrow(rows, room.width)
    lines = re.sub(r"(?m)^(\S+ \S+ +)(\w+)", lambda m: m[1] + room.paint(
        state_colour(m[2]), m[2]), lines) if room.width else lines
    if more:
        lines += f"\n... and {more} more service(s)" + (
            ", all stable" if all(map(calm, rest)) else "") + ": --all"
    notes = [f"{name_of(s)}: {note}" for s in services for note in remarks(s)]
    if without:
        notes.append(f"no room for {', '.join(without)}: 'mhsstat show | cat' "
                     "has all columns")
    notes = [part for line in (*notes, *lane.show(frames))
             for part in wrap(line, room.width)]
    return "\n".join([lines, *few(
        notes, room.rows and max(room.rows - len(services) - 2, 3), len(notes),
        "line(s)")])


_REMARKS = (
    ("servers_without_slot", "{} server(s) have no slot: their share of the "
     "table is too small; load the module with a larger table_size"),
    ("capped", "{} entries were not made because of a limit: flows of unstable "
     "slots may break"),
    ("no_memory", "{} entries, servers or carriers could not be made for want "
     "of memory"),
)


def remarks(service):
    """What an operator should know of it."""
    found = [words.format(service[field]) for field, words in _REMARKS
             if service.get(field)]
    if not service.get("servers", 1):
        found.append("it has no server")
    if service.get("second_chance"):
        found.append("with the second chance a change of servers takes effect at "
                     "once, without entries")
    if service.get("silent_servers"):
        found.append("the second chance has no answer of "
                     f"{', '.join(service['silent_servers'])}: 'mhsstat check' has "
                     "the remedy")
    if service.get("quic_ids"):
        found.append("QUIC goes by connection ID, without hold and pin: "
                     f"{service['packets_by_id']} packets did, "
                     f"{service['packets_no_id']} had an ID of no server")
    if service.get("stateful"):
        found.append(f"net.ipv4.vs.mhs.stateless is 0, {stateful(service)}")
    return found
