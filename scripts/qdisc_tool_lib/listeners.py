# SPDX-License-Identifier: GPL-2.0-only
"""The TCP sockets that listen on held ports, and how a reload changes them.  (To connect would
not do: that connection would be held too.)"""

import os
import socket
import struct
from contextlib import suppress

from .netlink import Netlink

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_TCP_SYN_RECV, _TCP_LISTEN, _TCP_NEW_SYN_RECV = 3, 10, 12
_STALE_ANSWERS = 3


class Listeners(Netlink):
    """Looks for listening TCP sockets.  To list others would take as long as a host has
    connections; of one it can tell by its addresses."""

    def __init__(self):
        super().__init__(_NETLINK_SOCK_DIAG)

    def _sockets(self, wanted):
        """(its place (port, family, address, device), inode, how many connections wait
        to be accepted) of each socket that listens on a @wanted port."""
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in self.dump(_SOCK_DIAG_BY_FAMILY, struct.pack(
                    "=BBxxI48x", family, socket.IPPROTO_TCP, 1 << _TCP_LISTEN)):
                port = struct.unpack_from("!H", body, 4)[0]
                if wanted(port):
                    waiting, inode = struct.unpack_from("=I8xI", body, 56)
                    yield (port, body[0], body[8:24], body[40:44]), inode, waiting

    def places(self, wanted):
        """The inodes of the listening sockets at each place."""
        found = {}
        for place, inode, _ in self._sockets(wanted):
            found.setdefault(place, set()).add(inode)
        return found

    def accepts_here(self, wanted):
        """Whether somebody listens, and how many connections wait to be accepted."""
        queues = [waiting for *_, waiting in self._sockets(wanted)]
        return bool(queues), sum(queues)

    def shakes_hands(self, client, server):
        """Whether these two, (address, port) each, as in a packet, still do."""
        body = self.one(_SOCK_DIAG_BY_FAMILY, 0, struct.pack(
            "=BBxxI2s2s16s16sIQ", socket.AF_INET if len(server[0]) == 4 else socket.AF_INET6,
            socket.IPPROTO_TCP, 0xFFFFFFFF, server[1], client[1], server[0], client[0],
            0, 0xFFFFFFFFFFFFFFFF))
        # One whose answer was sent so often is seconds old and may never end.
        return bool(body) and body[1] in (_TCP_SYN_RECV, _TCP_NEW_SYN_RECV) and \
            body[3] < _STALE_ANSWERS


# Programs that pass their sockets on, and hold by themselves what they must.
_NEED_NOTHING = {"envoy": "a hot restart of Envoy", "apache2": "a graceful reload of apache",
                 "httpd": "a graceful reload of apache"}


def needless():
    """Which reload needs no hold here: sentences."""
    names = {_line(f"/proc/{pid}/comm") for pid in os.listdir("/proc") if pid.isdigit()}
    found = {f"{_NEED_NOTHING[name]} needs no hold" for name in names & set(_NEED_NOTHING)}
    if _line("/proc/sys/net/ipv4/tcp_migrate_req") == "1":      # Linux 5.14
        found.add("with net.ipv4.tcp_migrate_req=1 a reload by haproxy -sf, or of nginx "
                  "with reuseport, needs no hold")
    return sorted(found)


def _line(path):
    """That of a small file, or nothing."""
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


class Change:
    """The sockets of the wanted ports now, beside those of the time at which this was made.

    An old socket beside a new one gets a part of the new connections, and resets them when it is
    closed.
    """

    def __init__(self, listeners, wanted):
        self._listeners = listeners
        self._wanted = wanted
        self._before = listeners.places(wanted)
        self.danger = ""           # what would lose connections now
        self.not_begun = ""        # what is as before, and may yet change

    def look(self):
        """See how it is now; whether nothing has to be waited for."""
        now = self._listeners.places(self._wanted) if self._before else {}
        closed = {place[0] for place in self._before} - {place[0] for place in now}
        beside, same = set(), set()
        for place, sockets in now.items():
            old = sockets & self._before.get(place, set())
            if old and sockets - old:
                beside.add(place[0])
            # A server keeps a single socket, or closes it: then it is gone.
            elif sockets == self._before.get(place) and len(old) > 1:
                same.add(place[0])
        self.danger = _on("no socket", closed) or _on("an old socket beside a new one", beside)
        self.not_begun = _on("the same sockets as before", same)
        return not self.danger and not self.not_begun


def _on(what, ports):
    return f"{what} on port {', '.join(map(str, sorted(ports)))}" if ports else ""
