#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Many network namespaces change a service again and again, and so does this one.

With --services this one makes and deletes a service in place of a change, and others
read the tables all the time.  Prints the microseconds that a command of this one
took, half of them and nine of ten.
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
        self._service = self.add(args, servers)
        self._weight = 1

    def change(self):
        self._weight ^= 3
        self._do(EDIT_DEST, self._service + dest(host(0), self._weight))

    def add(self, args, servers, port=80):
        made = service(args.scheduler.encode(), port)
        self._do(ADD, made)
        for number in range(servers):
            self._do(ADD_DEST, made + dest(host(number), 1))
        return made

    def delete(self, made):
        self._do(DEL, made)


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


def forked(task, *args):
    """The number of a process that does it until it is killed."""
    pid = os.fork()
    if not pid:
        try:
            task(*args)
        finally:
            os._exit(1)
    return pid


def begin(args):
    """The crowd, when all have a service: process numbers."""
    ready, theirs = os.pipe()
    pids = [forked(reader) for _ in range(args.readers)]
    pids += [forked(member, args, theirs) for _ in range(args.size)]
    for _ in range(args.size):
        os.read(ready, 1)   # one that dies brings the alarm
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
        namespace.add(args, 8, port)
    crowd = begin(args)
    took_us = []
    try:
        for _ in range(args.rounds):
            start = time.monotonic()
            if args.services:
                namespace.delete(namespace.add(args, 8, 0xffff))
            else:
                namespace.change()
            took_us.append((time.monotonic() - start) * 1e6)
            time.sleep(PAUSE_S)  # why: see there
    finally:
        end(crowd)
    print(int(statistics.median(took_us)),
          int(statistics.quantiles(took_us, n=10)[-1]))


if __name__ == "__main__":
    main()
