# SPDX-License-Identifier: GPL-2.0-only
"""Waiting: look, say what is left, look again."""

import argparse
import re
import sys
import time

from ipvs_mhs_tool import EXIT_OK, EXIT_TIMEOUT

from .text import duration, fit, screen

_REPORT_EVERY_S = 30
_UNITS_S = {"": 1, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def _seconds(text):
    """'500ms', '10s', '5m', '15min', '1h', '1d' or a number of seconds."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)(ms|s|m|min|h|d|)", text)
    value = float(found[1]) * _UNITS_S[found[2]] if found else -1
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration; give for example 500ms, 10s, 15min or 1d")
    return value


def interval(text):
    value = _seconds(text)
    if value < 0.01:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 10ms")
    return value


def add_waiting(sub, default=None, words="give up after this time, as 20min "
                                         "(default: never)"):
    """Options of a command that waits."""
    sub.add_argument("--timeout", dest="timeout_s", type=_seconds,
                     default=default, metavar="TIME", help=words)
    sub.add_argument("-i", "--interval", dest="interval_s", type=interval,
                     default=0.5, metavar="TIME",
                     help="between two looks (default: 500ms)")
    sub.add_argument("-q", "--quiet", action="store_true",
                     help="no progress")


class Progress:
    """One line that is rewritten on a terminal; elsewhere one when something
    has changed, and now and then."""

    def __init__(self, quiet, program="mhsstat"):
        self._quiet = quiet
        self.program = program
        self._width = screen(sys.stderr).width
        self._last = None
        self._at = 0
        self._warned = set()

    def say(self, key, items):
        if self._quiet:
            return
        now = time.monotonic()
        # a line in the last column would be two
        text = fit(items, self._width and self._width - 1)
        if self._width:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif key != self._last or now - self._at >= _REPORT_EVERY_S:
            print(f"{self.program}: {text}", file=sys.stderr, flush=True)
            self._at = now
        self._last = key

    def warn(self, text):
        """A line that stays, said once, with --quiet, too."""
        if text not in self._warned:
            self._warned.add(text)
            print(("\r\x1b[K" if self._width else "") + f"{self.program}: {text}",
                  file=sys.stderr, flush=True)

    def end(self):
        if self._width and self._last is not None:
            print(file=sys.stderr)


def until(look, options, progress, end_word):
    """Look until nothing is pending, or the time is over; exit status."""
    end = None if options.timeout_s is None else \
        time.monotonic() + options.timeout_s
    try:
        while True:
            pending, longest_ms = look(options)
            if not pending:
                progress.say("over", [end_word])
                return EXIT_OK
            progress.say([kind for kind, _ in pending],
                         [words for _, words in pending])
            now = time.monotonic()
            if end is not None and now >= end:
                break
            time.sleep(min(options.interval_s,
                           end - now if end is not None else 3600))
    finally:
        progress.end()
    print(f"{progress.program}: not over after "
          f"{duration(int(options.timeout_s * 1000))}" +
          (f", at most {duration(longest_ms)} left" if longest_ms else ""),
          file=sys.stderr)
    return EXIT_TIMEOUT
