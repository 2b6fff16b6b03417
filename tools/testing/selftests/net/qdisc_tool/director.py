#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 220
"""A director whose rules go and come back while its flows are busy.

A director that forwards without state answers packets of its flows with
resets while the service is missing; --all holds those packets.

    client ---- router ==== host, the director (net.py; no other address than below)
                  |  bridge
                  +==== server0, server1      virtual address on lo, DR
"""

import asyncio
import os
import shutil
import socket
from collections import Counter

import net
from lib import (FAST, WAIT_S, batch, check, defer, equal, main, man_page, note, run, set_up,
                 sysctl, test, tool, write)
from net import PORT, Child, echo, inside, namespace

VIP = "10.9.0.1"
SERVERS = {"server0": "10.1.0.10", "server1": "10.1.0.11"}
MODULE = os.environ.get("MHS_KO", "")
# In emulation each needs a tenth of a second to be made.
FLOWS = int(os.environ.get("MHS_FLOWS", 500))
PROTECT = ("qdisc_tool", "protect", "--max-hold", "60s", "--")
SAVED = f"{FAST}/rules"
# What an operator does, with a gap in which a flow is reset.
RESTORE = (f"ipvsadm -S -n >{SAVED}; resets() {{ nstat -asz TcpOutRsts; }}; was=$(resets); "
           "ipvsadm -C; until [ \"$(resets)\" != \"$was\" ]; do sleep 0.01; done; "
           f"ipvsadm -R <{SAVED}")


def network():
    check(shutil.which("ipvsadm"), "ipvsadm is not installed")
    net.network()
    # All the hosts of this network share one queue here: a byte of each flow
    # and its acknowledgement fill the default of 1,000 without any hold.
    sysctl("net/core/netdev_max_backlog", 10 * FLOWS)
    run(f"ip addr add {VIP}/32 dev lo")
    defer(run, f"ip addr del {VIP}/32 dev lo")
    write("/proc/sys/net/ipv4/ip_forward", "1")
    for name in SERVERS:
        run(f"ip netns add {name}")
        defer(run, f"ip netns del {name}")
    with namespace("router"):
        batch("ip", [
            "link add br0 type bridge", "addr del 10.1.0.2/24 dev host1",
            "addr add 10.1.0.2/24 dev br0", "link set host1 master br0", "link set br0 up",
            f"route add {VIP}/32 via 10.1.0.1",
            *(line for name in SERVERS for line in (
                f"link add {name} type veth peer name net0 netns {name}",
                f"link set {name} master br0 up"))])
    for name, address in SERVERS.items():
        with namespace(name):
            for path, value in ("arp_ignore", "1"), ("arp_announce", "2"):
                write(f"/proc/sys/net/ipv4/conf/all/{path}", value)
            batch("ip", [f"addr add {address}/24 dev net0", "link set net0 up", "link set lo up",
                         f"addr add {VIP}/32 dev lo", "route add default via 10.1.0.2"])
            echo(PORT)
    service()


def service():
    """The virtual service, as a restart finds it."""
    if not os.path.exists("/proc/net/ip_vs"):
        run("modprobe ip_vs")
    check(os.path.exists(MODULE), "no ip_vs_mhs module (MHS_KO)")
    run(["insmod", MODULE])
    defer(run, "rmmod ip_vs_mhs")
    # A flow without an entry must be forwarded by the table.
    for name, value in (("sloppy_tcp", 1), ("expire_nodest_conn", 0)):
        sysctl(f"net/ipv4/vs/{name}", value)
    run(f"ipvsadm -A -t {VIP}:{PORT} -s mhs")
    defer(run, "ipvsadm -C")
    for address in SERVERS.values():
        run(f"ipvsadm -a -t {VIP}:{PORT} -r {address} -g")


class Flows(Child):
    """Connections that are never idle: a byte goes, comes back, and goes."""

    def __init__(self):
        super().__init__()
        with inside("client"):
            self._sockets = [socket.create_connection((VIP, PORT), timeout=WAIT_S)
                             for _ in range(FLOWS)]

    def __enter__(self):
        super().__enter__()
        for peer in self._sockets:
            peer.close()
        return self

    def main(self):
        return asyncio.run(self._all())

    async def _all(self):
        flows = [asyncio.ensure_future(self._flow(peer)) for peer in self._sockets]
        while not self.ending:
            await asyncio.sleep(0.1)   # why: the pace of looks
        ended, quiet = await asyncio.wait(flows, timeout=WAIT_S)
        return Counter(flow.result() for flow in ended) + Counter(quiet=len(quiet))

    async def _flow(self, peer):
        """What became of it, once it has ended."""
        try:
            reader, writer = await asyncio.open_connection(sock=peer)
            while True:
                writer.write(b"x")
                if not await reader.read(16):
                    return "closed"
                if self.ending:
                    return "whole"
        except OSError as error:
            return error.strerror


def broken_by(*command):
    """How many busy flows a command breaks."""
    with Flows() as flows:
        run(list(command))
        result = flows.finish()
    note(f"{' '.join(command)[:100]}: {result}")
    check("quiet" not in result, "flows without an answer")
    return FLOWS - result.get("whole", 0)


@test
def s5_control_it_does_without_protection_and_with_syns_held_only():
    check(broken_by("sh", "-c", RESTORE), "no protection: nothing was broken")
    set_up("host0", "-a", VIP)
    check(broken_by(*PROTECT[:2], "--allow-unprotected", *PROTECT[2:], "sh", "-c",
                    RESTORE), "SYNs only: nothing was broken")


@test
def s5_the_man_page_protects_a_restore_of_the_rules():
    run(["sh", "-c", f"ipvsadm -S -n >{SAVED}"])
    commands = man_page(
        "A director whose rules are restored",
        **{"eth0": "host0", "192.0.2.1": VIP, "/etc/ipvsadm.rules": SAVED})
    defer(tool, "clear", "-q")
    equal(broken_by("sh", "-ec", commands), 0, "broken flows")


@test
def s5_the_module_is_replaced_and_breaks_no_flow_with_all():
    set_up("host0", "-a", VIP, "--all")
    equal(broken_by(*PROTECT, "sh", "-ec",
                    f"ipvsadm -S -n >{SAVED}; ipvsadm -C; rmmod ip_vs_mhs; "
                    f"insmod {MODULE}; ipvsadm -R <{SAVED}"), 0,
          "broken flows")


if __name__ == "__main__":
    main(network)
