#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
"""A kernel without the plug qdisc, as RHEL's: tbf holds in its place."""

import os
import signal

from lib import (Protecting, batch, check, defer, equal, main, note, read, run,
                 set_up, sysctl, test, tool, wait_for, write)
from net import (HOST4, PORT, Clients, counters, growth, listen,
                 network, qdiscs)
from restart import processes

LONG = ("--max-hold", "60s", "--settle", "0")
DEVICE = "host0"
LOSSES = ("softnet", "ListenOverflows", "TCPReqQFullDrop")
PLACES = (("lo", "127.0.0.1", None), (DEVICE, HOST4, "client"))


def kernel():
    """One that cannot load the module again."""
    network()
    run("modprobe -a sch_tbf sch_prio sch_ingress cls_flower act_mirred "
        "act_gact")
    run("modprobe ifb numifbs=0")
    run("modprobe -r sch_plug")
    path = "/proc/sys/kernel/modprobe"
    defer(write, path, read(path))
    write(path, "/bin/false\n")


def queue_of(device):
    if device == "lo":
        return "lo"
    return f"plug{read(f'/sys/class/net/{device}/ifindex').strip()}"


def waiting(device):
    return qdiscs(queue_of(device))["tbf"][0]


@test
def s16_tbf_holds_and_loses_nothing():
    sysctl("net/core/netdev_max_backlog", 1000)
    listen()
    for device, address, where in PLACES:
        for _ in range(2):         # the bucket is full again the second time
            set_up(device, "-p", str(PORT))
            before = counters()
            with Protecting(*LONG) as protecting, \
                    Clients(address, 500, where=where) as clients:
                wait_for(lambda: waiting(device) >= 500, "held SYNs")
                clients.take()
                equal(clients.latency_ms, {}, "connected during the hold")
                result = protecting.finish()
                clients.finish()
                equal(clients.errors, [], "errors")
            note(f"{device}: {result.err}")
            equal(result.status, 0, "status")
            # Of a local sender no copy comes while its SYN is here.
            check(result.hold["held"] >= 500 and
                  (where or result.hold["held"] == 500), result.err)
            equal(result.report["dropped"], 0, "dropped")
            equal(growth(before, *LOSSES), dict.fromkeys(LOSSES, 0), "lost")
        check("tbf" in tool("status", "-d", device).out, "status")
        tool("clear", "-q")


@test
def s16_tbf_that_waits_for_nobody_is_opened():
    """That is, when no packet comes that would make it look."""
    listen()
    for device, address, where in PLACES:
        set_up(device, "-p", str(PORT))
        for _ in range(3):
            result = tool("protect", "--json", *LONG, "true")
            equal(result.hold["held"], 0, "held")
            equal(result.report["dropped"], 0, "dropped")
            with Clients(address, where=where) as clients:
                clients.finish()
                equal(clients.errors, [], "errors")
        tool("clear", "-q")


@test
def s16_tbf_is_opened_whoever_dies():
    listen()
    for device, address, where in PLACES:
        set_up(device, "-p", str(PORT))
        with Protecting(*LONG) as protecting, \
                Clients(address, 5, where=where) as clients:
            wait_for(lambda: waiting(device) >= 5, "held SYNs")
            for pid in processes("plug-watchdog"):
                os.kill(pid, signal.SIGKILL)
            clients.finish()
            equal(clients.errors, [], "errors")
            equal(protecting.finish().status, 124, "status")
        with Protecting(*LONG) as protecting, \
                Clients(address, 5, where=where) as clients:
            wait_for(lambda: waiting(device) >= 5, "held SYNs")
            protecting.process.send_signal(signal.SIGKILL)
            clients.finish()
            equal(clients.errors, [], "errors")
            protecting.process.wait()
        tool("clear", "-q")


@test
def s16_tbf_control_a_changed_rate_alone_neither_shuts_nor_opens():
    batch("tc", ["qdisc add dev lo root handle 1: prio bands 4",
                 "qdisc add dev lo parent 1:4 handle 40: tbf rate 100gbit "
                 "burst 64kb limit 10000000",
                 "filter add dev lo parent 1: protocol ip flower ip_proto tcp "
                 f"dst_port {PORT} tcp_flags 0x2/0x17 classid 1:4"])
    defer(run, "tc qdisc del dev lo root")
    listen()
    change = "tc qdisc change dev lo parent 1:4 handle 40: tbf "
    run(change + "rate 8bit burst 1600 limit 10000000")
    with Clients("127.0.0.1", 50) as clients:
        clients.finish(0.5)
        check(clients.latency_ms, "the bucket let none pass")
        check(waiting("lo"), "it let all pass")
        run(change + "rate 100gbit burst 64kb limit 10000000")
        check(waiting("lo"), "what waits has gone by itself")


if __name__ == "__main__":
    main(kernel)
