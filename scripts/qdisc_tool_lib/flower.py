# SPDX-License-Identifier: GPL-2.0-only
"""The filters of a hold, by the words of tc(8), as messages.

What is to be held goes to a chain of its own, whose first filter is a program that
asks the kernel's clock: until the deadline it sends on to the plug, and then nothing
is held any more, whatever has become of the processes.
"""

import ctypes
import errno
import ipaddress
import os
import struct
from contextlib import suppress

from .errors import ToolError
from .gate import PROTOCOLS
from .netlink import attribute, filter_message, nested

# Types of ICMPv6: is this address yours, it is mine.
_NEIGHBOUR_MESSAGES = ("135", "136")

_ETHERTYPES = {"all": 0x0003, "ip": 0x0800, "ipv6": 0x86DD, "802.1q": 0x8100, "ipv4": 0x0800}
_IP_PROTOCOLS = {"tcp": 6, "udp": 17, "icmpv6": 58}
# TCA_FLOWER_*; of a pair the second is the mask, or the end of a range.
_ACT, _ETH_TYPE, _IP_PROTO, _FLAGS, _VLAN_ETH_TYPE = 3, 8, 9, 22, 25
_ADDRESS = {("src_ip", 4): (10, 11), ("dst_ip", 4): (12, 13),
            ("src_ip", 6): (14, 15), ("dst_ip", 6): (16, 17)}
_DST_PORT = {"tcp": 19, "udp": 21}
_ICMPV6_TYPE, _TCP_FLAGS, _DST_PORT_RANGE = (55, 56), (71, 72), (89, 90)
_SKIP_HW = 1
_ACT_KIND, _ACT_OPTIONS, _ACT_PARMS = 1, 2, 2
_ACT_CONTINUE, _ACT_OK, _ACT_STOLEN, _ACT_GOTO_CHAIN = -1, 0, 4, 2 << 28
_EGRESS_REDIRECT = 1
_BPF_ACT, _BPF_FD, _BPF_NAME, _BPF_FLAGS_GEN = 1, 6, 7, 9

_SYS_BPF = {"x86_64": 321, "s390x": 351, "ppc64le": 361}.get(os.uname().machine, 280)
_BPF_PROG_LOAD, _PROG_TYPE_SCHED_CLS, _BPF_KTIME_GET_NS = 5, 3, 5


def bpf(command, attributes):
    """bpf(2); OSError if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(_SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _instruction(code, registers, offset=0, value=0):
    return struct.pack("=BBhi", code, registers, offset, value)


def _until(deadline):
    """A program that matches until then (seconds of CLOCK_MONOTONIC): its file
    descriptor."""
    low, high = struct.unpack("=ii", struct.pack("=Q", int(deadline * 1_000_000_000)))
    words = b"".join((
        _instruction(0x85, 0, value=_BPF_KTIME_GET_NS),
        _instruction(0x18, 1, value=low), _instruction(0, 0, value=high),
        _instruction(0xB7, 2, value=-1),
        _instruction(0x2D, 0x10, offset=1),        # if it is later, no match
        _instruction(0x05, 0, offset=1),
        _instruction(0xB7, 2, value=0),
        _instruction(0xBF, 0x20), _instruction(0x95, 0)))
    code, licence = (ctypes.create_string_buffer(text) for text in (words, b"GPL"))
    try:
        return bpf(_BPF_PROG_LOAD, struct.pack(
            "=IIQQIIQII16s", _PROG_TYPE_SCHED_CLS, len(words) // 8,
            ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0, b"qdisc_tool"))
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        raise ToolError("the deadline of a hold is a program of BPF, and to load one "
                        "needs CAP_BPF") from error


def _families(protocol):
    """{family: the flower keys that tell it within a protocol}"""
    if protocol == "802.1q":
        return {family: ["vlan_ethtype", f"ipv{family}"] for family in (4, 6)}
    return {{"ip": 4, "ipv6": 6}[protocol]: []}


def _targets(gate, protocol):
    """The flower keys of everything a gate holds, for one protocol."""
    return _keys_of(gate, protocol, (
        ("tcp", "udp") if gate.ports else (None,)) if gate.all_packets else ("tcp",))


def _udp(gate, protocol):
    """The same of what it would hold with --all."""
    return _keys_of(gate, protocol, ("udp",) if gate.ports and not gate.all_packets else ())


def _keys_of(gate, protocol, transports):
    for family, kind in _families(protocol).items():
        addresses = [address for address in gate.addresses
                     if ipaddress.ip_network(address).version == family]
        if gate.addresses and not addresses:
            continue
        for address in addresses or [None]:
            for port in gate.ports or [None]:
                for transport in transports:
                    yield [*kind,
                           *(["ip_proto", transport] if transport else []),
                           *(["dst_ip", address] if address else []),
                           *(["dst_port", port] if port else []),
                           *([] if gate.all_packets or transport == "udp"
                             # SYN alone among FIN, SYN, RST and ACK: a SYN
                             # may carry ECN bits, a SYN-ACK is an answer.
                             else ["tcp_flags", "0x2/0x17"])]


def _neighbours_pass(gate):
    """Whether a gate would hold neighbour discovery: a neighbour that is not
    answered for three seconds drops what it has for us."""
    return gate.all_packets and not gate.ports and (
        not gate.addresses or any(":" in address for address in gate.addresses))


def _exclusions(gate, protocol):
    families = _families(protocol)
    if 6 in families and _neighbours_pass(gate):
        for message in _NEIGHBOUR_MESSAGES:
            yield [*families[6], "ip_proto", "icmpv6", "type", message]
    for address in gate.exclude:
        family = ipaddress.ip_network(address).version
        if family in families:
            yield [*families[family], "src_ip", address]


def _filters(gate):
    """(preference, protocol, keys, verdict) of each; the last ones count what is not
    held and perhaps should be."""
    preference = gate.preference
    for targets, verdict in ((_exclusions, "leave"), (_targets, "hold"), (_udp, "count")):
        for offset, protocol in enumerate(PROTOCOLS):
            tagged = protocol == "802.1q" and not gate.vlan
            for keys in targets(gate, protocol):
                yield (preference + offset, protocol, keys,
                       "count" if tagged and verdict == "hold" else verdict)
        preference += len(PROTOCOLS)


def add(gate, netlink, deadline):
    """Lead to the plug what the gate holds, until @deadline."""
    program_fd = _until(deadline)
    try:
        netlink.add_filter(filter_message(gate.ifindex, 1, _ETHERTYPES["all"], "bpf", [
            attribute(_BPF_FD, struct.pack("=I", program_fd)),
            attribute(_BPF_NAME, b"qdisc_tool\0"),
            attribute(_BPF_FLAGS_GEN, struct.pack("=I", _SKIP_HW)),
            _action(_BPF_ACT, "mirred", _ACT_STOLEN, struct.pack(
                "=iI", _EGRESS_REDIRECT, gate.plug_ifindex))], gate.chain))
    finally:
        os.close(program_fd)
    netlink.add_filter(_flower(gate, 2, "all", [], "leave", gate.chain))
    for words in _filters(gate):
        netlink.add_filter(_flower(gate, *words))


def remove(gate, netlink):
    """Those that are there; somebody else may be first."""
    for preference in gate.filters_there(netlink):
        with suppress(OSError):
            netlink.delete_filters(gate.ifindex, preference)
    with suppress(OSError):
        netlink.delete_filters(gate.ifindex, 0, gate.chain)


def _flower(gate, preference, protocol, keys, verdict, chain=0):
    code = {"count": _ACT_CONTINUE, "leave": _ACT_OK,
            "hold": _ACT_GOTO_CHAIN | gate.chain}[verdict]
    return filter_message(
        gate.ifindex, preference, _ETHERTYPES[protocol], "flower",
        [attribute(_FLAGS, struct.pack("=I", _SKIP_HW)),
         *([] if protocol == "all" else [attribute(
             _ETH_TYPE, struct.pack("!H", _ETHERTYPES[protocol]))]),
         *_keys(keys), _action(_ACT, "gact", code)], chain)


def _keys(words):
    """The attributes that the keys of a filter stand for."""
    keys = dict(zip(words[::2], words[1::2]))
    for key, value in keys.items():
        if key == "vlan_ethtype":
            yield attribute(_VLAN_ETH_TYPE, struct.pack("!H", _ETHERTYPES[value]))
        elif key == "ip_proto":
            yield attribute(_IP_PROTO, bytes([_IP_PROTOCOLS[value]]))
        elif key in ("src_ip", "dst_ip"):
            network = ipaddress.ip_network(value)
            yield from _pair(_ADDRESS[key, network.version], network.network_address.packed,
                             network.netmask.packed)
        elif key == "dst_port":
            low, dash, high = value.partition("-")
            if dash:
                yield from _pair(_DST_PORT_RANGE, _be16(low), _be16(high))
            else:
                yield attribute(_DST_PORT[keys["ip_proto"]], _be16(low))
        elif key == "type":
            yield from _pair(_ICMPV6_TYPE, bytes([int(value)]), b"\xff")
        elif key == "tcp_flags":
            yield from _pair(_TCP_FLAGS, *map(_be16, value.split("/")))


def _be16(text):
    return struct.pack("!H", int(text, 0))


def _pair(kinds, *payloads):
    return map(attribute, kinds, payloads)


def _action(options, kind, code, rest=b""):
    # struct tc_gact is what struct tc_mirred begins with.
    return nested(options, nested(
        1, attribute(_ACT_KIND, kind.encode() + b"\0"),
        nested(_ACT_OPTIONS, attribute(_ACT_PARMS, struct.pack(
            "=IIiII", 0, 0, code, 0, 0) + rest))))
