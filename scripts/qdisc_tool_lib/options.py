# SPDX-License-Identifier: GPL-2.0-only
"""The command line.  The keys of the configuration file are the long options of
'setup', see config.py."""

import argparse
import ipaddress

from ipvs_mhs_version import version

from .errors import UsageError
from .gate import DEFAULT_PREFERENCE, PREFERENCE_COUNT
from .state import DEFAULT_DIRECTORY

DEFAULT_CONFIG = "/etc/qdisc_tool.conf"
# Below the second after which a client sends its SYN again, and below the
# connect timeouts in use.
DEFAULT_MAX_HOLD_MS = 900
DEFAULT_LIMIT_SYNS = 10_000
# What 5 Gbit/s bring in 100 ms, or 1 Gbit/s in half a second.
DEFAULT_LIMIT_PACKETS = 40_000
_LONGEST_HOLD_MS = 60_000

_EXAMPLES = """\
haproxy that does not pass its sockets (-x):
  qdisc_tool setup --device eth0 --port 80,443
  qdisc_tool protect -- systemctl reload haproxy
nginx, whose reload needs no help; a restart, after the same setup:
  qdisc_tool protect --max-hold 8s -- systemctl restart nginx
a proxy in a container whose process is $pid:
  qdisc_tool setup --netns $pid --device eth0 --port 80
  qdisc_tool protect --netns $pid --until-new-port 80 -- podman kill --signal HUP web

'qdisc_tool COMMAND --help' lists the options of a command; see qdisc_tool(8).
"""


# Values: each function takes a text, and says what is wrong with it.

def _wrong(text):
    return argparse.ArgumentTypeError(text)


def _duration_ms(text):
    """'900ms', '0.9s' or a number of seconds."""
    number, factor = ((text[:-2], 1) if text.endswith("ms") else (text.removesuffix("s"), 1000))
    try:
        value = round(float(number) * factor)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise _wrong(f"{text!r} is no duration; give for example 50ms or 0.9s")
    return value


def _max_hold_ms(text):
    value = _duration_ms(text)
    if not 1 <= value <= _LONGEST_HOLD_MS:
        raise _wrong(f"{text!r} is not between 1ms and {_LONGEST_HOLD_MS // 1000}s")
    return value


def _number(low, high, what):
    def convert(text):
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise _wrong(f"{text!r} is not {what} from {low} to {high}")
        return int(text)
    return convert


_port = _number(1, 65535, "a port")


def _split(text):
    words = text.replace(",", " ").split()
    if not words:
        raise _wrong("the list is empty")
    return words


def _ports(text):
    """Ports and ranges, as tc writes them."""
    result = []
    for word in _split(text):
        first, dash, last = word.partition("-")
        low, high = _port(first), _port(last if dash else first)
        if low > high:
            raise _wrong(f"the range {word!r} is empty")
        result.append(f"{low}-{high}" if low < high else str(low))
    return result


def _addresses(text):
    try:
        return [str(ipaddress.ip_network(word)) for word in _split(text)]
    except ValueError as error:
        raise _wrong(error) from error


class _Parser(argparse.ArgumentParser):
    """Errors are exceptions, and of the configuration file have its name."""

    def error(self, message):
        raise UsageError(message, self.prog)


def _parser():
    parser = _Parser(
        prog="qdisc_tool", epilog=_EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Hold new connections while a proxy or a load balancer is reloaded: "
        "they are\ndelayed, and none is dropped.  'setup' once, at boot, 'protect' for "
        "each reload.")
    parser.add_argument("--version", action="version", version=f"qdisc_tool {version()}")
    commands = parser.add_subparsers(dest="action", metavar="COMMAND")

    def command(name, what, usage=None):
        made = commands.add_parser(name, help=what, description=f"{what.capitalize()}.",
                                   usage=usage, allow_abbrev=False)
        add = made.add_argument
        add("-d", "--device", metavar="DEV", action="append", default=[],
            help="the device; may be repeated (default: every one that is set up)")
        add("-N", "--netns", metavar="NAME", help="act in this network namespace: a name, "
            "a process id or a path")
        add("--state-dir", metavar="DIR", default=DEFAULT_DIRECTORY,
            help="where the set-up is remembered")
        add("--json", action="store_true", help="one JSON object instead of text")
        add("-q", "--quiet", action="store_true", help="nothing but trouble")
        return add

    def max_hold(add):
        add("--max-hold", metavar="TIME", type=_max_hold_ms, dest="max_hold_ms",
            help="release after this time whatever happens (default: what setup was "
            f"told, and for that {DEFAULT_MAX_HOLD_MS}ms)")

    def pause(add):
        add("--pause", metavar="TIME", type=_duration_ms, dest="pause_ms",
            help="between the begin of a hold and the command (default: what setup was "
            "told, and for that until what came before has been accepted)")

    add = command("setup", "prepare devices; once, at boot")
    add("-a", "--address", metavar="ADDR", dest="addresses", action="extend", default=[],
        type=_addresses, help="destination addresses or networks, v4 or v6")
    add("-p", "--port", metavar="PORT", dest="ports", action="extend", default=[],
        type=_ports, help="destination ports or ranges (8000-8010)")
    add("-x", "--exclude", metavar="ADDR", action="extend", default=[], type=_addresses,
        help="never hold what comes from here: health checks")
    add("--all", dest="all_packets", action="store_true", help="hold every packet, not "
        "only new connections: for an IPVS director's own reload")
    add("--vlan", action="store_true", help="hold VLAN-tagged packets too")
    add("-c", "--config", metavar="FILE",
        help=f"what to prepare if no --device is given (default: {DEFAULT_CONFIG})")
    add("--preference", metavar="N", help="first of nine filter preferences to take; "
        "accepts the filters of others before them", type=_number(
            1, 65536 - PREFERENCE_COUNT, "a filter preference"))
    add("--past-firewalls", action="store_true", help="hold also where what is held skips "
        "chains of nftables (hook ingress) and later filters: a firewall there lets in, "
        "during a hold, clients that it blocks")
    add("--limit", metavar="N", dest="limit_packets", help="most packets to hold (default: "
        f"{DEFAULT_LIMIT_SYNS} SYNs, with --all {DEFAULT_LIMIT_PACKETS} packets)",
        type=_number(1, 10_000_000, "a number of packets"))
    max_hold(add)
    pause(add)

    add = command("protect", "run a command while new connections are held",
                  "qdisc_tool protect [OPTION]... [--] COMMAND [ARGUMENT]...")
    max_hold(add)
    pause(add)
    add("--until", metavar="COMMAND", help="end the hold when this shell command succeeds, "
        "\"true\" for at once (default: after the command, when no socket that is about "
        "to be closed listens on a held port any more; at the latest after nine tenths "
        "of --max-hold)")
    add("--until-new-port", metavar="PORT", type=_port, help="when only sockets listen on "
        "this TCP port that did not exist before the command")
    add("--require", action="store_true", help="do not run the command unprotected")
    add("--allow-unprotected", action="store_true",
        help="exit status 0 even if it ran without a hold, or not to its end")
    add("--allow-drops", action="store_true", help="exit status 0 even if packets were dropped")
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
    if options.action is None:
        raise UsageError("which command? There are setup, protect, hold, release, status, "
                         "check, clear")
    if options.action == "protect":
        if options.command[:1] == ["--"]:
            del options.command[0]
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
    options.shared_filters = options.preference is not None
    options.preference = options.preference or DEFAULT_PREFERENCE
    options.max_hold_ms = options.max_hold_ms or DEFAULT_MAX_HOLD_MS
    options.limit_packets = options.limit_packets or (
        DEFAULT_LIMIT_PACKETS if options.all_packets else DEFAULT_LIMIT_SYNS)
