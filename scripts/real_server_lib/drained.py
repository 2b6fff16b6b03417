# SPDX-License-Identifier: GPL-2.0-only
"""Has this server flows of its services left?  Its own sockets tell.

A flow is any TCP socket with the address and port of the service but a listener and
TIME_WAIT: also a half-open or half-closed one, whose client may still send.  In
TIME_WAIT both sides have said all.
"""

import ipaddress
from collections import Counter

from ipvs_mhs_tool import EXIT_OK, EXIT_TIMEOUT, ToolError

from mhsstat_lib.address import spelled, told
from mhsstat_lib.progress import Progress, until

from .chance import Store
from .faults import deaf
from .host import Host
from .options import SetUp

_KINDS = {"ESTAB": "established", "SYN-RECV": "half-open"}


def _address(word):
    """The local one of a line of ss; a socket of both families has IPv4 mapped."""
    host = word.rpartition(":")[0].partition("%")[0].strip("[]")
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def flows(service, text):
    """{kind: how many} of the flows among the sockets with that port, in the words of
    ss."""
    return Counter(_KINDS.get(words[0], "half-closed")
                   for words in map(str.split, text.splitlines())
                   if _address(words[3]) == service[0])


def _services(options):
    """[(address, port)]: named, or those that 'chance set' was told."""
    named = [told(text) for text in options.service] or [
        (ipaddress.ip_address(fields["address"]), fields["port"])
        for fields in Store().load().services.values()]
    if not named:
        raise ToolError("no service has the second chance here: name the service by "
                        "--service")
    return list(dict.fromkeys(named))


def _warn_of_weights(services, progress):
    """By the list that was set last, which may be old."""
    own = {address.get("local") for link in Host().links().values()
           for address in link.get("addr_info", [])}
    known = Store().load().services
    for name in (spelled(*service) for service in services):
        for address, _, weight in known.get(name, {"sets": [[[]]]})["sets"][0][0]:
            if address in own and weight:
                progress.warn(f"warning: {name}: in the list that was set last "
                              f"{address} has the weight {weight}: with that "
                              "new connections come")


class _Looks:
    """Counts again and again."""

    def __init__(self, services):
        self._services = services
        self._known = set()     # that they are served here
        self.left = {}

    def _served(self, service, found):
        """Else nothing here tells about its flows."""
        if service in self._known or found:
            self._known.add(service)
            return
        address, port = service
        set_up = SetUp((str(address),), ports=(("tcp", port),))
        for fault in deaf(set_up, Host()):
            raise ToolError(
                f"{fault.text}, nor is there a flow: sockets in another network "
                "namespace, or behind DNAT, are not seen from here; begin to ask "
                "before the service ends")
        self._known.add(service)

    def look(self, _options):
        """As until() wants it"""
        for service in self._services:
            found = flows(service, Host().flows(service[1]))
            self._served(service, found)
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
    _warn_of_weights(services, progress)
    looks = _Looks(services)
    if options.timeout_s:
        status = until(looks.look, options, progress, "drained")
    else:
        status = EXIT_TIMEOUT if looks.look(options)[0] else EXIT_OK
    for name, found in looks.left.items():
        print(_words(name, found))
    return status
