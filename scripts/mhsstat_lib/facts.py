# SPDX-License-Identifier: GPL-2.0-only
"""What 'mhsstat check' asks this host: the core's services, sysctls, the module,
devices, routes and neighbours of this network namespace."""

import glob
import os
import re
import shutil
from collections import namedtuple

from ipvs_mhs_tool import run

from . import arrive, lane, module, netlink, servers
from .address import endpoint
from .module import VS
from .proc import name_of
from .rules import Host
from .snapshot import read_services, select


# the type is None for a plain route; the gateway is the next hop
Route = namedtuple("Route", "type gateway device mtu")
# xdp: None, "xdp" or "xdpgeneric"; arp: neighbours are asked; master, lower: names;
# what: kind and options of some kinds; strips: it hides VLAN tags from XDP
Link = namedtuple("Link", "mtu xdp arp master lower what strips",
                  defaults=(True, None, None, "", False))


def keepalived(pattern="/etc/keepalived/*.conf"):
    """What keepalived's files say, in one text."""
    texts = []
    for path in glob.glob(pattern):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        except OSError:
            continue
    return "\n".join(texts)


def routes(addresses, text, errors):
    """{address: Route, or None if there is none} of a batch of 'route get'."""
    failed = {int(n) for n in re.findall(r"Command failed \S*:(\d+)", errors)}
    lines = iter(text.splitlines())
    found = {}
    for number, address in enumerate(addresses, 1):
        line = None if number in failed else next(lines, None)
        if line is None:
            found[address] = None
            continue
        words = line.split()
        value = dict(zip(words, words[1:]))
        found[address] = Route(
            words[0] if words[0] in ("local", "unreachable", "blackhole",
                                     "prohibit") else None,
            value.get("via"), value.get("dev"),
            int(value["mtu"]) if value.get("mtu", "").isdigit() else None)
    return found


def links(text):
    """{device: Link} of ip -d -o link."""
    found = {}
    for name, lower, rest in re.findall(r"^\d+: ([^:@]+)(?:@([^:]+))?:(.*)$", text,
                                        re.M):
        mtu, xdp, master, what = (re.search(pattern, rest) for pattern in
                                  (r" mtu (\d+)", r" (xdp\w*)(?:/id:\d+)? ",
                                   r" master (\S+)", r"\\ +((?:vlan|macv\w+|"
                                   r"bond|bridge|vrf) .*)"))
        found[name] = Link(int(mtu[1]) if mtu else 0, xdp and xdp[1],
                           "NOARP" not in rest, master and master[1],
                           None if re.match(r"if\d|NONE", lower) else
                           lower or None, what[1] if what else "")
    return found


def strip_tags(found):
    """The same, with what ethtool, if it is there, says of cards that may have
    the lane."""
    if not shutil.which("ethtool"):
        return found
    return {name: link._replace(strips=bool(re.search(
        r"^rx-vlan-(offload|stag-hw-parse): on", run(
            ["ethtool", "-k", name], check=False).stdout, re.M)))
            if link.xdp or link.master else link
            for name, link in found.items()}


def neighbours(text):
    """{(address, device): state} of ip -o neigh."""
    return {(words[0], words[2]): words[-1]
            for words in map(str.split, text.splitlines()) if len(words) > 3}


def schedules(name):
    """Has the kernel a scheduler of that name itself, as a module or built in?"""
    if os.path.exists(f"/sys/module/ip_vs_{name}"):
        return True
    try:
        with open("/proc/kallsyms", encoding="ascii") as file:
            return any(line.split()[2] == f"ip_vs_{name}_schedule"
                       for line in file)
    except OSError:
        return False


def merged(known):
    """{name: Service}; a mark in both families is one."""
    found = {name: those[0] for name, those in known.items()}
    for name, those in known.items():
        for other in those[1:]:
            found[name].servers += other.servers
            found[name].options += other.options
    return found


class Facts:
    """All of it, as it is now."""

    def __init__(self, names=(), listens=True):
        """Of services of mhs, all if there are no @names; @listens: half a second for
        their packets."""
        self.links = strip_tags(links(run(["ip", "-d", "-o", "link"]).stdout))
        self.services = read_services(names)
        if names:
            self.services = select(self.services, names)
        # None: nobody has listened
        self.came, self.owners = (None, {}) if not listens else arrive.look(
            self.services, any(link.xdp for link in self.links.values()) and
            not module.parameter("ingress", f"{VS}/mhs"))
        self.core = merged(servers.of_this_host(names, others=True))
        self.backup = netlink.is_backup()
        self.host = Host(True)
        self.sysctls = {name: module.parameter(name, where) for where, words in (
            (f"{VS}/mhs", "max_entries max_quic_entries max_total_entries stateless "
                          "lane ingress"),
            (VS, "conntrack drop_entry drop_packet secure_tcp"))
            for name in words.split()}
        self.forwards = {
            version: int(module.parameter(name, f"/proc/sys/net/{where}") or 1)
            for version, where, name in ((4, "ipv4", "ip_forward"),
                                         (6, "ipv6/conf/all", "forwarding"))}
        told = keepalived()
        self.sorry = {name for address, port in re.findall(
            r"^\s*sorry_server\s+(\S+)\s+(\d+)", told, re.M)
            for name in (f"{address}:{port}", f"[{address}]:{port}")}
        names = module.parameter("names") or ""
        self.names = [n for n in names.split(",") if n and n != "mhs"]
        self.taken = [n for n in self.names if schedules(n)]
        self.ha_suspend = bool(re.search(r"^\s*ha_suspend\b", told, re.M))
        self.btf = os.path.exists("/sys/kernel/btf/ip_vs_mhs_lane")
        self.lane = lane.read() or {}
        self.lane_loaded = os.path.exists("/sys/module/ip_vs_mhs_lane")
        self.neighbours = neighbours(run(["ip", "-o", "neigh"]).stdout)
        ours = {name_of(s) for s in self.services}
        self.routes = self._routes({s.host for name in ours & self.core.keys()
                                    for s in self.core[name].servers})
        self.virtual = self._routes({str(endpoint(name.split()[1])[0])
                                     for name in ours if name[:4] != "FWM "})
        self.chains = re.findall(
            r"table (\w+ \S+) {[^}]*?chain (\S+) {\s*type filter hook input[^}]*?"
            r"policy drop", run(["nft", "list", "chains"], check=False).stdout) \
            if shutil.which("nft") else []

    @staticmethod
    def _routes(addresses):
        asked = run(["ip", "-force", "-o", "-batch", "-"], "".join(
            f"route get {address}\n" for address in sorted(addresses)), check=False)
        return routes(sorted(addresses), asked.stdout, asked.stderr)

    def sysctl(self, name):
        """A number; None where the module has no such sysctl."""
        text = self.sysctls.get(name)
        return int(text) if text and text.isdigit() else None
