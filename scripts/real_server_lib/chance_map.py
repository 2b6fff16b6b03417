# SPDX-License-Identifier: GPL-2.0-only
"""The maps of chance.bpf.c, which has the same shapes, by the system call bpf(2):
bpftool writes one element at a time."""

import contextlib
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

_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE = range(4)
_OBJ_GET, _FD_BY_ID, _UPDATE_BATCH = 7, 14, 26
_ARRAY = 2                  # BPF_MAP_TYPE_ARRAY
_INNER_MAP = 1 << 12        # BPF_F_INNER_MAP
_ATTR = 128                 # bytes; the kernel takes more than it knows if zero

_ROW = 16                   # sizeof(struct row)
_OTHERS_SHIFT = 24
_STRANGER, _AWAY = 1 << 31, 1 << 23
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


def _address(data):
    """Of bytes, which must live as long as they are used"""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value


def _packed(address):
    return ipaddress.ip_address(address).packed.ljust(16, b"\0")


def service_key(address, port):
    """struct service"""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _packed(address) + struct.pack("!H", port) + \
        struct.pack("=H", family)


def word(owner, others, stranger=False, away=False):
    """Of a slot: the number of the next owner, how many others there are, whether
    this server is none of them, whether the next one is a guess."""
    return (_STRANGER if stranger else 0) | (_AWAY if away else 0) | \
        others << _OTHERS_SHIFT | owner


def rows(key, words, servers, ifindex, flags, away_until=0):
    """All of one service, as bytes."""
    # the key is read by bytes, and the program reads numbers of the host
    head = struct.pack("=2Q", *struct.unpack("<2Q", bytes.fromhex(key)))
    slots = len(words)
    words = [*words, *[0] * (-slots % 4)]
    meta = struct.pack("=4I", slots, away_until, ifindex, flags)
    return head + meta + struct.pack(f"={len(words)}I", *words) + \
        b"".join(map(_packed, servers))


def _make(data):
    """A table, as a descriptor"""
    # Linux 5.10 counts maps as locked memory, of which there is less than a table
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK,
                           (resource.RLIM_INFINITY,) * 2)
    count = len(data) // _ROW
    table = _bpf(_MAP_CREATE, struct.pack("=5I", _ARRAY, 4, _ROW, count,
                                          _INNER_MAP))
    try:
        keys = struct.pack(f"={count}I", *range(count))
        _bpf(_UPDATE_BATCH, struct.pack("=4Q2I2Q", 0, 0, _address(keys),
                                        _address(data), count, table, 0, 0))
    except BaseException:
        os.close(table)
        raise
    return table


def _pinned(path):
    name = path.encode()
    return _bpf(_OBJ_GET, struct.pack("=QI", _address(name), 0))


@contextlib.contextmanager
def _services(path):
    services = _pinned(path)
    try:
        yield services
    finally:
        os.close(services)


def _lookup(fd, key, size):
    value = ctypes.create_string_buffer(size)
    _bpf(_MAP_LOOKUP, struct.pack("=2I3Q", fd, 0, _address(key),
                                  ctypes.addressof(value), 0))
    return value.raw


def number(path, key):
    """Of the service's table, or None"""
    try:
        with _services(path) as services:
            return _lookup(services, key, 4)
    except FileNotFoundError:
        return None


def find(path, key):
    """The service's table, as a descriptor, or None"""
    there = number(path, key)
    try:
        return None if there is None else _bpf(_FD_BY_ID, there)
    except FileNotFoundError:
        return None


def put(path, key, table):
    """In the place of the service's former table; None: it has no second chance any
    more"""
    with _services(path) as services:
        if table is not None:
            inner = struct.pack("=I", table)
            _bpf(_MAP_UPDATE, struct.pack("=2I3Q", services, 0, _address(key),
                                          _address(inner), 0))
            return
        with contextlib.suppress(FileNotFoundError):
            _bpf(_MAP_DELETE, struct.pack("=2IQ", services, 0, _address(key)))


def write(path, key, data):
    """Replace the service's table at once and whole."""
    table = _make(data)
    try:
        put(path, key, table)
    finally:
        os.close(table)


def head(path, key):
    """(hash key, slots, ifindex) of the service's table, or None"""
    table = find(path, key)
    if table is None:
        return None
    try:
        first, meta = (_lookup(table, struct.pack("=I", row), _ROW)
                       for row in (0, 1))
    finally:
        os.close(table)
    slots, _, ifindex, _ = struct.unpack("=4I", meta)
    return struct.pack("<2Q", *struct.unpack("=2Q", first)).hex(), slots, ifindex
