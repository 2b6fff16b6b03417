# SPDX-License-Identifier: GPL-2.0-only
"""What a director's forwarding depends on beside its tables: sysctls, timeouts,
and what ipvsadm was told.  'show --json' prints it, 'compare' reads it."""

import os

from ipvs_mhs_tool import ToolError

from . import module, netlink
from .rules import VS

# of services, by their own column; the way of packets to the director alone
_LEFT_OUT = ("mhs/second_chance", "mhs/ingress", "debug_level")


def _print(text):
    """Names of services with keys, without the keys."""
    return " ".join(where + (equals and f"={module.key_print(key)}")
                    for where, equals, key in
                    (word.partition("=") for word in text.split()))


def settings():
    """{sysctl below net.ipv4.vs: text}, and the timeouts."""
    found = {}
    for directory, below in ((VS, ""), (f"{VS}/mhs", "mhs/")):
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for name in names:
            text = module.parameter(name, directory)
            if text is not None and below + name not in _LEFT_OUT:
                found[below + name] = _print(text) if name == "quic_ids" else text
    try:
        found["timeouts"] = " ".join(map(str, netlink.timeouts()))
    except ToolError:
        pass
    return found


def core(known):
    """Services of all schedulers as ipvsadm was told them."""
    # the weights of mhs are its tables
    return [{"service": name, "scheduler": service.scheduler,
             "options": " ".join(service.options),
             "servers": {server.name: " ".join(server.told(
                 () if service.scheduler == "mhs" else ("-w", str(server.weight))))
                 for server in service.servers}}
            for name, those in known.items() for service in those]
