# SPDX-License-Identifier: GPL-2.0-only
"""A hold: lead new connections to the plug and shut it; later the reverse.

It begins and ends with one netlink message each.  All that can be done before the one
is, and all that can wait comes after the other; between them nothing is listed that
grows with the host.  The kernel has the deadline (flower.py), so a hold that nobody
ends holds nothing that comes later.

The queue that is shut is netem, which can let packets go in slots:

    shut    give it slots: the first packet that comes waits for one, and those
            behind it no longer than that
    open    take the slots away; send a packet, since only one that comes makes
            netem look at what waits

So in a hold that nobody ends each packet goes after the length of a slot.  The
packet that opens goes to nobody: an ifb drops what no filter has sent to it.
"""

import errno
import socket
import struct
import time
from contextlib import suppress

from . import flower, foreign
from .errors import ToolError
from .gate import PLUG_HANDLE, PLUG_KIND
from .listeners import Listeners
from .netlink import Netlink, attribute

_MISSING = ("this kernel has no netem (CONFIG_NET_SCH_NETEM): install its extra "
            "modules, for example kernel-modules-extra")
_TCA_NETEM_SLOT, _EXPERIMENTAL, _ETHERNET_BYTES = 12, 0x88B5, 60
# The next portion goes by itself after that, if nobody lets it go before.
_NEXT_MS = 100

# A slow machine needs a second for a thousand connections.
_DRAIN_S = 5.0
_POLL_S = 0.001
# Through a veth what is let go waits in a queue of 1,000 for each CPU, and on
# loopback its answers do: not more than so many at once.
_PORTION = 250
_PORTION_S = 0.1
NOBODY_LISTENS = ("nobody listens here on the held ports; for a server in a container hold its "
                  "published port, or with --netns its own")


class Plug:
    """That of a gate, with what it takes to shut it and to open it."""

    def __init__(self, gate):
        self.gate = gate
        self.netlink = Netlink()
        self.own_packets = 0       # that have passed it
        self._sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)

    def create(self):
        """Make it, open."""
        try:
            self._change(0, create=True)
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise ToolError(_MISSING) from error
            raise

    def shut(self):
        self._change(self.gate.max_hold_ms)

    def open(self, packets=0):
        """For so many, or for all."""
        self._change(_NEXT_MS if packets else 0, packets)
        with suppress(OSError):    # the device is down, and has let go all
            self._sender.bind((self.gate.plug_device, 0))
            address = self._sender.getsockname()[4]
            self._sender.send((2 * address + struct.pack(
                "!H", _EXPERIMENTAL)).ljust(_ETHERNET_BYTES, b"\0"))
            self.own_packets += 1

    def _change(self, slot_ms, packets=0, create=False):
        gate = self.gate
        # struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter;
        # struct tc_netem_slot: shortest, longest (ns), packets, bytes (any)
        options = struct.pack("=6I", 0, gate.queue_packets, 0, 0, 0, 0) + \
            attribute(_TCA_NETEM_SLOT, struct.pack(
                "=qqiiqq", *2 * [1_000_000 * slot_ms], packets, 0, 0, 0))
        self.netlink.qdisc_change(gate.plug_ifindex, PLUG_HANDLE, PLUG_KIND, options, create)


def _softnet_waiting():
    """The packets that wait in the receive queue of each CPU; old kernels do not say."""
    with open("/proc/self/net/softnet_stat", encoding="utf-8") as file:
        return [int(row[11], 16) for row in map(str.split, file) if len(row) > 11]


def let_go(plug):
    """Open the plug, whatever lives, and wait until it has run empty.  Only
    then may the filters go, or packets overtake others."""
    def waits(packets):
        found = plug.gate.find_plug(plug.netlink)
        return found and found.qlen > packets and time.monotonic() < give_up

    give_up = time.monotonic() + _DRAIN_S
    while waits(_PORTION):
        plug.open(_PORTION)
        time.sleep(_POLL_S)
        next_at = time.monotonic() + _PORTION_S
        while max(_softnet_waiting(), default=0) > _PORTION and time.monotonic() < next_at:
            time.sleep(_POLL_S)
    plug.open()
    while waits(0):
        time.sleep(_POLL_S)


def end_hold(plug):
    """End any hold of a gate, whoever began it.  Safe to repeat."""
    try:
        let_go(plug)
    finally:                       # filters that lead nowhere would drop
        flower.remove(plug.gate, plug.netlink)


class Hold:
    """The hold of one gate; its turn (state.py) is the caller's."""

    def __init__(self, gate, turn):
        self.gate = gate
        self.ended_by = None       # why it ended, once it has
        self._turn = turn
        self._plug = Plug(gate)
        self._netlink = self._plug.netlink
        self._nftables = foreign.Nftables()
        self._listeners = Listeners()
        self._served = False       # somebody listens
        self._before = self._after = None      # the plug, with its counters
        self._began = self._emptied = self._deadline = 0.0

    def begin(self, command):
        """ToolError if this gate cannot hold; then nothing is held."""
        gate, netlink, turn = self.gate, self._netlink, self._turn
        if turn.is_lost:
            raise ToolError("another call has its turn")
        problems = gate.problems(netlink) or foreign.skipped(
            gate, netlink.filters(gate.ifindex), self._nftables)
        if problems:
            raise ToolError("; ".join(problems))
        self._served = is_served(gate, self._listeners)
        # What somebody left behind: its filters would stand in the way, and
        # to shut a plug anew lets go what it holds.
        end_hold(self._plug)
        self._plug.own_packets = 0
        self._before = gate.find_plug(netlink)
        if self._before is None:
            raise ToolError("the plug is gone")
        try:
            flower.prepare(gate, turn)
            self._deadline = time.monotonic() + gate.max_hold_ms / 1000
            turn.note(command, self._deadline)
            flower.lead(gate, netlink, self._deadline)
            self._began = time.monotonic()
            self._plug.shut()
            if turn.is_lost:
                raise ToolError("released as it began")
        except BaseException:      # Ctrl-C, too
            end_hold(self._plug)
            raise

    def look(self):
        """Why the hold must end now, or has: a word, or None."""
        if self._turn.is_lost:
            return "release"
        if time.monotonic() >= self._deadline:
            return "deadline"
        if not self._netlink.is_up(self.gate.plug_device):
            return f"{self.gate.plug_device} was set down"
        filters = self._netlink.filters(self.gate.ifindex)
        if filters.keys().isdisjoint(self.gate.preferences):
            return "its filters were removed"
        return "; ".join(foreign.skipped(self.gate, filters, self._nftables)) or None

    def open(self, cause="protect"):
        """Let go what is held; once."""
        if self.ended_by:
            return
        self.ended_by = cause
        if self._turn.is_lost:     # another's turn
            self.ended_by = "release"
            return
        try:
            let_go(self._plug)
            self._emptied = time.monotonic()
            self._after = self.gate.find_plug(self._netlink)   # before another's turn
        except OSError as error:
            self.ended_by = f"error: {error}"

    def close(self):
        """After open(): remove the filters, and give the turn back."""
        if not self._turn.is_lost:
            flower.remove(self.gate, self._netlink)
        self._turn.leave()

    def report(self):
        """What it did; after close(), once nobody waits."""
        gate = self.gate
        report = {"device": gate.device, "ended_by": self.ended_by}
        if not self._emptied:
            return report
        plug = self._after or self._before
        dropped = (plug.drops - self._before.drops) & 0xFFFFFFFF
        held = ((plug.packets - self._before.packets) & 0xFFFFFFFF) - \
            self._plug.own_packets + dropped
        served = held or self._served or is_served(gate, self._listeners)
        return {**report, "held": held, "dropped": dropped,
                "remarks": [] if served else [NOBODY_LISTENS],
                "hold_ms": round(1000 * (self._emptied - self._began), 1)}


def is_served(gate, listeners):
    """Whether there is anybody here to whom the held ports lead."""
    try:
        return gate.all_packets or any(listeners.accepts_here(gate.holds_port)) or \
            _has_service(gate)
    except OSError:                # a kernel that cannot tell
        return True


def _has_service(gate):
    """Of IPVS."""
    with suppress(OSError), open("/proc/self/net/ip_vs", encoding="utf-8") as file:
        return any(gate.holds_port(int(line.split()[1][-4:], 16))
                   for line in file if line.startswith("TCP "))
    return False
