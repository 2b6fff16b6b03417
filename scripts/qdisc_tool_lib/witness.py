# SPDX-License-Identifier: GPL-2.0-only
"""Which new connections were made past a hold, by whatever way.

A packet socket sees, on every device, the SYNs that come in, what the plug lets go, and the answers
that go out: SYN-ACK, or RST from a port that is closed.  A connection that was answered, whose SYN
came during the hold and was not let go by a plug, was not held.  One that was answered before the
hold may still be a handshake: the kernel is asked for these, one by one.  So nothing is listed: what
this costs depends on the new connections only.  (A director whose servers answer clients directly
sees no answers, and so nothing is said of its connections.)
"""

import ctypes
import socket
import struct

_ETH_P_ALL = 3
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_BUFFER_BYTES = 16 << 20
_HEADERS_BYTES = 80
# To take more would keep a hold from its end; then nothing is known.
_MOST_AT_ONCE = 20_000
_SYN, _SYN_ACK, _RST_ACK, _FLAGS = 0x02, 0x12, 0x14, 0x17
# Classic BPF: (code, if true, if false, value); what counts begins at its network header.
_ACCEPT, _DROP = 18, 19
_PROGRAM = [
    (0x30, 0, 0, 0), (0x74, 0, 0, 4), (0x15, 0, 6, 4),            # IPv4?
    (0x30, 0, 0, 9), (0x15, 0, _DROP - 5, socket.IPPROTO_TCP),
    (0x28, 0, 0, 6), (0x45, _DROP - 7, 0, 0x1FFF),                # a fragment?
    (0xB1, 0, 0, 0), (0x05, 0, 0, 4),
    (0x15, 0, _DROP - 10, 6),                                     # IPv6?
    (0x30, 0, 0, 6), (0x15, 0, _DROP - 12, socket.IPPROTO_TCP),
    (0x01, 0, 0, 40),
    (0x50, 0, 0, 13), (0x54, 0, 0, _FLAGS),
    (0x15, _ACCEPT - 16, 0, _SYN), (0x15, _ACCEPT - 17, 0, _SYN_ACK),
    (0x15, 0, _DROP - 18, _RST_ACK),
    (0x06, 0, 0, _HEADERS_BYTES), (0x06, 0, 0, 0)]


class Witness:
    """Of all gates of a protect.  It sees what comes from now on."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._filter(_PROGRAM)
        self._asked = {}           # (client, server) -> device of the first SYN
        self._answered = set()
        self._let_go, self._counted = set(), None
        self._before = self._answered      # the hold
        self.is_sure = True
        # (bind() of Python wants the name of a device.)
        if ctypes.CDLL(None).bind(self._socket.fileno(), struct.pack(
                "=HHiHBB8x", socket.AF_PACKET, socket.htons(_ETH_P_ALL), 0, 0, 0, 0), 20):
            raise OSError("cannot see what passes the hold")

    def _filter(self, program):
        code = ctypes.create_string_buffer(b"".join(
            struct.pack("=HBBI", *line) for line in program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack(
            "@HP", len(program), ctypes.addressof(code)))

    def begin(self):
        """When the plugs are shut: what came before is none of the hold's."""
        self.is_sure = True
        self.look()                # if more has come than it takes, nothing is sure
        self._dropped()
        self._asked, self._answered = {}, set()

    def handshakes(self, gates, listeners):
        """How many go on that a gate would hold, of those that began before the hold."""
        self.look()
        for ends in list(self._before):
            if not any(gate.holds(*ends) for gate in gates) or not listeners.shakes_hands(*ends):
                self._before.remove(ends)
        return len(self._before)

    def look(self):
        """Take what has come meanwhile."""
        for _ in range(_MOST_AT_ONCE):
            try:
                data, address = self._socket.recvfrom(_HEADERS_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                continue           # a device went down
            self._take(data, *address[0:3:2])
        self.is_sure = False

    def _dropped(self):
        """How many since this was asked."""
        return struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]

    def _take(self, data, device, kind):
        if data[0] >> 4 == 4:
            start, ends = 4 * (data[0] & 15), (data[12:16], data[16:20])
        else:
            start, ends = 40, (data[8:24], data[24:40])
        sender, receiver = zip(ends, (data[start:start + 2], data[start + 2:start + 4]))
        if data[start + 13] & _FLAGS != _SYN:   # an answer, or nobody listens
            if kind == socket.PACKET_OUTGOING:
                self._answered.add((receiver, sender))
        elif kind == socket.PACKET_HOST:
            self._asked.setdefault((sender, receiver), device)
        elif kind == socket.PACKET_OUTGOING and device.startswith("plug"):
            self._let_go.add((sender, receiver))

    def freeze(self):
        """What is answered from now on is none of the hold's; once."""
        self.look()
        self._counted = set(self._answered) if self._counted is None else self._counted

    def end(self):
        """When the plugs have run empty, and before the filters go."""
        self._filter([(0x06, 0, 0, 0)])

    def passed(self, gates):
        """device -> how many connections that a gate should have held came by it."""
        self.look()
        self.is_sure = self.is_sure and not self._dropped()
        found = {}
        for ends in (self._counted or set()) - self._let_go if self.is_sure else ():
            device = self._asked.get(ends)
            if device and any(gate.holds(*ends) for gate in gates):
                found[device] = found.get(device, 0) + 1
        return found
