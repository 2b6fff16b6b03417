# SPDX-License-Identifier: GPL-2.0-only
"""The samples of guest/ in a real machine: one passes, all others must not."""

import os
import pty
import subprocess
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = HERE.parent / "run"
KERNEL = "6.1"


class InMachine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        env = dict(os.environ, MHS_HOST_RELEASE=os.uname().release)
        cls.done = subprocess.run(
            [RUN, "--kernel", KERNEL,
             *sorted((HERE / "guest").glob("*.sh"))],
            env=env, stdout=subprocess.PIPE, text=True, check=False)
        cls.verdicts = {}
        reasons = []
        for line in cls.done.stdout.splitlines():
            if line.startswith("# "):
                reasons.append(line[2:])
            elif line.startswith(("ok ", "not ok ")):
                status, rest = line.split(".sh")[0].rsplit(" ", 1)
                cls.verdicts[rest] = status.rsplit(" ", 1)[0], reasons
                reasons = []

    def check(self, name, status, *parts):
        self.assertEqual(self.verdicts[name][0], status, self.done.stdout)
        for part in parts:
            self.assertTrue(any(part in r for r in self.verdicts[name][1]),
                            f"{part!r} not among {self.verdicts[name][1]}")

    def test_pass(self):
        self.check("pass", "ok")

    def test_fail(self):
        self.check("fail", "not ok", "failed: bad", "exit status 1")

    def test_skip(self):
        self.check("skip", "not ok", "not today")

    def test_warn(self):
        self.check("warn", "not ok", "kernel: ", "WARNING: CPU: 0")

    def test_hang(self):
        self.check("hang", "not ok", "timed out", "planned 1 results, got 0")

    def test_freeze(self):
        self.check("freeze", "not ok", "hangs: no end within 5 + 30 s")

    def test_panic(self):
        self.check("panic", "not ok", "kernel: ", "the machine died")

    def test_status_and_sum(self):
        self.assertNotEqual(self.done.returncode, 0)
        # pass 3; fail 1 of 2; panic 1; warn 1 of 2
        self.assertEqual(self.done.stdout.splitlines()[-1],
                         "6 passed, 6 failed")

    def test_command_returns_its_status_and_output(self):
        done = subprocess.run(
            [RUN, "--kernel", KERNEL, "--exec", "echo hello; exit 7"],
            capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (7, "hello\n"))


class Shell(unittest.TestCase):
    """make shell: on a terminal, with what it says one can try."""

    def test_module_tools_and_three_commands(self):
        pid, terminal = pty.fork()
        if not pid:
            os.execv(RUN, [str(RUN), "--kernel", KERNEL, "--shell"])
        said = ""

        def until(words):
            nonlocal said
            while words not in said:
                said += os.read(terminal, 4096).decode(errors="replace")

        until("machine# ")
        os.write(terminal, b"mhsstat show; echo status $?\n")
        until("status 0")
        os.write(terminal, b"exit\n")
        with self.assertRaises(OSError):    # the terminal's other end is closed
            until("no such words")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertIn("no service with the scheduler mhs", said)
        for command in ("ipvsadm -A", "ipvsadm -a", "mhsstat show"):
            self.assertIn(f"\n    {command}", said.replace("\r", ""))
