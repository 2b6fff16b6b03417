# SPDX-License-Identifier: GPL-2.0-only
"""The few netlink messages a hold needs.

ip(8) and tc(8) prepare it; a hold must begin at once, be watched every few milliseconds, and end
even when no process can be started any more.  An open netlink socket does all of that.  It also
belongs for ever to the network namespace it was opened in.
"""

import errno
import fcntl
import os
import socket
import struct

_TC_H_ROOT = 0xFFFFFFFF
TC_H_INGRESS = 0xFFFFFFF2           # the ingress side of clsact or ingress
TC_H_EGRESS = 0xFFFFFFF3
CLSACT_HANDLE = 0xFFFF0000

_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_ECHO, _NLM_F_DUMP = 0x1, 0x4, 0x8, 0x300
_NLM_F_CREATE_EXCL = 0x600
_RTM_NEWQDISC, _RTM_GETQDISC = 36, 38
_RTM_NEWTFILTER, _RTM_DELTFILTER, _RTM_GETTFILTER = 44, 45, 46
_ETH_P_ALL = 3
_SIOCGIFFLAGS, _SIOCGIFINDEX, _IFF_UP = 0x8913, 0x8933, 1

_ANSWER_S = 2
_TIMEVAL = struct.Struct("@ll")
_HEADER = struct.Struct("=IHHII")           # struct nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")         # struct tcmsg
_TC_STATS = struct.Struct("=QIIIIIII")      # struct tc_stats
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS, _TCA_CHAIN = 1, 2, 3, 11
_NLA_F_NESTED = 0x8000


class Qdisc:
    """A qdisc as the kernel tells it, with the counters looked at here."""

    def __init__(self, body):
        found = dict(attributes(body[_TCMSG.size:]))
        self.kind = found[_TCA_KIND].rstrip(b"\0").decode()
        stats = found.get(_TCA_STATS, b"")[:_TC_STATS.size]
        _, self.packets, self.drops, _, _, _, self.qlen, _ = _TC_STATS.unpack(
            stats.ljust(_TC_STATS.size, b"\0"))


def attributes(data):
    """(type, payload) of each netlink attribute in @data."""
    found = []
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found += [(kind & 0x3FFF, data[4:length])]
        data = data[(length + 3) & ~3:]
    return found


def attribute(kind, payload):
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


def nested(kind, *attributes):
    return attribute(kind | _NLA_F_NESTED, b"".join(attributes))


class Netlink:
    """One netlink socket; every call is a request and its whole answer."""

    def __init__(self, protocol=socket.NETLINK_ROUTE):
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.bind((0, 0))
        # (settimeout() would poll before each call.)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(_ANSWER_S, 0))
        self._sequence = 0
        # More than the kernel puts into one message of a list.  (A buffer of
        # its own for each would be mapped and unmapped each time.)
        self._buffer = bytearray(1 << 16)

    def _device(self, request, name):
        """What an ioctl tells of a device, 0 where there is none of this name."""
        try:
            answer = fcntl.ioctl(self._socket, request, name.encode().ljust(32, b"\0"))
        except OSError:
            return 0
        return struct.unpack_from("=i", answer, 16)[0]

    def index_of(self, name):
        return self._device(_SIOCGIFINDEX, name)

    def is_up(self, name):
        return bool(self._device(_SIOCGIFFLAGS, name) & _IFF_UP)

    def _request(self, kind, flags, body):
        """Send one request; return the bodies of the messages it brought."""
        self._sequence += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, flags | _NLM_F_REQUEST,
                                       self._sequence, 0) + body)
        bodies = []
        while True:
            data = bytes(self._buffer[:self._socket.recv_into(self._buffer)])
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

    def one(self, kind, flags, body):
        """The body of the one answer, or None if there is no such thing."""
        try:
            return self._request(kind, _NLM_F_ACK | flags, body)[0]
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EINVAL, errno.ERANGE):
                raise
            return None

    def dump(self, kind, body):
        """The bodies of a list."""
        return self._request(kind, _NLM_F_DUMP, body)

    def qdisc(self, ifindex, handle):
        """One qdisc of a device, or None."""
        # (without ECHO only those hear it who listen to changes)
        body = self.one(_RTM_GETQDISC, _NLM_F_ECHO, _TCMSG.pack(
            socket.AF_UNSPEC, ifindex, handle, 0, 0))
        return body and Qdisc(body)

    def filters(self, ifindex, parent=TC_H_INGRESS):
        """preference -> kind of the filters at @parent of a device, in the chain that
        packets begin in."""
        kinds = {}
        for body in self.dump(_RTM_GETTFILTER, _TCMSG.pack(
                socket.AF_UNSPEC, ifindex, 0, parent, 0)):
            found = dict(attributes(body[_TCMSG.size:]))
            if not any(found.get(_TCA_CHAIN, b"")):
                kinds[_TCMSG.unpack_from(body)[4] >> 16] = found.get(
                    _TCA_KIND, b"").rstrip(b"\0").decode()
        return kinds

    def add_filter(self, ifindex, chain, kind, options):
        """The first ingress filter of a chain, for every protocol."""
        self._request(_RTM_NEWTFILTER, _NLM_F_ACK | _NLM_F_CREATE_EXCL, _TCMSG.pack(
            socket.AF_UNSPEC, ifindex, 0, TC_H_INGRESS, 1 << 16 | socket.htons(_ETH_P_ALL)) +
            attribute(_TCA_KIND, kind + b"\0") + attribute(
                _TCA_CHAIN, struct.pack("=I", chain)) + nested(_TCA_OPTIONS, *options))

    def delete_filters(self, ifindex, preference, chain=0):
        """Delete every ingress filter of one preference, or with 0 of @chain;
        OSError if there is none."""
        self._request(_RTM_DELTFILTER, _NLM_F_ACK, _TCMSG.pack(
            socket.AF_UNSPEC, ifindex, 0, TC_H_INGRESS, preference << 16) +
            attribute(_TCA_CHAIN, struct.pack("=I", chain)))

    def qdisc_change(self, ifindex, handle, kind, options, create=False):
        """Change the root qdisc of a device, or create it."""
        self._request(
            _RTM_NEWQDISC, _NLM_F_ACK | (_NLM_F_CREATE_EXCL if create else 0),
            _TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, _TC_H_ROOT, 0) +
            attribute(_TCA_KIND, kind.encode() + b"\0") + attribute(_TCA_OPTIONS, options))
