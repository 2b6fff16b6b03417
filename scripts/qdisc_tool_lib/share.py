# SPDX-License-Identifier: GPL-2.0-only
"""Who has a part in a hold, and when it ends.

A hold is a file, DEVICE.hold, from before the plug is shut until after it is
open.  Each caller with a part in it keeps a lock (flock) on that file, shared
with the others, which the kernel takes away when its process dies.  Who leaves
and gets the lock alone is the last, and ends the hold.  All of this is done
under the lock of the gate (state.py), which is kept for moments only.

A file that nobody has locked is a hold that was left behind.  A file that is
not in its directory any more belongs to a hold that has ended: 'release' ends
one by removing the file, whatever becomes of those who have it open.

A caller may die.  Its guard, a process of its own, sees that (a pipe closes)
and leaves in its place; and at the deadline, if the caller stands still.  If
both die, or stand still, the kernel lets go what waits (plug.py).
"""

import fcntl
import os
import select
import time
import _signal as signal      # see __init__.py

from .errors import ToolError
from .hold import Hold, release
from .plug import Plug

# Longer than another takes to begin or end a hold, or to set up.
_BUSY_S = 10.0
_LOOK_MS = 50
# So late is only who stands still.
_LATE_S = 1.0
# For a guard: who had no CPU between so many looks after the deadline, or has not
# ended the hold after many more.  On a busy machine all are late, and by the clock it
# would be in its caller's way.
_LATE_LOOKS = int(1000 * _LATE_S / _LOOK_MS)
_MOST_LOOKS = 5 * _LATE_LOOKS
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def _facts(fd):
    """What the file of a hold says: began, packets, traffic, until (the
    latest), shares, ended."""
    facts = {"until": 0.0, "shares": 0, "ended": ""}
    for line in os.pread(fd, 1 << 16, 0).decode().splitlines():
        name, _, value = line.partition("=")
        if name == "until":
            facts["until"] = max(facts["until"], float(value))
            facts["shares"] += 1
        else:
            facts[name] = value if name == "ended" else float(value)
    return facts


def _write(fd, **values):
    try:
        os.write(fd, "".join(f"{name}={value}\n" for name, value in
                             values.items()).encode())
    except OSError as error:
        error.filename = os.readlink(f"/proc/self/fd/{fd}")
        raise


def _alone(fd):
    """Whether nobody else has a part; then the lock is this one's alone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def switches(pid):
    """What changes whenever a process has had the CPU."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return [line for line in file if "ctxt" in line]
    except OSError:
        return None


def _abandoned(fd):
    """Whether nobody will end the hold of this file."""
    return _alone(fd) or time.monotonic() > _facts(fd)["until"] + _LATE_S


def _open(path, flags=0):
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags,
                       0o600)
    except FileNotFoundError:
        return None


def found(state, device):
    """(what is known of a hold that goes on, or None; whether it was left
    behind).  To be asked under the gate's lock."""
    fd = _open(state.path(device, "hold"))
    if fd is None:
        return None, False
    try:
        return _facts(fd), _abandoned(fd)
    finally:
        os.close(fd)


def remove(state, device, cause):
    """Say that the hold has ended, to all who have a part in it."""
    path = state.path(device, "hold")
    try:
        with open(path, "r+", encoding="utf-8") as file:
            file.seek(0, os.SEEK_END)
            file.write(f"ended={cause}\n")
    except OSError:
        pass                       # a full disk: they learn no cause
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


class Share:
    """A part in the hold of one gate."""

    def __init__(self, state, gate):
        self.gate = gate
        self.ended_by = None       # why it ended, once it has
        self.report = None         # of the whole hold, by the last who leaves
        self.others = False        # it goes on, for others
        self._state = state
        self.hold = None
        self._fd = None            # of the file
        self._ends = 0.0
        self._pipe_fd = None
        self._guard = None
        self._ended = None         # what finish() reports of

    def take(self, max_hold_ms, keep=False):
        """Begin a hold, or join one; ToolError if neither is possible.  One
        to @keep goes on without this process."""
        device = self.gate.device
        lock_fd = self._state.must_lock(device, _BUSY_S)
        try:
            # What was known before the lock may not be so any more.
            self.gate = self._state.load(device)
            if self.gate is None:
                raise ToolError("it is not set up any more")
            self.hold = Hold(self.gate)
            path = self._state.path(device, "hold")
            self._fd = _open(path)
            if self._fd is not None:
                if _abandoned(self._fd):
                    remove(self._state, device, "another hold")
                fcntl.flock(self._fd, fcntl.LOCK_SH)
                if not os.fstat(self._fd).st_nlink:
                    os.close(self._fd)     # it has ended
                    self._fd = None
            new = self._fd is None
            if new:
                self._fd = _open(path, os.O_CREAT | os.O_EXCL)
                fcntl.flock(self._fd, fcntl.LOCK_SH)
            self._ends = time.monotonic() + max_hold_ms / 1000
            try:
                _write(self._fd, until=self._ends)
                self._set_guard(keep, new)
                self.hold.begin(max_hold_ms if new else None,
                                lambda **facts: _write(self._fd, **facts))
                self._ends = time.monotonic() + max_hold_ms / 1000
                if not os.fstat(self._fd).st_nlink:
                    self.hold.end(_facts(self._fd))
                    raise ToolError("released as it began")
            except (ToolError, OSError):
                if new:
                    remove(self._state, device, "failure")
                self._close()
                raise
        finally:
            os.close(lock_fd)

    def _set_guard(self, keep, wait):
        read_fd, self._pipe_fd = os.pipe()
        ready_fd, its_ready_fd = os.pipe()
        self._guard = os.fork()
        if not self._guard:
            try:
                self._be_guard(read_fd, its_ready_fd, keep)
            finally:
                os._exit(0)
        os.close(read_fd)
        os.close(its_ready_fd)
        if wait:                   # It shall not need the CPU in a hold.
            select.select([ready_fd], [], [], _LATE_S)
        os.close(ready_fd)

    def _be_guard(self, pipe_fd, ready_fd, keep):
        caller, had = os.getppid(), None
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        plug = Plug(self.gate)
        _detach([self._fd, pipe_fd, *plug.fds(), ready_fd])
        os.close(ready_fd)
        poll = select.poll()
        still, late = 0, _MOST_LOOKS
        if not keep:
            late = 0
            poll.register(pipe_fd, select.POLLIN)
        cause = "deadline; its guard ended it, and what it held is not counted"
        while (left_s := self._ends - time.monotonic()) > 0 or \
                still < _LATE_LOOKS and late < _MOST_LOOKS:
            if left_s <= 0:
                had, before = switches(caller), had
                still = still + 1 if had == before else 0
                late += 1
            if poll.poll(min(_LOOK_MS, 1 + int(1000 * left_s)) if left_s > 0
                         else _LOOK_MS):
                if os.read(pipe_fd, 1):
                    return         # it has left itself
                cause = "death of its process"
                break
            if not os.fstat(self._fd).st_nlink:
                return
        self._pipe_fd = None       # the caller's end
        self.leave(cause, lambda _: release(plug))

    def reap(self):
        """After a SIGCHLD: a guard that has ended shall not stay in the list
        of processes for as long as the command runs."""
        if self._guard and os.waitpid(self._guard, os.WNOHANG)[0]:
            self._guard = None

    def look(self):
        """Whether the hold goes on for this one."""
        if self._fd is not None and not os.fstat(self._fd).st_nlink:
            self.ended_by = _facts(self._fd)["ended"] or "release"
            self._close()
        elif self._fd is not None and time.monotonic() >= self._ends:
            self.leave("deadline")
            self.finish()
        return self._fd is not None

    def leave(self, cause="last", end=None):
        """Give the share back; the last one to do so ends the hold."""
        if self._fd is None:
            return
        device = self.gate.device
        try:
            # One who was stopped there keeps nobody from opening for ever.
            lock_fd = self._state.lock(device, max(
                _LATE_S, self._ends - time.monotonic()))
        except OSError:
            lock_fd = None         # to open comes first
        facts = _facts(self._fd)
        self.ended_by = cause
        if not os.fstat(self._fd).st_nlink:
            self.ended_by = facts["ended"] or "release"
        elif not _alone(self._fd):
            self.others = True
        else:
            try:
                (end or self.hold.end)(facts)
                self._ended = facts
            except OSError as error:
                self.ended_by = f"error: {error}"
            remove(self._state, device, self.ended_by)
        if lock_fd is not None:
            os.close(lock_fd)
        self._close()

    def finish(self):
        """After leave(): the report, if it was this one's to end the hold."""
        facts, self._ended = self._ended, None
        if facts:
            self.report = {**self.hold.report(facts),
                           "sharers": facts["shares"]}

    def _close(self):
        """Have no part any more."""
        os.close(self._fd)
        self._fd = None
        if self._pipe_fd is not None:
            try:
                os.write(self._pipe_fd, b"x")
            except OSError:
                pass               # the guard has ended before
            os.close(self._pipe_fd)
            self._pipe_fd = None


def _detach(keep):
    """Be nobody's: no file of the caller is kept open, no name that a careless
    'pkill -9 qdisc_tool' would match, and the last to go when memory ends."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null_fd, fd)
    first = 3
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    for path, value in (("comm", "plug-guard"), ("oom_score_adj", "-1000")):
        try:
            with open(f"/proc/self/{path}", "w", encoding="utf-8") as file:
                file.write(value)
        except OSError:
            pass
