# SPDX-License-Identifier: GPL-2.0-only
"""Run a command while new connections are held."""

import signal
import time
from contextlib import suppress

from .command import Command
from .errors import (EXIT_DROPPED, EXIT_NOT_COVERED, EXIT_OK, EXIT_PASSED, EXIT_SIGNAL,
                     ToolError, words)
from .hold import Hold
from .listeners import Change, Listeners
from .report import report
from .state import Turn
from .system import may_administer
from .witness import Witness

# These end the tool, so they end the hold; then the command gets them too.
_END_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_PASSED_SIGNALS = {signal.SIGUSR1, signal.SIGUSR2}
# si_code of a signal that did not come from a process, but from the terminal:
# it goes to everybody in the foreground, and so to the command already.
_SI_KERNEL = 0x80

# How often to see whether the hold goes on, and whether it may end.
_LOOK_S, _STEP_S = 0.05, 0.01
# Where nobody has said what to wait for: which part of a hold is left when it does not
# wait any longer, and how long it waits for a change to begin.
_SPARE_PART, _BEGIN_PART, _BEGIN_MOST_S = 10, 3, 1.0
# How long the witness looks before a hold, so that it knows the handshakes that go on:
# the longest round trip of clients.
_WITNESS_S = 0.3
# How often to see whether servers have accepted what came before, at most for which part
# of a hold, and for how long: one that is to be restarted may accept nothing any more.
_PAUSE_STEP_S, _PAUSE_PART, _PAUSE_MOST_MS = 0.002, 3, 5000
# Where the servers are elsewhere nobody can be asked for handshakes; one with a client
# in the same town is over by then.
_UNKNOWN_PAUSE_MS = 50


class _Stopped(Exception):
    """A signal to end arrived."""


def _gates(tool):
    """A reload is never refused for want of protection, unless that was
    asked for: the running configuration may be the one that is broken."""
    try:
        if not may_administer():
            raise ToolError("holding connections needs root (CAP_NET_ADMIN, CAP_NET_RAW "
                            "and CAP_BPF)")
        tool.enter_namespace()
        return tool.gates(some=True)
    except (ToolError, OSError) as error:
        if tool.options.require:
            raise
        tool.reporter.warn(f"running the command unprotected: {words(error)}")
        return []


def _of_connections(gates):
    return [gate for gate in gates if not gate.all_packets]


class Protect:
    """One run of 'protect'."""

    def __init__(self, tool):
        self._tool = tool
        self._options = options = tool.options
        self._reporter = tool.reporter
        self._holds = []
        self._witness = None
        self._listeners = None
        self._change = None        # of who listens on held ports
        self._ends = float("inf")  # when no hold shall be waited for any more
        self._waited = {"for": "", "ms": 0, "in_vain": ""}
        self._held = False         # every device that was to be held
        self._covered = True       # the holds lasted until then
        self._stopped_by = 0
        self._watched = {number for number in _END_SIGNALS | _PASSED_SIGNALS
                         if signal.getsignal(number) != signal.SIG_IGN}
        self._watched.add(signal.SIGCHLD)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        self._command = Command(options.command, self._old_mask)

    def run(self):
        """Hold, pause, run, wait, release, report; return the status."""
        try:
            gates = _gates(self._tool)
            ready = self._acquire(gates)
            if self._tool.namespace:
                self._tool.namespace.leave()
            self._pause()
            self._command.start()
            self._wait(self._command.ended)
            if self._command.status == 0 and self._holding():
                while ready and self._holding() and not ready():
                    self._sleep(_STEP_S)
                self._see_change(wait=not ready)
                self._witness.freeze()         # all it has seen came before the deadline,
                self._holding()                # unless that is over now
        except _Stopped:
            pass
        finally:
            self._leave()
            self._wait(self._command.ended)    # it may outlive the hold
        return self._conclude()

    def _leave(self, cause="protect"):
        if self._witness:
            self._witness.freeze()
        for hold in self._holds:               # open first
            hold.open(cause)
        if self._witness:
            self._witness.end()
        for hold in self._holds:
            hold.close()

    def _turns(self, gates):
        """(gate, its turn): when nobody else holds by it any more.  In one order, or
        two callers might wait for each other."""
        turns = []
        for gate in sorted(gates, key=lambda gate: gate.device):
            try:
                turn = Turn(self._tool.state, gate.device).take(
                    turns, self._sleep, lambda gate=gate: self._reporter.note(
                        f"{gate.device}: waits for the end of another hold"))
                # What was known before may not be so any more.
                gate = self._tool.state.load(gate.device)
                if gate is None:
                    turn.leave()
                    raise ToolError("it is not set up any more")
                turns.append(turn)
                yield gate, turn
            except (ToolError, OSError) as error:
                self._is_unprotected(gate, error)

    def _is_unprotected(self, gate, error):
        if self._options.require:
            raise ToolError(f"{gate.device}: {words(error)}; the command was "
                            "not run (--require)") from error
        self._reporter.warn(f"{gate.device}: not protected: {words(error)}")
        self._held = False

    def _acquire(self, gates):
        """Begin the holds; return what _readiness() does."""
        self._held = bool(gates)
        turns = list(self._turns(gates))
        # Only now: whoever held before may have changed who listens.
        ready = self._readiness([gate for gate, _ in turns]) if turns else None
        for gate, turn in turns:
            gate.max_hold_ms = self._options.max_hold_ms or gate.max_hold_ms
            try:
                if not self._witness:
                    self._witness = Witness()
                    self._watch_handshakes(_of_connections(gate for gate, _ in turns))
                hold = Hold(gate, turn)
                hold.begin("protect")
                self._holds.append(hold)
                self._ends = min(self._ends, time.monotonic() + gate.max_hold_ms *
                                 (1 - 1 / _SPARE_PART) / 1000)
            except (ToolError, OSError) as error:
                turn.leave()
                self._is_unprotected(gate, error)
        if self._holds:
            self._witness.begin()
        return ready

    def _pause(self):
        """Let what began before the hold come to its end."""
        began = time.monotonic()
        pause_ms = self._options.pause_ms
        if pause_ms is None:
            pause_ms = self._wait_for_accepted(_of_connections(hold.gate for hold in self._holds))
        self._sleep(began + pause_ms / 1000 - time.monotonic())

    def _watch_handshakes(self, gates):
        """Know those that go on when the hold begins, while that keeps nobody waiting."""
        until = time.monotonic() + _WITNESS_S
        while gates and self._options.pause_ms is None and time.monotonic() < until:
            self._sleep(_STEP_S)
            with suppress(OSError, AttributeError):        # nobody can tell
                self._witness.handshakes(gates, self._listeners)

    def _wait_for_accepted(self, gates):
        """Wait until the servers have accepted what came before; return for how
        long to wait at least, where nobody can tell which handshakes go on."""
        most_ms = min((gate.max_hold_ms / _PAUSE_PART for gate in gates), default=0)
        give_up = time.monotonic() + min(_PAUSE_MOST_MS, most_ms) / 1000
        while time.monotonic() < give_up:
            try:
                # in the order in which a connection goes from the one to the other
                going_on = self._witness.handshakes(gates, self._listeners)
                queues = [self._listeners.accepts_here(gate.holds_port) for gate in gates]
            except (AttributeError, OSError):
                return _UNKNOWN_PAUSE_MS
            if not going_on and not any(waiting for _, waiting in queues):
                return 0 if all(served for served, _ in queues) else _UNKNOWN_PAUSE_MS
            self._sleep(_PAUSE_STEP_S)
        return 0

    # What --until and --until-new-port wait for.

    def _readiness(self, gates):
        """A function that tells whether the hold may end; None if nobody has said when."""
        port = self._options.until_new_port

        def on_port():
            return set().union(*listeners.places(lambda one: one == port).values())

        def taken_over():
            now = on_port()
            return now and not now & before
        try:
            self._listeners = listeners = Listeners()
            before = on_port() if port else set()
            self._change = Change(listeners, lambda port: any(
                gate.holds_port(port) for gate in _of_connections(gates)))
        except OSError as error:
            self._reporter.warn(f"cannot see who listens ({error}); the hold "
                                "ends with the command")
            port = None
        return self._probe if self._options.until else taken_over if port else None

    def _probe(self):
        """Whether the command of --until succeeds now."""
        probe = Command(["/bin/sh", "-c", self._options.until], self._old_mask, apart=True)
        probe.start()
        try:
            self._wait(lambda: probe.ended() or not self._holding())
        finally:
            probe.end_all()
        return probe.status == 0

    def _see_change(self, wait):
        """Wait until the listeners have changed as far as they will, in most
        of the time that the hold has."""
        change = self._change
        if change is None:
            return
        began = now = time.monotonic()
        begins = began + min(_BEGIN_MOST_S, (self._ends - began) / _BEGIN_PART)
        while not change.look() and wait and self._holding():
            now = time.monotonic()
            if now >= (self._ends if change.danger else begins):
                break
            self._waited["for"] = change.danger or change.not_begun
            self._sleep(_STEP_S)
        self._waited["ms"] = round(1000 * (time.monotonic() - began), 1)
        self._waited["in_vain"] = change.danger

    # Waiting, and what may happen meanwhile.

    def _wait(self, condition, until=None):
        """Wait for a condition, or for a time, and take signals."""
        while not condition():
            wait_s = _LOOK_S if self._holding() else 3600.0
            if until is not None:
                wait_s = min(wait_s, until - time.monotonic())
                if wait_s <= 0:
                    return
            info = signal.sigtimedwait(self._watched, wait_s)
            if info:
                self._take_signal(info)

    def _sleep(self, wait_s):
        self._wait(lambda: False, time.monotonic() + wait_s)

    def _take_signal(self, info):
        if info.si_signo in _END_SIGNALS:
            self._leave()
        if info.si_signo != signal.SIGCHLD and info.si_code != _SI_KERNEL:
            self._command.send_signal(info.si_signo)
        if info.si_signo in _END_SIGNALS and not self._stopped_by:
            self._stopped_by = info.si_signo
            raise _Stopped

    def _holding(self):
        """Whether the hold goes on.  It ends on all devices at once; says so when that
        is too early."""
        if not self._holds or self._holds[0].ended_by:
            return False
        self._witness.look()
        for hold in self._holds:
            try:
                cause = hold.look()
            except OSError as error:
                cause = words(error)
            if cause:
                self._leave(cause)
                self._covered = False
                what = "the command did" if self._command.running else \
                    "what was waited for had come"
                self._reporter.warn(
                    f"{hold.gate.device}: the hold ended before {what} ({cause}); new "
                    "connections are not held")
                return False
        return True

    # The end.

    def _conclude(self):
        status = self._status()
        if self._tool.namespace and self._holds:
            self._tool.namespace.enter()       # where what is looked at is
        holds = [hold.report() for hold in self._holds]
        # so far as is known
        covered = self._held and self._covered and all("held" in hold for hold in holds)
        passed = self._witness.passed([hold.gate for hold in self._holds]) if holds else {}
        sure = not holds or self._witness.is_sure
        held = sum(hold.get("held", 0) for hold in holds)
        dropped = sum(hold.get("dropped", 0) for hold in holds)
        if status == EXIT_OK and not self._options.allow_unprotected:
            status = EXIT_NOT_COVERED if not covered else EXIT_PASSED if passed else \
                EXIT_DROPPED if dropped else EXIT_OK
        report(self._reporter, {
            "exit_status": status, "command_status": self._command.status,
            "command_ms": self._command.took_ms,
            "covered": covered and not self._stopped_by and not passed and sure and
            bool(held or not any(hold["remarks"] for hold in holds)),
            "waited": self._waited,
            "dropped": dropped, "passed": passed,
            "passed_is_sure": sure,
            "holds": holds})
        return status

    def _status(self):
        if self._command.failure:
            status, why = self._command.failure
            self._reporter.warn(why)
            return status
        status = self._command.status or -self._stopped_by     # None: it did not run
        return EXIT_SIGNAL - status if status < 0 else status
