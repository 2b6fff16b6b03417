# SPDX-License-Identifier: GPL-2.0-only
"""Programs that see what arrives before any filter does."""

import ctypes
import errno
import os
import socket
import struct

import lib  # noqa: F401 (the way to the tool)
from qdisc_tool_lib.flower import bpf

# Type of the program, where it is attached, and how; XDP as every device can.
TCX = (3, 46, 0)               # Linux 6.6
XDP = (6, 37, 1 << 1)
TCX_NEXT, TCX_PASS, TCX_DROP, XDP_DROP, XDP_PASS = -1, 0, 2, 1, 2

_PROG_LOAD, _LINK_CREATE = 5, 28


def _instruction(code, register, value):
    return struct.pack("=BBhi", code, register, 0, value)


class Program:
    """A program that gives each packet one answer, attached to a device until exit;
    EINVAL from a kernel that has no such place."""

    def __init__(self, device, where, name, answer):
        kind, place, flags = where
        words = _instruction(0xB7, 0, answer) + _instruction(0x95, 0, 0)
        code = ctypes.create_string_buffer(words)
        licence = ctypes.create_string_buffer(b"GPL")
        self._fds = [bpf(_PROG_LOAD, struct.pack(
            "=IIQQIIQII16s", kind, len(words) // 8,
            ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0, name.encode()))]
        try:
            self._fds.append(bpf(_LINK_CREATE, struct.pack(
                "=IIIIQQ", self._fds[0], socket.if_nametoindex(device), place, flags, 0, 0)))
        except OSError:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while self._fds:
            os.close(self._fds.pop())


def has_tcx(device):
    """Whether this kernel has it."""
    try:
        with Program(device, TCX, "probe", TCX_NEXT):
            return True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
