# SPDX-License-Identifier: GPL-2.0-only
"""The wrapped command, and that of --until.

The one is the caller's in every respect: its standard streams, its open files, its directory, its
network namespace, its signals.  The other hears and says nothing, and can be ended with all that it
began.
"""

import errno
import os
import signal
import time

from .errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND


class Command:
    """A command, to be started when the plug is shut: posix_spawn() copies
    nothing of this process, which a fork would do while packets wait."""

    def __init__(self, words, mask, apart=False):
        self._words, self._mask = words, mask
        self._apart = {"setsid": True, "file_actions": [
            (os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0)
            for fd in range(3)]} if apart else {}
        self._began = 0.0
        self._pid = self.took_ms = None
        self.status = None         # as subprocess has it: -n for a signal
        self.failure = None        # (exit status, why it could not run)

    def start(self):
        self._began = time.monotonic()
        try:
            # The caller's descriptors stay open; ours close by themselves.
            self._pid = os.posix_spawnp(
                self._words[0], self._words, os.environ, setsigmask=self._mask,
                # Python ignores them.
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ), **self._apart)
        except OSError as error:
            self.failure = (
                EXIT_NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR)
                else EXIT_NOT_EXECUTABLE, f"cannot run {self._words[0]}: {error.strerror}")

    @property
    def running(self):
        return self._pid is not None and self.status is None

    def ended(self):
        """Whether it does not run any more."""
        if self.running:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                self.took_ms = round(1000 * (time.monotonic() - self._began), 1)
        return not self.running

    def send_signal(self, number):
        if self.running:
            os.kill(self._pid, number)

    def end_all(self):
        """End it and all that it began; only if it is apart."""
        if self.running:
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
