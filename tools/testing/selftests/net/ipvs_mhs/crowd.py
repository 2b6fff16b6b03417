#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Many network namespaces change a service again and again, and so does this one.

With --services this one makes and deletes a service in place of a change, and others
read the tables all the time.  Prints the microseconds that a command of this one
took, half of them and nine of ten, and their mean.
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

from sockopt import ADD, ADD_DEST, DEL, EDIT_DEST, control, dest, \
    service  # noqa: E402

CLONE_NEWNET = 0x40000000
# between two changes, so that the kernel's locks are what a command waits for,
# not the CPU
PAUSE_S = 0.005


def host(number):
    return f"10.2.{number // 200}.{11 + number % 200}"


class Namespace:
    """A service in this process's network namespace."""

    def __init__(self, args, servers):
        # without an address the namespace knows none
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._do = control()
        self._service = service(args.scheduler.encode())
        self._do(ADD, self._service)
        for number in range(servers):
            self._do(ADD_DEST, self._service + dest(host(number), 1))
        self._weight = 1

    def change(self):
        self._weight ^= 3
        self._do(EDIT_DEST, self._service + dest(host(0), self._weight))

    def add(self, args, port, servers):
        """One more service: what deletes it."""
        made = service(args.scheduler.encode(), port)
        self._do(ADD, made)
        for number in range(servers):
            self._do(ADD_DEST, made + dest(host(number), 1))
        return lambda: self._do(DEL, made)


def reader():
    """Reads the tables of this namespace until it is killed."""
    while True:
        with open("/proc/net/ip_vs_mhs", "rb", buffering=0) as file:
            while file.read(1 << 16):
                pass


def member(args, ready):
    """A namespace of the crowd, until it is killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    namespace = Namespace(args, args.servers)
    os.write(ready, b"+")
    while True:
        namespace.change()
        time.sleep(PAUSE_S)  # why: see there


def begin(args):
    """The crowd, when all have a service: process numbers."""
    ready, theirs = os.pipe()
    pids = []
    for _ in range(args.readers):
        pid = os.fork()
        if not pid:
            try:
                reader()
            finally:
                os._exit(1)
        pids.append(pid)
    for _ in range(args.size):
        pid = os.fork()
        if not pid:
            try:
                member(args, theirs)
            finally:
                os.write(theirs, b"-")
                os._exit(1)
        pids.append(pid)
    got = b""
    while len(got) < args.size:
        got += os.read(ready, args.size)
    if b"-" in got:
        end(pids)
        raise SystemExit("a namespace has no service")
    return pids


def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8,
                        help="other namespaces (%(default)s)")
    parser.add_argument("--servers", type=int, default=1000,
                        help="of the service of each (%(default)s)")
    parser.add_argument("--rounds", type=int, default=50,
                        help="changes here (%(default)s)")
    parser.add_argument("--scheduler", default="mhs", help="(%(default)s)")
    parser.add_argument("--services", type=int, default=0,
                        help="more of them here (%(default)s)")
    parser.add_argument("--readers", type=int, default=0,
                        help="of the tables, here (%(default)s)")
    args = parser.parse_args()
    signal.alarm(300)
    namespace = Namespace(args, 8)
    for port in range(1, 1 + args.services):
        namespace.add(args, port, 8)
    crowd = begin(args)
    took_us = []
    try:
        for _ in range(args.rounds):
            start = time.monotonic()
            if args.services:
                namespace.add(args, 0xffff, 8)()
            else:
                namespace.change()
            took_us.append((time.monotonic() - start) * 1e6)
            time.sleep(PAUSE_S)  # why: see there
    finally:
        end(crowd)
    print(int(statistics.median(took_us)),
          int(statistics.quantiles(took_us, n=10)[-1]),
          int(statistics.mean(took_us)))


if __name__ == "__main__":
    main()
