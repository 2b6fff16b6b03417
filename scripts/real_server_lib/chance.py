# SPDX-License-Identifier: GPL-2.0-only
"""real_server chance: set, show, check, clear.

The record of what is set is kept under /run, as that of setup is: without the hash
key, which the map alone has.
"""

import json
import os

from ipvs_mhs_tool import EXIT_OK, EXIT_PROBLEM, ToolError

from . import change, chance_map, faults
from .chance_options import dead_of, hash_key, services_of
from .chance_parts import (TUNNELS, Kernel, Program, directory_of, filter_parts,
                           find_program, tunnel_parts)
from .chance_slots import Filler, ServerSet, circles_of, with_new
from .host import namespace_id
from .options import SetUp, family_of
from .parts import Fault, tunnels_of
from .state import DIRECTORY, State


# Bytes: IPv6 and GRE with a key; IPv6 or IPv4, and TCP
_TUNNEL_6, _HEADERS_6, _HEADERS_4 = 40 + 8, 60, 40


class Record:
    """What is set on this server."""

    def __init__(self, fields=None):
        fields = fields or {}
        self.program = fields.get("program")          # the file
        self.directory = fields.get("directory")      # where it is pinned
        self.devices = fields.get("devices", [])      # where clients' packets come
        self.families = fields.get("families", [])    # of the servers
        self.vips = fields.get("vips", [])
        self.dead = fields.get("dead", [])
        self.made = fields.get("made", {})            # as change has it
        # {name: {"address", "port", "size", "print", "sets"}}
        self.services = fields.get("services", {})

    def parts(self):
        """(what the tables need, what needs the tables)"""
        if not self.directory:
            return [], []
        return ([*tunnel_parts(self.vips, self.families),
                 Program(self.program, self.directory)],
                list(filter_parts(self.devices, self.families, self.directory)))

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
        except (OSError, ValueError, AttributeError) as error:
            raise ToolError(
                f"cannot read {self._path}: {error}; remove that file, and run "
                "'real_server chance set' again") from error

    def save(self, record):
        if not record.directory:
            if os.path.exists(self._path):
                os.unlink(self._path)
            return
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(vars(record), file, indent=1)
        os.replace(self._path + ".new", self._path)


def _me(host, sets):
    """The address by which this host is, or was, one of the servers, or None."""
    own = {address.get("local") for link in host.links().values()
           for address in link.get("addr_info", [])}
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


def _write(host, record, circles, key):
    """Each service at once and whole."""
    path = f"{record.directory}/chance_services"
    links = host.links()
    for service, _, those in circles:
        family = family_of(those.addresses[0])
        flags = (chance_map.ADDR_ONLY if service.addr_only else 0) | \
            (chance_map.SERVERS_6 if family == 6 else 0)
        chance_map.write(
            path, chance_map.service_key(service.address, service.port),
            chance_map.rows(key, those.words, those.addresses,
                            links[TUNNELS[family][0]]["ifindex"], flags))


def _set(options):
    services = services_of(options)
    key = hash_key(options)
    host, store = Kernel(), Store()
    State().lock()
    old, record = store.load(), store.load()
    record.program = find_program(options.program)
    record.directory = directory_of(record.program)
    record.devices = _devices(options, host, services)
    record.families = sorted({family_of(service.servers[0].address)
                              for service in services})
    record.vips = sorted({service.address for service in services})
    record.dead = dead_of(options)
    _refuse_gre(host, record.families)
    filler = Filler(options.table_program, options.table_size, key)
    # computed before anything is changed: [(service, its sets, its circles)]
    circles = []
    for service in services:
        sets = with_new(record.sets_of(service.name), service.servers)
        circles.append((service, sets,
                        circles_of(filler, sets, _me(host, sets),
                                   record.dead)))
    before, behind = record.parts()
    new = {}
    try:
        _make(before, host, record, store, new)
        _write(host, record, circles, key)
        _make(behind, host, record, store, new)
    except (ToolError, OSError) as error:
        wrong = change.undo(before + behind, new, host)
        store.save(old)
        raise ToolError("; ".join([str(error), *wrong])) from error
    record.services = {service.name: {
        "address": service.address, "port": service.port,
        "size": filler.size, "print": those.fingerprint, "sets": sets}
        for service, sets, those in circles}
    for name, fields in old.services.items():
        if name not in record.services and old.directory == record.directory:
            chance_map.remove(
                f"{record.directory}/chance_services",
                chance_map.service_key(fields["address"], fields["port"]))
    wanted = {part.key for part in before + behind}
    gone = [part for part in sum(old.parts(), []) if part.key not in wanted]
    left = {part.key: record.made.pop(part.key) for part in gone
            if part.key in record.made}
    wrong = change.undo(gone, left, host)
    store.save(record)
    if wrong:
        raise ToolError("; ".join([*wrong, "all else is set"]))
    for service, sets, _ in circles:
        print(f"{service.name}: set" + (
            "" if _me(host, sets[:1]) else "; this host is none of its servers, "
            "and sends on what has no connection here"))
    return EXIT_OK


def _show(_options):
    record = Store().load()
    if not record.directory:
        print("nothing is set")
        return EXIT_OK
    for name, fields in record.services.items():
        servers = fields["sets"][0][0]
        print(f"{name}: {len(servers)} servers, {fields['size']} slots, "
              f"CandidatePrint {fields['print']}, "
              f"{len(fields['sets']) - 1} former sets of servers")
        for address, port, weight in servers:
            print(f"  {address} port {port} weight {weight}")
    if record.dead:
        print(f"dead: {', '.join(record.dead)}")
    print(f"devices: {', '.join(record.devices)}")
    kept, sent_on, refused = Kernel().counts(record.directory)
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


def _faults(options, record, host):
    if not record.directory:
        yield Fault("nothing is set", "real_server chance set --servers FILE")
        return
    for part in sum(record.parts(), []):
        yield from part.faults(host)
    for fields in record.services.values():
        set_up = SetUp((fields["address"],), ports=(("tcp", fields["port"]),))
        for fault in faults.deaf(set_up, host):
            yield fault._replace(
                text=fault.text + ": a program that has the port by DNAT, or in "
                "another network namespace, has no socket here")
        for address, _, weight in fields["sets"][0][0]:
            if address in record.dead and weight:
                yield Fault(f"{address} is set as dead, and gets new "
                            "connections", "delete it on the directors",
                            "warning")
    yield from _segments(record, host)
    if options.servers:
        for service in services_of(options):
            sets = record.sets_of(service.name)
            if not sets or sets[0].servers != service.servers:
                yield Fault(f"{service.name}: what is set is old",
                            f"real_server chance set --servers {options.servers}")


def _check(options):
    status = EXIT_OK
    for fault in _faults(options, Store().load(), Kernel()):
        print(f"{fault.severity}: {fault.text}; remedy: {fault.remedy}")
        if fault.severity == "error":
            status = EXIT_PROBLEM
    return status


def _clear(_options):
    host, store = Kernel(), Store()
    State().lock()
    record = store.load()
    if not record.directory:
        print("nothing is set")
        return EXIT_OK
    wrong = change.undo(sum(record.parts(), []), record.made, host)
    if not wrong:
        record.directory = None
    store.save(record)
    if wrong:
        raise ToolError("; ".join([*wrong, "the rest is undone; run "
                                   "'real_server chance clear' again"]))
    print("all is undone")
    return EXIT_OK


def run(options):
    """One of the commands."""
    return {"set": _set, "show": _show, "check": _check,
            "clear": _clear}[options.chance](options)
