# SPDX-License-Identifier: GPL-2.0-only
"""Remove a server: weight 0, wait until it is drained, delete it.

All state is the kernel's, so a command that was interrupted goes on where it was
when it is given again.
"""

import sys
from types import SimpleNamespace

from ipvs_mhs_tool import EXIT_OK, EXIT_TIMEOUT, ToolError, quoted, run

from .address import spelled, told
from .proc import name_of
from .progress import Progress, until
from .rules import Host
from .servers import named
from .snapshot import read_services, select
from .wait import Pending, having, rests_on, two_families


def _refuse(places, rows, host):
    """What makes the removal unsafe, before anything is changed."""
    ours = {name_of(s): s for s in rows}
    reasons = two_families({service.name for service, _ in places}, rows, host)
    for service, server in places:
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
        reasons += host.unseen(service, ours[name])
    if reasons:
        raise ToolError("nothing was changed: " + "; ".join(reasons))


def drain(options):
    """All of it; exit status."""
    progress = Progress(options.quiet)
    name = spelled(*told(options.server))
    rows = select(read_services(options.service), options.service)
    places = having(options.server, options.service)
    _refuse(places, rows, Host(True))
    zero = [server.editing(0) for _, server in places if server.weight]
    if options.dry_run:
        those = [word for service, _ in places for word in named(service.name)]
        for words in *zero, ["mhsstat", "wait", *those, "--drained", name], *(
                server.deletion() for _, server in places):
            print(quoted(words))
        return EXIT_OK
    for words in zero:
        run(words)
    asked = SimpleNamespace(
        service=sorted({service.name for service, _ in places}),
        drained=[options.server], gone=False, timeout_s=options.timeout_s,
        interval_s=options.interval_s)
    again = f"{name} keeps the weight 0 and is not deleted: give the same " \
            "command again to go on"
    try:
        status = until(Pending().look, asked, progress, "drained")
    except KeyboardInterrupt:
        print(f"mhsstat: {again}", file=sys.stderr)
        raise
    except ToolError as error:
        raise ToolError(f"{name} is not deleted, and its weight stays as it is now: "
                        f"{error}") from error
    if status == EXIT_TIMEOUT:
        print(f"mhsstat: {again}", file=sys.stderr)
        return status
    for service, server in places:
        run(server.deletion())
        print(f"{service.name}: {name} was drained and is deleted")
    if not options.quiet:
        progress.warn(rests_on(asked.service, [name]))
    return EXIT_OK
