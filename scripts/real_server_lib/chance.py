# SPDX-License-Identifier: GPL-2.0-only
"""What the second chance is made of on a server: tunnels to the directors, the
program, its maps, its filters.  Parts as those of setup are, see parts."""

import hashlib
import ipaddress
import os
import socket
import struct
import sys

from ipvs_mhs_tool import ToolError

from .host import MAPS, namespace_id
from .options import family_of
from .parts import CHANCE_TUNNELS, Fault, Part, Up

_HERE = os.path.dirname(os.path.realpath(__file__))
# where it is installed, and where 'make chance' puts it
_PLACES = (f"{_HERE}/../chance.bpf.o",
           os.path.join(_HERE, "../../build/tools/chance.bpf.o"))
_KINDS = {4: ("gre", "ip_gre"), 6: ("ip6gre", "ip6_gre")}
_TUNNELS = dict(zip(_KINDS, CHANCE_TUNNELS))
_MTU = 65000        # never the reason to refuse a packet; the path fragments
_PREF = 4900        # of the filters of a device: others may stand before
# Bytes: IPv6 and GRE with a key, IPv6, TCP
_GRE_6, _IP_6, _TCP = 40 + 8, 40, 20
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def find_program():
    """chance.bpf.o"""
    for place in filter(None, (os.environ.get("MHS_CHANCE"), *_PLACES)):
        if os.path.exists(place):
            return os.path.realpath(place)
    raise ToolError("chance.bpf.o is not there: build it with 'make chance'")


def _digest(program):
    with open(program, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


class Gre(Part):
    """The device that sends packets back to directors."""

    def __init__(self, family):
        self._device = _TUNNELS[family]
        self._kind, module = _KINDS[family]
        self.key = f"device {self._device}"
        self.hint = (f"the tunnel needs the module {module}, and there may "
                     f"be only one {self._kind} device with 'external'")

    def making(self, host):
        return [] if self._device in host.links() else [
            ["ip", "link", "add", self._device, "mtu", str(_MTU), "type",
             self._kind, "external"]]

    def undoing(self, host, before):
        return [["ip", "link", "del", self._device]] \
            if self._device in host.links() else []

    def text(self, host):
        return f"{self._device} is missing: nothing goes back to a director"

    def faults(self, host):
        yield from super().faults(host)
        fallback = {"gre": "gre0", "ip6gre": "ip6gre0"}[self._kind]
        if "UP" in host.links().get(fallback, {}).get("flags", []):
            yield Fault(f"{fallback} is up, and {self._device} takes the packets "
                        "that are for it: a service by GRE and the second chance "
                        "exclude each other", f"ip link set {fallback} down")


class Drop(Part):
    """Nothing comes in by the tunnel."""

    def __init__(self, family):
        self._device = _TUNNELS[family]
        self.key = f"drop of {self._device}"

    def making(self, host):
        if host.filters(self._device, _PREF):
            return []
        return [["tc", "filter", "add", "dev", self._device, "ingress",
                 "protocol", "all", "pref", str(_PREF), "matchall",
                 "action", "drop"]]

    def undoing(self, host, before):
        return []       # with the device

    def text(self, host):
        return f"{self._device} is open for packets of everybody"


class Program(Part):
    """The program and its maps.  Another program, of an update, has other maps."""

    key = "program"
    hint = ("the program needs Linux 5.10 with BTF (/sys/kernel/btf/vmlinux), "
            "bpftool, and the file system bpf on /sys/fs/bpf ('mount -t bpf bpf "
            "/sys/fs/bpf')")

    def __init__(self):
        self._prefix = f"{MAPS}/real_server-{namespace_id()}-"

    def directory(self):
        """Where this program is pinned."""
        return self._prefix + _digest(find_program())

    def making(self, host):
        directory = self.directory()
        if host.program_id(directory) is not None:
            return []
        return [["bpftool", "prog", "loadall", find_program(), directory,
                 "type", "classifier", "pinmaps", directory]]

    def others(self, host):
        """Those of before an update."""
        return [path for path in host.pinned(self._prefix)
                if path != self.directory()]

    def undoing(self, host, before):
        return [["rm", "-r", path] for path in host.pinned(self._prefix)]

    def text(self, host):
        return "the program is not loaded: no flow has a second chance here"


class Old(Part):
    """Programs of before an update, once the new one has their place."""

    key = "old programs"

    def __init__(self, program):
        self._program = program

    def making(self, host):
        return [["rm", "-r", path] for path in self._program.others(host)]

    def undoing(self, host, before):
        return []

    def text(self, host):
        return "the program of before an update is still there"


class Map(Part):
    """A map of the program, whose shape chance.bpf.c has."""

    def __init__(self, name, program):
        self._name = name
        self._program = program
        self.key = f"map {name}"

    def wanted(self, host, there):
        """{key: value}, as bytes"""
        raise NotImplementedError

    def making(self, host):
        path = f"{self._program.directory()}/{self._name}"
        there = host.map(path)
        wanted = self.wanted(host, there)
        words = lambda data: [f"{byte:#04x}" for byte in data]
        return [["bpftool", "map", "update", "pinned", path, "key", *words(key),
                 "value", *words(value)] for key, value in wanted.items()
                if there.get(key) != value] + \
            [["bpftool", "map", "delete", "pinned", path, "key", *words(key)]
             for key in there if key not in wanted]

    def undoing(self, host, before):
        return []       # with the program

    def text(self, host):
        return f"{self._name} is not what setup wrote"


def _packed(address):
    return ipaddress.ip_address(address).packed.ljust(16, b"\0")


class Services(Map):
    """struct service"""

    def __init__(self, program, set_up):
        super().__init__("chance_services", program)
        self._set_up = set_up

    def wanted(self, host, there):
        return {_packed(vip) + struct.pack("!H", port) +
                struct.pack("=H", _FAMILIES[family_of(vip)]): bytes(4)
                for vip in self._set_up.vips
                for protocol, port in self._set_up.ports if protocol == "tcp"}


class Directors(Map):
    """struct director; the program learns by ARP where a director is, too."""

    SIZE = 16

    def __init__(self, program, directors):
        super().__init__("chance_directors", program)
        self._directors = directors

    def wanted(self, host, there):
        wanted = {}
        for number in range(self.SIZE):
            key = struct.pack("=I", number)
            value = bytes(32)
            if number < len(self._directors):
                address = self._directors[number]
                value = _packed(address) + struct.pack(
                    "=2I", _FAMILIES[family_of(address)], host.links().get(
                        _TUNNELS[family_of(address)], {}).get("ifindex", 0))
                mac = host.neighbour(address)
                former = there.get(key, bytes(32))
                value += (bytes.fromhex(mac.replace(":", "")) if mac else
                          former[24:30] if former[:24] == value else
                          bytes(6)) + bytes(2)
            wanted[key] = value
        return wanted


class Ingress(Part):
    """What filters of incoming packets hang on."""

    def __init__(self, where):
        self._where = where     # a device, or the address of a director
        self.key = f"ingress of {where}"

    def device(self, host):
        """By its name."""
        return self._where if self._where in host.links() else \
            host.device_to(self._where)

    def _command(self, verb, device):
        return [["tc", "qdisc", verb, "dev", device, "clsact"]]

    def making(self, host):
        device = self.device(host)
        return [] if host.has_ingress(device) else self._command("add", device)

    def undoing(self, host, before):
        """Unless others use it by now."""
        device = self.device(host)
        return self._command("del", device) if host.has_ingress(device) and \
            not any(host.filters(device, way=way)
                    for way in ("ingress", "egress")) else []

    def text(self, host):
        return f"{self.device(host)} has no qdisc for filters of incoming packets"


class Filter(Ingress):
    """The program at the ingress of a device."""

    hint = "is the device there, and up?"

    def __init__(self, where, program):
        super().__init__(where)
        self._program = program
        self.key = f"filter of {where}"

    @staticmethod
    def _attached(host, device):
        """The program's number, or None."""
        for item in host.filters(device, _PREF):
            prog = item.get("options", {}).get("prog")
            if prog:
                return prog["id"]
        return None

    def making(self, host):
        directory = self._program.directory()
        device, ours = self.device(host), host.program_id(directory)
        if ours is not None and self._attached(host, device) == ours:
            return []
        return [["tc", "filter", "replace", "dev", device, "ingress",
                 "protocol", "all", "pref", str(_PREF), "handle", "1", "bpf",
                 "direct-action", "pinned", host.program_path(directory)]]

    def undoing(self, host, before):
        device = self.device(host)
        return [] if self._attached(host, device) is None else [
            ["tc", "filter", "del", "dev", device, "ingress", "pref", str(_PREF)]]

    def text(self, host):
        return (f"the program is not attached to {self.device(host)}: flows that "
                "come by it have no second chance")


class Segments(Part):
    """IPv6 fragments nothing on its way back to a director."""

    key = "segments"

    def __init__(self, set_up):
        self._set_up = set_up

    def making(self, host):
        return []

    def faults(self, host):
        link = host.underlay(6)
        fits = link["mtu"] - _GRE_6 - _IP_6 - _TCP if link else 0
        if link and not any(size <= fits for size in
                            [self._set_up.mss or 65535, *host.segments(6)]):
            yield Fault("no MSS clamp keeps segments small enough for the way back "
                        f"to the director by IPv6, {fits} bytes",
                        f"real_server setup with --mss {fits}, or a route to "
                        f"clients with 'advmss {fits}'", "warning")


class Open(Up):
    """The tunnel, once nothing comes in by it."""

    def __init__(self, family):
        super().__init__(_TUNNELS[family])
        self.key = f"{self.device} up"


def counts(host):
    """Packets that were kept, sent back, and could not be"""
    return [sum(int.from_bytes(cpu, sys.byteorder) for cpu in values)
            for _, values in sorted(host.map(
                f"{Program().directory()}/chance_counts").items())]


def chance_parts(set_up, tunnels):
    """@tunnels: devices by which packets of directors come in, too"""
    program = Program()
    for family in sorted(set(map(family_of, set_up.directors))):
        yield Gre(family)
        yield Ingress(_TUNNELS[family])
        yield Drop(family)
        yield Open(family)
    yield program
    yield Services(program, set_up)
    yield Directors(program, set_up.directors)
    for where in (*tunnels, *set_up.directors):
        yield Ingress(where)
        yield Filter(where, program)
    yield Old(program)
    if any(family_of(address) == 6 for address in set_up.directors):
        yield Segments(set_up)
