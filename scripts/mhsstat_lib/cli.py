# SPDX-License-Identifier: GPL-2.0-only
"""From the command line to the exit status."""

import os
import sys

from ipvs_mhs_tool import EXIT_OK, EXIT_PROBLEM, ToolError, UsageError
from ipvs_mhs_tool import main as run_main

from .options import parser
from .proc import name_of
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


def _json(value):
    import json
    return json.dumps(value, indent=1) + "\n"


def _show(options):
    status, services = EXIT_OK, None
    try:
        services = read_services(options.file)
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
        content = _json(as_json(services, not options.file, frames))
    elif options.prometheus:
        from . import prometheus
        content = prometheus.render(services, frames)
    elif services:
        from . import text
        content = text.show(services, frames, None if options.output else
                            text.columns(sys.stdout)) + "\n"
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


def _plan(options):
    from . import plan
    result = plan.compute(options)
    sys.stdout.write(_json(result) if options.json
                     else plan.render(result) + "\n")
    return plan.verdict(result, _warn)


def _check(options):
    from . import check
    from .facts import Facts
    facts = Facts()
    if options.service:
        select(facts.services, options.service)
        facts.services = [s for s in facts.services
                          if name_of(s) in options.service]
    found = check.findings(facts, options.ignore)
    status = EXIT_PROBLEM if {*map(check.severity, found)} - {"note"} \
        else EXIT_OK
    unseen, unasked = check.unseen(facts), check.unasked(facts)
    chances = [name_of(s) for s in facts.services
               if name_of(s) in facts.host.second_chance]
    if options.json:
        sys.stdout.write(_json({
            "format": 1, "servers_without_replies_here": unseen,
            "hops_never_asked": unasked,
            "services_with_second_chance": chances,
            "findings": [{"severity": check.severity(f), **f._asdict()}
                         for f in found]}))
        return status
    sys.stdout.write(check.render(
        f for f in found
        if not options.quiet or check.severity(f) != "note"))
    if unasked and not options.quiet:
        _warn(f"{len(unasked)} next hop(s) were not asked lately, and it is "
              f"unknown whether they answer: {check.few(unasked)}; 'ping' asks")
    if unseen and not options.quiet:
        _warn(f"{unseen} server(s) answer their clients past this host, which "
              "sees no reply: one that drops packets looks like one that "
              "answers; run 'real_server check' there")
    return status


def _lookup(options):
    from . import lookup
    result = lookup.lookup(options)
    sys.stdout.write(_json(result) if options.json
                     else lookup.render(result) + "\n")
    return EXIT_OK


def _compare(options):
    from .compare import Director, differences, told_apart, unsettled
    if options.file.count("-") > 1:
        raise UsageError("standard input can be read once only")
    directors = [Director.of_file(path) for path in options.file]
    if len(directors) == 1:
        directors.insert(0, Director.of_this_host())
    for line in unsettled(told_apart(directors)):
        _warn(line)
    lines = [line for other in directors[1:]
             for line in differences(directors[0], other)]
    names = ", ".join(d.name for d in directors)
    count = sum(len(s) for s in directors[0].services.values())
    if not lines and not count:
        lines = [f"there is no service of mhs to compare: {names}"]
    print("\n".join(lines) if lines else
          f"{len(directors)} directors forward alike: {count} service(s); "
          f"{names}")
    return EXIT_PROBLEM if lines else EXIT_OK


def main(argv):
    return run_main(parser(), {
        **{name: _command(name) for name in ("watch", "wait", "drain")},
        "show": _show, "plan": _plan, "check": _check, "lookup": _lookup,
        "compare": _compare}, argv)
