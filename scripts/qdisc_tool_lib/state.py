# SPDX-License-Identifier: GPL-2.0-only
"""What setup did, kept under /run: the kernel does not show who made a plug, nor what
is to be held.

One directory for each network namespace; in it, for each device,
  DEVICE.gate   what setup was told and made
  DEVICE.lock   locked (flock) by whoever holds, or changes the gate; in it, who that
                is and until when
All may read the first, and root alone the second.
"""

import fcntl
import json
import os
import re
import shutil
import time
from contextlib import suppress

from .errors import ToolError, words
from .gate import Gate
from .system import live_namespaces, namespace_id

DEFAULT_DIRECTORY = "/run/qdisc_tool"
# Many who try often would keep the CPU from the one who has the lock.
_RETRY_S, _RETRY_MOST_S = 0.005, 0.05
# Who has the lock has so long to begin a hold, and after its deadline to end it.
_BUSY_S, _LATE_S = 10.0, 1.0
# So long a caller waits for those before it.
_QUEUE_S = 120.0
_NAME = re.compile("([0-9]+)-[0-9]+-([0-9a-f]{8})")     # namespace_id()


class State:
    """The state of one network namespace."""

    def __init__(self, directory):
        self._top = directory
        self.directory = os.path.join(directory, namespace_id())

    def make_directory(self):
        """And remove those of namespaces that are gone, and of earlier boots."""
        os.makedirs(self.directory, exist_ok=True)
        boot, alive = self.directory[-8:], live_namespaces()
        for name in os.listdir(self._top):
            ours = _NAME.fullmatch(name)
            if ours and not (ours[2] == boot and int(ours[1]) in alive):
                # Another setup may do so at the same time.
                shutil.rmtree(os.path.join(self._top, name), ignore_errors=True)

    def path(self, device, suffix):
        return os.path.join(self.directory, f"{device}.{suffix}")

    def gates(self):
        """Every gate that is set up here."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        found = [self.load(name[:-len(".gate")]) for name in names if name.endswith(".gate")]
        return [gate for gate in found if gate]

    def load(self, device):
        """The gate of a device, or None."""
        path = self.path(device, "gate")
        try:
            with open(path, encoding="utf-8") as file:
                return Gate(**json.load(file))
        except FileNotFoundError:
            return None
        except (TypeError, ValueError) as error:   # another version's
            raise ToolError(f"{path}: {error}; remove it and what setup made (the plugN "
                            f"whose alias names {device}), then run 'setup' again") from error

    def save(self, gate):
        path = self.path(gate.device, "gate")
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(vars(gate), file)
            os.replace(path + ".new", path)
        except OSError as error:
            _unlink(path + ".new")
            raise ToolError(f"{path}: {error.strerror}") from error

    def forget(self, device, *suffixes):
        """At the end of a gate: the lock goes, too, if nothing else is said."""
        for suffix in suffixes or ("gate", "lock"):
            _unlink(self.path(device, suffix))

    def holder(self, device):
        """(command, seconds that are left) of a hold that goes on, or None."""
        try:
            with open(self.path(device, "lock"), encoding="utf-8") as file:
                command, until = _read(file.fileno())
        except OSError:
            return None
        left_s = until - time.monotonic()
        return (command, left_s) if command in ("protect", "hold") and left_s > 0 else None


def _unlink(path):
    with suppress(FileNotFoundError):
        os.unlink(path)


def _read(fd):
    command, _, until = os.pread(fd, 80, 0).decode().partition(" ")
    try:
        return command, float(until)
    except ValueError:
        return "", 0.0


class Turn:
    """The lock of a gate: one process at a time holds by it, or changes it."""

    def __init__(self, state, device):
        self._path = state.path(device, "lock")
        self.fd = None

    def take(self, held=(), wait=time.sleep, waits=lambda: None):
        """Wait for those who were before; waits() is called if there are any.  Who is
        late, because it was stopped, has had its turn; those @held meanwhile are not."""
        give_up = time.monotonic() + _QUEUE_S
        told, retry_s = False, _RETRY_S
        while not self._try():
            if not told:
                waits()
                told = True
            if time.monotonic() >= give_up:
                raise ToolError("busy: hold after hold goes on, or a setup; 'qdisc_tool "
                                "release' ends that")
            for turn in held:
                turn.begins()
            wait(retry_s)
            retry_s = min(2 * retry_s, _RETRY_MOST_S)
        return self

    def _try(self):
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        now = time.monotonic()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Where a killed process held, its turn is over; 'hold' needs none.
            mine = os.path.samestat(os.fstat(fd), os.stat(self._path)) and not (
                _read(fd)[0] == "hold" and _read(fd)[1] > now)
        except (BlockingIOError, FileNotFoundError):
            mine = False
            if 0 < _read(fd)[1] < now - _LATE_S:
                _unlink(self._path)
        if not mine:
            os.close(fd)
            return False
        self.fd = fd
        self.begins()
        return True

    def begins(self):
        """It begins a hold soon; anew while it waits for another gate."""
        self.note("begins", time.monotonic() + _BUSY_S)

    def problems(self):
        """Why it cannot be had: sentences."""
        try:
            self._try()
            self.leave()
        except OSError as error:
            return [words(error)]
        return []

    def seize(self):
        """The lock, whoever has it: that one sees by is_lost() that it has it no more."""
        while True:
            _unlink(self._path)
            if self._try():
                return self

    def note(self, command, until):
        """Who has it until when, for those who wait; OSError from a full disk."""
        text = f"{command} {until}"
        try:
            os.pwrite(self.fd, text.ljust(80).encode(), 0)
        except OSError as error:
            error.filename = self._path
            _unlink(self._path)
            self.leave()
            raise

    @property
    def is_lost(self):
        return self.fd is None or not os.fstat(self.fd).st_nlink

    def leave(self, keep=False):
        """With @keep the hold goes on by itself until what was noted."""
        if self.fd is None:
            return
        if not keep:
            os.ftruncate(self.fd, 0)
        os.close(self.fd)
        self.fd = None
