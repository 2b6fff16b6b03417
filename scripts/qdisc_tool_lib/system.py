# SPDX-License-Identifier: GPL-2.0-only
"""Network namespaces, capabilities and the running of other programs."""

import os
import shlex
import socket
import struct
import subprocess
from contextlib import suppress
from ctypes import CDLL, get_errno

from .errors import ToolError

_CLONE_NEWNET = 0x40000000
# CAP_NET_ADMIN, CAP_NET_RAW for the packet that makes a plug look, and CAP_BPF (or
# CAP_SYS_ADMIN) for the deadline
_CAPABILITIES, _EITHER = 1 << 12 | 1 << 13, 1 << 39 | 1 << 21
_SO_NETNS_COOKIE = 71
_OWN_NAMESPACE = "/proc/self/ns/net"

# A program that sets something up and hangs must not hang a reload.
COMMAND_TIMEOUT_S = 20


def namespace_id():
    """What tells this network namespace from all others, of the past, too (before Linux
    5.14 from the others while it lives): its inode, its cookie, and the boot."""
    cookie = 0
    with suppress(OSError), socket.socket(socket.AF_UNIX) as any_socket:
        cookie = struct.unpack("=Q", any_socket.getsockopt(
            socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))[0]
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return f"{os.stat(_OWN_NAMESPACE).st_ino}-{cookie}-{file.read(8)}"


def live_namespaces():
    """The inodes of those that a process is in, or that have a name."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):    # it has ended
            found.add(os.stat(f"/proc/{pid}/ns/net").st_ino)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found.update(int(line.split()[3][len("net:["):-1]) for line in file
                     if line.split()[3].startswith("net:["))
    return found


class Namespace:
    """Work in another network namespace, and find the way back.

    The wrapped command is always run where the caller is.
    """

    def __init__(self, name):
        """Of that name, path or process id."""
        path = name if "/" in name else \
            f"/proc/{name}/ns/net" if name.isdigit() else f"/run/netns/{name}"
        try:
            self._there_fd, self._home_fd = (
                os.open(one, os.O_RDONLY | os.O_CLOEXEC) for one in (path, _OWN_NAMESPACE))
        except OSError as error:
            raise ToolError(f"no network namespace {path} ({error.strerror}): give a name that "
                            "'ip netns' lists, a process id, or a path") from error

    def enter(self):
        _enter(self._there_fd)

    def leave(self):
        _enter(self._home_fd)


def _enter(fd):
    if CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
        raise ToolError(f"cannot change the network namespace: {os.strerror(get_errno())}")


def may_administer():
    """Whether this process has what holding needs."""
    with open("/proc/self/status", encoding="utf-8") as status:
        has = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return not _CAPABILITIES & ~has and bool(_EITHER & has)


def run(argv, words="", *keep_fds):
    """Run a program to its end; ToolError with its own words if it fails."""
    try:
        done = subprocess.run(argv, input=words, text=True, errors="replace", check=False,
                              pass_fds=keep_fds, capture_output=True,
                              timeout=COMMAND_TIMEOUT_S)
    except FileNotFoundError as error:
        raise ToolError(f"{argv[0]} is not installed, or not in PATH") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{shlex.join(argv)}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise ToolError(f"{shlex.join(argv)}: {said}")
    return done.stdout
