# SPDX-License-Identifier: GPL-2.0-only
"""What is wrong with a real server, parts that are missing and all else."""

import re
import sys

from ipvs_mhs_tool import EXIT_OK, EXIT_PROBLEM, ToolError, json_of, quoted

from mhsstat_lib.text import finding, screen

from .options import family_of
from .parts import Fault, parts_of, rp_filter, tunnels_of

_FULL = 1500      # the MTU of clients
_TCP = 20
_HEADER = {4: 20, 6: 40}
_ASK = {4: "ARP", 6: "neighbour"}
# What stands between the outer header and the packet: GRE without options; UDP
# and GUE.
_BETWEEN = {"ipip": 0, "gre": 4, "gue": 8 + 4}


UNSEEN = "real_server: no fault; not known here: firewalls, the MTU of the way, and " \
         "whether the router of the answers is a director, which drops them"


def report(found, as_json=False):
    """Print faults; the exit status of check."""
    found = [*found]
    if as_json:
        sys.stdout.write(json_of({"format": 1, "faults": [
            fault._asdict() for fault in found]}))
    else:
        for fault in found:
            print(finding(fault.severity, fault.text, fault.remedy,
                          screen(sys.stdout)))
        if not found:
            print(UNSEEN, file=sys.stderr)
    return EXIT_PROBLEM if any(f.severity == "error" for f in found) else EXIT_OK


def overhead(set_up):
    """Bytes that the largest of the tunnels adds to a packet."""
    return max(_BETWEEN[tunnel] + _HEADER[outer] for tunnel in set_up.tunnels
               for outer in set_up.outer_families())


def largest_mss(set_up, mtu):
    """Of the segments of which each fits into a packet of @mtu bytes, tunnel and
    all."""
    return mtu - _TCP - max(
        _BETWEEN[tunnel] + _HEADER[outer] + _HEADER[family]
        for tunnel in set_up.tunnels for family, outer in set_up.carried())


OWN_REMEDY = "give the address of the service (--vip, or vip in the file), or " \
             "take this one from the device first"
DIRECTOR = "{} has a service of IPVS on this host: a director must answer ARP for " \
           "it, a server must not"


def _misplaced(set_up, host):
    """Addresses on devices that tell neighbours of them."""
    speaking = host.arp_devices()
    for vip in set_up.vips:
        if host.is_director(vip):
            yield Fault(DIRECTOR.format(vip), "real_server clear, and setup on "
                        "the servers alone", "warning")
        own = host.own(vip)
        if own:
            yield Fault(f"{vip} is this host's own address, on {own}, and no "
                        "virtual address", OWN_REMEDY)
            continue
        full = 128 if family_of(vip) == 6 else 32
        for device, length in host.holders(vip):
            remedy = f"ip address del {vip}/{length} dev {device}"
            if device in speaking:
                yield Fault(f"{vip} is on {device}, where neighbours are told "
                            "of it and come here past the director, until "
                            f"'arping -U {vip}' there renews their entries",
                            remedy)
            elif device == "lo" and length != full:
                yield Fault(f"lo has {vip}/{length}: all addresses of that "
                            "network are this host's own", remedy)


def _way_back(set_up, host):
    """Answers that have no route, or a router that is not there."""
    for vip in set_up.vips:
        route = host.route_from(vip) if host.holders(vip) else {"dev": "lo"}
        if not route:
            yield Fault(f"no default route for what {vip} answers, or an 'ip rule' or "
                        "a blackhole against it: only clients of networks with a "
                        "route hear this server",
                        "ip route add default via the clients' router", "warning")
        elif route["dev"] in host.arp_devices() and \
                not host.is_there(route.get("gateway")):
            yield Fault(f"{route['gateway']} on {route['dev']}, the router of what "
                        f"{vip} answers, answers no {_ASK[family_of(vip)]} requests",
                        "ip route replace default via a router that does")
        for device in host.arp_devices() if route and ":" not in vip else ():
            # many hosts are strict on a device that no client's packet comes by
            if route["dev"] not in ("lo", device) and host.martians() and \
                    rp_filter(host, device) == 1:
                yield Fault(f"strict rp_filter on {device} drops requests: answers "
                            f"leave by {route['dev']}, and rp_filter has dropped "
                            "packets", f"sysctl -w net.ipv4.conf."
                            f"{device.replace('.', '/')}.rp_filter=2", "warning")


def _sizes(set_up, host):
    """Packets that a tunnel makes too large for the device they come by."""
    if not set_up.tunnels:
        return
    links = [link for link in map(host.underlay, set_up.outer_families())
             if link]
    if not links:
        return
    link = min(links, key=lambda link: link["mtu"])
    fits = largest_mss(set_up, link["mtu"])
    remedy = quoted(set_up._replace(mss=fits).command())
    where = f"the MTU {link['mtu']} of {link['ifname']}"
    if set_up.mss and set_up.mss > fits:
        yield Fault(f"the MSS {set_up.mss} does not fit: a tunnel packet is "
                    f"larger than {where}", remedy)
    elif not set_up.mss and link["mtu"] < _FULL + overhead(set_up):
        yield Fault(f"full packets of clients, {_FULL} bytes, do not fit through "
                    f"the tunnel and {where}: where ICMP is lost, uploads hang",
                    remedy, "warning")


def _accepts(socket, vip, protocol, port, devices):
    """Whether a line of ss is a socket that takes this."""
    words = socket.split()
    if words[0] != protocol:
        return False
    address, _, number = words[4].rpartition(":")
    address, _, device = address.partition("%")
    # "*" is both families, "[::]" is IPv6 alone
    wild = ("*", "0.0.0.0") if family_of(vip) == 4 else ("*", "[::]")
    return number == str(port) and (not device or device in devices) and \
        (address in wild or address.strip("[]") == vip)


def leads_on(port, rules):
    """Whether a rule of DNAT has this port, alone, in a set, a range or a map; None: one
    without a port may, or one by a name or a condition."""
    found = False
    # nft breaks the lines of a set
    for line in re.sub(r",\s*\n\s*", ", ", rules).splitlines():
        if not re.search(r'\bdnat\b.* to\b|-j DNAT\b|"DNAT"', line):
            continue
        words = re.search(r"(! --)?\bdports? (?:map )?(\{[^}]*\}|\S+)", line)
        if not words or words[1] or words[2][0] in "!<>@":
            found = None
        elif any(int(low) <= port <= int(high or low) for low, high in re.findall(
                r"\b(\d+)(?:[-:](\d+))?\b", re.sub(r" : [^,}]*", "", words[2]))):
            return True
    return found


def _leads_on(port, host):
    """The same where that is certain."""
    try:
        return leads_on(port, host.rules())
    except ToolError:
        return None


def deaf(set_up, host):
    """Services that do not listen."""
    # packets come by these
    devices = tunnels_of(set_up, host) or set(host.arp_devices())
    for protocol, port in set_up.ports:
        if _leads_on(port, host):
            continue
        sockets = host.sockets().splitlines()
        for vip in set_up.vips:
            if not any(_accepts(line, vip, protocol, port, devices)
                       for line in sockets):
                yield Fault(f"nothing listens on {vip} port {port}/{protocol}",
                            "start the service; if it runs, let it listen on "
                            "this address, or on all, and on this port: by -g and "
                            "-i the port stays that of the service")


def translated(set_up, host):
    """Services whose port a rule leads elsewhere, as that of a container: a proxy that
    listens here, too, gets no packet from outside."""
    for _, port in set_up.ports:
        if _leads_on(port, host):
            yield Fault(f"a rule leads port {port} elsewhere by DNAT",
                        "let the service itself listen on the virtual address; "
                        "docker: --network host")


def faults_of(set_up, host):
    """All of them, in the order in which they are best mended."""
    looks = [part.faults(host) for part in parts_of(set_up, host)]
    looks += [look(set_up, host) for look in (_misplaced, _way_back, _sizes, deaf)]
    # directors behind one device have the same fault
    yield from dict.fromkeys(fault for look in looks for fault in look)
