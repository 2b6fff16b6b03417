# SPDX-License-Identifier: GPL-2.0-only
"""The TCP sockets that listen on held ports, and how a reload changes them.

(To connect would not do: that connection would be held too.)
"""

import os
import _socket as socket       # see __init__.py
import _struct as struct

from .netlink import Netlink, parse_attributes

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_TCP_SYN_RECV, _TCP_LISTEN, _TCP_NEW_SYN_RECV = 3, 10, 12
_STALE_ANSWERS = 3
# all states but those of sockets that listen or are closed
_CONNECTED = 0x1FFF & ~(1 | 1 << 7 | 1 << _TCP_LISTEN)
_INET_DIAG_MSG_BYTES = 72
_INET_DIAG_SKMEMINFO, _SK_MEMINFO_DROPS = 7, 8


class Listeners(Netlink):
    """Looks for listening TCP sockets."""

    def __init__(self):
        super().__init__(_NETLINK_SOCK_DIAG)

    def _sockets(self, states, wanted, extensions=0):
        """(local port, its place (port, family, address, device), inode, the rest: a
        struct inet_diag_msg and the attributes of @extensions) of each socket in one
        of @states whose port is @wanted."""
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in self.dump(_SOCK_DIAG_BY_FAMILY, struct.pack(
                    "=BBBxI48x", family, socket.IPPROTO_TCP, extensions, states)):
                port = struct.unpack_from("!H", body, 4)[0]
                if wanted(port):
                    yield port, (port, body[0], body[8:24], body[40:44]), \
                        struct.unpack_from("=I", body, 68)[0], body

    def places(self, wanted):
        """The inodes of the listening sockets at each place."""
        found = {}
        for _, place, inode, _ in self._sockets(1 << _TCP_LISTEN, wanted):
            found.setdefault(place, set()).add(inode)
        return found

    def drops(self, wanted):
        """How many packets each listening socket, by its inode, has dropped."""
        return {inode: struct.unpack_from("=I", parse_attributes(
            body[_INET_DIAG_MSG_BYTES:]).get(_INET_DIAG_SKMEMINFO, bytes(4 * 9)),
            4 * _SK_MEMINFO_DROPS)[0] for _, _, inode, body in self._sockets(
                1 << _TCP_LISTEN, wanted, 1 << (_INET_DIAG_SKMEMINFO - 1))}

    def connections(self, wanted):
        """(port, family, address, peer's port, its address) of each."""
        return {(port, body[0], body[8:24], body[6:8], body[24:40])
                for port, _, _, body in self._sockets(_CONNECTED, wanted)}

    def on_port(self, port):
        """The inodes of the sockets that listen on @port."""
        return set().union(*self.places(lambda one: one == port).values())

    def unfinished(self, wanted):
        """How many handshakes go on, or have ended and were not accepted yet;
        None if nobody listens there."""
        # In the order in which a connection goes from the one to the other.
        # One whose answer was sent so often is seconds old and may never end.
        count = sum(body[3] < _STALE_ANSWERS for *_, body in self._sockets(
            1 << _TCP_SYN_RECV | 1 << _TCP_NEW_SYN_RECV, wanted))
        queues = [struct.unpack_from("=I", body, 56)[0] for *_, body in
                  self._sockets(1 << _TCP_LISTEN, wanted)]
        return count + sum(queues) if queues else None


def _sockets_of(pid):
    """The inodes of the sockets that a process has open."""
    found = set()
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found               # it has ended, or is none of ours
    for fd in fds:
        try:
            name = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue               # closed meanwhile
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
            fresh.setdefault(place[0], set()).update(
                sockets - self._before.get(place, set()))
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
                             if name not in self._processes and
                             name.isdigit()))


def _takes_over(place, before):
    """Whether a socket at @place gets what one at the place @before got, or
    a part of it."""
    return place[0] == before[0] and (
        place[1:3] == before[1:3] or not any(place[2]) or not any(before[2]))


def _ports(what, ports):
    return (f"{what} on port {', '.join(map(str, sorted(ports)))}"
            if ports else "")
