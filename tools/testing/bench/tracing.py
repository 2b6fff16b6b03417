# SPDX-License-Identifier: GPL-2.0-only
"""Where the instructions of a packet are spent: the emulator of the counting
machine, told through its monitor, writes down each one, and they are counted by
the function that they belong to.
"""

import bisect
import collections
import os
import shutil
import socket
import threading

import bench

KERNEL_SPACE = 1 << 63


class Symbols:
    """Functions by address, from /proc/kallsyms; bursts begin with one, or all
    that is written down is of bursts."""

    def __init__(self, path, begins):
        found = []
        with open(path, encoding="ascii") as file:
            for line in file:
                address, kind, name, *module = line.split()
                if kind in "tTwW":
                    found.append((int(address, 16), name,
                                  module[0].strip("[]") if module else ""))
        found.sort()
        self.addresses = [address for address, *_ in found]
        self.names = [(name, module) for _, name, module in found]
        self.begins = {address for address, name, _ in found
                       if name == begins}

    def at(self, address):
        """Function, module, offset."""
        place = bisect.bisect_right(self.addresses, address) - 1
        return *self.names[place], address - self.addresses[place]


class Tracer(threading.Thread):
    """Does what lab.Trace asks for."""

    def __init__(self, directory, begins, last):
        super().__init__(daemon=True)
        self.directory = directory
        self._begins = begins
        self._last = last
        self.over = threading.Event()
        self.counts = {}  # (group, what) -> {(function, module): number}
        self._monitor = None
        self._symbols = {}  # of each group

    def run(self):
        asked = self.directory / "ask"
        while not self.over.wait(0.05):
            if not asked.exists():
                continue
            word, *key = asked.read_text(encoding="ascii").split("/")
            trace = self.directory / "trace"
            if word == "on":
                # an instruction a block, none linked to the next
                self._tell("stop", f"logfile {trace}", "singlestep on",
                           "log exec,nochain", "cont")
            else:
                self._tell("stop", "log none", "singlestep off", "cont")
                self.counts[tuple(key)] = self._count(trace, key[0])
                trace.unlink()
            asked.unlink()

    def _tell(self, *commands):
        if self._monitor is None:
            self._monitor = socket.socket(socket.AF_UNIX)
            self._monitor.connect(os.path.relpath(self.directory / "monitor"))
            self._answer()
        for command in commands:
            self._monitor.sendall(f"{command}\n".encode())
            self._answer()

    def _answer(self):
        text = b""
        while not text.endswith(b"(qemu) "):
            more = self._monitor.recv(65536)
            if not more:
                raise SystemExit("bench: QEMU's monitor has ended")
            text += more

    def _count(self, trace, group):
        if group not in self._symbols:
            self._symbols[group] = Symbols(
                self.directory / f"{group}.kallsyms", self._begins)
        symbols = self._symbols[group]
        executed = collections.Counter()
        burst = not self._begins
        with open(trace, encoding="ascii", errors="replace") as file:
            for line in file:
                # Trace 0: 0x7f... [segment/ADDRESS/flags/flags]
                parts = line.split("/", 2)
                if len(parts) < 3:
                    continue
                address = int(parts[1], 16)
                burst = not self._begins or address in symbols.begins or \
                    (burst and address >= KERNEL_SPACE)
                if self._last and address in symbols.begins:
                    executed.clear()
                if burst:
                    executed[address] += 1
        counts = collections.Counter()
        for address, number in executed.items():
            counts[symbols.at(address)[:3 if self._last else 2]] += number
        return counts


def trace(begins, run, last=False):
    """{(group, what): {(function, module): number of instructions}}

    run(options of the machine, directory) runs a guest that calls lab.Trace.
    last: only the last burst of each trace is counted, and the keys are (function,
    module, offset)."""
    directory = bench.WORK / "trace"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tracer = Tracer(directory, begins, last)
    tracer.start()
    try:
        run(("--icount", "--memory", "2G", "--monitor",
             os.path.relpath(directory / "monitor", bench.TOP)), directory)
    finally:
        tracer.over.set()
        tracer.join()
    shutil.rmtree(directory)
    return tracer.counts
