# SPDX-License-Identifier: GPL-2.0-only
"""The commands that make, use and remove a lane: tc, ip, nft, iptables.

Nothing here runs by being built, so --dry-run prints what would be run.
"""

import ipaddress
import os

from .errors import ToolError
from .lane import (PLUG_CLASS, PLUG_HANDLE, PRIO_HANDLE, PROTOCOLS,
                   REST_CLASS, REST_HANDLE)
from .netlink import TC_H_ROOT, handle_text
from .system import run, succeeds

# The rest of the traffic went through no queue at all before, so nothing may
# ever be dropped from the one it gets: as much as 100 Gbit/s in 10 ms.
_REST_LIMIT_PACKETS = 100_000

# What tc, libnl and the kernel's own error say where there is no sch_plug.
_UNKNOWN_KIND = ("kind is unknown", "Object not found", "No such file")
_NO_PLUG = ("this kernel has no plug qdisc (CONFIG_NET_SCH_PLUG): install its "
            "extra modules, for example kernel-modules-extra or a kernel that "
            "is not a 'cloud' one")


# Types of ICMPv6: is this address yours, it is mine.
NEIGHBOUR_MESSAGES = ("135", "136")


def _tc_plug(lane, verb, *action):
    return ["tc", "qdisc", verb, "dev", lane.plug_device,
            *(["root"] if lane.plug_parent == TC_H_ROOT
              else ["parent", handle_text(lane.plug_parent)]),
            "handle", handle_text(PLUG_HANDLE), "plug", *map(str, action)]


def _libnl_plug(lane, verb, *action):
    return ["nl-qdisc-add", *(["--update"] if verb == "change" else []),
            f"--dev={lane.plug_device}",
            "--parent=" + ("root" if lane.plug_parent == TC_H_ROOT
                           else handle_text(lane.plug_parent)),
            f"--id={handle_text(PLUG_HANDLE)}", "plug",
            *{"limit": ("--limit=" + str(action[-1]),),
              "block": ("--buffer",),
              "release_indefinite": ("--release-indefinite",)}[action[0]]]


def plug_command(lane, verb, *action):
    """The command that adds or changes a lane's plug."""
    make = _libnl_plug if lane.driver == "libnl" else _tc_plug
    return make(lane, verb, *action)


def _ports(lane):
    return lane.ports or [None]


def _flower_families(protocol):
    """{family: the flower keys that tell it within a protocol}"""
    if protocol == "802.1q":
        return {family: ["vlan_ethtype", f"ipv{family}"] for family in (4, 6)}
    return {{"ip": 4, "ipv6": 6}[protocol]: []}


def _flower_targets(lane, protocol):
    """The flower keys of everything a lane holds, for one protocol."""
    transports = (("tcp", "udp") if lane.ports else (None,)) \
        if lane.all_packets else ("tcp",)
    for family, kind in _flower_families(protocol).items():
        addresses = [address for address in lane.addresses
                     if ipaddress.ip_network(address).version == family]
        if lane.addresses and not addresses:
            continue
        for address in addresses or [None]:
            for port in _ports(lane):
                for transport in transports:
                    yield [*kind,
                           *(["ip_proto", transport] if transport else []),
                           *(["dst_ip", address] if address else []),
                           *(["dst_port", port] if port else []),
                           *([] if lane.all_packets
                             # SYN alone among FIN, SYN, RST and ACK: a SYN
                             # may carry ECN bits, a SYN-ACK is an answer.
                             else ["tcp_flags", "0x2/0x17"])]


def _neighbours_pass(lane):
    """Whether a lane would hold neighbour discovery: a neighbour that is not
    answered for three seconds drops what it has for us."""
    return lane.all_packets and not lane.ports and any(
        family == 6 for family, _ in _rule_matches(lane))


def _flower_exclusions(lane, protocol):
    families = _flower_families(protocol)
    if 6 in families and _neighbours_pass(lane):
        for message in NEIGHBOUR_MESSAGES:
            yield [*families[6], "ip_proto", "icmpv6", "type", message]
    for address in lane.exclude:
        family = ipaddress.ip_network(address).version
        if family in families:
            yield [*families[family], "src_ip", address]


def filter_commands(lane):
    """The filters of a hold, as tc commands."""
    if lane.mode == "ingress":
        where = ["ingress"]
        hold = ["action", "mirred", "egress", "redirect",
                "dev", lane.plug_device]
        leave = ["action", "pass"]
    else:
        where = ["parent", handle_text(PRIO_HANDLE)]
        hold = ["classid", handle_text(PLUG_CLASS)]
        leave = ["classid", handle_text(REST_CLASS)]
    protocols = PROTOCOLS if lane.vlan else PROTOCOLS[:2]
    preference = lane.preference
    commands = []
    for targets, verdict in ((_flower_exclusions, leave),
                             (_flower_targets, hold)):
        for offset, protocol in enumerate(protocols):
            for keys in targets(lane, protocol):
                commands.append(
                    ["tc", "filter", "add", "dev", lane.device, *where,
                     "pref", str(preference + offset), "protocol", protocol,
                     "flower", "skip_hw", *keys, *verdict])
        preference += len(PROTOCOLS)
    return commands


def unfilter_commands(lane):
    """The removal of what filter_commands() made."""
    where = (["ingress"] if lane.mode == "ingress"
             else ["parent", handle_text(PRIO_HANDLE)])
    preferences = sorted({command[command.index("pref") + 1]
                          for command in filter_commands(lane)}, key=int)
    return [["tc", "filter", "del", "dev", lane.device, *where,
             "pref", preference] for preference in preferences]


def _rule_name(lane):
    return f"qdisc_tool_{lane.device}"


def _rule_matches(lane):
    """(family, address) pairs a rule set has to match; None for any."""
    if not lane.addresses:
        return [(4, None), (6, None)]
    return [(ipaddress.ip_network(address).version, address)
            for address in lane.addresses]


def nft_commands(lane):
    """A table of our own: deleting it takes every trace away."""
    table = ["inet", _rule_name(lane)]
    # Priority 150 is after every mangling, and in this hook a packet is not
    # routed again whatever changes in it.
    commands = [["nft", "add", "table", *table],
                ["nft", "add", "chain", *table, "out",
                 "{ type filter hook postrouting priority 150 ; }"]]
    rule = ["nft", "add", "rule", *table, "out",
            "oifname", f'"{lane.device}"']
    for address in lane.exclude:
        family = "ip6" if ":" in address else "ip"
        commands.append([*rule, family, "saddr", address, "return"])
    if _neighbours_pass(lane):
        commands.append([*rule, "icmpv6", "type",
                         "{ " + ", ".join(NEIGHBOUR_MESSAGES) + " }",
                         "return"])
    ports = (["th" if lane.all_packets else "tcp", "dport",
              "{ " + ", ".join(lane.ports) + " }"] if lane.ports else [])
    flags = [] if lane.all_packets else [
        "tcp", "flags", "&", "(fin|syn|rst|ack)", "==", "syn"]
    for family, address in _rule_matches(lane):
        target = ([("ip6" if family == 6 else "ip"), "daddr", address]
                  if address else
                  ["meta", "nfproto", f"ipv{family}"])
        protocols = ["meta", "l4proto", "{ tcp, udp }"] \
            if lane.all_packets and lane.ports else []
        commands.append([*rule, *target, *protocols, *flags, *ports,
                         "meta", "priority", "set", handle_text(PLUG_CLASS)])
    return commands


def iptables_commands(lane):
    """A chain of our own in mangle, in both families."""
    chain = _rule_name(lane)
    commands = []
    for tool, family in (("iptables", 4), ("ip6tables", 6)):
        table = [tool, "-w", "-t", "mangle"]
        matches = [address for version, address in _rule_matches(lane)
                   if version == family]
        if not matches:
            continue
        commands.append([*table, "-N", chain])
        for address in lane.exclude:
            if ipaddress.ip_network(address).version == family:
                commands.append([*table, "-A", chain, "-s", address,
                                 "-j", "RETURN"])
        if family == 6 and _neighbours_pass(lane):
            commands += [[*table, "-A", chain, "-p", "icmpv6",
                          "--icmpv6-type", message, "-j", "RETURN"]
                         for message in NEIGHBOUR_MESSAGES]
        transports = (("tcp", "udp") if lane.ports else (None,)) \
            if lane.all_packets else ("tcp",)
        for address in matches:
            for transport in transports:
                commands.append([
                    *table, "-A", chain,
                    *(["-d", address] if address else []),
                    *(["-p", transport] if transport else []),
                    *([] if lane.all_packets else
                      ["--tcp-flags", "FIN,SYN,RST,ACK", "SYN"]),
                    *(["-m", "multiport", "--dports",
                       ",".join(lane.ports).replace("-", ":")]
                      if lane.ports else []),
                    "-j", "CLASSIFY", "--set-class",
                    handle_text(PLUG_CLASS)])
        commands.append([*table, "-A", "POSTROUTING", "-o", lane.device,
                         "-j", chain])
    return commands


def remove_rules_commands(lane):
    """Commands that take a rule set away; each may fail.  A setup that was
    killed does not say which it chose."""
    if lane.gated or lane.mode == "ingress":
        return []
    commands = []
    if lane.classifier in ("nft", "auto"):
        commands.append(["nft", "delete", "table", "inet", _rule_name(lane)])
    if lane.classifier in ("iptables", "auto"):
        for tool in ("iptables", "ip6tables"):
            table = [tool, "-w", "-t", "mangle"]
            commands += [[*table, "-D", "POSTROUTING", "-o", lane.device,
                          "-j", _rule_name(lane)],
                         [*table, "-F", _rule_name(lane)],
                         [*table, "-X", _rule_name(lane)]]
    return commands


def plug_commands(lane):
    """The plug gets its limit as it is made (without one it drops everything)
    and is opened before anything can lead to it (a new plug is shut)."""
    return [plug_command(lane, "add", "limit", lane.limit_bytes),
            plug_command(lane, "change", "release_indefinite")]


def before_plug_commands(lane):
    """What setup runs before the plug can be added."""
    if lane.mode == "ingress":
        ifb = lane.plug_device
        # Asked for by name, the module makes two devices that nobody wants.
        return [*([] if os.path.exists("/sys/module/ifb") else
                  [["modprobe", "ifb", "numifbs=0"]]),
                ["ip", "link", "add", ifb, "type", "ifb"],
                ["ip", "link", "set", ifb, "alias",
                 f"qdisc_tool for {lane.device}"],
                ["ip", "link", "set", ifb, "addrgenmode", "none"]]
    # Everything but the plug in one band: traffic that was in no queue must
    # not begin to overtake itself by its type of service.
    return [["tc", "qdisc", "add", "dev", lane.device, "root",
             "handle", handle_text(PRIO_HANDLE), "prio", "bands", "2",
             "priomap", *["0"] * 16],
            ["tc", "qdisc", "add", "dev", lane.device,
             "parent", handle_text(REST_CLASS),
             "handle", handle_text(REST_HANDLE),
             "pfifo", "limit", str(_REST_LIMIT_PACKETS)]]


def after_plug_commands(lane):
    """What setup runs once the plug is there and open."""
    if lane.mode == "ingress":
        commands = [["ip", "link", "set", lane.plug_device, "up"]]
        if lane.own_clsact:
            commands.append(["tc", "qdisc", "add", "dev", lane.device,
                             "clsact"])
        return commands
    return {"flower": list, "nft": lambda: nft_commands(lane),
            "iptables": lambda: iptables_commands(lane)}[lane.classifier]()


def clear_commands(lane):
    """The way back, in an order that loses nothing: what leads to the plug,
    then (the plug being open and empty) the plug."""
    commands = remove_rules_commands(lane)
    if lane.mode == "ingress":
        if lane.own_clsact:
            commands.append(["tc", "qdisc", "del", "dev", lane.device,
                             "clsact"])
        commands.append(["ip", "link", "del", lane.plug_device])
    else:
        commands.append(["tc", "qdisc", "del", "dev", lane.device, "root",
                         "handle", handle_text(PRIO_HANDLE)])
    return commands


def tc_knows_plug():
    """Whether tc can drive a plug: its help text says so."""
    import subprocess
    try:
        done = subprocess.run(["tc", "qdisc", "add", "plug", "help"],
                              capture_output=True, text=True, check=False,
                              timeout=20)
    except OSError:
        return False
    return "release_indefinite" in done.stdout + done.stderr


def choose_driver():
    """Who can create the plug: tc, libnl, or this program itself."""
    if tc_knows_plug():
        return "tc"
    if succeeds(["nl-qdisc-add", "--dev=lo", "--parent=root", "plug",
                 "--help"]):
        return "libnl"
    return "netlink"


def add_plug(lane, netlink):
    """Create an open plug with whatever drives plugs here."""
    try:
        if lane.driver == "netlink":
            netlink.plug(lane.plug_ifindex, lane.plug_parent, PLUG_HANDLE,
                         "limit", lane.limit_bytes, create=True)
            lane.tell_plug(netlink, "release_indefinite")
        else:
            for command in plug_commands(lane):
                run(command)
    except (ToolError, OSError) as error:
        if any(words in str(error) for words in _UNKNOWN_KIND):
            raise ToolError(_NO_PLUG) from error
        raise
