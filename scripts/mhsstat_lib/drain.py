# SPDX-License-Identifier: GPL-2.0-only
"""Remove a server: weight 0, wait until it is drained, delete it.

All state is the kernel's, so a command that was interrupted goes on where it was
when it is given again.
"""

import shlex
import subprocess
import sys
from collections import namedtuple
from types import SimpleNamespace

from . import servers
from .address import spelled, told
from .errors import EXIT_OK, EXIT_TIMEOUT, ToolError
from .facts import run
from .proc import name_of
from .rules import Host
from .snapshot import read_services, select
from .text import duration
from .wait import Pending, Progress, having, until

# Of a service that has the server: the parsed parts, and the words of its -a line
Place = namedtuple("Place", "service server words")

_METHODS = ("-g", "-i", "-m")


def _limits(text):
    """{(service, server): ['-x', upper, '-y', lower]} of ipvsadm -Ln
    --thresholds, which -S leaves out and -e sets to 0."""
    found, service = {}, None
    for line in text.splitlines()[3:]:
        words = line.split()
        if words[:1] != ["->"]:
            service = " ".join(words[:2])
        elif len(words) > 3 and words[2:4] != ["0", "0"]:
            found[service, words[1]] = ["-x", words[2], "-y", words[3]]
    return found


def _places(name, options):
    """Where the server is, as the core says now."""
    saved = run(["ipvsadm", "-S", "-n"])[0]
    added = [line for line in map(shlex.split, saved.splitlines())
             if line[:1] == ["-a"]]
    parsed = [(service, server)
              for those in servers.parse(saved, "ipvsadm -S -n").values()
              for service in those for server in service.servers]
    by_line = {}
    for words in added:
        one = servers.parse(" ".join(["-A", *words[1:3]]) + "\n" +
                            shlex.join(words), "ipvsadm -S -n")
        (those,) = one.values()
        by_line.setdefault((those[0].name, those[0].servers[0].name),
                           []).append(words)
    return [Place(service, server, by_line[service.name, server.name].pop(0))
            for service, server in parsed if server.name == name and
            (not options.service or service.name in options.service)]


def _which(words):
    """The words for the service, and those for the server and its method."""
    at = words.index("-r")
    return words[1:at], words[at:at + 2], words[at + 2:]


def _zero(place, limits):
    """ipvsadm's arguments that set the weight to 0 and keep all else."""
    service, real, rest = _which(place.words)
    if "-w" in rest:
        at = rest.index("-w")
        rest = rest[:at] + rest[at + 2:]
    return ["-e", *service, *real, *rest, "-w", "0",
            *limits.get((place.service.name, place.server.name), ())]


def _delete(place):
    service, real, _ = _which(place.words)
    return ["-d", *service, *real]


def _refuse(places, ours, options, host):
    """What makes the removal unsafe, before anything is changed."""
    reasons = []
    for service, server, _ in places:
        name = service.name
        if name not in ours:
            reasons.append(
                f"{name} has that server, too, by the scheduler "
                f"{service.scheduler}, which this command does not know: name "
                "the services of mhs with -t, -u, --sctp-service or -f")
            continue
        if server.weight and not any(s.weight for s in service.servers
                                     if s is not server):
            reasons.append(
                f"{name}: {server.name} is the last server in service, and "
                "new connections would be refused: add another server, or give "
                "one a weight above 0")
        if host.short(name):
            reasons.append(
                f"{name}: net.ipv4.vs.mhs.pin_ms is {host.pin_ms}, and a flow "
                f"that is silent for longer than {duration(host.pin_ms)} would "
                "not be seen: run 'sysctl -w net.ipv4.vs.mhs.pin_ms=0'")
        if service.persistent and not host.quiesces:
            reasons.append(
                f"{name} is persistent, and clients that the server had come "
                "back to it in spite of weight 0: run 'sysctl -w "
                "net.ipv4.vs.expire_quiescent_template=1'")
    if reasons:
        raise ToolError("nothing was changed: " + "; ".join(reasons))


def _edit(words):
    done = subprocess.run(["ipvsadm", *words], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise ToolError(f"'ipvsadm {shlex.join(words)}' failed: "
                        f"{done.stderr.strip() or done.returncode}")


def _drain(options, progress):
    name = spelled(*told(options.server))
    ours = {name_of(s) for s in select(read_services(), options.service)}
    places = _places(name, options)
    if not places:
        # the message of wait, by what /proc says
        having(options.server, options.service)
        raise ToolError(f"ipvsadm -S -n does not list the server {name}")
    _refuse(places, ours, options, Host(True))
    limits = _limits(run(["ipvsadm", "-Ln", "--thresholds"])[0])
    zero = [_zero(place, limits) for place in places if place.server.weight]
    if options.dry_run:
        for words in (*zero, *map(_delete, places)):
            print(shlex.join(["ipvsadm", *words]))
        return EXIT_OK
    for words in zero:
        _edit(words)
    asked = SimpleNamespace(
        service=sorted({place.service.name for place in places}),
        drained=[options.server], gone=False, timeout_s=options.timeout_s,
        interval_s=options.interval_s)
    again = f"{name} keeps the weight 0 and is not deleted: give the same " \
            "command again to go on"
    try:
        status = until(Pending(progress.warn).look, asked, progress, "drained")
    except KeyboardInterrupt:
        print(f"mhsstat: {again}", file=sys.stderr)
        raise
    if status == EXIT_TIMEOUT:
        print(f"mhsstat: {again}", file=sys.stderr)
        return status
    for place in places:
        _edit(_delete(place))
        print(f"{place.service.name}: {name} was drained and is deleted")
    return EXIT_OK


def drain(options):
    """All of it; exit status."""
    return _drain(options, Progress(options.quiet))
