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


def asking(core, server):
    """The command that asks a server whether it is prepared."""
    protocol, where = core.name.split()
    address, port = where.rsplit(":", 1) if protocol != "FWM" else ("ADDRESS", "PORT")
    tunnel = dict(zip(server.options[::2], server.options[1::2])) \
        if server.method == "Tunnel" else {}
    if "." in address and server.address.version == 6:
        tunnel["outer"] = "ipv6"
    elif tunnel and ":" in address and server.address.version == 4:
        tunnel["outer"] = "ipv4"
    return f"real_server check --vip {address.strip('[]')} --port {port}" + \
        ("/udp" if protocol == "UDP" else "") + "".join(
            f" {ours} {tunnel[theirs]}" for theirs, ours in (
                ("--tun-type", "--tunnel"), ("outer", "--outer"),
                ("--tun-port", "--gue-port"))
            if theirs in tunnel)


def known(facts):
    """(service of mhs, the core's) where the core's is known."""
    for service in facts.services:
        core = facts.core.get(name_of(service))
        if core:
            yield service, core
