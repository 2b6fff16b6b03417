#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 30
"""What a hold costs, by counts of what takes the time: processes, sockets that are
listed, calls between the message that shuts the plug and the one that opens it.  Times are only
noted: others use the machine, too."""

import os
import socket
import sys

from lib import (FAST, Tool, check, defer, equal, expect_status, main, note, program,
                 read, set_up, sysctl, test, write)
from net import PORT, listen, loopback
from qdisc_tool_lib.gate import UNKNOWN_PAUSE_MS
from qdisc_tool_lib.listeners import Listeners
from qdisc_tool_lib.plug import Plug

RUNS = 20
TIME_WAIT = int(os.environ.get("MHS_TIME_WAIT", 9000))
# Python functions and those that are written in C; while it waits for the command
# a hold looks now and then whether it goes on, so the least of many runs counts.
MOST_CALLS = 700
LONG = ("--max-hold", "60s")


def set_up_a_server():
    listen()
    set_up("lo", "-p", str(PORT))


def processes():
    """How many were ever made."""
    return int(read("/proc/stat").split("processes ")[1].split()[0])


@test
def protect_makes_one_process():
    set_up_a_server()
    before = processes()
    program("protect", "-q", *LONG, "true")
    # With the tool itself: the command.
    equal(processes() - before, 2, "processes")
    before = processes()
    program("protect", "-q", *LONG, "sh", "-c", "true; /bin/true")
    check(processes() - before > 2, "the control: one more was not counted")


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


def time_wait(count):
    """So many connections to another port that are in TIME_WAIT here; how many there are."""
    with socket.create_server(("", PORT + 20), backlog=512) as server:
        for number in range(count):
            with socket.create_connection((f"127.0.1.{1 + number // 4000}", PORT + 20)):
                server.accept()[0].close()
    return int(read("/proc/net/sockstat").split("tw ")[1].split()[0])


@test
def a_hold_lists_nothing_that_grows_with_the_host():
    """The control: fewer connections are asked for handshakes."""
    set_up_a_server()
    path = f"{FAST}/listed"
    defer(setattr, Listeners, "_sockets", Listeners._sockets)
    sockets = Listeners._sockets

    def listed(self, states, wanted):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{states}\n")
        return sockets(self, states, wanted)
    Listeners._sockets = listed
    counts = {}
    sysctl("net/ipv4/tcp_max_tw_buckets", 1 << 20)
    for count in 0, TIME_WAIT:
        there = time_wait(count)
        check(there >= count / 2, f"{there} are left of {count}")
        write(path, "")
        holds = [expect_status(Tool("protect", "--json", *LONG, "true").wait(), 0, ()).hold
                 for _ in range(RUNS)]
        counts[count] = set(read(path).split())
        times_ms = sorted(hold["hold_ms"] for hold in holds)
        note(f"{there} in TIME_WAIT: holds of {times_ms[0]} ms, half within "
             f"{times_ms[RUNS // 2]}, all within {times_ms[-1]} ms")
    check(times_ms[0] >= UNKNOWN_PAUSE_MS, f"a pause of {times_ms[0]} ms")
    equal(counts[TIME_WAIT], {str(1 << 10)}, "states listed")
    check(counts[0] > counts[TIME_WAIT], f"the control: {counts}")


if __name__ == "__main__":
    main(loopback)
