# SPDX-License-Identifier: GPL-2.0-only
"""What keeps packets from the filters of a lane: others, or its device.

On its way to the filters of clsact a packet that arrives meets, from Linux 6.6
on, the programs attached by tcx, and only what they answer with TCX_NEXT goes
further.  To come before them would be no remedy: a held packet returns behind
them, and they may be a firewall.  What an XDP program lets pass gets there.
"""

import ctypes
import os
import struct

from .lane import has_clsact
from .netlink import TC_H_EGRESS, TC_H_INGRESS, TC_H_ROOT, handle_text

# Devices whose ports share what arrives.
_WITH_PORTS = ("bond", "bridge", "team")
_IPVLAN_MODE_L3S = 2

_BPF_PROG_GET_FD_BY_ID, _BPF_OBJ_GET_INFO_BY_FD, _BPF_PROG_QUERY = 13, 15, 16
_BPF_TCX_INGRESS = 46
_SYS_BPF = {"x86_64": 321, "s390x": 351, "ppc64le": 361}.get(
    os.uname().machine, 280)
_MOST_PROGRAMS = 64
_INFO_BYTES, _INFO_NAME = 128, 64


def unfit(lane, netlink):
    """Why nothing that comes in by this kind of device can be held: a
    sentence that names the device to take, or None."""
    device = netlink.link(lane.device)
    if lane.mode != "ingress" or device is None:
        return None
    if device.kind == "vrf":
        ports = [link.name for link in netlink.links()
                 if link.master == device.ifindex]
        return (f"packets come in by the devices of the VRF {lane.device}, "
                "not by itself; set up " +
                (" and ".join(ports) or "these") + " instead")
    if device.kind == "ipvlan" and device.mode == _IPVLAN_MODE_L3S:
        parents = [link.name for link in netlink.links()
                   if link.ifindex == device.parent]
        return (f"packets for {lane.device} (ipvlan, mode l3s) come in by the "
                "device below; set up " +
                (parents[0] if parents else "that, in its own namespace,") +
                " instead")
    if device.kind == "dummy":
        return (f"nothing comes in by the dummy device {lane.device}, and "
                "what this host sends to its addresses passes lo; set up lo "
                "instead")
    return None


def port_of(lane, netlink):
    """A sentence about a device that is one of several ports, or None."""
    links = {link.ifindex: link for link in netlink.links()}
    device = links.get(lane.ifindex)
    master = links.get(device.master) if device else None
    if master and master.kind in _WITH_PORTS:
        return (f"{lane.device} is a port of the {master.kind} {master.name}, "
                "and what takes another port of it is not held; set up "
                f"{master.name} instead")
    return None


def in_the_way(lane, netlink):
    """What of others' stands in the way of setup: a list of sentences."""
    found = []
    if lane.mode == "ingress" and netlink.link(lane.plug_device):
        found.append(f"there is a device {lane.plug_device} already; if it is "
                     "a leftover of this tool (with another --state-dir), "
                     f"remove it ('ip link del {lane.plug_device}')")
    for qdisc in netlink.qdiscs():
        if (lane.mode == "egress" and qdisc.ifindex == lane.ifindex and
                qdisc.parent == TC_H_ROOT and qdisc.handle):
            found.append(f"{lane.device} has the root qdisc {qdisc.kind} "
                         f"{handle_text(qdisc.handle)} of somebody else; "
                         + ("" if lane.device == "lo" else "use --mode "
                            "ingress, which leaves it alone, or ") +
                         f"remove it ('tc qdisc del dev {lane.device} root')")
    return found + filters(lane, netlink) + programs(lane)


def filters(lane, netlink):
    """Ingress filters of others that may keep packets from being held."""
    if lane.mode != "ingress" or lane.shared_filters:
        return []
    return [f"{lane.device} has an ingress filter of somebody else ({kind}, "
            f"preference {preference}); if it lets TCP pass on, say with "
            "--preference which number this lane's filters may take beside it"
            for preference, kind in netlink.filters(lane.ifindex,
                                                    TC_H_INGRESS)
            if preference not in lane.preferences]


def clsact_in_use(lane, netlink):
    return has_clsact(lane, netlink) and any(
        netlink.filters(lane.ifindex, parent)
        for parent in (TC_H_INGRESS, TC_H_EGRESS))


def programs(lane):
    """The same of programs that come before all filters."""
    if lane.mode != "ingress" or lane.shared_filters:
        return []
    return [f"{lane.device} has the tcx program {name} of somebody else, "
            "which sees what arrives first, and only what it answers with "
            "TCX_NEXT can be held; if it answers so, say --preference"
            for name in _tcx_programs(lane.ifindex)]


def xdp_program(lane, netlink):
    """A sentence about a program before which nothing can be held, and behind
    which all can that it lets pass; or None."""
    device = netlink.link(lane.device)
    if device is None or not device.xdp or lane.mode != "ingress":
        return None
    return (f"the XDP program {_program_name(device.xdp)} sees what comes in "
            f"by {lane.device} first; what it drops or sends elsewhere is not "
            "held")


def _bpf(command, attributes):
    """The system call; OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(_SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _tcx_programs(ifindex):
    """The names of the programs on the ingress side of a device."""
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    attributes = ctypes.create_string_buffer(struct.pack(
        "=IIIIQII32x", ifindex, _BPF_TCX_INGRESS, 0, 0,
        ctypes.addressof(ids), _MOST_PROGRAMS, 0), 64)
    try:
        _bpf(_BPF_PROG_QUERY, attributes)
    except OSError:
        return []                  # a kernel before 6.6, or none was ever there
    return map(_program_name,
               ids[:struct.unpack_from("=I", attributes, 24)[0]])


def _program_name(number):
    """Its name, as bpftool shows it."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    try:
        fd = _bpf(_BPF_PROG_GET_FD_BY_ID, ctypes.create_string_buffer(
            struct.pack("=III", number, 0, 0), 12))
        try:
            _bpf(_BPF_OBJ_GET_INFO_BY_FD, ctypes.create_string_buffer(
                struct.pack("=IIQ", fd, _INFO_BYTES, ctypes.addressof(info)),
                16))
        finally:
            os.close(fd)
    except OSError:
        return f"number {number}"
    name = info.raw[_INFO_NAME:_INFO_NAME + 16].rstrip(b"\0").decode()
    return f"{name!r} (number {number})"
