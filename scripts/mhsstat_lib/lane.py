# SPDX-License-Identifier: GPL-2.0-only
"""The lane before the IP stack: /proc/net/ip_vs_mhs_lane, a line for each thing
that became of a frame, its name and a number.

The first name is Forwarded.  All others are reasons for which the stack got the
frame.  Newer modules may have reasons that are not known here.
"""

from ipvs_mhs_tool import ToolError

from .snapshot import NotThere, read_text

PROC_LANE = "/proc/net/ip_vs_mhs_lane"
FORWARDED = "forwarded"

# reason: what it means, and what can be done about it
MEANINGS = {
    "off": "net.ipv4.vs.mhs.lane is 0",
    "mark": "mhs has a service by firewall mark",
    "conntrack": "net.ipv4.vs.conntrack is 1: set it to 0",
    "backup": "this director is the backup of a sync daemon",
    "frame": "not to this device, or no plain TCP or UDP: fragment, IP "
             "options, ARP, tag of a VLAN without a device",
    "service": "to no service of mhs",
    "address": "source invalid, or virtual address not local",
    "entry": "the flow has a connection entry",
    "decision": "a new flow of an unstable slot, which gets an entry; or the "
                "service settles; or no server",
    "method": "server by masquerading, GUE or GRE",
    "route": "no route to the server is cached yet",
    "neighbour": "the next hop does not answer, or not yet, or the server is "
                 "on this host",
    "mtu": "too long for the path to the server",
    "device": "the device strips VLAN tags (ethtool -K DEVICE rxvlan off), or "
              "the program is not that of the bond, or the output device cannot "
              "send frames of the lane: use one arm, or attach a program there, "
              "too",
}


def parse(text, where=PROC_LANE):
    """{name: number} in the order of the file."""
    counts = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) != 2 or not (words[1].isascii() and words[1].isdigit()):
            raise ToolError(f"{where}: line {number} is no name and number: "
                            f"{line!r}")
        counts[words[0].lower()] = int(words[1])
    return counts


def read():
    """What the kernel says; None if the module is too old to have a lane."""
    try:
        return parse(read_text(PROC_LANE))
    except NotThere:
        return None


def reasons(counts):
    """(reason, number) of what went up, also of those with no frame."""
    return [(name, n) for name, n in counts.items() if name != FORWARDED]


def show(counts):
    """Lines for people; none if no lane has seen a frame."""
    if not counts or not any(counts.values()):
        return []
    up = [(name, n) for name, n in reasons(counts) if n]
    up.sort(key=lambda reason: -reason[1])
    width = max((len(str(n)) for _, n in up), default=0)
    lines = [f"lane: forwarded {counts.get(FORWARDED, 0)}, "
             f"left to the stack {sum(n for _, n in up)}"
             + (":" if up else "")]
    for name, n in up:
        meaning = MEANINGS.get(name)
        lines.append(f"  {name:<9}  {n:>{width}}"
                     + (f"  ({meaning})" if meaning else ""))
    return lines
