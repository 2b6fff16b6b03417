# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts on recorded logs: logs.txt, which says how it is read.

The token of every record is "t0ken".
"""

import re
import tempfile
import unittest
from pathlib import Path

import health
import ktap
import verdict

RECORDS = Path(__file__).resolve().parent / "logs.txt"
CLEAN = "clean-pass"


def _file(part):
    """(name, text) of a file in a record; the text is None: absent."""
    head, _, text = part.partition("\n")
    name, _, how = head.partition(" ")
    return name, {"": text, "cut": text[:-1], "absent": None}[how]


def _records():
    """{name: (lines of "expect", {file: text})}"""
    records = {}
    for record in re.split(r"^=== ", RECORDS.read_text(), flags=re.M)[1:]:
        head, *parts = re.split(r"^--- ", record, flags=re.M)
        name, *expect = head.splitlines()
        files = dict(map(_file, parts))
        records[name] = (expect, {**records[CLEAN][1], **files}
                         if records else files)
    return records


LOGS = _records()


def judge(name):
    """The verdict on a record, in a test's directory."""
    with tempfile.TemporaryDirectory() as directory:
        for file, text in LOGS[name][1].items():
            if text is not None:
                (Path(directory) / file).write_text(text)
        return verdict.judge(Path(directory), "t0ken")


class Recorded(unittest.TestCase):
    """One method for each record, added below."""

    def check(self, name):
        status, *parts = LOGS[name][0]
        judged = judge(name)
        self.assertEqual(judged.status, status, judged.reasons)
        for part in parts:
            self.assertTrue(any(part in reason for reason in judged.reasons),
                            f"{part!r} is not among {judged.reasons}")
        expected_pass = status == verdict.OK
        self.assertEqual(judged.passed(), expected_pass or
                         status == verdict.SKIP)
        if not expected_pass:
            self.assertFalse(judged.passed(strict=True))
            self.assertGreater(judged.counts(strict=True)[1], 0)
            self.assertTrue(parts, "a failure needs an expected reason")
        else:
            self.assertEqual(judged.reasons, [])


for _name in LOGS:
    setattr(Recorded, "test_" + _name.replace("-", "_"),
            lambda self, name=_name: self.check(name))


class Counts(unittest.TestCase):
    def test_nothing_is_crashed(self):
        judged = verdict.Verdict()
        self.assertEqual(judged.status, verdict.CRASHED)
        self.assertEqual(judged.counts(), (0, 1, 0))
        self.assertFalse(judged.passed())

    def test_no_directory_is_crashed(self):
        judged = verdict.judge(RECORDS.parent / "no-such-record",
                               "t0ken")
        self.assertEqual(judged.status, verdict.CRASHED)

    def test_skipped_case_fails_strictly(self):
        judged = judge("case-skipped")
        self.assertEqual(judged.counts(), (2, 0, 1))
        self.assertEqual(judged.counts(strict=True), (2, 1, 1))
        self.assertTrue(judged.passed())
        self.assertFalse(judged.passed(strict=True))

    def test_bad_end_counts_beside_good_cases(self):
        judged = judge("taint")
        self.assertEqual(judged.counts(), (3, 1, 0))

    def test_nested_cases_count_as_leaves(self):
        judged = judge("clean-pass-nested")
        self.assertEqual(judged.counts(), (3, 0, 0))


class Parts(unittest.TestCase):
    def test_xfail_is_a_skip(self):
        report = ktap.parse("1..1\nnot ok 1 snat # XFAIL not yet\n")
        self.assertEqual(report.cases[0].status, "skip")
        self.assertEqual(report.cases[0].text, "not yet")

    def test_other_output_is_no_result(self):
        report = ktap.parse("1..1\nokay\nnot okay\n1..\nok 1 a\n# ok 2 b\n")
        self.assertEqual([c.name for c in report.cases], ["a"])
        self.assertEqual(report.errors, [])

    def test_taint_letters(self):
        self.assertEqual(health.new_taints(0, 4096 | 8192), "")
        self.assertEqual(health.new_taints(0, 1 | 128), "PD")
        self.assertEqual(health.new_taints(128, 128), "")
        self.assertEqual(health.new_taints(0, 1 << 30), "0x40000000")

    def test_boot_messages_are_healthy(self):
        self.assertEqual(health.scan(
            "[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled\n"
            "[    0.2] Kernel command line: panic_on_warn=1 panic=-1\n"
            "[    0.3] hpet: Lost 1 RTC interrupts\n"
            "[    0.4] MDS CPU bug present and SMT on\n"
            "[    0.5] kmemleak: Kernel memory leak detector initialized\n"
            "[    0.6] rcu: RCU calculated value of scheduler-enlistment\n"),
            [])
