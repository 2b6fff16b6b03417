# SPDX-License-Identifier: GPL-2.0-only
"""Has this server flows of its services left?  Its own sockets tell.

A flow is any TCP socket with the address and port of the service but a listener and
TIME_WAIT: also a half-open or half-closed one, whose client may still send.  In
TIME_WAIT both sides have said all.
"""

import ipaddress
import sys
from collections import Counter

from ipvs_mhs_tool import EXIT_OK, EXIT_TIMEOUT, ToolError, json_of

from mhsstat_lib.address import spelled, told, unmapped
from mhsstat_lib.progress import Progress, until

from .faults import deaf, leads_on, translated
from .host import Host
from .options import SetUp
from .state import State

_KINDS = {"ESTAB": "established", "SYN-RECV": "half-open"}


def _address(word):
    """The local one of a line of ss."""
    host = word.rpartition(":")[0].partition("%")[0].strip("[]")
    return unmapped(ipaddress.ip_address(host.partition("%")[0]))


def flows(service, text):
    """{kind: how many} of the flows among the sockets with that port, in the words of
    ss."""
    return Counter(_KINDS.get(words[0], "half-closed")
                   for words in map(str.split, text.splitlines())
                   if _address(words[3]) == service[0])


def _services(options):
    """[(address, port)]: named, or those of setup."""
    record = State().load()
    set_up = record.set_ups[-1] if record else SetUp(())
    named = [told(text) for text in options.service] or [
        (ipaddress.ip_address(vip), port) for vip in set_up.vips
        for protocol, port in set_up.ports if protocol == "tcp"]
    if not named:
        raise ToolError("no port is set up here: name the service by --tcp-service")
    return list(dict.fromkeys((unmapped(address), port) for address, port in named))


def _warn_of_quic(services, host, progress):
    """Its connections have one socket for all, which says nothing."""
    ends = [words[4] for words in map(str.split, host.sockets().splitlines())
            if words[0] == "udp"]
    for address, port in services:
        if any(end.endswith(f":{port}") for end in ends):
            progress.warn(f"warning: {spelled(address, port)}: UDP, as of QUIC, "
                          "is not counted: ask the program")


class _Looks:
    """Counts again and again."""

    def __init__(self, services):
        self._services = services
        self._known = set()     # that they are served here
        self.left = {}

    def _served(self, service, found, host):
        """Else nothing here tells about its flows."""
        if service in self._known or found:
            self._known.add(service)
            return
        address, port = service
        set_up = SetUp((str(address),), ports=(("tcp", port),))
        for fault in (*translated(set_up, host), *deaf(set_up, host)):
            raise ToolError(
                f"{fault.text}, and no flow is seen: sockets in another network "
                "namespace, or behind DNAT, are not seen from here: ask there; "
                "or begin to ask before the service ends")
        why = "a rule of DNAT names no port"
        try:
            leads = leads_on(port, host.rules())
        except ToolError as error:
            leads, why = None, str(error)
        if leads is None:
            raise ToolError(
                f"{spelled(*service)}: no flow is seen, and whether a rule of this host "
                f"leads the port to a container is not known ({why}): begin to ask before "
                "the service ends")
        self._known.add(service)

    def look(self, _options):
        """As until() wants it"""
        host = Host()   # what the kernel says now
        for service in self._services:
            found = flows(service, host.flows(service[1]))
            self._served(service, found, host)
            self.left[spelled(*service)] = found
        return [(name, _words(name, found))
                for name, found in self.left.items() if found], 0


def _words(name, found):
    count = sum(found.values())
    if not count:
        return f"{name}: drained"
    return f"{name}: {count} flow(s) left, " + ", ".join(
        f"{number} {kind}" for kind, number in sorted(found.items()))


def drained(options):
    """Exit status: as 'mhsstat wait --drained' has it"""
    services = _services(options)
    progress = Progress(options.quiet, "real_server")
    host = Host()
    _warn_of_quic(services, host, progress)
    looks = _Looks(services)
    if options.timeout_s:
        status = until(looks.look, options, progress, "drained")
    else:
        status = EXIT_TIMEOUT if looks.look(options)[0] else EXIT_OK
    if options.json:
        sys.stdout.write(json_of({"format": 1, "services": looks.left}))
        return status
    for name, found in looks.left.items():
        print(_words(name, found))
    return status
