# SPDX-License-Identifier: GPL-2.0-only
"""Options, their values, and the configuration file.

A section of the file is a device, and its keys are the long options of
'setup', so that both are read by one parser and refused by one rule.
"""

import argparse
import ipaddress

from .errors import ToolError
from .lane import DEFAULT_PREFERENCE, PREFERENCE_COUNT
from .state import DEFAULT_DIRECTORY

DEFAULT_CONFIG = "/etc/qdisc_tool.conf"
# Below the second after which a client sends its SYN again, and below the
# connect timeouts in use.
DEFAULT_MAX_HOLD_MS = 900
# A handshake on the same host or rack is over by then.
DEFAULT_SETTLE_MS = 50
DEFAULT_LIMIT_SYNS = 10_000
# What 5 Gbit/s bring in 100 ms, or 1 Gbit/s in half a second.
DEFAULT_LIMIT_PACKETS = 40_000
_LONGEST_HOLD_MS = 60_000

_UNITS_MS = {"ms": 1, "s": 1000}


def _duration_ms(text):
    """'900ms', '0.9s' or a number of seconds."""
    for unit, factor in _UNITS_MS.items():
        if text.endswith(unit):
            number = text[:-len(unit)]
            break
    else:
        number, factor = text, 1000
    try:
        value = round(float(number) * factor)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration; give for example 50ms or 0.9s")
    return value


def _max_hold_ms(text):
    value = _duration_ms(text)
    if not 1 <= value <= _LONGEST_HOLD_MS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not between 1ms and {_LONGEST_HOLD_MS // 1000}s")
    return value


def _number(text, low, high, what):
    if not text.isascii() or not text.isdigit() or \
            not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {what} from {low} to {high}")
    return int(text)


def _limit(text):
    return _number(text, 1, 10_000_000, "a number of packets")


def _port(text):
    return _number(text, 1, 65535, "a port")


def _preference(text):
    return _number(text, 1, 65536 - PREFERENCE_COUNT, "a filter preference")


def _split(text):
    words = text.replace(",", " ").split()
    if not words:
        raise argparse.ArgumentTypeError("the list is empty")
    return words


def _ports(text):
    """Ports and ranges, as tc and nft write them."""
    result = []
    for word in _split(text):
        first, dash, last = word.partition("-")
        low, high = _port(first), _port(last if dash else first)
        if low > high:
            raise argparse.ArgumentTypeError(f"the range {word!r} is empty")
        result.append(f"{low}-{high}" if low < high else str(low))
    return result


def _addresses(text):
    result = []
    for word in _split(text):
        try:
            result.append(str(ipaddress.ip_network(word)))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return result


class _Parser(argparse.ArgumentParser):
    """Takes no half-written options, and says where to read more."""

    def __init__(self, **arguments):
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n"
                     f"Try '{self.prog} --help'.\n")


def _add_common(parser):
    group = parser.add_argument_group("where")
    group.add_argument(
        "-d", "--device", action="append", metavar="DEV",
        help="the device; may be repeated (default: every one set up)")
    group.add_argument(
        "-N", "--netns", metavar="NAME",
        help="act in this network namespace: a name, a process id or a path")
    group.add_argument(
        "--state-dir", metavar="DIR", default=DEFAULT_DIRECTORY,
        help="where the set-up is remembered (default: %(default)s)")
    group = parser.add_argument_group("what is said")
    group.add_argument("--json", action="store_true",
                       help="one JSON object instead of text")
    group.add_argument("-q", "--quiet", action="store_true",
                       help="nothing but trouble")


def _add_dry_run(parser):
    parser.add_argument("-n", "--dry-run", action="store_true",
                        help="print the commands, change nothing")


def _add_hold(parser, text="what setup was told", **defaults):
    parser.add_argument(
        "--max-hold", dest="max_hold_ms", type=_max_hold_ms, metavar="TIME",
        help=f"release after this time whatever happens (default: {text})",
        **defaults)


def _add_setup(commands):
    parser = commands.add_parser(
        "setup", help="prepare devices; once, at boot",
        description="Prepare a device for holds. Without --device, every "
                    "device of the configuration file.")
    _add_common(parser)
    _add_dry_run(parser)
    parser.add_argument("-c", "--config", metavar="FILE",
                        help=f"configuration file (default: {DEFAULT_CONFIG})")
    group = parser.add_argument_group("what is held")
    group.add_argument("-a", "--address", type=_addresses, action="extend",
                       metavar="ADDR", default=[],
                       help="destination addresses or networks, v4 or v6")
    group.add_argument("-p", "--port", type=_ports, action="extend",
                       metavar="PORT", default=[],
                       help="destination ports or ranges (8000-8010)")
    group.add_argument("-x", "--exclude", type=_addresses, action="extend",
                       metavar="ADDR", default=[],
                       help="never hold what comes from here: health checks")
    group.add_argument("--all", dest="all_packets", action="store_true",
                       help="hold every packet, not only new connections: "
                            "for an IPVS director's own reload")
    group.add_argument("--vlan", action="store_true",
                       help="hold VLAN-tagged packets too")
    group = parser.add_argument_group("how")
    group.add_argument("-m", "--mode", choices=("ingress", "egress"),
                       help="what arrives, or what this host sends "
                            "(default: egress for lo, ingress elsewhere)")
    group.add_argument("--classifier", default="auto",
                       choices=("auto", "flower", "nft", "iptables"),
                       help="what finds the packets (default: the first that "
                            "works)")
    group.add_argument("--driver", default="auto",
                       choices=("auto", "tc", "libnl", "netlink"),
                       help="what makes the plug (default: the first that "
                            "works)")
    group.add_argument("--preference", type=_preference, metavar="N",
                       help="first of the six filter preferences to take; "
                            "accepts the filters of others beside them")
    group.add_argument("--limit", dest="limit_packets", type=_limit,
                       metavar="N",
                       help="most packets to hold (default: "
                            f"{DEFAULT_LIMIT_SYNS} SYNs, with --all "
                            f"{DEFAULT_LIMIT_PACKETS} packets)")
    group = parser.add_argument_group("defaults for protect and hold")
    _add_hold(group, f"{DEFAULT_MAX_HOLD_MS}ms", default=DEFAULT_MAX_HOLD_MS)
    group.add_argument("--settle", dest="settle_ms", type=_duration_ms,
                       metavar="TIME", default=DEFAULT_SETTLE_MS,
                       help="between the begin of a hold and the command "
                            f"(default: {DEFAULT_SETTLE_MS}ms)")


def _add_protect(commands):
    parser = commands.add_parser(
        "protect", help="run a command while new connections are held",
        usage="%(prog)s [options] [--] command [argument ...]",
        description="Run a command while new connections are held.")
    _add_common(parser)
    _add_dry_run(parser)
    _add_hold(parser)
    parser.add_argument("--settle", dest="settle_ms", type=_duration_ms,
                        metavar="TIME",
                        help="between the begin of the hold and the command "
                             "(default: what setup was told)")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--until", metavar="COMMAND",
                       help="after the command, hold until this shell command "
                            "succeeds")
    until.add_argument("--until-port", type=_port, metavar="PORT",
                       help="after the command, hold until somebody listens "
                            "on this TCP port")
    until.add_argument("--until-new-port", type=_port, metavar="PORT",
                       help="the same, but only a socket counts that was not "
                            "there before the command")
    parser.add_argument("--kill", action="store_true",
                        help="end the command when the hold ends before it")
    parser.add_argument("--require", action="store_true",
                        help="do not run the command unprotected")
    parser.add_argument("--allow-drops", action="store_true",
                        help="exit status 0 even if packets were dropped")
    parser.add_argument("-u", "--user", metavar="USER",
                        help="run the command as this user")
    parser.add_argument("command", nargs=argparse.REMAINDER,
                        help=argparse.SUPPRESS)


def parser():
    """The parser of the whole command line."""
    top = _Parser(prog="qdisc_tool", description=(
        "Hold new connections while a proxy or a load balancer is reloaded: "
        "they are delayed, and none is dropped."))
    commands = top.add_subparsers(dest="action", metavar="command",
                                  required=True, parser_class=_Parser)
    _add_setup(commands)
    _add_protect(commands)
    for name, text in (("clear", "undo setup; lose nothing that is held"),
                       ("hold", "begin a hold that lasts until release or "
                                "--max-hold"),
                       ("release", "end any hold; safe to repeat"),
                       ("status", "what is set up, and whether it holds"),
                       ("check", "whether a hold would work")):
        sub = commands.add_parser(name, help=text,
                                  description=text.capitalize() + ".")
        _add_common(sub)
        if name in ("clear", "hold", "release"):
            _add_dry_run(sub)
        if name == "hold":
            _add_hold(sub)
    return top


def finish_setup(options):
    """The rules that tie options of setup together; ToolError if broken."""
    if not options.address and not options.port:
        raise ToolError("say what to hold, with --address or --port or both; "
                        "to hold every new connection on the device, give "
                        "--address 0.0.0.0/0 --address ::/0")
    if options.limit_packets is None:
        options.limit_packets = (DEFAULT_LIMIT_PACKETS if options.all_packets
                                 else DEFAULT_LIMIT_SYNS)
    options.shared_filters = options.preference is not None
    if options.preference is None:
        options.preference = DEFAULT_PREFERENCE


# Keys that would belong to the whole call, not to a device.
_NO_KEYS = ("device", "netns", "state-dir", "config", "dry-run", "json",
            "quiet", "help")


def read_config(path, parse):
    """The setups of a configuration file, as parsed by @parse(argv)."""
    from configparser import Error, RawConfigParser
    config = RawConfigParser(default_section="", allow_no_value=True,
                             inline_comment_prefixes=("#",))
    try:
        with open(path, encoding="utf-8") as file:
            config.read_file(file)
    except FileNotFoundError as error:
        raise ToolError(f"no --device given, and there is no {path}"
                        ) from error
    except (OSError, UnicodeDecodeError, Error) as error:
        raise ToolError(f"{path}: {error}") from error
    if not config.sections():
        raise ToolError(f"{path}: no [device] section in it")
    setups = []
    for device in config.sections():
        argv = ["setup", f"--device={device}"]
        for key, value in config[device].items():
            if key in _NO_KEYS:
                raise ToolError(f"{path}: [{device}]: {key!r} cannot be said "
                                "for a device; give it on the command line")
            if value is None or value.lower() in ("yes", "true", "on"):
                argv.append(f"--{key}")
            elif value.lower() not in ("no", "false", "off"):
                argv.append(f"--{key}={value}")
        setups.append(parse(argv, f"{path}: [{device}]"))
    return setups
