# SPDX-License-Identifier: GPL-2.0-only
"""Run a command while new connections are held.

The command is the caller's in every respect: its standard streams, its open
files, its user, its directory, its network namespace, its signals and its
exit status.
"""

import os
import pwd
import signal
import subprocess
import time

from .errors import (EXIT_DROPPED, EXIT_NOT_COVERED, EXIT_NOT_EXECUTABLE,
                     EXIT_NOT_FOUND, EXIT_OK, EXIT_SIGNAL, ToolError)
from .holder import Holder
from .netlink import Listeners

# These end the tool, so they end the hold; then the command gets them too.
_END_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_PASSED_SIGNALS = {signal.SIGUSR1, signal.SIGUSR2}
# si_code of a signal that did not come from a process, but from the terminal:
# it goes to everybody in the foreground, and so to the command already.
_SI_KERNEL = 0x80

# How often to see whether the hold goes on, and whether --until is met.
_LOOK_S = 0.05
_UNTIL_STEP_S = 0.01


class _Stopped(Exception):
    """A signal to end arrived."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def settle_of(options, lanes):
    """How long to wait between the hold of @lanes and the command."""
    if lanes and options.settle_ms is not None:
        return options.settle_ms
    return max((lane.settle_ms for lane in lanes), default=0)


class Protect:
    """One run of 'protect'."""

    def __init__(self, options, reporter, namespace):
        self._options = options
        self._identity = _identity(options.user)
        self._reporter = reporter
        self._namespace = namespace
        self._holders = []
        self._child = None
        self._done = False         # the command, and what --until waits for
        self._covered = True       # the holds lasted until then
        self._stopped_by = 0
        self._start_status = EXIT_OK
        self._watched = {number for number in _END_SIGNALS | _PASSED_SIGNALS
                         if signal.getsignal(number) != signal.SIG_IGN}
        self._watched.add(signal.SIGCHLD)
        self._old_mask = None

    def run(self, state, lanes, backlog):
        """Hold, settle, run, wait, release, report; return the status."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK,
                                                self._watched)
        try:
            self._acquire(state, lanes, backlog)
            ready = self._readiness()
            if self._namespace:
                self._namespace.leave()
            self._settle()
            self._start()
            self._wait(self._child_ended)
            if not self._child.returncode:
                self._wait_until(ready)
            self._done = True
        except _Stopped as stopped:
            self._stopped_by = stopped.number
        except _CannotStart as failure:
            self._start_status = failure.status
            self._reporter.warn(str(failure))
        finally:
            for holder in self._holders:
                holder.leave()
            self._end_child()
            for holder in self._holders:
                holder.finish()
        return self._conclude()

    def _acquire(self, state, lanes, backlog):
        for lane in lanes:
            holder = Holder(state, lane, backlog)
            max_hold_ms = self._options.max_hold_ms or lane.max_hold_ms
            try:
                holder.acquire(max_hold_ms)
                self._holders.append(holder)
            except (ToolError, OSError) as error:
                if self._options.require:
                    raise ToolError(f"{lane.device}: {error}; the command was "
                                    "not run (--require)") from error
                self._reporter.warn(f"{lane.device}: not protected: {error}")

    def _settle(self):
        """Let handshakes that began before the hold come to their end."""
        settle_ms = settle_of(self._options, [holder.lane for holder
                                              in self._holders])
        self._wait(lambda: False, time.monotonic() + settle_ms / 1000)

    def _start(self):
        name = self._options.command[0]
        try:
            # The caller's descriptors stay open; ours close by themselves.
            self._child = subprocess.Popen(
                self._options.command, close_fds=False,
                preexec_fn=self._restore_mask, **self._identity)
        except FileNotFoundError as error:
            raise _CannotStart(EXIT_NOT_FOUND, name, error) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise _CannotStart(EXIT_NOT_EXECUTABLE, name, error) from error

    def _restore_mask(self):
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)

    def _child_ended(self):
        return self._child.poll() is not None

    # What --until, --until-port and --until-new-port wait for.

    def _readiness(self):
        """A function that tells whether the hold may end."""
        options = self._options
        if options.until:
            return self._probe
        port = options.until_port or options.until_new_port
        if not port:
            return lambda: True
        try:
            listeners = Listeners()
            before = set(listeners.on_port(port))
        except OSError as error:
            self._reporter.warn(f"cannot see who listens ({error}); the hold "
                                "ends with the command")
            return lambda: True
        if options.until_port:
            return lambda: listeners.on_port(port)
        return lambda: set(listeners.on_port(port)) - before

    def _probe(self):
        """Whether the command of --until succeeds now."""
        probe = subprocess.Popen(
            ["/bin/sh", "-c", self._options.until], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=self._restore_mask)
        try:
            self._wait(lambda: probe.poll() is not None or
                       not self._holding())
        finally:
            if probe.poll() is None:
                os.killpg(probe.pid, signal.SIGKILL)
                probe.wait()
        return probe.returncode == 0

    def _wait_until(self, ready):
        while self._holding() and not ready():
            self._wait(lambda: False, time.monotonic() + _UNTIL_STEP_S)

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

    def _take_signal(self, info):
        if info.si_signo in _END_SIGNALS:
            for holder in self._holders:
                holder.leave()
        if (info.si_signo != signal.SIGCHLD and self._child and
                info.si_code != _SI_KERNEL):
            self._child.send_signal(info.si_signo)
        if info.si_signo in _END_SIGNALS and not self._stopped_by:
            raise _Stopped(info.si_signo)

    def _holding(self):
        """Whether a hold goes on; says so when one ended too early."""
        holding = False
        for holder in self._holders:
            if holder.ended_by or holder.leaving:
                continue
            if holder.look():
                holding = True
                continue
            self._covered = False
            self._reporter.warn(
                f"{holder.lane.device}: the hold ended before the command "
                f"did ({holder.ended_by}); new connections are not held")
            if self._options.kill and self._child:
                self._reporter.warn("ending the command (--kill)")
                self._child.terminate()
        return holding

    def _end_child(self):
        """Wait for a command that outlives the hold."""
        if self._child:
            self._wait(self._child_ended)

    # The end.

    def _conclude(self):
        status = self._status()
        holds = []
        for holder in self._holders:
            hold = holder.report or {"device": holder.lane.device}
            hold["ended_by"] = holder.ended_by
            hold["others"] = holder.others
            holds.append(hold)
        dropped = sum(sum(hold.get("drops", {}).values()) for hold in holds)
        if status == EXIT_OK and not self._covered:
            status = EXIT_NOT_COVERED
        elif status == EXIT_OK and dropped and not self._options.allow_drops:
            status = EXIT_DROPPED
        self._reporter.protect({
            "exit_status": status,
            "command_status": self._child.returncode if self._child else None,
            "covered": bool(holds) and self._covered and self._done,
            "dropped": dropped,
            "holds": holds})
        return status

    def _status(self):
        if not self._child:
            return (EXIT_SIGNAL + self._stopped_by if self._stopped_by
                    else self._start_status)
        if self._child.returncode < 0:
            return EXIT_SIGNAL - self._child.returncode
        if self._stopped_by and not self._child.returncode:
            return EXIT_SIGNAL + self._stopped_by
        return self._child.returncode


class _CannotStart(Exception):
    def __init__(self, status, name, error):
        super().__init__(f"cannot run {name}: {error}")
        self.status = status


def _identity(user):
    """Arguments for Popen to become @user, with that user's groups."""
    if user is None:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise ToolError(f"no user {user!r} (--user)") from error
    return {"user": entry.pw_uid, "group": entry.pw_gid,
            "extra_groups": os.getgrouplist(user, entry.pw_gid)}
