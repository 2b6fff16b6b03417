# SPDX-License-Identifier: GPL-2.0-only
"""Every counter where a held packet, once released, may have been lost."""

# Where a listener refuses what reached it.
_LISTEN_COUNTERS = ("ListenOverflows", "TCPReqQFullDrop")


def _softnet(column):
    """A column of the per-CPU receive queues; old kernels lack the last."""
    try:
        with open("/proc/self/net/softnet_stat", encoding="utf-8") as file:
            return [int(fields[column], 16) for fields in map(str.split, file)
                    if len(fields) > column]
    except OSError:
        return []


def softnet_waiting():
    """The packets that wait in the receive queue of each CPU."""
    return _softnet(11)


def _listen():
    counts = dict.fromkeys(_LISTEN_COUNTERS, 0)
    try:
        with open("/proc/self/net/netstat", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return counts
    for names, values in zip(lines[::2], lines[1::2]):
        if names.startswith("TcpExt:"):
            table = dict(zip(names.split(), values.split()))
            for name in counts:
                counts[name] = int(table.get(name, 0))
    return counts


def read(lane, netlink):
    """The counters of a lane now: name -> value."""
    counts = {"plug": 0, "softnet": sum(_softnet(1)), **_listen()}
    plug = lane.find_plug(netlink)
    if plug:
        counts["plug"] = plug.drops
    if lane.mode == "ingress":
        counts["ifb"] = sum(link.dropped for link in netlink.links()
                            if link.name == lane.plug_device)
    return counts


def growth(before, after):
    """What was lost since @before was read.  (A counter that was reset with
    its qdisc starts again from 0.)"""
    return {name: max(value - before.get(name, 0), 0)
            for name, value in after.items()}
