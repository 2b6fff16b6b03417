#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Every allocation of an operation fails once, one at a time: the n-th of the
system call, for n = 1, 2, ... until none is left to fail (fail-nth of the
kernel's fault injection); then those of the work.  Afterwards the director is
what it was before, or what the operation makes of it; never anything else.

Runs as root in a network namespace of its own, in a kernel with
CONFIG_FAILSLAB.  Prints KTAP; PARAMETERS are those of the module.
"""
import argparse
import ctypes
import errno
import glob
import os
import socket
import struct
import sys
import time
from contextlib import contextmanager, suppress

VIP, PORT = "10.9.0.1", 80
# of the kernel's IPVS interface, linux/ip_vs.h
BASE = 64 + 1024 + 64
ADD, EDIT, DEL, FLUSH = BASE + 2, BASE + 3, BASE + 4, BASE + 5
ADD_DEST, DEL_DEST, EDIT_DEST = BASE + 7, BASE + 8, BASE + 9
FAULTS = "/sys/kernel/debug/failslab"
PAGES = "/sys/kernel/debug/fail_page_alloc"
KNOBS = "/proc/sys/net/ipv4/vs/mhs"
LOADED = "/sys/module/ip_vs_mhs"
SYS_FINIT_MODULE, SYS_DELETE_MODULE = 313, 176
MOST = 100000
# one load allocates that many more or less than another
SLACK = 5
WAIT_S = 20
# of race(): servers without memory at first, and in all
ROUNDS, MISSING, MOST_SERVERS = 20, 8, 120
# of pages(): the array of these is larger than what slabs give in one piece
MANY = 600

libc = ctypes.CDLL(None, use_errno=True)
control = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def address(text):
    return socket.inet_aton(text)


def service(scheduler="mhs", host=VIP, port=PORT, mark=0):
    return struct.pack("=H2x4s2s2xI16sII4s", socket.IPPROTO_TCP,
                       address(host), struct.pack("!H", port), mark,
                       scheduler.encode(), 0, 0, b"\xff" * 4)


def marked(mark):
    return service(host="0.0.0.0", port=0, mark=mark)


# forwarding methods
MASQUERADING, TUNNEL, ROUTE = 0, 2, 3


def dest(number, weight=1, method=ROUTE):
    host = 10 + number
    return struct.pack("=4s2s2xIiII", address(f"10.2.{host >> 8}.{host & 255}"),
                       struct.pack("!H", PORT), method, weight, 0, 0)


def call(command, *parts):
    """Returns an error number or 0."""
    try:
        control.setsockopt(socket.IPPROTO_IP, command, b"".join(parts))
    except OSError as error:
        return error.errno
    return 0


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class Nth:
    """Fails the n-th allocation of what is done within, by this task or by
    any of others; .left says how many were missing to that."""

    def __init__(self, number, tasks=("thread-self",)):
        self._number = number
        self._files = []
        self.left = number
        for task in tasks:
            # workers come and go
            with suppress(FileNotFoundError, ProcessLookupError):
                self._files.append(os.open(f"/proc/{task}/fail-nth",
                                           os.O_RDWR))

    @property
    def hit(self):
        return not self.left

    def __enter__(self):
        for fd in self._files:
            with suppress(ProcessLookupError):
                os.pwrite(fd, b"%d" % self._number, 0)
        return self

    def __exit__(self, *_):
        for fd in self._files:
            with suppress(ProcessLookupError):
                # 0 when the fault was put in
                self.left = min(self.left, int(os.pread(fd, 16, 0)))
                os.pwrite(fd, b"0", 0)
            os.close(fd)


def workers():
    """The kernel's workers: one of them runs the module's work."""
    for name in glob.glob("/proc/[0-9]*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if read(name).startswith("kworker/"):
                yield name.split("/")[2]


@contextmanager
def module_only(faults):
    """Only what functions of the module call is counted, and fails."""
    symbols = [line.split() for line in
               read("/proc/kallsyms").splitlines() if "[ip_vs_mhs]" in line]
    text = sorted(int(at, 16) for at, kind, *_ in symbols if kind in "tT")
    write(f"{faults}/require-start", hex(text[0]))
    write(f"{faults}/require-end", hex(text[-1]))
    try:
        yield
    finally:
        write(f"{faults}/require-start", "0")
        write(f"{faults}/require-end", hex(2 ** 64 - 1))


def rows_shown():
    head, *rows = read("/proc/thread-self/net/ip_vs_mhs").splitlines()
    return [dict(zip(head.split(), line.split())) for line in rows]


def row():
    """What /proc shows of the service: (servers, fingerprint of the table,
    whether it is at rest), or None."""
    rows = rows_shown()
    if not rows:
        return None
    # without a server it waits for one
    rest = rows[0]["State"] == "stable" or rows[0]["Servers"] == "0"
    return (rows[0]["Servers"], rows[0]["CandidatePrint"],
            rest and rows[0]["Gone"] == "0")


def listed():
    """Servers as the core has them."""
    return sorted(line.split()[1] + line.split()[3] for line in
                  read("/proc/thread-self/net/ip_vs").splitlines()[3:]
                  if line.lstrip().startswith("->"))


def state():
    return listed(), row()


def at_rest(found):
    return found[1] is None or found[1][2]


def settle(good, why):
    """The director's state once it is @good."""
    give_up = time.monotonic() + WAIT_S
    while not good(found := state()):
        if time.monotonic() > give_up:
            raise AssertionError(f"{why}: {found}")
        time.sleep(0.02)
    return found


OPERATIONS = {
    "a service is added": ((), lambda: call(ADD, service())),
    "a service by firewall mark is added": ((), lambda: call(ADD, marked(7))),
    "the first server is added":
        ((0,), lambda: call(ADD_DEST, service(), dest(1))),
    "a server is added":
        ((1, 2), lambda: call(ADD_DEST, service(), dest(3))),
    "the sixteenth server is added: the array of servers grows":
        (tuple(range(1, 16)), lambda: call(ADD_DEST, service(), dest(16))),
    "a server by tunnel is added":
        ((1, 2), lambda: call(ADD_DEST, service(), dest(3, 1, TUNNEL))),
    "a masquerading server is added":
        ((1, 2), lambda: call(ADD_DEST, service(), dest(3, 1, MASQUERADING))),
    "a server is to masquerade":
        ((1, 2, 3),
         lambda: call(EDIT_DEST, service(), dest(2, 1, MASQUERADING))),
    "a weight is changed":
        ((1, 2, 3), lambda: call(EDIT_DEST, service(), dest(2, 5))),
    "a server is drained":
        ((1, 2, 3), lambda: call(EDIT_DEST, service(), dest(2, 0))),
    "a server is deleted":
        ((1, 2, 3), lambda: call(DEL_DEST, service(), dest(2))),
    "a service is deleted": ((1, 2, 3), lambda: call(DEL, service())),
    "another scheduler hands over":
        ((1, 2, 3, "rr"), lambda: call(EDIT, service("mhs"))),
    "a service is handed over to another scheduler":
        ((1, 2, 3), lambda: call(EDIT, service("rr"))),
}

# what must work without memory
WITHOUT = ("a server is to masquerade", "a weight is changed",
           "a server is drained", "a server is deleted")


def begin(servers):
    """The director before the operation."""
    scheduler = "mhs"
    if servers and servers[-1] == "rr":
        *servers, scheduler = servers
    call(FLUSH)
    if servers:
        assert not call(ADD, service(scheduler))
    for number in servers:
        if number:
            assert not call(ADD_DEST, service(scheduler), dest(number))
    return settle(at_rest, "does not come to rest")


def operation(name):
    """Returns (faults put in, how many of them the operation survived)."""
    servers, act = OPERATIONS[name]
    write(f"{KNOBS}/hold_ms", "0")
    write(f"{KNOBS}/pin_ms", "100")
    before = begin(servers)
    assert not act()
    after = settle(at_rest, "does not come to rest")
    survived = 0
    for number in range(1, MOST):
        begin(servers)
        with Nth(number) as nth:
            error = act()
        if error not in (0, errno.ENOMEM):
            raise AssertionError(f"fault {number}: {os.strerror(error)}")
        wanted = before if error else after
        # what had no memory is made up for a moment later
        settle(lambda found: found == wanted,
               f"fault {number}, error {error}: not {wanted}")
        if not nth.hit:
            break
        survived += not error
    else:
        raise AssertionError(f"more than {MOST} allocations")
    faults = number - 1
    if name in WITHOUT and faults:
        raise AssertionError(f"it allocates: {faults} times")
    if name not in WITHOUT and not faults:
        raise AssertionError("no allocation was there to fail")
    return faults, survived


def lacking(number):
    """Add a server for which the module, by module_only(), has no memory."""
    with Nth(1) as nth:
        assert not call(ADD_DEST, service(), dest(number))
    assert nth.hit, "nothing was allocated for a server"


def race():
    """Servers are added while the work makes those that had no memory: each
    is there once.  Returns (faults, those that had the intended effect)."""
    survived = 0
    for _ in range(ROUNDS):
        begin((1, 2))
        with module_only(FAULTS):
            for n in range(3, 3 + MISSING):
                lacking(n)
        for n in range(3 + MISSING, MOST_SERVERS):
            assert not call(ADD_DEST, service(), dest(n))
        settle(lambda found: at_rest(found) and
               int(found[1][0]) == len(found[0]),
               "not the core's servers, once each")
        # Not earlier: the work adds for a reader what is missing.
        survived += int(rows_shown()[0]["NoMemory"])
    assert survived, "no server was left out"
    return ROUNDS * MISSING, survived


def retry():
    """The work that makes up for a server has no memory either.  Returns
    (faults, those that had the intended effect)."""
    after = begin((1, 2, 3))
    for faults in range(MOST):
        begin((1, 2))
        with module_only(FAULTS), Nth(faults + 1, workers()) as late:
            lacking(3)
            settle(lambda found: found == after, f"fault {faults + 1}")
        if not late.hit:
            break
    assert faults, "the work allocates nothing"
    return faults, faults


def pages(module):
    """There are pairs of pages at the most, which slabs of 4 KB take where they
    are checked, and what is large is pieced together from single ones.
    Returns (faults, those that had the intended effect)."""
    begin(())
    unload()
    error, _ = load(module, "", 0)
    assert not error, os.strerror(error)
    write(f"{PAGES}/min-order", "2")
    write(f"{PAGES}/times", str(MOST))
    with module_only(PAGES):
        write(f"{PAGES}/probability", "100")
        try:
            assert not call(ADD, service())
            of_service = MOST - int(read(f"{PAGES}/times"))
            for number in range(MANY):
                assert not call(ADD_DEST, service(), dest(number))
        finally:
            write(f"{PAGES}/probability", "0")
    faults = MOST - int(read(f"{PAGES}/times"))
    assert row()[0] == str(MANY), f"{row()[0]} of {MANY} servers"
    assert 0 < of_service < faults, f"{of_service}, then {faults} faults"
    return faults, faults


def unload():
    """Take the module away, if it is there."""
    give_up = time.monotonic() + WAIT_S
    while os.path.exists(LOADED):
        assert time.monotonic() < give_up, "the module stays"
        if libc.syscall(SYS_DELETE_MODULE, b"ip_vs_mhs", 0):
            time.sleep(0.02)


def load(module, parameters, number):
    """Load the module with a fault; returns (error number, Nth)."""
    fd = os.open(module, os.O_RDONLY)
    with Nth(number) as nth:
        failed = libc.syscall(SYS_FINIT_MODULE, fd, parameters.encode(), 0)
        error = ctypes.get_errno() if failed else 0
    os.close(fd)
    return error, nth


def loading(module, parameters):
    """The same for the load of the module.  Its own allocations are those
    after the ones of a load that refuses its parameters at once; what the
    kernel's loader does without memory is not tested here.
    Returns (faults, how many of them the load survived)."""
    unload()
    error, nth = load(module, "table_size=1", MOST)
    assert error == errno.EINVAL, f"table_size=1: {os.strerror(error)}"
    first = MOST - nth.left - SLACK
    error, nth = load(module, parameters, MOST)
    assert not error and not nth.hit, f"not loaded: {os.strerror(error)}"
    last = MOST - nth.left
    faults = survived = 0
    for number in range(last, first, -1):
        unload()
        error, nth = load(module, parameters, number)
        if error not in (0, errno.ENOMEM):
            raise AssertionError(f"fault {number}: {os.strerror(error)}")
        faults += nth.hit
        survived += nth.hit and not error
        if bool(error) == os.path.exists(LOADED):
            raise AssertionError(f"fault {number}: half loaded")
    wanted = last - first - 2 * SLACK
    assert faults >= wanted, f"only {faults} of {wanted} faults happened"
    return faults, survived


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="ip_vs_mhs.ko, not loaded yet")
    parser.add_argument("parameters", nargs="?", default="")
    args = parser.parse_args()
    write(f"{FAULTS}/cache-filter", "N")
    for faults in FAULTS, PAGES:
        write(f"{faults}/ignore-gfp-wait", "N")
        write(f"{faults}/verbose", "0")
    tests = {"the module is loaded":
             lambda: loading(args.module, args.parameters)}
    for name in OPERATIONS:
        tests[name] = lambda n=name: operation(n)
    tests["servers are added while others are made up for"] = race
    tests["a server is made up for"] = retry
    tests["a large table and many servers, memory in small pieces"] = \
        lambda: pages(args.module)
    print("KTAP version 1")
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, test) in enumerate(tests.items(), 1):
        try:
            if not os.path.exists(LOADED):
                load(args.module, args.parameters, 0)
            faults, survived = test()
            good = True
            print(f"# {faults} allocations failed, {survived} without harm")
        except AssertionError as error:
            print(f"# {error}")
            good = False
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} {name}", flush=True)
    call(FLUSH)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
