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
from net import (HOST4, HOST6, PORT, Clients, Echo, connection, counters, growth, inside, listen,
                 namespace, neighbours_known, network, passes, picture, plug_device, plug_waiting,
                 ready, round_trip_ms)
import restart

DEVICE = "host0"
LONG = ("--max-hold", "60s")
HOST_LOSSES = ("softnet", "ListenOverflows")


def ifb():
    return plug_device(DEVICE)


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
        before = counters()
        with Protecting(*LONG) as protecting, Clients(address, 300, where="client") as clients:
            wait_for(lambda: plug_waiting(ifb()) >= 300, "held SYNs")
            note(f"established: {round_trip_ms(peer):.0f} ms")
            equal(clients.latency_ms, {}, "connected during the hold")
            result = protecting.finish()
            clients.succeed()
        check(result.status == 0 and result.hold["held"] >= 300, result.err)
        lost = growth(before, *HOST_LOSSES)
        equal(lost, dict.fromkeys(HOST_LOSSES, 0), "lost")


@test
def s5_all_holds_established_flows_of_both_families():
    neighbours_known()
    Echo()
    peers = {address: connection(address, PORT + 1, "client") for address in (HOST4, HOST6)}
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
def p8_p18_copies_are_held_too_and_excluded_sources_are_not():
    neighbours_known()
    listen()
    # Room for the copies that clients send is computed from --max-hold.
    set_up(DEVICE, "-p", str(PORT), "--limit", "40", "--exclude", "10.1.0.0/24", *LONG)
    with Protecting() as protecting, Clients(HOST4, 40, where="client") as clients:
        check(passes(where="router", wait_s=WAIT_S), "the excluded router is held")
        wait_for(lambda: plug_waiting(ifb()) >= 80, "copies")
        result = protecting.finish()
        clients.succeed()
        equal(result.report["dropped"], 0, "dropped")


@test
def s12_what_is_foreign_is_refused():
    run(f"tc qdisc add dev {DEVICE} clsact")
    defer(run, f"tc qdisc del dev {DEVICE} clsact")
    run(f"tc filter add dev {DEVICE} ingress pref 70 matchall action pass")
    before = picture(DEVICE)
    for preference, words in ("60", "preference 70"), ("70", "at the preference 70"):
        result = tool("setup", "-d", DEVICE, "-p", "80", "--preference", preference, expect=125)
        check(words in result.err, result.err)
        equal(picture(DEVICE), before, "after refusing a filter")
    result = tool("setup", "-d", DEVICE, "-p", "80")
    check("matchall, preference 70" in result.err, result.err)
    listen(80)
    tool("protect", *LONG, "--", "true")
    tool("clear", "-q")
    equal(picture(DEVICE), before, "beside a foreign filter, cleared")


@test
def p21_a_fault_of_the_ifb_costs_one_hold_and_no_connection():
    ready(DEVICE)
    run(f"ip link set {ifb()} down")
    check("down" in tool("check", expect=1).out, "check does not see it")
    with Protecting() as protecting:
        check(passes(wait_s=WAIT_S), "nothing passes during a protect")
        result = protecting.finish()
    equal((result.status, "not protected" in result.err), (124, True), "status")
    tool("protect", "--allow-unprotected", "--", "true")
    equal(tool("protect", "--require", "--", "echo", expect=125).out, "", "what the command said")


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
    defer(tool, "clear", "-q", "--netns", "client")
    equal(run("tc qdisc show") + run("ip -br link"), here, "here")
    with inside("client"):
        listen()

    def held():
        with namespace("client"):
            return plug_waiting("lo") >= 30
    with Protecting("--netns", "client", *LONG) as protecting, \
            Clients("127.0.0.1", 30, where="client") as clients:
        wait_for(held, "held SYNs")
        result = protecting.finish()
        clients.succeed()
    equal((result.hold["held"] >= 30, result.report["dropped"]), (True, 0), "held, dropped")
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


def _restart_under_load(*options):
    """Restart a server under load, some times; how many connections failed."""
    with restart.Server(PORT, 1.0) as server, restart.Load(HOST4, PORT, 12, "client") as load:
        for _ in range(2):
            wait_for(lambda: restart.handshakes(PORT), "handshakes")
            tool("protect", *LONG, "--until-new-port", str(PORT), *options,
                 "--", "kill", "-USR1", str(server.pid))
            load.wait_for_progress(12)
        result = load.finish()
    note(f"{options}: {result}")
    return result["failed"]


@test
def s6_a_pause_lets_handshakes_end():
    """By itself for clients near by, with --pause for those far away."""
    neighbours_known()
    set_up(DEVICE, "-p", str(PORT))
    for delay, options in ("200ms", ()), ("1500ms", ("--pause", "4s")):
        with namespace("client"):
            run(f"tc qdisc replace dev client0 root netem delay {delay}")
        equal(_restart_under_load(*options), 0, f"failures of clients {delay} away")
    defer(_clear_delay)
    check(any(_restart_under_load("--pause", "0") for _ in range(5)), "the control did not fail")


def _clear_delay():
    with namespace("client"):
        run("tc qdisc del dev client0 root")


if __name__ == "__main__":
    main(network)
