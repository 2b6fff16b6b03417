#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs a director with real cards, as far as software goes; runs
in the machine, see lane.py.

    card0, where ACKs of 1,000 TCP flows come in -> director -> card1

The servers are behind card1 (two arms), or behind card0 like the clients (one
arm).  Every row is measured in bursts, on the device's own clock, and each
packet must have gone the way that the row says.  A line of CSV for each round:
what all packets took together by the median burst, in nanoseconds, which are
instructions where the machine counts them (run --icount).

what                    the packets
drop                    are dropped by the smallest XDP program: the card
                        itself, which is in all rows
tx, redirect            are sent back by one, or to card1
route                   are routed; IPVS is not loaded
xdp-forward             the same by the router of xdp-tools, an XDP program
mh                      belong to a service of mh and have entries; the module
                        is not loaded
route-beside-mhs        are routed while mhs has services
mhs, mhs-ipip           are stable, direct routing or a tunnel
ingress, ingress-ipip   the same in the netfilter ingress hook
lane-tx, lane-tx-ipip   the same in the XDP lane, one arm
lane-redirect,          the same, two arms
lane-redirect-ipip
route-past-pass         are routed, after an XDP program that passes all
route-past-lane         are routed, after the lane has left them to the stack
route-past-ingress      are routed, after the hook has

Rows of the hook and the lane are there if the module has their sysctls.
"""

import argparse
import contextlib
import ipaddress
import os
import statistics
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from lab import (FAR, Namespace, Trace, at_port, ip, module,  # noqa: E402
                 run)

CARDS = "/proc/card"
FLOWS = 1000
BURST = 64
MAC = "02:00:00:00:01:0"  # and the number of the card
LANE = "net/ipv4/vs/mhs/lane"
INGRESS = "net/ipv4/vs/mhs/ingress"
STACK = ("card1", "sent_start_xmit")
ONE_ARM = ("card0", "sent_xdp_tx")
TWO_ARMS = ("card1", "sent_xdp_xmit")
SHORTEST = 60  # bytes of an Ethernet frame
COLUMNS = ("what", "family", "round", "packets", "ns")


def address(family, net, i):
    """The i-th of a network of the rig."""
    if family == 6:
        return f"fd{net:02d}::{i:x}"
    return f"10.{net}.{i // 256}.{i % 256}"


def server(i, family, arms):
    return address(family, {"one": 3, "two": 2}[arms], i + 256)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff


def ack(i, family, to):
    """An ACK of flow i to card0."""
    client = ipaddress.ip_address(address(family, 1, 256)).packed
    to = ipaddress.ip_address(to).packed
    tcp = struct.pack("!HHIIBBHHH", 10000 + i, 80, 1, 1, 5 << 4, 0x10, 8192,
                      0, 0)
    pseudo = client + to + struct.pack("!HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    if family == 6:
        head = struct.pack("!IHBB", 6 << 28, len(tcp), 6, 64) + client + to
    else:
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64,
                           6, 0) + client + to
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    ether = bytes.fromhex(f"{MAC}0 {MAC}2".replace(":", ""))
    frame = ether + struct.pack("!H", 0x86dd if family == 6 else 0x800)
    return (frame + head + tcp).ljust(SHORTEST, b"\0")


class Services:
    """Addresses of virtual services by what they are called."""

    def __init__(self, at, servers):
        self.at = at
        self.servers = servers
        self.names = []

    def address(self, name, family):
        return address(family, 9, self.names.index(name) + 1)

    def add(self, name, scheduler, method, arms):
        self.names.append(name)
        for family in (4, 6):
            vip = self.address(name, family)
            self.at.inside(ip, f"addr add {vip} dev lo")
            service = f"-t {at_port(vip)}"
            self.at.ipvs(f"-A {service} -s {scheduler}", *(
                f"-a {service} -r {at_port(server(i, family, arms))} {method}"
                for i in range(self.servers)))

    def remove(self):
        self.at.inside(run, "ipvsadm", "-C")


class Rig(Namespace):
    def __init__(self, options):
        super().__init__("director")
        self.options = options
        self.services = Services(self, options.servers)
        self.tracing = Trace(options.trace) if options.trace else None
        self.written = None
        run("insmod", options.card)
        for i in 0, 1:
            ip(f"link set card{i} address {MAC}{i}",
               f"link set card{i} addrgenmode none",
               f"link set card{i} netns {self.name}")
        self.inside(ip, "link set card0 up", "link set card1 up",
                    *(f"addr add {address(family, net, 1)}/"
                      f"{64 if family == 6 else 16} dev card{card}"
                      + (" nodad" if family == 6 else "")
                      for family in (4, 6)
                      for net, card in ((1, 0), (2, 1), (3, 0))),
                    *(f"route add {FAR[family]} via "
                      f"{server(0, family, 'two')}" for family in (4, 6)),
                    *(f"neigh add {server(i, family, arms)} dev card{card} "
                      f"lladdr 02:00:00:00:02:{i:02x}"
                      for i in range(options.servers) for family in (4, 6)
                      for arms, card in (("two", 1), ("one", 0))))
        self.forward()
        # what boots and new devices do is over then; idle time takes none
        time.sleep(60)

    def has(self, sysctl):
        return self.inside(os.path.exists, f"/proc/sys/{sysctl}")

    def count(self, card, name):
        with open(f"{CARDS}/{card}/counts", encoding="ascii") as file:
            return int(dict(line.split() for line in file)[name])

    def receive(self, number):
        """What the card says that it took."""
        path = f"{CARDS}/card0/run"
        with open(path, "w", encoding="ascii") as file:
            file.write(str(number))
        with open(path, encoding="ascii") as file:
            return int(file.read().split()[1])

    def write(self, family, to):
        """The frames that come from now on."""
        if self.written == (family, to):
            return
        file = os.open(f"{CARDS}/card0/frames", os.O_WRONLY | os.O_TRUNC)
        for i in range(FLOWS):
            os.write(file, ack(i, family, to))
        os.close(file)
        self.written = family, to

    @contextlib.contextmanager
    def program(self, path, section="xdp", card="card0"):
        """An XDP program is attached to a card."""
        self.inside(run, "ip", "link", "set", "dev", card, "xdpdrv", "obj",
                    path, "sec", section)
        try:
            yield
        finally:
            self.inside(run, "ip", "link", "set", "dev", card, "xdpdrv", "off")

    def bare(self, section, card="card0"):
        return self.program(self.options.bare, section, card)

    @contextlib.contextmanager
    def router(self):
        """xdp-forward of xdp-tools forwards between the cards."""
        root = self.options.router
        libraries = f"{root}/usr/lib/x86_64-linux-gnu"
        os.environ["LIBXDP_OBJECT_PATH"] = f"{libraries}/bpf"
        program = (f"{libraries}/ld-linux-x86-64.so.2", "--library-path",
                   libraries, f"{root}/usr/sbin/xdp-forward")
        if not os.path.ismount("/sys/fs/bpf"):
            run("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
        self.inside(run, *program, "load", "-v", "card0", "card1")
        try:
            yield
        finally:
            self.inside(run, *program, "unload", "card0", "card1")

    def row(self, what, family, to, way=STACK):
        if self.options.rows and what not in self.options.rows:
            return
        self.write(family, to)
        self.receive(FLOWS)  # routes, entries, caches
        bursts = self.options.packets // BURST
        for i in range(self.options.rounds):
            before = self.count(*way)
            took = [self.receive(BURST) for _ in range(bursts)]
            self.gone(what, family, way, bursts * BURST, before)
            print(f"{what},{family},{i},{bursts * BURST},"
                  f"{round(statistics.median(took) * bursts)}", flush=True)
        if self.tracing:
            with self.tracing.of(what, family):
                self.receive(FLOWS)  # records are old: to ask takes a second
                before = self.count(*way)
                self.receive(BURST)
            self.gone(what, family, way, BURST, before)

    def gone(self, what, family, way, packets, before):
        gone = self.count(*way) - before
        if gone != packets:
            raise SystemExit(f"{what}, IPv{family}: of {packets} packets "
                             f"{gone} went by {' '.join(way)}{self.why()}")

    def in_lane(self):
        """Packets that a lane has forwarded."""
        return sum(int(row.get("PktLane", 0)) for row in self.lines())

    def why(self):
        """What the module says of lanes, if it is there."""
        path = "/proc/net/ip_vs_mhs_lane"
        return "\n" + self.read(path) if self.inside(
            os.path.exists, path) else ""

    def lane_rows(self, what, service, way=STACK):
        """Every packet went by a lane, also where the way does not tell; but
        the first of each flow, which may find no route to its server."""
        before = self.in_lane()
        received = self.count("card0", "received")
        self.rows(what, service, way)
        received = self.count("card0", "received") - received
        if self.in_lane() - before < received - 2 * FLOWS:
            raise SystemExit(f"{what}: of {received} packets "
                             f"{self.in_lane() - before} went by the lane"
                             f"{self.why()}")

    def rows(self, what, service, way=STACK):
        for family in (4, 6):
            self.row(what, family,
                     self.services.address(service, family) if service
                     else FAR[family], way)

    def without_ipvs(self):
        if os.path.exists("/proc/net/ip_vs"):
            raise SystemExit("IPVS is there already")
        for what, way in (("drop", ("card0", "xdp_drop")), ("tx", ONE_ARM),
                          ("redirect", TWO_ARMS)):
            with self.bare(f"xdp_{what}"):
                self.rows(what, None, way)
        self.rows("route", None)
        if self.options.router:
            with self.router():
                self.rows("xdp-forward", None, TWO_ARMS)

    def mh(self):
        run("modprobe", "ip_vs")
        # the timers of entries do not change their places
        self.inside(run, "ipvsadm", "--set", "1000000", "120", "1000000")
        self.sysctl("net/ipv4/vs/sloppy_tcp", 1)
        self.services.add("mh", "mh -b mh-port,mh-fallback", "-g", "two")
        self.rows("mh", "mh")
        # mhs would look for more entries of others, a second time for each packet
        self.sysctl("net/ipv4/vs/expire_nodest_conn", 1)
        self.services.remove()
        until = time.monotonic() + 60
        while self.entries():
            if time.monotonic() > until:
                raise SystemExit("entries of mh do not end")
            time.sleep(0.1)
        self.sysctl("net/ipv4/vs/expire_nodest_conn", 0)

    def mhs(self):
        for arms in "two", "one":
            for name, method in ("dr", "-g"), ("ipip", "-i"):
                self.services.add(f"{name} {arms}", "mhs", method, arms)
        self.settle()
        self.rows("route-beside-mhs", None)
        with self.bare("xdp_pass"):
            self.rows("route-past-pass", None)
        self.rows("mhs", "dr two")
        self.rows("mhs-ipip", "ipip two")
        if self.has(LANE):
            self.sysctl(LANE, 1)
            self.sysctl(INGRESS, "card0\n")
            self.lane_rows("ingress", "dr two")
            self.lane_rows("ingress-ipip", "ipip two")
            self.rows("route-past-ingress", None)
            self.sysctl(INGRESS, "\n")
            run("modprobe", "ip_vs_mhs_lane")  # if only programs use it
            with self.program(self.options.lane):
                self.lane_rows("lane-tx", "dr one", ONE_ARM)
                self.lane_rows("lane-tx-ipip", "ipip one", ONE_ARM)
                # before Linux 6.3 a device sends if it has a program, too
                with self.bare("xdp_pass", "card1"):
                    self.lane_rows("lane-redirect", "dr two", TWO_ARMS)
                    self.lane_rows("lane-redirect-ipip", "ipip two", TWO_ARMS)
                self.rows("route-past-lane", None)
            self.sysctl(LANE, 0)
        if self.entries():
            raise SystemExit("flows of mhs have entries: they are not stable")

    def settle(self):
        self.sysctl("net/ipv4/vs/mhs/hold_ms", 0)
        self.sysctl("net/ipv4/vs/mhs/pin_ms", 100)
        until = time.monotonic() + 600
        while any(row["State"] != "stable" for row in self.lines()):
            if time.monotonic() > until:
                raise SystemExit("services of mhs do not settle")
            time.sleep(0.1)
        # and the module has seen twice that no service is by firewall mark
        time.sleep(5)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--card", required=True, help="the device's module")
    parser.add_argument("--bare", required=True, help="bare.bpf.c, compiled")
    parser.add_argument("--lane", help="the lane's program")
    parser.add_argument("--router", metavar="DIR",
                        help="xdp-tools and its libraries, unpacked")
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--packets", type=int, required=True)
    parser.add_argument("--rows", action="append", help="only these")
    parser.add_argument("--trace", metavar="DIR", help="where to ask the host")
    return parser.parse_args()


def main():
    rig = Rig(arguments())
    print(",".join(COLUMNS))
    rig.without_ipvs()
    rig.mh()
    with module():
        rig.mhs()
        rig.services.remove()


if __name__ == "__main__":
    main()
