# SPDX-License-Identifier: GPL-2.0-only
"""What of others is on a device: before the filters of a gate, so that a packet may
never meet them, or behind, so that one that was held skips it.

A packet that arrives meets XDP, programs of tcx (Linux 6.6), the filters of clsact by
their preference, and the chains of nftables at the hook ingress.  What comes back from
the plug has passed what comes before our filters, and skips what comes behind.
"""

import ctypes
import struct
from contextlib import suppress

from .flower import bpf
from .gate import has_clsact
from .netlink import TC_H_EGRESS, TC_H_INGRESS

# Devices whose ports share what arrives.
_WITH_PORTS = ("bond", "bridge", "team")
_IPVLAN_MODE_L3S = 2
_BPF_PROG_QUERY, _BPF_TCX_INGRESS = 16, 46
_LETS_IN = ("what is held would skip it, so that a firewall there would let in, during a "
            "hold, clients that it blocks; if that is no matter, set up with --past-firewalls")


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
    """A sentence about a device that is one of several ports, or of a container, or
    None."""
    links = {link.ifindex: link for link in netlink.links()}
    device = links.get(gate.ifindex)
    master = links.get(device.master) if device else None
    if device and device.leads_away and device.kind in ("veth", "netkit") and (
            not master or master.kind == "bridge"):
        return (f"the other end of {gate.device} is in another namespace: new connections "
                "to a container go out by this end, and only what the container begins "
                "is held; hold the published port on the device by which clients come, or "
                "the container's own end by --netns")
    if master and master.kind in _WITH_PORTS:
        return (f"{gate.device} is a port of the {master.kind} {master.name}, and what "
                f"takes another port of it is not held; set up {master.name} instead")
    return None


def in_the_way(gate, netlink, nftables):
    """What of others' stands in the way of setup: a list of sentences."""
    found = [f"there is a device {gate.plug_device} already; if it is a "
             "leftover of this tool (with another --state-dir), remove it "
             f"('ip link del {gate.plug_device}')"] if netlink.link(gate.plug_device) else []
    return found + before(gate, netlink) + programs(gate) + (
        [] if gate.past_firewalls else behind(gate, netlink) + chains(gate, nftables))


def _filters(gate, netlink, are_meant):
    return [f"{gate.device} has an ingress filter of somebody else ({kind}, "
            f"preference {preference})"
            for preference, kind in netlink.filters(gate.ifindex).items()
            if preference not in gate.preferences and are_meant(preference)]


def before(gate, netlink):
    """Filters of others that may keep packets from being held."""
    return [] if gate.shared_filters else [
        f"{text}; if it lets TCP pass on, say with --preference which number this "
        "gate's filters may take behind it" for text in
        _filters(gate, netlink, lambda other: other < gate.preference)]


def behind(gate, netlink):
    """Those that held packets skip."""
    return [f"{text}; {_LETS_IN}, or give a greater --preference" for text in
            _filters(gate, netlink, lambda other: other > gate.preference)]


def chains(gate, nftables):
    """The same of nftables."""
    return [f"{gate.device} has a chain of nftables at its hook ingress ({name}); {_LETS_IN}"
            for name in nftables.ingress_chains(gate.device)]


def clsact_in_use(gate, netlink):
    """Whether others have filters there; ours go with it."""
    ours = () if gate.shared_filters else gate.preferences
    return has_clsact(gate, netlink) and any(
        preference not in ours for parent in (TC_H_INGRESS, TC_H_EGRESS)
        for preference in netlink.filters(gate.ifindex, parent))


def programs(gate):
    """The same of programs of tcx, which come before all filters."""
    query = ctypes.create_string_buffer(struct.pack("=II56x", gate.ifindex, _BPF_TCX_INGRESS), 64)
    with suppress(OSError):        # a kernel before 6.6, for example
        bpf(_BPF_PROG_QUERY, query)
    if gate.shared_filters or not struct.unpack_from("=I", query, 24)[0]:
        return []
    return [f"{gate.device} has a tcx program of somebody else ('bpftool net' "
            "names it), which sees what arrives first, and only what it "
            "answers with TCX_NEXT can be held; if it answers so, say --preference"]
