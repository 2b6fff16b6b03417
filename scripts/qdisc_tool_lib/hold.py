# SPDX-License-Identifier: GPL-2.0-only
"""A hold: shut the plug and lead new connections to it; later the reverse.

Ending it needs no process, no file and no memory to speak of: two kinds of
message on a netlink socket that has been open since before the hold began.
"""

import fcntl
import os
import time

from . import commands, counters
from .errors import ToolError
from .netlink import Netlink
from .system import run

_BACKLOG_SYSCTL = "/proc/sys/net/core/netdev_max_backlog"
_BACKLOG_LOCK_WAIT_S = 0.05
# A released SYN brings a SYN-ACK and an ACK to the same per-CPU queue.
_PACKETS_PER_HELD = 3

_DRAIN_S = 1.0
_DRAIN_POLL_S = 0.001
# What was released needs a moment to reach the listener and be counted there.
_SETTLE_COUNTERS_S = 0.02


class Backlog:
    """The longest per-CPU receive queue, a setting of the whole host.

    On loopback all that is released at once goes through such a queue (1,000
    packets by default) and what does not fit is lost, so it is raised for the
    moment of a release.  The lock file holds the value to restore, so that it
    is restored even if the process that raised it was killed.
    """

    def __init__(self, state):
        """To be made before another network namespace is entered."""
        self._lock_path = os.path.join(state.top, "netdev_max_backlog")
        self._lock_fd = None
        try:
            self._fd = os.open(_BACKLOG_SYSCTL, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._fd = None        # a container, or not root

    def fds(self):
        return [] if self._fd is None else [self._fd]

    @property
    def writable(self):
        return self._fd is not None

    def value(self):
        return int(os.pread(self._fd, 32, 0)) if self.writable else None

    def _lock(self):
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                     0o600)
        give_up = time.monotonic() + _BACKLOG_LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    os.close(fd)
                    return None
            time.sleep(0.001)

    def raise_for(self, held_packets):
        """Make room for a release; False if that cannot be done."""
        if not self.writable:
            return False
        self._lock_fd = self._lock()
        if self._lock_fd is None:
            return False
        original = os.pread(self._lock_fd, 32, 0) or os.pread(self._fd, 32, 0)
        os.pwrite(self._lock_fd, original, 0)
        os.pwrite(self._fd, b"%d\n" % (
            int(original) + _PACKETS_PER_HELD * held_packets), 0)
        return True

    def restore(self):
        """Undo raise_for(), also one that a killed process left behind."""
        if not self.writable:
            return
        if self._lock_fd is None:
            self._lock_fd = self._lock()
            if self._lock_fd is None:
                return
        original = os.pread(self._lock_fd, 32, 0)
        if original:
            os.pwrite(self._fd, original, 0)
            os.ftruncate(self._lock_fd, 0)
        os.close(self._lock_fd)
        self._lock_fd = None


def release(lane, netlink):
    """End any hold of a lane, whoever began it.  Safe to repeat.

    Returns when the plug has run empty, with the time the release took
    effect; the filters go last, so that no packet overtakes another.
    """
    try:
        lane.tell_plug(netlink, "release_indefinite")
    except OSError:
        # Not expected; so by another road before giving up.
        run(commands.plug_command(lane, "change", "release_indefinite"))
    released_at = time.monotonic()
    while time.monotonic() < released_at + _DRAIN_S:
        plug = lane.find_plug(netlink)
        if plug is None or not plug.qlen:
            break
        time.sleep(_DRAIN_POLL_S)
    remove_filters(lane, netlink)
    return released_at


def remove_filters(lane, netlink):
    if not lane.gated:
        return
    for preference in lane.preferences:
        try:
            netlink.delete_filters(lane.ifindex, lane.filter_parent,
                                   preference)
        except OSError:
            pass                   # none of that number


def add_filters(lane):
    """Lead what the lane holds to the plug, all in one run of tc."""
    if lane.gated:
        run(["tc", "-batch", "-"],
            "".join(" ".join(command[1:]) + "\n"
                    for command in commands.filter_commands(lane)))


class Hold:
    """One hold of one lane, from begin() to end()."""

    def __init__(self, lane, backlog):
        self._lane = lane
        self._backlog = backlog
        self._netlink = Netlink()
        self._before = None
        self._packets_before = 0
        self._last_empty = 0.0
        self.began = None
        self.waiting = 0           # packets in the plug when last looked

    def fds(self):
        return [self._netlink.fileno(), *self._backlog.fds()]

    def begin(self):
        """ToolError if this lane cannot hold; then nothing is held."""
        lane = self._lane
        problems = lane.problems(self._netlink)
        if problems:
            raise ToolError("; ".join(problems))
        self._before = counters.read(lane, self._netlink)
        self._packets_before = lane.find_plug(self._netlink).packets
        self.began = self._last_empty = time.monotonic()
        lane.tell_plug(self._netlink, "block")
        add_filters(lane)

    def sample(self):
        """Look into the plug, which tells since when something waits."""
        now = time.monotonic()
        plug = self._lane.find_plug(self._netlink)
        self.waiting = plug.qlen if plug else 0
        if not self.waiting:
            self._last_empty = now

    def end(self):
        """Release first, everything else later; return the report."""
        raised = False
        try:
            # lo only: an ifb hands its packets on without a queue.
            if self._lane.mode == "egress":
                raised = self._backlog.raise_for(self._lane.limit_packets)
        except (OSError, ValueError):
            pass
        try:
            released_at = release(self._lane, self._netlink)
            empty_at = time.monotonic()
        finally:
            if raised:
                give_up = time.monotonic() + _DRAIN_S
                while (counters.softnet_waiting() and
                       time.monotonic() < give_up):
                    time.sleep(_DRAIN_POLL_S)
                self._backlog.restore()
        time.sleep(_SETTLE_COUNTERS_S)
        plug = self._lane.find_plug(self._netlink)
        held = (plug.packets - self._packets_before) & 0xFFFFFFFF if plug else 0
        return {
            "device": self._lane.device,
            "held": held,
            "longest_hold_ms": round(1000 * (empty_at - self._last_empty), 1)
            if held else 0.0,
            "hold_ms": round(1000 * (released_at - self.began), 1),
            "drops": counters.growth(
                self._before, counters.read(self._lane, self._netlink)),
        }
