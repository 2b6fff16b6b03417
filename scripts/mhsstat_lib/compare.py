# SPDX-License-Identifier: GPL-2.0-only
"""What differs between directors that should forward alike."""

import json

from ipvs_mhs_tool import ToolError

from . import proc
from .snapshot import as_json, read_services, read_text

_PARAMETERS = ("hash_key_print", "mark_ignore", "quic_ports", "stay_ports")


class Director:
    """What one of them said: 'mhsstat show --json', or its /proc text."""

    def __init__(self, name, document, where=None):
        self.name = document.get("director") or name
        self.where = where      # the file
        self.parameters = document.get("parameters") or {}
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

    def settled(self, name):
        return all(s["state"] == "stable" for s in self.services[name])


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


_SETTINGS = (("table_size", "table_size {} in {}, {} in {}"),
             ("address_only", "AddrOnly (flag-3) {} in {}, {} in {}"),
             ("second_chance", "second chance (sysctl) {} in {}, {} in {}"))


def _service_differences(a, b, left, right, explained):
    """One service of two directors; @explained: the keys differ."""
    found = [words.format(left[field], a.name, right[field], b.name)
             for field, words in _SETTINGS
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


def differences(a, b):
    """Lines that say what differs; none if they forward alike."""
    explained = False
    for field in _PARAMETERS:
        left, right = a.parameters.get(field), b.parameters.get(field)
        if None not in (left, right) and left != right:
            explained |= field == "hash_key_print"
            left, right = (value if value != "" else "none"
                           for value in (left, right))
            yield f"{field} {left} in {a.name}, {right} in {b.name}"
    for name in sorted(set(a.services) | set(b.services)):
        if name not in b.services or name not in a.services:
            only = a if name in a.services else b
            yield f"{name}: only in {only.name}"
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


def told_apart(directors):
    """Where two have one name, their files are named, too."""
    names = [d.name for d in directors]
    for d in directors:
        if names.count(d.name) > 1 and d.where != d.name:
            d.name += f" ({d.where})"
    return directors


def unsettled(directors):
    """Lines about those whose tables are still moving."""
    return [f"{d.name}: {name} is not stable: wait with 'mhsstat wait', and "
            "compare again"
            for d in directors for name in sorted(d.services)
            if not d.settled(name)]
