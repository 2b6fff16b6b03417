# SPDX-License-Identifier: GPL-2.0-only
"""What keeps packets from the filters of a lane: others, or its device.

A packet that arrives meets, before the filters of clsact,
  - a program of XDP, or where the device is one end of a netkit pair those of
    the other end: what they let pass gets to the filters;
  - from Linux 6.6 on, those attached by tcx: only what they answer with
    TCX_NEXT does.
To come before them would be no remedy: a held packet returns behind them, and
they may be a firewall.
"""

import ctypes
import errno
import os
import struct

from .lane import has_clsact
from .netlink import TC_H_EGRESS, TC_H_INGRESS, TC_H_ROOT, handle_text

# Devices whose ports share what arrives.
_WITH_PORTS = ("bond", "bridge", "team")
_IPVLAN_MODE_L3S = 2

_BPF_PROG_GET_FD_BY_ID, _BPF_OBJ_GET_INFO_BY_FD, _BPF_PROG_QUERY = 13, 15, 16
_BPF_TCX_INGRESS, _BPF_NETKIT_PEER = 46, 55
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
    if device.kind == "ifb":
        return (f"what filters send to {lane.device} (ifb) goes on as packets "
                "of the device that they are on; set up that device instead")
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
    """Whether others have filters there; ours go with it."""
    ours = () if lane.shared_filters else lane.preferences
    return has_clsact(lane, netlink) and any(
        preference not in ours
        for parent in (TC_H_INGRESS, TC_H_EGRESS)
        for preference, _ in netlink.filters(lane.ifindex, parent))


def programs(lane):
    """The same of programs that come before all filters."""
    if lane.mode != "ingress" or lane.shared_filters:
        return []
    return [f"{lane.device} has the tcx program {name} of somebody else, "
            "which sees what arrives first, and only what it answers with "
            "TCX_NEXT can be held; if it answers so, say --preference"
            for name in _tcx_programs(lane.ifindex)]


def early_programs(lane, netlink):
    """Sentences about programs before which nothing can be held, and behind
    which all can that they let pass."""
    device = netlink.link(lane.device)
    if device is None or lane.mode != "ingress":
        return []
    found = [f"the XDP program {_program_name(device.xdp)} sees"] \
        if device.xdp else []
    if device.kind == "netkit":
        found += _netkit_programs(device.ifindex)
    return [f"{who} what comes in by {lane.device} first; what is dropped or "
            "sent elsewhere there is not held" for who in found]


def _bpf(command, attributes):
    """The system call; OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(_SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _programs(ifindex, place):
    """The names of the programs at a place of a device; OSError if this kernel
    or this device has no such place, or nobody ever used it."""
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    attributes = ctypes.create_string_buffer(struct.pack(
        "=IIIIQII32x", ifindex, place, 0, 0,
        ctypes.addressof(ids), _MOST_PROGRAMS, 0), 64)
    _bpf(_BPF_PROG_QUERY, attributes)
    return [_program_name(number) for number in
            ids[:struct.unpack_from("=I", attributes, 24)[0]]]


def _tcx_programs(ifindex):
    try:
        return _programs(ifindex, _BPF_TCX_INGRESS)
    except OSError:
        return []                  # a kernel before 6.6, for example


def _netkit_programs(ifindex):
    """Who sees what the other end of a netkit pair sends."""
    try:
        return [f"the netkit program {name} sees"
                for name in _programs(ifindex, _BPF_NETKIT_PEER)]
    except OSError as error:
        if error.errno != errno.EACCES:
            return []
        # Both ends are asked by the first, which is not this one.
        return ["a netkit program, if there is one (run 'bpftool net' where "
                "the other end of the pair is), sees"]


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
