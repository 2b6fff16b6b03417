# SPDX-License-Identifier: GPL-2.0-only
"""Judge one test by what it left in its directory.

    output      what it printed: KTAP and anything else
    result      written by the guest when the test is over, see guest
    kernel.log  what the kernel said from before its start until the next one
    fate        written by the host: why it gave the test up

A verdict is born CRASHED.  A test passes only when every one of the marks of
a good end is there and none of the marks of a bad one.
"""

import signal
from dataclasses import dataclass, field
from pathlib import Path

import health
import ktap

OK, NOT_OK, SKIP, CRASHED = "ok", "not ok", "skip", "crashed"
KSFT_SKIP = 4
TIMED_OUT = 124


@dataclass
class Verdict:
    status: str = CRASHED
    reasons: list = field(default_factory=list)
    cases: list = field(default_factory=list)
    left: list = field(default_factory=list)
    duration: float = 0.0

    def counts(self, strict=False):
        """(passed, failed, skipped) cases; a bad end is one failure more."""
        states = [case.status for case in self.cases]
        passed, failed, skipped = (states.count(s) for s in (OK, NOT_OK, SKIP))
        if self.status in (NOT_OK, CRASHED) and not failed:
            failed += 1
        if self.status == SKIP and not skipped:
            skipped += 1
        if strict:
            failed += skipped
        return passed, failed, skipped

    def passed(self, strict=False):
        return self.counts(strict)[1] == 0 and (
            self.status == OK or (self.status == SKIP and not strict))


def _text(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def read_result(directory, token):
    """The guest's result file as a dict of lists, or None if not whole."""
    lines = _text(directory / "result").splitlines()
    if not lines or lines[-1] != f"end {token}":
        return None
    result = {}
    for line in lines:
        key, _, value = line.partition(" ")
        result.setdefault(key, []).append(value)
    return result


def _judge_kernel(verdict, log, token):
    faults = health.scan(log)
    if faults:
        more = f" (and {len(faults) - 1} more lines)" if faults[1:] else ""
        verdict.reasons.append(f"kernel: {faults[0]}{more}")
    for mark in ("start", "end"):
        if f"machine: {mark} {token}" not in log:
            verdict.reasons.append(f"kernel log has no {mark} marker")


def _judge_result(verdict, result):
    """Exit status and taints; return the status."""
    try:
        status = int(result["status"][0])
        before, after = map(int, result["taint"][0].split())
        verdict.duration = float(result["seconds"][0])
    except (KeyError, ValueError) as error:
        verdict.reasons.append(f"result file is damaged: {error!r}")
        return None
    if status == TIMED_OUT:
        verdict.reasons.append("timed out")
    elif status > 128 and status - 128 in signal.valid_signals():
        name = signal.Signals(status - 128).name
        verdict.reasons.append(f"killed by {name}")
    elif status not in (0, KSFT_SKIP):
        verdict.reasons.append(f"exit status {status}")
    taints = health.new_taints(before, after)
    if taints:
        verdict.reasons.append(f"taints the kernel: {taints}")
    verdict.left = result.get("left", [])
    return status


def _judge_report(verdict, report, status):
    failed = [case.name for case in report.leaves() if case.status == NOT_OK]
    verdict.reasons += [f"output: {error}" for error in report.errors]
    if failed:
        verdict.reasons.append(f"failed: {', '.join(failed)}")
        if status in (0, KSFT_SKIP):
            verdict.reasons.append(f"exit status {status} in spite of that")
    elif not report.cases and status == 0 and report.skip is None:
        verdict.reasons.append("no results")
    if status == 0 and report.skip is not None:
        verdict.reasons.append("exit status 0, but all is skipped")
    if status == KSFT_SKIP and report.skip is None:
        verdict.reasons.append("exit status 4, but no reason to skip is given")


def judge(directory, token):
    """The verdict on a test."""
    directory = Path(directory)
    verdict = Verdict()
    report = ktap.parse(_text(directory / "output"))
    verdict.cases = report.leaves()

    result = read_result(directory, token)
    _judge_kernel(verdict, _text(directory / "kernel.log"), token)
    fate = _text(directory / "fate").strip()
    if fate:
        verdict.reasons.append(fate)
    if result is None:
        if not fate:
            verdict.reasons.append("no end marker")
        return verdict

    status = _judge_result(verdict, result)
    _judge_report(verdict, report, status)
    if verdict.reasons:
        verdict.status = NOT_OK
    elif report.skip is not None:
        verdict.status = SKIP
        verdict.reasons.append(report.skip)
    elif status == 0:
        verdict.status = OK
    return verdict
