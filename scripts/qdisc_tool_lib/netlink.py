# SPDX-License-Identifier: GPL-2.0-only
"""The few netlink messages a hold needs.

tc(8) sets things up; but a hold must begin at once, be watched every few
milliseconds, and end even when no process can be started any more.  An open
netlink socket does all of that.  It also belongs for ever to the network
namespace it was opened in.
"""

import os
import socket
import struct

TC_H_ROOT = 0xFFFFFFFF
TC_H_INGRESS = 0xFFFFFFF2           # the ingress side of clsact or ingress
TC_H_EGRESS = 0xFFFFFFF3

_NETLINK_SOCK_DIAG = 4
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP = 0x1, 0x4, 0x300
_NLM_F_CREATE_EXCL = 0x600
_RTM_GETLINK = 18
_RTM_NEWQDISC, _RTM_GETQDISC = 36, 38
_RTM_DELTFILTER, _RTM_GETTFILTER = 45, 46
_SOCK_DIAG_BY_FAMILY = 20

_HEADER = struct.Struct("=IHHII")           # struct nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")         # struct tcmsg
_IFINFOMSG = struct.Struct("=BxHiII")       # struct ifinfomsg
_TC_STATS = struct.Struct("=QIIIIIII")      # struct tc_stats
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS = 1, 2, 3
_IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_STATS64 = 3, 10, 18, 23
_IFLA_INFO_KIND = 1
_IFF_UP = 1
_TCP_LISTEN = 10

# The actions of struct tc_plug_qopt, by the names tc gives them.
PLUG_ACTIONS = {"block": 0, "release_indefinite": 2, "limit": 3}


def handle_text(handle):
    """A handle the way tc prints it."""
    minor = handle & 0xFFFF
    return f"{handle >> 16:x}:" + (f"{minor:x}" if minor else "")


class Qdisc:
    """A qdisc as dumped, with the counters this tool looks at."""
    __slots__ = ("ifindex", "handle", "parent", "kind", "packets", "drops",
                 "qlen", "backlog_bytes")


class Link:
    """A device as dumped."""
    __slots__ = ("ifindex", "name", "kind", "up", "dropped", "master")


def _attributes(data):
    """The netlink attributes in @data: type -> payload."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3:]
    return found


def _attribute(kind, payload):
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


class Netlink:
    """One netlink socket; every call is a request and its whole answer."""

    def __init__(self, protocol=socket.NETLINK_ROUTE):
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW,
                                     protocol)
        self._socket.bind((0, 0))
        self._socket.settimeout(2)
        self._sequence = 0

    def close(self):
        self._socket.close()

    def fileno(self):
        return self._socket.fileno()

    def _request(self, kind, flags, body):
        """Send one request; return the bodies of the messages it brought."""
        self._sequence += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind,
                                       flags | _NLM_F_REQUEST,
                                       self._sequence, 0) + body)
        bodies = []
        while True:
            data = self._socket.recv(1 << 18)
            while data:
                length, kind, _, sequence, _ = _HEADER.unpack_from(data)
                body, data = data[16:length], data[(length + 3) & ~3:]
                if sequence != self._sequence:
                    continue            # left over from an interrupted call
                if kind == _NLMSG_ERROR:
                    error = -struct.unpack_from("=i", body)[0]
                    if error:
                        raise OSError(error, os.strerror(error))
                    return bodies
                if kind == _NLMSG_DONE:
                    return bodies
                bodies.append(body)

    def qdiscs(self):
        """Every qdisc of the namespace."""
        result = []
        for body in self._request(_RTM_GETQDISC, _NLM_F_DUMP, _TCMSG.pack(
                socket.AF_UNSPEC, 0, 0, 0, 0)):
            attributes = _attributes(body[_TCMSG.size:])
            qdisc = Qdisc()
            _, qdisc.ifindex, qdisc.handle, qdisc.parent, _ = \
                _TCMSG.unpack_from(body)
            qdisc.kind = attributes[_TCA_KIND].rstrip(b"\0").decode()
            stats = attributes.get(_TCA_STATS, b"")[:_TC_STATS.size]
            (_, qdisc.packets, qdisc.drops, _, _, _, qdisc.qlen,
             qdisc.backlog_bytes) = _TC_STATS.unpack(
                 stats.ljust(_TC_STATS.size, b"\0"))
            result.append(qdisc)
        return result

    def filters(self, ifindex, parent):
        """The (preference, kind) of each filter at @parent of a device."""
        found = set()
        for body in self._request(_RTM_GETTFILTER, _NLM_F_DUMP, _TCMSG.pack(
                socket.AF_UNSPEC, ifindex, 0, parent, 0)):
            info = _TCMSG.unpack_from(body)[4]
            kind = _attributes(body[_TCMSG.size:]).get(_TCA_KIND, b"")
            found.add((info >> 16, kind.rstrip(b"\0").decode()))
        return sorted(found)

    def delete_filters(self, ifindex, parent, preference):
        """Delete every filter of one preference; OSError if there is none."""
        self._request(_RTM_DELTFILTER, _NLM_F_ACK, _TCMSG.pack(
            socket.AF_UNSPEC, ifindex, 0, parent, preference << 16))

    def plug(self, ifindex, parent, handle, action, limit_bytes=0,
             create=False):
        """Send a plug qdisc one of PLUG_ACTIONS, or create it."""
        options = struct.pack("=iI", PLUG_ACTIONS[action], limit_bytes)
        self._request(
            _RTM_NEWQDISC, _NLM_F_ACK | (_NLM_F_CREATE_EXCL if create else 0),
            _TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, parent, 0) +
            _attribute(_TCA_KIND, b"plug\0") +
            _attribute(_TCA_OPTIONS, options))

    def links(self):
        """Every device of the namespace."""
        result = []
        for body in self._request(_RTM_GETLINK, _NLM_F_DUMP, _IFINFOMSG.pack(
                socket.AF_UNSPEC, 0, 0, 0, 0)):
            attributes = _attributes(body[_IFINFOMSG.size:])
            link = Link()
            _, _, link.ifindex, flags, _ = _IFINFOMSG.unpack_from(body)
            link.name = attributes[_IFLA_IFNAME].rstrip(b"\0").decode()
            info = _attributes(attributes.get(_IFLA_LINKINFO, b""))
            link.kind = info.get(_IFLA_INFO_KIND, b"").rstrip(b"\0").decode()
            link.up = bool(flags & _IFF_UP)
            link.master, = struct.unpack("=I", attributes.get(_IFLA_MASTER,
                                                              bytes(4)))
            stats = attributes.get(_IFLA_STATS64, b"").ljust(64, b"\0")
            link.dropped = sum(struct.unpack_from("=QQ", stats, 48))
            result.append(link)
        return result


class Listeners(Netlink):
    """Looks for listening TCP sockets.  (To connect would not do: that
    connection would be held too.)"""

    def __init__(self):
        super().__init__(_NETLINK_SOCK_DIAG)

    def on_port(self, port):
        """Who listens on @port: inode -> longest accept queue."""
        found = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in self._request(
                    _SOCK_DIAG_BY_FAMILY, _NLM_F_DUMP,
                    struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0,
                                1 << _TCP_LISTEN)):
                local_port, = struct.unpack_from("!H", body, 4)
                queue_length, _, inode = struct.unpack_from("=III", body, 60)
                if local_port == port:
                    found[inode] = queue_length
        return found
