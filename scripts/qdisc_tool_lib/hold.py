# SPDX-License-Identifier: GPL-2.0-only
"""A hold: lead new connections to the plug and shut it; later the reverse.

It begins and ends with one netlink message each.  All that can be done before
the one is, and all that can wait comes after the other.  What was held is what
met the filters, and what was lost of it is what the plug has not let go.
"""

import os
import time

from .errors import ToolError
from .listeners import Listeners
from .plug import Plug

# A slow machine needs a second for a thousand connections.
_DRAIN_S = 5.0
_POLL_S = 0.001
# Through a veth what is let go waits in a queue of 1,000 for each CPU, and on
# loopback its answers do: not more than so many at once.
_PORTION = 250
_PORTION_S = 0.1
# What has left the queue needs a moment to be counted at the listener.
_COUNTED_S = 0.02
# To list more connections than that takes too long.
_MANY_CONNECTIONS = 20_000
NOBODY_LISTENS = ("nobody listens here on what is held; of a container hold the "
                  "published port, or the port by --netns")


def _softnet_waiting():
    """The packets that wait in the receive queue of each CPU; old kernels do
    not say."""
    with open("/proc/self/net/softnet_stat", encoding="utf-8") as file:
        return [int(row[11], 16) for row in map(str.split, file)
                if len(row) > 11]


def let_go(plug):
    """Open the plug, whatever lives, and wait until it has run empty.  Only
    then may the filters go, or packets overtake others."""
    give_up = time.monotonic() + _DRAIN_S
    while time.monotonic() < give_up:
        found = plug.gate.find_plug(plug.netlink)
        if found is None or found.qlen <= _PORTION:
            break
        plug.open(_PORTION)
        time.sleep(_POLL_S)
        next_at = time.monotonic() + _PORTION_S
        while max(_softnet_waiting(), default=0) > _PORTION and \
                time.monotonic() < next_at:
            time.sleep(_POLL_S)
    plug.open()
    while time.monotonic() < give_up:
        found = plug.gate.find_plug(plug.netlink)
        if found is None or not found.qlen:
            break
        time.sleep(_POLL_S)


def release(plug):
    """End any hold of a gate, whoever began it.  Safe to repeat."""
    try:
        let_go(plug)
    finally:                       # filters that lead nowhere would drop
        remove_filters(plug.gate, plug.netlink)


def remove_filters(gate, netlink):
    """Those that are there."""
    for preference in gate.filters_there(netlink):
        try:
            netlink.delete_filters(gate.ifindex, preference)
        except OSError:
            pass                   # somebody else has, just now


def add_filters(gate, netlink):
    """Lead what the gate holds to the plug."""
    for message in gate.messages():
        netlink.add_filter(message)


def _counted(fd, start, *names):
    """The sum of some counters of a file of /proc/net, in the lines that begin so:
    one of names, and one of numbers."""
    lines = [line.split() for line in os.pread(fd, 1 << 16, 0).decode().splitlines()
             if line.startswith(start)]
    return sum(int(value) for name, value in zip(*lines) if name in names)


class Hold:
    """The hold of one gate, for one who has a part in it."""

    def __init__(self, gate):
        self._gate = gate
        self._plug = Plug(gate)
        self._netlink = self._plug.netlink
        self._listeners = Listeners()
        # Those of this namespace, also when we have left it.
        self._netstat, self._snmp = (
            os.open(f"/proc/self/net/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for name in ("netstat", "snmp"))
        self._overflows_before = 0
        self._refused_before = {}
        self._served = False       # somebody listens
        self._connections = None   # those that are known
        self._newcomers = set()
        self._hits = {}
        self._missed = 0
        self._opened = 0.0
        self._emptied = 0.0

    def begin(self, max_hold_ms, note):
        """Begin it, and note() what who ends it must know; without
        @max_hold_ms another has.  ToolError if this gate cannot hold; then
        nothing is held."""
        gate, netlink = self._gate, self._netlink
        problems = gate.problems(netlink)
        if problems:
            raise ToolError("; ".join(problems))
        self._overflows_before = self._overflows()
        self._refused_before = self._refused()
        self._served = self.is_served()
        if max_hold_ms is None:
            return
        # What somebody left behind: its filters would stand in the way, and
        # to shut a plug anew lets go what it holds.
        release(self._plug)
        self._plug.own_packets = 0
        plug = gate.find_plug(netlink)
        if plug is None:
            raise ToolError("the plug is gone")
        try:
            add_filters(gate, netlink)
            note(packets=plug.packets, traffic=self._traffic(),
                 began=time.monotonic())
            self._plug.shut(max_hold_ms)
        except (ToolError, OSError):
            release(self._plug)
            raise

    def end(self, facts):
        """Open it and remove the filters; by the last who has a part."""
        gate, netlink = self._gate, self._netlink
        passed = 0
        try:
            plug = gate.find_plug(netlink)
            if plug and not plug.qlen:     # nobody waits
                self._newcomers = self._new_connections()
            # (What is counted here has still to meet the filters.)
            passed = int(self._traffic() - facts["traffic"])
        except OSError:
            pass                   # to open comes first
        self._opened = time.monotonic()
        try:
            let_go(self._plug)
            self._emptied = time.monotonic()
            self._hits = netlink.hits(gate.ifindex)
            if self._hits.get(gate.preference) == 0:
                self._missed = max(0, passed)
        finally:
            remove_filters(gate, netlink)

    def report(self, facts):
        """What it did; after end()."""
        gate = self._gate
        held = sum(self._hits.get(preference, 0)
                   for preference in gate.hold_preferences)
        if held:
            self._wait_for_listeners()
        plug = gate.find_plug(self._netlink)
        went = ((plug.packets - int(facts["packets"])) & 0xFFFFFFFF) - \
            self._plug.own_packets if plug else 0
        refused = sum(max(0, count - self._refused_before.get(inode, 0))
                      for inode, count in self._refused().items())
        return {
            "held": held,
            # (No packet waited longer than the plug was shut.)
            "longest_hold_ms": round(1000 * (
                self._emptied - facts["began"]), 1) if held else 0.0,
            "hold_ms": round(1000 * (self._opened - facts["began"]), 1),
            "drops": {"plug": min(held, max(0, held - went)),
                      # (Listeners also drop what belongs to no connection.)
                      "listeners": min(refused, self._overflows() -
                                       self._overflows_before)},
            "missed": self._missed,
            **{name: [sentence for certain, sentence in self._said(held)
                      if certain == (name == "passed")]
               for name in ("passed", "remarks")}}

    def _said(self, held):
        """(whether something should have been held, a sentence that tells what):
        what is right where no client came is a mere remark."""
        gate, hits = self._gate, self._hits
        others = []
        if self._missed or any(preference not in gate.preferences
                               for preference in hits):
            from . import foreign  # dear, and when nobody waits any more
            others = foreign.filters(gate, self._netlink) + \
                foreign.programs(gate)
        if self._missed:
            # (A card may count late, and XDP may drop what is for nobody.)
            yield bool(others), (
                f"{self._missed} packets passed during the hold and none met "
                "its filters; a program takes them before (tcx, XDP), or they "
                "come in by another device")
        yield from ((False, sentence) for sentence in others)
        tagged, udp = (sum(hits.get(preference, 0) for preference in
                           preferences) for preferences in
                       (gate.tagged_preferences, gate.udp_preferences))
        if tagged:
            yield True, (f"{tagged} new connections came with a VLAN tag and "
                         "were not held: set up with --vlan")
        if udp:
            yield True, (f"{udp} UDP packets came for these ports; they are "
                         "held by --all only")
        if gate.preference not in hits:
            yield True, "the filters of the hold were removed by somebody else"
        if self._newcomers and not held:
            yield True, (f"{len(self._newcomers)} connections to these ports "
                         "were made during the hold, by another device or "
                         "before a filter")
        if not held and not self._served and not self.is_served():
            yield False, NOBODY_LISTENS

    # What is counted.

    def _traffic(self):
        """How many packets have come in by the device."""
        device = self._netlink.link(self._gate.device)
        return device.received if device else 0

    def _overflows(self):
        """Of all listeners of this namespace."""
        return _counted(self._netstat, "TcpExt:", "ListenOverflows",
                        "TCPReqQFullDrop")

    def _refused(self):
        """What the listeners of held ports have dropped."""
        if self._gate.all_packets:
            return {}
        try:
            return self._listeners.drops(self._gate.holds_port)
        except OSError:            # a kernel that cannot tell
            return {}

    def is_served(self):
        """Whether there is anybody here to whom the held ports lead."""
        gate = self._gate
        if gate.all_packets:
            return True
        try:
            return any(gate.holds_address(place) for place in
                       self._listeners.places(gate.holds_port)) or \
                self._has_service()
        except OSError:
            return True

    def _has_service(self):
        """Of IPVS."""
        try:
            with open("/proc/self/net/ip_vs", encoding="utf-8") as file:
                return any(
                    self._gate.holds_port(int(line.split()[1][-4:], 16))
                    for line in file if line.startswith("TCP "))
        except OSError:
            return False

    def note_connections(self):
        """What is there already was not to be held."""
        if self._gate.all_packets or \
                _counted(self._snmp, "Tcp:", "CurrEstab") > _MANY_CONNECTIONS:
            return
        try:
            self._connections = self._listeners.connections(
                self._gate.holds_port)
        except OSError:
            pass                   # a kernel that cannot tell

    def _new_connections(self):
        """Those that no filter has held.  (What is to a port that nobody listens
        on goes out from it.)"""
        if self._connections is None:
            return set()
        new = self._listeners.connections(
            self._gate.holds_port).difference(self._connections)
        ports = {place[0] for place in
                 self._listeners.places(self._gate.holds_port)} if new else ()
        return {one for one in new
                if one[0] in ports and self._gate.would_hold(one)}

    def _wait_for_listeners(self):
        """Wait until what was released is counted where it was lost: each
        queue has been empty once (on a busy host never all together), for a
        SYN, its answer, and the answer to that."""
        give_up = time.monotonic() + _DRAIN_S
        for _ in range(3):
            full = _softnet_waiting()
            while any(full) and time.monotonic() < give_up:
                time.sleep(_POLL_S)
                full = list(map(min, full, _softnet_waiting()))
        time.sleep(_COUNTED_S)
