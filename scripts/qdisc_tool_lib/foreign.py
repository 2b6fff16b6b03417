# SPDX-License-Identifier: GPL-2.0-only
"""What of others is on a device: before the filters of a gate, so that a packet may
never meet them, or behind, so that one that was held skips it.

A packet that arrives meets XDP, programs of tcx (Linux 6.6), the filters of clsact by
their preference, and the chains of nftables at the hook ingress.  What comes back from
the plug has passed what comes before our filters, and skips what comes behind.
"""

import json
from fnmatch import fnmatchcase

from .errors import ToolError
from .gate import has_clsact
from .netlink import TC_H_EGRESS, TC_H_INGRESS, Netlink
from .system import run

# nfnetlink(7), and the generation that a namespace begins with
_NETLINK_NETFILTER, _NFT_GETGEN, _NO_RULES = 12, 10 << 8 | 16, b"\0\0\0\1"
_LETS_IN = ("what is held would skip it, so that a firewall there would let in, during a "
            "hold, clients that it blocks; if that is no matter, set up with --past-firewalls")


class Nftables(Netlink):
    """The chains that see what arrives on a device, behind the filters of tc."""

    def __init__(self):
        super().__init__(_NETLINK_NETFILTER)
        self._generation, self._known = _NO_RULES, []

    def ingress_chains(self, device):
        """Their names.  They are listed when a rule has changed only."""
        try:
            generation = self.one(_NFT_GETGEN, 0, bytes(4))[8:12]
        except OSError:            # a kernel without nftables
            return []
        if generation != self._generation:
            try:
                chains = [item["chain"] for item in json.loads(
                    run("nft -j list chains".split()))["nftables"] if "chain" in item]
            except ToolError as error:
                return [str(error)]
            self._known = [f"{one['table']} {one['name']}" for one in chains if
                           one.get("hook") == "ingress" and _names(one.get("dev", "*"), device)]
            self._generation = generation
        return self._known


def _names(devices, device):
    """One or several; from Linux 6.16 on one may stand for all that begin so.  (Before
    nft 1.0.7 none is told for the family inet.)"""
    return any(fnmatchcase(device, name) for name in (
        [devices] if isinstance(devices, str) else devices))


def _filters(gate, netlink, are_meant):
    return [f"{gate.device} has an ingress filter of somebody else ({kind}, "
            f"preference {preference})"
            for preference, kind in netlink.filters(gate.ifindex).items()
            if preference not in gate.preferences and are_meant(preference)]


def before(gate, netlink):
    """Filters of others that may keep packets from being held."""
    return [f"{text}; what it takes is not held" for text in
            _filters(gate, netlink, lambda other: other < gate.preference)]


def skipped(gate, netlink, nftables):
    """What held packets skip, where that matters: filters, and chains of nftables."""
    return [] if gate.past_firewalls else [
        f"{text}; {_LETS_IN}, or give a greater --preference" for text in
        _filters(gate, netlink, lambda other: other > gate.preference)] + [
        f"{gate.device} has a chain of nftables at its hook ingress ({name}); {_LETS_IN}"
        for name in nftables.ingress_chains(gate.device)]


def clsact_in_use(gate, netlink):
    """Whether somebody has filters there, once ours are gone."""
    return has_clsact(gate, netlink) and any(
        netlink.filters(gate.ifindex, parent) for parent in (TC_H_INGRESS, TC_H_EGRESS))
