# SPDX-License-Identifier: GPL-2.0-only
"""Programs that see what arrives before any filter does."""

import os
import socket
import struct

import lib  # noqa: F401 (the way to the tool)
from qdisc_tool_lib.flower import bpf, load

# Type of the program, where it is attached, and how; XDP as every device can.
TCX = (3, 46, 0)               # Linux 6.6
XDP = (6, 37, 1 << 1)
TCX_NEXT, TCX_PASS, TCX_DROP, XDP_DROP, XDP_PASS = -1, 0, 2, 1, 2

_LINK_CREATE = 28


class Program:
    """A program that gives each packet one answer, attached to a device until exit."""

    def __init__(self, device, where, answer):
        kind, place, flags = where
        self._fds = [load(kind, ((0xB7, 0, 0, answer), (0x95, 0, 0, 0)))]
        self._fds.append(bpf(_LINK_CREATE, struct.pack(
            "=IIIIQQ", self._fds[0], socket.if_nametoindex(device), place, flags, 0, 0)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while self._fds:
            os.close(self._fds.pop())
