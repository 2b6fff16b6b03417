# SPDX-License-Identifier: GPL-2.0-only
"""Tell the results: KTAP on stdout, progress on stderr, a plain last line."""

import sys
import threading
import time

import verdict

HEARTBEAT = 30  # seconds between lines when stderr is no terminal


class Report:
    def __init__(self, total, strict=False, out=sys.stdout, err=sys.stderr):
        self.total = total
        self.strict = strict
        self.out = out
        self.err = err
        self.done = 0
        self.passed = self.failed = self.skipped = 0
        self.good = True
        self.running = {}
        self._lock = threading.Lock()
        self._start = self._last = time.monotonic()
        self._shown = False
        self._print("KTAP version 1", f"1..{total}")

    def _print(self, *lines):
        self._clear()
        for line in lines:
            print(line, file=self.out)
        self.out.flush()

    def _clear(self):
        if self._shown:
            self.err.write("\r\033[K")
            self._shown = False

    def started(self, test, where):
        with self._lock:
            self.running[test.name] = where

    def add(self, test, judged, directory=None):
        """Print one final verdict, what the test printed above it."""
        with self._lock:
            self.running.pop(test.name, None)
            self.done += 1
            passed, failed, skipped = judged.counts(self.strict)
            self.passed += passed
            self.failed += failed
            self.skipped += skipped
            good = judged.passed(self.strict)
            self.good &= good
            lines = []
            output = directory and directory / "output"
            if output and output.exists():
                text = output.read_text(errors="replace")
                lines += [f"  {line}" for line in text.splitlines()]
            lines += [f"# {reason}" for reason in judged.reasons]
            lines += [f"# left behind: {left}" for left in judged.left]
            if directory and not good:
                lines.append(f"# logs: {directory}")
            result = f"{'ok' if good else 'not ok'} {self.done} {test.name}"
            if judged.status == verdict.SKIP and not self.strict:
                result += f" # SKIP {judged.reasons[0]}"
            elif not good:
                result += f" # {judged.status}, {judged.duration:.1f} s"
            else:
                result += f" # {judged.duration:.1f} s"
            self._print(*lines, result)

    def progress(self):
        """One line that tells what goes on."""
        with self._lock:
            now = time.monotonic()
            tty = self.err.isatty()
            if now - self._last < (1 if tty else HEARTBEAT):
                return
            self._last = now
            running = ", ".join(
                f"{name} ({where})" for name, where in self.running.items())
            line = (f"{now - self._start:4.0f} s: {self.done} of "
                    f"{self.total} tests done, running: {running or 'none'}")
            self._clear()
            self.err.write(line if tty else line + "\n")
            self._shown = tty
            self.err.flush()

    def finish(self):
        """The last line; return whether all is well."""
        missing = self.total - self.done
        if missing:
            self._print(f"# {missing} tests did not run")
            self.failed += missing
        if self.skipped:
            what = "counted as failed" if self.strict else "not counted"
            self._print(f"# {self.skipped} skipped, {what}")
        self._print(f"{self.passed} passed, {self.failed} failed")
        return self.good and not self.failed and self.passed > 0
