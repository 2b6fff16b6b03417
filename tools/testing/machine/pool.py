# SPDX-License-Identifier: GPL-2.0-only
"""Run tests on several machines at a time, longest first.

A machine serves test after test as long as they pass and leave nothing
behind; the successor of any other test gets a new machine.  A verdict is
final when the next test of that machine starts, or when the machine has
stopped: what the kernel says until then is about the earlier test.
"""

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import verdict
from session import BootFailure, Session, fresh_directory

HEADER = re.compile(
    r"#\s*(timeout|weight|cpus|memory)\s*[:=]\s*(\w+)\s*$")
READ = {"memory": str}
TIMEOUT = 120  # seconds, unless the test or its "settings" says otherwise
WEIGHT = 30  # seconds it is expected to take


@dataclass
class Test:
    path: Path
    timeout: int = TIMEOUT
    weight: int = WEIGHT
    cpus: int | None = None
    memory: str | None = None

    @property
    def name(self):
        return self.path.name

    @property
    def shape(self):
        return self.cpus, self.memory


def _headers(path, lines):
    for line in path.read_text(errors="replace").splitlines()[:lines]:
        if match := HEADER.match(line):
            yield match.groups()


def load_test(path):
    """Read the wishes in the head of a test and in "settings" beside it."""
    test = Test(Path(path).resolve())
    settings = test.path.parent / "settings"
    if settings.exists():
        if match := re.search(r"^timeout=(\d+)", settings.read_text(), re.M):
            test.timeout = int(match[1])
    for key, value in _headers(test.path, 40):
        setattr(test, key, READ.get(key, int)(value))
    return test


class Queue:
    """Tests, longest first; a machine's own shape before others."""

    def __init__(self, tests):
        self._tests = sorted(tests, key=lambda t: (-t.weight, t.name))
        self._lock = threading.Lock()

    def take(self, shape=None):
        with self._lock:
            fitting = [t for t in self._tests if t.shape == shape]
            for test in fitting or self._tests:
                self._tests.remove(test)
                return test
        return None


class Worker(threading.Thread):
    def __init__(self, number, queue, kernel, backend, env, report):
        super().__init__(daemon=True)
        self.label = f"machine-{number}"
        self.queue = queue
        self.kernel = kernel
        self.backend = backend
        self.env = env
        self.report = report
        self.session = None
        self.shape = None
        self.held = None  # the test whose verdict is not final yet
        self.boots = 0
        self.failed_boots = 0
        self.stopping = False

    def run(self):
        while not self.stopping and (test := self.queue.take(self.shape)):
            try:
                self._one(test)
            except Exception as error:  # a fault of ours is never a pass
                self.report.add(test, verdict.Verdict(
                    reasons=[f"the harness failed: {error!r}"]))
                self.held = None
                self._retire()
        self._retire()

    def _one(self, test):
        if self.session and self.shape != test.shape:
            self._retire()
        if self.session:
            self._settle()
        elif not self._boot(test):
            return
        self.report.started(test, self.label)
        directory = fresh_directory(self.kernel.name, test.name)
        env = dict(self.env, MHS_LOGS=str(directory))
        start = time.monotonic()
        token = self.session.execute(
            directory, [test.path], test.path.parent, env, test.timeout)
        self.held = test, directory, token, time.monotonic() - start
        seen = self.session.judge(directory, token)
        if seen.status != verdict.OK or seen.left:
            self._retire()

    def _boot(self, test):
        self.shape = test.shape
        self.boots += 1
        self.session = Session(self.backend, self.kernel,
                               f"{self.label}.{self.boots}", *test.shape)
        self.report.started(test, f"booting {self.label}")
        try:
            if self.failed_boots > 1:
                raise BootFailure("machines do not boot, not tried again")
            self.session.boot()
            self.failed_boots = 0
            return True
        except BootFailure as error:
            self.failed_boots += 1
            self.session = None
            self.report.add(test, verdict.Verdict(reasons=[str(error)]))
            return False

    def _settle(self):
        """The last test's verdict is final now."""
        if self.held:
            test, directory, token, seconds = self.held
            self.held = None
            final = self.session.judge(directory, token, final=True)
            final.duration = final.duration or seconds
            self.report.add(test, final, directory)

    def _retire(self):
        if self.session:
            self.session.stop()
            self._settle()
            self.session = None

    def abort(self):
        """From outside: end the machine now."""
        self.stopping = True
        session = self.session
        if session:
            session.machine.stop()


def run_tests(tests, kernel, backend, env, report, jobs):
    queue = Queue(tests)
    workers = [Worker(n + 1, queue, kernel, backend, env, report)
               for n in range(min(jobs, len(tests)))]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers):
            for worker in workers:
                worker.join(timeout=0.3)
            report.progress()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.abort()
