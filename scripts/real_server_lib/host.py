# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel says of this network namespace, and changes of it."""

import glob
import json
import os
import re
import socket
import time

from ipaddress import ip_address

from ipvs_mhs_tool import ToolError, run

MAPS = "/sys/fs/bpf"
TABLE = "real_server"     # of nft, in the family inet

_SO_NETNS_COOKIE = 71     # Linux 5.14; Python has no name for it


def namespace_id():
    """What tells this network namespace from the others.  The number of its inode
    is used again after its end; the cookie is not, where there is one."""
    inode = os.stat("/proc/self/ns/net").st_ino
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            cookie = sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:
        return str(inode)
    return f"{inode}-{cookie.hex()}"


def _path(name):
    """A slash in a name stands for a dot, as for sysctl(8)."""
    return "/proc/sys/" + name.translate(str.maketrans("./", "/."))


def _proc(name):
    """/proc/net/@name; nothing without it"""
    try:
        with open(f"/proc/net/{name}", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _set_sysctl(name, value):
    try:
        with open(_path(name), "w", encoding="ascii") as file:
            file.write(value)
    except FileNotFoundError as error:
        raise ToolError(f"this kernel has no {name}: is IPv6 off in it?"
                        ) from error
    except OSError as error:
        raise ToolError(f"cannot set {name}={value}: {error.strerror}; be root, "
                        "in a container with a /proc/sys that may be written"
                        ) from error


class Host:
    """Answers are kept until something is changed."""

    def __init__(self):
        self._said = {}
        self._absent = set()    # neighbours that do not answer

    def _ask(self, *argv):
        if argv not in self._said:
            self._said[argv] = run(argv).stdout
        return self._said[argv]

    def _ask_json(self, *argv):
        """Without the empty objects that ip prints for what it leaves out."""
        text = self._ask(*argv).strip()
        return [item for item in json.loads(text) if item] if text else []

    def do(self, argv):
        """Run a command that changes something.  Only the name of sysctl is used,
        for people: the program belongs to another package."""
        self._said.clear()
        if argv[:2] == ["sysctl", "-w"]:
            _set_sysctl(*argv[2].split("="))
        else:
            run(argv)

    def links(self):
        """{device: what 'ip -d address' says of it}"""
        return {link["ifname"]: link
                for link in self._ask_json("ip", "-j", "-d", "address")}

    def taker(self, device, kind):
        """The device that takes what no tunnel between two addresses takes, by the
        kernel's order: one in collect-metadata mode that is up, else that of the
        module, whose name may be another; @device if neither is there."""
        found = {}
        for name, link in self.links().items():
            info = link.get("linkinfo", {})
            data = info.get("info_data", {})
            if info.get("info_kind") != kind:
                continue
            if data.get("external") or data.get("collect_metadata"):
                if "UP" in link["flags"]:
                    return name
            elif {data.get("remote", "any"), data.get("local", "any")} == {"any"}:
                found[name] = link
        return device if device in found else next(iter(found), device)

    def addresses(self):
        """Those of all devices."""
        return {address.get("local") for link in self.links().values()
                for address in link.get("addr_info", [])}

    def arp_devices(self):
        """Those on which ARP requests come in."""
        return [name for name, link in self.links().items()
                if "UP" in link["flags"] and link["link_type"] == "ether" and
                "NOARP" not in link["flags"]]

    def holders(self, vip):
        """(device, prefix length) of all that have the address."""
        return [(name, address["prefixlen"])
                for name, link in self.links().items()
                for address in link.get("addr_info", [])
                if address.get("local") == vip]

    def own(self, vip):
        """The device whose own address it is: the only one of its family there,
        or, for IPv4, the source of what this host sends."""
        family = "inet6" if ":" in vip else "inet"
        for name in self.arp_devices():
            those = [address["local"]
                     for address in self.links()[name].get("addr_info", [])
                     if address["family"] == family and
                     address.get("scope") != "link"]
            if vip in those and (len(those) == 1 or vip == self._source()):
                return name
        return None

    def _source(self):
        """The IPv4 source of packets by the default route, if there is one."""
        try:
            return self._ask_json("ip", "-j", "route", "get",
                                  "203.0.113.0")[0].get("prefsrc")
        except (ToolError, IndexError):
            return None

    def route_from(self, vip):
        """By which an answer leaves to an address that no network here has; None
        without one."""
        try:
            return self._ask_json("ip", "-j", "route", "get", "2001:db8::" if ":" in
                                  vip else "203.0.113.0", "from", vip)[0]
        except ToolError:
            return None

    @staticmethod
    def sysctl(name):
        """Its value; of a device that is not there, what it would have; None
        if there is no such sysctl."""
        words = name.split(".")
        for device in (words[-2], "default"):
            try:
                with open(_path(".".join([*words[:-2], device, words[-1]])),
                          encoding="ascii") as file:
                    return file.read().strip()
            except OSError:
                continue
        return None

    @staticmethod
    def has_module(name):
        """Whether it is loaded or built in.  The tunnels' modules have parameters,
        so that those that are built in are in /sys, too."""
        return os.path.exists(f"/sys/module/{name}")

    def gue_ports(self):
        """{(port, address family 4 or 6)}; None without the module fou, which ip
        does not load."""
        try:
            lines = self._ask("ip", "fou", "show").splitlines()
        except ToolError:
            return None
        return {(int(words[words.index("port") + 1]), 6 if "-6" in words else 4)
                for words in map(str.split, lines)
                if "port" in words and "gue" in words}

    def clamps(self):
        """The remarks of the rules in our table of nft; None without it."""
        if TABLE not in self._ask("nft", "list", "tables", "inet").split():
            return None
        found = json.loads(self._ask("nft", "-j", "list", "table", "inet",
                                     TABLE))["nftables"]
        return {item["rule"].get("comment", "") for item in found
                if "rule" in item}

    def underlay(self, family):
        """The device by which the default route goes, or None."""
        routes = self._ask_json("ip", "-j", f"-{family}", "route", "show",
                                "default")
        names = [route["dev"] for route in routes if "dev" in route]
        return self.links().get(names[0]) if names else None

    def sockets(self):
        """What listens, in the words of ss."""
        return self._ask("ss", "-Hlntu")

    @staticmethod
    def is_director(vip):
        """Whether IPVS of this host has a service with this address."""
        one = ip_address(vip)
        digits = rf"\[{one.exploded}\]" if one.version == 6 else f"{int(one):08X}"
        return bool(re.search(rf"^\w+ +{digits}:", _proc("ip_vs"), re.M))

    @staticmethod
    def martians():
        """How many packets rp_filter has dropped."""
        lines = [line.split() for line in _proc("netstat").splitlines()
                 if line.startswith("TcpExt:")]
        return int(dict(zip(*lines)).get("IPReversePathFilter", 0)) if lines else 0

    def rules(self):
        """Those of nftables, and of iptables; ToolError if some cannot be read: without
        nft, or not as root."""
        asked = [("nft", "list", "ruleset")] + [
            (f"{tool}-legacy-save", "-t", "nat") for tool, names in (
                ("iptables", "ip_tables_names"), ("ip6tables", "ip6_tables_names"))
            if "nat" in _proc(names).split()]
        return "".join(self._ask(*argv) for argv in asked)

    def flows(self, port):
        """TCP sockets with this local port but listeners and TIME_WAIT, in the words
        of ss."""
        return self._ask("ss", "-Htn", "state", "connected", "exclude", "time-wait",
                         f"( sport = :{port} )")

    def segments(self, family):
        """advmss of default routes"""
        return [metrics["advmss"] for route in self._ask_json(
            "ip", "-j", f"-{family}", "route", "show", "default")
            for metrics in route.get("metrics", []) if "advmss" in metrics]

    def device_to(self, address):
        """By which this host sends to it."""
        return self._ask_json("ip", "-j", "route", "get", address)[0]["dev"]

    def neighbour(self, address):
        """Its MAC address, or None.  What is sent there, to a port that nobody has,
        makes the kernel ask for it."""
        for _ in range(10):
            found = [item.get("lladdr") for item in self._ask_json(
                "ip", "-j", "neigh", "show", address)]
            if any(found) or address in self._absent:
                return next(filter(None, found), None)
            with socket.socket(socket.AF_INET6 if ":" in address else
                               socket.AF_INET, socket.SOCK_DGRAM) as sock:
                try:
                    sock.sendto(b"", (address, 9))
                except OSError:
                    return None
            self._said.pop(("ip", "-j", "neigh", "show", address), None)
            time.sleep(0.05)
        self._absent.add(address)
        return None

    def is_there(self, router):
        """Whether it answers; also if there is none to ask.  A link-local address
        says nothing without its device."""
        return not router or router.startswith("fe80:") or \
            bool(self.neighbour(router))

    def has_ingress(self, device):
        """Whether it has what filters of incoming packets hang on."""
        return any(qdisc["dev"] == device and
                   qdisc["kind"] in ("clsact", "ingress")
                   for qdisc in self._ask_json("tc", "-j", "qdisc", "show"))

    def filters(self, device, pref=None, way="ingress"):
        """Those of a device."""
        return [item for item in self._ask_json("tc", "-j", "filter", "show",
                                                "dev", device, way)
                if pref in (None, item.get("pref"))] \
            if self.has_ingress(device) else []

    @staticmethod
    def pinned(prefix):
        """Where programs are pinned."""
        return glob.glob(prefix + "*")

    @staticmethod
    def program_path(directory):
        """Where the program is pinned: bpftool before 5.16 takes the section's
        name."""
        paths = [f"{directory}/{name}" for name in ("mhs_chance", "classifier")]
        return next(filter(os.path.exists, paths), paths[0])

    def program_id(self, directory):
        """None if it is not loaded."""
        path = self.program_path(directory)
        if not os.path.exists(path):
            return None
        return json.loads(self._ask("bpftool", "-j", "prog", "show", "pinned",
                                    path))["id"]

    def map(self, path):
        """{key: value} of a map, as bytes, or of each CPU a value; {} without it"""
        if not os.path.exists(path):
            return {}
        raw = lambda words: bytes(int(word, 16) for word in words)
        return {raw(item["key"]): [raw(cpu["value"]) for cpu in item["values"]]
                if "values" in item else raw(item["value"])
                for item in json.loads(self._ask("bpftool", "-j", "map", "dump",
                                                 "pinned", path))}
