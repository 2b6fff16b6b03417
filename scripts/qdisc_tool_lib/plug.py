# SPDX-License-Identifier: GPL-2.0-only
"""The queue that is shut during a hold: netem, which can let packets go in slots.

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
from contextlib import suppress

from .errors import ToolError
from .gate import PLUG_HANDLE, PLUG_KIND
from .netlink import Netlink, attribute

_MISSING = ("this kernel has no netem (CONFIG_NET_SCH_NETEM): install its extra "
            "modules, for example kernel-modules-extra")
_TCA_NETEM_SLOT = 12
_EXPERIMENTAL = 0x88B5
_ETHERNET_BYTES = 60
# The next portion goes by itself after that, if nobody lets it go before.
_NEXT_MS = 900


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

    def shut(self, max_hold_ms):
        self._change(max_hold_ms)

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
