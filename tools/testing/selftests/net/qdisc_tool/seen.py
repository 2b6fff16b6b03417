#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 30
"""What a hold says of connections that it should have held, and did not."""

import contextlib
import os
import signal
import socket
import subprocess
from unittest import mock

from lib import (LONG, WAIT_S, Protecting, Tool, batch, check, defer, equal, expected, main,
                 man_page, note, read, run, set_up, sysctl, systemctl, test, tool, wait_for)
from net import (HOST4, PORT, TCX, TCX_DROP, XDP, XDP_DROP, Clients, Load, Server, bpf_program,
                 inside, listen, namespace, neighbours_known, network, passes, plug_waiting,
                 ready, tagged)
from qdisc_tool_lib import flower, hold, witness

DEVICE, LO = "host0", "127.0.0.1"
PASSED = 122


def says(status, words, during, *arguments):
    """A protect beside which something happens, and what it says of it."""
    with Protecting(*LONG, *arguments) as protecting:
        during()
        result = protecting.finish()
    note(result.err)
    equal(result.status, status, "status")
    check(words in result.err, f"no {words!r}")
    check(status != PASSED or not result.report["covered"], "covered")
    return result


def pass_by(address=HOST4, where="client"):
    check(passes(address, where=where, wait_s=WAIT_S), "held")


def be_held(where=None, device=DEVICE):
    """A connection that is held; it is lost when the hold ends."""
    clients = Clients(HOST4, where="client")
    defer(clients.__exit__)
    with inside(where):
        wait_for(lambda: plug_waiting(device), "a held SYN")


@test
def filters_of_others_or_none():
    """They come first, for all or for some clients, or in mid-hold; or somebody removes
    ours: the hold ends open."""
    ready(DEVICE)
    first = f"tc filter {{}} dev {DEVICE} ingress pref 1"

    def come():
        be_held()
        run(f"{first.format('add')} matchall action pass")
        pass_by()

    def flush():
        run(f"tc filter del dev {DEVICE} ingress")
        pass_by()
    defer(run, first.format("del"))
    says(0, "", be_held)           # the control
    says(PASSED, f"came by {DEVICE}", come)
    # whether or not some are held beside it
    says(PASSED, f"came by {DEVICE}", pass_by)
    tool("check", says="matchall")
    says(124, "its filters were removed", flush)
    says(0, "", be_held)           # the control
    run(f"{first.format('add')} protocol ip flower src_ip 10.1.0.0/24 action pass")
    result = says(PASSED, f"1 new connections came by {DEVICE}",
                  lambda: (pass_by(where="router"), be_held()))
    check(result.hold["held"], "none was held")
    says(0, "came by", lambda: pass_by(where="router"), "--allow-unprotected")


@test
def connections_with_a_tag():
    tagged()
    ready(DEVICE)
    says(PASSED, "--vlan", lambda: (be_held(), pass_by("10.5.0.1", "router")))
    tool("clear", "-q")
    set_up(DEVICE, "-p", str(PORT), "--vlan")
    says(0, "", lambda: check(not passes("10.5.0.1", where="router"), "not held"))


@test
def clients_by_another_device():
    ready(DEVICE)
    with Clients(LO) as clients:

        def by_lo():
            clients.begin(LO, PORT)
            clients.succeed()
        clients.finish()           # one that was there before is none of them
        result = says(PASSED, "came by lo", lambda: (be_held(), by_lo()))
        equal(result.report["passed"], {"lo": 1}, "passed")
        says(0, "", be_held)       # the control
        tool("clear", "-q")
        # Devices by which nothing comes in.
        for kind in "dummy", "ifb", "vrf table 9", "ipvlan mode l3s":
            run(f"ip link add none9 link {DEVICE} type {kind}")
            set_up("none9", "-p", str(PORT))
            says(PASSED, f"came by {DEVICE}", pass_by)
            tool("clear", "-q")
            run("ip link del none9")
        set_up(DEVICE, "-p", str(PORT), "--exclude", "127.0.0.0/8")
        says(0, "", by_lo)


@test
def clients_that_are_refused_meanwhile():
    """By another device, while the server is closed for its reload."""
    set_up(DEVICE, "-p", "9001")

    says(PASSED, "came by lo", lambda: socket.socket().connect_ex((LO, 9001)))


@test
def what_comes_past_a_tool_that_is_late():
    """More before a hold than it reads at once, and what comes after the deadline while it
    opens.  The controls take both for connections of the hold."""
    ready("lo")

    def late():
        wait_for(lambda: passes(LO, where=None, wait_s=0.2), "the deadline")

    def patch(module, name, first):
        real = getattr(module, name)
        return mock.patch.object(module, name, lambda *all_of: (first(), real(*all_of))[1])

    def begins(is_sure):
        """It reads 25 of 40 packets at once."""
        begin = Witness.begin

        def begins_so(self):
            with mock.patch.object(witness, "_MOST_AT_ONCE", 25):
                begin(self)
            self.is_sure = self.is_sure or is_sure
        return mock.patch.object(Witness, "begin", begins_so)
    Witness = witness.Witness
    short = ("protect", "--max-hold", "2s")
    with patch(flower, "prepare", lambda: [pass_by(LO, None) for _ in range(9)]), \
            patch(hold, "let_go", late):
        with begins(False):
            tool(*short, "true", says="too many")
        with begins(True):
            tool(*short, "true", expect=PASSED, says="came by lo")
        check("came by lo" not in tool(*short, "true").err, "what came late is the hold's")
        with mock.patch.object(Witness, "freeze",
                               lambda self: setattr(self, "_counted", self._answered)):
            tool(*short, "true", expect=PASSED, says="came by lo")
    # The tool is stopped in its hold, and goes on when the deadline is over.
    stopped = Tool(*short, "sh", "-c", "kill -STOP $PPID")
    wait_for(lambda: ") T " in read(f"/proc/{stopped.pid}/stat"), "a tool that is stopped")
    late()
    stopped.send_signal(signal.SIGCONT)
    expected(stopped.wait(), short, 124, "came by lo and were not held: the deadline was over")


@test
def nobody_came_or_listens():
    """That fails no reload: a port may be forwarded, or redirected, and a right set-up may
    have no client."""
    set_up(DEVICE, "-p", str(PORT), "-a", HOST4)
    nobody = "nobody listens"
    says(0, nobody, lambda: None)
    tool("check", says=nobody)
    listen()
    check(nobody not in tool("check").out, "the control of check")
    result = says(0, "", lambda: None)
    equal((result.report["passed"], result.hold["remarks"]), ({}, []), "said")
    # A connection that goes out from a held port.
    tool("clear", "-q")
    set_up("lo", "-p", "9000-9001")
    listen(9001)

    def go_out():
        with socket.create_connection((HOST4, PORT), source_address=("", 9000)):
            pass
    equal(says(0, "", go_out).report["passed"], {}, "what goes out is taken for a client")


def container():
    """Its network, with the device eth0."""
    run("ip netns add pod")
    defer(run, "ip netns del pod")
    batch("ip", ["link add pod0 type veth peer name eth0 netns pod",
                 "addr add 10.9.0.1/24 dev pod0", "link set pod0 up"])
    with namespace("pod"):
        batch("ip", ["addr add 10.9.0.2/24 dev eth0", "link set eth0 up",
                     "link set lo up", "route add default via 10.9.0.1"])


@test
def the_man_page_protects_a_reload_in_a_container():
    container()
    with namespace("pod"):
        server = Server(80).__enter__()
    defer(server.__exit__)
    wait_for(lambda: passes("10.9.0.2", 80, None), "a way to the container")
    systemctl(f"kill -USR1 {server.pid}", "podman")
    prepare, protect = man_page("A proxy in a container").splitlines()
    environment = {**os.environ, "pid": str(server.pid)}
    run(["sh", "-c", prepare], env=environment)

    def failed(command):
        with Load("10.9.0.2", 80, 4) as load:
            load.wait_for_progress(10)
            run(["sh", "-c", command], env=environment)
            load.wait_for_progress(10)
            return load.finish()["failed"]
    equal(failed(protect), 0, "failures")
    reload = protect.split(" -- ")[1]
    check(any(failed(reload) for _ in range(10)), "the control did not fail")


@test
def a_container_behind_a_published_port():
    """8080 outside is 80 in the container."""
    container()
    with namespace("pod"):
        listen(80)
    sysctl("net/ipv4/ip_forward", 1)
    run(["nft", "table ip published { chain in { type nat hook prerouting priority dstnat; "
         f"tcp dport {PORT} dnat to 10.9.0.2:80; }}; }}"])
    defer(run, "nft delete table ip published")
    wait_for(passes, "a way to the container")
    for device, port, where, right in (
            (DEVICE, 80, None, False), ("pod0", 80, None, False),
            (DEVICE, PORT, None, True), ("eth0", 80, "pod", True)):
        there = ("--netns", where) if where else ()
        tool("setup", "-q", *there, "-d", device, "-p", str(port))
        if right:
            result = says(0, "", lambda: be_held(where, device), *there)
            equal(result.report["passed"], {}, "said of what was held")
            # With no client it may be right, and fails no reload.
            says(0, "", lambda: None, *there)
            if where:
                # A firewall that comes in mid-hold, when the tool is back in its own namespace.
                words = f"ip netns exec {where} sh -c".split()
                says(124, "ways in", lambda: run([*words, NFT[0].format("netdev", 0, "eth0")]),
                     *there)
        else:
            says(0, "container", pass_by, *there)
        tool("clear", "-q", *there)


# Item 1: what of others is on the device, by name: what makes it block one client, what
# takes it away, and whether it is met before our filters.
NFT = ("echo 'table {0} ways {{ chain in {{ type filter hook ingress device {2} priority {1}; "
       "ip saddr 10.2.0.2 tcp flags & (syn|ack) == syn drop; }}; }}' | nft -f -",
       "nft delete table {0} ways")
TC = ("tc filter add dev host0 ingress pref {0} protocol ip flower src_ip 10.2.0.2 "
      "ip_proto tcp tcp_flags 0x2/0x17 action {1}",
      "tc filter del dev host0 ingress pref {0}; ip link del other9 2>&- || :")
MIRRED = "mirred egress redirect dev other9"      # an ifb of others, which is down
WAYS = {"nft netdev": (NFT, ("netdev", 0, DEVICE), False),
        "nft inet": (NFT, ("inet", 10, DEVICE), False),
        "tc behind": (TC, (50000, "drop"), False),
        "mirred behind": (TC, (50000, MIRRED), False),
        "tc before": (TC, (1, "drop"), True),
        "mirred before": (TC, (1, MIRRED), True),
        "tcx": (TCX, TCX_DROP, True),
        "XDP": (XDP, XDP_DROP, True)}


@contextlib.contextmanager
def way(kind, what):
    if isinstance(what, int):
        with bpf_program(DEVICE, kind, what):
            yield
        return
    make, undo = (text.format(*what) for text in kind)
    with contextlib.suppress(AssertionError):          # there already, for TC
        run(f"tc qdisc add dev {DEVICE} clsact")
        defer(subprocess.run, f"tc qdisc del dev {DEVICE} clsact".split())
    run(["sh", "-ec", f"ip link add other9 type ifb; {make}" if MIRRED in what else make])
    try:
        yield
    finally:
        run(["sh", "-c", undo])


def after_a_hold(wait_s, *arguments):
    """Whether the blocked client's connection is made, within a time, once a hold ends that
    began while it was there."""
    with Protecting(*LONG, *arguments) as protecting, Clients(HOST4, where="client") as clients:
        clients.finish(0.5)        # held, or dropped
        result = protecting.finish()
        clients.errors.clear()
        clients.finish(wait_s)
        return bool(clients.made), result


@test
def no_way_leads_past_a_firewall():
    """Each way of the table in the page, before setup, between setup and hold, and in a
    hold.  The control is --past-firewalls."""
    neighbours_known()
    listen()
    for name, (*what, is_before) in WAYS.items():
        note(name)
        with way(*what):
            check(not passes(), f"{name}: it does not block")
            tool("setup", "-q", "-d", DEVICE, "-p", str(PORT), expect=0 if is_before else 125)
            tool("clear", "-q", "-d", DEVICE)
        set_up(DEVICE, "-p", str(PORT))
        with way(*what):
            made, result = after_a_hold(0.5, "--allow-unprotected")
            check(not made, f"{name}: a hold let a blocked client in")
            equal("not protected" in result.err, not is_before, f"{name}: {result.err}")
            equal("--past-firewalls" in tool("check", expect=None).out, not is_before,
                  f"{name}: check")
        # It appears in mid-hold.
        with Protecting(*LONG) as protecting, way(*what):
            if not is_before:
                wait_for(lambda: "pref 32546 " not in run(
                    f"tc filter show dev {DEVICE} ingress"), "an end of the hold")
            check(not passes(), f"{name}: in mid-hold it does not block")
            result = protecting.finish()
        equal(result.status, 0 if is_before else 124, f"{name}: {result.err}")
        tool("clear", "-q")
        if is_before:
            continue
        set_up(DEVICE, "-p", str(PORT), "--past-firewalls")
        with way(*what):
            made, result = after_a_hold(WAIT_S)
            check(made, f"{name}: the control blocks: {result.err}")
        tool("clear", "-q")


if __name__ == "__main__":
    main(network)
