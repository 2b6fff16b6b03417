#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 190
"""Connections that arrive from outside, over a router, are held in an ifb: by which kinds
of device, and beside what of others, which is left as it was."""

import contextlib
import os
import select
import subprocess

from lib import (LONG, WAIT_S, Protecting, batch, check, defer, equal, main, note, read, run,
                 set_up, test, tool, wait_for)
from net import (HOST4, HOST6, PORT, TCX, TCX_DROP, TCX_NEXT, XDP, XDP_DROP, XDP_PASS, Clients,
                 Load, Server, bpf_program, connection, counters, echo, handshakes, inside, listen,
                 lost_nothing, namespace, neighbours_known, network, passes, picture, plug_device,
                 plug_waiting, ready, round_trip)

DEVICE = "host0"
# Devices on top of a port, those that a port is in, and tunnels.
ABOVE = ("macvlan mode bridge", "macvlan mode passthru", "macvtap mode bridge", "ipvlan mode l2")
OF_PORTS = ("bridge", "bond mode active-backup miimon 100")
TUNNELS = ("vxlan id 9 dstport 4789", "gre", "ipip")
# Root qdiscs; a veth of two queues has what mq and mqprio need.
ROOTS = (["handle 1: mq", "parent 1:1 handle 77: fq_codel limit 1234"],
         ["handle 1: mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 0"],
         ["handle 1: htb default 1"], ["handle 1: fq limit 1234"],
         ["handle 1: cake bandwidth 900mbit"])


@test
def s4_s15_arriving_connections_are_held_and_none_is_lost():
    neighbours_known()
    listen()
    echo()
    peer = connection(HOST4, PORT + 1, "client")
    set_up(DEVICE, "-a", f"{HOST4},{HOST6}", "-p", f"{PORT}-{PORT + 1}")
    for address in (HOST4, HOST6):
        before = counters()
        with Protecting(*LONG) as protecting, Clients(address, 300, where="client") as clients:
            wait_for(lambda: plug_waiting(DEVICE) >= 300, "held SYNs")
            round_trip(peer)       # what is established is not held
            equal(clients.made, 0, "connected during the hold")
            result = protecting.finish()
            clients.succeed()
        check(result.status == 0 and result.hold["held"] >= 300, result.err)
        lost_nothing(before)


@test
def s5_all_holds_established_flows_of_both_families():
    neighbours_known()
    echo()
    peers = {address: connection(address, PORT + 1, "client") for address in (HOST4, HOST6)}
    for held in (HOST6,), (HOST4, HOST6):
        set_up(DEVICE, "-a", ",".join(held), "--all")
        tool("hold", *LONG)
        for address, peer in peers.items():
            if address not in held:
                round_trip(peer)     # the control: it is answered
        waiting = [peers[address] for address in held]
        for peer in waiting:
            peer.sendall(b"x")
        wait_for(lambda: plug_waiting(DEVICE) >= len(held), "held packets")
        equal(select.select(waiting, [], [], 1)[0], [], "answered, held")
        tool("release")
        for peer in waiting:
            check(peer.recv(1), "the connection was closed")
        tool("clear", "-q")


@test
def s5_all_answers_neighbours_that_ask():
    neighbours_known()
    set_up(DEVICE, "-a", HOST6, "--all")
    tool("hold", *LONG)
    defer(tool, "release")
    mac = read(f"/sys/class/net/{DEVICE}/address").strip()
    with namespace("router"):
        # it asks thrice, to the address itself, and gives up
        run(f"ip neigh replace {HOST6} lladdr {mac} dev host1 nud probe")
        show = f"ip neigh show {HOST6}"
        wait_for(lambda: "PROBE" not in run(show), "an end of asking")
        check("REACHABLE" in run(show), "it is not answered")


@test
def p8_p18_copies_are_held_too_and_excluded_sources_are_not():
    # Room for the copies that clients send is computed from --max-hold.
    ready(DEVICE, "--limit", "40", "--exclude", "10.1.0.0/24")
    with Protecting(*LONG) as protecting, Clients(HOST4, 40, where="client") as clients:
        check(passes(where="router", wait_s=WAIT_S), "the excluded router is held")
        wait_for(lambda: plug_waiting(DEVICE) >= 80, "copies")
        result = protecting.finish()
        clients.succeed()
        equal(result.report["dropped"], 0, "dropped")


@test
def s12_what_is_foreign_is_refused():
    run(f"tc qdisc add dev {DEVICE} clsact")
    defer(run, f"tc qdisc del dev {DEVICE} clsact")
    run(f"tc filter add dev {DEVICE} ingress pref 70 matchall action pass")
    before = picture(DEVICE)
    gate = "setup", "-d", DEVICE, "-p", str(PORT)
    tool(*gate, "--preference", "70", expect=125, says="at the preference 70")
    equal(picture(DEVICE), before, "after refusing a filter")
    tool(*gate, says="matchall, preference 70")
    listen()
    tool("protect", *LONG, "--", "true")
    tool("clear", "-q")
    equal(picture(DEVICE), before, "beside a foreign filter, cleared")


@test
def p21_p23_a_fault_of_the_set_up_costs_one_hold_and_no_connection():
    ready(DEVICE)
    for fault, words in (f"ip link set {plug_device(DEVICE)} down", "down"), (
            f"tc qdisc del dev {DEVICE} clsact", "clsact"):
        run(fault)
        tool("check", expect=1, says=words)
        with Protecting() as protecting:
            check(passes(wait_s=WAIT_S), "nothing passes during a protect")
            result = protecting.finish()
        equal((result.status, "not protected" in result.err), (124, True), "status")
        tool("protect", "--allow-unprotected", "--", "true")
        equal(tool("protect", "--require", "--", "echo", expect=125).out, "", "the command said")
        set_up(DEVICE, "-p", str(PORT))
        tool("check")


@test
def p22_a_device_made_anew_is_noticed():
    run("ip link add anew0 type veth peer name anew1")
    defer(run, "ip link del anew0")
    set_up("anew0", "-p", "80")
    run("ip link del anew0")
    run("ip link add anew0 type veth peer name anew1")
    tool("check", expect=1, says="anew")
    tool("status", expect=1, says="broken")
    tool("protect", *LONG, "--", "sh", "-c", "exit 3", expect=3, says="not protected")
    # What others have put on the new one is theirs.
    batch("tc", ["qdisc add dev anew0 clsact", "filter add dev anew0 ingress "
                 "pref 7 matchall action pass"])
    foreign = picture("anew0")
    tool("clear", "-q", "-d", "anew0")
    equal(picture("anew0"), foreign, "after clear")


@test
def s16_a_namespace_of_its_own_is_the_only_one_touched():
    here = run("tc qdisc show") + run("ip -br link")
    tool("setup", "-q", "--netns", "client", "-d", "lo", "-p", str(PORT))
    defer(tool, "clear", "-q", "--netns", "client")
    with inside("client"):
        listen()
    with Protecting("--netns", "client", *LONG) as protecting, \
            Clients("127.0.0.1", where="client") as clients:
        with namespace("client"):
            wait_for(lambda: plug_waiting("lo"), "a held SYN")
        equal(run("tc qdisc show") + run("ip -br link"), here, "here")
        protecting.finish()
        clients.succeed()
    result = tool("protect", *LONG, "--netns", "client", "--", "readlink", "/proc/self/ns/net")
    equal(result.out.strip(), os.readlink("/proc/self/ns/net"), "the namespace of the command")


@test
def s16_what_is_left_of_a_namespace_or_a_name_goes():
    def directories():
        set_up("lo", "-p", "80")
        tool("clear", "-q")
        return set(os.listdir("/run/qdisc_tool"))
    before = directories()
    run("ip netns add brief")
    with namespace("brief"):
        run("ip link set lo up")
    tool("setup", "-q", "-N", "brief", "-d", "lo", "-p", "80")
    equal(len(directories() - before), 1, "the control: it lives")
    tool("hold", "-N", "brief", "--max-hold", "1s")
    run("ip netns del brief")
    equal(directories(), before, "directories")
    # A device that has another name.
    run("ip link add old0 type veth peer name old1")
    defer(run, "ip link del new0")
    before = picture("old0")
    set_up("old0", "-p", "80")
    run("ip link set old0 name new0")
    tool("clear", "-q", "-d", "old0")
    equal(picture("new0"), before.replace("old0", "new0"), "after clear")


def restart_under_load(*options):
    """Restart a server under load, some times; how many connections failed."""
    with Server(PORT, 1.0) as server, Load(HOST4, PORT, 12, "client") as load:
        for _ in range(2):
            wait_for(lambda: handshakes(PORT), "handshakes")
            tool("protect", *LONG, "--until-new-port", str(PORT), *options,
                 "--", "kill", "-USR1", str(server.pid))
            load.wait_for_progress(12)
        result = load.finish()
    note(f"{options}: {result}")
    return result["failed"]


def client_delay(delay):
    with namespace("client"):
        run(f"tc qdisc replace dev client0 root netem delay {delay}")


@test
def s6_a_pause_lets_handshakes_end():
    """By itself for clients near by, with --pause for those far away."""
    neighbours_known()
    set_up(DEVICE, "-p", str(PORT))
    defer(client_delay, "0ms")
    for delay, options in ("200ms", ()), ("1500ms", ("--pause", "4s")):
        client_delay(delay)
        equal(restart_under_load(*options), 0, f"failures of clients {delay} away")
    check(any(restart_under_load("--pause", "0") for _ in range(5)), "the control did not fail")


def hold_by(device, address, where):
    """A connection is held by @device, and lost by nobody."""
    wait_for(lambda: passes(address, where=where), f"a way by {device}")
    tool("setup", "-q", "-d", device, "-p", str(PORT))
    tool("check")
    try:
        tool("hold", *LONG)
        with Clients(address, 1, where=where) as clients:
            wait_for(lambda: plug_waiting(device), f"a held SYN at {device}")
            clients.take()
            equal(clients.made, 0, "connected during the hold")
            tool("release")
            clients.succeed()
    finally:
        tool("clear", "-q")


@contextlib.contextmanager
def cable(kind):
    """A device kind9 with 10.6.0.0, on top of a veth or through it; 10.6.0.1 is at its
    other end."""
    there = "kind9" if kind in TUNNELS else "port1"
    # udev gives a device that has no address of ours another one, at any time
    run("ip link add port0 address 02:00:00:00:06:01 type veth peer name port1 "
        "address 02:00:00:00:06:02 netns router")
    try:
        for where, one, other in (None, 0, 1), ("router", 1, 0):
            with inside(where):
                batch("ip", [f"addr add 10.7.0.{one}/31 dev port{one}", f"link set port{one} up"])
                if kind in TUNNELS:
                    run(f"ip link add kind9 type {kind} local 10.7.0.{one} remote 10.7.0.{other}")
        if kind in OF_PORTS:
            batch("ip", [f"link add kind9 address 02:00:00:00:06:00 type {kind}", "link set port0 "
                         "down", "link set port0 master kind9", "link set port0 up"])
        elif kind in ABOVE:
            run(f"ip link add kind9 link port0 type {kind}")
        for where, number, name in (None, 0, "kind9"), ("router", 1, there):
            with inside(where):
                batch("ip", [f"addr add 10.6.0.{number}/31 dev {name}", f"link set {name} up"])
        yield
    finally:
        for where, name in (None, "kind9"), ("router", "kind9"), (None, "port0"):
            with inside(where):
                subprocess.run(f"ip link del {name}".split(), check=False, capture_output=True)


@test
def p21_devices_of_many_kinds_hold():
    listen()
    for kind in *ABOVE, *OF_PORTS, *TUNNELS:
        note(kind)
        with cable(kind):
            hold_by("kind9", "10.6.0.0", "router")


@test
def s12_p11_root_qdiscs_of_others_stay_as_they_are():
    """The control is the recipe's first step."""
    neighbours_known()
    listen()
    for root in ROOTS:
        note(root[0])
        batch("tc", [f"qdisc add dev {DEVICE} {'' if 'parent' in line else 'root '}{line}"
                     for line in root])
        before = picture(DEVICE)
        hold_by(DEVICE, HOST4, "client")
        equal(picture(DEVICE), before, "after all")
        run(f"tc qdisc replace dev {DEVICE} root handle 9: prio bands 4")
        check(picture(DEVICE) != before, "the control: a change is not seen")
        run(f"tc qdisc del dev {DEVICE} root")


@test
def p23_what_programs_of_others_let_pass_is_held():
    """The controls let nothing pass."""
    neighbours_known()
    listen()
    for where, let_pass, drop in (XDP, XDP_PASS, XDP_DROP), (TCX, TCX_NEXT, TCX_DROP):
        with bpf_program(DEVICE, where, let_pass):
            hold_by(DEVICE, HOST4, "client")
        with bpf_program(DEVICE, where, drop):
            check(not passes(), "the control: it lets pass")


if __name__ == "__main__":
    main(network)
