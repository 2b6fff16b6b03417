# SPDX-License-Identifier: GPL-2.0-only
"""The commands that make and remove a lane.

Nothing here runs by being built, so --dry-run prints what would be run.
"""

import os

from .lane import PLUG_HANDLE, PRIO_HANDLE, REST_CLASS, REST_HANDLE
from .netlink import TC_H_ROOT, handle_text
from .plug import OPEN_BYTES, OPEN_RATE, SHUT_BYTES, SHUT_RATE

# The rest of the traffic went through no queue at all before, so nothing may
# ever be dropped from the one it gets: as much as 100 Gbit/s in 10 ms.
_REST_LIMIT_PACKETS = 100_000


def _plug(lane, verb, plug, tbf):
    """A command for the plug, by tc's words for either kind."""
    return ["tc", "qdisc", verb, "dev", lane.plug_device,
            *(["root"] if lane.plug_parent == TC_H_ROOT
              else ["parent", handle_text(lane.plug_parent)]),
            "handle", handle_text(PLUG_HANDLE), lane.plug_kind,
            *(plug.split() if lane.plug_kind == "plug" else
              f"{tbf} limit {lane.limit_bytes + SHUT_BYTES}".split())]


def shut_command(lane):
    """(In tbf it leaves what plug.py says.)"""
    return _plug(lane, "change", "block",
                 f"rate {SHUT_RATE}bps burst {SHUT_BYTES}")


def open_command(lane):
    return _plug(lane, "change", "release_indefinite",
                 f"rate {OPEN_RATE}bps burst {OPEN_BYTES}")


def plug_commands(lane):
    """The plug gets its limit as it is made (without one it drops everything)
    and is opened before anything can lead to it (a new plug is shut)."""
    return [_plug(lane, "add", f"limit {lane.limit_bytes}",
                  f"rate {OPEN_RATE}bps burst {OPEN_BYTES}"),
            open_command(lane)]


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
                # as the largest packet of tbf's, see plug.py
                ["ip", "link", "set", ifb, "mtu", "65535"],
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
    if lane.mode == "egress":
        return []
    return [["ip", "link", "set", lane.plug_device, "up"],
            *([["tc", "qdisc", "add", "dev", lane.device, "clsact"]]
              if lane.own_clsact else [])]


def clear_commands(lane):
    """The way back, in an order that loses nothing: what leads to the plug,
    then (the plug being open and empty) the plug."""
    if lane.mode == "egress":
        return [["tc", "qdisc", "del", "dev", lane.device, "root",
                 "handle", handle_text(PRIO_HANDLE)]]
    return [*([["tc", "qdisc", "del", "dev", lane.device, "clsact"]]
              if lane.own_clsact else []),
            ["ip", "link", "del", lane.plug_device]]
