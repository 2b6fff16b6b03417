# SPDX-License-Identifier: GPL-2.0-only
"""The command line, and the configuration file, whose keys are the long options
of 'setup', so that both are read by one parser and refused by one rule."""

import argparse
import ipaddress
from typing import NamedTuple, Optional

from ipvs_mhs_tool import Parser, ToolError, UsageError, commands_of

from mhsstat_lib.progress import add_waiting

DEFAULT_CONFIG = "/etc/ipvs-mhs/real_server.conf"
TUNNELS = ("ipip", "gre", "gue")
GUE_PORT = 6080       # as registered for GUE
# Every host takes 536; 65495 is what a packet of 65535 bytes holds.
_MSS_RANGE = range(536, 65496)


class SetUp(NamedTuple):
    """What a real server is to be."""

    vips: tuple           # in one spelling
    tunnels: tuple = ()   # of TUNNELS
    outer: tuple = ()     # families of the tunnels' packets; none: the vips'
    gue_port: int = GUE_PORT
    mss: Optional[int] = None
    ports: tuple = ()     # ("tcp", 80)
    directors: tuple = ()   # their addresses, for the second chance

    def families(self):
        """Of the virtual addresses."""
        return tuple(sorted({family_of(vip) for vip in self.vips}))

    def outer_families(self):
        """Of the tunnels' packets."""
        return self.outer or self.families()

    def carried(self):
        """(family, outer family) of what the tunnels carry."""
        return [(family, outer) for family in self.families()
                for outer in self.outer or (family,)]

    def of_family(self, family):
        return [vip for vip in self.vips if family_of(vip) == family]

    def command(self):
        """The command that makes it."""
        argv = ["real_server", "setup"]
        for vip in self.vips:
            argv += ["--vip", vip]
        for name, values in (
                ("--tunnel", self.tunnels),
                ("--outer", [f"ipv{family}" for family in self.outer]),
                ("--port", [f"{port}/{protocol}"
                            for protocol, port in self.ports]),
                ("--director", self.directors)):
            argv += [name, ",".join(values)] if values else []
        if "gue" in self.tunnels and self.gue_port != GUE_PORT:
            argv += ["--gue-port", str(self.gue_port)]
        return argv + (["--mss", str(self.mss)] if self.mss else [])


def family_of(vip):
    return 6 if ":" in vip else 4


def _listed(convert):
    """Values with commas between them."""
    def converted(text):
        return [convert(word.strip()) for word in text.split(",")]
    return converted


def _vip(text):
    """An address; /32 or /128, as ip prints it, is the same."""
    try:
        one = ipaddress.ip_interface(text)
    except ValueError:
        one = None
    if one is None or one.network.num_addresses > 1 or "%" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address; give one as 192.0.2.1 or 2001:db8::1, "
            "without the prefix length of a network")
    address = one.ip
    if address.is_multicast or address.is_unspecified or \
            address.is_loopback or address.is_link_local:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be a virtual address: clients reach no such address")
    if getattr(address, "ipv4_mapped", None):
        raise argparse.ArgumentTypeError(
            f"{text}: write it as {address.ipv4_mapped}")
    return str(address)


def _director(text):
    """An address of a director"""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address of a director") from error


def _one_of(names):
    def chosen(text):
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"{text!r} is none of {', '.join(names)}")
        return text
    return chosen


def _number(text, numbers, what):
    if not (text.isascii() and text.isdigit() and int(text) in numbers):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no {what} from {numbers[0]} to {numbers[-1]}")
    return int(text)


def _port(text):
    return _number(text, range(1, 65536), "port")


def _service(text):
    number, _, protocol = text.partition("/")
    if protocol not in ("", "tcp", "udp"):
        raise argparse.ArgumentTypeError(
            f"{text!r}: after the port stands /tcp, which is the default, or "
            "/udp")
    return protocol or "tcp", _port(number)


def _mss(text):
    return _number(text, _MSS_RANGE, "size in bytes")


class _File(Parser):
    """Speaks of the file instead."""

    def error(self, message):
        raise ToolError(message)


def _add_set_up(sub, title):
    group = sub.add_argument_group(title)
    for flags, convert, what, text in (
            (("-a", "--vip"), _vip, "ADDRESS", "a virtual address"),
            (("--tunnel",), _one_of(TUNNELS), "TYPE",
             "take packets in ipip, gre or gue, too"),
            (("--outer",), _one_of(("ipv4", "ipv6")), "FAMILY",
             "ipv4 or ipv6: of the address by which the director reaches this "
             "server (default: the virtual address's)"),
            (("-p", "--port"), _service, "PORT",
             "a service that must listen, as 80 or 443/udp: for check"),
            (("-d", "--director"), _director, "ADDRESS",
             "the second chance: packets of TCP services (--port) whose flow this "
             "server does not have go back to the directors")):
        group.add_argument(*flags, type=_listed(convert), action="extend",
                           metavar=what, default=[],
                           help=text + "; may be repeated")
    group.add_argument("--gue-port", type=_port, default=GUE_PORT,
                       metavar="PORT", help=f"of gue (default: {GUE_PORT})")
    group.add_argument("-m", "--mss", type=_mss, metavar="BYTES",
                       help="clients are told to send no larger segments")
    sub.add_argument("-c", "--config", metavar="FILE",
                     help=f"where the same stands (default: {DEFAULT_CONFIG}), "
                          "for calls without --vip")


def parser():
    """The parser of the whole command line."""
    top, commands = commands_of(
        "real_server",
        "Prepare a real server of IPVS, for direct routing or for tunnels.")
    setup = commands.add_parser(
        "setup", help="prepare this host, or change how it is prepared",
        description="Prepare this host, or change how it is prepared. What is "
                    "there already is left alone; if a step fails, those of "
                    "this call are undone.")
    _add_set_up(setup, "what it is to be")
    check = commands.add_parser(
        "check", help="what is wrong, and the remedy",
        description="Say in a line each what is wrong, and the remedy. Without "
                    "--vip: with what setup made, or else with what the file "
                    "asks for. Exit status 0: no error; 1: there are.")
    _add_set_up(check, "what it should be")
    show = commands.add_parser(
        "show", help="what is set up here, which is also said without a command")
    clear = commands.add_parser(
        "clear", help="undo what setup made",
        description="Undo what setup made, and nothing else.")
    for sub in setup, clear:
        sub.add_argument("-n", "--dry-run", action="store_true",
                         help="print the commands that would do it")
    drained = commands.add_parser(
        "drained", help="whether clients' flows are left on this server",
        description="Say how many flows of services this server has left, by its "
                    "own sockets. Exit status 0: none; 124: some, when the time is "
                    "over.")
    drained.add_argument("-t", "--tcp-service", dest="service", metavar="ADDRESS:PORT", action="append",
                         default=[], help="may be repeated (default: those of "
                                          "setup)")
    for sub in show, check, drained:
        sub.add_argument("-j", "--json", action="store_true",
                         help="as a JSON object")
    add_waiting(drained, 0, "wait this long, as 20min, until none is left (default: "
                            "look once)")
    return top


def set_up_of(options):
    """The options as a SetUp."""
    if options.outer and not options.tunnel:
        raise UsageError("--outer is about tunnels: give --tunnel, too")
    if options.director and not any(protocol == "tcp"
                                    for protocol, _ in options.port):
        raise UsageError("--director is about TCP services: name their ports by "
                         "--port")
    if len(set(options.director)) > 16:
        raise UsageError("at most 16 addresses of directors")
    unique = lambda values: tuple(dict.fromkeys(values))
    return SetUp(unique(options.vip), unique(options.tunnel),
                 unique(int(name[-1]) for name in options.outer),
                 options.gue_port, options.mss, unique(options.port),
                 unique(options.director))


def read_config(path):
    """The SetUp of a configuration file."""
    from configparser import Error, RawConfigParser
    config = RawConfigParser(inline_comment_prefixes=("#",))
    try:
        with open(path, encoding="utf-8") as file:
            config.read_string("[setup]\n" + file.read())
    except FileNotFoundError as error:
        raise ToolError(f"no --vip given, and there is no {path}; 'mhsstat check' "
                        "on the director prints the command") from error
    except Error as error:
        raise ToolError(f"{path}: a line is no 'key = value', or a key stands "
                        "twice") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{path}: {error}") from error
    one = _File(prog="real_server")
    _add_set_up(one, "keys")
    argv = [f"--{key}={value}" for key, value in config["setup"].items()]
    try:
        options = one.parse_args(argv)
        if not options.vip or options.config:
            raise ToolError("a vip is needed" if not options.vip else
                            "'config' cannot stand in the file itself")
        return set_up_of(options)
    except ToolError as error:
        raise ToolError(f"{path}: {error}") from error
