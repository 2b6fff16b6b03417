# SPDX-License-Identifier: GPL-2.0-only
"""Machines that die, hang or do not boot, played by the script "stub"."""

import contextlib
import io
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import backend
import pool
import session
from report import Report

STUB = Path(__file__).resolve().parent / "stub"
PASS = "echo 1..1; echo ok 1 fine"


class Stub(backend.Machine):
    data = {"cpus": 1, "memory": "1G", "boot_timeout": 3, "life": 60}

    def command(self, guest):
        return ["bash", str(STUB), guest[-1]]


class NoBoot(Stub):
    def command(self, guest):
        return ["sh", "-c", "echo 'Kernel panic - not syncing: no root'"]


class Hangs(Stub):
    """So often before it boots"""

    times = 0

    def command(self, guest):
        Hangs.times -= 1
        return ["sleep", "60"] if Hangs.times >= 0 else super().command(guest)


class KernelStub:
    name = f"selftest-{os.getpid()}"


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(subprocess.run, ["rm", "-rf", self.directory,
                                         backend.RUN / KernelStub.name])
        self.addCleanup(setattr, session, "GRACE", session.GRACE)
        session.GRACE = 1
        self.out = io.StringIO()

    def make(self, name, body, header=""):
        path = self.directory / name
        path.write_text(f"#!/bin/bash\n{header}\n{body}\n")
        path.chmod(0o755)
        return path

    def run_tests(self, *paths, kind=Stub, jobs=1, strict=False):
        tests = [pool.load_test(path) for path in paths]
        report = Report(len(tests), strict, self.out, io.StringIO())
        pool.run_tests(tests, KernelStub, kind, {}, report, jobs)
        return report.finish(), self.out.getvalue()

    def machines(self):
        return len(list((backend.RUN / KernelStub.name).glob("machine-*")))


class Pool(PoolTest):
    def test_machine_is_used_again_after_a_pass(self):
        good, out = self.run_tests(
            self.make("a", PASS), self.make("b", PASS))
        self.assertTrue(good, out)
        self.assertEqual(out.splitlines()[-1], "2 passed, 0 failed")
        self.assertEqual(self.machines(), 1)

    def test_two_machines_share_one_queue(self):
        good, out = self.run_tests(
            *(self.make(f"t{n}", PASS + "; sleep 0.3") for n in range(4)),
            jobs=2)
        self.assertTrue(good, out)
        self.assertIn("4 passed, 0 failed", out)
        self.assertEqual(self.machines(), 2)

    def test_crash_fails_one_test_and_spares_the_rest(self):
        good, out = self.run_tests(
            self.make("a", "echo 1..2; echo ok 1 fine; kill -9 $PPID",
                      "# weight: 50"),
            self.make("b", PASS))
        self.assertFalse(good)
        self.assertIn("# the machine died", out)
        self.assertIn("not ok 1 a", out)
        self.assertIn("ok 2 b", out)
        self.assertEqual(out.splitlines()[-1], "2 passed, 1 failed")
        self.assertEqual(self.machines(), 2)

    def test_hang_is_ended(self):
        good, out = self.run_tests(
            self.make("a", "echo 1..1; sleep 1000", "# timeout: 1"))
        self.assertFalse(good)
        self.assertIn("# hangs: no end within 1 + 1 s", out)

    def test_late_word_of_the_kernel_fails_the_earlier_test(self):
        good, out = self.run_tests(
            self.make("a", PASS + "; (sleep 0.7; echo "
                      "'[  3.0] refcount_t: underflow' >&3) &",
                      "# weight: 50"),
            self.make("b", PASS + "; sleep 2"))
        self.assertFalse(good)
        self.assertIn("kernel: [  3.0] refcount_t: underflow", out)

    def test_failure_gets_a_new_machine(self):
        good, out = self.run_tests(
            self.make("a", "echo 1..1; echo not ok 1 bad; exit 1",
                      "# weight: 50"), self.make("b", PASS))
        self.assertFalse(good)
        self.assertIn("1 passed, 1 failed", out)
        self.assertEqual(self.machines(), 2)

    def test_what_is_left_behind_is_told(self):
        root = backend.RUN / KernelStub.name
        root.mkdir(parents=True)
        (root / "dirty").touch()
        good, out = self.run_tests(self.make("a", PASS), self.make("b", PASS))
        self.assertTrue(good, out)
        self.assertIn("# left behind: netns x", out)
        self.assertEqual(self.machines(), 2)

    def test_no_boot_fails_every_test(self):
        good, out = self.run_tests(
            *(self.make(f"t{n}", PASS) for n in range(3)), kind=NoBoot)
        self.assertFalse(good)
        self.assertIn("0 passed, 3 failed", out)
        self.assertIn("did not boot", out)
        self.assertIn("not tried again", out)

    def test_a_boot_that_hangs_is_tried_once_more(self):
        for Hangs.times, booted in (1, True), (2, False):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                good, out = self.run_tests(self.make("a", PASS), kind=Hangs)
            self.assertEqual(good, booted, out)
            self.assertIn("and hangs: tried once more", err.getvalue())

    def test_other_shape_other_machine(self):
        good, out = self.run_tests(
            self.make("a", PASS, "# cpus: 2\n# memory: 2G"),
            self.make("b", PASS))
        self.assertTrue(good, out)
        self.assertEqual(self.machines(), 2)

    def test_skip_counts_as_failure_only_strictly(self):
        skip = self.make("a", "echo '1..0 # SKIP no ip_vs'; exit 4")
        good, out = self.run_tests(skip, self.make("b", PASS))
        self.assertTrue(good, out)
        self.assertIn("ok 1 a # SKIP no ip_vs", out)
        self.out = io.StringIO()
        good, out = self.run_tests(skip, self.make("b", PASS), strict=True)
        self.assertFalse(good)
        self.assertEqual(out.splitlines()[-1], "1 passed, 1 failed")
        self.assertIn("# no ip_vs", out)

    def test_nothing_passed_is_no_success(self):
        skip = self.make("a", "echo '1..0 # SKIP no ip_vs'; exit 4")
        self.assertFalse(self.run_tests(skip)[0])


class Loading(PoolTest):
    def test_headers(self):
        test = pool.load_test(self.make(
            "a", PASS, "# timeout: 300\n# weight: 12\n# memory: 2G\n# cpus=4"))
        self.assertEqual((test.timeout, test.weight, test.memory, test.cpus),
                         (300, 12, "2G", 4))

    def test_settings_file(self):
        (self.directory / "settings").write_text("timeout=200\n")
        self.assertEqual(pool.load_test(self.make("a", PASS)).timeout, 200)

    def test_longest_first_own_shape_preferred(self):
        make = self.make
        tests = [pool.load_test(make(name, PASS, header)) for name, header in (
            ("short", "# weight: 1"), ("long", "# weight: 90"),
            ("big", "# weight: 50\n# memory: 2G"))]
        queue = pool.Queue(tests)
        taken = [queue.take(shape).name for shape in (
            None, (None, None), (None, None))]
        self.assertEqual(taken, ["long", "short", "big"])
        self.assertIsNone(queue.take())


class Ending(PoolTest):
    def check_stop(self, script):
        """Of a shell script in which $0 is what nobody else sleeps for."""
        machine = Stub(KernelStub, self.directory)
        marker = f"8{os.getpid()}"
        machine.command = lambda guest: ["sh", "-c", script, marker]
        machine.start(["x"])
        find = ["pgrep", "-f", f"^sleep {marker}"]
        limit = time.monotonic() + 20
        while subprocess.run(find, stdout=subprocess.DEVNULL,
                             check=False).returncode:
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)
        self.assertTrue(machine.alive())
        machine.stop()
        self.assertFalse(machine.alive())
        # what was killed may be on its way out
        limit = time.monotonic() + 5
        while (found := subprocess.run(find, capture_output=True,
                                       check=False).stdout):
            self.assertLess(time.monotonic(), limit, found)
            time.sleep(0.05)

    def test_stop_ends_the_whole_group(self):
        self.check_stop("sleep $0 & sleep $0; :")

    def test_stop_ends_what_left_the_group_and_does_not_heed(self):
        self.check_stop('trap "" TERM; exec setsid sleep $0')

    def test_stop_twice_is_harmless(self):
        machine = Stub(KernelStub, self.directory)
        machine.start([str(self.directory)])
        machine.stop()
        machine.stop()
