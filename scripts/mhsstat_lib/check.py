# SPDX-License-Identifier: GPL-2.0-only
"""What makes flows stateful, what keeps packets from a server, and what an operator
should know of a director: each with its cause and its remedy."""

import re
from collections import Counter

from ipvs_mhs_tool import quoted

from . import mistakes
from .address import endpoint, is_udp
from .facts import Link
from .finding import MANY, MHS, Finding, asking, known, named
from .proc import left_ms, name_of
from .rules import no_second_chance
from .stateful import TOTAL, limit_names, reached
from .text import Screen, duration, few, finding

_FEW = 100      # packets that say nothing yet

# What an option asks for is meant; all other kinds are warnings
NOTES = ("persistence", "thresholds", "masquerading", "conntrack", "names",
         "chance-entries", "quic-port", "plain-udp", "firewall", "sync-backup")

KINDS = (*NOTES, *"""
    marks stateless names-taken capped no-memory quic-ids quic-unnamed no-slot
    max-entries no-server settling pin-ms second-chance chance-silent lane-off
    lane-marks lane-conntrack lane-backup lane-btf lane-door lane-generic lane-member
    lane-beside lane-tags lane-vlan route gateway neighbour tunnel-mtu ha-suspend
    no-address no-weight sorry-server no-answer mtu hold-ms timeouts drop-entry
    drop-packet secure-tcp kernel-mh ip-forward own-address few-entries
    slow lost two-owners no-service ops-masquerading""".split())

# bytes that a tunnel adds, by its type, beside the outer IP header
_TUNNEL = {"ipip": 0, "gre": 4, "gue": 12}
_CLIENT_MTU = 1500


def _by_options(facts):
    """What ipvsadm was told."""
    for _, core in known(facts):
        name = core.name
        if core.persistent:
            yield Finding(
                "persistence", name, (), "every flow has an entry, because the "
                "service is persistent (ipvsadm -p)",
                "ipvsadm -E without -p; -b flag-3 instead hashes the client's "
                "address alone, which keeps a client at its server without "
                "entries (on all directors at once)")
        full = [s for s in core.servers if s.limits]
        if full:
            names = tuple(s.name for s in full)
            yield Finding(
                "thresholds", name, names, f"every flow to {named(names)} "
                "has an entry, because a threshold (ipvsadm -x) is counted in "
                "entries (older flows get theirs for a pin time after -x; those "
                "taken over later do not count)" +
                ("; with flag-1 new flows of a full server go to another"
                 if "flag-1" in core.flags else ""),
                "if a hard limit is not needed: " + "; ".join(
                    quoted(s.editing(s.weight, False)) for s in full[:MANY]))
        masq = [s.name for s in core.servers if s.method == "Masq"]
        if masq:
            yield Finding(
                "masquerading", name, tuple(masq), f"every flow to "
                f"{named(masq)} has an entry, because the server is by "
                "masquerading (ipvsadm -m)",
                "a new server by direct routing (-g) or a tunnel (-i), prepared "
                "with 'real_server setup'; then 'mhsstat drain' for the old one")


def _by_marks(facts):
    ours = {name_of(s) for s in facts.services}
    foreign = [f"{name} ({core.scheduler})" for name, core in facts.core.items()
               if name.startswith("FWM ") and name not in ours]
    if foreign and any(not name.startswith("FWM ") for name in ours):
        yield Finding(
            "marks", None, (), f"{', '.join(foreign)} gets no packet to the address "
            "of a service of mhs, which knows only its own services by mark",
            "give the other service the scheduler mhs")


def _by_settings(facts):
    """Sysctls and parameters."""
    if facts.sysctl("conntrack"):
        yield Finding(
            "conntrack", None, (), "conntrack keeps a state for every flow, "
            "because net.ipv4.vs.conntrack is 1",
            "sysctl -w net.ipv4.vs.conntrack=0, unless rules of this host need it: a "
            "state (ct state) or source NAT (masquerade) for flows by -m, DNAT in "
            "front of IPVS, kube-proxy, -m ipvs")
    if facts.sysctl("stateless") == 0:
        yield Finding(
            "stateless", None, (), f"every flow gets an entry, because "
            f"{MHS}stateless is 0", f"sysctl -w {MHS}stateless=1, when "
            "no change to another scheduler is meant")
    for name in facts.names:
        if name in facts.taken:
            yield Finding(
                "names-taken", None, (), f"names= asks for {name}, but the "
                f"kernel's own scheduler has the name: services of {name} are "
                "not mhs",
                f"load ip_vs_mhs before ip_vs_{name} (modprobe -r both, then "
                "modprobe ip_vs_mhs); a scheduler that is built into the kernel "
                "keeps its name")
        else:
            yield Finding(
                "names", None, (), f"services of the scheduler {name} are mhs, "
                "because names= says so", "none, if that is meant; else load "
                "the module without the name")
    if facts.ha_suspend:
        yield Finding(
            "ha-suspend", None, (), "a failover breaks flows of living servers "
            "after another one has died, because keepalived's ha_suspend leaves "
            "servers unchecked on the backup",
            "take ha_suspend out of the file: both directors check all servers")
    short = [name_of(s) for s in facts.services
             if facts.host.short(name_of(s))]
    if short:
        yield Finding(
            "pin-ms", None, (), f"a flow of {', '.join(short[:MANY])} that is "
            f"silent for {duration(facts.host.pin_ms)} may change its server "
            f"after a change of servers, because {MHS}pin_ms is shorter than "
            "the timeout of an idle flow, "
            f"{duration(max(map(facts.host.idle, short)))}",
            f"sysctl -w {MHS}pin_ms=0, which takes the timeout")


def _by_chance(facts):
    """Services that the sysctl second_chance names."""
    ours = {name_of(s): s for s in facts.services}
    places = [name.split()[1] for name in facts.host.second_chance]
    for name, where in zip(facts.host.second_chance, places):
        core = facts.core.get(name)
        without = "sysctl -w {}second_chance='{}'".format(
            MHS, " ".join(word for word in places if word != where))
        if core is None or core.scheduler not in ("mhs", *facts.names):
            others = [f"{other} ({one.scheduler})"
                      for other, one in facts.core.items()
                      if other.split()[1] == where]
            yield Finding(
                "second-chance", None, (), f"{where} is in {MHS}second_chance, "
                "and there is no TCP service of mhs with that address and port" +
                (f", but {', '.join(others)}" if others else ""),
                without + ", unless the service is yet to come")
            continue
        if name not in ours:
            continue
        why, spared = no_second_chance(core)
        if why:
            yield Finding(
                "second-chance", name, (), ("changes of servers have a transition, "
                                            "with entries" if spared else
                                            "a change of servers breaks older flows")
                + f", because {why}, which the second chance is not for", without)
            continue
        silent = ours[name].get("silent_servers")
        if silent:
            yield Finding(
                "chance-silent", name, tuple(silent), "no packets of unknown flows "
                f"come back from {named(silent)}, so changes make entries",
                "'real_server check' there, with --director for the addresses of "
                "this host; let GRE (protocol 47) out there and in here, from the "
                "address that ipvsadm has")
        elif ours[name].get("entries") and facts.sysctl("stateless") != 0 and \
                not any(s.limits for s in core.servers):
            yield Finding(
                "chance-entries", name, (), f"{ours[name]['entries']} flows have an "
                "entry, from before the second chance or from the moment of a "
                "change, and break with this director", "none: they end with their "
                "flows")


def _unnamed(core, port):
    """The servers of a service that no connection ID names."""
    ends = Counter(s.address.packed[-4:] for s in core.servers
                   if s.port == port)
    return [s.name for s in core.servers
            if s.method == "Masq" or s.port != port or
            ends[s.address.packed[-4:]] > 1]


def _by_ids(facts):
    """Whether the servers of QUIC issue connection IDs, and such as name them."""
    for service, core in known(facts):
        name = core.name
        if not service.get("quic_ids"):
            if is_udp(name, facts.host.quic_ports):
                yield Finding(
                    "quic-port", name, (), "the port is taken for that of QUIC: "
                    "with another protocol (OpenVPN, DTLS 1.3) new flows may meet "
                    "a server that has left, while servers change",
                    "if it is not QUIC, load the module with quic_ports=0 and the "
                    "ports that are, or none")
            elif facts.host.plain_udp(core):
                yield Finding(
                    "plain-udp", name, (), "flows have no entry, and change their "
                    "server when theirs is deleted or the hold time is over, because "
                    "the port is none of quic_ports and stay_ports", "none for short "
                    "flows (DNS); QUIC: quic_ports=; others: stay_ports=, for the "
                    "module of all directors")
            continue
        by, no = service["packets_by_id"], service["packets_no_id"]
        if no > by and no > _FEW:
            yield Finding(
                "quic-ids", name, (), f"{no} packets had a connection ID that "
                f"names no server, and {by} one that does, though "
                f"{MHS}quic_ids names the service",
                "'mhsstat lookup --cid' says what an ID names; the servers have "
                "to issue IDs with the last four octets of their own address, "
                "with the same key; the count goes back to 0 with the service "
                "only")
        unnamed = [*dict.fromkeys((*_unnamed(
            core, endpoint(name.split()[1])[1]),
            *(s.name for s in core.servers if s.limits)))]
        if unnamed:
            yield Finding(
                "quic-unnamed", name, tuple(unnamed), "no connection ID names "
                f"{named(unnamed)}, whose QUIC flows go by address and port: by "
                "masquerading, with a threshold, with another port than the "
                "service, or with an address that ends like another's",
                "direct routing or a tunnel, no threshold, the service's port, "
                "and addresses whose last four octets differ")


def _by_counts(facts):
    """What the module counted."""
    for s in facts.services:
        name = name_of(s)
        if not s.get("servers", 1):
            yield Finding("no-server", name, (), "the service has no server, so "
                          "its clients are refused", "ipvsadm -a")
        elif s["state"] == "settling":
            yield Finding(
                "settling", name, (), "packets of older flows are dropped, "
                "because servers still come and the table is not final",
                "mhsstat wait --settled; add all servers by one ipvsadm -R")
        if s.get("servers_without_slot"):
            yield Finding(
                "no-slot", name, (), f"{s['servers_without_slot']} server(s) get "
                "no new flow, because their share of the table is less than a "
                "slot", "a larger weight, or a larger table_size of the module, "
                "on all directors at once")
        if s.get("capped"):
            yield Finding(
                "capped", name, (), f"{s['capped']} entries were not made, "
                "because the service was at its limit: flows of unstable slots "
                "may have broken", f"sysctl -w {reached(s)} to a higher "
                "number; the count goes back to 0 with the service only")
        if s.get("no_memory"):
            yield Finding(
                "no-memory", name, (), f"{s['no_memory']} entries, servers or "
                "carriers could not be made for want of memory",
                "more memory, or a higher net.ipv4.vs.conn_max where the kernel "
                "has it; the count goes back to 0 with the service only")
        for limit in limit_names(s):
            yield from _filled(facts, limit, [s], name)
    yield from _filled(facts, TOTAL, facts.services)


def _filled(facts, limit, services, name=None):
    """Whether a limit for the entries of these services is nearly reached."""
    most = facts.sysctl(limit)
    entries = sum(s.get("entries", 0) for s in services)
    if most is not None and 10 * entries > 9 * most:
        left = max(left_ms(s) or 0 for s in services)
        yield Finding(
            "max-entries", name, (), f"{entries} entries are more than 90 % of "
            f"{MHS}{limit}={most}: flows above it get none",
            f"sysctl -w {MHS}{limit}= a higher number" +
            (f"; the transition ends in {duration(left)}" if left else ""))


def _by_lane(facts):
    """Whether a lane that was asked for is open."""
    doors = {name: link for name, link in facts.links.items() if link.xdp}
    ingress = facts.sysctls.get("ingress")
    if not facts.sysctl("lane"):
        # a program outlives the sysctl when the scheduler is loaded anew
        open_ = ingress or facts.lane_loaded and ", ".join(doors)
        if open_:
            yield Finding(
                "lane-off", None, (), f"the lane forwards nothing, because "
                f"{MHS}lane is 0, though {open_} has its "
                f"{'hook' if ingress else 'program'}",
                f"sysctl -w {MHS}lane=1")
        return
    marks = [name for name in map(name_of, facts.services)
             if name.startswith("FWM ")]
    if marks:
        yield Finding(
            "lane-marks", None, (), f"the lane is closed, because it knows no "
            f"marks and {', '.join(marks[:MANY])} is a service by firewall mark",
            "services by address instead, or no lane in this network namespace")
    if facts.sysctl("conntrack"):
        yield Finding("lane-conntrack", None, (), "the lane is closed, because "
                      "net.ipv4.vs.conntrack is 1",
                      "sysctl -w net.ipv4.vs.conntrack=0")
    if facts.backup:
        yield Finding("lane-backup", None, (), "the lane is closed, because a "
                      "sync daemon runs as backup: each packet may have an entry "
                      "of the master", "ipvsadm --stop-daemon backup, if "
                      "entries need not survive the other director")
    if not ingress and not doors:
        if facts.btf:
            yield Finding(
                "lane-door", None, (), "the lane sees no packet, because no "
                "device has the XDP program or the ingress hook",
                "systemctl start mhs-lane@DEVICE, or "
                f"sysctl -w {MHS}ingress=DEVICE")
        else:
            yield Finding(
                "lane-btf", None, (), "the lane sees no packet: no device has "
                "the ingress hook, and no XDP program can be attached, because "
                "the module has no BTF of this kernel",
                f"sysctl -w {MHS}ingress=DEVICE; or, where the kernel has "
                "/sys/kernel/btf/vmlinux, install dwarves and bpftool and build "
                "the module again")
    # a frame to a service, whatever became of it
    seen = sum(n for name, n in facts.lane.items()
               if name not in ("off", "frame", "service"))
    generic = [name for name, link in doors.items() if link.xdp == "xdpgeneric"]
    if (ingress or doors) and not seen and not generic and sum(
            counted for _, counted in (facts.came or {}).values()) >= mistakes.BEGUN:
        yield Finding(
            "lane-door", None, (), "the lane sees no packet of a service: they come "
            f"by another device than {ingress or ', '.join(doors)}",
            "'tcpdump -eni any' names it; systemctl start mhs-lane@DEVICE, or "
            f"sysctl -w {MHS}ingress=DEVICE")
    for name in generic:
        yield Finding(
            "lane-generic", None, (), f"the lane of {name} forwards nothing, because "
            "the XDP program there runs in generic mode, which is slower than the stack",
            f"a driver with native XDP (xdpdrv), or {MHS}ingress={name} in place of "
            "the program")


def _by_devices(facts):
    """What closes the lane of one device."""
    if not facts.sysctl("lane"):
        return
    programs = [name for name, link in facts.links.items() if link.xdp]
    hooks = [name for name in (facts.sysctls.get("ingress") or "").split()
             if name in facts.links]
    for name in dict.fromkeys(programs + hooks):
        master = facts.links[name].master
        kind = facts.links[master].what.split(" ")[0] \
            if master in facts.links else ""
        nothing = f"the lane of {name} forwards nothing, because "
        if master:
            remedy = f"{MHS}ingress={master} in place of {name}"
            if kind == "bond" and name in programs:
                remedy = f"the program on {master} in place of its members"
            elif kind == "vrf":
                remedy = "no lane in a VRF"
            yield Finding("lane-member", None, (),
                          f"{nothing}it is a member of {master}", remedy)
        for above, link in facts.links.items():
            if link.lower == name and re.match(
                    "macv(lan|tap) mode (passthru|source)", link.what):
                yield Finding("lane-beside", None, (),
                              f"{nothing}{above} takes the frames: a macvlan in "
                              "mode passthru or source", "mode bridge")
    for name in programs:
        cards = [card for card, link in facts.links.items()
                 if link.strips and name in (card, link.master)]
        if cards:
            yield Finding("lane-tags", None, (), f"the lane of {name} forwards "
                          f"nothing, because VLAN tags are hidden from the "
                          f"program by {', '.join(cards)}",
                          f"ethtool -K {cards[0]} rxvlan off "
                          "rx-vlan-stag-hw-parse off")
    out = {route.device for route in facts.routes.values() if route} \
        if programs else ()
    for name in sorted(out):
        link = facts.links.get(name, Link(0, None))
        lower = facts.links.get(link.lower, Link(0, None))
        if link.what.startswith("vlan ") and (
                lower.what.startswith("vlan ") or "802.1ad" in link.what or
                "egress-qos-map" in link.what):
            yield Finding("lane-vlan", None, (), "the XDP lane leaves packets to "
                          f"servers by {name} to the stack, because it knows "
                          "only one tag, of 802.1Q and without egress-qos-map",
                          f"such a VLAN, or {MHS}ingress= in place of the "
                          "program")


def _inner_mtu(server, route, facts):
    """What fits into the tunnel to a server; None without a tunnel."""
    if server.method != "Tunnel" or route.device not in facts.links:
        return None
    outer = 20 if server.address.version == 4 else 40
    return (route.mtu or facts.links[route.device].mtu) - outer - \
        _TUNNEL.get(server.tunnel, 0)


def _by_network(facts):
    """What this host sees of the way to a server."""
    seen = {}       # each address once
    for _, core in known(facts):
        for server in core.servers:
            seen.setdefault((server.host, server.method, server.tunnel),
                            (core.name, server))
    for (address, method, _), (name, server) in seen.items():
        route = facts.routes.get(address)
        if route is None or route.type in ("unreachable", "blackhole",
                                           "prohibit"):
            yield Finding("route", name, (server.name,), f"server {server.name} "
                          "gets no packet, because this host has no route to "
                          f"{address}", f"ip route replace {address} via "
                          "GATEWAY dev DEVICE")
            continue
        if route.type == "local":
            continue
        hop = route.gateway or address
        if facts.neighbours.get((hop, route.device)) in ("FAILED",
                                                         "INCOMPLETE"):
            yield Finding(
                "neighbour", name, (server.name,), f"server {server.name} gets "
                f"no packet, because {hop} does not answer ARP or neighbour "
                f"discovery on {route.device}",
                "is the host up, and in that network? ip neigh show " + hop)
        if method == "Route" and route.gateway:
            yield Finding(
                "gateway", name, (server.name,), f"server {server.name} is by "
                f"direct routing, but behind the router {route.gateway}, which "
                "would send the packets back or drop them",
                "a server in the same network, or a tunnel: 'real_server setup "
                "--tunnel ipip' with the other options of the server, then " +
                quoted("-i" if word == "-g" else word for word in
                       server.editing(server.weight)))
        inner = _inner_mtu(server, route, facts)
        if inner is not None and inner < _CLIENT_MTU:
            fits = inner - 8 + _TUNNEL.get(server.tunnel, 0)
            yield Finding(
                "tunnel-mtu", name, (server.name,), f"packets of more than "
                f"{inner} bytes do not fit into the tunnel to {server.name}: "
                "clients learn that by ICMP only, and where that is filtered "
                "their uploads hang",
                f"an MTU of {_CLIENT_MTU - inner} bytes more on the way there, or "
                f"--mss {inner - 40} (IPv6: {inner - 60}) beside the other "
                "options of 'real_server setup' on the server, which this host "
                "cannot see; a smaller MTU on the way it sees neither: 'ping -M do -s "
                f"{fits} {address}' must be answered; where it is not, the MSS is the "
                f"largest size that is, less {fits - inner + 40}")


def findings(facts, ignored=()):
    """All of them, by cause."""
    parts = (_by_options, _by_marks, _by_settings, _by_chance, _by_ids, _by_counts,
             _by_lane, _by_devices, _by_network, *mistakes.PARTS)
    return [one for part in parts for one in part(facts) if one.kind not in ignored]


def unseen(facts):
    """{server that answers its clients past this host: what asks it}"""
    return {s.name: asking(core, s) for _, core in known(facts) for s in core.servers
            if s.method in ("Route", "Tunnel") and getattr(
                facts.routes.get(s.host), "type", None) != "local"}


def unasked(facts):
    """'ADDRESS on DEVICE' of the next hops that nobody has asked for their
    hardware address: whether they answer is not known."""
    hops = {(route.gateway or address, route.device)
            for address, route in facts.routes.items()
            if route and not route.type and facts.links.get(
                route.device, Link(0, None)).arp}
    return sorted(f"{hop} on {device}" for hop, device in hops
                  if (hop, device) not in facts.neighbours)


def severity(found):
    return "note" if found.kind in NOTES else "warning"


def render(found, room=Screen()):
    """A line for each; warnings come first where not all have room."""
    if room.rows:
        found = sorted(found, key=lambda f: severity(f) == "note")
    return "".join(line + "\n" for line in few((
        finding(severity(f), (f.service + ": " if f.service else "") + f.text,
                f.remedy, room, f.kind) for f in found), room.rows,
        len(found), "finding(s)"))
