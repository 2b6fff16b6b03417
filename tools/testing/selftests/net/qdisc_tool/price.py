#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 30
"""What a hold costs: imports, processes, and (at native speed) time, of which
the least of many runs is taken, since others use the machine, too."""

import os
import subprocess
import time

from lib import TOP, check, equal, main, note, program, read, set_up, test, tool
from net import PORT, listen, loopback

RUNS = 20
# What each takes a good part of the interpreter's own start to import.
DEAR = {"argparse", "configparser", "enum", "ipaddress", "json", "re",
        "signal", "socket", "subprocess"}
# What a hold takes beyond the command, in starts of the interpreter: 10 ms where a
# start takes 52.
MOST_SHARE = 0.19
PAUSE_MS = 10
# An aim of 2, and some noise.
MOST_STARTS = 2.5
PYTHON = "/usr/bin/python3"
LONG = ("--max-hold", "60s")


def modules(name):
    """What the interpreter has loaded once a part of the tool is imported."""
    return set(subprocess.run(
        [PYTHON, "-BIS", "-c", f"import sys; sys.path.insert(0, "
         f"'{TOP}/scripts'); import qdisc_tool_lib.{name}; "
         "print(*sys.modules)"],
        capture_output=True, text=True, check=True).stdout.split())


@test
def protect_imports_nothing_dear():
    equal(DEAR & (modules("cli") | modules("protect")), set(), "imported")
    check(DEAR & modules("upkeep"), "the control: upkeep imports some")


def processes():
    """How many were ever made."""
    return int(read("/proc/stat").split("processes ")[1].split()[0])


@test
def protect_makes_two_processes():
    listen()
    set_up("lo", "-p", str(PORT))
    before = processes()
    program("protect", "-q", *LONG, "true")
    # With the tool itself: a guard, and the command.
    equal(processes() - before, 3, "processes")
    before = processes()
    program("protect", "-q", *LONG, "sh", "-c", "true; /bin/true")
    check(processes() - before > 3, "the control: one more was not counted")


def command_ms():
    """How long the command takes by itself."""
    began = time.monotonic()
    os.waitpid(os.posix_spawnp("true", ["true"], os.environ), 0)
    return 1000 * (time.monotonic() - began)


def hold_ms(*options):
    return tool("protect", "--json", *options, *LONG,
                "true").hold["hold_ms"]


def call_ms(*command):
    began = time.monotonic()
    subprocess.run(command, check=True)
    return 1000 * (time.monotonic() - began)


def native():
    return os.environ.get("MHS_KERNEL") == "uml"


@test
def a_hold_is_the_commands_own_time():
    listen()
    set_up("lo", "-p", str(PORT))
    hold_ms()
    own = min(command_ms() for _ in range(RUNS))
    held = min(hold_ms() for _ in range(RUNS))
    settled = min(hold_ms("--pause", f"{PAUSE_MS}ms") for _ in range(RUNS))
    start = min(call_ms(PYTHON, "-c", "pass") for _ in range(RUNS))
    note(f"the command takes {own:.1f} ms, its hold {held:.1f} ms, with "
         f"--pause {settled:.1f} ms, the interpreter {start:.0f} ms")
    if native():
        check(held - own <= MOST_SHARE * start, "the hold is too long")
    check(settled - held >= PAUSE_MS / 2, "the control is not longer")


@test
def a_call_takes_two_starts_of_an_interpreter():
    listen()
    set_up("lo", "-p", str(PORT))
    call = ("qdisc_tool", "protect", "-q", *LONG, "true")
    starts, calls = [], []
    while len(calls) < RUNS or native() and len(calls) < 10 * RUNS and \
            min(calls) > MOST_STARTS * min(starts):
        starts.append(call_ms(PYTHON, "-c", "pass"))
        calls.append(call_ms(*call))
    note(f"python: {min(starts):.0f} ms, protect: {min(calls):.0f} ms "
         f"({len(calls)} runs)")
    if native():
        check(min(calls) <= MOST_STARTS * min(starts), "the call is too long")
    check(min(call_ms(PYTHON, "-c", "import argparse, subprocess, json")
              for _ in range(RUNS)) > 1.2 * min(starts),
          "the control: imports cost nothing here")


if __name__ == "__main__":
    main(loopback)
