# SPDX-License-Identifier: GPL-2.0-only
"""The filters of a hold.

tc puts in those that lead what is to be held to a chain of its own (its number is the preference of
the first), which is empty, so nothing is held yet.  Its first filter then is a program that asks
the kernel's clock: until the deadline it sends on to the plug, and then nothing is held any more,
whatever has become of the processes.
"""

import ctypes
import ipaddress
import os
import struct
from contextlib import suppress

from .netlink import attribute, nested
from .system import run

# The flower keys of each address family, by the protocol of a filter.
_FAMILIES = {"ip": {4: ""}, "ipv6": {6: ""},
             "802.1q": {4: "vlan_ethtype ipv4", 6: "vlan_ethtype ipv6"}}
# Preferences of one gate: exclusions and matches, each of them one for each protocol.
PREFERENCE_COUNT = 2 * len(_FAMILIES)

_ACT_KIND, _ACT_OPTIONS, _ACT_PARMS, _ACT_STOLEN, _EGRESS_REDIRECT = 1, 2, 2, 4, 1
_BPF_ACT, _BPF_FD, _BPF_NAME, _BPF_FLAGS_GEN, _SKIP_HW = 1, 6, 7, 9, 1

_SYS_BPF = {"x86_64": 321, "s390x": 351, "ppc64le": 361}.get(os.uname().machine, 280)
_BPF_PROG_LOAD, _PROG_TYPE_SCHED_CLS, _BPF_KTIME_GET_NS = 5, 3, 5


def bpf(command, attributes):
    """bpf(2); OSError if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(_SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def load(kind, instructions):
    """A program of instructions (code, registers, offset, value): its file descriptor."""
    words = b"".join(struct.pack("=BBhi", *line) for line in instructions)
    code, licence = (ctypes.create_string_buffer(text) for text in (words, b"GPL"))
    return bpf(_BPF_PROG_LOAD, struct.pack(
        "=IIQQIIQII16s", kind, len(words) // 8, ctypes.addressof(code),
        ctypes.addressof(licence), 0, 0, 0, 0, 0, b"qdisc_tool"))


def _until(deadline):
    """A program that matches until then (seconds of CLOCK_MONOTONIC)."""
    low, high = struct.unpack("=ii", struct.pack("=Q", int(deadline * 1_000_000_000)))
    return load(_PROG_TYPE_SCHED_CLS, (
        (0x85, 0, 0, _BPF_KTIME_GET_NS),
        (0x18, 1, 0, low), (0, 0, 0, high),
        (0x2D, 0x10, 2, 0),                        # if it is later, no match
        (0xB7, 0, 0, -1), (0x95, 0, 0, 0),
        (0xB7, 0, 0, 0), (0x95, 0, 0, 0)))


def _of_family(addresses, family):
    return [address for address in addresses if ipaddress.ip_network(address).version == family]


def _exclusions(gate, family):
    """The flower keys of what passes."""
    everywhere = not gate.addresses or _of_family(gate.addresses, 6)
    if family == 6 and gate.all_packets and not gate.ports and everywhere:
        # Is this address yours, it is mine: a neighbour that is not answered for three
        # seconds drops what it has for us.
        yield from ("ip_proto icmpv6 type 135", "ip_proto icmpv6 type 136")
    for address in _of_family(gate.exclude, family):
        yield f"src_ip {address}"


def _targets(gate, family):
    """The flower keys of everything a gate holds."""
    addresses = _of_family(gate.addresses, family)
    if gate.addresses and not addresses:
        return
    # SYN alone among FIN, SYN, RST and ACK: a SYN may carry ECN bits, a SYN-ACK is an
    # answer.
    what = ("ip_proto tcp tcp_flags 0x2/0x17",) if not gate.all_packets else \
        ("ip_proto tcp", "ip_proto udp") if gate.ports else ("",)
    for address in addresses or [""]:
        for port in gate.ports or [""]:
            for keys in what:
                yield (keys + (f" dst_port {port}" if port else "") +
                       (f" dst_ip {address}" if address else ""))


def _commands(gate):
    """For tc -batch."""
    line = f"filter add dev {gate.device} ingress protocol "
    yield f"{line}all pref 2 chain {gate.preference} flower skip_hw action pass"
    for offset, (protocol, families) in enumerate(_FAMILIES.items()):
        if protocol == "802.1q" and not gate.vlan:
            continue
        for family, kind in families.items():
            for targets, preference, action in (
                    (_exclusions, gate.preference, "pass"),
                    (_targets, gate.preference + len(_FAMILIES), f"goto chain {gate.preference}")):
                for keys in targets(gate, family):
                    yield (f"{line}{protocol} pref {preference + offset} flower skip_hw "
                           f"{kind} {keys} action {action}")


def prepare(gate, turn):
    """Lead to the chain what the gate holds.  tc, too, has the turn, so that what is
    left of a killed call is there before the next one looks."""
    run(["tc", "-batch", "-"], "\n".join(_commands(gate)) + "\n", turn.fd)


def lead(gate, netlink, deadline):
    """Lead from the chain to the plug, until @deadline."""
    program_fd = _until(deadline)
    # struct tc_gact is what struct tc_mirred begins with.
    redirect = struct.pack("=IIiIIiI", 0, 0, _ACT_STOLEN, 0, 0, _EGRESS_REDIRECT, gate.plug_ifindex)
    try:
        netlink.add_filter(gate.ifindex, gate.preference, b"bpf", [
            attribute(_BPF_FD, struct.pack("=I", program_fd)),
            attribute(_BPF_NAME, b"qdisc_tool\0"),
            attribute(_BPF_FLAGS_GEN, struct.pack("=I", _SKIP_HW)),
            nested(_BPF_ACT, nested(1, attribute(_ACT_KIND, b"mirred\0"), nested(
                _ACT_OPTIONS, attribute(_ACT_PARMS, redirect))))])
    finally:
        os.close(program_fd)


def remove(gate, netlink):
    """Those that are there; somebody else may be first."""
    for preference in gate.filters_there(netlink):
        with suppress(OSError):
            netlink.delete_filters(gate.ifindex, preference)
    with suppress(OSError):
        netlink.delete_filters(gate.ifindex, 0, gate.preference)
