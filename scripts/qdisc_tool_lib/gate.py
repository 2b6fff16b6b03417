# SPDX-License-Identifier: GPL-2.0-only
"""A gate: the way of new connections past a plug on one device.  (A picture is
in Documentation/networking/qdisc-tool.rst.)

Between holds nothing leads to the plug: the filters are put in when a hold begins
and removed when it ends.  If they always led through an open plug, one that is
shut by hand, or an ifb that somebody sets down, would lose every new connection
at a time when no reload is going on.  Here the check before the next hold finds
such an accident, and it costs that hold only.  Filters come and go without loss,
qdiscs do not: those are set up once.
"""

from ipaddress import ip_address, ip_network
from socket import AF_INET6

from .netlink import CLSACT_HANDLE

# Odd on purpose: 1: is everybody's.
PLUG_HANDLE = 0x7F200000
PLUG_KIND = "netem"
DEFAULT_PREFERENCE = 0x7F1F
# Preferences of one gate: exclusions, matches and UDP, each of them one for each
# protocol.
PROTOCOLS = ("ip", "ipv6", "802.1q")
PREFERENCE_COUNT = 3 * len(PROTOCOLS)

# Values of pause_ms: as long as the kernel knows of a handshake.  Where the
# servers are in another namespace it does not; a handshake with a client in
# the same town is over by then.
UNTIL_ACCEPTED = -1
UNKNOWN_PAUSE_MS = 50
# A client that gets no answer sends its SYN again, so often at most.
_SYN_AGAIN_MS = 1000


class Gate:
    """What setup was told and what it made, as plain data."""

    FIELDS = {"device": str, "ifindex": int, "addresses": list,
              "ports": list, "exclude": list, "all_packets": bool,
              "vlan": bool, "preference": int,
              "shared_filters": bool, "limit_packets": int,
              "max_hold_ms": int, "pause_ms": int,
              "past_firewalls": bool,
              "own_clsact": bool, "plug_ifindex": int,
              # False until setup has come to its end
              "complete": bool}

    def __init__(self, **values):
        for name, kind in self.FIELDS.items():
            setattr(self, name, values.get(name, kind()))

    # In a file: a line for each field.

    def text(self):
        return "".join(
            f"{name}={' '.join(value) if isinstance(value, list) else value}"
            "\n" for name, value in vars(self).items())

    @classmethod
    def from_text(cls, text):
        """ValueError if this is not what text() made, of this version or another."""
        values = {}
        for line in text.splitlines():
            name, _, value = line.partition("=")
            kind = cls.FIELDS.get(name, str)
            if kind is bool and value not in ("True", "False"):
                raise ValueError(f"unknown line {line!r}")
            values[name] = (value.split() if kind is list else
                            value == "True" if kind is bool else kind(value))
        if not {"device", "ifindex", "preference", "complete"} <= set(values):
            raise ValueError("lines are missing")
        return cls(**values)

    # Where the plug is.

    @property
    def plug_device(self):
        return f"plug{self.ifindex}"

    @property
    def preferences(self):
        return range(self.preference, self.preference + PREFERENCE_COUNT)

    @property
    def chain(self):
        """That of the filter that asks the clock."""
        return self.preference

    def met(self, hits):
        """How many packets (held, tagged, UDP), of hits by preference; those tagged
        and UDP would be held with other options."""
        counts = [hits.get(preference, 0) for preference in self.preferences]
        matched, udp = counts[len(PROTOCOLS):-len(PROTOCOLS)], sum(counts[-len(PROTOCOLS):])
        tagged = 0 if self.vlan else matched.pop()
        return sum(matched), tagged, udp

    @property
    def queue_packets(self):
        """The plug holds every copy of a SYN (and one packet of our own, see
        plug.py)."""
        copies = 1 + self.max_hold_ms // _SYN_AGAIN_MS
        return 1 + self.limit_packets * (1 if self.all_packets else copies)

    def holds_port(self, port):
        return not self.ports or any(
            int(first) <= port <= int(last or first) for first, _, last in
            (text.partition("-") for text in self.ports))

    def holds_address(self, address):
        """Whether connections to it may be held: none that is given is all of them."""
        return not self.addresses or address.is_unspecified or any(
            address in ip_network(text) for text in self.addresses)

    def excludes(self, address):
        return any(address in ip_network(text) for text in self.exclude)

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
        device = netlink.link(self.device)
        if device is None:
            return [f"the device {self.device} is gone"]
        if device.ifindex != self.ifindex:
            return [f"{self.device} is not the device that was set up: it "
                    "has been made anew; run 'clear', then 'setup'"]
        if not self.complete:
            return [f"the setup of {self.device} was not finished; run it again"]
        found = []
        ifb = netlink.link(self.plug_device)
        if ifb is None:
            found.append(f"the device {self.plug_device} is gone")
        elif not ifb.up:
            found.append(f"the device {self.plug_device} is down: a hold would lose packets")
        if not has_clsact(self, netlink):
            found.append(f"{self.device} has no clsact qdisc any more")
        if not found and not self.find_plug(netlink):
            found.append(f"{self.plug_device} has no netem qdisc any more")
        if found:
            found[-1] += "; run 'clear', then 'setup'"
        return found


def plain_address(packed, family):
    """That of a socket, of IPv4 also where the socket is for both."""
    address = ip_address(packed if family == AF_INET6 else packed[:4])
    return getattr(address, "ipv4_mapped", None) or address


def has_clsact(gate, netlink):
    """Whether a qdisc that takes ingress filters is there already."""
    found = netlink.qdisc(gate.ifindex, CLSACT_HANDLE)
    return found is not None and found.kind in ("clsact", "ingress")
