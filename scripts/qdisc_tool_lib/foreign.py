# SPDX-License-Identifier: GPL-2.0-only
"""What of others is on a device: before the filters of a gate, so that a packet may never meet
them, or behind, so that one that was held skips it.

A packet that arrives meets XDP, programs of tcx (Linux 6.6), the filters of clsact by their
preference, and the chains of nftables at the hook ingress.  What comes back from the plug has
passed what comes before our filters, and skips what comes behind.
"""

import struct
from contextlib import suppress

from .gate import has_clsact
from .netlink import TC_H_EGRESS, TC_H_INGRESS, Netlink, attributes

# nfnetlink(7), and the generation that a namespace begins with
_NETLINK_NETFILTER, _GET_CHAIN, _GET_GENERATION, _NO_RULES = 12, 2564, 2576, b"\0\0\0\1"
# of the families inet and netdev: the number of the hook ingress
_INGRESS = {1: 5, 5: 0}
# attributes of a chain; of its hook, and one of the hook's devices
_TABLE, _NAME, _HOOK, _NUMBER, _DEVICES, _PREFIX = 1, 3, 4, 1, 4, 2
_LETS_IN = ("what is held would skip it, so that a firewall there would let in, during a hold, "
            "clients that it blocks; if there is none, set up with --past-firewalls")


class Nftables(Netlink):
    """The chains that see what arrives on a device, behind the filters of tc."""

    def __init__(self):
        self._generation, self._known = _NO_RULES, []
        with suppress(OSError):    # a kernel without netfilter
            super().__init__(_NETLINK_NETFILTER)

    def ingress_chains(self, device):
        """Their names.  They are listed when a rule has changed only."""
        try:
            generation = self.one(_GET_GENERATION, 0, bytes(4))[8:12]
        except (OSError, AttributeError, TypeError):       # one without nftables
            return []
        if generation != self._generation:
            try:
                self._known = [name for family in _INGRESS for name in self._chains(family, device)]
                self._generation = generation
            except OSError as error:
                return [f"cannot be listed: {error}"]
        return self._known

    def _chains(self, family, device):
        """Of one family.  From Linux 6.16 on a device may stand for all that begin so."""
        for body in self.dump(_GET_CHAIN, struct.pack("=Bxxx", family)):
            chain = dict(attributes(body[4:]))
            hook = dict(attributes(chain.get(_HOOK, b"")))
            devices = [(kind, _text(name)) for kind, name in attributes(hook.get(_DEVICES, b""))]
            if int.from_bytes(hook.get(_NUMBER, b"\xff"), "big") == _INGRESS[family] and any(
                    device == name or kind == _PREFIX and device.startswith(name)
                    for kind, name in devices):
                yield f"{_text(chain[_TABLE])} {_text(chain[_NAME])}"


def _text(payload):
    return payload.rstrip(b"\0").decode()


def _filters(gate, filters, are_meant):
    return [f"{gate.device} has an ingress filter of somebody else ({kind}, "
            f"preference {preference})"
            for preference, kind in filters.items()
            if preference not in gate.preferences and are_meant(preference)]


def before(gate, netlink):
    """Filters of others that may keep packets from being held."""
    return [f"{text}; what it takes is not held" for text in
            _filters(gate, netlink.filters(gate.ifindex), lambda other: other < gate.preference)]


def skipped(gate, filters, nftables):
    """What held packets skip, where that matters: of @filters, and chains of nftables."""
    return [] if gate.past_firewalls else [
        f"{text}; {_LETS_IN}, or give a greater --preference" for text in
        _filters(gate, filters, lambda other: other > gate.preference)] + [
        f"{gate.device} has a chain of nftables at its hook ingress ({name}); {_LETS_IN}"
        for name in nftables.ingress_chains(gate.device)]


def clsact_in_use(gate, netlink):
    """Whether somebody has filters there, once ours are gone."""
    return has_clsact(gate, netlink) and any(
        netlink.filters(gate.ifindex, parent) for parent in (TC_H_INGRESS, TC_H_EGRESS))
