# SPDX-License-Identifier: GPL-2.0-only
"""Network namespaces, capabilities and the running of other programs."""

import os
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from ctypes import CDLL, get_errno

from .errors import ToolError

_CLONE_NEWNET = 0x40000000
# CAP_NET_ADMIN, and CAP_NET_RAW for the packet that makes a plug look
_CAPABILITIES = 1 << 12 | 1 << 13
_SO_NETNS_COOKIE = 71
_OWN_NAMESPACE = "/proc/self/ns/net"

# A program that sets something up and hangs must not hang a reload.
COMMAND_TIMEOUT_S = 20


def namespace_id():
    """What tells this network namespace from all others, of the past, too;
    before Linux 5.14 from the others while it lives."""
    any_socket = socket.socket(socket.AF_UNIX)
    try:
        return str(int.from_bytes(any_socket.getsockopt(
            socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder))
    except OSError:
        return str(os.stat(_OWN_NAMESPACE).st_ino)
    finally:
        any_socket.close()


def live_namespaces():
    """The inodes of those that a process is in, or that have a name."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):    # it has ended
            found.add(os.stat(f"/proc/{pid}/ns/net").st_ino)
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        found.update(int(line.split()[3][len("net:["):-1]) for line in file
                     if line.split()[3].startswith("net:["))
    return found


class Namespace:
    """Work in another network namespace, and find the way back.

    The wrapped command is always run where the caller is.
    """

    def __init__(self, name):
        """Of that name, path or process id."""
        self._path = name if "/" in name else \
            f"/proc/{name}/ns/net" if name.isdigit() else f"/run/netns/{name}"
        self._there_fd = None
        self._home_fd = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)

    def enter(self):
        if self._there_fd is None:
            try:
                self._there_fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise ToolError(
                    f"no network namespace {self._path} ({error.strerror}): give a "
                    "name that 'ip netns' lists, a process id, or a path") from error
        self._enter(self._there_fd)

    def leave(self):
        self._enter(self._home_fd)

    def _enter(self, fd):
        if CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
            raise ToolError(f"cannot enter the network namespace {self._path}, "
                            f"or leave it: {os.strerror(get_errno())}")


def may_administer():
    """Whether this process has what holding needs."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return not any(_CAPABILITIES & ~int(line.split()[1], 16)
                       for line in status if line.startswith("CapEff:"))


def run(argv):
    """Run a program to its end; ToolError with its own words if it fails."""
    try:
        done = subprocess.run(argv, text=True, check=False,
                              capture_output=True, timeout=COMMAND_TIMEOUT_S)
    except FileNotFoundError as error:
        raise ToolError(f"{argv[0]} is not installed, or not in PATH") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{shlex.join(argv)}: {error}") from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise ToolError(f"{shlex.join(argv)}: {words}")
    return done.stdout
