#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""mhs, a stateless IPVS scheduler, with mh as control.  A client, two directors
and three servers are on one link; the servers answer the client directly."""

import collections
import contextlib
import ctypes
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time
from ipaddress import ip_address as ip

HOSTS = {"client": 1, "director": 2, "second": 3, "s1": 11, "s2": 12, "s3": 13}
VIP = {4: "192.0.2.80", 6: "2001:db8:8::80"}
NET = {4: "10.0.0.", 6: "2001:db8:1::"}
ICMP = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}
SLOTS = 4093  # of a table, by default
SYN, RST, ACK = 2, 4, 16
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: no FIN
LONG = 60  # only what goes wrong takes so long
TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, SEND, OFF = 19, 20, 21, 2, -1
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def full(host):
    return f"mhs-{os.getpid()}-{host}"


def run(host, command, text=None):
    return subprocess.run(["ip", "netns", "exec", full(host),
                           *command.split()], input=text, check=True,
                          stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def inside(host):
    """What is opened is the host's"""
    with open("/proc/thread-self/ns/net") as here, \
            open(f"/run/netns/{full(host)}") as there:
        libc.setns(there.fileno(), CLONE_NEWNET)
        try:
            yield
        finally:
            libc.setns(here.fileno(), CLONE_NEWNET)


def wait(condition, *args):
    end = time.monotonic() + LONG
    while not condition(*args):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def answer(sock, name):
    with contextlib.suppress(OSError), sock:
        while sock.recv(2048):
            sock.sendall(name.encode())


def serve(name):
    """A child that answers each request by its name"""
    with inside(name):
        server = socket.create_server(("::", 80), family=socket.AF_INET6,
                                      backlog=1000, dualstack_ipv6=True)
    child = os.fork()
    while not child:
        threading.Thread(target=answer, daemon=True,
                         args=(server.accept()[0], name)).start()
    server.close()
    return child


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return struct.pack("!H", 0xffff - total % 0xffff)


def tcp(source, target, sport, seq, flags, heard=True):
    head = struct.pack("!HHIIBBHHH", sport, 80, seq & 0xffffffff, 0, 0x50,
                       flags, 1024, 0, 0)
    pseudo = (ip(source).packed + ip(target).packed +
              struct.pack("!II", len(head), socket.IPPROTO_TCP))
    return head[:16] + checksum(pseudo + head * heard) + head[18:]


def unreachable(source, target, sport):
    quoted = struct.pack("!HHI", 80, sport, 0)
    if ":" in source:
        head = (struct.pack("!IHBB", 6 << 28, 20, 6, 64) + ip(target).packed +
                ip(source).packed)
        return struct.pack("!BBHI", 1, 4, 0, 0) + head + quoted
    head = (struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) +
            ip(target).packed + ip(source).packed)
    error = struct.pack("!BBHI", 3, 3, 0, 0) + head + quoted
    return error[:2] + checksum(error) + error[4:]


def first_number(sock):
    """The number of the SYN of a flow that has sent 2 bytes"""
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND)
    seq = sock.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, OFF)
    return seq - 3


def topology():
    for host in "bridge", *HOSTS:
        subprocess.run(["ip", "netns", "add", full(host)], check=True)
        run(host, "ip link set lo up")
    run("bridge", "ip link add br0 up type bridge mcast_snooping 0")
    for host, i in HOSTS.items():
        run("bridge", f"ip link add v{i} up master br0 type veth peer name "
                      f"eth0 netns {full(host)}")
        run(host, "ip link set eth0 up")
        for family, bits in (4, 24), (6, 64):
            run(host, f"ip addr add {NET[family]}{i}/{bits} dev eth0" +
                (" nodad" if family == 6 else ""))
            if host != "client":
                run(host, f"ip addr add {VIP[family]} dev lo")
        if i > 10:
            run(host, "sysctl -wq net.ipv4.conf.all.arp_ignore=1 "
                      "net.ipv4.conf.all.arp_announce=2")
        else:
            run(host, "sysctl -wq net.ipv4.ip_forward=1")
    run("client", "sysctl -wq net.ipv4.tcp_max_tw_buckets=0")


class Test:
    results = []
    port = 10000

    def __init__(self, scheduler, family):
        self.scheduler, self.family, self.vip = scheduler, family, VIP[family]
        self.flows = []
        self.kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.service = f"-t {self.at(self.vip)}"

    def at(self, address):
        return f"[{address}]:80" if self.family == 6 else f"{address}:80"

    def result(self, name, good):
        self.results.append(good)
        print("ok" if good else "not ok", len(self.results),
              f"{self.scheduler}, IPv{self.family}: {name}", flush=True)

    def ipvs(self, verb, i, more="-g", host="director", address=None):
        """-a, -e or -d server i"""
        address = address or f"{NET[self.family]}{10 + i}"
        run(host, f"ipvsadm {verb} {self.service} -r {self.at(address)} " +
            more * (verb != "-d"))

    def on(self, host, between=None):
        """The service with servers 1 and 2, and something between them"""
        run(host, "ipvsadm -C")
        run(host, f"ipvsadm -A {self.service} -s {self.scheduler} "
                  "-b flag-1,flag-2")
        self.ipvs("-a", 1, host=host)
        if between:
            between()
        self.ipvs("-a", 2, host=host)

    def by(self, host):
        run("client", f"ip route replace {self.vip} via "
                      f"{NET[self.family]}{HOSTS[host]}")

    def sysctl(self, name, value):
        run("director", f"sysctl -wq net.ipv4.vs.{name}={value}")

    def conns(self, what="\nTCP"):
        return re.findall(what, run("director", "ipvsadm -Lcn"))

    def settled(self, host):
        """mhs sends a packet that begins no flow"""
        self.send([1], 1, ACK)
        return re.search(r"^TCP +\S+ +\d+ +[1-9]", run(
            host, "ipvsadm -Ln --stats --exact"), re.M)

    def fresh(self):
        """100 flows, and no connection of an earlier test"""
        self.close()
        self.sysctl("expire_nodest_conn", 1)
        run("director", "ipvsadm -C")
        wait(lambda: not self.conns())
        self.sysctl("expire_nodest_conn", 0)
        run("director", "ipvsadm --set 900 2 300")
        self.by("director")
        self.on("director")
        if self.scheduler == "mhs":
            wait(self.settled, "director")
        Test.port += 200
        return self.open(100, self.port)

    def after(self, verb, i, more="-g"):
        self.fresh()
        self.ipvs(verb, i, more)

    def open(self, n, first=0):
        """Open n flows, from port FIRST on; count them by server"""
        counts = collections.Counter()
        for i in range(n):
            name = "failed"
            with contextlib.suppress(OSError):
                with inside("client"):
                    sock = socket.create_connection(
                        (self.vip, 80), LONG, ("", first and first + i))
                sock.sendall(b"hi")
                name = sock.recv(10).decode()
                self.flows.append((sock, name))
            counts[name] += 1
        return counts

    def alive(self, timeout=LONG):
        """On how many flows does the same server answer?"""
        waiting = selectors.PollSelector()
        for sock, name in self.flows:
            with contextlib.suppress(OSError):
                sock.sendall(b"hi")
                waiting.register(sock, selectors.EVENT_READ, name)
        alive, end = 0, time.monotonic() + timeout
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                waiting.unregister(key.fileobj)
                with contextlib.suppress(OSError):
                    alive += key.fileobj.recv(10).decode() == key.data
        return alive

    def slowly_on(self, host):
        """How many flows ask and live while that is done slowly, and edits"""
        alive = []
        asks = threading.Thread(target=lambda: alive.append(self.alive()))

        def between():
            asks.start()
            if host == "second":  # no server is left for a while
                self.ipvs("-d", 1, host=host)
                time.sleep(5)
                self.ipvs("-a", 1, host=host)
            time.sleep(2.5)

        self.on(host, between)
        while asks.is_alive():
            self.ipvs("-e", 1, host=host)
            asks.join(0.7)
        return alive[0]

    def close(self):
        while self.flows:
            self.flows.pop()[0].close()

    def raw(self, protocol, packets):
        with inside("client"), \
                socket.socket(self.kind, socket.SOCK_RAW, protocol) as raw:
            for packet in packets:
                raw.sendto(packet, (self.vip, 0))

    def send(self, ports, seq, flags, heard=True):
        """Servers do not hear what has a wrong checksum"""
        self.raw(socket.IPPROTO_TCP, [
            tcp(f"{NET[self.family]}1", self.vip, port, seq, flags, heard)
            for port in ports])

    def forge(self, seq=4660):
        """A SYN for each flow; 0 is its own first number"""
        for sock, _ in self.flows:
            self.send([sock.getsockname()[1]], seq or first_number(sock), SYN)

    def errors(self):
        return sum(int(n) for i in (1, 2, 3) for n in re.findall(
            r"Icmp\S+ +(\d+)", run(f"s{i}", "nstat -asz Icmp*InDestUnreachs")))

    def both(self):
        self.result("flows begin", set(self.fresh()) == {"s1", "s2"})
        self.result("made again slowly: flows live",
                    self.slowly_on("director") == 100)
        self.after("-a", 3)
        self.forge(0)
        self.result("added: after their own SYNs flows live",
                    self.alive() == 100)
        state = "CLOSE" if self.scheduler == "mh" else "ESTABLISHED"
        self.sysctl("secure_tcp", 3)
        for seq, flags in (4660, SYN), (1, RST), (4661, ACK):
            self.send(range(31000, 31050), seq, flags, heard=False)
        self.result(f"added, secure_tcp: SYN, another's RST, ACK: {state}",
                    wait(lambda: {state} == set(self.conns(
                        r" (\w+) .*[.:]13\]?:80"))))
        self.sysctl("secure_tcp", 0)
        self.send(range(30000, 30050), 4660, SYN, heard=False)
        self.result("added: flows whose first SYN is lost begin, at all",
                    set(self.open(50, 30000)) == {"s1", "s2", "s3"})
        self.after("-a", 3, "-g -x 1000")
        self.forge()
        self.result("added with a limit: after forged SYNs flows live",
                    self.alive() == 100)
        self.after("-e", 2, "-g -w 0")
        self.result("weight 0: no new flow", "s2" not in self.open(50))
        self.forge()
        self.result("weight 0: after forged SYNs flows live",
                    self.alive() == 150)
        self.after("-e", 2, "-g -w 0")
        self.close()
        self.result("weight 0: flows that end leave no connection",
                    wait(lambda: not self.conns()))
        self.result("weight 0: no new flow from their ports",
                    not {"s2", "failed"} & set(self.open(100, self.port)))
        self.after("-d", 2)
        self.result("deleted: its flows end", 0 < self.alive(5) < 100)
        for sock, _ in self.flows:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close()
        self.ipvs("-a", 2)
        self.result("added again: flows of the ports that it knows begin",
                    "failed" not in self.open(100, self.port))
        self.fresh()
        self.on("second")
        self.by("second")

    def control(self):
        self.both()
        self.result("control: by another director flows end", not self.alive())
        self.fresh()
        self.result("control: flows have connections",
                    len(self.conns()) == 100)

    def new_conns(self):
        """Which new flows have a connection?"""
        self.open(50)
        new = [self.flows.pop()[0] for _ in range(50)]
        return set(self.conns(r":(\d+) ")) & {
            str(sock.getsockname()[1]) for sock in new}

    def flood(self, limit):
        """In a transition, as long as --set says, which ends after that"""
        self.fresh()
        run("director", "ipvsadm --set 60 60 300")
        self.sysctl("conn_max", 400)
        self.ipvs("-a", 3)
        self.send(range(40000, 41000), 4660, SYN)
        self.result("in a flood of SYNs flows live", self.alive() == 100)
        self.sysctl("conn_max", limit)
        run("director", "ipvsadm --set 3 3 300")
        ended = wait(lambda: not self.new_conns())
        run("director", "ipvsadm --set 60 60 300")
        self.result("in the end new flows need no connection and older live",
                    ended and self.alive() == len(self.flows))

    def stateless(self):
        self.both()
        self.result("by another director flows live", self.alive() == 100)
        self.fresh()
        self.result("flows have no connection", not self.conns())
        before = self.errors()
        self.raw(ICMP[self.family], [
            unreachable(f"{NET[self.family]}1", self.vip,
                        sock.getsockname()[1]) for sock, _ in self.flows])
        self.result("their servers get ICMP errors",
                    wait(lambda: self.errors() == before + 100))
        self.ipvs("-a", 3)
        for name in "forged SYNs make connections, flows live", "and more SYNs":
            self.forge()
            self.result(name, self.conns() and self.alive() == 100)
        self.fresh()
        self.on("second")
        self.by("second")
        wait(self.settled, "second")
        for host in "director", "second":
            self.ipvs("-a", 3, host=host)
        self.result("by a standby, after a change, flows live",
                    self.alive() == 100)
        self.fresh()
        self.by("second")
        self.result("by one that begins slowly, with edits, flows live",
                    self.slowly_on("second") == 100)
        self.after("-a", 3)
        limit = run("director", "sysctl -n net.ipv4.vs.conn_max").strip()
        self.sysctl("conn_max", 20)
        self.result("older flows take half of conn_max",
                    (self.alive(), len(self.conns())) == (100, 10))
        self.flood(limit)
        self.fresh()
        far = "10.9.{}.{}" if self.family == 4 else "2001:db8:9::{}:{}"
        run("director", "ipvsadm -R", "".join(
            f"-a {self.service} -r {self.at(far.format(i // 250, i % 250))} "
            "-g -w 0\n" for i in range(SLOTS - 2)))
        self.ipvs("-a", 3)
        self.ipvs("-d", 0, address=far.format(0, 1))
        self.result("a server finds room when another goes",
                    set(self.open(50)) == {"s1", "s2", "s3"})


def main():
    if subprocess.run(["modprobe", "-qa", "ip_vs_mh", "ip_vs_mhs"],
                      check=False).returncode:
        print("1..0 # SKIP no module ip_vs_mhs")
        raise SystemExit(4)
    children = []
    try:
        topology()
        children = [serve(f"s{i}") for i in (1, 2, 3)]
        for family in 4, 6:
            Test("mh", family).control()
            Test("mhs", family).stateless()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for host in "bridge", *HOSTS:
            subprocess.run(["ip", "netns", "del", full(host)], check=False)
    print(f"1..{len(Test.results)}")
    raise SystemExit(not all(Test.results))


if __name__ == "__main__":
    main()
