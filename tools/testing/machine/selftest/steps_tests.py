# SPDX-License-Identifier: GPL-2.0-only
"""What make check runs is counted, whatever happens, and some of it side by
side."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Steps a and b wait for each other.
MAKE = r"""#!/bin/bash
for step; do :; done
cd "${0%/*}" || exit
case $step in
[ab])
    touch "$step"
    for ((i = 0; i < 200; i++)); do
        [ -e a ] && [ -e b ] && break
        sleep 0.1
    done
    [ -e a ] && [ -e b ] && echo "2 passed, 0 failed"
    ;;
quiet) ;;
bad)
    echo "not ok 1 thing"
    echo "3 passed, 1 failed"
    echo "make: *** something"
    exit 2
    ;;
dies) kill -9 $$ ;;
esac
"""


class Steps(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.top = Path(directory.name)
        self.steps = self.top / "1/2/3/steps"
        self.steps.parent.mkdir(parents=True)
        shutil.copy(HERE.parent / "steps", self.steps)
        for name, text in (("make", MAKE), ("nproc", "#!/bin/sh\necho 2\n")):
            (self.top / name).write_text(text)
            (self.top / name).chmod(0o755)

    def run_steps(self, *steps):
        env = dict(os.environ, MAKE=str(self.top / "make"),
                   PATH=f"{self.top}:{os.environ['PATH']}")
        return subprocess.run([self.steps, *steps], env=env, text=True,
                              capture_output=True, timeout=120)

    def test_those_before_the_dashes_run_side_by_side(self):
        done = self.run_steps("a", "b", "--", "quiet")
        self.assertEqual(done.stdout.splitlines()[-1], "5 passed, 0 failed")
        self.assertEqual(done.returncode, 0)

    def test_a_failure_is_counted_and_named_in_the_summary(self):
        for steps in (("bad", "quiet"), ("bad", "--", "quiet")):
            done = self.run_steps(*steps)
            self.assertEqual(done.stdout.splitlines()[-1],
                             "4 passed, 1 failed")
            self.assertIn("\n#   not ok 1 thing\n", done.stdout)
            self.assertEqual(done.returncode, 1)

    def test_a_step_that_dies_has_failed(self):
        for steps in (("dies", "quiet"), ("dies", "--", "quiet")):
            done = self.run_steps(*steps)
            self.assertEqual(done.stdout.splitlines()[-1],
                             "1 passed, 1 failed")
