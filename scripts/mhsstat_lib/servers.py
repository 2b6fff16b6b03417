# SPDX-License-Identifier: GPL-2.0-only
"""Sets of servers, from /proc/net/ip_vs or from the output of ipvsadm -S -n.

Either gives {service name: [Service]}: a list, because two services by firewall
mark, one of each family, have one name in /proc.
"""

import ipaddress
from functools import cached_property, lru_cache

from ipvs_mhs_tool import ToolError, run

from .address import endpoint, service_name, spelled

PROC_IPVS = "/proc/net/ip_vs"

_SAVED_PROTOCOLS = {"-t": "TCP", "--tcp-service": "TCP",
                    "-u": "UDP", "--udp-service": "UDP",
                    "--sctp-service": "SCTP",
                    "-f": "FWM", "--fwmark-service": "FWM"}
_METHODS = {"-g": "Route", "--gatewaying": "Route",
            "-i": "Tunnel", "--ipip": "Tunnel",
            "-m": "Masq", "--masquerading": "Masq"}


class Server:
    """A real server; the counts are of connections, None if not known."""

    def __init__(self, address, port, weight, method=None, active=None,
                 inactive=None, tunnel=None, words=()):
        self.address = address
        self.port = port
        self.weight = weight
        self.method = method
        self.active = active
        self.inactive = inactive
        self.tunnel = tunnel        # ipip, gue or gre, as ipvsadm -S says
        self.words = words          # its line there

    @cached_property
    def name(self):
        return spelled(self.address, self.port)

    @cached_property
    def host(self):
        """Its address as text."""
        return self.name.rpartition(":")[0].strip("[]")

    def editing(self, weight, limits=()):
        """The command that gives it another weight and keeps all else but
        thresholds, of which it gets @limits, by its line of ipvsadm -S."""
        words = ["ipvsadm", "-e", *self.words[1:], *limits]
        words[words.index("-w") + 1] = str(weight)
        return words

    def deletion(self):
        """The command that deletes it."""
        return ["ipvsadm", "-d", *self.words[1:self.words.index("-r") + 2]]


class Service:
    """A virtual service."""

    def __init__(self, name, scheduler, persistent=False, flags=(), words=()):
        self.name = name
        self.scheduler = scheduler
        self.persistent = persistent
        self.flags = flags          # of -b, and ops
        self.words = words          # its line of ipvsadm -S
        self.servers = []


def of_this_host():
    """What ipvsadm says."""
    return parse(run(["ipvsadm", "-S", "-n"]).stdout, "ipvsadm -S -n")


def parse(text, where):
    """Whichever of the two @text is."""
    first = text.lstrip()[:2]
    parts = _parse_saved if first == "-A" or not first else _parse_proc
    services = {}
    for service in parts(text, where):
        services.setdefault(service.name, []).append(service)
    return services


def _number(word):
    if not (word.isascii() and word.isdigit()):
        raise ToolError(f"{word!r} is no number")
    return int(word)


@lru_cache(maxsize=65536)
def _hex_endpoint(word):
    """'0A02000B:0050' or '[fd02:0000:...:000b]:0050' -> (address, port)."""
    host, _, port = word.rpartition(":")
    try:
        if host.startswith("["):
            return ipaddress.IPv6Address(host[1:-1]), int(port, 16)
        return ipaddress.IPv4Address(int(host, 16)), int(port, 16)
    except ValueError as error:
        raise ToolError(f"{word!r} is no address and port") from error


def _proc_line(words):
    if words[0] == "FWM":
        try:
            return Service(f"FWM {int(words[1], 16)}", words[2],
                           "persistent" in words[3:], tuple(words[3:]))
        except ValueError as error:
            raise ToolError(f"{words[1]!r} is no firewall mark") from error
    if words[0] in ("TCP", "UDP", "SCTP"):
        return Service(f"{words[0]} {spelled(*_hex_endpoint(words[1]))}",
                       words[2], "persistent" in words[3:], tuple(words[3:]))
    if words[0] == "->":
        return Server(*_hex_endpoint(words[1]), _number(words[3]), words[2],
                      _number(words[4]), _number(words[5]))
    raise ToolError("this is neither the text of /proc/net/ip_vs nor the "
                    "output of 'ipvsadm -S -n'")


def _parse_proc(text, where):
    """Three lines of names, then services and, behind each, its servers."""
    services = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if number <= 3 and (words[:1] in (["IP"], ["Prot"]) or
                            words[:2] == ["->", "RemoteAddress:Port"]):
            continue
        try:
            item = _proc_line(words)
            if isinstance(item, Service):
                services.append(item)
            else:
                services[-1].servers.append(item)
                item.words = _saved(services[-1], item)
        except (ToolError, IndexError) as error:
            raise ToolError(f"{where}: line {number}: "
                            f"{_reason(error, line)}") from error
    return services


def named(name):
    """The words by which ipvsadm knows a service."""
    protocol, where = name.split()
    return next(o for o, p in _SAVED_PROTOCOLS.items() if p == protocol), where


def _saved(service, server):
    """The server's line as ipvsadm -S has it, but for what /proc leaves out."""
    return ("-a", *named(service.name), "-r", server.name,
            next((o for o, m in _METHODS.items() if m == server.method), "-g"),
            "-w", str(server.weight))


def _parse_saved(text, where):
    """-A and -a lines."""
    import shlex
    services = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            # shlex takes half a millisecond for a line
            words = shlex.split(line) if set(line) & set("'\"\\") else \
                line.split()
            if not words:
                continue
            options = dict(zip(words, words[1:] + [""]))
            short = next(o for o in words if o in _SAVED_PROTOCOLS)
            name = service_name(_SAVED_PROTOCOLS[short], options[short])
            if words[0] in ("-A", "--add-service"):
                services.append(Service(
                    name, options.get("-s", "wlc"), "-p" in options,
                    (*options.get("-b", "").split(","),
                     *(["ops"] if {"-o", "--ops"} & set(words) else [])),
                    words))
            elif words[0] in ("-a", "--add-server"):
                if not services or services[-1].name != name:
                    raise ToolError(f"no -A of {name} before it")
                services[-1].servers.append(Server(
                    *_saved_endpoint(options["-r"]),
                    _number(options.get("-w", "1")),
                    next((_METHODS[o] for o in words if o in _METHODS),
                         None), tunnel=options.get("--tun-type"),
                    words=words))
            else:
                raise ToolError(f"{words[0]!r} is neither -A nor -a")
        except (ToolError, ValueError, KeyError, StopIteration) as error:
            raise ToolError(f"{where}: line {number}: "
                            f"{_reason(error, line)}") from error
    return services


def _saved_endpoint(text):
    """ipvsadm leaves a port of 0 out where the service has a mark."""
    if text.endswith("]") or (":" not in text and "." in text):
        text += ":0"
    return endpoint(text)


def _reason(error, line):
    return error if isinstance(error, ToolError) else \
        f"cannot be understood: {line!r}"
