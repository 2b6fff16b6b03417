# SPDX-License-Identifier: GPL-2.0-only
"""The queue that is shut during a hold.

A plug qdisc is one by its nature.  Kernels without it (RHEL 9 and 10) have tbf,
the token bucket filter, which is as good as shut at a rate of a byte a second
and with an empty bucket:

    shut    change the rate, which fills the bucket; send a packet of the size
            of the bucket through it
    open    change the rate back; send a packet, since only one that comes
            makes tbf look at what waits

These packets go to nobody: an ifb drops what no filter has sent to it, and on
loopback they are for a port where nobody is.  Of the other ways netem keeps
what waits for as long as it was told when that came, and NFQUEUE and a tap
device hold packets in a process, with which they die.
"""

import errno
import _socket as socket      # see __init__.py
import _struct as struct

from .errors import ToolError
from .lane import PLUG_CLASS, PLUG_HANDLE
from .netlink import Netlink, attribute

KINDS = ("plug", "tbf")
_NEITHER = ("this kernel has neither a plug qdisc (CONFIG_NET_SCH_PLUG) nor tbf "
            "(CONFIG_NET_SCH_TBF): install its extra modules, for example "
            "kernel-modules-extra")

# The actions of struct tc_plug_qopt, by the names tc gives them.
_PLUG_ACTIONS = {"block": 0, "release_indefinite": 2, "limit": 3}
_TCA_TBF_PARMS, _TCA_TBF_BURST = 1, 6
_LINKLAYER_ETHERNET = 1
OPEN_RATE, SHUT_RATE = 0xFFFFFFFF, 1        # bytes a second
# The largest packet; tbf drops what does not fit into its bucket.
OPEN_BYTES, SHUT_BYTES = 1 << 20, 65549
_ETHERNET_BYTES = 14
_UDP_BYTES = 28
_NOBODY = ("127.0.0.1", 9)


class Plug:
    """That of a lane, with what it takes to shut it and to open it."""

    def __init__(self, lane):
        self.lane = lane
        self.netlink = Netlink()
        self._sender = None
        if lane.plug_kind == "tbf":
            self._prepare()

    def _prepare(self):
        if self.lane.mode == "ingress":
            self._sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._sender.bind((self.lane.plug_device, 0))
        else:
            self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            # A class of the root qdisc, so that no filter is asked.
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY,
                                    PLUG_CLASS)
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF,
                                    4 * SHUT_BYTES)
            self._sender.connect(_NOBODY)

    def fds(self):
        return [self.netlink.fileno(),
                *([self._sender.fileno()] if self._sender else [])]

    @property
    def own_packets(self):
        """How many packets of our own go through it from block to release."""
        return 2 if self.lane.plug_kind == "tbf" else 0

    def create(self):
        """Make it, open: with its limit (without one a plug drops everything),
        and opened before anything can lead to it (a new plug is shut)."""
        for self.lane.plug_kind in KINDS:
            try:
                self._change("limit", create=True)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    continue
                raise
            self._change("release_indefinite")     # (nothing waits yet)
            return
        raise ToolError(_NEITHER)

    def shut(self):
        self._change("block")
        if self._sender:
            self._send(SHUT_BYTES)

    def open(self):
        self._change("release_indefinite")
        if self._sender:
            self._send(_ETHERNET_BYTES + _UDP_BYTES)

    def _change(self, action, create=False):
        lane = self.lane
        if lane.plug_kind == "plug":
            options = struct.pack("=iI", _PLUG_ACTIONS[action],
                                  lane.limit_bytes if create else 0)
        else:
            rate, burst = ((SHUT_RATE, SHUT_BYTES) if action == "block"
                           else (OPEN_RATE, OPEN_BYTES))
            # struct tc_tbf_qopt: two of tc_ratespec, limit, buffer, mtu
            options = attribute(_TCA_TBF_PARMS, struct.pack(
                "=BBHhHI12xIII", 0, _LINKLAYER_ETHERNET, 0, 0, 0, rate,
                lane.limit_bytes + SHUT_BYTES, 0, 0)) + \
                attribute(_TCA_TBF_BURST, struct.pack("=I", burst))
        self.netlink.qdisc_change(lane.plug_ifindex, lane.plug_parent,
                                  PLUG_HANDLE, lane.plug_kind, options, create)

    def _send(self, size):
        """Send a packet of that size through it."""
        if self.lane.mode == "egress":
            size -= _ETHERNET_BYTES + _UDP_BYTES
        try:
            self._sender.send(bytes(size))
        except OSError as error:
            if error.errno != errno.ECONNREFUSED:
                raise
            self._sender.send(bytes(size))     # the answer to an earlier one
