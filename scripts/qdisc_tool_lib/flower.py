# SPDX-License-Identifier: GPL-2.0-only
"""The filters of a hold: as words of tc(8), for people, and the same words as
the messages that a hold sends, which setup keeps with the gate."""

import ipaddress
import struct

from .gate import PROTOCOLS
from .netlink import TC_H_INGRESS, attribute, filter_message, nested

# Types of ICMPv6: is this address yours, it is mine.
_NEIGHBOUR_MESSAGES = ("135", "136")

_ETHERTYPES = {"all": 0x0003, "ip": 0x0800, "ipv6": 0x86DD, "802.1q": 0x8100,
               "ipv4": 0x0800}
_IP_PROTOCOLS = {"tcp": 6, "udp": 17, "icmpv6": 58}
# TCA_FLOWER_*; of a pair the second is the mask, or the end of a range.
_ACT, _ETH_TYPE, _IP_PROTO, _FLAGS, _VLAN_ETH_TYPE = 3, 8, 9, 22, 25
_ADDRESS = {("src_ip", 4): (10, 11), ("dst_ip", 4): (12, 13),
            ("src_ip", 6): (14, 15), ("dst_ip", 6): (16, 17)}
_DST_PORT = {"tcp": 19, "udp": 21}
_ICMPV6_TYPE, _TCP_FLAGS, _DST_PORT_RANGE = (55, 56), (71, 72), (89, 90)
_SKIP_HW = 1
_ACT_KIND, _ACT_OPTIONS, _ACT_PARMS = 1, 2, 2
_ACT_CONTINUE, _ACT_OK, _ACT_STOLEN, _EGRESS_REDIRECT = -1, 0, 4, 1


def _families(protocol):
    """{family: the flower keys that tell it within a protocol}"""
    if protocol == "802.1q":
        return {family: ["vlan_ethtype", f"ipv{family}"] for family in (4, 6)}
    return {{"ip": 4, "ipv6": 6}[protocol]: []}


def _targets(gate, protocol):
    """The flower keys of everything a gate holds, for one protocol."""
    return _keys_of(gate, protocol, (
        ("tcp", "udp") if gate.ports else (None,))
        if gate.all_packets else ("tcp",))


def _udp(gate, protocol):
    """The same of what it would hold with --all."""
    return _keys_of(gate, protocol, ("udp",)) \
        if gate.ports and not gate.all_packets else []


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
        not gate.addresses or any(":" in address
                                  for address in gate.addresses))


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
    """(preference, protocol, keys, verdict) of each filter.  The first one
    counts what comes by, which proves that packets meet the others; the last
    ones what is not held and perhaps should be."""
    yield gate.preference, "all", [], "count"
    preference = gate.preference + 1
    for targets, verdict in ((_exclusions, "leave"), (_targets, "hold"),
                             (_udp, "count")):
        for offset, protocol in enumerate(PROTOCOLS):
            tagged = protocol == "802.1q" and not gate.vlan
            for keys in targets(gate, protocol):
                yield (preference + offset, protocol, keys,
                       "count" if tagged and verdict == "hold" else verdict)
        preference += len(PROTOCOLS)


def _tc(verb, gate, preference):
    return ["tc", "filter", verb, "dev", gate.device, "ingress", "pref",
            str(preference)]


def commands(gate):
    """The filters as tc commands."""
    verdicts = {"count": "action continue", "leave": "action pass", "hold":
                f"action mirred egress redirect dev {gate.plug_device}"}
    return [[*_tc("add", gate, preference), "protocol", protocol,
             "flower", "skip_hw", *keys, *verdicts[verdict].split()]
            for preference, protocol, keys, verdict in _filters(gate)]


def removal_commands(gate):
    """The removal of what commands() made."""
    return [_tc("del", gate, preference) for preference in
            sorted({preference for preference, *_ in _filters(gate)})]


def messages(gate):
    """The filters as messages for Netlink.add_filter()."""
    return [filter_message(
        gate.ifindex, TC_H_INGRESS, preference, _ETHERTYPES[protocol],
        "flower", [attribute(_FLAGS, struct.pack("=I", _SKIP_HW)),
                   *([] if protocol == "all" else [attribute(
                       _ETH_TYPE, struct.pack("!H", _ETHERTYPES[protocol]))]),
                   *_keys(keys), _verdict(gate, verdict)])
            for preference, protocol, keys, verdict in _filters(gate)]


def _keys(words):
    """The attributes that the keys of a filter stand for."""
    keys = dict(zip(words[::2], words[1::2]))
    for key, value in keys.items():
        if key == "vlan_ethtype":
            yield attribute(_VLAN_ETH_TYPE,
                            struct.pack("!H", _ETHERTYPES[value]))
        elif key == "ip_proto":
            yield attribute(_IP_PROTO, bytes([_IP_PROTOCOLS[value]]))
        elif key in ("src_ip", "dst_ip"):
            network = ipaddress.ip_network(value)
            yield from _pair(_ADDRESS[key, network.version],
                             network.network_address.packed,
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


def _verdict(gate, verdict):
    # struct tc_gact is what struct tc_mirred begins with.
    kind, code, rest = {
        "count": ("gact", _ACT_CONTINUE, b""),
        "leave": ("gact", _ACT_OK, b""),
        "hold": ("mirred", _ACT_STOLEN, struct.pack(
            "=iI", _EGRESS_REDIRECT, gate.plug_ifindex))}[verdict]
    return nested(_ACT, nested(
        1, attribute(_ACT_KIND, kind.encode() + b"\0"),
        nested(_ACT_OPTIONS, attribute(_ACT_PARMS, struct.pack(
            "=IIiII", 0, 0, code, 0, 0) + rest))))
