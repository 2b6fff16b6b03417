# SPDX-License-Identifier: GPL-2.0-only
"""Services with their servers: those of this host, or of the output of ipvsadm -S -n.

Either gives {service name: [Service]}: a list, because two services by firewall
mark, one of each family, have one name in /proc.
"""

import ipaddress
import struct
from collections import namedtuple
from functools import lru_cache

from ipvs_mhs_tool import ToolError

from . import netlink
from .address import endpoint, service_name, spelled
from .netlink import attribute, number

_OPTIONS = {"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service", "FWM": "-f"}
_PROTOCOLS = {option: name for name, option in _OPTIONS.items()}
NUMBERS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_NAMES = {number: name for name, number in NUMBERS.items()}
_METHODS = {"-g": "Route", "-i": "Tunnel", "-m": "Masq"}
_OPTION = {name: option for option, name in _METHODS.items()}
# of <linux/ip_vs.h>, by number
_FORWARD = ("Masq", "Local", "Tunnel", "Route", "Bypass")
_TUNNELS = ("ipip", "gue", "gre")
_CHECKSUMS = ("--tun-nocsum", "--tun-csum", "--tun-remcsum")
_PERSISTENT, _ONE_PACKET, _FLAG_1 = 1, 4, 8
_IPV4, _IPV6 = 2, 10


class Server(namedtuple(
        "Server", "which address port weight method options limits active inactive "
        "statistics", defaults=(None, (), (), None, None, b""))):
    """A real server of a service, which ipvsadm knows by the words @which; the
    counts are of connections, None if not known.  @options: of tunnels; @limits:
    thresholds."""

    __slots__ = ()

    @property
    def name(self):
        return spelled(self.address, self.port)

    @property
    def host(self):
        """Its address as text."""
        return self.name.rpartition(":")[0].strip("[]")

    @property
    def tunnel(self):
        """ipip, gue or gre, None if it is not known."""
        return self.options[1] if self.options else None

    @property
    def counts(self):
        """Connections and packets in; the same a second; packets out."""
        those = netlink.attributes(self.statistics)
        return tuple(number(those.get(kind, b"")) for kind in (1, 2, 6, 7, 3))

    def told(self, weight=()):
        """What ipvsadm was told of it."""
        return (_OPTION.get(self.method, "-g"), *weight, *self.options, *self.limits)

    def editing(self, weight, limits=True):
        """The command that gives it another weight and keeps all else, but for
        the thresholds if they are not meant to stay."""
        words = self.told(("-w", str(weight)))
        return ["ipvsadm", "-e", *self.which, "-r", self.name,
                *(words if limits else words[:len(words) - len(self.limits)])]

    def deletion(self):
        """The command that deletes it."""
        return ["ipvsadm", "-d", *self.which, "-r", self.name]


class Service:
    """A virtual service; @options: what ipvsadm was told beside its name and
    its scheduler."""

    def __init__(self, name, scheduler, options=()):
        self.name = name
        self.scheduler = scheduler
        self.options = options
        self.which = (*named(name), *(("-6",) if "-6" in options else ()))
        self.servers = []

    def _value(self, option):
        return self.options[self.options.index(option) + 1] \
            if option in self.options else ""

    @property
    def persistent(self):
        return "-p" in self.options

    @property
    def flags(self):
        """Of -b, and ops."""
        return (*self._value("-b").split(","),
                *(["ops"] if {"-o", "--ops"} & {*self.options} else []))

    def clients(self, address):
        """The network whose clients persistence takes for one."""
        return ipaddress.ip_network(
            f"{address}/{self._value('-M') or address.max_prefixlen}", strict=False)


def named(name):
    """The words by which ipvsadm knows a service."""
    protocol, where = name.split()
    return _OPTIONS.get(protocol, "-t"), where


def _asked(name):
    """The kernel's words for it: a mark has a service of each family."""
    protocol, where = name.split()
    if protocol == "FWM":
        return [_u16(1, family) + attribute(5, struct.pack("=I", int(where)))
                for family in (_IPV4, _IPV6)]
    address, port = endpoint(where)
    return [_u16(1, _IPV4 if address.version == 4 else _IPV6) +
            _u16(2, NUMBERS[protocol]) +
            attribute(3, address.packed.ljust(16, b"\0")) +
            attribute(4, port.to_bytes(2, "big"))]


def _u16(kind, value):
    return attribute(kind, struct.pack("=H", value))


@lru_cache(maxsize=65536)
def _where(family, address, port):
    """(address, port) of attributes; services tend to have the same servers."""
    return ipaddress.IPv4Address(address[:4]) if number(family) == _IPV4 else \
        ipaddress.IPv6Address(address), int.from_bytes(port, "big")


def _service(its):
    """Of the kernel's attributes."""
    six = number(its[1]) == _IPV6
    flags, options = number(its[7][:4]), []
    if 5 in its:
        name = f"FWM {number(its[5])}"
        options += ["-6"] if six else []
    else:
        name = f"{_NAMES.get(number(its[2]), 'IP')} " + \
            spelled(*_where(its[1], its[3], its[4]))
    if flags & _PERSISTENT:
        options += ["-p", str(number(its[8]))]
        mask = str(number(its[9]) if six else ipaddress.IPv4Address(its[9]))
        if mask not in ("128", "255.255.255.255"):
            options += ["-M", mask]
    if 11 in its:
        options += ["--pe", its[11].rstrip(b"\0").decode()]
    flag = [f"flag-{n + 1}" for n in range(3) if flags & _FLAG_1 << n]
    if flag:
        options += ["-b", ",".join(flag)]
    if flags & _ONE_PACKET:
        options.append("-o")
    return Service(name, its[6].rstrip(b"\0").decode(), tuple(options))


def _server(which, its):
    """The same."""
    method, options, upper, lower = _FORWARD[number(its[3]) & 7], (), its[5], its[6]
    if method == "Tunnel":
        tunnel = _TUNNELS[number(its.get(13, b""))]
        options = ("--tun-type", tunnel)
        if tunnel == "gue":
            options += ("--tun-port", str(int.from_bytes(its[14], "big")))
        if tunnel != "ipip":
            options += (_CHECKSUMS[number(its[15]) & 3],)
    return Server(which, *_where(its[11], its[1], its[2]), number(its[4]), method,
                  options, ("-x", str(number(upper)), "-y", str(number(lower)))
                  if any(upper + lower) else (), number(its[7]), number(its[8]),
                  its.get(12, b""))


def _asked_for(ipvs, names):
    """The kernel's services of these names, all without."""
    if not names:
        yield from ipvs.dump(netlink.GET_SERVICE, netlink.SERVICE)
    for which in (which for name in dict.fromkeys(names) for which in _asked(name)):
        its = ipvs.get(netlink.GET_SERVICE, attribute(netlink.SERVICE, which))
        if its is not None:
            yield netlink.attributes(its[netlink.SERVICE])


def of_this_host(names=(), others=False):
    """What the kernel has: all, or those of @names; @others: also the other
    services, without their servers."""
    found = {}
    with netlink.ipvs() as ipvs:
        for its in [*_asked_for(ipvs, () if others else names)]:
            service = _service(its)
            service.servers = [] if names and service.name not in names else [
                _server(service.which, one) for one in ipvs.dump(
                    netlink.GET_DEST, netlink.DEST,
                    attribute(netlink.SERVICE, b"".join(
                        attribute(kind, its[kind]) for kind in range(1, 6)
                        if kind in its)))]
            found.setdefault(service.name, []).append(service)
    return found


def _number(word):
    if not (word.isascii() and word.isdigit()):
        raise ToolError(f"{word!r} is no number")
    return int(word)


def parse(text, where):
    """Those of the -A and -a lines of ipvsadm -S -n."""
    services = []
    for count, line in enumerate(text.splitlines(), 1):
        try:
            words = line.split()
            if words:
                _add(services, words)
        except (ToolError, ValueError, KeyError, IndexError, StopIteration) as error:
            raise ToolError(f"{where}: line {count}: " + (
                str(error) if isinstance(error, ToolError) else
                f"this is no line of 'ipvsadm -S -n': {line!r}")) from error
    found = {}
    for service in services:
        found.setdefault(service.name, []).append(service)
    return found


def _take(words, option):
    """Its value, which goes with it from @words; None without."""
    if option not in words:
        return None
    at = words.index(option)
    return words.pop(at) and words.pop(at)


def _add(services, words):
    kind, *words = words
    option = next(word for word in words if word in _PROTOCOLS)
    name = service_name(_PROTOCOLS[option], _take(words, option))
    if kind == "-A":
        scheduler = _take(words, "-s") or "wlc"
        services.append(Service(name, scheduler, tuple(words)))
        return
    if kind != "-a":
        raise ToolError(f"{kind!r} is neither -A nor -a")
    if not services or services[-1].name != name:
        raise ToolError(f"no -A of {name} before it")
    server = _take(words, "-r") or ""
    # ipvsadm leaves a port of 0 out where the service has a mark
    if server.endswith("]") or (":" not in server and "." in server):
        server += ":0"
    limits = tuple(part for option in ("-x", "-y") for value in [_take(words, option)]
                   if value for part in (option, value))
    method = next((_METHODS[word] for word in words if word in _METHODS), None)
    services[-1].servers.append(Server(
        services[-1].which, *endpoint(server), _number(_take(words, "-w") or "1"),
        method, tuple(word for word in words if word not in (*_METHODS, "-6")),
        limits))
