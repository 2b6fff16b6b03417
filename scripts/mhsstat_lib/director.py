# SPDX-License-Identifier: GPL-2.0-only
"""What a director's forwarding depends on beside its tables: sysctls, timeouts,
and what ipvsadm was told.  'show --json' prints it, 'compare' reads it."""

import os

from ipvs_mhs_tool import ToolError, run

from . import module, servers
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
        words = run(["ipvsadm", "-L", "--timeout"]).stdout.split()
        found["timeouts"] = " ".join(w for w in words if w.isdigit())
    except ToolError:
        pass
    return found


def _without(words, *options):
    """The words, without these options and what they are told."""
    kept, skip = [], False
    for word in words:
        if not skip and word not in options:
            kept.append(word)
        skip = not skip and word in options
    return kept


def core():
    """Services of all schedulers as ipvsadm was told them; None without it."""
    from .facts import thresholds
    try:
        known, limits = servers.of_this_host(), thresholds()
    except ToolError:
        return None
    which = ("-t", "-u", "-f", "--sctp-service", "-s", "-r")
    # the weights of mhs are its tables
    of_server = {"mhs": (*which, "-w")}
    return [{"service": name, "scheduler": service.scheduler,
             "options": " ".join(_without(service.words[1:], *which)),
             "servers": {server.name: " ".join((
                 *_without(server.words[1:],
                           *of_server.get(service.scheduler, which)),
                 *limits.get(name, {}).get(server.name, ())))
                 for server in service.servers}}
            for name, those in known.items() for service in those]
