# SPDX-License-Identifier: GPL-2.0-only
"""From the command line to the exit status."""

import os
import sys

from ipvs_mhs_tool import EXIT_OK, EXIT_PROBLEM, ToolError
from ipvs_mhs_tool import main as run_main
from ipvs_mhs_tool import json_of

from .options import parser
from .proc import name_of
from .text import screen
from .snapshot import NotThere, as_json, read_services, select


def _warn(words):
    print(f"mhsstat: {words}", file=sys.stderr)


def _replace(path, content):
    """Whoever reads the file finds the old one or the new one, whole."""
    import tempfile
    directory = os.path.dirname(os.path.abspath(path))
    try:
        handle, temporary = tempfile.mkstemp(prefix=".mhsstat.", dir=directory)
    except FileNotFoundError as error:
        raise ToolError(f"there is no directory {directory}: install what reads "
                        "the file (for metrics, node_exporter), or make the "
                        "directory") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _show(options):
    status, services = EXIT_OK, None
    try:
        services = read_services(options.service, options.file)
    except NotThere as error:
        # metrics say that the module is missing; else the last ones would stay
        if not options.prometheus:
            raise
        _warn(str(error))
        status = EXIT_PROBLEM
    if services is not None and options.service:
        services = select(services, options.service)
    frames = None
    if services is not None and not options.file:
        from . import lane
        frames = lane.read()
    if options.json:
        content = json_of(as_json(services, not options.file, frames))
    elif options.prometheus:
        from . import prometheus
        content = prometheus.render(services, frames)
    elif services:
        from . import text
        content = text.show(services, frames, text.Screen() if options.output
                            else text.screen(sys.stdout, options.all)) + "\n"
    else:
        content = "no service with the scheduler mhs\n"
    if options.output:
        _replace(options.output, content)
    else:
        sys.stdout.write(content)
    return status


def _command(name):
    """Of the part of that name, which other commands do not read."""
    def command(options):
        from importlib import import_module
        return getattr(import_module(f"mhsstat_lib.{name}"), name)(options)
    return command


def _print(result, render, options):
    sys.stdout.write(json_of({"format": 1, **result}) if options.json else
                     render(result, screen(sys.stdout, options.all)) + "\n")


def _plan(options):
    from . import plan
    result = plan.compute(options)
    _print(result, plan.render, options)
    return plan.verdict(result, _warn)


def _check(options):
    from . import check, mistakes
    from .facts import Facts
    from .finding import few
    facts = Facts(options.service, "lost" not in options.ignore)
    found = check.findings(facts, options.ignore)
    status = EXIT_PROBLEM if {*map(check.severity, found)} - {"note"} \
        else EXIT_OK
    unseen, unasked = check.unseen(facts), check.unasked(facts)
    chances = [name_of(s) for s in facts.services
               if name_of(s) in facts.host.second_chance]
    if options.json:
        sys.stdout.write(json_of({
            "format": 1, "servers_without_replies_here": len(unseen),
            "hops_never_asked": unasked,
            "services_with_second_chance": chances,
            "findings": [{"severity": check.severity(f), **f._asdict()}
                         for f in found]}))
        return status
    sys.stdout.write(check.render(
        [f for f in found if not options.quiet or check.severity(f) != "note"],
        screen(sys.stdout, options.all)))
    if options.quiet:
        return status
    if status == EXIT_OK:
        _warn(f"no warning of the {len(check.KINDS) - len(options.ignore)} kinds "
              "of finding that mhsstat(8) lists; what is not on that list was not "
              "looked for")
    if unasked:
        _warn(f"{len(unasked)} next hop(s) were not asked lately, and it is "
              f"unknown whether they answer: {few(unasked)}; 'ping' asks")
    marked = [name_of(s) for s in facts.services if name_of(s).startswith("FWM ")]
    few_came = sum((facts.came or {}).get(name_of(s), (0,))[0] < mistakes.BEGUN
                   for s in facts.services) - len(marked)
    if facts.came is not None and few_came:
        _warn(f"{few_came} service(s) got less than {mistakes.BEGUN} packets in half a "
              "second: what a router, or a firewall, tc or rules of this host do to "
              "theirs was not seen")
    if marked:
        _warn(f"{few(marked)}: which packets have the mark was not looked for; every "
              "packet of all its ports needs it in prerouting, not the SYN alone, and a "
              "local route: nft list ruleset; ip rule; ip route show table all type local")
    if unseen:
        asking = dict.fromkeys(unseen.values())
        _warn(f"{len(unseen)} server(s) answer their clients past this host, which "
              "sees no reply: one that drops packets looks like one that "
              f"answers; on each run: {few([*asking])} (and for one that failed later "
              "'ipvsadm -Z', then look again)")
    return status


def _lookup(options):
    from . import lookup
    _print(lookup.lookup(options), lookup.render, options)
    return EXIT_OK


def main(argv):
    return run_main(parser(), {
        **{name: _command(name) for name in ("watch", "wait", "drain", "compare")},
        "show": _show, "plan": _plan, "check": _check,
        "lookup": _lookup}, argv)
