# SPDX-License-Identifier: GPL-2.0-only
"""Talk to the guest script in a machine, through files both can see.

The host writes MACHINE/next.1, next.2, ...: each a shell fragment that says
what to run (or to stop).  The guest answers with the file "result" in the
directory named there, and marks start and end in the kernel log.
"""

import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path

import verdict
from backend import HERE, RUN

GRACE = 30  # the guest itself ends a test in time, if it still can
POLL = 0.1


class BootFailure(Exception):
    pass


class Session:
    def __init__(self, backend, kernel, name, cpus=None, memory=None):
        self.directory = RUN / kernel.name / name
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.machine = backend(kernel, self.directory, cpus, memory)
        self.requests = 0
        self.mark = 0  # how much of the console belongs to earlier tests

    def boot(self):
        """A boot that hangs is tried once more: an emulated machine hung before
        the kernel had a module."""
        if not self._boots():
            print(f"# {self.directory.name}: {self._last_words()}, and hangs: "
                  "tried once more", file=sys.stderr)
            if not self._boots():
                raise BootFailure(self._last_words())

    def _last_words(self):
        last = (self.machine.log().splitlines() or ["nothing"])[-1]
        return (f"the machine did not boot, its last words: {last} (see "
                f"{self.machine.console})")

    def _boots(self):
        """False if it hangs"""
        self.machine.start(
            ["bash", str(HERE / "guest"), str(self.directory)])
        limit = time.monotonic() + (
            self.machine.data["boot_timeout"] * self.machine.slow)
        while not (self.directory / "ready").exists():
            if not self.machine.alive():
                self.machine.stop()
                raise BootFailure(self._last_words())
            if time.monotonic() > limit:
                self.machine.stop()
                return False
            time.sleep(POLL)
        return True

    def _request(self, text):
        self.requests += 1
        new = self.directory / "next.new"
        new.write_text(text)
        new.rename(self.directory / f"next.{self.requests}")

    def execute(self, directory, command, cwd, env, timeout, poll=None):
        """Run one command in the guest; return the token of its marks."""
        token = secrets.token_hex(6)
        timeout = round(timeout * self.machine.slow)
        fragment = [f"out={shlex.quote(str(directory))}", f"token={token}",
                    f"timeout={timeout}", f"cwd={shlex.quote(str(cwd))}",
                    f"command=({shlex.join(map(str, command))})"]
        fragment += [f"export {k}={shlex.quote(v)}" for k, v in env.items()]
        self._request("\n".join(fragment) + "\n")
        fate = self._wait(directory, timeout, poll)
        if fate:
            (directory / "fate").write_text(fate + "\n")
            self.machine.stop()
        else:
            self._wait_for_mark(token)
        return token

    def _wait(self, directory, timeout, poll):
        """Wait for the result; return why there is none, or None."""
        limit = time.monotonic() + timeout + GRACE
        while not (directory / "result").exists():
            if poll:
                poll()
            if not self.machine.alive():
                return "the machine died"
            if time.monotonic() > limit:
                return f"hangs: no end within {timeout} + {GRACE} s"
            time.sleep(POLL)
        if poll:
            poll()
        return None

    def _wait_for_mark(self, token):
        limit = time.monotonic() + 10
        while (f"machine: end {token}" not in self.machine.log()
               and self.machine.alive() and time.monotonic() < limit):
            time.sleep(POLL)

    def judge(self, directory, token, final=False):
        """Cut the kernel's words on a test out of the console and judge."""
        log = self.machine.log()
        (directory / "kernel.log").write_text(log[self.mark:])
        if final:
            self.mark = len(log)
        return verdict.judge(directory, token)

    def stop(self):
        if self.machine.alive():
            self._request("stop=yes\n")
            self.machine.stop(patience=20)
        else:
            self.machine.stop()


def fresh_directory(*parts):
    directory = Path(RUN, *parts)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
