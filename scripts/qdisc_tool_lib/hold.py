# SPDX-License-Identifier: GPL-2.0-only
"""A hold: lead new connections to the plug and shut it; later the reverse.

It begins and ends with one netlink message each.  All that can be done before the one
is, and all that can wait comes after the other; between them nothing is listed that
grows with the host.  The kernel has the deadline (flower.py), so a hold that nobody
ends holds nothing that comes later.
"""

import time

from . import flower, foreign
from .errors import ToolError
from .listeners import Listeners
from .netlink import Nftables
from .plug import Plug

# A slow machine needs a second for a thousand connections.
_DRAIN_S = 5.0
_POLL_S = 0.001
# Through a veth what is let go waits in a queue of 1,000 for each CPU, and on
# loopback its answers do: not more than so many at once.
_PORTION = 250
_PORTION_S = 0.1
NOBODY_LISTENS = ("nobody listens here on what is held; of a container hold the "
                  "published port, or the port by --netns")


def _softnet_waiting():
    """The packets that wait in the receive queue of each CPU; old kernels do
    not say."""
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


def release(plug):
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
        self._nftables = Nftables()
        self._rules = None         # the generation of those that were looked at
        self._listeners = Listeners()
        self._served = False       # somebody listens
        self._packets = 0          # that had passed the plug before
        self._hits = {}
        self._began = self._opened = self._emptied = self._deadline = 0.0

    def begin(self, max_hold_ms, command):
        """ToolError if this gate cannot hold; then nothing is held."""
        gate, netlink = self.gate, self._netlink
        problems = gate.problems(netlink) or self._skipped()
        if problems:
            raise ToolError("; ".join(problems))
        self._served = is_served(gate, self._listeners)
        # What somebody left behind: its filters would stand in the way, and
        # to shut a plug anew lets go what it holds.
        release(self._plug)
        self._plug.own_packets = 0
        plug = gate.find_plug(netlink)
        if plug is None:
            raise ToolError("the plug is gone")
        self._packets = plug.packets
        self._deadline = time.monotonic() + max_hold_ms / 1000
        self._turn.note(command, self._deadline)
        try:
            flower.add(gate, netlink, self._deadline)
            self._began = time.monotonic()
            self._plug.shut(max_hold_ms)
            if self._turn.is_lost:
                raise ToolError("released as it began")
        except (ToolError, OSError):
            release(self._plug)
            raise

    def _skipped(self):
        """What a packet that comes back would skip, if that matters and may have
        changed."""
        gate = self.gate
        if gate.past_firewalls:
            return []
        rules = self._nftables.generation()
        chains = []
        if rules is None or rules != self._rules:
            chains = foreign.chains(gate, self._nftables)
            self._rules = None if chains else rules
        return chains + foreign.behind(gate, self._netlink)

    def look(self):
        """Why the hold must end now, or has: a word, or None."""
        if self._turn.is_lost:
            return "release"
        if time.monotonic() >= self._deadline:
            return "deadline"
        return "; ".join(self._skipped()) or None

    def open(self, cause="last"):
        """Let go what is held; once."""
        if self.ended_by:
            return
        self.ended_by = cause
        if self._turn.is_lost:     # another's turn
            self.ended_by = "release"
            return
        self._opened = time.monotonic()
        try:
            let_go(self._plug)
            self._emptied = time.monotonic()
        except OSError as error:
            self.ended_by = f"error: {error}"

    def close(self):
        """After open(): remove the filters, and give the turn back."""
        try:
            if not self._turn.is_lost and self._emptied:
                self._hits = self._netlink.hits(self.gate.ifindex)
        except OSError as error:
            self.ended_by = f"error: {error}"
        finally:
            if not self._turn.is_lost:
                flower.remove(self.gate, self._netlink)
            self._turn.leave()

    def report(self):
        """What it did; after close(), once nobody waits."""
        gate = self.gate
        report = {"device": gate.device, "ended_by": self.ended_by}
        if not self._emptied:
            return report
        held, tagged, udp = gate.met(self._hits)
        plug = gate.find_plug(self._netlink)
        went = ((plug.packets - self._packets) & 0xFFFFFFFF) - \
            self._plug.own_packets if plug else 0
        remarks = foreign.before(gate, self._netlink) + foreign.programs(gate)
        if tagged:
            remarks.append(f"{tagged} new connections came with a VLAN tag and were not "
                           "held: set up with --vlan")
        if udp:
            remarks.append(f"{udp} UDP packets came for these ports; they are held by --all only")
        if not held and not self._served and not is_served(gate, self._listeners):
            remarks.append(NOBODY_LISTENS)
        return {
            **report, "held": held, "tagged": tagged, "udp": udp, "remarks": remarks,
            # (No packet waited longer than the plug was shut.)
            "longest_hold_ms": round(1000 * (self._emptied - self._began), 1)
            if held else 0.0,
            "hold_ms": round(1000 * (self._opened - self._began), 1),
            "dropped": min(held, max(0, held - went))}


def is_served(gate, listeners):
    """Whether there is anybody here to whom the held ports lead."""
    if gate.all_packets:
        return True
    try:
        return any(gate.holds_address(address) for address in
                   listeners.addresses(gate.holds_port)) or _has_service(gate)
    except OSError:                # a kernel that cannot tell
        return True


def _has_service(gate):
    """Of IPVS."""
    try:
        with open("/proc/self/net/ip_vs", encoding="utf-8") as file:
            return any(gate.holds_port(int(line.split()[1][-4:], 16))
                       for line in file if line.startswith("TCP "))
    except OSError:
        return False
