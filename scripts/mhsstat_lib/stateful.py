# SPDX-License-Identifier: GPL-2.0-only
"""Whether every flow that lives has its entry, so that another scheduler can
take the services over, and what keeps the kernel from making entries.

An entry that could not be made ends no wait: the kernel begins the time anew,
and the operator may raise the limit meanwhile.
"""

from collections import Counter

from ipvs_mhs_tool import ToolError

from .module import VS, parameter
from .proc import PROC_MHS, left_ms, name_of
from .rules import Host
from .snapshot import read_services, select
from .text import duration, stateful

SYSCTLS = f"{VS}/mhs"
_SYSCTL = "net.ipv4.vs.mhs."
_BREAKS = "would break when the scheduler changes"
# limits of a service by its protocol; a mark may stand for flows of any
_LIMITS = {"UDP": ("max_quic_entries",),
           "FWM": ("max_entries", "max_quic_entries")}
TOTAL = "max_total_entries"     # of all services; none in an older module


def limit_names(service):
    """The limits for entries of the service alone."""
    return _LIMITS.get(service["protocol"], ("max_entries",))


def limits(service):
    """{name: value as text} of these."""
    return {name: parameter(name, SYSCTLS) or "unknown"
            for name in limit_names(service)}


def reached(service):
    """Which limits an entry of the service may have met, as text."""
    found = limits(service)
    if total := parameter(TOTAL, SYSCTLS):
        found[TOTAL] = total
    return " or ".join(f"{_SYSCTL}{limit} (now {value})"
                       for limit, value in found.items())


def _pending(service):
    """What the service still waits for, nothing if every flow has its entry."""
    if "stateful_ms" not in service:
        raise ToolError(f"{PROC_MHS} has no column StatefulMs: the loaded "
                        "module is older than this mhsstat and cannot give "
                        "every flow an entry; load a newer module")
    if not service["stateful"]:
        raise ToolError(f"{_SYSCTL}stateless is 1: flows have no entries and "
                        f"{_BREAKS}; run 'sysctl -w {_SYSCTL}stateless=0', "
                        "then this command again")
    if service.get("second_chance"):
        raise ToolError(f"{name_of(service)} has the second chance: flows that a change "
                        f"has moved get entries that lead elsewhere, and {_BREAKS}; "
                        "when Asked in /proc/net/ip_vs_mhs_chance stands still, take "
                        f"the service out of {_SYSCTL}second_chance, then run this "
                        "command again")
    words = []
    if service["stateful_ms"]:
        words = [f"{service['entries']} entries, {stateful(service)}"]
    if service.get("gone_servers"):
        words.append(f"{service['gone_servers']} deleted server(s) still held, "
                     "whose flows get no entries")
    return "; ".join(words)


def _refuse_short(services):
    """With a pin time that is short now; after one that was, the kernel waits as
    long again."""
    host = Host(True)
    short = [name_of(s) for s in services if host.short(name_of(s))]
    if short:
        raise ToolError(f"{', '.join(short[:3])}{', ...' if short[3:] else ''}: "
                        f"{_SYSCTL}pin_ms is {host.pin_ms}, and a flow that is "
                        f"silent for longer than {duration(host.pin_ms)} gets no "
                        f"entry and {_BREAKS}; run 'sysctl -w {_SYSCTL}pin_ms=0',"
                        " then this command again")


class Stateful:
    """Looks at the services until nothing is pending."""

    def __init__(self, warn):
        self._warn = warn
        self._refused = None    # at the last look, by (name, field)

    def _say_full(self, service):
        for name, value in limits(service).items():
            if value.isdigit() and 10 * service["entries"] > 9 * int(value):
                flows = "UDP flows" if "quic" in name else "flows"
                self._warn(f"{name_of(service)}: the service has "
                           f"{service['entries']} entries, more than 90 % of "
                           f"{_SYSCTL}{name} (now {value}): {flows} above the "
                           f"limit get no entry and {_BREAKS}; raise the "
                           f"limit with 'sysctl -w {_SYSCTL}{name}=...'")

    def _say_refused(self, service, grown):
        name = name_of(service)
        if (name, "capped") in grown:
            self._warn(f"{name}: the number of entries has reached "
                       f"{reached(service)}: some flows got no entry and "
                       f"{_BREAKS}; raise the limit with 'sysctl -w', the "
                       "kernel has begun the time anew")
        if (name, "no_memory") in grown:
            self._warn(f"{name}: the kernel had no memory (NoMemory grew): "
                       f"some flows may have no entry and {_BREAKS}; free "
                       "memory, or raise net.ipv4.vs.conn_max where the kernel "
                       "has that limit, the kernel has begun the time anew")

    def look(self, options):
        """As the other looks of wait."""
        services = select(read_services(options.service), options.service)
        pending = [(name_of(s), _pending(s)) for s in services]
        refused = Counter()     # two services by mark may have one name
        for s in services:
            for field in ("capped", "no_memory"):
                refused[name_of(s), field] += s[field]
        if self._refused is None or not any(words for _, words in pending):
            _refuse_short(services)
        for s in services:
            if self._refused is None:
                self._say_full(s)
            else:
                self._say_refused(s, refused - self._refused)
        self._refused = refused
        return [("stateful", f"{name}: {words}")
                for name, words in pending if words], \
            max(max(s["stateful_ms"], s.get("gone_servers") and left_ms(s) or 0)
                for s in services)
