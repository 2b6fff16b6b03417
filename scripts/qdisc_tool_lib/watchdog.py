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

    caller -> watchdog   {"do": "join", "max_hold_ms": n, "keep": bool}
                         {"do": "leave"} | {"do": "release"} | {"do": "status"}
    watchdog -> caller   {"event": "held"} | {"event": "refused", "why": text}
                         {"event": "left", "others": n}
                         {"event": "status", ...}
                         {"event": "released", "by": cause, "report": {...}}
"""

import json
import os
import select
import signal
import socket
import time

from .errors import ToolError
from .hold import Hold

MESSAGE_BYTES = 65536
# How often a hold is looked at, and at most which part of the time.
_SAMPLE_S = 0.02
_SAMPLE_SHARE = 20
# A watchdog whose caller died before it could join waits this long.
_FIRST_JOIN_S = 2.0
_READY = "ready"
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def send(connection, message):
    connection.send(json.dumps(message).encode())


def spawn(state, device, backlog):
    """Start a watchdog; False if somebody else has the lane just now."""
    # The lock belongs to the caller and the watchdog until one of them exits.
    lock_fd = state.lock(device)
    if lock_fd is None:
        return False
    try:
        # What was known of it before the lock may not be so any more.
        lane = state.load(device)
        if lane is None:
            raise ToolError("it is not set up any more")
        return _spawn(state, lane, backlog, lock_fd)
    finally:
        os.close(lock_fd)


def _spawn(state, lane, backlog, lock_fd):
    ready_fd, child_fd = os.pipe()
    first = os.fork()
    if not first:
        try:
            os.setsid()
            if not os.fork():
                _main(state, lane, backlog, lock_fd, child_fd)
        except Exception as error:
            os.write(child_fd, f"the watchdog cannot start: {error}".encode())
        finally:
            os._exit(0)
    os.close(child_fd)
    os.waitpid(first, 0)
    answer = os.read(ready_fd, 4096).decode()
    os.close(ready_fd)
    if answer != _READY:
        raise ToolError(answer or "the watchdog died at once")
    return True


def _main(state, lane, backlog, lock_fd, ready_fd):
    """The watchdog, from fork to exit."""
    stopped = []
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in _END_SIGNALS:
        signal.signal(number, lambda *_: stopped.append(True))
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
    listener.bind(path)
    listener.listen(64)
    hold = Hold(lane, backlog)
    _detach([ready_fd, lock_fd, wakeup_fd, signal_fd, listener.fileno(),
             *hold.fds()])
    os.write(ready_fd, _READY.encode())
    os.close(ready_fd)
    _Watchdog(hold, listener, path, wakeup_fd, stopped).run()


def _detach(keep):
    """Be nobody's: no file of the caller is kept open, no name that a careless
    'pkill -9 qdisc_tool' would match, and the last to go when memory ends."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null_fd, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass               # the one that listed the others
    os.chdir("/")
    for path, value in (("/proc/self/comm", "plug-watchdog"),
                        ("/proc/self/oom_score_adj", "-1000")):
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(value)
        except OSError:
            pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError:
        pass


class _Watchdog:
    """The event loop of a hold."""

    def __init__(self, hold, listener, path, wakeup_fd, stopped):
        self._hold = hold
        self._listener = listener
        self._path = path
        self._wakeup_fd = wakeup_fd
        self._stopped = stopped
        self._connections = {}     # file descriptor -> socket
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
        next_sample = 0.0
        while self._ended_by is None:
            now = time.monotonic()
            if self._stopped:
                self._ended_by = "signal"
                return
            if now >= self._deadline:
                self._ended_by = "deadline"
                return
            if self._hold.began and now >= next_sample:
                self._hold.sample()
                spent = time.monotonic() - now
                next_sample = now + max(_SAMPLE_S, _SAMPLE_SHARE * spent)
            until = min(self._deadline,
                        next_sample if self._hold.began else self._deadline)
            wait_ms = max(0, 1000 * (until - time.monotonic()))
            for fd, _ in poll.poll(int(wait_ms) + 1):
                if fd == self._listener.fileno():
                    connection, _ = self._listener.accept()
                    self._connections[connection.fileno()] = connection
                    poll.register(connection, select.POLLIN)
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
            data = connection.recv(MESSAGE_BYTES)
            message = json.loads(data) if data else {"do": "leave"}
            return getattr(self, "_do_" + message["do"])(connection, message)
        except OSError:
            return self._leave(fd)

    def _do_join(self, connection, message):
        if self._ended_by:
            return True            # too late; 'released' tells it to try again
        max_hold_s = message["max_hold_ms"] / 1000
        if self._hold.began:
            self._deadline = min(self._deadline,
                                 time.monotonic() + max_hold_s)
        else:
            try:
                self._hold.begin()
            except (ToolError, OSError) as error:
                self._ended_by = "failure"
                send(connection, {"event": "refused", "why": str(error)})
                return True
            self._deadline = self._hold.began + max_hold_s
        self._sharers += 1
        self._kept |= message["keep"]
        self._shares.add(connection.fileno())
        send(connection, {"event": "held"})
        return True

    def _leave(self, fd):
        self._shares.discard(fd)
        if not self._shares and not self._kept and self._hold.began:
            self._ended_by = "last"
        return False

    def _do_leave(self, connection, _message):
        self._leave(connection.fileno())
        if self._ended_by:
            return True            # the report is still to come
        send(connection, {"event": "left", "others": len(self._shares) +
                          self._kept})
        return False

    def _do_release(self, _connection, _message):
        self._ended_by = "release"
        return True

    def _do_status(self, connection, _message):
        began = self._hold.began
        send(connection, {
            "event": "status", "pid": os.getpid(),
            "sharers": len(self._shares) + self._kept,
            "holding": began is not None,
            "held_for_ms": round(1000 * (time.monotonic() - began))
            if began else 0,
            "ends_in_ms": round(1000 * (self._deadline - time.monotonic()))})
        return True

    def _end(self):
        report = None
        try:
            if self._hold.began:
                report = self._hold.end()
                report["sharers"] = self._sharers
        except (OSError, ToolError) as error:
            self._ended_by = f"error: {error}"
        for connection in self._connections.values():
            try:
                send(connection, {"event": "released", "by": self._ended_by,
                                  "report": report})
            except OSError:
                pass
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
