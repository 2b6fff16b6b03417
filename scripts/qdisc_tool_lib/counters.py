# SPDX-License-Identifier: GPL-2.0-only
"""Every counter where a held packet, once released, may have been lost."""

import os

# Where a listener refuses what reached it.
_LISTEN_COUNTERS = ("ListenOverflows", "TCPReqQFullDrop")


def _lines(path):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return []                  # a container without it
    try:
        data = b""
        while chunk := os.read(fd, 1 << 15):
            data += chunk
    finally:
        os.close(fd)
    return data.decode().splitlines()


def _softnet(column):
    """A column of the per-CPU receive queues; old kernels lack the last."""
    rows = map(str.split, _lines("/proc/self/net/softnet_stat"))
    return [int(row[column], 16) for row in rows if len(row) > column]


def softnet_waiting():
    """The packets that wait in the receive queue of each CPU."""
    return _softnet(11)


def _listen():
    lines = [line.split() for line in _lines("/proc/self/net/netstat")
             if line.startswith("TcpExt:")]
    counts = dict(zip(*lines)) if lines else {}
    return {name: int(counts.get(name, 0)) for name in _LISTEN_COUNTERS}


def read(lane, netlink, plug):
    """The counters of a lane now, with its @plug: name -> value."""
    counts = {"plug": plug.drops if plug else 0, "softnet": sum(_softnet(1)),
              **_listen()}
    if lane.mode == "ingress":
        ifb = netlink.link(lane.plug_device)
        counts["ifb"] = ifb.dropped if ifb else 0
    return counts


def growth(before, after):
    """What was lost since @before was read.  (A counter that was reset with
    its qdisc starts again from 0.)"""
    return {name: max(value - before.get(name, 0), 0)
            for name, value in after.items()}
