# SPDX-License-Identifier: GPL-2.0-only
"""The command line.  The keys of the configuration file are the long options of
'setup'.  What each does is told by qdisc_tool(8)."""

import argparse
import ipaddress
from argparse import ArgumentTypeError as _Wrong
from configparser import Error, RawConfigParser

from ipvs_mhs_version import version

from .errors import ToolError, UsageError
from .flower import PREFERENCE_COUNT
from .gate import DEFAULT_PREFERENCE
from .state import DEFAULT_DIRECTORY

DEFAULT_CONFIG = "/etc/qdisc_tool.conf"
# Below the second after which a client sends its SYN again, and below the
# connect timeouts in use.
DEFAULT_MAX_HOLD_MS = 900
DEFAULT_LIMIT_SYNS = 10_000
# What 5 Gbit/s bring in 100 ms, or 1 Gbit/s in half a second.
DEFAULT_LIMIT_PACKETS = 40_000
_LONGEST_MS = 60_000


# Values: each function takes a text, and says what is wrong with it.

def _duration_ms(low):
    """'900ms', '0.9s' or a number of seconds."""
    def convert(text):
        number, factor = (text[:-2], 1) if text.endswith("ms") else (text.removesuffix("s"), 1000)
        try:
            value = round(float(number) * factor)
        except (ValueError, OverflowError):
            value = -1
        if not low <= value <= _LONGEST_MS:
            raise _Wrong(f"{text!r} is no duration from {low}ms to {_LONGEST_MS // 1000}s")
        return value
    return convert


def _number(low, high, what):
    def convert(text):
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise _Wrong(f"{text!r} is not {what} from {low} to {high}")
        return int(text)
    return convert


_port = _number(1, 65535, "a port")


def _ports(text):
    """Ports and ranges, as tc writes them."""
    result = []
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        low, high = _port(first), _port(last if dash else first)
        if low > high:
            raise _Wrong(f"the range {word!r} is empty")
        result.append(f"{low}-{high}" if low < high else str(low))
    return result


def _addresses(text):
    try:
        return [str(ipaddress.ip_network(word)) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise _Wrong(error) from error


class _Parser(argparse.ArgumentParser):
    """Errors are exceptions: those of the configuration file have its name."""

    def error(self, message):
        raise UsageError(f"{message}\nTry '{self.prog} --help'.")


def _parser():
    parser = _Parser(
        prog="qdisc_tool", allow_abbrev=False, epilog="See qdisc_tool(8).",
        description="Hold new connections while a proxy or a load balancer is reloaded: they "
        "are delayed, and none is dropped.  'setup' once, at boot, 'protect' for each reload.")
    parser.add_argument("--version", action="version", version=f"qdisc_tool {version()}")
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)

    def command(name, what, usage=None):
        made = commands.add_parser(name, help=what, description=f"{what.capitalize()}.",
                                   usage=usage, allow_abbrev=False)
        add = made.add_argument
        add("-d", "--device", metavar="DEV", action="append", default=[],
            help="may be repeated (default: every one that is set up)")
        add("-N", "--netns", metavar="NAME", help="namespace: a name, process id or path")
        add("--state-dir", metavar="DIR", default=DEFAULT_DIRECTORY, help="of what is set up")
        add("--json", action="store_true", help="one JSON object instead of text")
        add("-q", "--quiet", action="store_true", help="nothing but trouble")
        return add

    def max_hold(add):
        add("--max-hold", metavar="TIME", type=_duration_ms(1), dest="max_hold_ms",
            help=f"the longest hold (default: setup's, and for that {DEFAULT_MAX_HOLD_MS}ms)")

    add = command("setup", "prepare devices; once, at boot")
    for short, name, dest, kind, what in (
            ("-a", "--address", "addresses", _addresses, "destinations, v4 or v6"),
            ("-p", "--port", "ports", _ports, "destination ports or ranges (8000-8010)"),
            ("-x", "--exclude", "exclude", _addresses, "sources never held: health checks")):
        add(short, name, dest=dest, metavar=kind.__name__[1:5].upper(), action="extend",
            default=[], type=kind, help=what)
    add("--all", dest="all_packets", action="store_true",
        help="hold every packet: for an IPVS director's own reload")
    add("--vlan", action="store_true", help="hold VLAN-tagged packets too")
    add("-c", "--config", metavar="FILE", help=f"without --device (default: {DEFAULT_CONFIG})")
    add("--preference", metavar="N", help="of the first filter, behind those of others",
        type=_number(1, 65536 - PREFERENCE_COUNT, "a filter preference"))
    add("--past-firewalls", action="store_true",
        help="hold also where a firewall would let in clients that it blocks")
    add("--limit", metavar="N", dest="limit_packets",
        type=_number(1, 10_000_000, "a number of packets"),
        help=f"most to hold (default: {DEFAULT_LIMIT_SYNS} SYNs, {DEFAULT_LIMIT_PACKETS} packets)")
    max_hold(add)

    add = command("protect", "run a command while new connections are held",
                  "qdisc_tool protect [OPTION]... [--] COMMAND [ARGUMENT]...")
    max_hold(add)
    add("--pause", metavar="TIME", type=_duration_ms(0), dest="pause_ms",
        help="before the command (default: until what came has been accepted)")
    add("--until", metavar="COMMAND", help="end the hold when this succeeds (default: when "
        "no socket that is about to be closed listens any more)")
    add("--until-new-port", metavar="PORT", type=_port,
        help="when only new sockets listen on this TCP port")
    add("--require", action="store_true", help="do not run the command unprotected")
    add("--allow-unprotected", action="store_true", help="status 0 whatever the hold did")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    max_hold(command("hold", "begin a hold that lasts until release or --max-hold"))
    for name, what in (("release", "end any hold; safe to repeat"),
                       ("status", "show what is set up, and whether it holds"),
                       ("check", "say whether a hold would work"),
                       ("clear", "undo setup; lose nothing that is held")):
        command(name, what)
    return parser


def parse(argv):
    """The options of a whole command line, or UsageError."""
    options = _parser().parse_args(argv)
    options.device = list(dict.fromkeys(options.device))
    if options.action == "protect":
        if options.command[:1] == ["--"]:
            del options.command[0]
        if not options.command:
            raise UsageError("which command? 'qdisc_tool protect -- systemctl reload "
                             "haproxy', for example")
        if options.until and options.until_new_port:
            raise UsageError("--until-new-port is not allowed with --until")
    if options.action == "setup" and options.device:
        _finish_setup(options)
    return options


def _finish_setup(options):
    """The rules that tie options of setup together."""
    if not options.addresses and not options.ports:
        raise UsageError("say what to hold, with --address or --port or both; "
                         "to hold every new connection on the device, give "
                         "--address 0.0.0.0/0 --address ::/0")
    options.preference = options.preference or DEFAULT_PREFERENCE
    options.max_hold_ms = options.max_hold_ms or DEFAULT_MAX_HOLD_MS
    options.limit_packets = options.limit_packets or (
        DEFAULT_LIMIT_PACKETS if options.all_packets else DEFAULT_LIMIT_SYNS)


# The configuration file: a section is a device, and its keys are the long options of
# 'setup', so that both are read by one parser and refused by one rule; but for keys
# that would belong to the whole call.
_NO_KEYS = ("device", "netns", "state-dir", "config", "json", "quiet", "help")


def read_config(path):
    """The options of each section of the file at @path."""
    config = RawConfigParser(default_section="", allow_no_value=True,
                             inline_comment_prefixes=("#",))
    try:
        with open(path, encoding="utf-8") as file:
            config.read_file(file)
        if not config.sections():
            raise ToolError("no [device] section in it, nor was --device given")
        return [_of_section(config[device], device) for device in config.sections()]
    except (OSError, UnicodeDecodeError, Error, ToolError) as error:
        raise ToolError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _of_section(section, device):
    argv = ["setup", f"--device={device}"]
    for key, value in section.items():
        if key in _NO_KEYS:
            raise ToolError(f"[{device}]: {key!r} cannot be said for a device; "
                            "give it on the command line")
        if value is None or value.lower() in ("yes", "true", "on"):
            argv.append(f"--{key}")
        elif value.lower() not in ("no", "false", "off"):
            argv.append(f"--{key}={value}")
    try:
        return parse(argv)
    except ToolError as error:
        raise ToolError(f"[{device}]: {error}") from error
