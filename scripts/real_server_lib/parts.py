# SPDX-License-Identifier: GPL-2.0-only
"""What a real server is made of.

Each part tells by what commands it would be made now (none if it is there), what
was there before, by what commands it is undone, and what is wrong without it.
So setup, --dry-run, clear and check are one list of parts.
"""

from typing import NamedTuple

from ipvs_mhs_tool import quoted

from .host import TABLE
from .options import family_of


# Tunnels of the second chance
CHANCE_TUNNELS = ("mhs-chance4", "mhs-chance6")


class Fault(NamedTuple):
    """One line of check."""

    text: str
    remedy: str
    severity: str = "error"


def _sysctl_of(family, device, leaf):
    """A dot in the name of a device becomes a slash, as sysctl(8) wants it."""
    return f"net.ipv{family}.conf.{device.replace('.', '/')}.{leaf}"


class Part:
    """Something that setup makes."""

    key = ""      # tells it from the others, in the state file, too
    hint = ""     # what may help when it cannot be made

    def making(self, host):
        """The commands that make it; the first ones may change the later ones."""
        raise NotImplementedError

    def before(self, host):
        """What undoing() needs to know of the time before."""

    def undoing(self, host, before):
        """The commands that undo it."""
        raise NotImplementedError

    def text(self, host):
        """What is wrong without it."""
        raise NotImplementedError

    def faults(self, host):
        """What check has to say of it."""
        commands = self.making(host)
        if commands:
            yield Fault(self.text(host), " && ".join(map(quoted, commands)))


class Sysctl(Part):
    """A sysctl with one of the @good values; the first one if it has none."""

    def __init__(self, name, good, why=""):
        self.key = self.name = name
        self.good = good
        self._why = why

    def making(self, host):
        if host.sysctl(self.name) in self.good:
            return []
        return [["sysctl", "-w", f"{self.name}={self.good[0]}"]]

    def before(self, host):
        return host.sysctl(self.name)

    def undoing(self, host, before):
        """Unless somebody else has set it since."""
        if before is None or host.sysctl(self.name) != self.good[0]:
            return []
        return [["sysctl", "-w", f"{self.name}={before}"]]

    def text(self, host):
        return f"{self.name} is {host.sysctl(self.name)}: {self._why}"


class Arp(Sysctl):
    """One about ARP: set for all devices, and judged for each, where the larger
    of the two values counts."""

    def __init__(self, name, good, why):
        super().__init__(_sysctl_of(4, "all", name), good, why)
        self._leaf = name

    def faults(self, host):
        of_all = int(host.sysctl(self.name))
        for device in host.arp_devices():
            own = _sysctl_of(4, device, self._leaf)
            value = max(of_all, int(host.sysctl(own)))
            if str(value) in self.good:
                continue
            name = own if str(of_all) in self.good else self.name
            yield Fault(f"{device} {self._why} ({self._leaf} is {value})",
                        f"sysctl -w {name}={self.good[0]}")
            if name == self.name:
                return


def rp_filter(host, device):
    """Of the two values the larger one counts: 0 none, 1 strict, 2 loose."""
    return max(int(host.sysctl(_sysctl_of(4, name, "rp_filter")))
               for name in ("all", device))


class Loose(Sysctl):
    """A tunnel device without strict rp_filter: clients are reached by another
    device than the one their packets come out of."""

    def __init__(self, device):
        super().__init__(_sysctl_of(4, device, "rp_filter"), ("2",))
        self._device = device

    def making(self, host):
        return super().making(host) if rp_filter(host, self._device) == 1 \
            else []

    def text(self, host):
        return (f"strict rp_filter on {self._device} drops what comes out of the "
                "tunnel (martian source)")


class Up(Part):
    """A device that is up."""

    def __init__(self, device):
        self.device = device
        self.key = f"device {device}"

    def making(self, host):
        link = host.links().get(self.device)
        return [] if link and "UP" in link["flags"] else \
            [["ip", "link", "set", self.device, "up"]]

    def before(self, host):
        return "down" if self.device in host.links() else "absent"

    def undoing(self, host, before):
        link = host.links().get(self.device)
        return [["ip", "link", "set", self.device, "down"]] \
            if link and "UP" in link["flags"] else []

    def text(self, host):
        return f"{self.device} is down"


class Tunnel(Up):
    """The device that takes what no other device of its kind takes.  It comes with
    its module, in most network namespaces, and cannot be deleted then."""

    def __init__(self, device, kind, module):
        super().__init__(device)
        self._kind = kind
        self._module = module
        self.hint = (f"the tunnel needs the module {module}: install the package "
                     "with all modules of this kernel, or boot a kernel that "
                     "has it")

    def making(self, host):
        commands = []
        if self.device not in host.links():
            commands.append(
                ["ip", "link", "add", self.device, "type", self._kind]
                if host.has_module(self._module) else
                ["modprobe", self._module])
        return commands + super().making(host)

    def undoing(self, host, before):
        commands = super().undoing(host, before)
        if before == "absent" and self.device in host.links():
            commands.append(["ip", "link", "del", self.device])
        return commands

    def text(self, host):
        if self.device in host.links():
            return f"{self.device} is down: nothing comes out of the tunnel"
        return (f"{self.device} is missing" if host.has_module(self._module) else
                f"the module {self._module} is missing, and {self.device} with "
                "it") + ": nothing comes out of the tunnel"


class AnyMode(Part):
    """An ip6tnl device that takes IPv4, too."""

    def __init__(self, device):
        self.device = device
        self.key = f"mode of {device}"

    def _mode(self, host):
        link = host.links().get(self.device, {})
        return link.get("linkinfo", {}).get("info_data", {}).get("proto",
                                                                 "ip6ip6")

    def _change(self, mode):
        return [["ip", "-6", "tunnel", "change", self.device, "mode", mode]]

    def making(self, host):
        return [] if self._mode(host) == "any" else self._change("any")

    def before(self, host):
        return self._mode(host)

    def undoing(self, host, before):
        return self._change(before) if self._mode(host) == "any" else []

    def text(self, host):
        return f"{self.device} drops IPv4 (its mode is {self._mode(host)})"


class Gue(Part):
    """The UDP port on which GUE comes in."""

    hint = "GUE needs the module fou of this kernel, and a UDP port that is free"

    def __init__(self, port, family):
        self._port = port
        self._family = family
        self.key = f"gue {port} ipv{family}"

    def _command(self, verb, *words):
        return [["ip", "fou", verb, "port", str(self._port), *words,
                 *(["-6"] if self._family == 6 else [])]]

    def making(self, host):
        ports = host.gue_ports()
        if ports is None:
            return [["modprobe", "fou"], *self._command("add", "gue")]
        return [] if (self._port, self._family) in ports else \
            self._command("add", "gue")

    def undoing(self, host, before):
        return self._command("del") \
            if (self._port, self._family) in (host.gue_ports() or ()) else []

    def text(self, host):
        return (f"nobody takes GUE on UDP port {self._port} of "
                f"IPv{self._family}" +
                (": the module fou is missing" if host.gue_ports() is None else
                 ""))


class Clamp(Part):
    """A rule for each address: what this server says of its segment size, in the
    second packet of a connection, goes to no client unclamped.  The kernel never
    raises the size.  A rule's remark tells all of it."""

    key = "nft"
    hint = "the MSS clamp needs nft (the package nftables) and nf_tables"

    def __init__(self, vips, mss):
        self._remarks = {f"{vip} mss {mss}" for vip in vips}

    @staticmethod
    def _rule(remark):
        vip, _, mss = remark.split()
        return (f"add rule inet {TABLE} out "
                f"{'ip6' if family_of(vip) == 6 else 'ip'} saddr {vip} "
                "tcp flags & (syn | rst) == syn "
                f'tcp option maxseg size set {mss} comment "{remark}"')

    def _replace(self, remarks):
        """In one transaction.  Priority 150 is behind source NAT, where the answer
        of a container has the virtual address again."""
        words = [f"add table inet {TABLE}", f"delete table inet {TABLE}",
                 f"add table inet {TABLE}",
                 f"add chain inet {TABLE} out "
                 "{ type filter hook postrouting priority 150 ; }",
                 *map(self._rule, sorted(remarks))]
        return [["nft", " ; ".join(words)]]

    def making(self, host):
        return [] if host.clamps() == self._remarks else \
            self._replace(self._remarks)

    def before(self, host):
        clamps = host.clamps()
        return clamps if clamps is None else sorted(clamps)

    def undoing(self, host, before):
        if before:
            return self._replace(before)
        return [] if host.clamps() is None else \
            [["nft", "delete", "table", "inet", TABLE]]

    def text(self, host):
        return (f"the table {TABLE} of nft, which clamps the MSS, is missing or "
                "another")


class Address(Part):
    """A virtual address of this host, which no neighbour is told of."""

    def __init__(self, vip, tunnels=()):
        self.vip = vip
        self.key = f"address {vip}"
        self._tunnels = tunnels
        six = family_of(vip) == 6
        self.length = 128 if six else 32
        # nodad: others have it, too.  It is no source of this server's own
        # connections, which its neighbours would not answer.
        self._words = ["nodad", "preferred_lft", "0"] if six else []

    def _command(self, verb, *words):
        return [["ip", "address", verb, f"{self.vip}/{self.length}", "dev", "lo",
                 *words]]

    def _silent(self, host):
        """The devices without ARP that have it: lo, a dummy, a tunnel."""
        links = host.links()
        return {device for device, length in host.holders(self.vip)
                if (device == "lo" and length == self.length) or
                "NOARP" in links[device]["flags"]}

    def making(self, host):
        """On a tunnel device it is for as long as that is wanted."""
        return [] if self._silent(host) - set(self._tunnels) else \
            self._command("add", *self._words)

    def undoing(self, host, before):
        return self._command("del") \
            if ("lo", self.length) in host.holders(self.vip) else []

    def faults(self, host):
        if not self._silent(host):
            yield from super().faults(host)

    def text(self, host):
        return f"{self.vip} is not on lo: its packets are not for this host"


class TunnelAddress(Part):
    """An IPv4 address of a tunnel device.  On a device without one even loose
    rp_filter drops every packet."""

    def __init__(self, device, vip):
        self._device = device
        self._vip = vip
        self.key = f"address {vip} of {device}"

    def _command(self, verb):
        return [["ip", "address", verb, f"{self._vip}/32", "dev", self._device]]

    def _has(self, host):
        return (self._device, 32) in host.holders(self._vip)

    def making(self, host):
        return self._command("add") if rp_filter(host, self._device) and \
            not self._has(host) else []

    def undoing(self, host, before):
        return self._command("del") if self._has(host) else []

    def faults(self, host):
        """Any address will do."""
        link = host.links().get(self._device, {})
        if not any(address["family"] == "inet"
                   for address in link.get("addr_info", [])):
            yield from super().faults(host)

    def text(self, host):
        return (f"{self._device} has no IPv4 address, and rp_filter drops what "
                "comes out of such a tunnel (martian source)")


def _tunnel_devices(tunnel, vip_family, outer):
    """The device that takes packets of one family inside another's."""
    if tunnel == "gre":
        return ("gre0", "gre", "ip_gre") if outer == 4 else \
            ("ip6gre0", "ip6gre", "ip6_gre")
    if outer == 6:
        return "ip6tnl0", "ip6tnl", "ip6_tunnel"
    return ("tunl0", "ipip", "ipip") if vip_family == 4 else \
        ("sit0", "sit", "sit")


def _tunnel_parts(set_up, host):
    for tunnel in set_up.tunnels:
        for family, outer in set_up.carried():
            name, kind, module = _tunnel_devices(tunnel, family, outer)
            device = host.taker(name, kind) if host else name
            yield Tunnel(device, kind, module)
            if family == 4:
                yield Loose(device)
                yield TunnelAddress(device, set_up.of_family(4)[0])
            else:
                yield Sysctl(_sysctl_of(6, device, "disable_ipv6"), ("0",),
                             "no IPv6 comes out of the tunnel")
            if name == "ip6tnl0" and family == 4:
                yield AnyMode(device)
            if tunnel == "gue":
                yield Gue(set_up.gue_port, outer)


def _parts(set_up, host):
    if 4 in set_up.families():
        vips = ", ".join(set_up.of_family(4))
        # 3 answers for addresses of global scope, 4 to 7 for all
        yield Arp("arp_ignore", ("1", "2", "8"),
                  f"answers ARP requests for {vips}, whose neighbours come here "
                  "past the director")
        yield Arp("arp_announce", ("2",),
                  f"may ask by ARP in the name of {vips}, which takes the address "
                  "from the director")
    yield Up("lo")
    tunnels = list(_tunnel_parts(set_up, host))
    yield from tunnels
    if 6 in set_up.families():
        yield Sysctl(_sysctl_of(6, "lo", "disable_ipv6"), ("0",),
                     "lo can have no IPv6 address")
    if set_up.mss:
        yield Clamp(set_up.vips, set_up.mss)
    devices = [part.device for part in tunnels if isinstance(part, Tunnel)]
    if set_up.directors:
        # which imports this file
        from .chance import chance_parts
        yield from chance_parts(set_up, devices)
    for vip in set_up.vips:
        yield Address(vip, devices)


def parts_of(set_up, host=None):
    """In the order of making: the addresses come last, when ARP is silent and
    tunnels are open, and go first.  @host tells which devices take the tunnels'
    packets."""
    return list({part.key: part for part in _parts(set_up, host)}.values())


def tunnels_of(set_up, host=None):
    """The names of the tunnels' devices."""
    return {part.device for part in parts_of(set_up, host)
            if isinstance(part, Tunnel)}
