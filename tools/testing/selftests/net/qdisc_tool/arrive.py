#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 130
"""Connections that arrive from outside, over a router, are held in an ifb;
what belongs to others on the device is left as it was."""

import json
import os
import select

from lib import (WAIT_S, Protecting, batch, check, defer, equal, main, note,
                 read, run, set_up, test, tool, wait_for)
from net import (HOST4, HOST6, PORT, Clients, Echo, connection, counters,
                 growth, inside, listen, namespace, network, picture,
                 plug_waiting, qdiscs, round_trip_ms)
import bpf
import restart

DEVICE = "host0"
LONG = ("--max-hold", "60s")
HOST_LOSSES = ("softnet", "ListenOverflows")


def ifb():
    """The plug's device."""
    return f"plug{read(f'/sys/class/net/{DEVICE}/ifindex').strip()}"


def ask_client():
    with namespace("client"):
        return counters()


def passes(address=HOST4, port=PORT, where="client", wait_s=1.0):
    """Whether a connection is made although a hold goes on."""
    with Clients(address, 1, port, where) as clients:
        clients.finish(wait_s)
        return bool(clients.latency_ms)


def neighbours_known():
    """Address resolution is not what is measured."""
    listen(PORT + 2)
    for address in (HOST4, HOST6):
        wait_for(lambda: passes(address, PORT + 2), f"a way to {address}")


def neighbour(address):
    """What the namespace that we are in knows of it."""
    return run(f"ip neigh show {address}")


@test
def s4_s15_arriving_connections_are_held_and_none_is_lost():
    neighbours_known()
    listen()
    Echo()
    peer = connection(HOST4, PORT + 1, "client")
    set_up(DEVICE, "-a", f"{HOST4},{HOST6}", "-p", f"{PORT}-{PORT + 1}")
    for address in (HOST4, HOST6):
        host, client = counters(), ask_client()
        with Protecting(*LONG) as protecting, \
                Clients(address, 300, where="client") as clients:
            wait_for(lambda: plug_waiting(ifb()) >= 300, "held SYNs")
            note(f"established: {round_trip_ms(peer):.0f} ms")
            equal(clients.latency_ms, {}, "connected during the hold")
            result = protecting.finish()
            clients.finish()
            equal(clients.errors, [], "errors")
        equal(result.status, 0, "status")
        check(result.hold["held"] >= 300, "held")
        equal(result.report["dropped"], 0, "dropped")
        lost = growth(host, *HOST_LOSSES)
        equal(lost, dict.fromkeys(HOST_LOSSES, 0), "lost")
        with namespace("client"):
            note(f"sent again: {growth(client, 'TCPSynRetrans')}")


@test
def s5_all_holds_established_flows_of_both_families():
    neighbours_known()
    Echo()
    peers = {address: connection(address, PORT + 1, "client")
             for address in (HOST4, HOST6)}
    for held in (HOST6,), (HOST4, HOST6):
        set_up(DEVICE, "-a", ",".join(held), "--all")
        tool("hold", *LONG)
        for address, peer in peers.items():
            if address not in held:
                round_trip_ms(peer)     # the control: it is answered
        waiting = [peers[address] for address in held]
        for peer in waiting:
            peer.sendall(b"x")
        wait_for(lambda: plug_waiting(ifb()) >= len(held), "held packets")
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
        wait_for(lambda: "PROBE" not in neighbour(HOST6), "an end of asking")
        check("REACHABLE" in neighbour(HOST6), neighbour(HOST6))


@test
def p8_copies_that_remote_clients_send_are_held_too():
    neighbours_known()
    listen()
    # Room for the copies is computed from --max-hold.
    set_up(DEVICE, "-p", str(PORT), "--limit", "40", *LONG)
    with Protecting() as protecting, \
            Clients(HOST4, 40, where="client") as clients:
        wait_for(lambda: plug_waiting(ifb()) >= 80, "copies")
        result = protecting.finish()
        clients.finish()
        equal(clients.errors, [], "errors")
        equal(result.report["dropped"], 0, "dropped")


@test
def s12_nothing_of_the_device_changes():
    nothing_changes([f"qdisc add dev {DEVICE} root handle 1: htb default 1",
                     f"class add dev {DEVICE} parent 1: classid 1:1 htb rate "
                     "1gbit"])


@test
def s12_nothing_of_a_device_with_queues_changes():
    nothing_changes([f"qdisc add dev {DEVICE} root handle 1: mq"])


def nothing_changes(root):
    """By a hold, beside this root qdisc with another of its own."""
    defer(run, f"tc qdisc del dev {DEVICE} root")
    batch("tc", [*root, f"qdisc add dev {DEVICE} parent 1:1 handle 77: "
                 "fq_codel limit 1234"])
    before = picture(DEVICE)
    set_up(DEVICE, "-p", str(PORT))
    prepared = picture(DEVICE)
    tool("protect", *LONG, "--", "true")
    equal(picture(DEVICE), prepared, "after protect")
    refused = tool("setup", "-q", "-d", DEVICE, "-p", "1", expect=125)
    check("clear" in refused.err, refused.err)
    set_up(DEVICE, "-p", str(PORT))
    equal(picture(DEVICE), prepared, "after a second setup")
    tool("clear", "-q")
    equal(picture(DEVICE), before, "after clear")
    check(not os.path.exists(f"/sys/class/net/{ifb()}"), "the ifb stays")


@test
def s12_what_is_foreign_is_refused():
    run(f"tc qdisc add dev {DEVICE} root handle 1: htb default 1")
    defer(run, f"tc qdisc del dev {DEVICE} root")
    before = picture(DEVICE)
    result = tool("setup", "-d", DEVICE, "-p", "80", "--mode", "egress",
                  expect=125)
    check("htb 1:" in result.err and "ingress" in result.err, result.err)
    equal(picture(DEVICE), before, "after refusing a root")
    run(f"tc qdisc add dev {DEVICE} clsact")
    defer(run, f"tc qdisc del dev {DEVICE} clsact")
    run(f"tc filter add dev {DEVICE} ingress pref 7 matchall action pass")
    before = picture(DEVICE)
    result = tool("setup", "-d", DEVICE, "-p", "80", expect=125)
    check("matchall" in result.err and "preference 7" in result.err,
          result.err)
    equal(picture(DEVICE), before, "after refusing a filter")
    set_up(DEVICE, "-p", "80", "--preference", "1")
    tool("protect", *LONG, "--", "true")
    tool("clear", "-q")
    equal(picture(DEVICE), before, "beside a foreign filter, cleared")


@test
def p23_a_program_before_the_filters_is_refused():
    if not bpf.has_tcx(DEVICE):
        note("this kernel has no tcx, so nothing comes before clsact")
        return
    before = picture(DEVICE)
    with bpf.Program(DEVICE, bpf.TCX, "takes_all", bpf.TCX_PASS):
        result = tool("setup", "-d", DEVICE, "-p", str(PORT), expect=125)
        check("tcx" in result.err and "takes_all" in result.err, result.err)
        equal(picture(DEVICE), before, "after refusing a program")
    neighbours_known()
    listen()
    with bpf.Program(DEVICE, bpf.TCX, "goes_on", bpf.TCX_NEXT):
        set_up(DEVICE, "-p", str(PORT), "--preference", "1")
        with Protecting(*LONG, "--settle", "0") as protecting:
            check(not passes(), "not held behind a program that goes on")
            equal(protecting.finish().status, 0, "status")
        tool("clear", "-q")
    set_up(DEVICE, "-p", str(PORT))
    tool("check")
    with bpf.Program(DEVICE, bpf.TCX, "takes_all", bpf.TCX_PASS):
        result = tool("check", expect=1)
        check("takes_all" in result.out, result.out)


@test
def p23_an_xdp_program_is_named_and_what_it_lets_pass_is_held():
    neighbours_known()
    listen()
    set_up(DEVICE, "-p", str(PORT))
    check("XDP" not in tool("check").out, "the control")
    with bpf.Program(DEVICE, bpf.XDP, "lets_pass", bpf.XDP_PASS):
        check("lets_pass" in tool("check").out, "check does not name it")
        with Protecting(*LONG, "--settle", "0") as protecting:
            check(not passes(), "not held behind XDP")
            equal(protecting.finish().status, 0, "status")


def _held_nothing(between, status):
    """A protect during which connections are made that no lane holds."""
    with Protecting(*LONG, "--settle", "0") as protecting:
        between()
        result = protecting.finish()
    equal(result.status, status, "status")
    equal(result.hold["held"], 0, "held")
    return result


def _traffic(port):
    for _ in range(5):
        check(passes(port=port, wait_s=WAIT_S), "a connection is held")


@test
def p23_a_hold_that_met_no_packet_says_so():
    neighbours_known()
    listen()
    listen(PORT + 3)
    set_up(DEVICE, "-p", str(PORT))
    # The control: packets meet the filters, and none is for them.
    result = _held_nothing(lambda: _traffic(PORT + 3), 0)
    check("met" not in result.err, result.err)
    if not bpf.has_tcx(DEVICE):
        note("this kernel has no tcx, so nothing comes before clsact")
        return
    with bpf.Program(DEVICE, bpf.TCX, "takes_all", bpf.TCX_PASS):
        result = _held_nothing(lambda: _traffic(PORT), 124)
        check("none met" in result.err, result.err)
        check(result.hold["missed"], "not counted")
        check(not result.report["covered"], "covered")


@test
def p21_devices_by_which_nothing_comes_in_are_refused():
    batch("ip", [
        "link add vrf9 type vrf table 9", "link add port9 type dummy",
        "link set port9 master vrf9",
        f"link add ipvlan9 link {DEVICE} type ipvlan mode l3s"])
    for name in ("vrf9", "port9", "ipvlan9"):
        defer(run, f"ip link del {name}")
    for name, remedy in (("vrf9", "port9"), ("ipvlan9", DEVICE),
                         ("port9", "lo")):
        result = tool("setup", "-d", name, "-p", str(PORT), expect=125)
        check(f"set up {remedy}" in result.err, result.err)
    run("ip link set ipvlan9 type ipvlan mode l3")
    set_up("ipvlan9", "-p", str(PORT))     # the control


@test
def p13_tagged_packets_are_held_with_vlan_only():
    with namespace("router"):
        batch("ip", ["link add link host1 name tagged type vlan id 5",
                     "addr add 10.5.0.2/24 dev tagged", "link set tagged up"])
    batch("ip", [f"link add link {DEVICE} name tagged type vlan id 5",
                 "addr add 10.5.0.1/24 dev tagged", "link set tagged up"])
    defer(run, "ip link del tagged")
    listen()
    for options, held in (((), False), (("--vlan",), True)):
        set_up(DEVICE, "-p", str(PORT), *options)
        tool("hold", *LONG)
        equal(not passes("10.5.0.1", where="router",
                         wait_s=1.0 if held else WAIT_S), held,
              f"held with {options}")
        tool("clear", "-q")


@test
def p18_excluded_sources_are_not_held():
    with namespace("client"):
        run("ip addr add 10.2.0.9/24 dev client0")
    neighbours_known()
    listen()
    set_up(DEVICE, "-p", str(PORT), "--exclude", "10.1.0.0/24")
    tool("hold", *LONG)
    check(passes(where="router", wait_s=WAIT_S), "the excluded router is held")
    check(not passes(), "the client is not held")
    tool("release")


@test
def p4_control_the_default_limit_of_an_ifb_is_small():
    neighbours_known()
    listen()
    batch("ip", ["link add naive type ifb", "link set naive up"])
    defer(run, "ip link del naive")
    batch("tc", [
        "qdisc add dev naive root handle 40: plug",
        f"qdisc add dev {DEVICE} clsact",
        f"filter add dev {DEVICE} ingress protocol ip flower ip_proto tcp "
        f"dst_port {PORT} tcp_flags 0x2/0x17 "
        "action mirred egress redirect dev naive"])
    defer(run, f"tc qdisc del dev {DEVICE} clsact")
    with Clients(HOST4, 1000, where="client"):
        wait_for(lambda: qdiscs("naive")["plug"][1], "drops")
    note(f"full at {qdiscs('naive')['plug'][0]}")


@test
def p21_a_fault_of_the_ifb_costs_one_hold_and_no_connection():
    neighbours_known()
    listen()
    set_up(DEVICE, "-p", str(PORT))
    run(f"ip link set {ifb()} down")
    check(passes(wait_s=WAIT_S), "nothing passes")
    check("down" in tool("check", expect=1).out, "check does not see it")
    with Protecting() as protecting:
        check(passes(wait_s=WAIT_S), "nothing passes during a protect")
        result = protecting.finish()
    equal(result.status, 124, "status")
    check("not protected" in result.err, result.err)
    tool("protect", "--allow-unprotected", "--", "true")
    equal(tool("protect", "--require", "--", "echo", expect=125).out, "",
          "what the command said")


@test
def p21_control_filters_that_stay_lose_every_connection():
    neighbours_known()
    listen()
    batch("ip", ["link add naive type ifb", "link set naive up"])
    defer(run, "ip link del naive")
    batch("tc", [
        f"qdisc add dev {DEVICE} clsact",
        f"filter add dev {DEVICE} ingress protocol ip flower ip_proto tcp "
        f"dst_port {PORT} tcp_flags 0x2/0x17 "
        "action mirred egress redirect dev naive"])
    defer(run, f"tc qdisc del dev {DEVICE} clsact")
    check(passes(wait_s=WAIT_S), "nothing passes even with the ifb up")
    run("ip link set naive down")
    check(not passes(), "a connection was made")


def _holds_by(master, kind):
    """Whether connections to a device with ports are held there, and what
    setup says of a port."""
    # udev gives a device without an address of ours another one, at any time
    run(f"ip link add {master} address 02:00:00:00:06:00 type {kind}")
    defer(run, f"ip link del {master}")
    batch("ip", [
        "link add port0 address 02:00:00:00:06:01 type veth "
        "peer name port1 address 02:00:00:00:06:02 netns router",
        f"link set port0 master {master}", "link set port0 up",
        f"addr add 10.6.0.1/24 dev {master}", f"link set {master} up"])
    defer(run, "ip link del port0")
    with namespace("router"):
        batch("ip", ["addr add 10.6.0.2/24 dev port1", "link set port1 up"])
    wait_for(lambda: passes("10.6.0.1", where="router"), f"a {kind}")
    set_up(master, "-p", str(PORT))
    result = tool("check", "-d", master)
    check("instead" not in result.out, result.out)
    tool("hold", *LONG)
    check(not passes("10.6.0.1", where="router"), f"{kind}: not held")
    tool("release")
    check(passes("10.6.0.1", where="router", wait_s=WAIT_S),
          f"{kind}: does not pass")
    tool("clear", "-q")
    result = tool("setup", "-d", "port0", "-p", str(PORT))
    check(f"set up {master} instead" in result.err, result.err)
    result = tool("check", "-d", "port0")
    check(f"set up {master} instead" in result.out, result.out)
    tool("clear", "-q")


@test
def p21_a_bridge_is_held_and_not_its_ports():
    listen()
    _holds_by("bridge9", "bridge")


@test
def p21_a_bond_is_held_and_not_its_ports():
    listen()
    _holds_by("bond9", "bond mode active-backup miimon 100")


@test
def p22_a_device_made_anew_is_noticed():
    run("ip link add anew0 type veth peer name anew1")
    defer(run, "ip link del anew0")
    set_up("anew0", "-p", "80")
    run("ip link del anew0")
    run("ip link add anew0 type veth peer name anew1")
    check("anew" in tool("check", expect=1).out, "check does not see it")
    equal(json.loads(tool("status", "--json", expect=1).out)[0]["condition"],
          "broken", "condition")
    result = tool("protect", *LONG, "--", "sh", "-c", "exit 3", expect=3)
    check("not protected" in result.err, result.err)
    # What others have put on the new one is theirs.
    batch("tc", ["qdisc add dev anew0 clsact", "filter add dev anew0 ingress "
                 "pref 7 matchall action pass"])
    foreign = picture("anew0")
    tool("clear", "-q", "-d", "anew0")
    equal(picture("anew0"), foreign, "after clear")
    run("tc qdisc del dev anew0 clsact")
    set_up("anew0", "-p", "80")
    tool("check")


@test
def s16_a_namespace_of_its_own_is_the_only_one_touched():
    here = run("tc qdisc show") + run("ip -br link")
    with namespace("client"):
        run("ip link set lo up")
    tool("setup", "-q", "--netns", "client", "-d", "lo", "-p", str(PORT))
    equal(run("tc qdisc show") + run("ip -br link"), here, "here")
    with inside("client"):
        server = listen()
        name = os.readlink("/proc/self/ns/net")
        check("plug" in qdiscs("lo"), "not set up there")
    with Protecting("--netns", "client", *LONG) as protecting, \
            Clients("127.0.0.1", 30, where="client") as clients:
        def held():
            with namespace("client"):
                return plug_waiting("lo") == 30
        wait_for(held, "held SYNs")
        result = protecting.finish()
        clients.finish()
        equal(clients.errors, [], "errors")
    check(result.hold["held"] >= 30, "held too few")
    equal(result.report["dropped"], 0, "dropped")
    result = tool("protect", *LONG, "--netns", "client", "--", "readlink",
                  "/proc/self/ns/net")
    check(result.out.strip() != name, "the command changed its namespace")
    tool("clear", "-q", "--netns", "client")
    server.close()


@test
def s16_end_of_the_namespace_ends_the_hold():
    run("ip netns add brief")
    with namespace("brief"):
        run("ip link set lo up")
    tool("setup", "-q", "-N", "brief", "-d", "lo", "-p", "80")
    tool("hold", "-N", "brief", "--max-hold", "1s")
    run("ip netns del brief")
    wait_for(lambda: not restart.processes("plug-watchdog"), "its end")


def _restart_under_load(*options):
    """Restart a server under load, some times; how many connections failed."""
    with restart.Server(PORT) as server, \
            restart.Load(HOST4, PORT, 12, "client") as load:
        for _ in range(2):
            wait_for(lambda: restart.handshakes(PORT), "handshakes")
            tool("protect", *LONG, "--until-new-port", str(PORT), *options,
                 "--", "kill", "-USR1", str(server.pid))
            load.wait_for_progress(12)
        result = load.finish()
    note(f"{options}: {result}")
    return result["failed"]


@test
def s6_settle_lets_handshakes_end():
    neighbours_known()
    with namespace("client"):
        run("tc qdisc add dev client0 root netem delay 1500ms")
        defer(_clear_delay)
    set_up(DEVICE, "-p", str(PORT))
    equal(_restart_under_load("--settle", "4s"), 0, "failures")
    equal(_restart_under_load(), 0, "failures with the default")
    check(any(_restart_under_load("--settle", "0") for _ in range(5)),
          "the control did not fail")


def _clear_delay():
    with namespace("client"):
        run("tc qdisc del dev client0 root")


if __name__ == "__main__":
    main(network)
