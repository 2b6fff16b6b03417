#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 3000
# weight: 30
"""What a hold costs, by counts of what takes the time: calls (functions of Python, and those
written in C) from the message that shuts the plug to the one that opens it.  What the tool
does while it waits for the command is not counted: a slow machine waits longer.  Times are
only noted.  MHS_SOCKETS= takes another number of connections."""

import ctypes
import mmap
import os
import subprocess
import sys
from unittest import mock

from lib import (FAST, LONG, TOP, check, defer, equal, main, note, read, run, sysctl, test, tool)
from net import ready
from qdisc_tool_lib import listeners
from qdisc_tool_lib.hold import Plug
from qdisc_tool_lib.listeners import Listeners
from qdisc_tool_lib.protect import Protect

SOCKETS = int(os.environ.get("MHS_SOCKETS", 2000))
RUNS = int(os.environ.get("MHS_RUNS", 3))
MOST_CALLS = 750


# The processor's own clock, since that of a machine may stand still (MHS_SOCKETS=1000000):
# rdtsc; rax = rdx << 32 | rax; ret
CODE = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
CODE.write(bytes.fromhex("0f3148c1e2204809d0c3"))
clock = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(CODE)))


class Meter:
    """Of one hold of "true", in the process of the tool."""

    def __init__(self, counts=True):
        self._counts, self._since = counts, None
        self._calls = self._ticks = 0

    def _count(self, _frame, event, _argument):
        self._calls += event in ("call", "c_call")

    def go(self):
        self._since = clock()
        sys.setprofile(self._count if self._counts else None)

    def rest(self):
        """Whether it went on."""
        sys.setprofile(None)
        if self._since is None:
            return False
        self._ticks += clock() - self._since
        self._since = None
        return True

    def measure(self, *options):
        """Its calls, and its ticks of the clock."""
        shut, wait, end = Plug.shut, Protect._wait, Plug.open
        reader, writer = os.pipe()

        def waiting(*arguments):
            went_on = self.rest()
            wait(*arguments)
            if went_on:
                self.go()

        def opening(*arguments):
            if self.rest():
                os.write(writer, f"{self._calls} {self._ticks}".encode())
            end(*arguments)
        with mock.patch.multiple(Plug, shut=lambda *a: (shut(*a), self.go()), open=opening), \
                mock.patch.object(Protect, "_wait", waiting), open(reader), open(writer, "w"):
            tool("protect", *LONG, *options, "true")
            return tuple(map(int, os.read(reader, 99).split()))


def calls():
    """Those of a hold, which always makes the same."""
    count, again = (Meter().measure()[0] for _ in range(2))
    equal(count, again, "calls")
    ticks = sorted(Meter(False).measure()[1] // 1000 for _ in range(RUNS))
    note(f"{count} calls; thousands of ticks: {ticks}")
    return count


@test
def a_hold_makes_few_calls():
    ready("lo")
    check(calls() <= MOST_CALLS, "too many")
    more, _ = Meter().measure("--until", "/bin/true")
    check(more > calls(), f"the control: {more} calls, with one more process")


def connect(count):
    """So many connections of another port, and so many sockets in TIME_WAIT."""
    run(f"gcc -O2 -o {FAST}/sockets {TOP}/tools/testing/bench/reload/sockets.c")
    maker = subprocess.Popen([f"{FAST}/sockets", str(count)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    defer(maker.communicate)
    check(maker.stdout.readline(), "they are not made")


def listed():
    """How many sockets the listing of a hold has."""
    listeners, counts = Listeners(), []
    dump = listeners.dump
    listeners.dump = lambda *arguments: counts.append(len(dump(*arguments))) or []
    list(listeners.places(lambda port: True))
    return counts


@test
def a_hold_lists_nothing_that_grows_with_the_host():
    """The control lists established ones."""
    for name, value in (("net/ipv4/tcp_max_tw_buckets", 1 << 21), ("net/ipv4/tcp_tw_reuse", 0),
                        ("net/ipv4/ip_local_port_range", "10000 65000"),
                        ("fs/nr_open", 1 << 22), ("fs/file-max", 1 << 22)):
        sysctl(name, value)
    ready("lo")
    counts = []
    for count in 0, SOCKETS:
        if count:
            connect(count)
        there = read("/proc/net/sockstat").splitlines()[1]
        note(there)
        check(int(there.split("tw ")[1].split()[0]) >= 0.9 * count, "too few in TIME_WAIT")
        counts.append((listed(), calls()))
    equal(counts[0], counts[1], "sockets listed, calls")
    with mock.patch.object(listeners, "_TCP_LISTEN", 1):       # TCP_ESTABLISHED
        check(sum(listed()) >= SOCKETS, "the control lists no more")


if __name__ == "__main__":
    main()
