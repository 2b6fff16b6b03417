# SPDX-License-Identifier: GPL-2.0-only
"""What a flow of mhs without an answer meets, for the report of faults.py."""
import contextlib
import subprocess
import tempfile

from netlab import netns

FILES = "snmp", "netstat", "snmp6", "stat/arp_cache", "stat/ndisc_cache"


def words(path):
    with contextlib.suppress(FileNotFoundError), \
            open("/proc/net/" + path, encoding="ascii") as file:
        return [line.split() for line in file]
    return []


def counters():
    """Of this namespace: name and number."""
    found = {}
    for path in FILES:
        lines = words(path)
        if path == "snmp6":
            found.update((name, int(number)) for name, number in lines)
        else:
            for head, row in zip(lines[::2], lines[1::2]):
                found.update((head[0] + name, int(number)) for name, number
                             in zip(head[1:], row[1:]) if number.isdigit())
    head, *rows = words("ip_vs_mhs") or [[]]
    for row in rows:
        found.update((name, int(number)) for name, number
                     in zip(head, row) if number.isdigit())
    return found


class Watch:
    """From its first silence on: packets, and the director's counters.  @nets:
    the client's, the switch's, then all whose neighbours may tell."""

    def __init__(self, nets, director, flow, vip, port):
        self.director, self.nets = director, nets
        self.flow, self.vip, self.port = flow, vip, port
        self.dumps = {}
        with netns(director):
            self.before = counters()
        # the switch sees what all hosts behind it send
        for net, device in (nets[0], "eth0"), (nets[1], "br0"), \
                (director, "eth0"):
            file = tempfile.TemporaryFile("w+")
            with netns(net):
                self.dumps[net] = file, subprocess.Popen(
                    ["tcpdump", "-Z", "root", "-i", device, "-nletq",
                     f"port {flow[1]} or ip proto 4 or ip6 proto 41 or arp or "
                     "icmp or icmp6"], stdout=file, stderr=subprocess.DEVNULL)

    def end(self):
        for _, process in self.dumps.values():
            process.terminate()
            process.wait()

    def report(self, most=16):
        """What happened since, as lines."""
        self.end()
        with netns(self.director):
            now = counters()
            yield "counted: " + " ".join(
                f"{name} {number - self.before.get(name, 0):+d}"
                for name, number in now.items()
                if number != self.before.get(name, 0))
            client, port = self.flow
            for line in words("ip_vs_conn"):
                if line[2] == f"{int(port):04X}":
                    yield "entry: " + " ".join(line)
            with open("/proc/net/ip_vs_mhs_lookup", "r+b", buffering=0) as file:
                file.write(f"TCP {self.vip} {self.port} {client} {port}"
                           .encode())
                yield "lookup: " + " ".join(file.read(4096).decode().split())
        for net in self.nets:
            for line in self.run("ip", "-6" if ":" in client else "-4", "-n",
                                 net, "neigh"):
                yield f"{net}: {line}"
        for line in self.run("dmesg")[-5:]:
            yield f"log: {line}"
        for net, (file, _) in self.dumps.items():
            file.seek(0)
            for line in file.read().splitlines()[:most]:
                yield f"{net}: {line}"

    @staticmethod
    def run(*command):
        return subprocess.run(command, stdout=subprocess.PIPE, text=True,
                              check=False).stdout.splitlines()
