# SPDX-License-Identifier: GPL-2.0-only
"""What a director is doing at one moment."""

import os
import sys
import time

from ipvs_mhs_tool import ToolError

from . import module, netlink, proc, servers
from .module import VS


class NotThere(ToolError):
    """The module, or a service, is not there; it may come yet."""


def read_text(path):
    """A file, or standard input for '-'."""
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        if path.startswith(proc.PROC_MHS):
            if isinstance(error, FileNotFoundError):
                raise NotThere(f"there is no {path}: load the module with "
                               "'modprobe ip_vs_mhs'") from error
            if isinstance(error, PermissionError):
                raise ToolError(f"{path} is for root: run mhsstat as root"
                                ) from error
        raise ToolError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"{path}: this is not text") from error


_CHANCE = "/proc/net/ip_vs_mhs_chance"


def read_chance(text):
    """{service: fields} of services with the second chance; "silent_servers" are
    the names of those that do not answer."""
    found = {}
    for line in text.splitlines()[1:]:
        service, server, state, *numbers = line.split()
        fields = found.setdefault(f"TCP {service}", {"silent_servers": []})
        if state != "answers":
            fields["silent_servers"].append(server)
        fields.update(zip(("chance_returned", "chance_asked", "chance_reset",
                           "chance_dropped"), map(int, numbers)))
    return found


def read_services(names=(), path=None):
    """The services of /proc/net/ip_vs_mhs, or of a copy of it, which does not tell
    those with the second chance; of @names if there are any."""
    services = proc.parse(read_text(path or proc.PROC_MHS),
                          "standard input" if path == "-" else
                          path or proc.PROC_MHS, names)
    names = None if path else module.second_chance()
    if names is not None:
        known = read_chance(read_text(_CHANCE)) if names else {}
        for service in services:
            name = proc.name_of(service)
            service["second_chance"] = int(name in names)
            service.update(known.get(name, {}))
    return services


def select(services, names):
    """Those asked for, all if none is."""
    if not names:
        if not services:
            raise NotThere("there is no service with the scheduler mhs in "
                           "this network namespace")
        return services
    found = []
    for name in names:
        those = [s for s in services if proc.name_of(s) == name]
        if not those:
            raise NotThere(f"there is no service {name} with the scheduler "
                           "mhs in this network namespace: 'mhsstat show' "
                           "lists those there are")
        found += those
    return found


def _json_servers(service, known):
    """The servers of a service, None where two services have its name."""
    those = known.get(proc.name_of(service), [])
    if len(those) != 1:
        return None
    return [{"server": s.name, "method": s.method, "weight": s.weight,
             "active": s.active, "inactive": s.inactive}
            for s in those[0].servers]


# of services, by their own column; the way of packets to the director alone
_LEFT_OUT = ("mhs/second_chance", "mhs/ingress", "debug_level")


def _print(text):
    """Names of services, some with =[N:]KEY or =N:, without the keys."""
    def told(word):
        where, equals, key = word.partition("=")
        *number, key = key.split(":")
        return where + equals + ":".join([*number, key and module.key_print(key)])
    return " ".join(map(told, text.split()))


def _settings():
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


def _core(known, ours):
    """Services of all schedulers as ipvsadm was told them; the weights of @ours are
    their tables."""
    return [{"service": name, "scheduler": service.scheduler,
             "options": " ".join(service.options),
             "servers": {server.name: " ".join(server.told(
                 () if name in ours else ("-w", str(server.weight))))
                 for server in service.servers}}
            for name, those in known.items() for service in those]


def as_json(services, live, frames=None):
    """What 'show --json' prints and 'compare' reads; @frames are those that
    the lane saw."""
    result = {"format": 1, "time": round(time.time(), 3)}
    known = {}
    if live:
        result["director"] = os.uname().nodename
        # tells this network namespace from all others until the next boot
        result["namespace"] = "{} {}".format(module.parameter(
            "boot_id", "/proc/sys/kernel/random"), os.stat("/proc/self/ns/net").st_ino)
        result["parameters"] = module.describe()
        known = servers.of_this_host()
        if frames is not None:
            result["lane"] = frames
        result["settings"] = _settings()
        result["ipvsadm"] = _core(known, {*map(proc.name_of, services)})
    result["services"] = [
        {**s, **({"real_servers": _json_servers(s, known)} if live else {})}
        for s in services]
    return result
