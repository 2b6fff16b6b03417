# SPDX-License-Identifier: GPL-2.0-only
"""The results of these very tests: what is no success is a failure."""

import contextlib
import io
import unittest

from result import Result


class Bad(unittest.TestCase):
    """Not among the tests that run: none of its names begins with "test"."""

    def in_part(self):
        for number in 1, 2, 3:
            with self.subTest(number=number):
                self.assertNotEqual(number, 2)

    def skipped(self):
        self.skipTest("for no reason")

    @unittest.expectedFailure
    def unexpected(self):
        pass

    def wrong(self):
        self.fail("wrong")

    def broken(self):
        raise KeyError("broken")

    def good(self):
        with self.subTest("a part"):
            pass


class BrokenClass(Bad):
    @classmethod
    def setUpClass(cls):
        raise KeyError("class")


def outcome(test):
    """The lines of a test's result, and the number of failures."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = Result(1)
        unittest.TestSuite([test]).run(result)
    lines = said.getvalue().splitlines()[2:]
    return [line for line in lines if not line.startswith("#")], result.failed


class Results(unittest.TestCase):
    def test_what_is_no_success_is_a_failure(self):
        for name in "in_part", "skipped", "unexpected", "wrong", "broken":
            with self.subTest(name):
                self.assertEqual(outcome(Bad(name)),
                                 ([f"not ok 1 Bad.{name}"], 1))

    def test_control_a_success(self):
        self.assertEqual(outcome(Bad("good")), (["ok 1 Bad.good"], 0))

    def test_a_class_that_cannot_be_set_up(self):
        self.assertEqual(outcome(BrokenClass("good")), ([], 1))
