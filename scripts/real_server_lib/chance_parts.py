# SPDX-License-Identifier: GPL-2.0-only
"""What the second chance is made of on a server: the tunnel to the other servers,
the program, its filters.  Parts as those of setup are, see parts."""

import glob
import hashlib
import json
import os
import sys

from ipvs_mhs_tool import ToolError

from .host import Host, namespace_id
from .parts import CHANCE_TUNNELS, Loose, Part, Sysctl, TunnelAddress, Up

MAPS = "/sys/fs/bpf"
_HERE = os.path.dirname(os.path.realpath(__file__))
# where it is installed, and where 'make chance' puts it
_PLACES = (f"{_HERE}/../chance.bpf.o",
           os.path.join(_HERE, "../../build/tools/chance.bpf.o"))
# Of the devices that tunnel to the other servers, by the family of these
TUNNELS = {4: (CHANCE_TUNNELS[0], "gre", "ip_gre"),
           6: (CHANCE_TUNNELS[1], "ip6gre", "ip6_gre")}
_MTU = 65000        # never the reason to refuse a packet; the path fragments
_PREF = 4900        # of the filters of a device: others may stand before


def find_program(path=None):
    """chance.bpf.o"""
    for place in (path,) if path else _PLACES:
        if os.path.exists(place):
            return os.path.realpath(place)
    raise ToolError(f"{path or 'chance.bpf.o'} is not there: build it with 'make "
                    "chance', or say where it is with --program")


def directory_of(program):
    """Where the program and its maps are pinned; another program, of an update,
    has other maps."""
    with open(program, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:16]
    return f"{MAPS}/real_server-{namespace_id()}-{digest}"


def program_path(directory):
    """Where the program is pinned: bpftool before 5.16 takes the section's name."""
    paths = [f"{directory}/{name}" for name in ("mhs_chance", "classifier")]
    return next(filter(os.path.exists, paths), paths[0])


class Kernel(Host):
    """A Host that answers about tc and BPF, too."""

    def has_ingress(self, device):
        """Whether it has what filters of incoming packets hang on."""
        return any(qdisc["dev"] == device and
                   qdisc["kind"] in ("clsact", "ingress")
                   for qdisc in self._ask_json("tc", "-j", "qdisc", "show"))

    def filters(self, device, pref=None, way="ingress"):
        return [item for item in self._ask_json("tc", "-j", "filter", "show",
                                                "dev", device, way)
                if pref in (None, item.get("pref"))] \
            if self.has_ingress(device) else []

    def program_id(self, directory):
        """None if it is not loaded."""
        path = program_path(directory)
        if not os.path.exists(path):
            return None
        return json.loads(self._ask("bpftool", "-j", "prog", "show", "pinned",
                                    path))["id"]

    def segments(self, family):
        """advmss of default routes"""
        return [metrics["advmss"] for route in self._ask_json(
            "ip", "-j", f"-{family}", "route", "show", "default")
            for metrics in route.get("metrics", []) if "advmss" in metrics]

    def counts(self, directory):
        """kept, sent on, refused"""
        found = json.loads(self._ask("bpftool", "-j", "map", "dump", "pinned",
                                     f"{directory}/chance_counts"))
        return [sum(int.from_bytes(bytes(int(byte, 16) for byte in cpu["value"]),
                                   sys.byteorder)
                    for cpu in item["values"]) for item in found]


class Gre(Part):
    """The device that sends and takes what servers send on to each other.  While it
    is down nothing comes out of it."""

    def __init__(self, family):
        self._device, self._kind, module = TUNNELS[family]
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
        return f"{self._device} is missing: nothing goes on to other servers"


class Open(Up):
    """The tunnel, once its filters are there."""

    def __init__(self, family):
        super().__init__(TUNNELS[family][0])
        self.key = f"{self.device} up"


class Program(Part):
    """The program and its maps."""

    hint = ("the program needs Linux 5.10 with BTF (/sys/kernel/btf/vmlinux), "
            "bpftool, and the file system bpf on /sys/fs/bpf ('mount -t bpf bpf "
            "/sys/fs/bpf')")

    def __init__(self, program, directory):
        self._program = program
        self.directory = directory
        self.key = f"program {directory}"

    def making(self, host):
        if host.program_id(self.directory) is not None:
            return []
        return [["bpftool", "prog", "loadall", self._program, self.directory,
                 "type", "classifier", "pinmaps", self.directory]]

    def undoing(self, host, before):
        return [["rm", "-r", self.directory]] \
            if os.path.exists(self.directory) else []

    def text(self, host):
        return "the program is not loaded: no flow has a second chance here"


class Ingress(Part):
    """What filters of incoming packets hang on."""

    def __init__(self, device):
        self._device = device
        self.key = f"ingress of {device}"

    def _command(self, verb):
        return [["tc", "qdisc", verb, "dev", self._device, "clsact"]]

    def making(self, host):
        return [] if host.has_ingress(self._device) else self._command("add")

    def undoing(self, host, before):
        """Unless others use it by now."""
        return self._command("del") if host.has_ingress(self._device) and \
            not any(host.filters(self._device, way=way)
                    for way in ("ingress", "egress")) else []

    def text(self, host):
        return f"{self._device} has no qdisc for filters of incoming packets"


class Filter(Part):
    """The program at the ingress of a device."""

    hint = "is the device there, and up?"

    def __init__(self, device, directory):
        self._device = device
        self._directory = directory
        self.key = f"filter of {device}"

    def _attached(self, host):
        """The program's number, or None."""
        for item in host.filters(self._device, _PREF):
            prog = item.get("options", {}).get("prog")
            if prog:
                return prog["id"]
        return None

    def making(self, host):
        ours = host.program_id(self._directory)
        if ours is not None and self._attached(host) == ours:
            return []
        return self._replace(self._directory)

    def _replace(self, directory):
        return [["tc", "filter", "replace", "dev", self._device, "ingress",
                 "protocol", "all", "pref", str(_PREF), "handle", "1", "bpf",
                 "direct-action", "pinned", program_path(directory)]]

    def before(self, host):
        """Where another program is pinned whose place this one takes."""
        there = self._attached(host)
        return None if there is None else next(
            (path for path in glob.glob(f"{MAPS}/real_server-*")
             if host.program_id(path) == there), None)

    def undoing(self, host, before):
        if self._attached(host) is None:
            return []
        if before and host.program_id(before) is not None:
            return self._replace(before)
        return [["tc", "filter", "del", "dev", self._device, "ingress", "pref",
                 str(_PREF)]]

    def text(self, host):
        return (f"the program is not attached to {self._device}: flows that come "
                "by it have no second chance")


class Drop(Part):
    """From the tunnel of the servers come packets of services alone."""

    def __init__(self, device):
        self._device = device
        self.key = f"drop of {device}"

    def making(self, host):
        if host.filters(self._device, _PREF + 1):
            return []
        return [["tc", "filter", "add", "dev", self._device, "ingress",
                 "protocol", "all", "pref", str(_PREF + 1), "matchall",
                 "action", "drop"]]

    def undoing(self, host, before):
        return []       # with the device

    def text(self, host):
        return f"{self._device} is open for packets of everybody"


def tunnel_parts(vips, families):
    """To and from servers whose addresses have these families."""
    four = [vip for vip in vips if ":" not in vip]
    for family in families:
        device = TUNNELS[family][0]
        yield Gre(family)
        if four:
            yield Loose(device)
            yield TunnelAddress(device, four[0])
        if len(four) < len(vips):
            yield Sysctl(f"net.ipv6.conf.{device}.disable_ipv6", ("0",),
                         "no IPv6 comes out of the tunnel")


def filter_parts(devices, families, directory):
    """The program where packets of clients come in, and those of servers."""
    for family in families:
        device = TUNNELS[family][0]
        yield Ingress(device)
        yield Drop(device)
        yield Filter(device, directory)
        yield Open(family)
    for device in devices:
        yield Ingress(device)
        yield Filter(device, directory)
