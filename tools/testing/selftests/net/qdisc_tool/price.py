#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 3000
# weight: 30
"""What a hold costs, by counts of what takes the time: processes, sockets that are
listed, calls between the message that shuts the plug and the one that opens it.  Times are only
noted: others use the machine, too.  MHS_SOCKETS= takes another number of connections."""

import os
import resource
import socket
import sys

from lib import Tool, check, defer, equal, expect_status, main, note, program, read, sysctl, test
from net import PORT, loopback, ready
from qdisc_tool_lib.hold import Plug
from qdisc_tool_lib.listeners import Listeners

RUNS = 20
SOCKETS = int(os.environ.get("MHS_SOCKETS", 5000))
# Python functions and those that are written in C; while it waits for the command
# a hold looks now and then whether it goes on, so the least of many runs counts.
MOST_CALLS = 900
LONG = ("--max-hold", "60s")
PORTS = 20_000                     # of one address


def processes():
    """How many were ever made."""
    return int(read("/proc/stat").split("processes ")[1].split()[0])


@test
def protect_makes_two_processes():
    """tc before the hold, and the command."""
    ready("lo")
    counts = []
    for command in ("true",), ("sh", "-c", "true; /bin/true"):
        before = processes()
        program("protect", "-q", *LONG, *command)
        counts.append(processes() - before)
    equal(counts[0], 3, "processes, with the tool itself")
    check(counts[1] > 3, "the control: one more was not counted")


def calls(*options):
    """How many a hold of "true" makes, and how much longer it is than its command."""
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
        report = expect_status(Tool(*words).wait(), 0, words).report
        return int(os.read(reader, 20)), longer_ms(report)
    finally:
        Plug.shut, Plug.open = shut, end
        os.close(reader)
        os.close(writer)


def longer_ms(report):
    return round(report["holds"][0]["hold_ms"] - report["command_ms"], 1)


def most_calls():
    runs = [calls() for _ in range(RUNS)]
    fewest = min(count for count, _ in runs)
    check(fewest <= MOST_CALLS, f"{fewest} calls")
    return fewest


@test
def a_hold_makes_few_calls():
    ready("lo")
    note(f"{most_calls()} calls")
    more = min(calls("--until", "/bin/true")[0] for _ in range(RUNS))
    check(more > MOST_CALLS, f"the control: {more} calls, with one more process")


def connect(count, keep):
    """So many connections to another port: those that are kept, or leave a socket in
    TIME_WAIT."""
    kept = []
    with socket.create_server(("", PORT + 20 + keep), backlog=4096) as server:
        for number in range(count):
            client = socket.socket()
            client.bind((f"127.1.{int(keep)}.{1 + number // PORTS}", 0))
            client.connect(("127.0.0.1", PORT + 20 + keep))
            peer, _ = server.accept()
            if keep:
                kept += client, peer
            else:
                client.close()
                peer.close()
    defer(lambda: [one.close() for one in kept])


def listed():
    """How many sockets a listing has that asks for all, and that of a hold."""
    listeners, counts = Listeners(), []
    dump = listeners.dump
    listeners.dump = lambda *arguments: counts.append(len(dump(*arguments))) or []
    list(listeners.places(lambda port: True))
    return counts


@test
def a_hold_lists_nothing_that_grows_with_the_host():
    """The control is the count of all sockets."""
    sysctl("net/ipv4/tcp_max_tw_buckets", 1 << 21)
    sysctl("net/ipv4/ip_local_port_range", "10000 65000")
    sysctl("net/ipv4/tcp_tw_reuse", 0)
    most = 4 * SOCKETS + 1000
    sysctl("fs/nr_open", max(most, 1 << 20))
    sysctl("fs/file-max", max(most, 1 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ready("lo")
    counts = []
    for count in 0, SOCKETS:
        connect(count, True)
        connect(count, False)
        there = read("/proc/net/sockstat").splitlines()[1]
        note(there)
        check(int(there.split("tw ")[1].split()[0]) >= 0.9 * count, "too few in TIME_WAIT")
        counts.append(listed())
        holds = [longer_ms(expect_status(Tool("protect", "--json", *LONG, "true").wait(), 0, ()
                                         ).report) for _ in range(RUNS)]
        note(f"longer than the command by {sorted(holds)} ms, {most_calls()} calls")
    equal(counts[0], counts[1], "sockets listed")


if __name__ == "__main__":
    main(loopback)
