# SPDX-License-Identifier: GPL-2.0-only
"""A gate: the way of new connections past a plug on one device.  (A picture is in
Documentation/networking/qdisc-tool.rst.)

Between holds nothing leads to the plug: the filters are put in when a hold begins and removed when
it ends.  If they always led through an open plug, one that is shut by hand, or an ifb that somebody
sets down, would lose every new connection at a time when no reload is going on.  Here the check
before the next hold finds such an accident, and it costs that hold only.  Filters come and go
without loss, qdiscs do not: those are set up once.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from .flower import PREFERENCE_COUNT
from .netlink import CLSACT_HANDLE

# Odd on purpose: 1: is everybody's.
PLUG_HANDLE = 0x7F200000
PLUG_KIND = "netem"
DEFAULT_PREFERENCE = 0x7F1F

# A client that gets no answer sends its SYN again, so often at most.
_SYN_AGAIN_MS = 1000


@dataclass
class Gate:
    """What setup was told and what it made, as plain data."""

    device: str
    ifindex: int = 0
    addresses: list = field(default_factory=list)
    ports: list = field(default_factory=list)
    exclude: list = field(default_factory=list)
    all_packets: bool = False
    vlan: bool = False
    preference: int = DEFAULT_PREFERENCE
    limit_packets: int = 0
    max_hold_ms: int = 0
    past_firewalls: bool = False
    own_clsact: bool = False
    plug_ifindex: int = 0

    def told(self):
        """Without what setup found out."""
        return {**vars(self), "own_clsact": None, "plug_ifindex": None}

    # Where the plug is.

    @property
    def plug_device(self):
        return f"plug{self.ifindex}"

    @property
    def preferences(self):
        return range(self.preference, self.preference + PREFERENCE_COUNT)

    @property
    def queue_packets(self):
        """The plug holds every copy of a SYN (and one packet of our own, see hold.py)."""
        copies = 1 + self.max_hold_ms // _SYN_AGAIN_MS
        return 1 + self.limit_packets * (1 if self.all_packets else copies)

    def holds_port(self, port):
        return not self.ports or any(int(first) <= port <= int(last or first) for first, _, last in
                                     (text.partition("-") for text in self.ports))

    def holds(self, client, server):
        """Whether it should hold a connection between these, (address, port) each, as
        in a packet."""
        def is_in(address, networks):
            return any(ip_address(address) in ip_network(text) for text in networks)
        return self.holds_port(int.from_bytes(server[1], "big")) and (
            not self.addresses or is_in(server[0], self.addresses)) and \
            not is_in(client[0], self.exclude)

    def filters_there(self, netlink):
        """The preferences of those that lead to the plug now."""
        return [preference for preference in netlink.filters(self.ifindex)
                if preference in self.preferences]

    def find_plug(self, netlink):
        """The plug of this gate as the kernel has it, or None."""
        plug = netlink.qdisc(self.plug_ifindex, PLUG_HANDLE)
        return plug if plug and plug.kind == PLUG_KIND else None

    def problems(self, netlink):
        """What keeps a hold from working: a list of sentences."""
        ifindex = netlink.index_of(self.device)
        if not ifindex:
            return [f"the device {self.device} is gone"]
        if ifindex != self.ifindex:
            return [f"{self.device} is not the device that was set up: it "
                    "has been made anew; run 'clear', then 'setup'"]
        found = []
        if not netlink.index_of(self.plug_device):
            found.append(f"the device {self.plug_device} is gone")
        elif not netlink.is_up(self.plug_device):
            found.append(f"the device {self.plug_device} is down: a hold would lose packets")
        elif not self.find_plug(netlink):
            found.append(f"{self.plug_device} has no netem qdisc any more")
        if not has_clsact(self, netlink):
            found.append(f"{self.device} has no clsact qdisc any more")
        return [f"{text}; run 'clear', then 'setup'" for text in found]


def has_clsact(gate, netlink):
    """Whether a qdisc that takes ingress filters is there already."""
    found = netlink.qdisc(gate.ifindex, CLSACT_HANDLE)
    return found is not None and found.kind in ("clsact", "ingress")
