# SPDX-License-Identifier: GPL-2.0-only
"""What differs between directors that should forward alike, and what each
difference breaks."""

import json
import re
import time

from ipvs_mhs_tool import EXIT_OK, EXIT_PROBLEM, ToolError, UsageError, json_of

from . import proc
from .snapshot import as_json, read_services, read_text
from .text import duration

_NOTHING = "breaks nothing"
_TABLES = "connections that move between them go to another server"
_CHANGE = "in a change of servers connections that move between them break"
_LIMIT = "in a change one of them may refuse entries, and connections break there"
_ENTRY = "connections with an entry on one of them break on the other"
# parameter of the module: what a difference breaks
_PARAMETERS = {"hash_key_print": _TABLES, "quic_ports": _CHANGE,
               "stay_ports": _CHANGE}
# sysctl below net.ipv4.vs: the same
_SETTINGS = {
    "mhs/hold_ms": _CHANGE, "mhs/pin_ms": _CHANGE, "timeouts": _CHANGE,
    "mhs/stateless": _ENTRY, "mhs/max_entries": _LIMIT,
    "mhs/max_quic_entries": _LIMIT, "mhs/max_total_entries": _LIMIT,
    "conn_max": _LIMIT,
    "mhs/quic_ids": "QUIC connections that move or change their address break",
    "expire_nodest_conn": "one of them cuts connections of a deleted server that "
                          "the other keeps",
    "expire_quiescent_template": "clients with persistence leave a server of "
                                 "weight 0 on one of them only",
    "sloppy_tcp": "one of them resets connections of other schedulers' services "
                  "and of those with entries that the other takes over",
    "sloppy_sctp": "the same as sloppy_tcp, of SCTP",
    "conntrack": "rules of conntrack may drop connections that move",
    "conn_reuse_mode": "a port that a client uses again may meet its former "
                       "server on one of them",
    "drop_entry": "one of them drops entries when memory is short",
    "drop_packet": "one of them drops new connections when memory is short",
    "secure_tcp": "one of them forgets connections earlier when memory is short",
    "backup_only": "one of them forwards nothing while it is a backup",
    "schedule_icmp": "one of them takes ICMP errors for new connections",
    "ignore_tunneled": "one of them leaves tunnelled packets alone",
    "cache_bypass": "one of them sends what has no server to the destination",
    "nat_icmp_send": "one of them tells no client of masquerading that a server "
                     "is gone",
    "pmtu_disc": "one of them does not tell clients the MTU of a tunnel",
    "snat_reroute": "replies of masquerading may go another way",
    **dict.fromkeys((
        "mhs/lane", "amemthresh", "am_droprate", "run_estimation", "est_cpulist",
        "est_nice", "conn_lfactor", "svc_lfactor", "sync_version", "sync_ports",
        "sync_persist_mode", "sync_qlen_max", "sync_sock_size", "sync_threshold",
        "sync_refresh_period", "sync_retries"), _NOTHING),
}
_UNKNOWN = "what that breaks this mhsstat does not know"
# options of a service or a server: the same
_OPTIONS = (
    (("-p", "-M", "--pe"), "one of them sends a client's connections to the "
     "server that it has by persistence, the other does not"),
    (("-o", "--ops"), "one of them keeps each flow at its server in a "
     "change, the other does not"),
    (("-b",), "flag-1 sends new connections of a full server elsewhere, flag-3 "
     "hashes the address alone: connections that move break"),
    (("-w",), "new connections are shared out otherwise"),
    (("-m",), "masquerading needs an entry, which only one of them has: "
     "connections that move break"),
    (("-g", "-i", "--tun-type", "--tun-port", "--tun-nocsum", "--tun-csum",
      "--tun-remcsum"), "a server that is not prepared for both ways drops the "
     "packets of one of them"),
    (("-x", "-y"), "one of them sends connections above the threshold elsewhere, "
     "and its entries are not on the other"),
)


_OLD_S, _SKEW_S = 600, 60


class Director:
    """What one of them said: 'mhsstat show --json', or its /proc text."""

    def __init__(self, name, document, where=None):
        self.name = document.get("director") or name
        self.namespace = document.get("namespace")
        self.where = where      # the file
        self.parameters = document.get("parameters") or {}
        self._age_s = time.time() - document.get("time", time.time())
        self.settings = document.get("settings")    # None: not told
        self.core = document.get("ipvsadm")         # the same
        if self.core is not None:
            self.core = {
                (s["service"], "-6" in s["options"].split()): s
                for s in self.core}
        self.services = {}
        for service in document["services"]:
            self.services.setdefault(proc.name_of(service), []).append(service)

    @classmethod
    def of_file(cls, path):
        """From a file, '-' for standard input."""
        name = "standard input" if path == "-" else path
        text = read_text(path)
        if not text.strip():
            raise ToolError(f"{name} is empty: did the command that should "
                            "write it fail?")
        if not text.lstrip().startswith("{"):
            return cls(name, {"services": proc.parse(text, name)}, name)
        try:
            one = cls(name, json.loads(text), name)
            for those in one.services.values():
                for service in those:
                    _ = service["state"], _weights(service)
            return one
        except KeyError as error:
            reason = f"no {error}"
        except ValueError as error:
            reason = str(error)
        except (TypeError, AttributeError):
            reason = "a value of another type"
        raise ToolError(f"{name}: this is not what 'mhsstat show --json' "
                        f"prints: {reason}")

    @classmethod
    def of_this_host(cls):
        """From the kernel."""
        return cls("this host", as_json(read_services(), live=True),
                   "this host")

    def unknown(self):
        """What it did not tell."""
        found = [words for words, fact in (
            ("methods, tunnels, thresholds, flags and other schedulers' services",
             self.core), ("sysctls and timeouts", self.settings)) if fact is None]
        if self.parameters.get("quic_ports") is None:
            found.append("parameters of the module")
        return found + self.stale()

    def stale(self):
        """The same, because time has passed."""
        return [f"what {self.name} does now, as its file is of {self.age()}"] \
            if not -_SKEW_S < self._age_s < _OLD_S else []

    def age(self):
        """When it said so."""
        return f"{duration(max(int(1000 * self._age_s), 0))} ago" if self._age_s > -_SKEW_S \
            else f"{duration(int(-1000 * self._age_s))} from now: the clocks differ"

    def entries(self):
        return sum(s.get("entries", 0) for those in self.services.values()
                   for s in those)


def _weights(service):
    """{server: weight}, None if it is not known."""
    servers = service.get("real_servers")
    return None if servers is None else {s["server"]: s["weight"]
                                         for s in servers}


def _server_differences(a, b, left, right):
    wl, wr = _weights(left), _weights(right)
    if wl is None or wr is None:
        if left.get("servers") != right.get("servers"):
            yield (f"{left.get('servers')} servers in {a.name}, "
                   f"{right.get('servers')} in {b.name}")
        return
    for server in sorted(set(wl) | set(wr)):
        if server not in wr:
            yield f"server {server} only in {a.name}"
        elif server not in wl:
            yield f"server {server} only in {b.name}"
        elif wl[server] != wr[server]:
            yield (f"server {server} has weight {wl[server]} in {a.name}, "
                   f"{wr[server]} in {b.name}")


_COLUMNS = (("table_size", "table_size {} in {}, {} in {}"),
            ("address_only", "AddrOnly (flag-3) {} in {}, {} in {}"),
            ("second_chance", "second chance (sysctl) {} in {}, {} in {}"))


def _service_differences(a, b, left, right, explained):
    """One service of two directors; @explained: the keys differ."""
    found = [words.format(left[field], a.name, right[field], b.name) +
             f": {_TABLES}" for field, words in _COLUMNS
             if field in left and field in right and
             left[field] != right[field]]
    found += _server_differences(a, b, left, right)
    yield from found
    for field, words, table in (
            ("candidate_print", "new flows", "candidate"),
            ("old_print", "older flows", "old")):
        if left.get(field) == right.get(field):
            continue
        yield (f"{words} go by different tables: {left.get(field)} in "
               f"{a.name}, {right.get(field)} in {b.name}")
        if table == "candidate" and not found and not explained:
            if _weights(left) is None or _weights(right) is None:
                yield ("the cause cannot be seen from this: compare outputs "
                       "of 'mhsstat show --json'")
            elif None in (a.parameters.get("hash_key_print"),
                          b.parameters.get("hash_key_print")):
                yield "the cause is likely another hash_key"


def _settings(a, b):
    """Sysctls and timeouts; (line, whether it breaks something)."""
    if a.settings is None or b.settings is None:
        return
    for name in sorted(set(a.settings) | set(b.settings)):
        left, right = (d.settings.get(name, "not there") or "none"
                       for d in (a, b))
        if left != right:
            what = _SETTINGS.get(name, _UNKNOWN)
            spelled = name if name == "timeouts" else \
                "net.ipv4.vs." + name.replace("/", ".")
            yield (f"{spelled} {left} in {a.name}, {right} in {b.name}: {what}",
                   what != _NOTHING)


def _options(where, a, b, left, right):
    """What ipvsadm was told of a service or a server."""
    one, other = (dict(re.findall(r"(--?[a-z]\S*) ?([^-\s]\S*)?", text))
                  for text in (left, right))
    differ = {option for option in {**one, **other}
              if one.get(option) != other.get(option)}
    if differ:
        what = [text for options, text in _OPTIONS if differ & {*options}]
        yield (f"{where} {left or 'no option'} in {a.name}, "
               f"{right or 'no option'} in {b.name}: "
               f"{'; '.join(what) or _UNKNOWN}")


def _core(a, b):
    """What ipvsadm was told, but for what the tables say of services of mhs."""
    if a.core is None or b.core is None:
        return
    for key in sorted(set(a.core) | set(b.core)):
        left, right, name = a.core.get(key), b.core.get(key), key[0]
        if left is None or right is None:
            if name not in a.services and name not in b.services:
                one, other = (a, b) if left else (b, a)
                yield (f"{name} ({(left or right)['scheduler']}): only in "
                       f"{one.name}: {other.name} does not serve it")
            continue
        # mhs may have two names
        if left["scheduler"] != right["scheduler"] and \
                not (name in a.services and name in b.services):
            yield (f"{name}: scheduler {left['scheduler']} in {a.name}, "
                   f"{right['scheduler']} in {b.name}: {_TABLES}")
            continue
        yield from _options(f"{name}:", a, b, left["options"], right["options"])
        for server in sorted(set(left["servers"]) | set(right["servers"])):
            if server in left["servers"] and server in right["servers"]:
                yield from _options(f"{name}: server {server}", a, b,
                                    left["servers"][server],
                                    right["servers"][server])
            elif name not in a.services:
                only = a if server in left["servers"] else b
                yield (f"{name}: server {server} only in {only.name}: "
                       "connections that move break")


def differences(a, b):
    """Lines that say what differs; none if they forward alike."""
    explained = False
    for field, what in _PARAMETERS.items():
        left, right = a.parameters.get(field), b.parameters.get(field)
        if None not in (left, right) and left != right:
            explained |= field == "hash_key_print"
            left, right = (value if value != "" else "none"
                           for value in (left, right))
            yield f"{field} {left} in {a.name}, {right} in {b.name}: {what}"
    yield from (line for line, breaks in _settings(a, b) if breaks)
    yield from _core(a, b)
    for name in sorted(set(a.services) | set(b.services)):
        if name not in b.services or name not in a.services:
            only = a if name in a.services else b
            other = b if only is a else a
            yield (f"{name}: only in {only.name}: {other.name} does not serve it "
                   "by mhs")
            continue
        lefts, rights = a.services[name], b.services[name]
        if len(lefts) != len(rights):
            yield (f"{name}: {len(lefts)} services in {a.name}, "
                   f"{len(rights)} in {b.name}")
            continue
        # two services of one mark are told apart by their tables alone
        lefts, rights = (sorted(those, key=lambda s: str(
            s.get("candidate_print"))) for those in (lefts, rights))
        for left, right in zip(lefts, rights):
            for line in _service_differences(a, b, left, right, explained):
                yield f"{name}: {line}"


def unsettled(directors):
    """Lines about those whose tables are still moving: what has an entry is known
    to one director alone."""
    return [f"{d.name}: {name} is not stable ({s['state']}), and connections "
            "begun or pinned meanwhile break when they move: wait with 'mhsstat "
            "wait', and compare again"
            for d in directors for name in sorted(d.services)
            for s in d.services[name] if s["state"] != "stable"]


def compare(options):
    """All of it; exit status."""
    if options.file.count("-") > 1:
        raise UsageError("standard input can be read once only")
    directors = [Director.of_file(path) for path in options.file]
    if len(directors) == 1:
        directors.insert(0, Director.of_this_host())
    names = [d.name for d in directors]
    for d in directors:
        if names.count(d.name) > 1 and d.where != d.name:
            d.name += f" ({d.where})"
    lines, harmless = unsettled(directors), []
    for number, other in enumerate(directors[1:], 1):
        lines += [f"{one.name} and {other.name} are one and the same director"
                  for one in directors[:number]
                  if one.namespace and one.namespace == other.namespace]
        lines += differences(directors[0], other)
        harmless += [line for line, breaks in _settings(directors[0], other)
                     if not breaks]
    names = ", ".join(d.name for d in directors)
    count = sum(len(s) for s in directors[0].services.values())
    if not lines and not count:
        lines = [f"there is no service of mhs to compare: {names}"]
    elif unknown := dict.fromkeys(
            words for d in directors for words in d.unknown()):
        lines.append(f"unknown, and perhaps not alike: {'; '.join(unknown)}; "
                     "compare outputs of 'mhsstat show --json' of this version, "
                     "by root")
    entries = [f"{d.entries()} in {d.name}" for d in directors if d.entries()]
    if options.json:
        print(json_of({"format": 1, "directors": [d.name for d in directors],
                       "alike": not lines, "services": count, "differences": lines,
                       "notes": harmless, "entries": [
                           d.entries() for d in directors]}), end="")
        return EXIT_PROBLEM if lines else EXIT_OK
    print("\n".join([f"note: {line}" for line in harmless] + (lines or [
        f"{len(directors)} directors forward alike by servers, tables and sysctls: "
        f"{count} service(s); " + ", ".join(
            f"{d.name} ({d.age()})" for d in directors) + (
            f"; but for connections that have an entry ({', '.join(entries)}), which "
            "at most a sync daemon carries over" if entries else "") +
        "; not compared: addresses, routes, firewalls, marks ('mhsstat check' on each)"
    ])))
    return EXIT_PROBLEM if lines else EXIT_OK
