#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Many network namespaces change a service at once, this one a moment later.

Prints how many commands failed and, in microseconds, the median of what the
last one took.  With --users the other namespaces belong to users of their own,
as those do that anybody may make.
"""
import argparse
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from sockopt import ADD, ADD_DEST, EDIT_DEST, control, dest, \
    service  # noqa: E402

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SERVERS = 8
# before a change: a table that was made rests for four times as long as that
# took; and until the others wait for each other, but not for ever
REST_S, BEGUN_S = 0.2, 2


def host(number):
    return f"10.2.0.{11 + number}"


class Namespace:
    """A service in this process's network namespace."""

    def __init__(self):
        # without an address the namespace knows none
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._do = control()
        self._do(ADD, service())
        for number in range(SERVERS):
            self._do(ADD_DEST, service() + dest(host(number), 1))
        self._weight = 1

    def change(self):
        self._weight ^= 3
        self._do(EDIT_DEST, service() + dest(host(0), self._weight))


def member(users, go, done):
    """A namespace of the crowd: a change for each byte, and a byte for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | (CLONE_NEWUSER if users else 0)):
        raise OSError(ctypes.get_errno(), "unshare")
    if users:
        # else the user has no rights once a command is executed
        with open("/proc/self/uid_map", "w", encoding="ascii") as file:
            file.write("0 0 1")
    namespace = Namespace()
    os.write(done, b"+")
    while os.read(go, 1):
        try:
            namespace.change()
            os.write(done, b"+")
        except OSError:
            os.write(done, b"-")


def blocked(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "D"


class Crowd:
    def __init__(self, size, users):
        self._go, self._pids = [], []
        self._done, done = os.pipe()
        for _ in range(size):
            ours, theirs = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(theirs)
                # their ends of others' pipes are not for this one
                for other in self._go:
                    os.close(other)
                try:
                    member(users, ours, done)
                finally:
                    # so that nobody waits for it
                    os.write(done, b"-")
                    os._exit(1)
            os.close(ours)
            self._go.append(theirs)
            self._pids.append(pid)
        if b"-" in self.answers():
            self.end()
            raise SystemExit("a namespace has no service")

    def go(self):
        for pipe in self._go:
            os.write(pipe, b"g")

    def begun(self):
        """The last of them waits for a lock."""
        end = time.monotonic() + BEGUN_S
        while time.monotonic() < end and not blocked(self._pids[-1]):
            time.sleep(0.001)   # why: the pace of looks

    def answers(self):
        got = b""
        while len(got) < len(self._go):
            got += os.read(self._done, len(self._go) - len(got))
        return got

    def end(self):
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=60,
                        help="other namespaces (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9,
                        help="changes (%(default)s)")
    parser.add_argument("--users", action="store_true",
                        help="they are those of unprivileged users")
    args = parser.parse_args()
    signal.alarm(300)
    namespace = Namespace()
    crowd = Crowd(args.size, args.users)
    took_us, failed = [], 0
    try:
        for _ in range(args.rounds):
            time.sleep(REST_S)  # why: see there
            crowd.go()
            crowd.begun()
            start = time.monotonic()
            namespace.change()
            took_us.append((time.monotonic() - start) * 1e6)
            failed += crowd.answers().count(b"-")
    finally:
        crowd.end()
    print(failed, int(statistics.median(took_us)))


if __name__ == "__main__":
    main()
