# SPDX-License-Identifier: GPL-2.0-only
"""Programs that see what arrives before any filter does."""

import ctypes
import errno
import os
import struct

# Type of the program, where it is attached, and how; XDP as every device can.
TCX = (3, 46, 0)               # Linux 6.6
XDP = (6, 37, 1 << 1)
TCX_NEXT, TCX_PASS, XDP_PASS = -1, 0, 2

_PROG_LOAD, _LINK_CREATE = 5, 28
_SYS_BPF = {"x86_64": 321}.get(os.uname().machine, 280)
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command, form, *values):
    attributes = struct.pack(form, *values)
    result = _libc.syscall(_SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Program:
    """A program that gives each packet one answer, attached to a device until
    exit; EINVAL from a kernel that has no such place."""

    def __init__(self, device, where, name, answer):
        kind, place, flags = where
        with open(f"/sys/class/net/{device}/ifindex",
                  encoding="utf-8") as file:
            ifindex = int(file.read())
        # r0 = answer; exit
        code = ctypes.create_string_buffer(struct.pack(
            "=BBhiBBhi", 0xB7, 0, 0, answer, 0x95, 0, 0, 0))
        licence = ctypes.create_string_buffer(b"GPL")
        self._fds = [_bpf(
            _PROG_LOAD, "=IIQQIIQII16s", kind, 2, ctypes.addressof(code),
            ctypes.addressof(licence), 0, 0, 0, 0, 0, name.encode())]
        try:
            self._fds.append(_bpf(_LINK_CREATE, "=IIIIQQ", self._fds[0],
                                  ifindex, place, flags, 0, 0))
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
