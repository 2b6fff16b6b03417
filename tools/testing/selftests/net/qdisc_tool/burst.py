#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 90
"""Connections held on loopback, few and many: who is held, and that nobody
is lost.  Controls are the recipe that is handed round (naive_loopback)."""

import contextlib
import select
import socket

from lib import (LONG, Protecting, Tool, check, equal, main, note, run, set_up, sysctl,
                 test, tool, wait_for)
from net import (PORT, Clients, counters, growth, listen, loopback, naive_loopback, naive_plug,
                 picture, plug, plug_device, plug_waiting, ready)

BACKLOG = "net/core/netdev_max_backlog"
LO4, LO6 = "127.0.0.1", "::1"
LOSSES = ("softnet", "ListenOverflows", "TCPReqQFullDrop")


def lost_nothing(before):
    """A SYN may be sent again because this machine is slow, so that is not
    counted; everything that can drop one is."""
    lost = growth(before, *LOSSES)
    equal(lost, dict.fromkeys(LOSSES, 0), "lost")
    note(f"{growth(before, 'TCPSynRetrans')}")


def hold_and_release(count, address=LO4):
    """Hold @count connections in a protect; its result."""
    with Protecting(*LONG) as protecting, Clients(address, count) as clients:
        wait_for(lambda: plug_waiting("lo") >= count, f"{count} held SYNs")
        result = protecting.finish()
        longest_ms = clients.finish()
        note(f"{count} held, longest {longest_ms:.0f} ms: {result.err}")
        equal(clients.errors, [], "errors")
    return result


def is_held(address=LO4, port=PORT):
    """Whether one new connection waits in the plug of a hold that goes on."""
    before = plug_waiting("lo")
    with Clients(address, 1, port) as clients:
        clients.finish(0.3)
        held = plug_waiting("lo") > before
        equal(bool(clients.pending), held, "no decision")
        return held


@test
def s2_s3_held_connections_are_delayed_and_none_is_dropped():
    """Also of a burst that is more than the backlog of a CPU."""
    sysctl(BACKLOG, 1000)
    # Room for copies is computed from --max-hold.
    set_up("lo", "--port", str(PORT), *LONG)
    for count in 1, 100, 2000:
        server = listen()
        before = counters()
        result = hold_and_release(count)
        equal((result.status, result.report["dropped"]), (0, 0), "status, dropped")
        check(result.hold["held"] >= count, "held too few")
        lost_nothing(before)
        server.close()


@test
def s3_control_the_naive_release_loses_a_part():
    sysctl(BACKLOG, 1000)
    naive_loopback()
    listen()
    before = counters()
    naive_plug("block")
    with Clients(LO4, 2000) as clients:
        wait_for(lambda: plug_waiting("lo") >= 2000, "held SYNs")
        naive_plug("release_indefinite")
        clients.finish()
    lost = growth(before, "TCPSynRetrans", *LOSSES)
    note(lost)
    check(lost["softnet"] and lost["TCPSynRetrans"], "nothing was lost")


@test
def p3_limit_counts_connections_and_overflow_is_reported():
    ready("lo", "--limit", "500", *LONG)
    before = counters()
    result = hold_and_release(500, LO6)     # the longer ones
    check(result.hold["held"] >= 500, "held too few")
    lost_nothing(before)
    tool("clear", "-q")
    set_up("lo", "--port", str(PORT), "--limit", "50")
    for status, *options in (123,), (0, "--allow-unprotected"):
        with Protecting(*LONG, *options) as protecting, Clients(LO4, 300) as clients:
            wait_for(lambda: plug("lo")[1], "drops")
            result = protecting.finish()
            clients.succeed()
        equal(result.status, status, "status")
        check(result.hold["dropped"] and "--limit" in result.err, result.err)


@test
def p7_clear_during_a_hold_loses_nothing():
    before_setup = picture("lo")
    ready("lo")
    before = counters()
    tool("hold", *LONG)
    with Clients(LO4, 50) as clients:
        wait_for(lambda: plug_waiting("lo") >= 50, "held SYNs")
        tool("clear", "-q")
        clients.succeed()
    lost_nothing(before)
    equal(picture("lo"), before_setup, "lo")


def syns_that_are_held():
    """Of all kinds: their names."""
    listen()
    held = {name for name, *where in (
        ("v4", LO4), ("v6", LO6), ("range", LO4, 9001), ("other port", LO4, PORT + 9))
        if is_held(*where)}
    sysctl("net/ipv4/tcp_ecn", 1)
    sysctl("net/ipv4/tcp_fastopen", 0x5)    # data in a SYN without a cookie
    if is_held():
        held.add("ECN")
    before = plug_waiting("lo")
    with socket.socket() as client, contextlib.suppress(BlockingIOError):
        client.setblocking(False)
        client.sendto(b"x" * 500, socket.MSG_FASTOPEN, (LO4, PORT))
    if plug_waiting("lo") > before:
        held.add("Fast Open")
    return held


@test
def s15_p15_syns_of_all_kinds_are_held():
    set_up("lo", "-p", f"{PORT},9000-9001")
    tool("hold", *LONG)
    equal(syns_that_are_held(), {"v4", "v6", "range", "ECN", "Fast Open"}, "held")


@test
def s15_p15_control_the_naive_filter_lets_ipv6_and_ecn_pass():
    naive_loopback(keys=f"protocol ip flower ip_proto tcp dst_port {PORT} tcp_flags 0x2")
    naive_plug("block")
    equal(syns_that_are_held(), {"v4"}, "held")
    naive_plug("release_indefinite")


@test
def s11_s13_p9_holds_lose_no_packet_of_others():
    """Setup and clear may; a hold may not, whatever mark or priority a packet has."""
    set_up("lo", "-p", str(PORT))
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    receiver.bind((LO4, 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    for option, value in (socket.SO_MARK, 1), (socket.SO_PRIORITY, 0x10004):
        sender.setsockopt(socket.SOL_SOCKET, option, value)
    sent = received = 0
    for _ in range(5):        # the holds go on beside the packets
        call = Tool("protect", *LONG, "--pause", "0", "true")
        while call.poll() is None or sent > received:
            sent += bool(sender.send(b"x"))
            wait_for(lambda: select.select([receiver], [], [], 0)[0], "a packet")
            received += bool(receiver.recv(16))
        equal(call.wait().status, 0, "status")
    note(f"{sent} packets")
    equal(received, sent, "received")


@test
def s18_p1_p2_status_says_what_is_known():
    ready("lo")
    tool("status", says="lo: released")
    tool("hold", *LONG)
    tool("status", says="lo: holding")
    tool("release")
    tool("release")
    tool("status", says="lo: released")
    # Shut by hand: nothing leads to it, so it matters to nobody.
    run(f"tc qdisc change dev {plug_device('lo')} root handle 7f20: netem slot 9s")
    tool("status", says="lo: released")
    with Clients(LO4) as clients:
        clients.succeed()


if __name__ == "__main__":
    main(loopback)
