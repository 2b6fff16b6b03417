# SPDX-License-Identifier: GPL-2.0-only
"""What keeps packets from the filters of a gate: others, or its device.

A packet that arrives meets, before the filters of clsact, from Linux 6.6 on,
programs attached by tcx: only what they answer with TCX_NEXT gets to the
filters.  (What XDP, or the other end of a netkit pair, lets pass does.)
To come before them would be no remedy: a held packet returns behind them.
"""

import ctypes
import os
import struct

from .gate import has_clsact
from .netlink import TC_H_EGRESS, TC_H_INGRESS

# Devices whose ports share what arrives.
_WITH_PORTS = ("bond", "bridge", "team")
_IPVLAN_MODE_L3S = 2

_BPF_PROG_QUERY, _BPF_TCX_INGRESS = 16, 46
_SYS_BPF = {"x86_64": 321, "s390x": 351, "ppc64le": 361}.get(
    os.uname().machine, 280)


def unfit(device, netlink):
    """Why nothing that comes in by this kind of device can be held: a
    sentence that names the device to take, or None."""
    name, links = device.name, netlink.links()
    if device.kind == "vrf":
        ports = [link.name for link in links if link.master == device.ifindex]
        return (f"packets come in by the devices of the VRF {name}, not by itself; "
                f"set up {' and '.join(ports) or 'these'} instead")
    if device.kind == "ipvlan" and device.mode == _IPVLAN_MODE_L3S:
        below = [link.name for link in links if link.ifindex == device.parent]
        return (f"packets for {name} (ipvlan, mode l3s) come in by the device below; "
                f"set up {(below or ['that, in its own namespace,'])[0]} instead")
    return {
        "ifb": f"what filters send to {name} (ifb) goes on as packets of the device "
               "that they are on; set up that device instead",
        "dummy": f"nothing comes in by the dummy device {name}, and what this host "
                 "sends to its addresses passes lo; set up lo instead",
    }.get(device.kind)


def port_of(gate, netlink):
    """A sentence about a device that is one of several ports, or None."""
    links = {link.ifindex: link for link in netlink.links()}
    device = links.get(gate.ifindex)
    master = links.get(device.master) if device else None
    if master and master.kind in _WITH_PORTS:
        return (f"{gate.device} is a port of the {master.kind} {master.name}, and what "
                f"takes another port of it is not held; set up {master.name} instead")
    return None


def in_the_way(gate, netlink):
    """What of others' stands in the way of setup: a list of sentences."""
    found = [f"there is a device {gate.plug_device} already; if it is a "
             "leftover of this tool (with another --state-dir), remove it "
             f"('ip link del {gate.plug_device}')"
             ] if netlink.link(gate.plug_device) else []
    return found + filters(gate, netlink) + programs(gate)


def filters(gate, netlink):
    """Ingress filters of others that may keep packets from being held."""
    if gate.shared_filters:
        return []
    return [f"{gate.device} has an ingress filter of somebody else ({kind}, "
            f"preference {preference}); if it lets TCP pass on, say with "
            "--preference which number this gate's filters may take beside it"
            for preference, kind in netlink.filters(gate.ifindex).items()
            if preference not in gate.preferences]


def clsact_in_use(gate, netlink):
    """Whether others have filters there; ours go with it."""
    ours = () if gate.shared_filters else gate.preferences
    return has_clsact(gate, netlink) and any(
        preference not in ours
        for parent in (TC_H_INGRESS, TC_H_EGRESS)
        for preference in netlink.filters(gate.ifindex, parent))


def programs(gate):
    """The same of programs of tcx, which come before all filters."""
    if gate.shared_filters or not _tcx_programs(gate.ifindex):
        return []
    return [f"{gate.device} has a tcx program of somebody else ('bpftool net' "
            "names it), which sees what arrives first, and only what it "
            "answers with TCX_NEXT can be held; if it answers so, say "
            "--preference"]


def _tcx_programs(ifindex):
    """How many there are."""
    query = ctypes.create_string_buffer(struct.pack(
        "=II56x", ifindex, _BPF_TCX_INGRESS), 64)
    if ctypes.CDLL(None).syscall(_SYS_BPF, _BPF_PROG_QUERY, query, 64) < 0:
        return 0                   # a kernel before 6.6, for example
    return struct.unpack_from("=I", query, 24)[0]
