#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 220
"""A director whose rules go and come back while its flows are busy.

A director that forwards without state answers packets of its flows with
resets while the service is missing; --all holds those packets.  The scheduler
is MHS_SCHED (mhs), its module MHS_KO.

    client ---- router ==== host, the director (no other address than below)
                  |  bridge
                  +==== server0, server1      virtual address on lo, DR
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket

from lib import (FAST, WAIT_S, Skip, batch, check, defer, equal, main,
                 man_page, note, run, set_up, sysctl, systemctl, test, tool, wait_for, write)
from net import HOST_MAC, PORT, Echo, inside, loopback, namespace
from restart import Child, processes

VIP = "10.9.0.1"
SERVERS = {"server0": "10.1.0.10", "server1": "10.1.0.11"}
SCHEDULER = os.environ.get("MHS_SCHED", "mhs")
# In emulation each needs a tenth of a second to be made.
FLOWS = int(os.environ.get("MHS_FLOWS", 500))
PROTECT = ("qdisc_tool", "protect", "--max-hold", "60s", "--")
SAVED = f"{FAST}/rules"
# What an operator does, with a gap as wide as a slow machine makes it.
RESTORE = f"ipvsadm -S -n >{SAVED}; ipvsadm -C; sleep 0.2; ipvsadm -R <{SAVED}"


ALL_BACK = (f"until [ $(ipvsadm -Ln | grep -c -e '->.*:{PORT}') = "
            f"{len(SERVERS)} ]; do sleep 0.05; done")


def network():
    if not shutil.which("ipvsadm"):
        raise Skip("ipvsadm is not installed")
    loopback()
    # All the hosts of this network share one queue here: a byte of each flow
    # and its acknowledgement fill the default of 1,000 without any hold.
    sysctl("net/core/netdev_max_backlog", 10 * FLOWS)
    for name in ("router", "client", *SERVERS):
        run(f"ip netns add {name}")
        defer(run, f"ip netns del {name}")
    run(f"ip link add host0 {HOST_MAC} type veth peer name host1 netns router")
    defer(run, "ip link del host0")
    batch("ip", ["addr add 10.1.0.1/24 dev host0", "link set host0 up",
                 f"addr add {VIP}/32 dev lo",
                 "route add default via 10.1.0.2"])
    defer(run, f"ip addr del {VIP}/32 dev lo")
    write("/proc/sys/net/ipv4/ip_forward", "1")
    with namespace("router"):
        batch("ip", ["link add br0 type bridge",
                     "addr add 10.1.0.2/24 dev br0", "link set br0 up",
                     "link set host1 master br0", "link set host1 up",
                     f"route add {VIP}/32 via 10.1.0.1",
                     "link add client1 type veth peer name client0 netns "
                     "client", "addr add 10.2.0.1/24 dev client1",
                     "link set client1 up",
                     *(line for name in SERVERS for line in (
                         f"link add {name} type veth peer name net0 netns "
                         f"{name}", f"link set {name} master br0",
                         f"link set {name} up"))])
        write("/proc/sys/net/ipv4/ip_forward", "1")
    with namespace("client"):
        batch("ip", ["addr add 10.2.0.2/24 dev client0",
                     "link set client0 up",
                     "route add default via 10.2.0.1"])
    for name, address in SERVERS.items():
        with namespace(name):
            for path in ("all/arp_ignore", "all/arp_announce"):
                write(f"/proc/sys/net/ipv4/conf/{path}", "1" if path.endswith("ignore") else "2")
            batch("ip", [f"addr add {address}/24 dev net0",
                         "link set net0 up", "link set lo up",
                         f"addr add {VIP}/32 dev lo",
                         "route add default via 10.1.0.2"])
            Echo(PORT)
    service()


def service():
    """The virtual service, as a restart finds it."""
    if not os.path.exists("/proc/net/ip_vs"):
        run("modprobe ip_vs")
    module = os.environ.get("MHS_KO", "")
    if SCHEDULER == "mhs" and not os.path.exists("/sys/module/ip_vs_mhs"):
        if not os.path.exists(module):
            raise Skip("no ip_vs_mhs module (MHS_KO)")
        run(["insmod", module])
        defer(run, "rmmod ip_vs_mhs")
    # A flow without an entry must be forwarded by the table.
    for name, value in (("sloppy_tcp", 1), ("expire_nodest_conn", 0)):
        sysctl(f"net/ipv4/vs/{name}", value)
    run(f"ipvsadm -A -t {VIP}:{PORT} -s {SCHEDULER}")
    defer(run, "ipvsadm -C")
    for address in SERVERS.values():
        run(f"ipvsadm -a -t {VIP}:{PORT} -r {address} -g")


class Flows(Child):
    """Connections that are never idle: a byte goes, comes back, and goes."""

    def __init__(self):
        super().__init__()
        self._sockets = {}
        self._result_fd = self._child_result_fd = None

    def _prepare(self):
        self._result_fd, self._child_result_fd = os.pipe()
        with inside("client"):
            for _ in range(FLOWS):
                peer = socket.create_connection((VIP, PORT), timeout=WAIT_S)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.setblocking(False)
                self._sockets[peer.fileno()] = peer

    def __enter__(self):
        super().__enter__()
        os.close(self._child_result_fd)
        for peer in self._sockets.values():
            peer.close()
        return self

    def finish(self):
        """{"broken": n, "errors": {...}, "quiet": n}; quiet are those that
        had no answer to a last byte."""
        os.kill(self.pid, signal.SIGTERM)
        data = b""
        while chunk := os.read(self._result_fd, 65536):
            data += chunk
        return json.loads(data)

    def _main(self):
        ending = []
        signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
        errors = {}
        waiting = set(self._sockets)
        poll = select.epoll()
        for fd, peer in self._sockets.items():
            poll.register(fd, select.EPOLLIN)
            peer.send(b"x")
        idle = 0
        while self._sockets and (not ending or waiting) and idle < WAIT_S * 10:
            events = poll.poll(0.1)
            idle = 0 if events else idle + 1
            for fd, _ in events:
                try:
                    if not self._sockets[fd].recv(16):
                        raise OSError(0, "closed")
                    waiting.discard(fd)
                    if not ending:
                        self._sockets[fd].send(b"x")
                        waiting.add(fd)
                except BlockingIOError:
                    pass
                except OSError as error:
                    errors[error.strerror] = errors.get(error.strerror, 0) + 1
                    poll.unregister(fd)
                    waiting.discard(fd)
                    self._sockets.pop(fd).close()
        os.write(self._child_result_fd, json.dumps(
            {"broken": FLOWS - len(self._sockets), "errors": errors,
             "quiet": len(waiting)}).encode())


def broken_by(*command):
    """How many busy flows a command breaks."""
    with Flows() as flows:
        run(list(command))
        result = flows.finish()
    note(f"{' '.join(command)[:100]}: {result}")
    equal(result["quiet"], 0, "flows without an answer")
    return result["broken"]


@test
def s5_restoring_the_rules_breaks_no_flow_with_all():
    set_up("host0", "-a", VIP, "--all")
    equal(broken_by(*PROTECT, "sh", "-c", RESTORE), 0, "broken flows")


@test
def s5_control_it_does_without_protection_and_with_syns_held_only():
    if SCHEDULER != "mhs":
        raise Skip(f"{SCHEDULER} keeps an entry for each flow")
    check(broken_by("sh", "-c", RESTORE), "no protection: nothing was broken")
    set_up("host0", "-a", VIP)
    check(broken_by(*PROTECT[:2], "--allow-unprotected", *PROTECT[2:], "sh", "-c",
                    RESTORE), "SYNs only: nothing was broken")


@test
def s5_the_man_page_protects_a_restore_of_the_rules():
    run(["sh", "-c", f"ipvsadm -S -n >{SAVED}"])
    commands = man_page(
        "A director whose rules are restored",
        **{"eth0": "host0", "192.0.2.10": VIP, "/etc/ipvsadm.rules": SAVED})
    defer(tool, "clear", "-q")
    equal(broken_by("sh", "-ec", commands), 0, "broken flows")


@test
def s5_the_module_is_replaced_and_breaks_no_flow_with_all():
    module = os.environ.get("MHS_KO", "")
    if SCHEDULER != "mhs" or not os.path.exists(module):
        raise Skip("it is not the module MHS_KO")
    set_up("host0", "-a", VIP, "--all")
    equal(broken_by(*PROTECT, "sh", "-ec",
                    f"ipvsadm -S -n >{SAVED}; ipvsadm -C; rmmod ip_vs_mhs; "
                    f"insmod {module}; ipvsadm -R <{SAVED}"), 0,
          "broken flows")


def keepalived():
    """keepalived with this service; its start and stop as commands."""
    if not shutil.which("keepalived"):
        raise Skip("keepalived is not installed")
    config = f"{FAST}/keepalived.conf"
    pid_file = f"{FAST}/keepalived.pid"
    write(config, f"virtual_server {VIP} {PORT} {{\n"
          f"lvs_sched {SCHEDULER}\nlvs_method DR\nprotocol TCP\n" +
          "".join(f"real_server {address} {PORT} {{ weight 1 }}\n"
                  for address in SERVERS.values()) + "}\n")
    # keepalived knows no mhs and would take wlc; what is there it keeps.
    start = (f"ipvsadm -A -t {VIP}:{PORT} -s {SCHEDULER}; keepalived -C -f "
             f"{config} -p {pid_file} -c {pid_file}.c")
    stop = (f"kill $(cat {pid_file}); while [ -e {pid_file} ]; do sleep 0.05; done")
    run("ipvsadm -C")
    run(["sh", "-c", f"{start}; {ALL_BACK}"])
    defer(end_keepalived)
    return stop, start


def end_keepalived():
    for pid in processes("keepalived"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not processes("keepalived"), "the end of keepalived")
    with contextlib.suppress(AssertionError):
        run(f"ipvsadm -A -t {VIP}:{PORT} -s {SCHEDULER}")
    for address in SERVERS.values():
        with contextlib.suppress(AssertionError):
            run(f"ipvsadm -a -t {VIP}:{PORT} -r {address} -g")


@test
def s5_the_man_page_protects_a_keepalived_restart():
    stop, start = keepalived()
    systemctl(f"{stop}; {start}")
    commands = man_page(
        "A keepalived that takes its services away",
        **{"eth0": "host0", "192.0.2.10": VIP, "443": str(PORT)})
    defer(tool, "clear", "-q")
    equal(broken_by("sh", "-ec", commands), 0, "broken flows")
    check(SCHEDULER in run("ipvsadm -Ln"), "the scheduler has changed")


@test
def s5_control_a_keepalived_restart_breaks_flows():
    if SCHEDULER != "mhs":
        raise Skip(f"{SCHEDULER} keeps an entry for each flow")
    stop, start = keepalived()
    check(broken_by("sh", "-c", f"{stop}; {start}; {ALL_BACK}"), "nothing was broken")


if __name__ == "__main__":
    main(network, ("ipvsadm", "keepalived", "cat", "grep"))
