#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 30
"""What a hold costs, by counts of what takes the time: imports, processes, calls
between the message that shuts the plug and the one that opens it.  Times are only
noted: others use the machine, too."""

import os
import subprocess
import sys
import time

from lib import (TOP, Tool, check, equal, expect_status, main, note, program, read,
                 set_up, test)
from net import PORT, listen, loopback
from qdisc_tool_lib.plug import Plug

RUNS = 20
# Python functions and those that are written in C; while it waits for the command
# a hold looks now and then whether it goes on, so the least of many runs counts.
MOST_CALLS = 700
PYTHON = "/usr/bin/python3"
QDISC_TOOL = f"{TOP}/scripts/qdisc_tool"
LONG = ("--max-hold", "60s")


def imported(*words):
    """What the interpreter imports in a run."""
    done = subprocess.run([PYTHON, "-B", "-X", "importtime", *words],
                          capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()
            if line.startswith("import time:")}


def dear(*words):
    """What it imports beyond an interpreter's start that is neither ours nor a part
    of the interpreter."""
    return {name for name in imported("-IS", QDISC_TOOL, *words) -
            imported("-c", "pass") if not name.startswith("qdisc_tool_lib")
            and name not in sys.builtin_module_names}


def set_up_a_server():
    listen()
    set_up("lo", "-p", str(PORT))


@test
def protect_imports_nothing_dear():
    set_up_a_server()
    equal(dear("protect", "-q", *LONG, "true"), set(), "imported")
    check("json" in dear("status"), "the control: status imports some")
    for words in (PYTHON, "-c", "pass"), ("qdisc_tool", "protect", "-q", *LONG, "true"):
        note(f"{words[0]}: {min(call_ms(*words) for _ in range(3)):.0f} ms")


def call_ms(*command):
    began = time.monotonic()
    subprocess.run(command, check=True)
    return 1000 * (time.monotonic() - began)


def processes():
    """How many were ever made."""
    return int(read("/proc/stat").split("processes ")[1].split()[0])


@test
def protect_makes_two_processes():
    set_up_a_server()
    before = processes()
    program("protect", "-q", *LONG, "true")
    # With the tool itself: a guard, and the command.
    equal(processes() - before, 3, "processes")
    before = processes()
    program("protect", "-q", *LONG, "sh", "-c", "true; /bin/true")
    check(processes() - before > 3, "the control: one more was not counted")


def calls(*options):
    """How many a hold of "true" makes, and how long it takes."""
    count = 0
    shut, end = Plug.shut, Plug.open
    reader, writer = os.pipe()

    def look(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    def shut_and_count(*arguments):
        shut(*arguments)
        sys.setprofile(look)

    def count_and_open(*arguments):
        sys.setprofile(None)
        end(*arguments)
        if count:
            os.write(writer, b"%d" % count)
    Plug.shut, Plug.open = shut_and_count, count_and_open
    try:
        words = ("protect", "--json", *options, *LONG, "true")
        result = expect_status(Tool(*words).wait(), 0, words)
        return int(os.read(reader, 20)), result.hold["hold_ms"]
    finally:
        Plug.shut, Plug.open = shut, end
        os.close(reader)
        os.close(writer)


@test
def a_hold_makes_few_calls():
    set_up_a_server()
    runs = [calls("--pause", "0") for _ in range(RUNS)]
    fewest = min(count for count, _ in runs)
    note(f"{fewest} calls, {min(took for _, took in runs):.1f} ms")
    check(fewest <= MOST_CALLS, f"{fewest} calls")
    more = min(calls("--pause", "0", "--until", "/bin/true")[0] for _ in range(RUNS))
    check(more > MOST_CALLS, f"the control: {more} calls, with one more process")


if __name__ == "__main__":
    main(loopback)
