# SPDX-License-Identifier: GPL-2.0-only
"""What the module does with flows in a change of servers, by this host's sysctls
and timeouts; as in ip_vs_mhs_rebuild.c and ip_vs_mhs_decide.c."""

from ipvs_mhs_tool import ToolError

from . import module, netlink
from .address import endpoint, is_udp
from .module import VS
from .text import duration

# The kernel's defaults; no command tells that of SCTP
_IDLE_MS = {"TCP": 900_000, "UDP": 300_000, "SCTP": 900_000}
_HOLD_MS = 60_000

# What becomes of the living flows of a deleted server
NONE, MOVE, CUT, HANG, KEPT, SENT = \
    "none", "move", "cut", "hang", "kept", "sent"


def _number(name, directory, default):
    text = module.parameter(name, directory)
    return int(text) if text and text.isdigit() else default


def no_second_chance(service):
    """(why a service of TCP cannot have a second chance, or None; whether the module
    knows, and does without it)"""
    if any(s.method == "Masq" for s in service.servers):
        return "masquerading needs an entry for each flow", True
    tunnels = {s.tunnel for s in service.servers} - {None, "ipip"}
    if tunnels:
        return (f"servers are reached by {', '.join(sorted(tunnels)).upper()}, "
                "neither direct routing nor IPIP"), True
    if service.persistent or "ops" in service.flags:
        return "persistence and one-packet scheduling keep entries", False
    if len({s.address.version for s in service.servers}) > 1:
        return "its servers have addresses of both families", True
    port = endpoint(service.name.split()[1])[1]
    odd = [s.name for s in service.servers if s.port != port]
    if odd:
        return f"the server {odd[0]} has another port", True
    return None, True


class Host:
    """A director's times and switches: the kernel's defaults, or this host's."""

    def __init__(self, here):
        self.here = here
        self.hold_ms, self.pin_ms, self.fin_ms = _HOLD_MS, 0, 120_000
        self.idle_ms = dict(_IDLE_MS)
        self.expires = self.quiesces = False
        self.quic_ports, self.stay_ports = (443,), ()
        self.second_chance = self.quic_ids = ()  # names of services
        if not here:
            return
        self.hold_ms = _number("hold_ms", f"{VS}/mhs", _HOLD_MS)
        self.pin_ms = _number("pin_ms", f"{VS}/mhs", 0)
        self.expires = _number("expire_nodest_conn", VS, 0) != 0
        self.quiesces = _number("expire_quiescent_template", VS, 0) != 0
        self.second_chance = module.second_chance() or ()
        self.quic_ids = module.listed("quic_ids", "UDP") or ()
        self.quic_ports = module.ports("quic_ports", self.quic_ports)
        self.stay_ports = module.stay_ports()
        try:
            tcp, fin, udp = netlink.timeouts()
        except ToolError:
            return
        self.fin_ms = 1000 * fin
        self.idle_ms.update(TCP=1000 * max(tcp, fin), UDP=1000 * udp)

    def idle(self, name):
        """How long a flow of the service @name may be silent, in ms."""
        return self.idle_ms.get(name.split()[0], self.idle_ms["TCP"])

    def pin(self, name):
        """The pin time of the service, in ms."""
        return self.pin_ms or self.idle(name)

    def hold(self, name):
        """The hold time of the service, in ms."""
        return min(self.hold_ms, self.pin(name))

    def short(self, name):
        """Is the pin time too short to see every flow that lives?"""
        return self.pin(name) < self.idle(name)

    def only_server(self, service):
        """Why nobody but a server of the service knows its flows, or None."""
        if service.name in self.quic_ids:
            return (f"{service.name} has QUIC connection IDs, so flows have no "
                    "entry here, and only the server knows whether it has any: "
                    "ask it after its weight was set to 0")
        if service.name not in self.second_chance:
            return None
        return (f"{service.name} has the second chance, so flows have no entry "
                "here, and only the server knows whether it has any: set its weight "
                "to 0 and run 'real_server drained -t "
                f"{service.name.split()[1]} --timeout 1h' there")

    def merged(self, service, row):
        """Why servers of weight 0 may have flows that have no entry: by the times
        with which slots have merged, of which @row of /proc/net/ip_vs_mhs tells."""
        pinned_ms = (row or {}).get("pinned_ms")
        drains = any(not s.weight for s in service.servers)
        if pinned_ms is None or not drains or \
                pinned_ms >= self.idle(service.name):
            return None
        again = "; to see the others give its servers of weight 0 their weight " \
                "again, 'mhsstat wait', and drain anew"
        if not pinned_ms:
            return (f"{service.name}: since a server got the weight 0, the table "
                    "has changed at once (the service was new, or had the second "
                    "chance) or entries could not be made (a limit, or no "
                    f"memory), and flows without an entry are not seen{again}")
        if self.short(service.name):
            return None     # which is said anyway
        return (f"{service.name}: since a server got the weight 0, slots have "
                f"merged with a pin time of {duration(pinned_ms)} (pin_ms, or "
                "'ipvsadm --set', was shorter then), and a flow that was silent "
                f"for longer is not seen{again}")

    def unseen(self, service, row=None):
        """Why a server of the service may have flows that have no entry, and the
        remedies."""
        only = self.only_server(service)
        if only:
            yield only
        merged = self.merged(service, row)
        if merged:
            yield merged
        if self.short(service.name):
            yield (f"{service.name}: net.ipv4.vs.mhs.pin_ms is {self.pin_ms}, and "
                   "a flow that is silent for longer than "
                   f"{duration(self.pin_ms)} is not seen: run 'sysctl -w "
                   "net.ipv4.vs.mhs.pin_ms=0' before the weight is set to 0")
        yield from self.comes_back(service)

    def comes_back(self, service):
        """Why a server of weight 0 gets new flows, with any scheduler, and the remedy."""
        if service.persistent and not self.quiesces:
            yield (f"{service.name} is persistent, and clients that the server "
                   "had come back to it in spite of weight 0: run 'sysctl -w "
                   "net.ipv4.vs.expire_quiescent_template=1'")

    def chance(self, service):
        """Do its servers send back what they do not know?"""
        return service.name in self.second_chance and not no_second_chance(service)[0]

    def stays(self, service):
        """Are its flows plain UDP that stays, by entries of a transition?"""
        return not service.persistent and "ops" not in service.flags and \
            is_udp(service.name, self.stay_ports)

    def plain_udp(self, service):
        """Are there flows of plain UDP, which have no entries?  None: perhaps."""
        if service.persistent:
            return False
        if service.name.startswith("FWM "):
            return None
        return service.name.startswith("UDP ") and not self.stays(service) and \
            not is_udp(service.name, self.quic_ports)

    def deleted(self, service, server, row, stateful):
        """What becomes of the living flows of a server that is deleted, where @row
        of /proc/net/ip_vs_mhs is known; @stateful: all its flows have entries."""
        if self.chance(service) and not self.expires:
            return SENT
        if row.get("state") == "stable" and not server.weight and \
                server.active == server.inactive == 0 and \
                not any(self.unseen(service, row)):
            return NONE
        masq = server.method == "Masq"
        if "ops" in service.flags or self.stays(service) or \
                (self.plain_udp(service) and not stateful and not masq):
            return MOVE
        if self.expires:
            return CUT
        return HANG if masq else KEPT
