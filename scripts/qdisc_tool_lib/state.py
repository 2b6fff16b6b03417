# SPDX-License-Identifier: GPL-2.0-only
"""What setup did, kept under /run: the kernel can show neither the limit of
a plug nor whether it is shut, and not who made it.

One directory for each network namespace; in it, for each device,
  DEVICE.gate   what setup was told and made
  DEVICE.lock   locked (flock) by whoever changes the gate, or begins or ends
                a hold
  DEVICE.hold   while a hold goes on, see share.py
All may read the first.  The others root alone may open, and so lock.
"""

import fcntl
import os
import time

from .errors import ToolError, words
from .gate import Gate
from .system import namespace_id

DEFAULT_DIRECTORY = "/run/qdisc_tool"
# Many who try often would keep the CPU from the one who has the lock.
_RETRY_S, _RETRY_MOST_S = 0.005, 0.1


class State:
    """The state of one network namespace."""

    def __init__(self, directory):
        self.top = directory
        self.directory = os.path.join(directory, namespace_id())

    def path(self, device, suffix):
        return os.path.join(self.directory, f"{device}.{suffix}")

    def gates(self, warn):
        """Every gate that is set up here; warn() of what cannot be read."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            if name.endswith(".gate"):
                try:
                    found.append(self.load(name[:-len(".gate")]))
                except (ToolError, OSError) as error:
                    warn(words(error))
        return [gate for gate in found if gate]

    def load(self, device):
        """The gate of a device, or None."""
        path = self.path(device, "gate")
        try:
            with open(path, encoding="utf-8") as file:
                return Gate.from_text(file.read())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ToolError(
                f"{path}: {error}; remove it and what setup made (the plugN "
                f"whose alias names {device}), then run 'setup' again"
            ) from error

    def save(self, gate):
        """Also of a gate in the making: see Gate.complete."""
        path = self.path(gate.device, "gate")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(gate.text())
        os.replace(path + ".new", path)

    def forget(self, device):
        os.unlink(self.path(device, "gate"))

    def unwritable(self, device):
        """Why a hold cannot have its files: a sentence, or None."""
        path = self.path(device, "tried")
        try:
            with open(path, "wb") as file:
                file.write(bytes(os.sysconf("SC_PAGE_SIZE")))
            os.unlink(path)
        except OSError as error:
            return f"{path}: {error.strerror}"
        return None

    def lock(self, device, wait_s=0.0):
        """The lock of a gate as an open file descriptor, or None if another
        process keeps it for longer than @wait_s."""
        path = self.path(device, "lock")
        give_up = taken = 0
        retry_s = _RETRY_S
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    os.utime(fd)
                    return fd
            except (BlockingIOError, FileNotFoundError):
                pass               # the latter if it was broken just now
            if taken != os.fstat(fd).st_mtime_ns:      # by one more
                taken = os.fstat(fd).st_mtime_ns
                give_up = time.monotonic() + wait_s
            os.close(fd)
            if time.monotonic() >= give_up:
                return None
            time.sleep(retry_s)
            retry_s = min(2 * retry_s, _RETRY_MOST_S)

    def must_lock(self, device, wait_s):
        """The same, or ToolError."""
        fd = self.lock(device, wait_s)
        if fd is None:
            raise ToolError(f"{device} is busy: a setup goes on, or hold after hold, or a "
                            "process was stopped in one; 'qdisc_tool release' ends that")
        return fd

    def break_lock(self, device):
        """The lock, even if a process that was stopped keeps it."""
        os.unlink(self.path(device, "lock"))
        return self.lock(device)
