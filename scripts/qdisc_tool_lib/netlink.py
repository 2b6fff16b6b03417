# SPDX-License-Identifier: GPL-2.0-only
"""The few netlink messages a hold needs.

ip(8) and tc(8) set things up; a hold must begin at once, be watched every few
milliseconds, and end even when no process can be started any more.  An open
netlink socket does all of that.  It also belongs for ever to the network
namespace it was opened in.
"""

import errno
import os
import socket
import struct
import sys

_TC_H_ROOT = 0xFFFFFFFF
TC_H_INGRESS = 0xFFFFFFF2           # the ingress side of clsact or ingress
TC_H_EGRESS = 0xFFFFFFF3
CLSACT_HANDLE = 0xFFFF0000

_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_ECHO, _NLM_F_DUMP = 0x1, 0x4, 0x8, 0x300
_NLM_F_CREATE_EXCL = 0x600
_NLMSGERR_ATTR_MSG = 1
_RTM_GETLINK = 18
_RTM_NEWQDISC, _RTM_GETQDISC = 36, 38
_RTM_NEWTFILTER, _RTM_DELTFILTER, _RTM_GETTFILTER = 44, 45, 46

# nfnetlink(7): the subsystem of nftables, its messages and their attributes
_NETLINK_NETFILTER = 12
_NFT_GETCHAIN, _NFT_GETGEN = 10 << 8 | 4, 10 << 8 | 16
_NFPROTO_INET, _NFPROTO_NETDEV = 1, 5
_INGRESS = {_NFPROTO_INET: 5, _NFPROTO_NETDEV: 0}     # number of the hook
_NFTA_TABLE, _NFTA_NAME, _NFTA_HOOK = 1, 3, 4
_NFTA_HOOK_NUM, _NFTA_HOOK_DEV, _NFTA_HOOK_DEVS = 1, 3, 4

_ANSWER_S = 2
_TIMEVAL = struct.Struct("@ll")
_HEADER = struct.Struct("=IHHII")           # struct nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")         # struct tcmsg
_IFINFOMSG = struct.Struct("=BxHiII")       # struct ifinfomsg
_TC_STATS = struct.Struct("=QIIIIIII")      # struct tc_stats
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS, _TCA_CHAIN = 1, 2, 3, 11
_TCA_FLOWER_ACT, _TCA_ACT_STATS, _TCA_STATS_BASIC = 3, 4, 1
_IFLA_IFNAME, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_LINK_NETNSID = 3, 5, 10, 18, 37
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _IFLA_IPVLAN_MODE = 1, 2, 1
_IFF_UP = 1
_NLA_F_NESTED = 0x8000


class Qdisc:
    """A qdisc as the kernel tells it, with the counters looked at here."""

    def __init__(self, body):
        attributes = parse_attributes(body[_TCMSG.size:])
        self.kind = words_of(attributes[_TCA_KIND])
        stats = attributes.get(_TCA_STATS, b"")[:_TC_STATS.size]
        _, self.packets, self.drops, _, _, _, self.qlen, _ = _TC_STATS.unpack(
            stats.ljust(_TC_STATS.size, b"\0"))


class Link:
    """A device as the kernel tells it."""

    def __init__(self, body):
        attributes = parse_attributes(body[_IFINFOMSG.size:])
        _, _, self.ifindex, flags, _ = _IFINFOMSG.unpack_from(body)
        self.name = words_of(attributes[_IFLA_IFNAME])
        info = parse_attributes(attributes.get(_IFLA_LINKINFO, b""))
        self.kind = words_of(info.get(_IFLA_INFO_KIND, b""))
        self.up = bool(flags & _IFF_UP)
        mode = parse_attributes(info.get(_IFLA_INFO_DATA, b"")).get(
            _IFLA_IPVLAN_MODE, b"") if self.kind == "ipvlan" else b""
        self.mode = int.from_bytes(mode[:2], sys.byteorder)
        self.master, self.parent = (
            struct.unpack("=I", attributes.get(kind, bytes(4)))[0]
            for kind in (_IFLA_MASTER, _IFLA_LINK))
        # of a veth: its other end is in another namespace
        self.leads_away = _IFLA_LINK_NETNSID in attributes


def parse_attributes(data):
    """The netlink attributes in @data: type -> payload."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3:]
    return found


def attribute(kind, payload):
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


def nested(kind, *attributes):
    return attribute(kind | _NLA_F_NESTED, b"".join(attributes))


def words_of(payload):
    return payload.rstrip(b"\0").decode()


def filter_message(ifindex, preference, ethertype, kind, options, chain=0):
    """The body of a request for an ingress filter of @kind, for
    add_filter()."""
    return (_TCMSG.pack(socket.AF_UNSPEC, ifindex, 0, TC_H_INGRESS,
                        preference << 16 | socket.htons(ethertype)) +
            attribute(_TCA_KIND, kind.encode() + b"\0") + _chain(chain) +
            nested(_TCA_OPTIONS, *options))


def _chain(number):
    return attribute(_TCA_CHAIN, struct.pack("=I", number)) if number else b""


class Netlink:
    """One netlink socket; every call is a request and its whole answer."""

    def __init__(self, protocol=socket.NETLINK_ROUTE):
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.bind((0, 0))
        # (settimeout() would poll before each call.)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(_ANSWER_S, 0))
        # The kernel's own words for what it refuses, not our request again.
        for option in _NETLINK_CAP_ACK, _NETLINK_EXT_ACK:
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._sequence = 0
        # More than the kernel puts into one message of a list.  (A buffer of
        # its own for each would be mapped and unmapped each time.)
        self._buffer = bytearray(1 << 16)

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
                        words = parse_attributes(body[20:]).get(_NLMSGERR_ATTR_MSG)
                        raise OSError(error, words_of(words) if words else os.strerror(error))
                    return bodies
                if kind == _NLMSG_DONE:
                    return bodies
                bodies.append(body)

    def _one(self, kind, flags, body):
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
        body = self._one(_RTM_GETQDISC, _NLM_F_ECHO, _TCMSG.pack(
            socket.AF_UNSPEC, ifindex, handle, 0, 0))
        return body and Qdisc(body)

    def _filters(self, ifindex, parent):
        """(preference, attributes) of each in the chain that packets begin in; the
        first of a preference has no filter in it."""
        for body in self.dump(_RTM_GETTFILTER, _TCMSG.pack(
                socket.AF_UNSPEC, ifindex, 0, parent, 0)):
            found = parse_attributes(body[_TCMSG.size:])
            if not any(found.get(_TCA_CHAIN, b"")):
                yield _TCMSG.unpack_from(body)[4] >> 16, found

    def filters(self, ifindex, parent=TC_H_INGRESS):
        """preference -> kind of the filters at @parent of a device."""
        return {preference: words_of(attributes.get(_TCA_KIND, b""))
                for preference, attributes in self._filters(ifindex, parent)}

    def hits(self, ifindex):
        """preference -> how many packets met the actions of its ingress
        filters, of all that are there."""
        counts = {}
        for preference, found in self._filters(ifindex, TC_H_INGRESS):
            body = found.get(_TCA_OPTIONS, b"")
            for kind in (_TCA_FLOWER_ACT, 1, _TCA_ACT_STATS, _TCA_STATS_BASIC):
                body = parse_attributes(body).get(kind, b"")
            counts[preference] = counts.get(preference, 0) + \
                (struct.unpack_from("=QI", body)[1] if body else 0)
        return counts

    def add_filter(self, message):
        self._request(_RTM_NEWTFILTER, _NLM_F_ACK | _NLM_F_CREATE_EXCL, message)

    def delete_filters(self, ifindex, preference, chain=0):
        """Delete every ingress filter of one preference, or with 0 of @chain;
        OSError if there is none."""
        self._request(_RTM_DELTFILTER, _NLM_F_ACK, _TCMSG.pack(
            socket.AF_UNSPEC, ifindex, 0, TC_H_INGRESS, preference << 16) + _chain(chain))

    def qdisc_change(self, ifindex, handle, kind, options, create=False):
        """Change the root qdisc of a device, or create it."""
        self._request(
            _RTM_NEWQDISC, _NLM_F_ACK | (_NLM_F_CREATE_EXCL if create else 0),
            _TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, _TC_H_ROOT, 0) +
            attribute(_TCA_KIND, kind.encode() + b"\0") + attribute(_TCA_OPTIONS, options))

    def links(self):
        """Every device of the namespace."""
        return list(map(Link, self.dump(
            _RTM_GETLINK, _IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0))))

    def link(self, name="", ifindex=0):
        """One device, or None."""
        body = self._one(
            _RTM_GETLINK, 0, _IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, 0, 0) +
            (attribute(_IFLA_IFNAME, name.encode() + b"\0") if name else b""))
        return body and Link(body)


class Nftables(Netlink):
    """Which chains see what arrives, behind the filters of tc."""

    def __init__(self):
        super().__init__(_NETLINK_NETFILTER)

    def generation(self):
        """It changes with every rule; None from a kernel without nftables."""
        try:
            return self._one(_NFT_GETGEN, 0, bytes(4))
        except OSError:
            return None

    def ingress_chains(self, device):
        """Their names."""
        found = []
        for family, hook_number in _INGRESS.items():
            try:
                bodies = self.dump(_NFT_GETCHAIN, struct.pack("=Bxxx", family))
            except OSError:
                continue           # a kernel without it
            for body in bodies:
                chain = parse_attributes(body[4:])
                hook = parse_attributes(chain.get(_NFTA_HOOK, b""))
                if int.from_bytes(hook.get(_NFTA_HOOK_NUM, b"\xff"), "big") == \
                        hook_number and _names(hook, device):
                    found.append(f"{words_of(chain[_NFTA_TABLE])} {words_of(chain[_NFTA_NAME])}")
        return found


def _names(hook, device):
    """Whether a hook is on @device; from Linux 6.16 on a name may stand for all that
    begin so."""
    found = [words_of(hook.get(_NFTA_HOOK_DEV, b""))] == [device]
    rest = hook.get(_NFTA_HOOK_DEVS, b"")
    while len(rest) >= 4:          # (a list of one attribute again and again)
        length, kind = struct.unpack_from("=HH", rest)
        name = words_of(rest[4:length])
        found |= name == device if kind & 0x3FFF == 1 else device.startswith(name)
        rest = rest[(length + 3) & ~3:]
    return found
