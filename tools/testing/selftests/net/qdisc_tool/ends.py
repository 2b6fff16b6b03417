#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 900
# weight: 60
"""A hold whose tool and watchdog are both killed, or both stopped: the kernel
ends it, and the other commands neither wait for the dead nor pass them by."""

import glob
import json
import os
import signal
import socket
import time
from contextlib import contextmanager

from lib import (Tool, check, equal, main, note, read, run, set_up, test, tool,
                 wait_for)
from net import (HOST4, PORT, Clients, listen, neighbours_known, network,
                 plug_device, plug_waiting)
from restart import processes

HOLD = ("--max-hold", "3s")
PLACES = (("lo", "127.0.0.1", None), ("host0", HOST4, "client"))
# More than a second that a command waits for an answer, and what a slow machine
# adds; less than the 25 that one waited for.
SOON_S = 12


def queue(device):
    return "lo" if device == "lo" else plug_device(device)


def state(pid):
    """Its letter, Z also of a process that is gone."""
    try:
        return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


@contextmanager
def left_alone(number, hold=HOLD):
    """A protect that has got a signal with its watchdog at one moment."""
    process = Tool("protect", *hold, "--settle", "0", "--", "sleep", "600")
    wait_for(lambda: processes("sleep"), "the command")
    command, = processes("sleep")
    pids = [process.pid, *processes("plug-watchdog")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)       # so that neither sees the other go
    for pid in pids:
        os.kill(pid, number)
    # One that is about to die still has its lock.
    wait_for(lambda: all(state(pid) in "TZ" for pid in pids), "their end")
    try:
        yield
    finally:
        for pid in (*pids, command):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
        # The next ones are found by these names.
        wait_for(lambda: not processes("sleep") + processes("plug-watchdog"),
                 "their ends")


def soon(*arguments, expect=0):
    began = time.monotonic()
    result = tool(*arguments, expect=expect)
    took_s = time.monotonic() - began
    note(f"{arguments}: {took_s:.1f} s")
    check(took_s < SOON_S, f"{arguments} waited")
    return result


def alone_in_every_way():
    for device, address, where in PLACES:
        set_up(device, "-p", str(PORT))
        for number in signal.SIGKILL, signal.SIGSTOP:
            yield device, address, where, number
        tool("clear", "-q")


@test
def s1_when_all_are_dead_or_stopped_the_kernel_ends_the_hold():
    neighbours_known()
    listen()
    for device, address, where, number in alone_in_every_way():
        with left_alone(number), \
                Clients(address, 20, where=where) as clients:
            wait_for(lambda: plug_waiting(queue(device)) >= 20, "held SYNs")
            clients.finish()
            equal(clients.errors, [], f"errors on {device} after {number}")
            equal(len(clients.latency_ms), 20, "connected")
            tool("release")


@test
def s1_control_without_an_end_in_the_kernel_they_wait():
    """As long as the hold may last, which here is for ever."""
    listen()
    set_up("lo", "-p", str(PORT))
    with left_alone(signal.SIGKILL, ("--max-hold", "60s")), \
            Clients("127.0.0.1") as clients:
        clients.finish(5)
        equal(clients.errors, ["no answer"], "errors")
        tool("release")


@test
def s1_what_was_left_behind_is_seen_and_ended():
    listen()
    for device, address, where, number in alone_in_every_way():
        for remedy in (("release",), ("clear", "-q")):
            with left_alone(number, ("--max-hold", "60s")), \
                    Clients(address, 5, where=where) as clients:
                wait_for(lambda: plug_waiting(queue(device)) >= 5, "held SYNs")
                equal(json.loads(soon("status", "--json", expect=1).out)
                      [0]["condition"], "stuck", "condition")
                check("release" in soon("check", expect=1).out, "no advice")
                if number == signal.SIGSTOP:
                    soon("protect", "--require", "true", expect=125)
                soon(*remedy)
                clients.finish()
                equal(clients.errors, [], "errors")
                if remedy[0] == "clear":
                    set_up(device, "-p", str(PORT))
                tool("check")
                tool("protect", "--max-hold", "60s", "--settle", "0", "true")


@test
def s1_filters_go_that_lead_nowhere():
    """The queue is deleted under a hold: the filters drop what they catch."""
    neighbours_known()
    listen()
    set_up("host0", "-p", str(PORT))
    with left_alone(signal.SIGKILL, ("--max-hold", "60s")):
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
def s1_a_stopped_watchdog_that_many_have_asked():
    """Its queue of connections is full, and nobody waits for a place."""
    listen()
    set_up("lo", "-p", str(PORT))
    with left_alone(signal.SIGSTOP, ("--max-hold", "60s")), \
            Clients("127.0.0.1") as clients:
        wait_for(lambda: plug_waiting("lo") == 1, "a held SYN")
        sock, = glob.glob("/run/qdisc_tool/**/*.sock", recursive=True)
        asked = []
        try:
            while True:
                asked.append(socket.socket(socket.AF_UNIX,
                                           socket.SOCK_SEQPACKET))
                asked[-1].setblocking(False)
                asked[-1].connect(sock)
        except BlockingIOError:
            note(f"{len(asked)} connections")
        soon("status", expect=1)
        soon("release")
        clients.finish()
        equal(clients.errors, [], "errors")
        for one in asked:
            one.close()


@test
def s1_p6_the_next_protect_ends_what_was_left_behind():
    listen()
    set_up("lo", "-p", str(PORT))
    with left_alone(signal.SIGKILL, ("--max-hold", "60s")), \
            Clients("127.0.0.1") as clients:
        wait_for(lambda: plug_waiting("lo") == 1, "a held SYN")
        tool("protect", "--max-hold", "60s", "--settle", "0", "true")
        clients.finish()
        equal(clients.errors, [], "errors")


if __name__ == "__main__":
    main(network)
