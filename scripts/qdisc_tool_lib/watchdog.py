# SPDX-License-Identifier: GPL-2.0-only
"""The process that owns a hold, and ends it whatever happens to the others.

It exists before the hold, in a session of its own, and is the only process
that shuts the plug.  Callers connect to its socket; a connection is a share of
the hold, and closes by itself when its process dies, by whatever signal.  The
hold ends
  - when the last share is gone,
  - at the earliest deadline that any sharer brought,
  - on request ('release'), and on a signal to the watchdog;
then the plug is opened, and only then is anything else done.  Should the
watchdog be killed with no chance to do that, its sharers see their connection
close and open the plug themselves (holder.py).

While it lives it keeps the lane's lock.  A caller who finds neither a watchdog
nor the lock free comes between two holds, and tries again.  Should it be
stopped or starved, a sharer who hears nothing of it two seconds after the
deadline opens the plug too.

    caller -> watchdog   join MAX_HOLD_MS KEEP | leave | release | status
    watchdog -> caller   held | refused WHY | left OTHERS | ending
                         status
                         released CAUSE     (these two with lines NAME=NUMBER)
"""

import os
import select
import time
import _signal as signal      # see __init__.py
import _socket as socket

from .errors import ToolError
from .hold import Hold

MESSAGE_BYTES = 65536
# How often a hold is looked at, and at most which part of the time.
_SAMPLE_S = 0.02
_SAMPLE_SHARE = 20
# A watchdog whose caller died before it could join waits this long.
_FIRST_JOIN_S = 2.0
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def send(connection, *words, **numbers):
    """Words, of which the last may hold blanks, and numbers."""
    connection.send("\n".join(
        [" ".join(map(str, words)).replace("\n", " "),
         *(f"{name}={number}" for name, number in numbers.items())]).encode())


def receive(connection):
    """[word, the rest], and {name: number}; None from a watchdog that died."""
    data = connection.recv(MESSAGE_BYTES)
    if not data:
        return None
    words, *lines = data.decode().split("\n")
    numbers = {}
    for line in lines:
        name, _, number = line.partition("=")
        numbers[name] = float(number) if "." in number else int(number)
    word, _, rest = words.partition(" ")
    return word, rest, numbers


def spawn(state, device, backlog):
    """A connection to a new watchdog, and its process id; None if somebody
    else has the lane just now."""
    # The lock belongs to the caller and the watchdog until one of them exits.
    lock_fd = state.lock(device)
    if lock_fd is None:
        return None
    try:
        # What was known of it before the lock may not be so any more.
        lane = state.load(device)
        if lane is None:
            raise ToolError("it is not set up any more")
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if not pid:
            try:
                _main(state, lane, backlog, lock_fd, its)
            except Exception as error:
                send(its, "refused", "the watchdog cannot start:", error)
            finally:
                os._exit(0)
        its.close()
        return ours, pid
    finally:
        os.close(lock_fd)


def _main(state, lane, backlog, lock_fd, connection):
    """The watchdog, from fork to exit."""
    os.setsid()
    stopped = []
    for number in _END_SIGNALS:
        signal.signal(number, lambda *_: stopped.append(True))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    wakeup_fd, signal_fd = os.pipe()
    os.set_blocking(wakeup_fd, False)
    os.set_blocking(signal_fd, False)
    signal.set_wakeup_fd(signal_fd)
    path = state.path(lane.device, "sock")
    try:
        os.unlink(path)            # of a watchdog that was killed
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(path)
    except OSError as error:
        raise ToolError(f"cannot make {path}: {error.strerror}") from error
    listener.listen(64)
    hold = Hold(lane, backlog)
    _detach([lock_fd, wakeup_fd, signal_fd, listener.fileno(),
             connection.fileno(), *hold.fds()])
    _Watchdog(hold, listener, connection, path, wakeup_fd, stopped).run()


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
    for path, value in (("comm", "plug-watchdog"), ("oom_score_adj", "-1000")):
        try:
            with open(f"/proc/self/{path}", "w", encoding="utf-8") as file:
                file.write(value)
        except OSError:
            pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError:
        pass


class _Watchdog:
    """The event loop of a hold."""

    def __init__(self, hold, listener, connection, path, wakeup_fd, stopped):
        self._hold = hold
        self._listener = listener
        self._path = path
        self._wakeup_fd = wakeup_fd
        self._stopped = stopped
        # file descriptor -> socket
        self._connections = {connection.fileno(): connection}
        self._shares = set()       # file descriptors that hold a share
        self._kept = False         # a share without a process ('hold')
        self._deadline = time.monotonic() + _FIRST_JOIN_S
        self._ended_by = None
        self._sharers = 0

    def run(self):
        try:
            self._loop()
        except Exception as error:  # whatever it is, the plug must open
            self._ended_by = f"error: {error}"
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
            self._end()

    def _loop(self):
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wakeup_fd, select.POLLIN)
        for fd in self._connections:
            poll.register(fd, select.POLLIN)
        next_sample = 0.0
        while self._ended_by is None:
            now = time.monotonic()
            if self._stopped:
                self._ended_by = "signal"
                return
            if now >= self._deadline:
                self._ended_by = "deadline"
                return
            if not self._hold.began:
                next_sample = now + _SAMPLE_S
            elif now >= next_sample:
                self._hold.sample()
                spent = time.monotonic() - now
                next_sample = now + max(_SAMPLE_S, _SAMPLE_SHARE * spent)
            until = min(self._deadline,
                        next_sample if self._hold.began else self._deadline)
            wait_ms = max(0, 1000 * (until - time.monotonic()))
            for fd, _ in poll.poll(int(wait_ms) + 1):
                if fd == self._listener.fileno():
                    fd, _ = self._listener._accept()
                    self._connections[fd] = socket.socket(fileno=fd)
                    poll.register(fd, select.POLLIN)
                elif fd == self._wakeup_fd:
                    os.read(fd, 64)
                elif not self._serve(fd):
                    poll.unregister(fd)
                    if fd in self._connections:
                        self._connections.pop(fd).close()

    def _serve(self, fd):
        """Answer one message; False if this connection is done with."""
        connection = self._connections[fd]
        try:
            word, rest, _ = receive(connection) or ("leave", "", {})
            return getattr(self, "_do_" + word)(connection, rest.split())
        except OSError:
            return self._leave(fd)

    def _do_join(self, connection, arguments):
        if self._ended_by:
            return True            # too late; 'released' tells it to try again
        max_hold_ms, keep = map(int, arguments)
        first = not self._hold.began
        if first:
            try:
                self._hold.begin(max_hold_ms)
            except (ToolError, OSError) as error:
                self._ended_by = "failure"
                send(connection, "refused", error)
                return True
        end = time.monotonic() + max_hold_ms / 1000
        self._deadline = end if first else min(end, self._deadline)
        self._sharers += 1
        self._kept |= bool(keep)
        self._shares.add(connection.fileno())
        send(connection, "held")
        return True

    def _leave(self, fd):
        self._shares.discard(fd)
        if not self._shares and not self._kept and self._hold.began:
            self._ended_by = "last"
        return False

    def _do_leave(self, connection, _arguments):
        self._leave(connection.fileno())
        if self._ended_by:
            return True            # the report is still to come
        send(connection, "left", len(self._shares) + self._kept)
        return False

    def _do_release(self, _connection, _arguments):
        self._ended_by = "release"
        return True

    def _do_status(self, connection, _arguments):
        began = self._hold.began
        now = time.monotonic()
        send(connection, "status", pid=os.getpid(),
             sharers=len(self._shares) + self._kept,
             holding=int(began is not None),
             held_for_ms=round(1000 * (now - began)) if began else 0,
             ends_in_ms=round(1000 * (self._deadline - now)))
        return True

    def _end(self):
        report = {}
        try:
            if self._hold.began:
                self._hold.open()
            self._tell("ending")
            # Who has not been heard comes again when the lock is free.
            self._listener.close()
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
            if self._hold.began:
                report = self._hold.end()
                report["sharers"] = self._sharers
        except (OSError, ToolError) as error:
            self._ended_by = f"error: {error}"
        self._tell("released", self._ended_by, **report)

    def _tell(self, *words, **numbers):
        for connection in self._connections.values():
            try:
                send(connection, *words, **numbers)
            except OSError:
                pass
