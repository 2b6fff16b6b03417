#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
"""A hold whose tool and guard are killed or frozen together: the kernel ends it,
and the other commands neither wait for the dead nor pass them by."""

import json
import os
import signal
from contextlib import contextmanager

from lib import (FAST, WAIT_S, Tool, check, defer, equal, is_stuck, main, read, run,
                 set_up, test, tool, wait_for, write)
from net import (HOST4, PORT, Clients, listen, neighbours_known, network,
                 plug_device, plug_waiting)
from qdisc_tool_lib.state import DEFAULT_DIRECTORY, State
from restart import processes

HOLD = ("--max-hold", "3s")
PLACES = (("lo", "127.0.0.1", None), ("host0", HOST4, "client"))


# What is written to, and what has come then.
KILL, FREEZE = ("cgroup.kill", "populated 0"), ("cgroup.freeze", "frozen 1")
CGROUP = f"{FAST}/cgroup"


def setup():
    network()
    os.mkdir(CGROUP)
    run(f"mount -t cgroup2 none {CGROUP}")
    defer(run, f"umount {CGROUP}")


@contextmanager
def left_alone(way, hold=HOLD):
    """A protect that is killed or frozen in one moment with its guard."""
    both, (file, end) = f"{CGROUP}/both", way
    os.mkdir(both)
    process = Tool("protect", *hold, "--pause", "0", "--", "sleep", "600")
    wait_for(lambda: processes("sleep"), "the command")
    command, = processes("sleep")
    for pid in process.pid, *processes("plug-guard"):
        write(f"{both}/cgroup.procs", str(pid))
    write(f"{both}/{file}", "1")
    wait_for(lambda: end in read(f"{both}/cgroup.events"), end)
    try:
        yield
    finally:
        write(f"{both}/{KILL[0]}", "1")
        os.kill(command, signal.SIGKILL)
        process.wait()
        # The next one must not take them for its own.
        wait_for(lambda: not processes("sleep") and
                 KILL[1] in read(f"{both}/cgroup.events"), "their end")
        os.rmdir(both)


def alone_in_every_way():
    for device, address, where in PLACES:
        set_up(device, "-p", str(PORT))
        for way in KILL, FREEZE:
            yield device, address, where, way
        tool("clear", "-q")


@test
def s1_when_all_are_dead_or_stopped_the_kernel_ends_the_hold():
    neighbours_known()
    listen()
    for device, address, where, way in alone_in_every_way():
        with left_alone(way), \
                Clients(address, 20, where=where) as clients:
            wait_for(lambda: plug_waiting(plug_device(device)) >= 20, "held SYNs")
            clients.finish()
            equal(clients.errors, [], f"errors on {device} after {way}")
            equal(len(clients.latency_ms), 20, "connected")
            tool("release")


@test
def s1_control_without_an_end_in_the_kernel_they_wait():
    """As long as the hold may last, which here is for ever."""
    listen()
    set_up("lo", "-p", str(PORT))
    with left_alone(KILL, ("--max-hold", "60s")), \
            Clients("127.0.0.1") as clients:
        clients.finish(5)
        equal(clients.errors, ["no answer"], "errors")
        tool("release")


@test
def s1_what_was_left_behind_is_seen_and_ended():
    listen()
    for device, address, where, way in alone_in_every_way():
        # Who is frozen may go on, but for its deadline.
        hold = "60s" if way == KILL else "2s"
        for remedy in (("release",), ("clear", "-q"),
                       ("protect", "--require", "--pause", "0", "true")):
            with left_alone(way, ("--max-hold", hold)), \
                    Clients(address, 5, where=where) as clients:
                wait_for(is_stuck, "its end")
                check("release" in tool("check", expect=1).out, "no advice")
                tool(*remedy)
                clients.finish()
                equal(clients.errors, [], "errors")
                if remedy[0] == "clear":
                    set_up(device, "-p", str(PORT))
                tool("check")
                tool("protect", *HOLD, "--pause", "0", "true")


@test
def s1_filters_go_that_lead_nowhere():
    """The queue is deleted under a hold: the filters drop what they catch."""
    neighbours_known()
    listen()
    set_up("host0", "-p", str(PORT))
    with left_alone(KILL, ("--max-hold", "60s")):
        run(["ip", "link", "del", plug_device("host0")])
        with Clients(HOST4, where="client") as clients:
            clients.finish(3)
            equal(clients.errors, ["no answer"], "control: errors")
        tool("release")
        with Clients(HOST4, 5, where="client") as clients:
            clients.finish()
            equal(clients.errors, [], "errors")
        tool("clear", "-q")
        equal(run("tc qdisc show dev host0 clsact").strip(), "", "clsact")


@test
def s1_a_lock_of_a_stopped_process_is_broken():
    """It stopped as it began a hold, and the command was never run."""
    listen()
    set_up("lo", "-p", str(PORT))
    fd = State(DEFAULT_DIRECTORY).lock("lo", WAIT_S)
    defer(os.close, fd)
    check("lock" in tool("check", expect=1).out, "check does not see it")
    tool("release")
    tool("check")
    tool("protect", *HOLD, "--pause", "0", "true")


@test
def s1_a_release_beside_a_beginning_hold():
    """Whichever comes first, filters are there as long as the hold."""
    set_up("lo", "-p", str(PORT))
    for _ in range(10):
        hold = Tool("hold", "--max-hold", "60s")
        tool("release")
        hold.wait()
        status, = json.loads(tool("status", "--json").out)
        equal("flower" in run("tc filter show dev lo ingress"),
              status["condition"] == "holding", "filters")
        tool("release")
        equal(run("tc filter show dev lo ingress"), "", "left over")


@test
def s1_p6_the_next_protect_ends_what_was_left_behind():
    listen()
    set_up("lo", "-p", str(PORT))
    with left_alone(KILL, ("--max-hold", "60s")), \
            Clients("127.0.0.1") as clients:
        wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
        tool("protect", "--max-hold", "60s", "--pause", "0", "true")
        clients.finish()
        equal(clients.errors, [], "errors")


if __name__ == "__main__":
    main(setup)
