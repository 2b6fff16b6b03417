# SPDX-License-Identifier: GPL-2.0-only
"""The longest per-CPU receive queue, a setting of the whole host.

On loopback and through a veth all that is released at once goes through such a
queue (1,000 packets by default) and what does not fit is lost, so it is raised
for the length of a hold.
"""

import fcntl
import os

_SYSCTL = "/proc/sys/net/core/netdev_max_backlog"
# A released SYN brings a SYN-ACK and an ACK to the same queue.
_PACKETS_PER_HELD = 3


class Backlog:
    """Raises it, and restores it.

    The lock file holds the value to restore, so that it is restored even if
    the process that raised it was killed.
    """

    def __init__(self, state):
        """To be made before another network namespace is entered."""
        self._lock_path = os.path.join(state.top, "netdev_max_backlog")
        self._lock_fd = None
        self._original = 0
        try:
            self._fd = os.open(_SYSCTL, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._fd = None        # a container, or not root

    def fds(self):
        return [] if self._fd is None else [self._fd]

    @property
    def writable(self):
        return self._fd is not None

    def _lock(self):
        """Whether the lock is ours; if not, another hold has raised it."""
        if self.writable and self._lock_fd is None:
            fd = os.open(self._lock_path,
                         os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock_fd = fd
            except BlockingIOError:
                os.close(fd)
        return self._lock_fd is not None

    def raise_for(self, held_packets):
        """Make room for the release of so many, if that can be done."""
        if self._original or not self._lock():
            return
        original = os.pread(self._lock_fd, 32, 0) or os.pread(self._fd, 32, 0)
        os.pwrite(self._lock_fd, original, 0)
        self._original = int(original)
        os.pwrite(self._fd, b"%d\n" % (
            self._original + _PACKETS_PER_HELD * held_packets), 0)

    def still_needed(self, waiting):
        """Whether so many packets could fill the queue as it was before."""
        return self._original and waiting > self._original / 2

    def restore(self):
        """Undo raise_for(), also one that a killed process left behind."""
        if not os.path.exists(self._lock_path) or not self._lock():
            return
        original = os.pread(self._lock_fd, 32, 0)
        if original:
            os.pwrite(self._fd, original, 0)
            os.ftruncate(self._lock_fd, 0)
        os.close(self._lock_fd)
        self._lock_fd = None
        self._original = 0
