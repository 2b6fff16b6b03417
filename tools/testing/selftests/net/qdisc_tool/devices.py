#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 600
# weight: 60
"""By which kinds of device can be held, and behind which programs of others;
the rest is refused, or said."""

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct

from lib import (FAST, WAIT_S, Protecting, batch, check, defer, equal, main, note,
                 run, set_up, sysctl, test, tool, wait_for, write)
from net import (PORT, Clients, end_process, inside, listen, namespace,
                 neighbours_known, network, passes, plug_device, plug_waiting)
from qdisc_tool_lib.netlink import Netlink, attribute, nested
import bpf

DEVICE = "host0"
LONG = ("--max-hold", "60s")
# systemd's udev gives a device of the first namespace without an address of
# ours another one, at any time.
_MACS = "02:00:00:00:06:01", "02:00:00:00:06:02"
# Both ends of a cable: where, the number, and the other's.
_ENDS = (None, 0, 1), ("router", 1, 0)
# Devices on top of a port, and tunnels.
_ABOVE = ("macvlan mode bridge", "macvlan mode passthru", "macvtap mode bridge", "ipvlan mode l2")
_TUNNELS = ("vxlan id 9 dstport 4789", "gre", "ipip")


def _held(device, address, client, server=None):
    """A connection from one namespace to another is held by @device there,
    and lost by nobody."""
    where = ("--netns", server) if server else ()
    wait_for(lambda: passes(address, where=client), f"a way by {device}")
    tool("setup", "-q", *where, "-d", device, "-p", str(PORT))

    def waiting():
        with inside(server):
            return plug_waiting(plug_device(device))
    try:
        tool("hold", *where, *LONG)
        with Clients(address, 1, where=client) as clients:
            wait_for(waiting, f"a held SYN at {device}")
            clients.take()
            equal(clients.latency_ms, {}, "connected during the hold")
            tool("release", *where)
            clients.finish()
            equal(clients.errors, [], "errors")
    finally:
        tool("clear", "-q", *where)


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


def _above(kind):
    run(f"ip link add kind9 link port0 type {kind}")
    with namespace("router"):
        run("ip addr add 10.6.0.1/31 dev port1")


def _tunnel(kind):
    for where, here, there in _ENDS:
        with inside(where):
            run(f"ip link add kind9 type {kind} local 10.7.0.{here} remote 10.7.0.{there}")


def _relay(*fds):
    while True:
        for fd, other in (fds, fds[::-1]):
            if select.select([fd], [], [], 0.01)[0]:
                with contextlib.suppress(OSError):
                    os.write(other, os.read(fd, 65536))


def _tun(_kind):
    """A tunnel as programs in user space make them."""
    ends = []
    for where, *_ in _ENDS:
        with inside(where):
            ends.append(os.open("/dev/net/tun", os.O_RDWR))
            # TUNSETIFF: IFF_TUN, IFF_NO_PI
            fcntl.ioctl(ends[-1], 0x400454CA, struct.pack("16sH22x", b"kind9", 0x1001))
    pid = os.fork()
    if not pid:
        try:
            _relay(*ends)
        finally:
            os._exit(0)
    defer(end_process, pid)
    for fd in ends:
        os.close(fd)


def _wireguard(_kind):
    keys = [run("wg genkey").strip() for _ in range(2)]
    path = f"{FAST}/wireguard.key"
    defer(os.unlink, path)
    for where, here, there in _ENDS:
        with inside(where):
            run("ip link add kind9 type wireguard")
            peer = run("wg pubkey", input=keys[there]).strip()
            write(path, keys[here])
            run(f"wg set kind9 listen-port 51820 private-key {path} "
                f"peer {peer} endpoint 10.7.0.{there}:51820 allowed-ips 0.0.0.0/0")


@contextlib.contextmanager
def _netkit(mode, server):
    """A pair, nk0 here and nk1 in a namespace; ENOTSUP before Linux 6.7."""
    def header():
        return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0)

    def name(text):
        return attribute(3, text + b"\0")          # IFLA_IFNAME
    netlink = Netlink()
    netlink._request(16, 0x604, header() + name(b"nk0") + nested(
        18, attribute(1, b"netkit\0"), nested(     # RTM_NEWLINK, _LINKINFO
            2, nested(1, header() + name(b"nk1")),
            attribute(5, struct.pack("=I", mode)))))
    try:
        batch("ip", [f"link set nk1 netns {server}",
                     "addr add 10.8.0.0/31 dev nk0", "link set nk0 up"])
        with namespace(server):
            batch("ip", ["addr add 10.8.0.1/31 dev nk1", "link set nk1 up"])
        yield
    finally:
        run("ip link del nk0")


@test
def p21_devices_of_many_kinds_hold():
    listen()
    kinds = [*((kind, _above) for kind in _ABOVE),
             *((kind, _tunnel) for kind in _TUNNELS),
             ("wireguard", _wireguard), ("tun", _tun)]
    for kind, make in kinds:
        note(kind)
        with _port():
            make(kind)
            ends = _ENDS[:1 if make == _above else 2]
            for where, here, _ in ends:
                with inside(where):
                    batch("ip", [f"addr add 10.6.0.{here}/31 dev kind9", "link set kind9 up"])
            _held("kind9", "10.6.0.0", client="router")
            for where, *_ in ends:
                with inside(where):
                    run("ip link del kind9")


def _with_netkit(function):
    """Call it with a pair of either mode, and a listener at each end."""
    run("ip netns add pod")
    defer(run, "ip netns del pod")
    listen()
    with namespace("pod"):
        run("ip link set lo up")
        listen()
    for mode in 0, 1:              # L2, L3
        try:
            with _netkit(mode, "pod"):
                function()
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            note("this kernel has no netkit")


@test
def p21_either_end_of_a_netkit_pair_holds():
    def both():
        _held("nk0", "10.8.0.0", client="pod")
        _held("nk1", "10.8.0.1", client=None, server="pod")
    _with_netkit(both)


@test
def p21_the_inner_end_holds_what_passes_the_outer_one_by():
    """By bpf_redirect_peer(), as containers' networks do."""
    def redirected():
        with namespace("pod"):
            run("ip route add default via 10.8.0.0 dev nk1")
        with bpf.Program(DEVICE, bpf.TCX, "by_passes", bpf.redirect_peer("nk0")):
            _held("nk1", "10.8.0.1", client="router", server="pod")
            # The control: at the outer end nothing is to be held.
            set_up("nk0", "-p", str(PORT))
            tool("hold", *LONG)
            check(passes("10.8.0.1", where="router", wait_s=WAIT_S), "held")
            tool("clear", "-q")
    sysctl("net/ipv4/ip_forward", 1)
    # The program takes what neighbours ask and answer, too.
    for where, device, other, mac in (
            (None, DEVICE, "10.1.0.2", _mac("router", "host1")),
            ("router", "host1", "10.1.0.1", _mac(None, DEVICE))):
        _inside(where, f"ip neigh replace {other} lladdr {mac} dev {device} nud permanent")
        defer(_inside, where, f"ip neigh del {other} dev {device}")
    _inside("router", "ip route add 10.8.0.1 via 10.1.0.1")
    defer(_inside, "router", "ip route del 10.8.0.1")
    _with_netkit(redirected)


def _inside(where, command):
    with inside(where):
        return run(command)


def _mac(where, device):
    return _inside(where, f"ip link show {device}").split("link/ether ")[1][:17]


@test
def p21_a_bridge_or_a_bond_is_held():
    listen()
    for kind in "bridge", "bond mode active-backup miimon 100":
        # udev gives a device without an address of ours another one, at any time
        run(f"ip link add master9 address 02:00:00:00:06:00 type {kind}")
        with _port():
            batch("ip", ["link set port0 down", "link set port0 master master9",
                         "addr add 10.6.0.0/31 dev master9", "link set port0 up",
                         "link set master9 up"])
            with namespace("router"):
                run("ip addr add 10.6.0.1/31 dev port1")
            _held("master9", "10.6.0.0", client="router")
        run("ip link del master9")


@test
def p23_what_an_xdp_program_lets_pass_is_held():
    neighbours_known()
    listen()
    set_up(DEVICE, "-p", str(PORT))
    with bpf.Program(DEVICE, bpf.XDP, "lets_pass", bpf.XDP_PASS):
        with Protecting(*LONG, "--pause", "0") as protecting:
            check(not passes(), "not held behind XDP")
            equal(protecting.finish().status, 0, "status")


if __name__ == "__main__":
    main(network)
