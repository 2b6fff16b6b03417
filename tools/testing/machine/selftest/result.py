# SPDX-License-Identifier: GPL-2.0-only
"""Results of unittest as KTAP."""

import unittest


class Result(unittest.TestResult):
    """A test that did not run to its end, with every part of it, is a
    failure: a skip and an unexpected success are, too."""

    def __init__(self, total):
        super().__init__()
        self.failed = 0
        self._good = None
        print(f"KTAP version 1\n1..{total}")

    def startTest(self, test):
        super().startTest(test)
        self._good = True

    def stopTest(self, test):
        super().stopTest(test)
        self.failed += not self._good
        name = test.id().split(".", 1)[1]
        print(f"{'ok' if self._good else 'not ok'} {self.testsRun} {name}",
              flush=True)
        self._good = None

    def _fault(self, text):
        if self._good is None:  # of a class, or a module
            self.failed += 1
        else:
            self._good = False
        for line in text.splitlines():
            print(f"# {line}")

    def addFailure(self, test, err):
        self._fault(self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err:
            self._fault(f"{subtest}\n{self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        self._fault(f"skipped: {reason}")

    def addUnexpectedSuccess(self, test):
        self._fault("it was expected to fail")
