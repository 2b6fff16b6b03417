# SPDX-License-Identifier: GPL-2.0-only
"""real_server chance: set, show, check, clear.

The record of what is set is kept under /run, as that of setup is: without the hash
key, which the map alone has.
"""

import hashlib
import json
import os
import time
from itertools import chain
from typing import NamedTuple

from ipvs_mhs_tool import EXIT_OK, ToolError

from mhsstat_lib import module

from . import change, chance_follow, chance_map, chance_tell, faults
from .chance_options import Service, addresses, hash_key, lists_of, warn
from .chance_parts import (TUNNELS, Kernel, Program, directory_of, filter_parts,
                           find_program, tunnel_parts)
from .chance_slots import (END_S, Filler, ServerSet, circles_of, in_service,
                           present, with_new)
from .host import namespace_id
from .options import SetUp, family_of
from .parts import Fault, tunnels_of
from .state import DIRECTORY, State


# Bytes: IPv6 and GRE with a key; IPv6 or IPv4, and TCP
_TUNNEL_6, _HEADERS_6, _HEADERS_4 = 40 + 8, 60, 40
_SET = "real_server chance set --servers FILE"


class Layout(NamedTuple):
    """What the parts follow from."""

    program: str        # the file
    directory: str      # where it is pinned
    devices: list       # where clients' packets come in
    families: list      # of the servers
    vips: list

    def parts(self):
        """(what the tables need, what needs the tables)"""
        return ([*tunnel_parts(self.vips, self.families),
                 Program(self.program, self.directory)],
                list(filter_parts(self.devices, self.families, self.directory)))

    def table(self, fields):
        """(map, key) of the table of a service of the record"""
        return (f"{self.directory}/chance_services",
                chance_map.service_key(fields["address"], fields["port"]))


class Record:
    """What is set on this server."""

    def __init__(self, fields=None):
        fields = fields or {}
        # the last one; while it is changed, and after a kill, the others, too
        self.layouts = [Layout(*layout) for layout in fields.get("layouts", [])]
        self.dead = fields.get("dead", [])
        self.made = fields.get("made", {})            # as change has it
        self.size = fields.get("size")                # of the tables
        self.print = fields.get("print")              # of the hash key
        # {name: {"address", "port", "tunnels", "addr_only", "print", "sets",
        #         "away_until"}}
        self.services = fields.get("services", {})

    def layout(self):
        return self.layouts[-1] if self.layouts else None

    def parts(self):
        """Of all layouts; of one part once."""
        return list({part.key: part for layout in self.layouts
                     for part in sum(layout.parts(), [])}.values())

    def sets_of(self, name):
        return [ServerSet.of_list(fields) for fields in
                self.services.get(name, {}).get("sets", [])]


class Store:
    """The file of the record."""

    def __init__(self):
        self._path = os.path.join(DIRECTORY, f"{namespace_id()}.chance.json")

    def load(self):
        try:
            with open(self._path, encoding="utf-8") as file:
                return Record(json.load(file))
        except FileNotFoundError:
            return Record()
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ToolError(
                f"cannot read {self._path}: {error}; remove that file, and run "
                "'real_server chance set' again") from error

    def save(self, record):
        if not record.layouts:
            if os.path.exists(self._path):
                os.unlink(self._path)
            return
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(vars(record), file, indent=1)
        os.replace(self._path + ".new", self._path)


def _me(host, sets):
    """The address by which this host is, or was, one of the servers, or None."""
    own = host.addresses()
    return next((server.address for one in sets for server in one.servers
                 if server.address in own), None)


def _devices(options, host, services):
    if options.device:
        return list(dict.fromkeys(options.device))
    links = filter(None, map(host.underlay, (4, 6)))
    devices = [link["ifname"] for link in links]
    if not devices:
        raise ToolError("there is no default route: say by --device where packets "
                        "of clients come in")
    for service in services:
        if service.tunnels:
            devices += sorted(tunnels_of(SetUp(
                (service.address,), ("ipip",),
                (family_of(service.servers[0].address),))))
    return list(dict.fromkeys(devices))


def _refuse_gre(host, families):
    """The tunnel takes all GRE packets that no other device is for."""
    for family in families:
        device = {4: "gre0", 6: "ip6gre0"}[family]
        if "UP" in host.links().get(device, {}).get("flags", []):
            raise ToolError(
                f"{device} is up: services by GRE and the second chance, whose "
                f"tunnel takes the same packets, exclude each other; 'ip link "
                f"set {device} down' if nobody needs it")


def _make(parts, host, record, store, new):
    for part in parts:
        if part.making(host):
            new[part.key] = part.before(host)
            record.made.setdefault(part.key, new[part.key])
            store.save(record)
            try:
                change.make(part, host)
            except ToolError as error:
                raise ToolError("; ".join(filter(None, (str(error), part.hint)))
                                ) from error


def _with_sets(lists, old, keep=False, say=warn):
    """(service, its sets) of all directors' lists; one without servers keeps the last
    ones.  @keep a service that no list has, for a day: a director may have been started
    anew."""
    found = {}
    for service in chain(*lists):
        found.setdefault(service.name, []).append(service)
    for service, *others in found.values():
        sets = old.sets_of(service.name)
        served = [one for one in (service, *others) if one.servers]
        if served:
            sets = with_new(sets, *(one.servers for one in served))
            yield service._replace(
                servers=sets[0].servers,
                tunnels=any(one.tunnels for one in served)), sets
        elif sets:
            say(f"{service.name} has no server: the last ones stay")
            yield service._replace(
                servers=sets[0].servers,
                tunnels=old.services[service.name]["tunnels"]), sets
        else:
            say(f"{service.name} has no server, and is left out")
    for name in old.services if keep else ():
        sets = with_new(old.sets_of(name))
        if name not in found and sets:
            fields = old.services[name]
            yield Service(fields["address"], fields["port"],
                          fields.get("addr_only", False), fields["tunnels"],
                          sets[0].servers), sets


def _key(options, old):
    """As given, or as before: the map has it."""
    key = hash_key(options)
    if key or old.print in (None, module.key_print(module.DEFAULT_KEY)):
        return key or module.DEFAULT_KEY
    for layout in old.layouts:
        for fields in old.services.values():
            head = chance_map.head(*layout.table(fields))
            if head and module.key_print(head[0]) == old.print:
                return head[0]
    raise ToolError("the hash key of before is lost: give --hash-key-file")


def _dead(options, old, lists, known):
    """Until it has new connections again: then it is back.  Of a follower's lists one may
    be older than the record: it knows who is back."""
    back = known.back if known else \
        in_service(service.servers for service in chain(*lists)) - \
        in_service(one.servers for name in old.services
                   for one in present(old.sets_of(name)))
    return sorted((set(old.dead) - back | addresses(options.dead, "--dead")) -
                  addresses(options.alive, "--alive"))


def _fields(service, sets, those, old):
    """Of the record"""
    return {"address": service.address, "port": service.port,
            "tunnels": service.tunnels, "addr_only": service.addr_only,
            "print": those.fingerprint, "sets": sets,
            "away_until": old.services.get(service.name, {}).get(
                "away_until", int(time.monotonic()) + END_S)}


def _write(host, record, circles, key, replaced, known):
    """Each service at once and whole.  @replaced takes what was there before.  What is
    there is not written again, as that waits for readers of the map."""
    links = host.links()
    for service, _, those in circles:
        family = family_of(those.addresses[0])
        flags = (chance_map.ADDR_ONLY if service.addr_only else 0) | \
            (chance_map.SERVERS_6 if family == 6 else 0)
        fields = record.services[service.name]
        table = record.layout().table(fields)
        rows = chance_map.rows(
            key, those.words, those.addresses,
            links[TUNNELS[family][0]]["ifindex"], flags, fields["away_until"])
        what = known and (table, hashlib.sha256(rows).digest())
        if known and (what, chance_map.number(*table)) == \
                known.written.get(service.name):
            continue
        replaced.append((*table, chance_map.find(*table)))
        chance_map.write(*table, rows)
        if known:
            known.written[service.name] = what, chance_map.number(*table)
            known.changed.append(service.name)


def _put_back(replaced):
    """What went wrong, in words"""
    wrong = []
    for table in replaced:
        try:
            chance_map.put(*table)
        except OSError as error:
            wrong.append(str(error))
    return wrong


def _forget(record, names):
    """Services that are not wanted any more; what went wrong, in words"""
    wrong = []
    for name in names:
        try:
            chance_map.put(*record.layout().table(record.services[name]), None)
            del record.services[name]
        except OSError as error:
            wrong.append(f"{name}: {error}")
    return wrong


def _undo_former(host, record):
    """Parts of former layouts alone; what went wrong, in words"""
    wanted = {part.key for part in sum(record.layout().parts(), [])}
    gone = [part for part in record.parts() if part.key not in wanted]
    left = {part.key: record.made.pop(part.key) for part in gone
            if part.key in record.made}
    wrong = change.undo(gone, left, host)
    record.made.update(left)
    if not wrong:
        record.layouts = record.layouts[-1:]
    return wrong


def _change(host, store, old, record, circles, key, known=None):
    """All or nothing.  Old and new stand in the file until the end, so that clear,
    or another call, finds all that a call has made which was killed."""
    before, behind = record.layout().parts()
    new, replaced = {}, []
    try:
        store.save(record)
        _make(before, host, record, store, new)
        _write(host, record, circles, key, replaced, known)
        _make(behind, host, record, store, new)
    except BaseException as error:
        wrong = _put_back(replaced) + change.undo(before + behind, new, host)
        store.save(record if wrong else old)
        if not isinstance(error, (ToolError, OSError)):
            raise
        raise ToolError("; ".join([str(error), *wrong])) from error
    finally:
        for *_, table in replaced:
            if table is not None:
                os.close(table)


def _circles(known, name, filler, sets, me, dead):
    """Of a service that has not changed as @known"""
    of = filler.size, filler.key, [one.servers for one in sets], me, dead
    if known is None or known.circles.get(name, (None,))[0] != of:
        those = circles_of(filler, sets, me, dead)
        if known is None:
            return those
        known.circles[name] = of, those
    return known.circles[name][1]


def _set_lists(options, lists, known=None):
    """What directors have; the addresses by which this host is one of the servers.
    A follower has @known, from call to call."""
    host, store = Kernel(), Store()
    old, record = store.load(), store.load()
    those = list(_with_sets(lists, old, known is not None,
                            known.warn if known else warn))
    if not those:
        raise ToolError("no service has a server")
    services = [service for service, _ in those]
    program = find_program(options.program)
    layout = Layout(program, directory_of(program),
                    _devices(options, host, services),
                    sorted({family_of(service.servers[0].address)
                            for service in services}),
                    sorted({service.address for service in services}))
    _refuse_gre(host, layout.families)
    key = _key(options, old)
    record.size = options.table_size or old.size or module.DEFAULT_TABLE_SIZE
    record.print = module.key_print(key)
    record.dead = _dead(options, old, lists, known)
    filler = Filler(options.table_program, record.size, key)
    # computed before anything is changed: [(service, its sets, its circles)]
    circles = [(service, sets, _circles(known, service.name, filler, sets,
                                        _me(host, sets), record.dead))
               for service, sets in those]
    record.layouts = [*(one for one in old.layouts if one != layout), layout]
    names = {service.name for service in services}
    record.services.update({service.name: _fields(service, sets, one, old)
                            for service, sets, one in circles})
    _change(host, store, old, record, circles, key, known)
    wrong = _forget(record, set(record.services) - names) + \
        _undo_former(host, record)
    store.save(record)
    if wrong:
        raise ToolError("; ".join([*wrong, "all else is set"]))
    for service, sets, _ in circles:
        if not known or service.name in known.changed:
            print(f"{service.name}: set" + (
                "" if _me(host, present(sets)) else "; this host is none of its "
                "servers, and sends on what has no connection here"))
    if known:
        known.end(names)
    return sorted({_me(host, sets) for _, sets, _ in circles} - {None})


def _set(options):
    State().lock()
    _set_lists(options, lists_of(options))
    return EXIT_OK


def _follow(options):
    known = chance_follow.Known()

    def put(lists, back):
        lock = State().lock()
        try:
            known.back = back
            own = _set_lists(options, lists, known)
            return own, vars(Store().load())
        finally:
            os.close(lock)

    chance_follow.follow(options, put, lambda: vars(Store().load()))


def _show(_options):
    record = Store().load()
    layout = record.layout()
    if not layout:
        print("nothing is set")
        return EXIT_OK
    for name, fields in record.services.items():
        sets = record.sets_of(name)
        now = present(sets) or sets[:1]
        print(f"{name}: {len(now[0].servers)} servers, {record.size} slots, "
              f"CandidatePrint {fields['print']}, "
              f"{len(sets) - len(now)} former sets of servers")
        for one in now:
            print("  by another director:\n" if one is not now[0] else "", end="")
            for address, port, weight in one.servers:
                print(f"  {address} port {port} weight {weight}")
    if record.dead:
        print(f"dead: {', '.join(record.dead)}")
    print(f"devices: {', '.join(layout.devices)}")
    kept, sent_on, refused = Kernel().counts(layout.directory)
    print(f"packets: kept {kept}, sent on {sent_on}, refused {refused}")
    return EXIT_OK


def _segments(record, host):
    """IPv6 fragments nothing on its way to another server."""
    for address in (fields["address"] for fields in record.services.values()
                    if ":" in fields["sets"][0][0][0][0]):
        link = host.underlay(6)
        if not link:
            continue
        fits = link["mtu"] - _TUNNEL_6 - (_HEADERS_6 if ":" in address
                                          else _HEADERS_4)
        told = [int(words[2]) for words in map(str.split, host.clamps() or ())
                if words[0] == address] + host.segments(family_of(address))
        if not any(size <= fits for size in told):
            yield Fault(f"no MSS clamp keeps segments to {address} small enough "
                        f"for the tunnel to the other servers, {fits} bytes",
                        f"real_server setup with --mss {fits}, or a route to "
                        f"clients with 'advmss {fits}'", "warning")


def _tables(record, host):
    """Of the map itself"""
    links = host.links()
    for name, fields in record.services.items():
        try:
            head = chance_map.head(*record.layout().table(fields))
        except OSError as error:
            yield Fault(f"{name}: cannot read its table: {error}", _SET)
            continue
        family = family_of(fields["sets"][0][0][0][0])
        link = links.get(TUNNELS[family][0], {})
        if head is None:
            yield Fault(f"{name} has no table", _SET)
        elif (module.key_print(head[0]), *head[1:]) != (
                record.print, record.size, link.get("ifindex")):
            yield Fault(f"the table of {name} is of another key, size or tunnel "
                        "than was set", _SET)


def _faults(options, record, host):
    layout = record.layout()
    if not layout:
        yield Fault("nothing is set", _SET)
        return
    if record.layouts[:-1]:
        yield Fault("a 'chance set' did not come to its end", _SET)
    for part in sum(layout.parts(), []):
        for fault in part.faults(host):
            yield fault._replace(remedy=_SET)
    yield from _tables(record, host)
    for fields in record.services.values():
        set_up = SetUp((fields["address"],), ports=(("tcp", fields["port"]),))
        for fault in (*faults.translated(set_up, host),
                      *faults.deaf(set_up, host)):
            yield fault._replace(
                text=fault.text + ": a program that has the port by DNAT, or in "
                "another network namespace, has no socket here")
        for address, _, weight in fields["sets"][0][0]:
            if address in record.dead and weight:
                yield Fault(f"{address} is set as dead, and gets new "
                            "connections", "delete it on the directors, or "
                            f"'real_server chance set' with --alive {address}",
                            "warning")
    yield from _segments(record, host)
    yield from chance_follow.old(
        lists_of(options), record, "real_server chance set " + " ".join(
            f"--servers {path}" for path in options.servers))
    yield from chance_follow.faults(options, record)


def _check(options):
    follows = os.path.exists(options.directors)
    return faults.report(
        fault._replace(remedy=chance_follow.RESTART)
        if follows and fault.remedy == _SET else fault
        for fault in _faults(options, Store().load(), Kernel()))


def _clear(_options):
    host, store = Kernel(), Store()
    State().lock()
    record = store.load()
    if not record.layouts:
        print("nothing is set")
        return EXIT_OK
    wrong = change.undo(record.parts(), record.made, host)
    if not wrong:
        record.layouts = []
    store.save(record)
    if wrong:
        raise ToolError("; ".join([*wrong, "the rest is undone; run "
                                   "'real_server chance clear' again"]))
    print("all is undone")
    return EXIT_OK


def run(options):
    """One of the commands."""
    return {"set": _set, "show": _show, "check": _check, "clear": _clear,
            "tell": chance_tell.tell, "follow": _follow}[options.chance](options)
