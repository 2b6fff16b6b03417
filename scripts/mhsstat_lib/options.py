# SPDX-License-Identifier: GPL-2.0-only
"""The command line."""

import argparse

from ipvs_mhs_tool import ToolError, commands_of

from .address import service_name
from .check import KINDS
from .module import SIZES
from .progress import add_waiting, interval


def _count(text):
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _service_type(protocol):
    def convert(text):
        try:
            return service_name(protocol, text)
        except ToolError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return convert


def _add_service(parser, without="default: all"):
    group = parser.add_argument_group(
        f"which service, as for ipvsadm(8) ({without})")
    for flags, protocol in ((("-t", "--tcp-service"), "TCP"),
                            (("-u", "--udp-service"), "UDP"),
                            (("--sctp-service",), "SCTP"),
                            (("-f", "--fwmark-service"), "FWM")):
        group.add_argument(*flags, dest="service", action="append",
                           type=_service_type(protocol), default=[],
                           metavar="MARK" if protocol == "FWM" else "ADDRESS:PORT")


def _add_all(sub):
    sub.add_argument("--all", action="store_true",
                     help="all lines, also where the terminal has less room")


def _add_json(sub):
    sub.add_argument("-j", "--json", action="store_true", help="as a JSON object")


def _add_show(commands):
    sub = commands.add_parser("show", help="what every service is doing")
    _add_service(sub)
    _add_all(sub)
    form = sub.add_mutually_exclusive_group()
    _add_json(form)
    form.add_argument("--prometheus", action="store_true",
                      help="metrics in Prometheus' text format")
    sub.add_argument("--file", metavar="FILE",
                     help="read a copy of /proc/net/ip_vs_mhs ('-': standard "
                          "input)")
    sub.add_argument("-o", "--output", metavar="FILE",
                     help="write this file, replaced in one step")


def _add_watch(commands):
    sub = commands.add_parser("watch", help="the same live, with rates")
    _add_service(sub)
    _add_all(sub)
    sub.add_argument("-i", "--interval", dest="interval_s", type=interval,
                     default=1, metavar="TIME",
                     help="between two pictures (default: 1s)")
    sub.add_argument("-c", "--count", type=_count, metavar="N",
                     help="end after this many pictures")


def _add_wait(commands):
    sub = commands.add_parser(
        "wait", help="block until services are stable, settled or stateful",
        description="Block until services are stable, settled or stateful. "
                    "Exit status 0: they are; 124: not in time.")
    _add_service(sub)
    add_waiting(sub)
    sub.add_argument("--settled", action="store_true",
                     help="only until services are there and have servers "
                          "and a table; for a director that starts")
    sub.add_argument("--servers", type=_count, default=0, metavar="N",
                     help="with --settled: and at least N servers of each get "
                          "new flows")
    sub.add_argument("--equal-to", metavar="FILE",
                     help="with --settled: and they forward as the director "
                          "did whose 'mhsstat show --json' this is")
    sub.add_argument("--gone", action="store_true",
                     help="also until no deleted server is held")
    sub.add_argument("--drained", action="append", default=[],
                     metavar="SERVER",
                     help="also until this server, ADDRESS:PORT with weight 0, "
                          "has no flow left in any service that has it; may "
                          "be repeated")
    sub.add_argument("--stateful", action="store_true",
                     help="only until every flow that lives has an entry, with "
                          "net.ipv4.vs.mhs.stateless=0; before a change to "
                          "another scheduler")


def _add_drain(commands):
    sub = commands.add_parser(
        "drain", help="take a server out of service and delete it",
        description="Give a server the weight 0, wait until it has no flow "
                    "left, and delete it, in all services that have it or in "
                    "those named. Interrupted, the same command goes on where "
                    "it was. Exit status 124: not in time, and the weight "
                    "stays 0.")
    _add_service(sub, "default: all that have the server")
    sub.add_argument("server", metavar="SERVER", help="ADDRESS:PORT")
    add_waiting(sub)
    sub.add_argument("-n", "--dry-run", action="store_true",
                     help="print the commands, and change nothing")


def _add_plan(commands):
    sub = commands.add_parser(
        "plan", help="what a change of servers would move",
        description="Compute the tables before and after a change of servers, "
                    "which is not made, and say what moves. SERVER is "
                    "ADDRESS:PORT.")
    _add_service(sub, "required")
    _add_all(sub)
    group = sub.add_argument_group("the change")
    for flag, what, text in (
            ("--add", "SERVER[=WEIGHT]", "a new server (weight 1)"),
            ("--delete", "SERVER", "a server that goes"),
            ("--weight", "SERVER=WEIGHT", "another weight")):
        group.add_argument(flag, action="append", default=[], metavar=what,
                           help=text + "; may be repeated")
    group.add_argument("--to", metavar="FILE",
                       help="the servers after it, as of --from")
    group = sub.add_argument_group("the director")
    group.add_argument("--from", dest="from_file", metavar="FILE",
                       help="its servers, from 'ipvsadm -S -n', '-' for standard "
                            "input (default: this host's)")
    group.add_argument("--table-size", type=int, choices=SIZES, metavar="SLOTS",
                       help="of the table (default: the module's)")
    key = group.add_mutually_exclusive_group()
    key.add_argument("--hash-key", metavar="KEY",
                     help="32 hexadecimal digits (default: the module's)")
    key.add_argument("--hash-key-file", metavar="FILE",
                     help="a file with the key, which other users then do not "
                          "see; '-' for standard input")
    group.add_argument("--table-program", metavar="FILE",
                       help="where mhs_table is (default: beside mhsstat, or "
                            "where 'make tools' puts it)")
    _add_json(sub)


def _add_compare(commands):
    sub = commands.add_parser(
        "compare", help="what differs between directors",
        description="Compare directors by what 'mhsstat show --json' said on "
                    "each, and say what each difference breaks. Exit status 0: "
                    "they forward alike; 1: they do not, or it is unknown.")
    sub.add_argument("file", nargs="+", metavar="FILE",
                     help="one for each director; '-' is standard input; a "
                          "single one is compared with this host")
    _add_json(sub)


def _add_check(commands):
    sub = commands.add_parser(
        "check", help="what is stateful, what is wrong, and the remedies",
        description="Say in a line each what makes flows stateful, what keeps "
                    "packets from a server, and what is unusual, with the cause, "
                    "the remedy and the kind in brackets. A note is about what "
                    "an option asks for. Exit status 0: no warning; 1: there "
                    "are.")
    _add_service(sub)
    _add_all(sub)
    sub.add_argument("--ignore", action="append", default=[], metavar="KIND",
                     choices=KINDS, help="no findings of this kind, which is "
                                         "intended here; may be repeated")
    sub.add_argument("-q", "--quiet", action="store_true",
                     help="warnings alone")
    _add_json(sub)


def _add_lookup(commands):
    sub = commands.add_parser(
        "lookup", help="where the packets of a client go, and why",
        description="Say which slot of a service a client has, its phase, its "
                    "old and its candidate server, by the kernel's own hash, "
                    "and whether the flow has a connection entry.")
    _add_service(sub, "default: all of the client's family")
    _add_all(sub)
    what = sub.add_mutually_exclusive_group(required=True)
    what.add_argument("client", metavar="CLIENT", nargs="?",
                      help="ADDRESS:PORT, as the client's packets have it")
    what.add_argument("--cid", metavar="HEX",
                      help="a QUIC connection ID: which server does it name?")
    _add_json(sub)


def parser():
    """The parser of the whole command line."""
    top, commands = commands_of(
        "mhsstat",
        "Watch the stateless Maglev scheduler of IPVS (mhs): what its tables "
        "are doing, when a change is over, what a change would move, whether "
        "directors agree.")
    for add in (_add_show, _add_watch, _add_wait, _add_drain, _add_plan,
                _add_check, _add_lookup, _add_compare):
        add(commands)
    top.commands = commands.choices
    return top
