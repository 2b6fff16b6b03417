# SPDX-License-Identifier: GPL-2.0-only
"""Directors in network namespaces, for benchmarks inside a machine."""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import time

CLONE_NEWNET = 0x40000000
FAR = {4: "10.200.0.1", 6: "fdc8::1"}
VIP = {4: "10.9.0.1", 6: "fd09::1"}
OTHER = {4: "10.9.0.2", 6: "fd09::2"}

libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace that may be a director."""

    def __init__(self, name):
        self.name = name
        ip(f"netns add {name}")
        self.inside(ip, "link set lo up")

    def forward(self):
        """It is a router."""
        self.sysctl("net/ipv4/ip_forward", 1)
        self.sysctl("net/ipv6/conf/all/forwarding", 1)
        self.sysctl("net/ipv4/conf/all/rp_filter", 0)

    def inside(self, function, *args):
        enter(self.name)
        try:
            return function(*args)
        finally:
            enter(None)

    def sysctl(self, key, value):
        def write():
            with open(f"/proc/sys/{key}", "w", encoding="ascii") as file:
                file.write(str(value))
        self.inside(write)

    def read(self, path):
        def read():
            with open(path, encoding="ascii") as file:
                return file.read()
        return self.inside(read)

    def ipvs(self, *lines):
        self.inside(run, "ipvsadm", "-R", "\n".join(lines) + "\n")

    def lines(self):
        """The lines of /proc/net/ip_vs_mhs."""
        names, *lines = map(str.split, self.read(
            "/proc/net/ip_vs_mhs").splitlines())
        return [dict(zip(names, line)) for line in lines]

    def mhs(self, families=(4, 6)):
        """That of the measured service."""
        measured = [at_port(VIP[family]) for family in families]
        for row in self.lines():
            if row["Address:Port"] in measured:
                return row
        return {}

    def wait(self, families=(4, 6), **wanted):
        until = time.monotonic() + 60
        while any(self.mhs(families).get(key) != str(value)
                  for key, value in wanted.items()):
            if time.monotonic() > until:
                raise SystemExit(f"{self.name} is not {wanted}: "
                                 f"{self.mhs(families)}")
            time.sleep(0.05)

    def entries(self):
        return self.read("/proc/net/ip_vs_conn").count("\n") - 1


class Director(Namespace):
    """A network namespace with a way in, g-NAME, and a way out: a dummy device
    that takes every packet, or with sink the device s-NAME, where the last two
    bytes of a packet's MAC address are the number of its server."""

    def __init__(self, name, servers, sink=False):
        super().__init__(name)
        ip(f"link add g-{name} type veth peer name eth0 netns {name}",
           f"link set g-{name} up")
        self.inside(ip, "link set eth0 up",
                    f"link add out type veth peer name s-{name} netns 1"
                    if sink else "link add out type dummy",
                    "link set out up",
                    "addr add 10.2.0.1/16 dev out",
                    "addr add fd02::1/64 dev out nodad",
                    "route add 10.1.0.0/16 dev out",
                    "route add fd01::/64 dev out",
                    *(f"addr add {address} dev lo"
                      for address in (*VIP.values(), *OTHER.values())),
                    f"route add {FAR[4]} via {server(0, 4)}",
                    f"route add {FAR[6]} via {server(0, 6)}",
                    *(f"neigh add {server(i, family)} dev out "
                      f"lladdr 02:00:00:00:{i // 256:02x}:{i % 256:02x}"
                      for i in range(2 * servers) for family in (4, 6)))
        if sink:
            ip(f"link set s-{name} up")
        self.forward()
        self.sysctl("net/ipv4/conf/eth0/rp_filter", 0)
        # /sys shows the devices of the namespace that mounted it
        self.mac = json.loads(self.inside(
            run, "ip", "-j", "link", "show", "eth0"))[0]["address"]

    def sent(self):
        """Packets that have left it."""
        for line in self.read("/proc/net/dev").splitlines():
            if line.strip().startswith("out:"):
                return int(line.split(":")[1].split()[9])
        raise SystemExit("no device out")

    def remove(self):
        self.inside(run, "ipvsadm", "-C")
        ip(f"link del g-{self.name}", f"netns del {self.name}")


class Trace:
    """Asks the host to write down which instructions are executed, see
    tracing.py: a file named "ask" says "on" or "off", a group and what, and
    is gone when that is done.  The symbols of a group are those of its first
    time."""

    def __init__(self, directory):
        self.directory = directory

    @contextlib.contextmanager
    def of(self, group, what):
        symbols = f"{self.directory}/{group}.kallsyms"
        if not os.path.exists(symbols):
            shutil.copyfile("/proc/kallsyms", symbols)
        self._ask(f"on/{group}/{what}")
        yield
        self._ask(f"off/{group}/{what}")

    def _ask(self, text):
        path = f"{self.directory}/ask"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(text)
        os.rename(f"{path}.new", path)
        while os.path.exists(path):
            time.sleep(0.01)


def enter(name):
    path = f"/run/netns/{name}" if name else "/proc/1/ns/net"
    fd = os.open(path, os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns {path}")
    os.close(fd)


def run(*command):
    """A command; the last argument is its input if it has lines."""
    text = command[-1] if "\n" in command[-1] else ""
    command = command[:-1] if text else command
    done = subprocess.run(command, input=text, text=True, check=False,
                          capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def ip(*lines):
    run("ip", "-batch", "-", "\n".join(lines) + "\n")


def server(i, family):
    if family == 6:
        return f"fd02::1:{i:x}"
    return f"10.2.{i // 250 + 1}.{i % 250 + 1}"


def dest(i, family, port=80):
    return at_port(server(i, family), port)


def at_port(address, port=80):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# of all parts of the page; the default is that of mh
TABLE_SIZE = "table_size=65521"


@contextlib.contextmanager
def module(*parameters, ip_vs=()):
    """ip_vs_mhs is loaded; after it no namespace is left."""
    if not os.path.exists("/proc/net/ip_vs"):
        run("modprobe", "ip_vs", *ip_vs)
    for name in ("ipip", "ip6_tunnel", "sit"):
        subprocess.run(["modprobe", "-q", name], check=False)
    run("insmod", os.environ["MHS_KO"], TABLE_SIZE, *parameters)
    try:
        yield
    finally:
        subprocess.run(["ip", "-all", "netns", "del"], check=False)
        for _ in range(100):
            if not subprocess.run(["rmmod", "ip_vs_mhs"], check=False,
                                  capture_output=True).returncode:
                break
            time.sleep(0.2)
