# SPDX-License-Identifier: GPL-2.0-only
"""The command line of 'real_server chance', and the services that it is about."""

import ipaddress
import os
import sys
from typing import NamedTuple

from ipvs_mhs_tool import ToolError, UsageError

from mhsstat_lib import module, servers
from mhsstat_lib.address import endpoint
from mhsstat_lib.rules import no_second_chance
from mhsstat_lib.snapshot import read_text

from .chance_slots import Server


class NoService(ToolError):
    """Of a list in which nothing can have a second chance"""


class Service(NamedTuple):
    """A service of the director whose flows get a second chance."""

    address: str
    port: int
    addr_only: bool       # flag-3: the client's port chooses no slot
    tunnels: bool         # some server is reached by IPIP
    servers: tuple        # of Server

    @property
    def name(self):
        return f"[{self.address}]:{self.port}" if ":" in self.address \
            else f"{self.address}:{self.port}"


def add_commands(commands, parser_class):
    """The parsers below 'chance'."""
    chance = commands.add_parser(
        "chance", help="send packets that came to the wrong server on",
        description="The second chance: a packet that comes here without a "
                    "connection goes on to the server that had it.  Read "
                    "SECOND CHANCE in real_server(8) first.")
    chance.set_defaults(chance=None)
    actions = chance.add_subparsers(dest="chance", metavar="command",
                                    required=True, parser_class=parser_class)
    put = actions.add_parser(
        "set", help="tell this server the services and servers, after each "
                    "change",
        description="Tell this server the services and servers of the director, "
                    "after each change. The first time loads and attaches the "
                    "program.")
    actions.add_parser(
        "show", help="services, and what became of their packets",
        description="Show the services, and what became of their packets here.")
    check = actions.add_parser(
        "check", help="what is wrong, and the remedy",
        description="Say in a line each what is wrong, and the remedy. Exit "
                    "status 0: no error; 1: there are.")
    actions.add_parser(
        "clear", help="take all of it away",
        description="Take the program, its filters and the tunnel away.")
    tell = actions.add_parser(
        "tell", help="on a director: tell servers its list, as long as it runs",
        description="On a director: tell servers that follow it the list of "
                    "services and servers, as long as it runs.")
    follow = actions.add_parser(
        "follow", help="set what the directors tell, as long as it runs",
        description="Set what the directors tell, after each change, as long as "
                    "it runs.")
    follow.set_defaults(dead=[], alive=[])
    for sub in put, check:
        sub.add_argument("-f", "--servers", metavar="FILE", action="append",
                         required=sub is put, default=[],
                         help="what 'ipvsadm -S -n' prints on the director; - "
                              "for standard input" +
                              ("" if sub is put else ": is it what was set?") +
                              "; may be repeated, for several directors")
    for sub in put, check, follow:
        sub.add_argument("-s", "--service", metavar="ADDRESS:PORT",
                         action="append", default=[],
                         help="of the list only this service; may be repeated")
    for sub in check, follow:
        sub.add_argument("--directors", metavar="FILE",
                         default="/etc/real_server.directors",
                         help="addresses of the directors (default: %(default)s)")
    for sub in check, follow, tell:
        sub.add_argument("--key-file", metavar="FILE",
                         default="/etc/real_server.key",
                         help="the same key on directors and servers (default: "
                              "%(default)s)")
    tell.add_argument("--listen", metavar="ADDRESS", action="append", default=[],
                      help="there, or at ADDRESS:PORT; may be repeated (default: "
                           "all addresses, port 6173)")
    put.add_argument("--dead", metavar="ADDRESS", action="append", default=[],
                     help="a server that is dead: nothing is sent on to it until "
                          "it is back in the list, or --alive; may be repeated")
    put.add_argument("--alive", metavar="ADDRESS", action="append", default=[],
                     help="a server that is not dead any more; may be repeated")
    for sub in put, follow:
        _add_means(sub)


def _add_means(sub):
    sub.add_argument("-d", "--device", action="append", default=[],
                     help="where packets of clients come in; may be repeated "
                          "(default: the device of the default route, and "
                          "those of IPIP tunnels where servers have them)")
    sub.add_argument("--table-size", type=int, metavar="SLOTS",
                     help="table_size of the module on the director (default: as "
                          f"before, at first {module.DEFAULT_TABLE_SIZE})")
    sub.add_argument("--hash-key-file", metavar="FILE",
                     help="it holds hash_key of the module on the director "
                          "(default: as before)")
    for option, name in ("--program", "chance.bpf.o"), \
            ("--table-program", "mhs_table"):
        sub.add_argument(option, metavar="FILE",
                         help=f"{name}, if it is not where it is installed")


def hash_key(options):
    """None if none is given"""
    path = options.hash_key_file
    return module.parse_key(read_text(path), path) if path else None


def _sends_on_to_6():
    """Before Linux 5.14 what bpf_redirect() sends by an ip6gre device keeps its
    Ethernet header, and nobody takes it (commit a3fa449ffcf5)."""
    return tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])
                 ) >= (5, 14)


def _why_not(service, protocol):
    """Why a service of the director cannot have a second chance, or None."""
    # with names= keepalived's services have the name mh
    if service.scheduler not in ("mhs", "mh"):
        return f"its scheduler is {service.scheduler}, not mhs"
    if protocol != "TCP":
        return "only TCP has sockets that know their flows"
    why, _ = no_second_chance(service)
    if why is None and not _sends_on_to_6() and any(
            server.address.version == 6 for server in service.servers):
        return "to servers with IPv6 addresses Linux sends on from 5.14 on"
    return why


def _service_of(name, service):
    """The Service, or why it cannot be one."""
    protocol, _, where = name.partition(" ")
    why = _why_not(service, protocol)
    if why is not None:
        return why
    address, port = endpoint(where)
    if port == 0:
        return "it is for all ports"
    return Service(
        str(address), port, "flag-3" in service.flags,
        any(server.method == "Tunnel" for server in service.servers),
        tuple(sorted(Server(str(server.address), server.port, server.weight)
                     for server in service.servers)))


def warn(words):
    print(f"real_server: warning: {words}", file=sys.stderr)


def services_of(text, where, those, left_out=warn):
    """The services of a director's list that @those names, or all that can have a
    second chance."""
    found = servers.parse(text, where)
    names = [f"TCP {Service(str(address), port, 0, 0, ()).name}"
             for address, port in map(endpoint, those)]
    for name in names:
        if name not in found:
            raise UsageError(f"{where} has no service {name}")
    those, others = [], []
    for name in names or found:
        for service in found[name]:
            got = _service_of(name, service)
            if isinstance(got, Service):
                those.append(got)
            else:
                others.append(f"{name} cannot have a second chance: {got}")
    if not those or names and others:
        raise NoService("; ".join(others or [f"{where} has no service"]))
    for words in others:
        left_out(words)
    return those


def lists_of(options):
    """The services of each file of --servers"""
    try:
        return [services_of(read_text(path), path, options.service)
                for path in options.servers]
    except NoService as error:
        raise ToolError(f"{error}; to end the second chance, run 'real_server "
                        "chance clear'") from error


def addresses(texts, option):
    """In one spelling"""
    try:
        return {str(ipaddress.ip_address(text)) for text in texts}
    except ValueError as error:
        raise UsageError(f"{option}: {error}; give a server's address, without "
                         "a port") from error
