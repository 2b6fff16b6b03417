# SPDX-License-Identifier: GPL-2.0-only
"""The maps of chance.bpf.c, which has the same shapes, by the system call bpf(2):
bpftool writes one element at a time."""

import ctypes
import ipaddress
import os
import resource
import socket
import struct

from ipvs_mhs_tool import ToolError

# The number of bpf(2)
_NUMBER = {"x86_64": 321, "i686": 357, "aarch64": 280, "riscv64": 280,
           "loongarch64": 280, "armv7l": 386, "ppc64le": 361, "s390x": 351}

_MAP_CREATE, _MAP_UPDATE, _MAP_DELETE, _OBJ_GET, _UPDATE_BATCH = 0, 2, 3, 7, 26
_ARRAY = 2                  # BPF_MAP_TYPE_ARRAY
_INNER_MAP = 1 << 12        # BPF_F_INNER_MAP
_ATTR = 128                 # bytes; the kernel takes more than it knows if zero

_ROW = 16                   # sizeof(struct row)
_FIRST_SLOTS = 2            # the first row of slots
_OTHERS_SHIFT = 24
_STRANGER = 1 << 31
ADDR_ONLY, SERVERS_6 = 1, 2     # FLAG_*


def _bpf(command, attr):
    number = _NUMBER.get(os.uname().machine)
    if number is None:
        raise ToolError(f"the number of bpf(2) on {os.uname().machine} is not "
                        "known: please report this")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attr, _ATTR)
    result = libc.syscall(number, command, buffer, len(buffer))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf(2): {os.strerror(error)}")
    return result


def _address(buffer):
    return ctypes.addressof(buffer)


def _pinned(path):
    name = ctypes.create_string_buffer(path.encode())
    return _bpf(_OBJ_GET, struct.pack("=QI", _address(name), 0))


def _packed(address):
    return ipaddress.ip_address(address).packed.ljust(16, b"\0")


def service_key(address, port):
    """struct service"""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _packed(address) + struct.pack("!H", port) + \
        struct.pack("=H", family)


def word(owner, others, stranger=False):
    """Of a slot: the number of the next owner, how many others there are, and
    whether this server is none of them."""
    return (_STRANGER if stranger else 0) | others << _OTHERS_SHIFT | owner


def rows(key, words, servers, ifindex, flags):
    """All of one service, as bytes."""
    # the key is read by bytes, and the program reads numbers of the host
    head = struct.pack("=2Q", *struct.unpack("<2Q", bytes.fromhex(key)))
    slots = len(words)
    words = [*words, *[0] * (-slots % 4)]
    meta = struct.pack("=4I", slots, _FIRST_SLOTS + len(words) // 4, ifindex,
                       flags)
    return head + meta + struct.pack(f"={len(words)}I", *words) + \
        b"".join(map(_packed, servers))


def write(path, key, data):
    """Make a table and put it in the place of the service's former one."""
    count = len(data) // _ROW
    # before Linux 5.11 tables count as locked memory
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
    table = _bpf(_MAP_CREATE, struct.pack("=5I", _ARRAY, 4, _ROW, count,
                                          _INNER_MAP))
    services = -1
    try:
        keys = ctypes.create_string_buffer(
            struct.pack(f"={count}I", *range(count)), 4 * count)
        values = ctypes.create_string_buffer(data, len(data))
        _bpf(_UPDATE_BATCH, struct.pack("=4Q2I2Q", 0, 0, _address(keys),
                                        _address(values), count, table, 0, 0))
        services = _pinned(path)
        name = ctypes.create_string_buffer(key, len(key))
        inner = ctypes.create_string_buffer(struct.pack("=I", table), 4)
        _bpf(_MAP_UPDATE, struct.pack("=2I3Q", services, 0, _address(name),
                                      _address(inner), 0))
    finally:
        for fd in (table, services):
            if fd >= 0:
                os.close(fd)


def remove(path, key):
    """The service has no second chance any more."""
    services = _pinned(path)
    try:
        name = ctypes.create_string_buffer(key, len(key))
        _bpf(_MAP_DELETE, struct.pack("=2IQ", services, 0, _address(name)))
    except FileNotFoundError:
        pass
    finally:
        os.close(services)
