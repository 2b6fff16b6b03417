# SPDX-License-Identifier: GPL-2.0-only
"""The caller's side of a hold: a connection to the lane's watchdog."""

import os
import sys
import time
import _socket as socket       # see __init__.py

from . import watchdog
from .errors import ToolError
from .hold import release
from .plug import Plug

# Longer than a hold of somebody else takes to end, or a setup to be done.
_BUSY_S = 10.0
_RETRY_S = 0.005
# A watchdog that is this late with an answer, or with the end of a hold, does
# not work any more.  (Waited for in parts: of a machine that stood still only
# one has passed.)
_PART_S = 0.1
_ANSWER_PARTS = 10
_OVERDUE_S = 2.0
# It needs so long to report once it has said that it ends.
_END_S = 20.0
_UCRED_BYTES = 12


class Silent(ToolError):
    """A watchdog is there, and does not answer."""

    def __init__(self, connection):
        pid = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                    _UCRED_BYTES)[:4]
        self.pid = int.from_bytes(pid, sys.byteorder)
        super().__init__(f"its watchdog, process {self.pid}, does not answer, "
                         "and may be stopped: run 'qdisc_tool release'")


def connect(state, device):
    """A connection to the watchdog of a lane, or None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_PART_S)
    try:
        connection.connect(state.path(device, "sock"))
        return connection
    except BlockingIOError:        # its queue of connections is full
        raise Silent(connection) from None
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None


def _answer(connection):
    """What comes next; None of a watchdog that has ended."""
    connection.settimeout(_PART_S)
    for _ in range(_ANSWER_PARTS):
        try:
            return watchdog.receive(connection)
        except (TimeoutError, socket.timeout):     # one from Python 3.10 on
            continue
        except OSError:
            return None
    raise Silent(connection)


def _call(connection, *words):
    try:
        watchdog.send(connection, *words)
    except OSError:
        return None
    return _answer(connection)


def _final(connection, message):
    """What follows the word that a hold has ended."""
    try:
        while message and message[0] == "ending":
            connection.settimeout(_END_S)
            message = watchdog.receive(connection)
    except OSError:
        message = None
    return message


def ask(state, device, request):
    """The watchdog's answer to one request, or None if there is none."""
    connection = connect(state, device)
    if connection is None:
        return None
    try:
        return _final(connection, _call(connection, request))
    finally:
        connection.close()


class Holder:
    """A share of a hold."""

    def __init__(self, state, lane, backlog):
        self.lane = lane
        self.ended_by = None       # why the hold ended, once it has
        self.report = None         # what the watchdog said of a whole hold
        self.leaving = False
        self.others = 0            # sharers who went on when this one left
        self._state = state
        self._backlog = backlog
        self._connection = None
        self._child = None         # the watchdog, if it is ours
        self._overdue = 0.0
        # Made now, so that it exists when it is needed.
        self._plug = Plug(lane)

    def acquire(self, max_hold_ms, keep=False):
        """Begin a hold or join one; ToolError if neither is possible."""
        give_up = time.monotonic() + _BUSY_S
        while time.monotonic() < give_up:
            self._connection = connect(self._state, self.lane.device)
            if self._connection is None:
                spawned = watchdog.spawn(self._state, self.lane.device,
                                         self._backlog)
                if spawned is None:
                    time.sleep(_RETRY_S)
                    continue
                self._connection, self._child = spawned
            message = _call(self._connection, "join", max_hold_ms, int(keep))
            if message is None or message[0] in ("ending", "released"):
                self._connection.close()   # met the end of another's hold
                time.sleep(_RETRY_S)
                continue
            if message[0] == "refused":
                self._connection.close()
                raise ToolError(message[1])
            self._overdue = (time.monotonic() + max_hold_ms / 1000 +
                             _OVERDUE_S)
            return
        raise ToolError(f"{self.lane.device} is busy: another setup or clear "
                        "keeps its lock, or one watchdog after the other dies")

    def reap(self):
        """After a SIGCHLD: a watchdog that has ended shall not stay in the
        list of processes for as long as the command runs."""
        if self._child and os.waitpid(self._child, os.WNOHANG)[0]:
            self._child = None

    def _take(self, message):
        """Note what the watchdog said; @message is None if it is dead, or as
        good as dead."""
        if message is None:
            self.ended_by = "death of the watchdog"
            try:
                release(self._plug)
            except OSError:
                pass               # no device, nothing held
            self._backlog.restore()
        elif message[0] == "released":
            self.ended_by, numbers = message[1:]
            if numbers:
                self.report = {"drops": {}}
            for name, number in numbers.items():
                kind, _, name = name.rpartition(".")
                (self.report[kind] if kind else self.report)[name] = number
        elif message[0] == "left":
            self.others = int(message[1])
        self._connection.close()
        self._connection = None

    def look(self):
        """Whether the hold goes on; never waits."""
        if self._connection is None:
            return False
        self._connection.setblocking(False)
        try:
            message = _final(self._connection,
                             watchdog.receive(self._connection))
        except BlockingIOError:
            if time.monotonic() < self._overdue:
                return True
            message = None
        except OSError:
            message = None
        self._take(message)
        return False

    def leave(self):
        """Give the share back; the last one to do so ends the hold."""
        if self._connection and not self.leaving:
            self.leaving = True
            try:
                watchdog.send(self._connection, "leave")
            except OSError:
                pass               # finish() will see why

    def finish(self):
        """After leave(): wait for the report, or for word that others share
        the hold and it goes on."""
        if self._connection:
            try:
                message = _final(self._connection, _answer(self._connection))
            except Silent:
                message = None
            self._take(message)

    def detach(self):
        """Go away and let a hold that was kept go on."""
        self._connection.close()
        self._connection = None
