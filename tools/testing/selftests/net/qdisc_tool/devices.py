#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
"""By which kinds of device can be held, and beside which qdiscs and programs of others."""

import contextlib

from lib import batch, check, equal, main, note, run, test, tool, wait_for
from net import (HOST4, PORT, Clients, inside, listen, namespace, neighbours_known, network,
                 passes, picture, plug_device, plug_waiting)
import bpf

DEVICE = "host0"
LONG = ("--max-hold", "60s")
# systemd's udev gives a device of the first namespace without an address of
# ours another one, at any time.
_MACS = "02:00:00:00:06:01", "02:00:00:00:06:02"
# Both ends of a cable: where, the number, and the other's.
_ENDS = (None, 0, 1), ("router", 1, 0)
# Devices on top of a port, those that a port is in, and tunnels.
_ABOVE = ("macvlan mode bridge", "macvlan mode passthru", "macvtap mode bridge", "ipvlan mode l2")
_OF_PORTS = ("bridge", "bond mode active-backup miimon 100")
_TUNNELS = ("vxlan id 9 dstport 4789", "gre", "ipip")
# Root qdiscs; a veth of two queues has what mq and mqprio need.
_ROOTS = (["handle 1: mq", "parent 1:1 handle 77: fq_codel limit 1234"],
          ["handle 1: mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 0"],
          ["handle 1: htb default 1"], ["handle 1: fq limit 1234"],
          ["handle 1: cake bandwidth 900mbit"])


def _held(device, address, where):
    """A connection is held by @device, and lost by nobody."""
    wait_for(lambda: passes(address, where=where), f"a way by {device}")
    tool("setup", "-q", "-d", device, "-p", str(PORT))
    tool("check")
    try:
        tool("hold", *LONG)
        with Clients(address, 1, where=where) as clients:
            wait_for(lambda: plug_waiting(plug_device(device)), f"a held SYN at {device}")
            clients.take()
            equal(clients.latency_ms, {}, "connected during the hold")
            tool("release")
            clients.succeed()
    finally:
        tool("clear", "-q")


@contextlib.contextmanager
def _port():
    """Two ends of a veth to hang other devices on."""
    run(f"ip link add port0 address {_MACS[0]} type veth peer name port1 "
        f"address {_MACS[1]} netns router")
    try:
        for where, here, _ in _ENDS:
            with inside(where):
                batch("ip", [f"addr add 10.7.0.{here}/31 dev port{here}",
                             f"link set port{here} up"])
        yield
    finally:
        run("ip link del port0")


def _make(kind):
    """kind9 here, and the device at the other end."""
    if kind in _TUNNELS:
        for where, here, there in _ENDS:
            with inside(where):
                run(f"ip link add kind9 type {kind} local 10.7.0.{here} remote 10.7.0.{there}")
        return "kind9"
    if kind in _OF_PORTS:
        batch("ip", [f"link add kind9 address 02:00:00:00:06:00 type {kind}",
                     "link set port0 down", "link set port0 master kind9", "link set port0 up"])
    else:
        run(f"ip link add kind9 link port0 type {kind}")
    return "port1"


@test
def p21_devices_of_many_kinds_hold():
    listen()
    for kind in *_ABOVE, *_OF_PORTS, *_TUNNELS:
        note(kind)
        with _port():
            other = _make(kind)
            batch("ip", ["addr add 10.6.0.0/31 dev kind9", "link set kind9 up"])
            with namespace("router"):
                batch("ip", [f"addr add 10.6.0.1/31 dev {other}", f"link set {other} up"])
            _held("kind9", "10.6.0.0", "router")
            run("ip link del kind9")
            if other == "kind9":
                with namespace("router"):
                    run("ip link del kind9")


@test
def s12_p11_root_qdiscs_of_others_stay_as_they_are():
    """The control is the recipe's first step."""
    neighbours_known()
    listen()
    for root in _ROOTS:
        note(root[0])
        batch("tc", [f"qdisc add dev {DEVICE} {'' if 'parent' in line else 'root '}{line}"
                     for line in root])
        before = picture(DEVICE)
        _held(DEVICE, HOST4, "client")
        equal(picture(DEVICE), before, "after all")
        run(f"tc qdisc replace dev {DEVICE} root handle 9: prio bands 4")
        check(picture(DEVICE) != before, "the control: a change is not seen")
        run(f"tc qdisc del dev {DEVICE} root")


@test
def p23_what_programs_of_others_let_pass_is_held():
    """The controls let nothing pass."""
    neighbours_known()
    listen()
    for where, answers in (bpf.XDP, (bpf.XDP_PASS, bpf.XDP_DROP)), (
            bpf.TCX, (bpf.TCX_NEXT, bpf.TCX_DROP)):
        with bpf.Program(DEVICE, where, answers[0]):
            _held(DEVICE, HOST4, "client")
        with bpf.Program(DEVICE, where, answers[1]):
            check(not passes(), "the control: it lets pass")


if __name__ == "__main__":
    main(network)
