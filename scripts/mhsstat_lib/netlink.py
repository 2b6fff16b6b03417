# SPDX-License-Identifier: GPL-2.0-only
"""The core of IPVS by generic netlink: <linux/ip_vs.h> has its commands and
attributes.  One socket asks for one service, or for all."""

import errno
import os
import socket
import struct
import sys
from contextlib import contextmanager

from ipvs_mhs_tool import ToolError

_GENERIC = 16           # NETLINK_GENERIC
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_ERROR, _DONE = 2, 3    # kinds of messages
_REQUEST, _DUMP, _ACK = 1, 0x300, 4
GET_SERVICE, GET_DEST, GET_DAEMON, GET_CONFIG = 4, 8, 11, 13
SERVICE, DEST, DAEMON = 1, 2, 3     # the attribute that holds the others
_BACKUP = 2

_HEAD = struct.Struct("=IHHII")
_GENL = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")


def attributes(data):
    """{kind: value} of a row of them."""
    found, at, end = {}, 0, len(data)
    unpack = _ATTRIBUTE.unpack_from
    while at < end:
        length, kind = unpack(data, at)
        found[kind & 0x3fff] = data[at + 4:at + length]
        at += length + 3 & ~3
    return found


def attribute(kind, value):
    """One as the kernel reads it."""
    return _ATTRIBUTE.pack(len(value) + 4, kind) + value + bytes(-len(value) % 4)


def number(value):
    """Of an attribute."""
    return int.from_bytes(value, sys.byteorder)


class Ipvs:
    """Asks the core."""

    def __init__(self, connection):
        self._socket, self._buffer = connection, bytearray(1 << 16)
        self._family = _CONTROL
        self._family = number(self.get(_GET_FAMILY, attribute(
            _FAMILY_NAME, b"IPVS\0"))[_FAMILY_ID])

    def _messages(self, command, body, how):
        data = _GENL.pack(command, 1, 0) + body
        self._socket.send(_HEAD.pack(len(data) + _HEAD.size, self._family,
                                     _REQUEST | how, 1, 0) + data)
        while True:
            # a buffer of its own for each would be a page fault or more
            packet = bytes(memoryview(self._buffer)[:self._socket.recv_into(
                self._buffer)])
            at = 0
            while at < len(packet):
                length, kind, _, _, _ = _HEAD.unpack_from(packet, at)
                if kind in (_ERROR, _DONE):
                    code = -int.from_bytes(packet[at + 16:at + 20], sys.byteorder,
                                           signed=True) if kind == _ERROR else 0
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                yield attributes(packet[at + 20:at + length])
                at += length + 3 & ~3

    def dump(self, command, holder, body=b""):
        """Attributes of each answer."""
        for answer in self._messages(command, body, _DUMP):
            yield attributes(answer[holder])

    def get(self, command, body=b""):
        """Attributes of the answer; None if there is no such thing."""
        try:
            return [*self._messages(command, body, _ACK)][0]
        except OSError as error:
            if error.errno != errno.ESRCH:
                raise
            return None


@contextmanager
def ipvs():
    """An Ipvs; errors are in words."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC) as one:
            yield Ipvs(one)
    except PermissionError as error:
        raise ToolError("what IPVS has is for root: run mhsstat as root"
                        ) from error
    except OSError as error:
        raise ToolError("there is no IPVS in this kernel: modprobe ip_vs"
                        if error.errno == errno.ENOENT else
                        f"IPVS, by netlink: {error.strerror}") from error


def timeouts():
    """Seconds of an idle flow of TCP, one after FIN, one of UDP."""
    with ipvs() as core:
        its = core.get(GET_CONFIG)
        return [number(its[kind]) for kind in (4, 5, 6)]


def is_backup():
    """Does a sync daemon run as backup?"""
    with ipvs() as core:
        return any(number(its[1]) & _BACKUP for its in core.dump(GET_DAEMON, DAEMON))
