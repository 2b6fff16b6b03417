# SPDX-License-Identifier: GPL-2.0-only
"""What check finds, and the words that its parts share."""

from collections import namedtuple

from .proc import name_of

MHS = "net.ipv4.vs.mhs."
MANY = 4        # servers named in a line

# kind: a word of check.KINDS; service: its name, None for what is about all
Finding = namedtuple("Finding", "kind service servers text remedy")


def few(names):
    """The first ones, and how many more."""
    more = len(names) - MANY
    return ", ".join(names[:MANY]) + (f" and {more} more" if more > 0 else "")


def named(names):
    """A few of the servers."""
    return ("server " if len(names) == 1 else "servers ") + few([*names])


def known(facts):
    """(service of mhs, the core's) where the core's is known."""
    for service in facts.services:
        core = facts.core.get(name_of(service))
        if core:
            yield service, core
