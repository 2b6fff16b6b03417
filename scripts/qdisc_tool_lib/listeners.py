# SPDX-License-Identifier: GPL-2.0-only
"""The TCP sockets that listen on held ports, and how a reload changes them.

(To connect would not do: that connection would be held too.)
"""

import os
import socket
import struct
from contextlib import suppress

from .gate import plain_address
from .netlink import Netlink

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_TCP_SYN_RECV, _TCP_LISTEN, _TCP_NEW_SYN_RECV = 3, 10, 12
_STALE_ANSWERS = 3
# To look for handshakes the kernel goes through all sockets; of more than so many a
# hold does not ask.
MOST_SOCKETS = 4096


class Listeners(Netlink):
    """Looks for listening TCP sockets."""

    def __init__(self):
        super().__init__(_NETLINK_SOCK_DIAG)
        # that of this namespace, also when we have left it
        self._sockstat_fd = os.open("/proc/self/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)

    def _connections(self):
        """How many there are, those in TIME_WAIT included."""
        text = os.pread(self._sockstat_fd, 4096, 0).decode()
        words = next(line for line in text.splitlines() if line.startswith("TCP:")).split()
        counts = dict(zip(words[1::2], map(int, words[2::2])))
        return counts["alloc"] + counts["tw"]

    def _sockets(self, states, wanted):
        """(its place (port, family, address, device), inode, its struct inet_diag_msg)
        of each socket in one of @states whose local port is @wanted."""
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in self.dump(_SOCK_DIAG_BY_FAMILY, struct.pack(
                    "=BBxxI48x", family, socket.IPPROTO_TCP, states)):
                port = struct.unpack_from("!H", body, 4)[0]
                if wanted(port):
                    yield (port, body[0], body[8:24], body[40:44]), \
                        struct.unpack_from("=I", body, 68)[0], body

    def places(self, wanted):
        """The inodes of the listening sockets at each place."""
        found = {}
        for place, inode, _ in self._sockets(1 << _TCP_LISTEN, wanted):
            found.setdefault(place, set()).add(inode)
        return found

    def addresses(self, wanted):
        """Those at which somebody listens."""
        return {plain_address(place[2], place[1]) for place in self.places(wanted)}

    def on_port(self, port):
        """The inodes of the sockets that listen on @port."""
        return set().union(*self.places(lambda one: one == port).values())

    def accepts_here(self, wanted):
        """Whether somebody listens, and how many connections wait to be accepted."""
        queues = [struct.unpack_from("=I", body, 56)[0] for *_, body in
                  self._sockets(1 << _TCP_LISTEN, wanted)]
        return bool(queues), sum(queues)

    def handshakes(self, wanted):
        """How many go on; None on a host of many sockets, where to ask takes long."""
        if self._connections() > MOST_SOCKETS:
            return None
        # One whose answer was sent so often is seconds old and may never end.
        return sum(body[3] < _STALE_ANSWERS for *_, body in self._sockets(
            1 << _TCP_SYN_RECV | 1 << _TCP_NEW_SYN_RECV, wanted))


# Programs that pass their sockets on, and hold by themselves what they must.
_NEED_NOTHING = {"envoy": "a hot restart of Envoy", "apache2": "a graceful reload of apache",
                 "httpd": "a graceful reload of apache"}


def needless(wanted):
    """Which reload needs no hold here: sentences."""
    inodes = set().union(*Listeners().places(wanted).values())
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        what = _NEED_NOTHING.get(_line(f"/proc/{pid}/comm"))
        if what and inodes & _sockets_of(pid):
            found.add(f"{what} needs no hold")
    if inodes and _line("/proc/sys/net/ipv4/tcp_migrate_req") == "1":      # Linux 5.14
        found.add("with net.ipv4.tcp_migrate_req=1 a reload by haproxy -sf, or of nginx "
                  "with reuseport, needs no hold")
    return sorted(found)


def _line(path):
    """That of a small file, or nothing."""
    with suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read().strip()
    return ""


def _sockets_of(pid):
    """The inodes of the sockets that a process has open."""
    found = set()
    with suppress(OSError):        # it has ended, or is none of ours
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):        # closed meanwhile
                name = os.readlink(f"/proc/{pid}/fd/{fd}")
                if name.startswith("socket:["):
                    found.add(int(name[8:-1]))
    return found


class Change:
    """The sockets of the wanted ports now, beside those of the time at which
    this was made.

    An old socket at a place where a new one listens gets a part of the new
    connections, and resets them when it is closed.  But an old socket that a
    process has which was not there before was passed on, and stays (nginx,
    haproxy -x).
    """

    def __init__(self, listeners, wanted):
        self._listeners = listeners
        self._wanted = wanted
        self._before = listeners.places(wanted)
        self._processes = set(os.listdir("/proc")) if self._before else set()
        self.danger = ""           # what would lose connections now
        self.not_begun = ""        # what is as before, and may yet change

    def look(self):
        """See how it is now; whether nothing has to be waited for."""
        now = self._listeners.places(self._wanted) if self._before else {}
        closed = {place[0] for place in self._before
                  if not any(_takes_over(other, place) for other in now)}
        fresh = {}                 # port -> new sockets
        for place, sockets in now.items():
            fresh.setdefault(place[0], set()).update(sockets - self._before.get(place, set()))
        beside, same, passed = set(), set(), None
        for place, sockets in now.items():
            before = self._before.get(place, set())
            old = sockets & before
            alone = sockets == before and len(old) == 1
            # A server keeps a single socket, or closes it: then it is gone.
            if not old or alone and not fresh[place[0]]:
                continue
            if passed is None:
                passed = self._of_new_processes()
            if alone:              # the new one has another address
                if not old & passed and fresh[place[0]] & passed:
                    beside.add(place[0])
            elif sockets == before and not old & passed:
                same.add(place[0])
            elif old - passed:
                beside.add(place[0])
        self.danger = (_ports("no socket", closed) or
                       _ports("a socket that only old processes have", beside))
        self.not_begun = _ports("the same sockets as before", same)
        return not self.danger and not self.not_begun

    def _of_new_processes(self):
        return set().union(*(_sockets_of(name) for name in os.listdir("/proc")
                             if name not in self._processes and name.isdigit()))


def _takes_over(place, before):
    """Whether a socket at @place gets what one at the place @before got, or
    a part of it."""
    return place[0] == before[0] and (
        place[1:3] == before[1:3] or not any(place[2]) or not any(before[2]))


def _ports(what, ports):
    return (f"{what} on port {', '.join(map(str, sorted(ports)))}" if ports else "")
