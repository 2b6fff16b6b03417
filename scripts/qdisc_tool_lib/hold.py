# SPDX-License-Identifier: GPL-2.0-only
"""A hold: lead new connections to the plug and shut it; later the reverse.

It begins and ends with one netlink message each.  All that can be done before
the one is, and all that can wait comes after the other.  Ending a hold needs
no process, no file and no memory to speak of: two kinds of message on a socket
that has been open since before it began.
"""

import errno
import time

from .errors import ToolError
from .lane import PRIO_HANDLE
from .listeners import Listeners
from .netlink import preference_of
from .plug import Plug

# What a message is answered with where there is no plug, or no right to it.
_NO_PLUG = (errno.ENODEV, errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP,
            errno.EPERM)
_TRIES = 5

# A slow machine needs a second for a thousand connections.
_DRAIN_S = 5.0
_DRAIN_EACH_S = 0.001
_DRAIN_POLL_S = 0.001
# So many may be on their way between a device's counter and its filters.
_FEW = 10
# What has left the queue needs a moment to be counted at the listener.
_SETTLE_COUNTERS_S = 0.02
# A local sender whose SYN was held for more than a second looks twice a second
# whether it has left, and then sends it again.
_LOCAL_RETRY_S = 0.6


def open_plug(plug):
    """Open it, whatever lives; return when that was."""
    for left in reversed(range(_TRIES)):
        try:
            plug.open()
            break
        except OSError as error:
            if not left or error.errno in _NO_PLUG:
                raise
            time.sleep(_DRAIN_POLL_S)
    return time.monotonic()


def _drain(plug):
    """Wait until an open plug has run empty.  Only then may the filters go, or
    packets overtake others."""
    give_up = time.monotonic() + _DRAIN_S
    while time.monotonic() < give_up:
        found = plug.lane.find_plug(plug.netlink)
        if found is None or not found.qlen:
            break
        time.sleep(_DRAIN_POLL_S)


def release(plug):
    """End any hold of a lane, whoever began it.  Safe to repeat."""
    try:
        open_plug(plug)
        _drain(plug)
    finally:                       # filters that lead nowhere would drop
        remove_filters(plug.lane, plug.netlink)


def remove_filters(lane, netlink):
    for preference in {preference_of(message) for message in lane.messages()}:
        try:
            netlink.delete_filters(lane.ifindex, lane.filter_parent,
                                   preference)
        except OSError:
            pass                   # none of that number


def add_filters(lane, netlink):
    """Lead what the lane holds to the plug."""
    for message in lane.messages():
        netlink.add_filter(message)


def _lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []                  # a container without it


def _softnet(column):
    """A column of the per-CPU receive queues; old kernels lack the last."""
    rows = map(str.split, _lines("/proc/self/net/softnet_stat"))
    return [int(row[column], 16) for row in rows if len(row) > column]


def _softnet_waiting():
    """The packets that wait in the receive queue of each CPU."""
    return _softnet(11)


def _overflows():
    """Of all listeners of this namespace."""
    lines = [line.split() for line in _lines("/proc/self/net/netstat")
             if line.startswith("TcpExt:")]
    counts = dict(zip(*lines)) if lines else {}
    return sum(int(counts.get(name, 0))
               for name in ("ListenOverflows", "TCPReqQFullDrop"))


def _counters(lane, netlink, plug):
    """Every counter where a packet may be lost that a lane has let go, with
    the @plug of it, but those of its listeners: name -> value."""
    counts = {"plug": plug.drops if plug else 0, "softnet": sum(_softnet(1))}
    if lane.mode == "ingress":
        ifb = netlink.link(lane.plug_device)
        counts["ifb"] = ifb.dropped if ifb else 0
    return counts


def _growth(before, after):
    """What was lost since @before was read.  (A counter that was reset with
    its qdisc starts again from 0.)"""
    return {name: max(value - before.get(name, 0), 0)
            for name, value in after.items()}


class Hold:
    """One hold of one lane, from begin() to end().

    Should the process die in the middle of begin(), the filters lead through
    a plug that is open, until the next hold or a release removes them.
    """

    def __init__(self, lane, backlog):
        self._lane = lane
        self._backlog = backlog
        self._plug = Plug(lane)
        self._netlink = self._plug.netlink
        self._listeners = Listeners()
        self._before = None
        self._overflows_before = 0
        self._refused_before = {}
        self._packets_before = 0
        self._traffic_before = 0
        self._last_empty = 0.0
        self._released_at = 0.0
        self.began = None
        self.waiting = 0           # packets in the plug when last looked

    def fds(self):
        return [*self._plug.fds(), *self._backlog.fds(),
                self._listeners.fileno()]

    def begin(self, max_hold_ms):
        """ToolError if this lane cannot hold; then nothing is held."""
        lane, netlink = self._lane, self._netlink
        problems = lane.problems(netlink)
        if problems:
            raise ToolError("; ".join(problems))
        # What somebody left behind: its filters would stand in the way, and
        # shutting a plug twice separates what it holds.
        release(self._plug)
        try:
            add_filters(lane, netlink)
            # An ifb hands its packets on without a queue, but the next device
            # that a director sends them to may have one (veth).
            self._backlog.raise_for(lane.limit_packets)
            plug = lane.find_plug(netlink)
            if plug is None:
                raise ToolError("the plug is gone")
            self._packets_before = plug.packets
            self._traffic_before = self._traffic()
            self._before = _counters(lane, netlink, plug)
            self._overflows_before = _overflows()
            self._refused_before = self._refused()
            # From now on whoever calls end() opens it, whatever happens.
            self.began = self._last_empty = time.monotonic()
            self._plug.shut(max_hold_ms)
        except (ToolError, OSError):
            self.began = None
            try:
                release(self._plug)
            finally:
                self._backlog.restore()
            raise

    def _wait_for_queues(self):
        """Wait until the receive queue may be as short as it was."""
        now = time.monotonic()
        give_up = now + _DRAIN_S + _DRAIN_EACH_S * self.waiting
        at_least = now + (_LOCAL_RETRY_S if
                          self._backlog.still_needed(self.waiting) else 0)
        while now < at_least or now < give_up and \
                self._backlog.still_needed(self._in_queues()):
            time.sleep(_DRAIN_POLL_S)
            now = time.monotonic()

    def _in_queues(self):
        """What was released and has not reached its listener yet."""
        return sum(_softnet_waiting()) + self._in_root()

    def _in_root(self):
        root = self._netlink.qdisc(self._lane.ifindex, PRIO_HANDLE)
        return root.qlen if root else 0

    def _wait_for_listeners(self):
        """Wait until what was released is counted where it was lost: each
        queue has been empty once (on a busy host never all together), for a
        SYN, its answer, and the answer to that."""
        give_up = time.monotonic() + _DRAIN_S
        for _ in range(3):
            while self._in_root() and time.monotonic() < give_up:
                time.sleep(_DRAIN_POLL_S)
            full = _softnet_waiting()
            while any(full) and time.monotonic() < give_up:
                time.sleep(_DRAIN_POLL_S)
                full = list(map(min, full, _softnet_waiting()))
        time.sleep(_SETTLE_COUNTERS_S)

    def sample(self):
        """Look into the plug, which tells since when something waits."""
        now = time.monotonic()
        plug = self._lane.find_plug(self._netlink)
        self.waiting = plug.qlen if plug else 0
        if not self.waiting:
            self._last_empty = now

    def _refused(self):
        """What the listeners of held ports have dropped."""
        if self._lane.all_packets:
            return {}
        try:
            return self._listeners.drops(self._lane.holds_port)
        except OSError:            # a kernel that cannot tell
            return {}

    def _traffic(self):
        """The packets of the device in the direction that is held."""
        device = self._netlink.link(self._lane.device)
        return 0 if device is None else (
            device.received if self._lane.mode == "ingress" else device.sent)

    def _missed(self):
        """How many packets passed the device if not one of them met the
        filters, or else 0."""
        passed = self._traffic() - self._traffic_before
        met = self._netlink.hits(self._lane.ifindex, self._lane.filter_parent,
                                 self._lane.preference)
        return passed if not met and passed >= _FEW else 0

    def open(self):
        """Release first, everything else later."""
        try:
            # (If another hold had raised it, and has ended since.)
            self._backlog.raise_for(self._lane.limit_packets)
        except (OSError, ToolError):
            pass                   # to open comes first
        try:
            self._released_at = open_plug(self._plug)
        except OSError:
            # Filters that lead nowhere would drop.
            remove_filters(self._lane, self._netlink)
            self._backlog.restore()
            raise

    def end(self):
        """Once it is open: remove the filters; return the report."""
        try:
            _drain(self._plug)
            empty_at = time.monotonic()
            missed = self._missed()
            remove_filters(self._lane, self._netlink)
            plug = self._lane.find_plug(self._netlink)
            held = max(0, ((plug.packets - self._packets_before) & 0xFFFFFFFF)
                       - self._plug.own_packets) if plug else 0
            if held:
                self._wait_for_queues()
                self._wait_for_listeners()
                plug = self._lane.find_plug(self._netlink)
        finally:
            self._backlog.restore()
        drops = _growth(self._before, _counters(
            self._lane, self._netlink, plug))
        # (Ours also drop what belongs to no connection.)
        drops["listeners"] = min(
            _overflows() - self._overflows_before,
            sum(_growth(self._refused_before, self._refused()).values()))
        if not held:
            drops["softnet"] = 0   # of others
        if "ifb" in drops:         # which drops what nobody else has sent
            drops["ifb"] = max(0, drops["ifb"] - self._plug.own_packets)
        return {
            "held": held,
            "longest_hold_ms": round(1000 * (empty_at - self._last_empty), 1)
            if held else 0.0,
            "hold_ms": round(1000 * (self._released_at - self.began), 1),
            "missed": missed,
            **{f"drops.{name}": count for name, count in drops.items()}}
